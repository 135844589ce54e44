//! Keys that are paused: nothing is admitted for them until a time.
//!
//! # How
//!
//! The end of a key's pause is a word of a second store of the same kind, which is made when the
//! first key is paused. That store has the rule of a bucket that holds one token and refills in a
//! nanosecond, so a word of it is a time. A pause until `end` is a charge of one token at the
//! nanosecond before `end`: it raises the word to `end`, or is denied because the word is there or
//! later already. So of two pauses the later end holds, whatever their order. A pause that is over
//! is an idle key, which a turnover or a round forgets.
//!
//! The word of the key itself knows nothing of a pause. So refunds, forced charges and changes of
//! quotas act on it as ever, and after the pause the key has exactly what it would have had.
//!
//! # State
//!
//! ```text
//! root:    null -> store               a key was paused; final
//! latest:  0 -> end -> later end       raised after the word of the key was
//! word:    fresh -> end -> later end   of a key in that store
//!          end -> idle                 the key was reset, or all were cleared
//! ```
//!
//! # What holds
//!
//! 1. A check that begins after a pause has returned, at a time before its end, is denied. It sees
//!    the root and `latest`, which no thread takes back, and the word, which only a reset lowers;
//!    the store does not forget the key before a time that it believes reaches the end.
//! 2. A check at the end or later is decided as if there had been no pause.
//! 3. A check that runs beside a pause may be admitted. Then it comes before the pause.
//!
//! A check at a time before `end` that comes after others were at `end` may find the pause
//! forgotten, if a whole [`grace`](crate::Builder::grace) lies between.
//!
//! # Cost
//!
//! Before the first pause a check loads one pointer more. From then on it reads the clock before it
//! looks for the key, and until the latest end it looks into the second store too.
//!
//! # Progress
//!
//! As a check, twice. The loop of a pause is repeated if its key was forgotten between the two
//! steps, by the turnover or the round of another thread.
//!
//! # Orderings
//!
//! The edge *link* of `reclaim` publishes the second store. `latest` is a [`Mark`], which only
//! rises: a check that begins after the pause has returned sees it by whatever tells the caller so.
//! `pause_races_check_and_holds_for_the_next` fails if it is not raised, and
//! `pause_races_the_end_of_an_earlier_one_and_holds` if a pause does not begin again after its key
//! was forgotten.

use super::resets::Resets;
use super::store::interface::{Accepts, Store};
use crate::decision::NEVER;
use crate::error::Refused;
use crate::forgetting::Mark;
use crate::reclaim::{Chained, Link, Root, pin, under_guard};
use crate::state::AnyState;
use crate::time::Tick;
use std::time::Duration;

/// The pauses of a limiter's keys.
pub(crate) struct Pauses<S>(Root<Paused<S>>);

/// The store of the ends of pauses.
struct Paused<S> {
    keys: S,
    /// The latest end.
    latest: Mark,
    /// Always null.
    next: Link<Self>,
}

impl<S> Chained for Paused<S> {
    fn next(&self) -> &Link<Self> {
        &self.next
    }
}

impl<S: Store> Pauses<S> {
    pub(crate) fn none() -> Self {
        Self(Root::null())
    }

    /// Was any key ever paused?
    #[inline(always)]
    pub(crate) fn are_used(&self) -> bool {
        self.0.is_linked()
    }

    /// Passes the store of ends to `visit`, if there is one.
    fn visit<T>(&self, visit: impl Fn(&Paused<S>) -> T) -> Option<T> {
        under_guard(|guard| Ok(self.0.load(guard)?.map(|paused| visit(&paused))))
    }

    /// Nanoseconds from `now` until the pause of `key` ends; 0 if it is not paused.
    pub(crate) fn left<Q: ?Sized>(&self, key: &Q, now: Tick) -> u64
    where
        S: Accepts<Q>,
    {
        let left = self.visit(|paused| {
            if !paused.latest.is_after(now) {
                return None;
            }
            // Saturating: the longest pause is 2^61 nanoseconds.
            let left = |state: AnyState<'_>| {
                Some(u64::try_from(state.peek(now, 0)?.reset_after().as_nanos()).unwrap_or(NEVER))
            };
            paused.keys.known(key, left)
        });
        left.flatten().unwrap_or(0)
    }

    /// Pauses `key` until `end`, which is after `now`. The store of ends is made like `keys`.
    pub(crate) fn set<Q: ?Sized>(&self, key: &Q, now: Tick, end: Tick, keys: &S) -> Result<(), Refused>
    where
        S: Accepts<Q>,
    {
        if !self.are_used() {
            let first = Paused { keys: keys.of_times()?, latest: Mark::at(Tick::ZERO), next: Link::null() };
            // Another thread may have been first: then its store is used.
            drop(self.0.install(first, &pin()));
        }
        self.visit(|paused| paused.set(key, now, end)).expect("it was installed")
    }

    /// Ends the pause of `key`.
    pub(crate) fn end<Q: ?Sized>(&self, key: &Q)
    where
        S: Accepts<Q>,
    {
        self.visit(|paused| paused.keys.known(key, |state| state.reset()));
    }

    /// Ends all pauses.
    pub(crate) fn clear(&self, clock: &dyn Fn() -> Tick, resets: &Resets) {
        self.visit(|paused| paused.keys.clear(clock, resets));
    }

    /// Forgets pauses that are over, as [`Store::sweep`].
    pub(crate) fn sweep(&self, places: usize, clock: &dyn Fn() -> Tick) -> bool {
        self.visit(|paused| paused.keys.sweep(places, clock)).unwrap_or(false)
    }

    /// The bytes of the store of ends.
    pub(crate) fn bytes(&self) -> usize {
        self.visit(|paused| Link::<Paused<S>>::BYTES + paused.keys.stats().bytes).unwrap_or(0)
    }
}

impl<S: Store> Paused<S> {
    fn set<Q: ?Sized>(&self, key: &Q, now: Tick, end: Tick) -> Result<(), Refused>
    where
        S: Accepts<Q>,
    {
        let last = end.before(Duration::from_nanos(1));
        // The charge is denied if the word is at `end` or later already.
        let raise = |state: AnyState<'_>| state.charge(last, 1).map(drop);
        while self.keys.known(key, raise).is_none() {
            // Inserts the key, with a pause that is over in a nanosecond.
            let full = |_| Refused::TooManyPauses { most: self.keys.stats().max_keys };
            self.keys.force(key, now, 1).map_err(full)?;
        }
        self.latest.raise(end);
        Ok(())
    }
}
