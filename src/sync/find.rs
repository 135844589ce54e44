//! The queries of an index, both of the real one and of that of the models.

/// A value with a hash, spread evenly over all 64 bits.
pub(crate) trait Hashed {
    fn hash(&self) -> u64;
}

/// A query for an item of type `T`. A query has the hash of the items that it matches. An item is
/// also a query, for the item that is equal to it.
pub(crate) trait Find<T>: Hashed {
    /// Returns whether the query matches `item`.
    fn is(&self, item: &T) -> bool;
}
