//! The items of an index, for both the real index and the models' index.

use std::hash::Hasher;

/// A value that an index finds through its key. Two items are equal if their keys are equal.
pub(crate) trait Item {
    type Key: Eq;

    /// The hash of the key, spread evenly over all 64 bits.
    fn hash(&self) -> u64;
    fn key(&self) -> &Self::Key;
}

/// A hasher that passes on a previously computed hash.
#[derive(Clone, Copy, Default)]
pub(crate) struct Given(u64);

impl Hasher for Given {
    fn write(&mut self, _bytes: &[u8]) {
        unreachable!("a hash is one u64");
    }

    fn write_u64(&mut self, hash: u64) {
        self.0 = hash;
    }

    fn finish(&self) -> u64 {
        self.0
    }
}
