//! Key hashes with a secret seed: a fast hash, and a cryptographic one.

#[cfg(not(tollgate_loom))]
use crate::reclaim::OnceLink;
use foldhash::SharedSeed;
use foldhash::quality::FoldHasher;
use siphasher::sip::SipHasher13;
use std::fmt;
use std::hash::{BuildHasher, Hash, Hasher, RandomState};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The default hash of a limiter, which is fast for short keys. This is foldhash's `quality`
/// variant.
///
/// Each instance is a different function, which depends on a random seed.
/// [`Fingerprints`](crate::store::Fingerprints) compares this hash with [`SipHash`].
#[derive(Clone)]
pub struct FoldHash {
    seed: u64,
    /// A copy of the shared seed. A check reads the copy without following a pointer.
    shared: SharedSeed,
    kept: &'static KeptSeed,
}

/// A seed that several instances share. All new instances in a process share one seed. An instance
/// that was loaded from a file has the shared seed of the process that wrote the file. The seeds
/// form a list and are never freed, because a hasher borrows its shared seed.
struct KeptSeed {
    bits: u64,
    seed: SharedSeed,
    #[cfg(not(tollgate_loom))]
    next: OnceLink<KeptSeed>,
}

/// A keyed cryptographic hash, for keys that an attacker can choose: SipHash-1-3.
///
/// Each instance is a different function, which depends on 128 random bits.
/// [`Fingerprints`](crate::store::Fingerprints) compares this hash with [`FoldHash`].
///
/// J.-P. Aumasson and D. J. Bernstein, "SipHash: a fast short-input PRF", 2012.
#[derive(Clone)]
pub struct SipHash(SipHasher13);

/// A hash whose seeds can be saved. A hash with the same seeds is the same function.
pub trait Seeded: Sized {
    #[doc(hidden)]
    fn seeds(&self) -> [u64; 2];
    #[doc(hidden)]
    fn of_seeds(seeds: [u64; 2]) -> Self;
}

/// Returns random bits. The bits are derived from the operating system's entropy, through std's
/// `RandomState`, rather than from addresses or the time of day. A model must not depend on random
/// numbers, because loom repeats each execution.
fn random_bits() -> u64 {
    // Each `RandomState` has different keys.
    if cfg!(tollgate_loom) { 1 } else { RandomState::new().hash_one(0) }
}

/// Returns the hashes of fixed keys of common types. If these values change, the hash has become
/// another function, or a type passes other bytes to the hash.
pub(crate) fn proof(hash: &impl BuildHasher) -> [u64; 10] {
    let text = "What a limiter counts, it counts for keys of any length, short or long.";
    [
        hash.hash_one(0_u64),
        hash.hash_one(u64::MAX),
        hash.hash_one(""),
        hash.hash_one(&text[..7]),
        hash.hash_one(&text[..17]),
        hash.hash_one(text),
        hash.hash_one(&text.as_bytes()[..33]),
        hash.hash_one(IpAddr::V4(Ipv4Addr::LOCALHOST)),
        hash.hash_one(IpAddr::V6(Ipv6Addr::LOCALHOST)),
        hash.hash_one((7_u32, text)),
    ]
}

#[cfg(not(tollgate_loom))]
impl KeptSeed {
    fn of_bits(bits: u64) -> Self {
        Self { bits, seed: SharedSeed::from_u64(bits), next: OnceLink::null() }
    }

    /// Returns the seed that all new instances in the process share.
    fn first() -> &'static Self {
        static FIRST: OnceLink<KeptSeed> = OnceLink::null();
        FIRST.get_or(|| Self::of_bits(random_bits()))
    }

    /// Returns the seed with these bits.
    fn with_bits(bits: u64) -> &'static Self {
        let mut kept = Self::first();
        while kept.bits != bits {
            kept = kept.next.get_or(|| Self::of_bits(bits));
        }
        kept
    }
}

/// In models, all instances share a constant seed, because the models expect each key at a certain
/// place.
#[cfg(tollgate_loom)]
impl KeptSeed {
    fn first() -> &'static Self {
        static FIRST: KeptSeed = KeptSeed { bits: 2, seed: SharedSeed::from_u64(2) };
        &FIRST
    }

    fn with_bits(_: u64) -> &'static Self {
        Self::first()
    }
}

impl FoldHash {
    fn of(seed: u64, kept: &'static KeptSeed) -> Self {
        Self { seed, shared: kept.seed.clone(), kept }
    }
}

impl Default for FoldHash {
    fn default() -> Self {
        Self::of(random_bits(), KeptSeed::first())
    }
}

impl Default for SipHash {
    fn default() -> Self {
        Self::of_seeds([random_bits(), random_bits()])
    }
}

impl Seeded for FoldHash {
    fn seeds(&self) -> [u64; 2] {
        [self.seed, self.kept.bits]
    }

    fn of_seeds([seed, bits]: [u64; 2]) -> Self {
        Self::of(seed, KeptSeed::with_bits(bits))
    }
}

impl Seeded for SipHash {
    fn seeds(&self) -> [u64; 2] {
        self.0.keys().into()
    }

    fn of_seeds([first, second]: [u64; 2]) -> Self {
        Self(SipHasher13::new_with_keys(first, second))
    }
}

impl BuildHasher for FoldHash {
    type Hasher = FoldHasher<'static>;

    #[inline]
    fn build_hasher(&self) -> Self::Hasher {
        FoldHasher::with_seed(self.seed, &self.kept.seed)
    }

    #[inline]
    fn hash_one<Q: Hash>(&self, key: Q) -> u64 {
        let mut hasher = FoldHasher::with_seed(self.seed, &self.shared);
        key.hash(&mut hasher);
        hasher.finish()
    }
}

impl BuildHasher for SipHash {
    type Hasher = SipHasher13;

    #[inline]
    fn build_hasher(&self) -> Self::Hasher {
        self.0
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

    /// The seeds of another process differ in both parts.
    #[test]
    fn a_hash_with_the_seeds_of_another_is_the_same_function() {
        #[allow(clippy::manual_hash_one)]
        fn agree<H: BuildHasher + Seeded + Default>() {
            let [one, [first, second]] = [(); 2].map(|()| H::default().seeds());
            for seeds in [one, [first, !second], [!first, second], [7, 9]] {
                let [hash, again] = [(); 2].map(|()| H::of_seeds(seeds));
                assert_eq!((hash.seeds(), hash.hash_one("alice")), (seeds, again.hash_one("alice")));
                let mut hasher = again.build_hasher();
                "alice".hash(&mut hasher);
                assert_eq!(hasher.finish(), hash.hash_one("alice"));
            }
            assert_ne!(H::of_seeds([7, 9]).hash_one("alice"), H::of_seeds([7, 8]).hash_one("alice"));
            assert_ne!(H::of_seeds([7, 9]).hash_one("alice"), H::of_seeds([8, 9]).hash_one("alice"));
        }
        agree::<FoldHash>();
        agree::<SipHash>();
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
