//! What every rule promises, and the two answers that must mean the same in all of them.

use super::word::Word;
use crate::decision::{Decision, NEVER, Outcome};
use crate::time::Tick;

/// A pure rule on a packed word. Implemented by the algorithms of this module; the trait is sealed.
///
/// ```
/// use tollgate::rule::{Rule, TokenBucket, Word};
/// use tollgate::{Quota, Tick};
///
/// let rule = TokenBucket::new(Quota::per_second(1))?;
/// let (word, first) = rule.decide(Word::FRESH, Tick::ZERO, 1);
/// assert!(first.is_allowed());
///
/// // A denial leaves the word alone.
/// let (same, second) = rule.decide(word, Tick::ZERO, 1);
/// assert!(!second.is_allowed());
/// assert_eq!(same, word);
/// # Ok::<(), tollgate::ConfigError>(())
/// ```
pub trait Rule: Sealed {
    /// The word after a request of `cost` tokens at `now`: the same one if the request is denied, or its cost
    /// is 0; another one if it is charged.
    fn next(&self, word: Word, now: Tick, cost: u64) -> Word;

    /// The answer to a request of `cost` tokens at `now` that finds `word`. A cost of 0 is always allowed,
    /// whatever was charged before.
    fn answer(&self, word: Word, now: Tick, cost: u64) -> Decision;

    /// Decides a request of `cost` tokens at `now`: the next word and the answer. The two come apart because
    /// a concurrent holder needs the first in its compare-and-swap loop and the second after it.
    #[inline]
    fn decide(&self, word: Word, now: Tick, cost: u64) -> (Word, Decision) {
        (self.next(word, now, cost), self.answer(word, now, cost))
    }

    /// The word after giving back `tokens` of what `charge` took, or fewer if it took fewer. It gives
    /// back what the charge still holds: nothing once the bucket has refilled past it or its window is
    /// over, so a refund that comes late erases nobody else's charge. Afterwards no more is admitted
    /// than if the request had never come, provided that the key saw no reset since the charge and, in a
    /// bucket, no other refund, that its charges came in the order of their times, and that `now` is not
    /// before them. In any case each refunded token makes room for at most one other. A window's charge
    /// that is held until after [`Tick::MAX`] can't be given back, nor can a [`DecisionParts`](crate::DecisionParts), nor what another
    /// kind of rule has charged, as far as its figures show it. The caller gives back each token once.
    fn refund(&self, word: Word, now: Tick, charge: &Decision, tokens: u64) -> Word;

    /// The idle word that takes the place of `word`; a fresh one stays fresh.
    fn reset(&self, word: Word) -> Word;

    /// Does `word` behave like a fresh one at `now` and ever after?
    fn is_idle(&self, word: Word, now: Tick) -> bool;

    /// What a request would be answered, with the figures as they are before a charge.
    #[inline]
    fn peek(&self, word: Word, now: Tick, cost: u64) -> Decision {
        let answer = self.answer(word, now, cost);
        if answer.is_allowed() { self.answer(word, now, 0) } else { answer }
    }
}

/// Outcome of comparing a request with what is free: shared by all rules, so that "never" and "not
/// now" mean the same everywhere.
#[inline]
pub(super) fn outcome(cost: u64, capacity: u64, fits: bool) -> Outcome {
    if cost > capacity {
        Outcome::TooCostly
    } else if fits {
        Outcome::Allowed
    } else {
        Outcome::Denied
    }
}

/// Nanoseconds from `now` until `then`, [`NEVER`] if there is no such time.
#[inline]
pub(super) fn nanos_until(then: Option<Tick>, now: Tick) -> u64 {
    match then {
        Some(then) => then.as_nanos().saturating_sub(now.as_nanos()),
        None => NEVER,
    }
}

/// Keeps [`Rule`] to this crate: a table trusts its rule with the invariants of the module's page.
pub trait Sealed {}
