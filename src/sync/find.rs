//! What can be looked for in an index, the real one and that of the models.

/// What has a hash, spread evenly over all 64 bits.
pub(crate) trait Hashed {
    fn hash(&self) -> u64;
}

/// What can be looked for among items of type `T`. Items look for themselves: that finds the one that is
/// equal. What finds an item has the item's hash.
pub(crate) trait Find<T>: Hashed {
    /// Is it this one?
    fn is(&self, item: &T) -> bool;
}
