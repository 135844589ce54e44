//! The state of one key: its word, and the rule that made the word.

use crate::decision::{Decision, Stamp};
use crate::rule::{AnyRule, Rule, Updated, Word, begin, load, take, update};
use crate::sync::{Atomic, Ordering::Acquire};
use crate::time::Tick;

/// The word of a key and the rule that made the word, as provided by a store.
///
/// Each method returns `None` if the word is frozen, because the state is then in the next array. A
/// fresh word has no time yet. Only [`begin`](Self::begin) and [`begin_forced`](Self::begin_forced)
/// can charge a fresh word, because they receive the earliest time at which the charge may be made.
#[derive(Clone, Copy, Debug)]
pub(crate) struct State<'s> {
    pub(crate) rule: &'s AnyRule,
    pub(crate) word: &'s Atomic<Word>,
    /// The stamp of the rule. Each charge is stamped with it.
    pub(crate) stamp: Stamp,
}

impl State<'_> {
    /// Charges `cost` tokens at `now`, or denies the request. The flag is true if anything was
    /// charged. Returns `None` if the word is frozen or fresh.
    #[inline(always)]
    pub(crate) fn charge(self, now: Tick, cost: u64) -> Option<(Decision, bool)> {
        let (decision, is_charged) = charge(self.rule, self.word, now, cost)?;
        Some((decision.stamped(self.stamp), is_charged))
    }

    /// Makes the first charge to a fresh word, or denies the request. The request is decided at
    /// `now` or at `mark`, whichever is later. The flag is true if anything was charged. Returns
    /// `None` if the word was not fresh, or stopped being fresh in the meantime.
    ///
    /// `mark` must cover every word of the key that was forgotten before the key received this
    /// word.
    #[inline]
    pub(crate) fn begin(self, now: Tick, cost: u64, mark: Tick) -> Option<(Decision, bool)> {
        if !load(self.word).is_fresh() {
            return None;
        }
        let first = self.rule.next(Word::FRESH, now.max(mark), cost);
        let is_charged = first != Word::FRESH;
        let answer = || self.rule.fresh(now, mark, cost).stamped(self.stamp);
        (!is_charged || begin(self.word, first)).then(|| (answer(), is_charged))
    }

    /// Seals a word that was never charged. Does nothing if the word is not fresh any more.
    pub(crate) fn seal_unbegun(self) {
        begin(self.word, Word::EVICTED);
    }

    /// Returns the answer that a request would receive. Charges nothing. Returns `None` if the word
    /// is frozen or fresh.
    pub(crate) fn peek(self, now: Tick, cost: u64) -> Option<Decision> {
        let word = load(self.word);
        word.is_live().then(|| self.rule.peek(word, now, cost))
    }

    /// Returns the word after a request, or the old word if the request is denied. The old word
    /// must be live.
    #[inline(always)]
    pub(crate) fn next(self, word: Word, now: Tick, cost: u64) -> Word {
        match self.rule.as_gcra() {
            Some(gcra) => gcra.charged(word, now, cost).unwrap_or(word),
            None => self.next_otherwise(word, now, cost),
        }
    }

    /// Computes [`next`](Self::next) for a rule other than a bucket. Like [`charge`](Self::charge),
    /// this method is not inlined.
    #[inline(never)]
    fn next_otherwise(self, word: Word, now: Tick, cost: u64) -> Word {
        self.rule.next(word, now, cost)
    }

    /// Gives back at most `tokens` of the tokens that `charge` took, but only if `is_current`
    /// returns true for the stamp of the rule once the word has been loaded.
    #[inline]
    pub(crate) fn refund(
        self,
        now: Tick,
        charge: &Decision,
        tokens: u64,
        is_current: impl Fn(Stamp) -> bool,
    ) -> Option<()> {
        let updated = change(self.word, |word| {
            // ORDERING: acquire side of *reset*. If the word was written after a reset,
            // `is_current` sees that reset, because a reset is counted before its word is written.
            let _ = self.word.load(Acquire);
            if is_current(self.stamp) { self.rule.refund(word, now, charge, tokens) } else { word }
        });
        (!updated.from.is_frozen()).then_some(())
    }

    /// Charges `tokens` that are already spent, up to the debt that the rule allows. Returns the
    /// number of tokens charged, or `None` if the word is frozen or fresh.
    pub(crate) fn force(self, now: Tick, tokens: u64) -> Option<u64> {
        let forced = |word: Word| self.rule.force(word, now, tokens);
        let Updated { from, .. } =
            update(self.word, |word| if word.is_live() { forced(word).0 } else { word });
        from.is_live().then(|| forced(from).1)
    }

    /// Forces the first charge to a fresh word. Like [`begin`](Self::begin), this method charges at
    /// `now` or at `mark`, whichever is later. Returns `None` if the word was not fresh, or stopped
    /// being fresh in the meantime.
    pub(crate) fn begin_forced(self, now: Tick, tokens: u64, mark: Tick) -> Option<u64> {
        if !load(self.word).is_fresh() {
            return None;
        }
        let (first, charged) = self.rule.force(Word::FRESH, now.max(mark), tokens);
        (charged == 0 || begin(self.word, first)).then_some(charged)
    }

    /// Replaces the word with an idle word.
    pub(crate) fn reset(self) -> Option<()> {
        let updated = change(self.word, |word| self.rule.reset(word));
        (!updated.from.is_frozen()).then_some(())
    }
}

/// Implements [`State::charge`].
///
/// This function is not inlined, so that the fast path, which calls it for windows, keeps its
/// registers.
#[inline(never)]
fn charge(rule: &AnyRule, word: &Atomic<Word>, now: Tick, cost: u64) -> Option<(Decision, bool)> {
    // The match is outside the compare-and-swap loop.
    match rule {
        AnyRule::Gcra(rule) => take(*rule, word, now, cost),
        AnyRule::FixedWindow(rule) => charge_by(rule, word, now, cost),
        AnyRule::SlidingWindow(rule) => charge_by(rule, word, now, cost),
        AnyRule::Permits(rule) => charge_by(rule, word, now, cost),
    }
}

/// Changes a word, unless it is frozen.
#[inline(always)]
fn change(cell: &Atomic<Word>, to: impl Fn(Word) -> Word) -> Updated {
    update(cell, |word| if word.is_frozen() { word } else { to(word) })
}

/// Charges a word, unless it is frozen or fresh. The flag is true if anything was charged.
#[inline(always)]
fn charge_by(rule: &impl Rule, cell: &Atomic<Word>, now: Tick, cost: u64) -> Option<(Decision, bool)> {
    let charged = |word: Word| if word.is_live() { rule.next(word, now, cost) } else { word };
    let Updated { from, is_new, .. } = update(cell, charged);
    (is_new || from.is_live()).then(|| (rule.answer(from, now, cost), is_new))
}

#[cfg(all(test, not(tollgate_loom)))]
mod tests {
    use super::*;
    use crate::algorithm::Algorithm;
    use crate::quota::Quota;
    use proptest::prelude::*;
    use std::time::Duration;

    proptest! {
        /// The answer to a charge is computed from the words before and after the charge. The rule
        /// itself must return the same answer.
        #[test]
        fn a_charge_is_answered_as_the_rule_decides(
            limit in 1..=40_u64,
            requests in prop::collection::vec((0..=400_u64, 0..=45_u64), 1..60),
        ) {
            for algorithm in Algorithm::PACKED {
                let quota = Quota::new(limit, Duration::from_nanos(1_000_001));
                let rule = AnyRule::new(algorithm, quota, Duration::ZERO).unwrap();
                let cell = Atomic::new(rule.idle());
                let state = State { rule: &rule, word: &cell, stamp: Stamp::NONE };
                for &(now, cost) in &requests {
                    // Some of these times are earlier than the previous one.
                    let now = Tick::from_nanos(now * 7_003);
                    let before = load(&cell);
                    let (after, answer) = rule.decide(before, now, cost);
                    prop_assert_eq!(state.charge(now, cost), Some((answer, after != before)));
                    prop_assert_eq!(load(&cell), after);
                    if let Some(gcra) = rule.as_gcra() {
                        let cell = Atomic::new(before);
                        prop_assert_eq!(take(gcra, &cell, now, cost), Some((answer, after != before)));
                        prop_assert_eq!(load(&cell), after);
                        let first = rule.next(Word::FRESH, now, cost);
                        prop_assert_eq!(gcra.first(now, cost).unwrap_or(Word::FRESH), first);
                    }
                }
            }
        }
    }

    /// A forgotten key is idle from the mark onward, so an earlier request is decided as of the
    /// mark.
    #[test]
    fn a_fresh_word_is_charged_no_earlier_than_at_the_mark() {
        let second = |n: u64| Tick::from_nanos(n * 1_000_000_000);
        for algorithm in Algorithm::PACKED {
            let rule = AnyRule::new(algorithm, Quota::per_second(9), Duration::ZERO).unwrap();
            for (now, mark) in [(3, 7), (7, 3), (7, 7)] {
                let cell = Atomic::new(Word::FRESH);
                let state = State { rule: &rule, word: &cell, stamp: Stamp::NONE };
                let (now, mark, at) = (second(now), second(mark), second(7));
                assert!(state.charge(now, 1).is_none() && state.peek(now, 1).is_none());
                let (answer, is_charged) = state.begin(now, 2, mark).unwrap();
                let (word, expected) = rule.decide(Word::FRESH, at, 2);
                assert_eq!((is_charged, load(&cell)), (true, word), "{algorithm}");
                let late = at.since(now);
                assert_eq!(
                    (answer.at(), answer.remaining(), answer.charged(), answer.retry_after()),
                    (at, 7, 2, expected.retry_after())
                );
                assert_eq!(answer.reset_after(), expected.reset_after() + late, "{algorithm}");
                assert_eq!(answer.refill_after(), expected.refill_after() + late, "{algorithm}");
                let is_queue = algorithm == Algorithm::LeakyQueue;
                assert_eq!(answer.start_after(), if is_queue { late } else { Duration::ZERO });
                // The charge can be refunded like any other.
                assert!(state.refund(now, &answer, 2, |_| true).is_some());
                assert_eq!(state.peek(at, 1).unwrap().remaining(), 9, "{algorithm}");
                assert!(state.begin(now, 1, mark).is_none(), "it is not fresh any more");
            }
        }
    }

    #[test]
    fn a_frozen_word_answers_nothing_and_stays_as_it_is() {
        for algorithm in Algorithm::PACKED {
            let rule = AnyRule::new(algorithm, Quota::per_second(9), Duration::ZERO).unwrap();
            let frozen = rule.decide(Word::FRESH, Tick::ZERO, 1).0.frozen();
            let cell = Atomic::new(frozen);
            let state = State { rule: &rule, word: &cell, stamp: Stamp::NONE };
            let charge = rule.decide(Word::FRESH, Tick::ZERO, 1).1;
            for now in [Tick::ZERO, Tick::MAX] {
                assert!(state.charge(now, 1).is_none());
                assert!(rule.as_gcra().is_none_or(|gcra| take(gcra, &cell, now, 1).is_none()));
            }
            assert!(state.peek(Tick::ZERO, 1).is_none());
            assert!(state.refund(Tick::ZERO, &charge, 1, |_| true).is_none() && state.reset().is_none());
            assert_eq!(load(&cell), frozen);
        }
    }
}
