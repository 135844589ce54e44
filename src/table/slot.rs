//! The fingerprint of a key, which a slot holds beside the word.

/// A keyed 64-bit hash of a key, which represents the key.
///
/// | value | meaning |
/// |---|---|
/// | 0 | EMPTY: no key yet |
/// | 1 | SEALED: no key, and none will come |
/// | others | a key's |
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(transparent)]
pub(crate) struct Fingerprint(u64);

impl Fingerprint {
    pub(super) const EMPTY: Self = Self(0);
    pub(super) const SEALED: Self = Self(1);
    const RESERVED: u64 = 2;

    /// The fingerprint of a key with that hash. A reserved value is replaced by another one, which
    /// is also the fingerprint of one other hash.
    #[inline]
    pub(crate) const fn of_hash(hash: u64) -> Self {
        if hash < Self::RESERVED { Self::instead_of(hash) } else { Self(hash) }
    }

    /// Not inlined, so that other keys pay for a branch not taken instead of arithmetic.
    #[cold]
    #[inline(never)]
    const fn instead_of(hash: u64) -> Self {
        Self(!hash)
    }

    #[inline]
    pub(super) const fn is_empty(self) -> bool {
        self.0 == Self::EMPTY.0
    }

    #[inline]
    pub(super) const fn is_sealed(self) -> bool {
        self.0 == Self::SEALED.0
    }

    /// Is it EMPTY or SEALED? Such a slot holds no key and ends every probe run that meets it.
    #[inline]
    pub(super) const fn is_vacant(self) -> bool {
        self.0 < Self::RESERVED
    }

    #[inline]
    pub(crate) const fn bits(self) -> u64 {
        self.0
    }

    /// The line, of `count` lines, at which the probe run begins: the high bits of the hash,
    /// scaled.
    #[inline]
    pub(super) const fn home(self, count: usize) -> usize {
        // The product is below count * 2^64.
        #[allow(clippy::cast_possible_truncation)]
        let home = ((self.0 as u128 * count as u128) >> 64) as usize;
        home
    }
}

// SAFETY: `Fingerprint` is `repr(transparent)` over `u64`: no padding, every bit pattern is valid.
#[allow(unsafe_code)]
unsafe impl bytemuck::Zeroable for Fingerprint {}
// SAFETY: as above; `Copy` and `'static` by derive and definition.
#[allow(unsafe_code)]
unsafe impl bytemuck::Pod for Fingerprint {}

#[cfg(all(target_has_atomic = "64", not(tollgate_loom)))]
const _: () = assert!(crate::sync::Atomic::<Fingerprint>::is_lock_free());

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_hash_gives_a_reserved_fingerprint() {
        for hash in [0, 1, 2, u64::MAX] {
            assert!(Fingerprint::of_hash(hash).0 >= Fingerprint::RESERVED);
        }
    }

    #[test]
    fn only_the_reserved_values_are_vacant() {
        assert!(Fingerprint::EMPTY.is_vacant() && Fingerprint::SEALED.is_vacant());
        for hash in [0, 1, Fingerprint::RESERVED, u64::MAX] {
            assert!(!Fingerprint::of_hash(hash).is_vacant(), "{hash}");
        }
    }

    /// The bits choose the calls that do upkeep, so they must differ between keys.
    #[test]
    fn the_bits_are_those_of_the_hash() {
        for hash in [2, 77, u64::MAX] {
            assert_eq!(Fingerprint::of_hash(hash).bits(), hash);
        }
    }

    #[test]
    fn homes_cover_all_places_and_no_more() {
        for count in [1, 2, 3, 1000] {
            assert_eq!(Fingerprint::of_hash(2).home(count), 0);
            assert_eq!(Fingerprint::of_hash(u64::MAX).home(count), count - 1);
        }
    }
}
