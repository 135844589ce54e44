//! Key pauses. While a key is paused, all its requests with a cost are denied.
//!
//! # How
//!
//! When the first key is paused, the limiter creates a second store of the same kind. In that
//! store, the word of a key is the end of the key's pause: the rule is a bucket of one token that
//! refills in one nanosecond, so a word is simply a time.
//!
//! A pause until `end` is a charge of one token at the nanosecond before `end`. The charge raises
//! the word to `end`, or is denied because the word is already at `end` or later. If a key is
//! paused twice, the later end therefore applies, whatever the order of the two pauses. When a
//! pause has ended, its key is idle in the second store, and a turnover or a round forgets the key.
//!
//! The second store has no mark (see `forgetting`): a forgotten pause does not raise the mark,
//! which stays at zero. The mark of a limiter's first store denies stale requests. Here it would
//! only prolong a pause that starts at a time before the mark, because a new key's word starts at
//! the mark.
//!
//! The pause does not change the word of the paused key itself. Refunds, forced charges and quota
//! changes update that word as usual. After the pause, the key is therefore in exactly the state
//! that it would have without the pause.
//!
//! # Penalties
//!
//! If the limiter has a penalty, a denial by the key's own word pauses the key from the time of the
//! denial. A denial by a pause does not, so requests during a penalty do not extend it. Two denials
//! that race may both be made by the word; the later end applies. The pause is set after the denial
//! and before the check returns, so the first statement below also covers a penalty. A thread that
//! is stopped between the two delays only this key's pause.
//!
//! # State
//!
//! ```text
//! paused:  null -> store               a key was paused; final
//! latest:  0 -> end -> later end       raised after the key's word was raised
//! word:    fresh -> end -> later end   of a key in that store
//!          end -> idle                 the key was reset, or all keys were cleared
//! ```
//!
//! # What holds
//!
//! 1. A check of a paused key is denied if it starts after the call to `pause` has returned and its
//!    time is before the end of the pause. The check sees the store, `latest` and the word. The
//!    store is never replaced, `latest` never falls, and only a reset lowers the word. The store
//!    forgets the key only after it has accepted a time at least one
//!    [`grace`](crate::Builder::grace) after the end of the pause.
//! 2. A check at the end or later is decided as if there had been no pause.
//! 3. If a check that runs concurrently with a pause is admitted, the check takes effect before the
//!    pause.
//!
//! If the store has accepted a time one grace or more after `end`, and is then checked with a time
//! before `end`, the store may already have forgotten the pause.
//!
//! # Cost
//!
//! Before the first pause, a check loads one additional pointer. After the first pause, a check
//! reads the clock before it looks for the key. Until the latest end, the check also looks into the
//! second store.
//!
//! # Progress
//!
//! Each operation has the same progress guarantee as two checks. The loop in `Paused::set` repeats
//! if a turnover or round by another thread forgets the key between the two steps of the loop.
//!
//! # Orderings
//!
//! The *set* edge of `OnceLink` publishes the second store. `latest` is a [`Mark`], which only
//! rises. A check that starts after the pause has returned sees the raised `latest`: the
//! synchronization by which the check's caller has learned that the pause returned also makes
//! `latest` visible to the check.
//!
//! `pause_races_check_and_holds_for_the_next` fails if `latest` is not raised.
//! `pause_races_the_end_of_an_earlier_one_and_holds` fails if the loop of `Paused::set` does not
//! retry after its key is forgotten. `penalty_starts_with_the_denial_and_holds_for_the_next_check`
//! fails if a denial does not set the pause before it returns.

use super::resets::Resets;
use super::store::interface::{Accepts, Store};
use crate::decision::{Decision, DecisionSource, NEVER, Outcome};
use crate::error::Refused;
use crate::forgetting::Mark;
use crate::reclaim::OnceLink;
use crate::state::AnyState;
use crate::time::Tick;
use std::time::Duration;

/// The pauses of a limiter's keys.
pub(crate) struct Pauses<S> {
    /// The second store, once a key was paused.
    paused: OnceLink<Paused<S>>,
    /// How long a denial pauses its key; `None` if denials pause no key.
    penalty: Option<Duration>,
}

/// The second store, which contains the ends of pauses.
struct Paused<S> {
    keys: S,
    /// The latest end of all pauses.
    latest: Mark,
}

impl<S: Store> Pauses<S> {
    /// Creates the pauses of a limiter in which each denial pauses its key for `penalty`, if there
    /// is a penalty. Such a limiter has the second store from the beginning. Each of its checks
    /// therefore takes the path for pauses, and a limiter without a penalty never tests for one.
    ///
    /// `restored` contains the pauses of a saved limiter, and their latest end.
    pub(crate) fn new(
        penalty: Option<Duration>,
        keys: &S,
        restored: Option<(S, Tick)>,
    ) -> Result<Self, Refused> {
        let pauses = Self { paused: OnceLink::null(), penalty };
        if let Some((keys, latest)) = restored {
            pauses.paused.get_or(|| Paused { keys, latest: Mark::at(latest) });
        }
        match penalty {
            None => {}
            Some(Duration::ZERO) => return Err(Refused::NoPenalty),
            Some(_) => _ = pauses.store(keys)?,
        }
        Ok(pauses)
    }

    pub(crate) fn penalty(&self) -> Option<Duration> {
        self.penalty
    }

    /// Returns how long `decision` pauses the key of its request; `None` if it does not.
    ///
    /// Only the key's own state can start a penalty. A paused key does not start another one, and a
    /// key without a place in a full table has used up nothing.
    pub(crate) fn penalty_of(&self, decision: &Decision) -> Option<Duration> {
        let is_denied = decision.outcome == Outcome::Denied && decision.source == DecisionSource::Key;
        self.penalty.filter(|_| is_denied)
    }

    /// Returns whether any key has ever been paused.
    #[inline(always)]
    pub(crate) fn are_used(&self) -> bool {
        self.paused.get().is_some()
    }

    /// Returns how many nanoseconds after `now` the pause of `key` ends, or 0 if the key is not
    /// paused.
    pub(crate) fn left<Q: ?Sized>(&self, key: &Q, now: Tick) -> u64
    where
        S: Accepts<Q>,
    {
        let Some(paused) = self.paused.get().filter(|paused| paused.latest.is_after(now)) else { return 0 };
        // Never saturates in practice: the longest pause is 2^61 nanoseconds.
        let left = |state: AnyState<'_>| {
            Some(u64::try_from(state.peek(now, 0)?.reset_after().as_nanos()).unwrap_or(NEVER))
        };
        paused.keys.known(key, left).unwrap_or(0)
    }

    /// Pauses `key` until `end`, which is after `now`. If the second store does not exist, this
    /// method creates it.
    pub(crate) fn set<Q: ?Sized>(&self, key: &Q, now: Tick, end: Tick, keys: &S) -> Result<(), Refused>
    where
        S: Accepts<Q>,
    {
        self.store(keys)?.set(key, now, end)
    }

    /// Returns the second store. If it does not exist, creates it for as many keys as `keys` can
    /// contain.
    fn store(&self, keys: &S) -> Result<&Paused<S>, Refused> {
        if let Some(paused) = self.paused.get() {
            return Ok(paused);
        }
        let first = Paused { keys: keys.of_times()?, latest: Mark::at(Tick::ZERO) };
        // If another thread gets there first, its store is used.
        Ok(self.paused.get_or(|| first))
    }

    /// Ends the pause of `key`.
    pub(crate) fn end<Q: ?Sized>(&self, key: &Q)
    where
        S: Accepts<Q>,
    {
        if let Some(paused) = self.paused.get() {
            paused.keys.known(key, |state| state.reset());
        }
    }

    /// Ends all pauses.
    pub(crate) fn clear(&self, clock: &dyn Fn() -> Tick, resets: &Resets) {
        if let Some(paused) = self.paused.get() {
            paused.keys.clear(clock, resets);
        }
    }

    /// Forgets pauses that have ended, like [`Store::sweep`].
    pub(crate) fn sweep(&self, places: usize, clock: &dyn Fn() -> Tick) -> bool {
        self.paused.get().is_some_and(|paused| paused.keys.sweep(places, clock))
    }

    /// Returns how many bytes the second store uses.
    pub(crate) fn bytes(&self) -> usize {
        self.paused.get().map_or(0, |paused| size_of::<Paused<S>>() + paused.keys.stats().bytes)
    }

    /// Returns the second store, if it exists.
    pub(crate) fn keys(&self) -> Option<&S> {
        Some(&self.paused.get()?.keys)
    }
}

impl<S: Store> Paused<S> {
    fn set<Q: ?Sized>(&self, key: &Q, now: Tick, end: Tick) -> Result<(), Refused>
    where
        S: Accepts<Q>,
    {
        let last = end.before(Duration::from_nanos(1));
        // The charge is denied if the word is already at `end` or later.
        let raise = |state: AnyState<'_>| state.charge(last, 1).map(drop);
        while self.keys.known(key, raise).is_none() {
            // Inserts the key with a pause that ends after one nanosecond.
            let full = |_| Refused::TooManyPauses { most: self.keys.stats().max_keys };
            self.keys.force(key, now, 1).map_err(full)?;
        }
        self.latest.raise(end);
        Ok(())
    }
}
