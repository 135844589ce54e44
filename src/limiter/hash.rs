//! The hash of a key, under a secret seed: a fast one or a cryptographic one.

use foldhash::SharedSeed;
use foldhash::quality::FoldHasher;
use std::fmt;
use std::hash::{BuildHasher, Hash, Hasher, RandomState};

/// The hash function of one limiter, under a random seed of its own.
pub trait Hashing: Send + Sync + Sized + 'static {
    /// A hash with a new random seed.
    fn random() -> Self;
    /// The hash of a key.
    fn hash<Q: Hash + ?Sized>(&self, key: &Q) -> u64;
}

/// The hash function of a limiter's keys: [`FoldHash`], the default, or [`SipHash`]
/// ([`keyed_hash`](crate::Builder::keyed_hash)).
///
/// This trait is sealed.
///
/// # What an attacker could gain
///
/// An attacker who picks keys (client addresses, headers, names of accounts) wants keys whose
/// hashes collide:
///
/// - With [`Fingerprints`](crate::Fingerprints), a key that has all 64 bits of a victim's hash
///   shares the victim's state and can use it up: the victim's requests are denied. A collision
///   never admits more than a quota; two keys that collide get less.
/// - Keys whose upper bits agree crowd a part of the table or of the index, and lookups there take
///   longer.
///
/// Both hashes make a blind attacker pay the full price: each limiter draws a seed from the
/// system's entropy and keeps it secret. One of n keys that were tried has a given victim's 64 bits
/// with probability n / 2^64. At a million new keys a second that takes 580,000 years on average.
/// Any two of n keys collide with probability n^2 / 2^65, which is 2.7e-6 for ten million.
///
/// The hashes differ against an attacker who learns from answers. `remaining` of one key after a
/// charge of another tells whether the two share a state, and times tell a little of where keys
/// lie. SipHash is designed so that any number of hashes of keys that the attacker chooses tells
/// nothing of the seed. FoldHash mixes its seed into each step, and no way to find the seed through
/// a limiter is known; but its authors promise nothing against an attacker who watches its hashes.
///
/// Choose `keyed_hash` where strangers pick keys and a victim's denial is worth that effort to
/// them. It about doubles the time of a check of a hot key.
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

/// The default hash of a limiter: foldhash's `quality` variant, fast on short keys, under a random
/// seed.
///
/// [`KeyHash`] compares it with [`SipHash`].
pub struct FoldHash {
    hasher: u64,
    shared: SharedSeed,
}

/// A keyed cryptographic hash, for keys that an attacker picks: std's [`RandomState`], under random
/// keys.
///
/// Today this is SipHash-1-3; std may replace it by a hash that is at least as hard to attack.
/// [`KeyHash`] compares it with [`FoldHash`].
///
/// J.-P. Aumasson and D. J. Bernstein, "SipHash: a fast short-input PRF", 2012.
pub struct SipHash(RandomState);

impl Hashing for FoldHash {
    /// Draws the seed from the operating system's entropy, by way of std's `RandomState`, rather
    /// than from addresses and the time of day.
    fn random() -> Self {
        // Each `RandomState` has keys of its own. A model must not be random, because loom runs
        // each execution again.
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
    /// Hides the seed: an attacker who knows it can choose keys that collide.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("FoldHash(secret)")
    }
}

impl fmt::Debug for SipHash {
    /// Hides the keys of the hash.
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

    /// Each bit of the hash is set for about half of 4,096 keys. (A fair bit is this far off once
    /// in 10^9 seeds.)
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
