//! Looks at limits. A look reads the state of a limit before the limit is charged; the subsequent
//! charge uses this state.
//!
//! [`check_all`](crate::check_all) looks at all limits before it charges the first one. A look
//! finds the state of a limit and computes how a charge would change the word of this state. The
//! charge is then a single compare-and-swap of the seen word. Each key is looked up only once, and
//! an answer is computed only if it is needed.
//!
//! # State
//!
//! ```text
//! nothing seen -> seen   the key has a word in the root of its table, or the one state of a
//!                        `SingleLimiter` has its first quota; the rule is not a log; the cost is
//!                        not 0; and this charge is not due to perform a step of upkeep
//! ```
//!
//! If the look has not seen a state, the caller peeks at the limit and calls the limit's check.
//!
//! # Invariants
//!
//! 1. A seen word is live, that is, neither fresh nor frozen. If a turnover moves or evicts a key,
//!    the old word of the key stays frozen forever. The same holds for the old word of a state
//!    whose quota is replaced.
//! 2. A charge either replaces the seen word or changes nothing. A word is the whole state of its
//!    key. If the word is still the same, the rule would compute the same new word for the time of
//!    the look, whatever happened in between. If the word has changed, the caller calls the limit's
//!    own check.
//! 3. A seen state is not freed before the charge, because the [`Moment`] contains a guard.
//!
//! # Time
//!
//! Clocks that read the processor's counter share one reading. A charge therefore uses the time of
//! the first look in its call. That time precedes the charge by as long as the other looks and
//! peeks take. An earlier time may cause a denial, but never admits more. (Other clocks are read
//! for each look.)
//!
//! # Progress
//!
//! A look is wait-free, except for the walk through a probe run. A charge is wait-free.
//!
//! # Orderings
//!
//! The charge after a look is ordered like every other charge; see `rule`. The following models
//! fail if the charge is a plain store, and the last two also fail if a look sees frozen words:
//! `look_races_charge_and_one_gets_the_last_token`,
//! `look_races_change_of_quota_and_the_charge_is_kept`,
//! `look_races_eviction_and_the_charge_is_kept`.

use crate::clock::{Clock, SharedReading};
use crate::decision::{Decision, Stamp};
use crate::limiter::resets::Resets;
use crate::reclaim::{Guard, pin};
use crate::rule::{Rule, Word, load, swap};
use crate::state::State;
use crate::time::Tick;
use std::fmt;

/// The shared time of all looks in one call, and the guard under which the looks find states.
#[derive(Debug)]
pub(crate) struct Moment {
    guard: Guard,
    reading: SharedReading,
}

impl Moment {
    #[inline(always)]
    pub(crate) fn new() -> Self {
        Self { guard: pin(), reading: SharedReading::default() }
    }
}

/// The state of a limit, as seen by [`check_all`](crate::check_all) before it charges any limit.
///
/// Only the limiters of this crate can record a state. A type that wraps one of these limiters
/// passes the look on to it: see [`Chargeable::look`](crate::Chargeable::look).
#[derive(Clone, Copy)]
pub struct Look<'m> {
    moment: &'m Moment,
    seen: Option<Seen<'m>>,
}

/// A state that has been charged before, and the result of charging this state again.
#[derive(Clone, Copy)]
struct Seen<'m> {
    state: State<'m>,
    now: Tick,
    cost: u64,
    from: Word,
    /// The word after a charge of `from`, or `from` itself if the request is denied.
    to: Word,
    resets: &'m Resets,
}

impl<'m> Look<'m> {
    /// Creates a look that has not seen a state yet.
    #[inline(always)]
    pub(crate) fn at(moment: &'m Moment) -> Self {
        Self { moment, seen: None }
    }

    /// Returns the guard under which the look finds a state.
    #[inline(always)]
    pub(crate) fn guard(&self) -> &'m Guard {
        &self.moment.guard
    }

    /// Returns the time of the look.
    #[inline(always)]
    pub(crate) fn now(&self, clock: &Clock) -> Tick {
        clock.shared(&self.moment.reading)
    }

    /// Records a state if its word is neither frozen nor fresh. A request with a cost of 0 charges
    /// nothing, so the limit itself handles such a request.
    #[inline(always)]
    pub(crate) fn see(&mut self, state: State<'m>, now: Tick, cost: u64, resets: &'m Resets) {
        let from = load(state.word);
        if from.is_live() && cost > 0 {
            let to = state.next(from, now, cost);
            self.seen = Some(Seen { state, now, cost, from, to, resets });
        }
    }

    /// Returns whether the cost fits. Returns `None` if the limit itself must be called.
    #[inline(always)]
    pub(crate) fn fits(&self) -> Option<bool> {
        self.seen.as_ref().map(|seen| seen.from != seen.to)
    }

    /// Charges the seen word if it has not changed. Returns the stamp to pass to
    /// [`answer`](Self::answer), or `None` if nothing was charged.
    #[inline(always)]
    pub(crate) fn commit(&self) -> Option<Stamp> {
        let Seen { state, from, to, resets, .. } = self.seen.as_ref()?;
        let stamp = state.stamp.plus(resets.stamp());
        swap(state.word, *from, *to).then_some(stamp)
    }

    /// Writes the answer to a completed charge. (A returned answer would be copied, and the next
    /// charge would wait for the stores of the copy.)
    #[inline(always)]
    pub(crate) fn answer(&self, stamp: Stamp, answer: &mut Option<Decision>) {
        let Some(seen) = &self.seen else { return };
        match seen.state.rule.as_gcra() {
            Some(gcra) => {
                let charged = gcra.answer_after(seen.from, Some(seen.to), seen.now, seen.cost);
                *answer = Some(charged.stamped(stamp));
            }
            None => seen.answer_otherwise(stamp, answer),
        }
    }

    /// Returns the answer to the request, without charging the state.
    pub(crate) fn peek(&self) -> Option<Decision> {
        self.seen.as_ref().map(|seen| seen.state.rule.peek(seen.from, seen.now, seen.cost))
    }
}

impl Seen<'_> {
    /// Writes the answer like [`Look::answer`], for a rule other than a bucket. The answers of such
    /// rules are not inlined.
    #[inline(never)]
    fn answer_otherwise(&self, stamp: Stamp, answer: &mut Option<Decision>) {
        let charged = self.state.rule.answer(self.from, self.now, self.cost);
        *answer = Some(charged.stamped(stamp));
    }
}

impl fmt::Debug for Look<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Look").field("fits", &self.fits()).finish_non_exhaustive()
    }
}
