//! A look at a limit before it is charged, and the charge of what was seen.
//!
//! [`check_all`](crate::check_all) looks at all limits before it charges the first. A look finds
//! the state of a limit and computes what a charge makes of its word. The charge is then one
//! compare-and-swap of the word that was seen, so no key is looked up twice, and no answer is made
//! that nobody reads.
//!
//! # State
//!
//! ```text
//! nothing seen -> seen   the key has a word in the root of its table, or the one state of a
//!                        `SingleLimiter` has its first quota; the rule is not a log; the cost is
//!                        not 0; and it is not the turn of this charge to do a step of upkeep
//! ```
//!
//! A caller that has seen nothing asks the limit itself, by a peek and a check.
//!
//! # Invariants
//!
//! 1. A word that is seen is live: neither fresh nor frozen. A key that a turnover moves or evicts,
//!    and a state whose quota is replaced, leave a frozen word behind, for good.
//! 2. A charge replaces the word that was seen, or nothing. A word is the whole state of its key.
//!    So if the word is the same, the charge is what the rule would make of it at the time of the
//!    look, whatever came between. If it is another, the caller asks the limit itself.
//! 3. What was seen is not freed before the charge: the [`Moment`] has a guard.
//!
//! # Time
//!
//! Clocks that read the processor's counter share one reading. So a charge has the time of the
//! first look of its call, which is older by what the other looks and peeks take. An older time may
//! deny, and never admits more. (Other clocks are read for each look.)
//!
//! # Progress
//!
//! A look is wait-free but for the walk through a probe run, and a charge is wait-free.
//!
//! # Orderings
//!
//! A charge is ordered as every charge: see `rule`. These models fail if it is a store, and the
//! last two also if a look sees frozen words: `look_races_charge_and_one_gets_the_last_token`,
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

/// What the looks of one call share: a time, and a guard under which they find states.
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

/// What [`check_all`](crate::check_all) sees of a limit before it charges any, noted by
/// [`Chargeable::look`](crate::Chargeable::look).
///
/// Only the limiters of this crate note anything. Other types pass it on to them.
#[derive(Clone, Copy)]
pub struct Look<'m> {
    moment: &'m Moment,
    seen: Option<Seen<'m>>,
}

/// A state that was charged before, and what a charge makes of it.
#[derive(Clone, Copy)]
struct Seen<'m> {
    state: State<'m>,
    now: Tick,
    cost: u64,
    from: Word,
    /// What a charge makes of it: `from` again if the request is denied.
    to: Word,
    resets: &'m Resets,
}

impl<'m> Look<'m> {
    /// A look that has seen nothing yet.
    #[inline(always)]
    pub(crate) fn at(moment: &'m Moment) -> Self {
        Self { moment, seen: None }
    }

    /// The guard under which a state is found.
    #[inline(always)]
    pub(crate) fn guard(&self) -> &'m Guard {
        &self.moment.guard
    }

    /// The time of the look.
    #[inline(always)]
    pub(crate) fn now(&self, clock: &Clock) -> Tick {
        clock.shared(&self.moment.reading)
    }

    /// Notes a state, if its word is neither frozen nor fresh. A cost of 0 charges nothing, so it
    /// is left to the limit.
    #[inline(always)]
    pub(crate) fn see(&mut self, state: State<'m>, now: Tick, cost: u64, resets: &'m Resets) {
        let from = load(state.word);
        if from.is_live() && cost > 0 {
            let to = state.next(from, now, cost);
            self.seen = Some(Seen { state, now, cost, from, to, resets });
        }
    }

    /// Whether the cost fits; `None` if the limit itself has to be asked.
    #[inline(always)]
    pub(crate) fn fits(&self) -> Option<bool> {
        self.seen.as_ref().map(|seen| seen.from != seen.to)
    }

    /// Charges the word that was seen, if it is still that. Returns what [`answer`](Self::answer)
    /// takes, or `None` if nothing was charged.
    #[inline(always)]
    pub(crate) fn commit(&self) -> Option<Stamp> {
        let Seen { state, from, to, resets, .. } = self.seen.as_ref()?;
        let stamp = resets.stamp();
        swap(state.word, *from, *to).then_some(stamp)
    }

    /// Writes the answer to a charge that was made. (Not returned: a copy of an answer makes the
    /// next charge wait for the stores before it.)
    #[inline(always)]
    pub(crate) fn answer(&self, stamp: Stamp, answer: &mut Option<Decision>) {
        let Some(seen) = &self.seen else { return };
        match seen.state.rule.as_gcra() {
            Some(gcra) => {
                let charged = gcra.answer_after(seen.from, Some(seen.to), seen.now, seen.cost);
                *answer = Some(Decision { stamp, ..charged });
            }
            None => seen.answer_otherwise(stamp, answer),
        }
    }

    /// The answer to the request, before a charge.
    pub(crate) fn peek(&self) -> Option<Decision> {
        self.seen.as_ref().map(|seen| seen.state.rule.peek(seen.from, seen.now, seen.cost))
    }
}

impl Seen<'_> {
    /// [`Look::answer`] of a rule other than a bucket's, whose answers are not inlined.
    #[inline(never)]
    fn answer_otherwise(&self, stamp: Stamp, answer: &mut Option<Decision>) {
        let charged = self.state.rule.answer(self.from, self.now, self.cost);
        *answer = Some(Decision { stamp, ..charged });
    }
}

impl fmt::Debug for Look<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Look").field("fits", &self.fits()).finish_non_exhaustive()
    }
}
