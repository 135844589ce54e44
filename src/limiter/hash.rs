//! How a key is hashed: under a seed that nobody else knows, by a fast hash or by a cryptographic one.

use foldhash::SharedSeed;
use foldhash::quality::FoldHasher;
use std::fmt;
use std::hash::{BuildHasher, Hash, Hasher, RandomState};

/// What hashes the keys of one limiter, under a random seed of its own.
pub trait Hashing: Send + Sync + Sized + 'static {
    /// A hash with another seed than any other limiter has.
    fn random() -> Self;
    /// The hash of a key.
    fn hash<Q: Hash + ?Sized>(&self, key: &Q) -> u64;
}

/// How a limiter hashes its keys: by [`FoldHash`], the default, or by [`SipHash`]
/// ([`keyed_hash`](crate::Builder::keyed_hash)). Sealed.
///
/// # What an attacker could gain
///
/// Someone who picks keys (client addresses, headers, names of accounts) wants keys whose hashes collide:
///
/// - With [`Fingerprints`](crate::Fingerprints), a key that has all 64 bits of a victim's hash shares the victim's state, and can use
///   it up: requests of the victim are denied. Nobody gets more than a quota by it; two keys that collide get less.
/// - Keys that agree in the upper bits crowd a part of the table or of the index, and lookups there take longer.
///
/// Both hashes make a blind attacker pay the full price, for each limiter draws a seed from the system's entropy and tells it to
/// nobody: of n keys that were tried, one has a given victim's 64 bits with probability n / 2^64. At a million new keys a second
/// that is once in 580,000 years. Any two of n keys collide with probability n^2 / 2^65, which is 2.7e-6 for ten million.
///
/// What differs is an attacker who learns from answers. `remaining` of one key after a charge of another tells whether the two share
/// a state, and times tell a little of where keys lie. SipHash is designed so that any number of hashes of keys that the attacker
/// chooses tells nothing of the seed. FoldHash depends on its seed in each step, and no way to find that through a limiter is known;
/// but its authors promise nothing against an attacker who watches its hashes. Choose `keyed_hash` where strangers pick keys and
/// a victim's denial is worth that effort to them. It about doubles the time of a check of a hot key; who does not choose it pays
/// nothing for it.
///
/// ```
/// use tollgate::{Fingerprints, Accepts, KeyHash, Limiter, Quota};
///
/// fn asks<H: KeyHash>(limiter: &Limiter<str, Fingerprints<H>>) -> bool {
///     limiter.check("alice").is_allowed()
/// }
///
/// let fast = Limiter::builder(Quota::per_second(1)).build()?;
/// let keyed = Limiter::builder(Quota::per_second(1)).keyed_hash().build()?;
/// assert!(asks(&fast) && asks(&keyed));
/// # Ok::<(), tollgate::ConfigError>(())
/// ```
pub trait KeyHash: Hashing {}

/// The hash of a limiter that is told of no other: foldhash's `quality` variant, fast on short keys, under a random seed. See
/// [`KeyHash`].
pub struct FoldHash {
    hasher: u64,
    shared: SharedSeed,
}

/// A keyed cryptographic hash, for keys that an attacker picks: std's [`RandomState`], which is SipHash-1-3 (and may become another
/// one that is at least as hard to attack), under random keys. See [`KeyHash`].
///
/// J.-P. Aumasson and D. J. Bernstein, "SipHash: a fast short-input PRF", 2012.
pub struct SipHash(RandomState);

impl Hashing for FoldHash {
    /// From the operating system's entropy, by way of std's `RandomState`, rather than from addresses and the time of day.
    fn random() -> Self {
        // Each `RandomState` has keys of its own. A model must not be random, or loom could not run an
        // execution again.
        let [hasher, shared] = match cfg!(tollgate_loom) {
            true => [1, 2],
            false => [0, 1].map(|n: u8| RandomState::new().hash_one(n)),
        };
        Self { hasher, shared: SharedSeed::from_u64(shared) }
    }

    #[inline]
    fn hash<Q: Hash + ?Sized>(&self, key: &Q) -> u64 {
        let mut hasher = FoldHasher::with_seed(self.hasher, &self.shared);
        key.hash(&mut hasher);
        hasher.finish()
    }
}

impl Hashing for SipHash {
    fn random() -> Self {
        Self(RandomState::new())
    }

    #[inline]
    fn hash<Q: Hash + ?Sized>(&self, key: &Q) -> u64 {
        self.0.hash_one(key)
    }
}

impl KeyHash for FoldHash {}
impl KeyHash for SipHash {}

impl fmt::Debug for FoldHash {
    /// Does not tell it: who knows the seed can choose keys that collide.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("FoldHash(secret)")
    }
}

impl fmt::Debug for SipHash {
    /// Does not tell its keys either.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SipHash(secret)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn two_limiters_differ<H: Hashing>() {
        let hashes: Vec<_> = (0..4).map(|_| H::random().hash("alice")).collect();
        for (i, hash) in hashes.iter().enumerate() {
            assert!(!hashes[..i].contains(hash));
        }
    }

    #[test]
    fn two_limiters_hash_one_key_differently() {
        two_limiters_differ::<FoldHash>();
        two_limiters_differ::<SipHash>();
    }

    fn forms_agree<H: Hashing>() {
        let hash = H::random();
        let alice = hash.hash("alice");
        assert_eq!(alice, hash.hash(&"alice".to_owned()));
        assert_eq!(alice, hash.hash(&"alice"));
        assert_ne!(alice, hash.hash("bob"));
    }

    #[test]
    fn owned_and_borrowed_forms_have_one_hash() {
        forms_agree::<FoldHash>();
        forms_agree::<SipHash>();
    }

    /// Of 64 keys in a row, each bit of the hash is set in some and not in others; and of 4,096, each bit in about half. (A bit that is
    /// fair is as far off once in 10^9 seeds.)
    fn all_bits_are_used<H: Hashing>() {
        let hash = H::random();
        let mut set = [0_u32; 64];
        let mut seen = std::collections::HashSet::new();
        for key in 0..4_096_u64 {
            let hash = hash.hash(&key);
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
            format!("{:?} {:?}", FoldHash::random(), SipHash::random()),
            "FoldHash(secret) SipHash(secret)"
        );
    }
}
