//! The possible values of a slot: empty, closed, sealed, or one admission.
//!
//! An admission is a time and a sum of tokens. Both share one word, so that one compare-and-swap
//! writes the whole admission. Absolute values would require 61 and 64 bits, so both are counted
//! from the chunk's start. Each chunk chooses a number b: the sum occupies b bits, and the time
//! occupies the other bits. If an admission does not fit, it starts a new chunk.
//!
//! | bits | field |
//! |---|---|
//! | 63 | 1: this is an admission |
//! | b to 62 | nanoseconds since the chunk's start |
//! | 0 to b - 1 | tokens admitted since the chunk's start, including this admission |
//!
//! If bit 63 is 0, the slot is *closed* (1), *sealed* (2) or *empty*. An empty slot contains 0,
//! plus [`CHANGE`] for each change of quota since the preceding slot was filled.

/// An empty slot, into which the next admission is written.
pub(super) const EMPTY: u64 = 0;

/// A change of quota adds this number to an empty slot, so that the value of the slot changes.
pub(super) const CHANGE: u64 = 4;

/// A closed slot, after which the log continues in the next chunk.
pub(super) const CLOSED: u64 = 1;

/// A sealed slot, at which the log has ended.
pub(super) const SEALED: u64 = 2;

const ADMITTED: u64 = 1 << 63;

/// A time and the number of tokens admitted until then. Both are counted from a starting point that
/// depends on the context.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct LogMark {
    pub(super) time: u64,
    pub(super) tokens: u64,
}

/// How the bits of a slot are divided into fields. A smaller value means fewer bits for tokens and
/// more bits for the time.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct SlotFields {
    token_bits: u32,
}

impl SlotFields {
    /// Creates the fields of a row for up to `tokens` tokens, from 1 to 2^62.
    pub(super) const fn of_tokens(tokens: u64) -> Self {
        Self { token_bits: u64::BITS - tokens.leading_zeros() }
    }

    /// Returns true if a slot can represent a time `nanos` nanoseconds after the start of the row.
    #[inline]
    pub(super) const fn has_time(self, nanos: u64) -> bool {
        nanos >> (63 - self.token_bits) == 0
    }

    /// Returns true if a slot can represent a sum of `tokens`.
    #[inline]
    pub(super) const fn has_tokens(self, tokens: u64) -> bool {
        tokens >> self.token_bits == 0
    }

    /// Returns a slot with this admission, or `None` if the admission does not fit.
    #[inline]
    pub(super) const fn pack(self, mark: LogMark) -> Option<u64> {
        let fits = self.has_tokens(mark.tokens) && self.has_time(mark.time);
        if fits { Some(ADMITTED | mark.time << self.token_bits | mark.tokens) } else { None }
    }

    /// Returns the admission in a slot, or `None` if the slot contains none.
    #[inline]
    pub(super) const fn unpack(self, slot: u64) -> Option<LogMark> {
        if slot & ADMITTED == 0 {
            return None;
        }
        let tokens = slot & ((1 << self.token_bits) - 1);
        Some(LogMark { time: (slot & !ADMITTED) >> self.token_bits, tokens })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fields_fill_the_slot_and_overlap_nowhere() {
        for limit in [1, 2, 3, 1_000, 1_000_000] {
            let fields = SlotFields::of_tokens(limit);
            let most =
                LogMark { time: (1 << (63 - fields.token_bits)) - 1, tokens: (1 << fields.token_bits) - 1 };
            assert!(most.tokens >= limit);
            assert_eq!(fields.pack(most), Some(u64::MAX));
            for mark in [
                most,
                LogMark { time: 0, ..most },
                LogMark { tokens: 0, ..most },
                LogMark { time: 0, tokens: 0 },
            ] {
                assert_eq!(fields.unpack(fields.pack(mark).unwrap()), Some(mark));
            }
            assert_eq!(fields.pack(LogMark { time: most.time + 1, ..most }), None);
            assert_eq!(fields.pack(LogMark { tokens: most.tokens + 1, ..most }), None);
            assert_eq!([EMPTY, CLOSED, SEALED].map(|slot| fields.unpack(slot)), [None; 3]);
        }
    }
}
