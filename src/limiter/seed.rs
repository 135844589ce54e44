//! How a key is hashed: under a seed that nobody else knows.

use foldhash::SharedSeed;
use foldhash::quality::FoldHasher;
use std::fmt;
use std::hash::{BuildHasher, Hash, Hasher, RandomState};

/// A limiter's own random seed.
///
/// Who can choose keys and knows how they hash could make them collide with a victim's, or crowd one
/// probe run. So the seed is random for each limiter, and drawn from the operating system's entropy (by
/// way of std's `RandomState`) rather than from addresses and the time of day. The hash is foldhash's
/// `quality` variant: fast on short keys, and dependent on the seed in every step.
pub(super) struct Seed {
    hasher: u64,
    shared: SharedSeed,
}

impl Seed {
    pub(super) fn random() -> Self {
        // Each `RandomState` has keys of its own. A model must not be random, or loom could not run an
        // execution again.
        let [hasher, shared] = match cfg!(tollgate_loom) {
            true => [1, 2],
            false => [0, 1].map(|n: u8| RandomState::new().hash_one(n)),
        };
        Self { hasher, shared: SharedSeed::from_u64(shared) }
    }

    #[inline]
    pub(super) fn hash<Q: Hash + ?Sized>(&self, key: &Q) -> u64 {
        let mut hasher = FoldHasher::with_seed(self.hasher, &self.shared);
        key.hash(&mut hasher);
        hasher.finish()
    }
}

impl fmt::Debug for Seed {
    /// Does not tell it: who knows the seed can choose keys that collide.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Seed(secret)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_limiters_hash_one_key_differently() {
        let hashes: Vec<_> = (0..4).map(|_| Seed::random().hash("alice")).collect();
        for (i, hash) in hashes.iter().enumerate() {
            assert!(!hashes[..i].contains(hash));
        }
    }

    #[test]
    fn owned_and_borrowed_forms_have_one_hash() {
        let seed = Seed::random();
        let alice = seed.hash("alice");
        assert_eq!(alice, seed.hash(&"alice".to_owned()));
        assert_eq!(alice, seed.hash(&"alice"));
        assert_ne!(alice, seed.hash("bob"));
    }

    #[test]
    fn short_keys_spread_over_all_bits() {
        let seed = Seed::random();
        let (mut ones, mut zeros) = (0, 0);
        for key in 0..64_u64 {
            let hash = seed.hash(&key);
            ones |= hash;
            zeros |= !hash;
        }
        assert_eq!((ones, zeros), (u64::MAX, u64::MAX));
    }
}
