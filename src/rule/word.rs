//! The packed state of one key.

use std::fmt;

/// The packed 64-bit state of one key. Only the rule that created a word can interpret its value,
/// and only with the same quota.
///
/// | bits | meaning |
/// |---|---|
/// | 63 | the table's *frozen* mark: no more updates to this word; 0 in every word a rule makes |
/// | 0 to 62 | the rule's value; 0 only in a fresh word, and in a frozen one if the key was evicted |
///
/// ```
/// use tollgate::rule::Word;
///
/// assert!(Word::FRESH.is_fresh());
/// assert_eq!(Word::default(), Word::FRESH);
/// ```
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
#[repr(transparent)]
pub struct Word(u64);

impl Word {
    /// The word of a key that was never seen. A rule never turns a used word back into this value.
    pub const FRESH: Self = Self(0);

    /// The number of bits that a rule may use.
    pub(crate) const VALUE_BITS: u32 = 63;

    /// Returns true if this is the word of a key that was never seen.
    ///
    /// ```
    /// assert!(tollgate::rule::Word::FRESH.is_fresh());
    /// ```
    #[inline]
    pub const fn is_fresh(self) -> bool {
        self.0 == 0
    }

    /// The word of a key that was forgotten because it was idle during the turnover of its array.
    pub(crate) const EVICTED: Self = Self(1 << Self::VALUE_BITS);

    /// Returns true if the *frozen* mark is set. A frozen word never changes again.
    #[inline]
    pub(crate) const fn is_frozen(self) -> bool {
        self.0 >> Self::VALUE_BITS != 0
    }

    /// Returns true if this is the word of a key that was charged and may be charged again. Such a
    /// word is neither fresh nor frozen.
    #[inline(always)]
    pub(crate) const fn is_live(self) -> bool {
        self.0.wrapping_sub(1) < Self::EVICTED.0 - 1
    }

    /// Returns this word with the *frozen* mark.
    #[inline]
    pub(crate) const fn frozen(self) -> Self {
        Self(self.0 | Self::EVICTED.0)
    }

    /// Returns this word without the *frozen* mark.
    #[inline]
    pub(crate) const fn thawed(self) -> Self {
        Self(self.0 & !Self::EVICTED.0)
    }

    /// Returns the bits of this word, to save them.
    pub(crate) const fn bits(self) -> u64 {
        self.0
    }

    /// Returns the word with these bits, which may be from a file. The caller must check with
    /// [`AnyRule::is_possible`](super::AnyRule) that a rule can have made the word.
    pub(crate) const fn of_bits(bits: u64) -> Self {
        Self(bits)
    }

    /// Creates the word of a key that was seen.
    #[inline]
    pub(super) const fn of(value: u64) -> Self {
        debug_assert!(value != 0 && value >> Self::VALUE_BITS == 0);
        Self(value)
    }

    #[inline]
    pub(super) const fn value(self) -> u64 {
        self.0
    }
}

impl fmt::Debug for Word {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            0 => f.write_str("Word(fresh)"),
            _ if *self == Self::EVICTED => f.write_str("Word(evicted)"),
            _ if self.is_frozen() => write!(f, "Word(frozen {:#x})", self.thawed().0),
            value => write!(f, "Word({value:#x})"),
        }
    }
}

// SAFETY: `Word` is `repr(transparent)` over `u64`, so it has no padding, and every bit pattern is
// a valid value.
#[allow(unsafe_code)]
unsafe impl bytemuck::Zeroable for Word {}
// SAFETY: as above. In addition, `Word` implements `Copy` and contains no references, so it is
// `'static`.
#[allow(unsafe_code)]
unsafe impl bytemuck::Pod for Word {}

// A cell that is not lock-free would silently violate promise 4.
#[cfg(all(target_has_atomic = "64", not(tollgate_loom)))]
const _: () = assert!(crate::sync::Atomic::<Word>::is_lock_free());

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frozen_word_stays_frozen_and_its_value_comes_back() {
        let word = Word::of(7);
        for frozen in [word.frozen(), word.frozen().frozen()] {
            assert!(frozen.is_frozen() && frozen != word);
            assert_eq!(frozen.thawed(), word);
        }
        assert_eq!(Word::EVICTED.frozen(), Word::EVICTED);
    }

    #[test]
    fn a_word_is_live_if_it_is_neither_fresh_nor_frozen() {
        let most = Word::of((1 << Word::VALUE_BITS) - 1);
        assert!([Word::of(1), most].into_iter().all(Word::is_live));
        assert!(
            ![Word::FRESH, Word::EVICTED, Word::of(1).frozen(), most.frozen()].into_iter().any(Word::is_live)
        );
    }

    #[test]
    fn a_word_shows_what_it_is() {
        let shown = [Word::FRESH, Word::of(26), Word::of(26).frozen(), Word::EVICTED];
        let shown = shown.map(|word| format!("{word:?}"));
        assert_eq!(shown, ["Word(fresh)", "Word(0x1a)", "Word(frozen 0x1a)", "Word(evicted)"]);
    }
}
