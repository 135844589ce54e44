//! Key hashes with a secret seed: a fast hash, and a cryptographic one.

#[cfg(not(tollgate_loom))]
use crate::reclaim::OnceLink;
use foldhash::SharedSeed;
use foldhash::quality::FoldHasher;
use std::fmt;
use std::hash::{BuildHasher, DefaultHasher, Hash, Hasher, RandomState};

/// The default hash of a limiter, which is fast for short keys. This is foldhash's `quality`
/// variant.
///
/// Each instance is a different function, which depends on a random seed.
/// [`Fingerprints`](crate::store::Fingerprints) compares this hash with [`SipHash`].
#[derive(Clone)]
pub struct FoldHash {
    seed: u64,
    /// A copy of the seed that all instances in the process share. A check reads the copy without
    /// following a pointer.
    shared: SharedSeed,
}

/// A keyed cryptographic hash, for keys that an attacker can choose. This is std's [`RandomState`].
///
/// Each instance is a different function, which depends on random keys. Today this hash is
/// SipHash-1-3; std may replace it with a hash that is at least as hard to attack.
/// [`Fingerprints`](crate::store::Fingerprints) compares this hash with [`FoldHash`].
///
/// J.-P. Aumasson and D. J. Bernstein, "SipHash: a fast short-input PRF", 2012.
#[derive(Clone)]
pub struct SipHash(RandomState);

/// Returns random bits. The bits are derived from the operating system's entropy, through std's
/// `RandomState`, rather than from addresses or the time of day. A model must not depend on random
/// numbers, because loom repeats each execution.
fn random_bits() -> u64 {
    // Each `RandomState` has different keys.
    if cfg!(tollgate_loom) { 1 } else { RandomState::new().hash_one(0) }
}

/// Returns the seed that all instances in the process share.
#[cfg(not(tollgate_loom))]
fn shared_seed() -> &'static SharedSeed {
    static SHARED: OnceLink<SharedSeed> = OnceLink::null();
    SHARED.get_or(|| SharedSeed::from_u64(random_bits()))
}

/// Returns a constant seed, because the models expect each key at a certain place.
#[cfg(tollgate_loom)]
fn shared_seed() -> &'static SharedSeed {
    static SHARED: SharedSeed = SharedSeed::from_u64(2);
    &SHARED
}

impl Default for FoldHash {
    fn default() -> Self {
        Self { seed: random_bits(), shared: shared_seed().clone() }
    }
}

impl Default for SipHash {
    fn default() -> Self {
        Self(RandomState::new())
    }
}

impl BuildHasher for FoldHash {
    type Hasher = FoldHasher<'static>;

    #[inline]
    fn build_hasher(&self) -> Self::Hasher {
        FoldHasher::with_seed(self.seed, shared_seed())
    }

    #[inline]
    fn hash_one<Q: Hash>(&self, key: Q) -> u64 {
        let mut hasher = FoldHasher::with_seed(self.seed, &self.shared);
        key.hash(&mut hasher);
        hasher.finish()
    }
}

impl BuildHasher for SipHash {
    type Hasher = DefaultHasher;

    #[inline]
    fn build_hasher(&self) -> Self::Hasher {
        self.0.build_hasher()
    }
}

impl fmt::Debug for FoldHash {
    /// Hides the seed, because an attacker who knows the seed can choose keys that collide.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("FoldHash(secret)")
    }
}

impl fmt::Debug for SipHash {
    /// Hides the secret keys of the hash.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SipHash(secret)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn two_limiters_differ<H: BuildHasher + Default>() {
        let hashes: Vec<_> = (0..4).map(|_| H::default().hash_one("alice")).collect();
        for (i, hash) in hashes.iter().enumerate() {
            assert!(!hashes[..i].contains(hash));
        }
    }

    #[test]
    fn two_limiters_hash_one_key_differently() {
        two_limiters_differ::<FoldHash>();
        two_limiters_differ::<SipHash>();
    }

    fn forms_agree<H: BuildHasher + Default>() {
        let hash = H::default();
        let alice = hash.hash_one("alice");
        assert_eq!(alice, hash.hash_one("alice".to_owned()));
        assert_ne!(alice, hash.hash_one("bob"));
    }

    #[test]
    fn owned_and_borrowed_forms_have_one_hash() {
        forms_agree::<FoldHash>();
        forms_agree::<SipHash>();
    }

    /// Checks that the hasher and `hash_one` return the same result.
    #[test]
    fn a_hasher_has_the_hash_of_a_key() {
        #[allow(clippy::manual_hash_one)]
        fn agree(hash: &impl BuildHasher) {
            let mut hasher = hash.build_hasher();
            "alice".hash(&mut hasher);
            assert_eq!(hasher.finish(), hash.hash_one("alice"));
        }
        agree(&FoldHash::default());
        agree(&SipHash::default());
    }

    /// Checks that each bit of the hash is set for about half of 4,096 keys. (For a fair bit, the
    /// number of keys falls outside of the range for one seed in 10^9.)
    fn all_bits_are_used<H: BuildHasher + Default>() {
        let hash = H::default();
        let mut set = [0_u32; 64];
        let mut seen = std::collections::HashSet::new();
        for key in 0..4_096_u64 {
            let hash = hash.hash_one(key);
            assert!(seen.insert(hash), "two keys have the hash {hash:x}");
            for (bit, set) in set.iter_mut().enumerate() {
                *set += u32::from(hash >> bit & 1 == 1);
            }
        }
        for (bit, set) in set.iter().enumerate() {
            assert!((1_848..=2_248).contains(set), "bit {bit} is set {set} times");
        }
    }

    #[test]
    fn hashes_of_short_keys_use_all_bits() {
        all_bits_are_used::<FoldHash>();
        all_bits_are_used::<SipHash>();
    }

    #[test]
    fn a_seed_is_not_printed() {
        assert_eq!(
            format!("{:?} {:?}", FoldHash::default(), SipHash::default()),
            "FoldHash(secret) SipHash(secret)"
        );
    }
}
