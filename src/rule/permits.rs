//! Permits in flight: a count of the permits in use. The count changes with events, never with
//! time.
//!
//! A permit is returned when its owner finishes. Therefore a word with permits in use is never
//! idle, and a refusal cannot say when a retry would succeed.
//!
//! # State
//!
//! | bits | meaning |
//! |---|---|
//! | 20 to 62 | the generation, from 1 |
//! | 0 to 19 | the number of permits of this generation in use |
//!
//! A reset does not take permits away from their owners. It starts the next generation with no
//! permits in use. Returning a permit of an earlier generation then changes nothing.
//!
//! A returning key must receive a new generation although nothing remembers its old generations.
//! Generations are therefore derived from the time, in steps of 2^20 ns (about a millisecond). A
//! fresh word starts with the generation of the step in which its first permit is taken. A word
//! without permits is idle from the start of the step that corresponds to its generation. A store
//! never charges a forgotten key at an earlier time, whatever the clock does (see `forgetting`).
//!
//! Several resets within one step advance the generation beyond the time. This only delays the
//! moment at which the key becomes idle.

use super::contract::{Rule, Sealed, outcome};
use super::word::Word;
use crate::decision::{Decision, Figures, Outcome};
use crate::error::Refused;
use crate::time::Tick;

/// The maximum number of permits of a key.
const MOST: u64 = 1_000_000;

const OUT_BITS: u32 = 20;
const LAST_GENERATION: u64 = (1 << (Word::VALUE_BITS - OUT_BITS)) - 1;

/// The binary logarithm of a generation's step in nanoseconds. A step is 2^20 ns long.
const STEP_BITS: u32 = 20;

const _: () = assert!(MOST < 1 << OUT_BITS);
// More than half of all generations remain for resets that advance the generation beyond the time.
const _: () = assert!((Tick::MAX.as_nanos() >> STEP_BITS) < LAST_GENERATION / 2);

/// The rule of [`InFlight`](crate::InFlight): at most `limit` permits are in use at the same time.
///
/// A charge takes permits, which are returned only by a refund of the charge or by a reset. The
/// decisions of this rule do not depend on the time.
///
/// # Bound
///
/// At any moment, at most `limit` of the permits taken since the last reset are in use.
///
/// ```
/// use tollgate::rule::{Permits, Rule, Word};
/// use tollgate::Tick;
///
/// let rule = Permits::new(2)?;
/// let (word, charge) = rule.decide(Word::FRESH, Tick::ZERO, 2);
/// assert!(charge.is_allowed());
/// let denied = rule.decide(word, Tick::MAX, 1).1;
/// assert_eq!((denied.is_allowed(), denied.retry_after()), (false, None));
/// let word = rule.refund(word, Tick::ZERO, &charge, 1);
/// assert_eq!(rule.decide(word, Tick::ZERO, 1).1.remaining(), 0);
/// # Ok::<(), tollgate::ConfigError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Permits {
    limit: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct PermitFields {
    generation: u64,
    out: u64,
}

impl Permits {
    /// Creates the rule for a limit of 1 to 1,000,000 permits.
    ///
    /// # Errors
    ///
    /// Returns an error for any other limit.
    ///
    /// ```
    /// # use tollgate::rule::Permits;
    /// let error = Permits::new(0).unwrap_err().to_string();
    /// assert!(error.starts_with("0 in flight is out of range; allowed: 1 to 1000000"));
    /// ```
    pub const fn new(limit: u64) -> Result<Self, Refused> {
        match limit {
            1..=MOST => Ok(Self { limit }),
            _ => Err(Refused::InFlightOutOfRange { limit, most: MOST }),
        }
    }

    /// Extracts the fields of a word. For a fresh word, the generation is derived from `now`.
    #[inline]
    fn unpack(word: Word, now: Tick) -> PermitFields {
        if word.is_fresh() {
            return PermitFields { generation: (now.as_nanos() >> STEP_BITS) + 1, out: 0 };
        }
        PermitFields { generation: word.value() >> OUT_BITS, out: word.value() & ((1 << OUT_BITS) - 1) }
    }

    #[inline]
    fn pack(PermitFields { generation, out }: PermitFields) -> Word {
        Word::of(generation << OUT_BITS | out)
    }

    #[inline]
    fn free(self, fields: PermitFields) -> u64 {
        self.limit.saturating_sub(fields.out)
    }

    /// Implements [`AnyRule::adopt`](super::AnyRule). Permits in use stay in use, even if the new
    /// limit is lower.
    pub(super) fn adopt(word: Word, now: Tick) -> Word {
        Self::pack(Self::unpack(word, now))
    }

    /// Implements [`AnyRule::idle_from`](super::AnyRule).
    pub(super) fn idle_from(word: Word) -> Option<Tick> {
        let PermitFields { generation, out } = Self::unpack(word, Tick::ZERO);
        let from = (generation - 1) << STEP_BITS;
        (out == 0 && from <= Tick::MAX.as_nanos()).then(|| Tick::from_nanos(from))
    }
}

impl Sealed for Permits {}

impl Rule for Permits {
    #[inline]
    fn next(&self, word: Word, now: Tick, cost: u64) -> Word {
        let fields = Self::unpack(word, now);
        let charged = cost > 0 && cost <= self.free(fields);
        if charged { Self::pack(PermitFields { out: fields.out + cost, ..fields }) } else { word }
    }

    #[inline(never)]
    fn answer(&self, word: Word, now: Tick, cost: u64) -> Decision {
        let Self { limit } = *self;
        let fields = Self::unpack(word, now);
        let outcome = outcome(cost, limit, cost <= self.free(fields));
        let taken = if outcome == Outcome::Allowed { cost } else { 0 };
        let figures = Figures::Permits { out: fields.out + taken, generation: fields.generation };
        Decision::of_key(outcome, cost, limit, now, figures)
    }

    #[inline]
    fn force(&self, word: Word, now: Tick, tokens: u64) -> (Word, u64) {
        let charged = tokens.min(self.free(Self::unpack(word, now)));
        (self.next(word, now, charged), charged)
    }

    #[inline]
    fn refund(&self, word: Word, now: Tick, charge: &Decision, tokens: u64) -> Word {
        let fields = Self::unpack(word, now);
        match charge.figures {
            Figures::Permits { generation, .. } if generation == fields.generation && !word.is_fresh() => {
                let back = tokens.min(charge.charged());
                Self::pack(PermitFields { out: fields.out.saturating_sub(back), ..fields })
            }
            _ => word,
        }
    }

    #[inline]
    fn reset(&self, word: Word) -> Word {
        let PermitFields { generation, out } = Self::unpack(word, Tick::ZERO);
        // If no permit is in use, none can be returned.
        if word.is_fresh() || out == 0 {
            return word;
        }
        Self::pack(PermitFields { generation: (generation + 1).min(LAST_GENERATION), out: 0 })
    }

    #[inline]
    fn is_idle(&self, word: Word, now: Tick) -> bool {
        word.is_fresh() || Self::idle_from(word).is_some_and(|from| from <= now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fields_fill_the_word_and_overlap_nowhere() {
        let last = PermitFields { generation: LAST_GENERATION, out: MOST };
        let first = Permits::unpack(Word::FRESH, Tick::ZERO);
        for fields in [last, first, PermitFields { out: 1, ..first }, PermitFields { out: 0, ..last }] {
            assert_eq!(Permits::unpack(Permits::pack(fields), Tick::MAX), fields);
        }
        assert_eq!(first, PermitFields { generation: 1, out: 0 });
    }

    /// A key that returns after it was forgotten does not receive any of its earlier generations.
    #[test]
    fn a_key_is_idle_from_its_generation_on() {
        let rule = Permits::new(3).unwrap();
        for nanos in [0, 1, (1 << STEP_BITS) - 1, 1 << STEP_BITS, Tick::MAX.as_nanos()] {
            let now = Tick::from_nanos(nanos);
            let (mut word, _) = rule.decide(Word::FRESH, now, 2);
            assert_eq!(Permits::idle_from(word), None);
            for reset in 1..3 {
                word = rule.reset(word);
                assert_eq!(rule.reset(word), word, "nothing is out");
                let then = ((nanos >> STEP_BITS) + reset) << STEP_BITS;
                let Some(from) = Permits::idle_from(word) else {
                    assert!(then > Tick::MAX.as_nanos());
                    assert!(!rule.is_idle(word, Tick::MAX));
                    break;
                };
                assert_eq!(from.as_nanos(), then);
                assert!(rule.is_idle(word, from));
                assert!(!rule.is_idle(word, Tick::from_nanos(then - 1)));
                let anew = Permits::unpack(Word::FRESH, from);
                assert_eq!(anew, Permits::unpack(word, now));
                word = rule.next(word, now, 1);
            }
        }
    }

    #[test]
    fn the_last_generation_is_followed_by_none() {
        let rule = Permits::new(3).unwrap();
        let last = Permits::pack(PermitFields { generation: LAST_GENERATION, out: 3 });
        assert_eq!(Permits::unpack(rule.reset(last), Tick::ZERO).generation, LAST_GENERATION);
        assert_eq!(Permits::idle_from(rule.reset(last)), None);
    }
}
