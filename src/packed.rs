//! A word and the rule it was made under, as a store hands them out.

use crate::decision::Decision;
use crate::rule::{AnyRule, LeakyBucket, Rule, Updated, Word, begin, load, update};
use crate::sync::Atomic;
use crate::time::Tick;

/// The state of a key: its word, and the rule that the word was made under.
///
/// Each method answers `None` where the word is frozen: then the state is to be found elsewhere.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Packed<'s> {
    pub(crate) by: By<'s>,
    pub(crate) word: &'s Atomic<Word>,
}

/// What requests are judged by.
///
/// All buckets decide alike, so the busiest path has no jump by algorithm: it has a copy of the bucket, of which the
/// compiler knows that nobody changes it.
#[derive(Clone, Copy, Debug)]
pub(crate) enum By<'s> {
    Bucket(LeakyBucket),
    Other(&'s AnyRule),
}

/// A request that was judged, whatever came of it.
///
/// The answer is made of it afterwards, so that the compare-and-swap loop holds words and nothing else.
#[derive(Clone, Copy, Debug)]
pub struct Judged<'s> {
    by: By<'s>,
    updated: Updated,
}

impl<'s> From<&'s AnyRule> for By<'s> {
    #[inline(always)]
    fn from(rule: &'s AnyRule) -> Self {
        rule.as_bucket().map_or(Self::Other(rule), Self::Bucket)
    }
}

impl By<'_> {
    /// The same as a rule.
    fn rule(self) -> AnyRule {
        match self {
            Self::Bucket(rule) => AnyRule::LeakyBucket(rule),
            Self::Other(rule) => *rule,
        }
    }

    /// What a request makes of a word.
    #[inline]
    pub(crate) fn next(self, word: Word, now: Tick, cost: u64) -> Word {
        match self {
            Self::Bucket(rule) => rule.next(word, now, cost),
            Self::Other(rule) => rule.next(word, now, cost),
        }
    }

    /// What it is answered.
    #[inline]
    pub(crate) fn answer(self, word: Word, now: Tick, cost: u64) -> Decision {
        match self {
            Self::Bucket(rule) => rule.answer(word, now, cost),
            Self::Other(rule) => rule.answer(word, now, cost),
        }
    }
}

impl<'s> By<'s> {
    /// Charges a key that is new: of a fresh word the request makes `first`. `None` if the word is not fresh any more.
    #[inline(always)]
    pub(crate) fn charge_first(self, cell: &Atomic<Word>, first: Word) -> Option<Judged<'s>> {
        let updated = Updated { from: Word::FRESH, to: first, is_new: true };
        begin(cell, first).then_some(Judged { by: self, updated })
    }
}

impl Judged<'_> {
    /// Was anything charged?
    #[inline(always)]
    pub(crate) fn is_charged(&self) -> bool {
        self.updated.is_new
    }

    /// The answer to the same request.
    #[inline(always)]
    pub(crate) fn answer(&self, now: Tick, cost: u64) -> Decision {
        let Updated { from, to, is_new } = self.updated;
        match self.by {
            By::Bucket(rule) => rule.answer_after(from, is_new.then_some(to), now, cost),
            By::Other(rule) => rule.answer(from, now, cost),
        }
    }
}

impl<'s> Packed<'s> {
    /// Charges `cost` tokens at `now`, or denies it.
    #[inline(always)]
    pub(crate) fn charge(self, now: Tick, cost: u64) -> Option<Judged<'s>> {
        let updated = match self.by {
            By::Bucket(rule) => change(self.word, move |word| rule.next(word, now, cost)),
            By::Other(rule) => charge_other(rule, self.word, now, cost),
        };
        // A word that was changed was not frozen.
        (updated.is_new || !updated.from.is_frozen()).then_some(Judged { by: self.by, updated })
    }

    /// What a request would be answered.
    pub(crate) fn peek(self, now: Tick, cost: u64) -> Option<Decision> {
        let word = load(self.word);
        (!word.is_frozen()).then(|| self.by.rule().peek(word, now, cost))
    }

    /// Gives back at most `tokens` of what `charge` took.
    pub(crate) fn refund(self, now: Tick, charge: &Decision, tokens: u64) -> Option<()> {
        let rule = self.by.rule();
        let updated = change(self.word, |word| rule.refund(word, now, charge, tokens));
        (!updated.from.is_frozen()).then_some(())
    }

    /// Makes it as good as new.
    pub(crate) fn reset(self) -> Option<()> {
        let rule = self.by.rule();
        let updated = change(self.word, |word| rule.reset(word));
        (!updated.from.is_frozen()).then_some(())
    }
}

/// Changes a word, unless it is frozen.
#[inline(always)]
fn change(cell: &Atomic<Word>, to: impl Fn(Word) -> Word) -> Updated {
    update(cell, |word| if word.is_frozen() { word } else { to(word) })
}

/// Charges a word under a rule that is no bucket. Not inlined, so that it takes no registers of those who have one; and
/// the jump by algorithm is outside of the loop.
#[inline(never)]
fn charge_other(rule: &AnyRule, cell: &Atomic<Word>, now: Tick, cost: u64) -> Updated {
    match rule {
        AnyRule::FixedWindow(rule) => change(cell, |word| rule.next(word, now, cost)),
        AnyRule::SlidingWindow(rule) => change(cell, |word| rule.next(word, now, cost)),
        rule => change(cell, |word| rule.next(word, now, cost)),
    }
}

#[cfg(all(test, not(tollgate_loom)))]
mod tests {
    use super::*;
    use crate::algorithm::Algorithm;
    use crate::quota::Quota;
    use proptest::prelude::*;
    use std::time::Duration;

    proptest! {
        /// What is answered from the words before and after a charge is what the rule says.
        #[test]
        fn a_judged_request_is_answered_as_the_rule_decides(
            limit in 1..=40_u64,
            requests in prop::collection::vec((0..=400_u64, 0..=45_u64), 1..60),
        ) {
            for algorithm in Algorithm::PACKED {
                let quota = Quota::new(limit, Duration::from_nanos(1_000_001));
                let rule = AnyRule::new(algorithm, quota, Duration::ZERO).unwrap();
                let cell = Atomic::new(Word::FRESH);
                let state = Packed { by: (&rule).into(), word: &cell };
                for &(now, cost) in &requests {
                    // Now and then it steps back.
                    let now = Tick::from_nanos(now * 7_003);
                    let before = load(&cell);
                    let (after, answer) = rule.decide(before, now, cost);
                    let judged = state.charge(now, cost).unwrap();
                    prop_assert_eq!(judged.answer(now, cost), answer);
                    prop_assert_eq!((judged.is_charged(), load(&cell)), (after != before, after));
                }
            }
        }
    }

    #[test]
    fn a_frozen_word_answers_nothing_and_stays_as_it_is() {
        for algorithm in Algorithm::PACKED {
            let rule = AnyRule::new(algorithm, Quota::per_second(9), Duration::ZERO).unwrap();
            let frozen = rule.decide(Word::FRESH, Tick::ZERO, 1).0.frozen();
            let cell = Atomic::new(frozen);
            let state = Packed { by: (&rule).into(), word: &cell };
            let charge = rule.decide(Word::FRESH, Tick::ZERO, 1).1;
            assert!(state.charge(Tick::ZERO, 1).is_none() && state.peek(Tick::ZERO, 1).is_none());
            assert!(state.refund(Tick::ZERO, &charge, 1).is_none() && state.reset().is_none());
            assert_eq!(load(&cell), frozen);
        }
    }
}
