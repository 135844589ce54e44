//! The line of one key, as a value: its waiters in order, and the waiter that is to be woken.
//!
//! Invariants:
//!
//! 1. Tickets ascend from the first waiter to the last. A waiter that has lost its place returns to
//!    the place that its ticket determines, so no waiter that arrived later is before it.
//! 2. A waiter that becomes the first is *called* by the same change of the line: it gets a new
//!    last act, its sleep is over, and its waker is handed to the caller. A waiter that returns to
//!    the first place acts by returning. A first waiter that sleeps is called again when a permit
//!    of the key is returned. A call is remembered until the first waiter looks, which it does
//!    before it checks the limiter; a call during the check therefore makes it check again.
//! 3. The first waiter loses its place only if it has stopped acting. Either its last act is still
//!    the act of a [`First`] that another waiter got, and this other waiter has since slept for the
//!    sleep of the first waiter plus the patience; or the act is older than this sum by the
//!    system's clock. No two acts of a line have the same number. (The clock alone is not
//!    sufficient: it does not advance with the timers of a runtime whose time is paused.)
//! 4. No waker is cloned, dropped or woken here, because the caller holds the lock, and these
//!    operations run code of the user, which may drop another waiter. Wakers are only swapped, and
//!    handed to the caller.

use std::collections::VecDeque;
use std::mem;
use std::task::Waker;
use std::time::{Duration, Instant};

/// The number of a waiter, from 1. No ticket is given twice.
pub(crate) type Ticket = u64;

/// The ticket of a caller that is in no line.
pub(crate) const NO_TICKET: Ticket = 0;

#[derive(Debug, Default)]
pub(crate) struct Line {
    waiters: VecDeque<Entry>,
    /// The number of the last act of any waiter.
    acts: u64,
}

#[derive(Debug)]
pub(crate) struct Entry {
    ticket: Ticket,
    cost: u64,
    /// The waker of the waiter, once the waiter has been polled.
    waker: Option<Waker>,
    /// Whether the waiter was called since it last looked.
    is_called: bool,
    /// The number of the waiter's last act: it joined, was called, looked as the first, or fell
    /// asleep.
    act: u64,
    /// The time of the last act.
    acted: Instant,
    /// How long the waiter sleeps from the last act on.
    sleeps: Duration,
}

/// A waiter that was removed from the line.
pub(crate) struct Removed {
    /// The removed entry, to be dropped after the unlock.
    pub(crate) entry: Entry,
    /// The waker of the waiter that has become the first.
    pub(crate) calls: Option<Waker>,
}

/// The place of a waiter.
#[derive(Debug)]
pub(crate) enum Place {
    /// The waiter is the first, and may check the limiter.
    First,
    /// Another waiter is the first.
    Behind {
        first: First,
        /// The sum of the costs of this waiter and of all waiters between the first and this one.
        cost: u64,
    },
    /// The waiter is not in the line, because it did not act for too long.
    Lost,
}

/// The state of the first waiter at the time when another waiter looked.
#[derive(Clone, Copy, Debug)]
pub(crate) struct First {
    ticket: Ticket,
    act: u64,
    /// How long the first waiter sleeps from its last act on.
    pub(crate) sleeps: Duration,
}

impl Line {
    pub(crate) fn len(&self) -> usize {
        self.waiters.len()
    }

    /// The sum of the costs of all waiters. `None` if the line is empty.
    pub(crate) fn cost(&self) -> Option<u64> {
        self.waiters.iter().map(|waiter| waiter.cost).reduce(u64::saturating_add)
    }

    /// Adds a waiter at the place that its ticket determines: the last place, unless the waiter
    /// returns.
    pub(crate) fn join(&mut self, ticket: Ticket, cost: u64) {
        let at = self.waiters.partition_point(|other| other.ticket < ticket);
        self.acts += 1;
        let (act, acted, sleeps) = (self.acts, Instant::now(), Duration::ZERO);
        self.waiters.insert(at, Entry { ticket, cost, waker: None, is_called: false, act, acted, sleeps });
    }

    /// The place of the waiter of `ticket`. The first waiter acts by looking. For any other waiter,
    /// the line stores `waker`, which wakes the waiter when it becomes the first, and returns the
    /// previous waker in `waker`.
    pub(crate) fn look(&mut self, ticket: Ticket, waker: &mut Option<Waker>) -> Place {
        let Some(at) = self.find(ticket) else { return Place::Lost };
        if at == 0 {
            self.waiters[0].is_called = false;
            self.act(ticket, Duration::ZERO);
            return Place::First;
        }
        mem::swap(&mut self.waiters[at].waker, waker);
        let cost = self.waiters.range(1..=at).fold(0, |sum: u64, waiter| sum.saturating_add(waiter.cost));
        Place::Behind { first: self.first(), cost }
    }

    /// Whether the waiter of `ticket`, which sleeps as the first, must look again, because it was
    /// called or has lost its place. Otherwise the line stores `waker`, and returns the previous
    /// waker in `waker`.
    pub(crate) fn is_called(&mut self, ticket: Ticket, waker: &mut Option<Waker>) -> bool {
        let Some(at) = self.find(ticket) else { return true };
        if at == 0 && self.waiters[0].is_called {
            return true;
        }
        mem::swap(&mut self.waiters[at].waker, waker);
        false
    }

    /// Calls the first waiter, unless its ticket is `except`.
    pub(crate) fn call_again(&mut self, except: Ticket) -> Option<Waker> {
        let first = self.waiters.front_mut().filter(|first| first.ticket != except)?;
        first.is_called = true;
        first.waker.take()
    }

    /// Records that the first waiter acts and then sleeps for `sleeps`, if its ticket is `ticket`.
    pub(crate) fn act(&mut self, ticket: Ticket, sleeps: Duration) {
        if let Some(first) = self.waiters.front_mut().filter(|first| first.ticket == ticket) {
            self.acts += 1;
            first.act = self.acts;
            first.acted = Instant::now();
            first.sleeps = sleeps;
        }
    }

    /// Removes the waiter of `ticket`, if it is in the line.
    pub(crate) fn leave(&mut self, ticket: Ticket) -> Option<Removed> {
        let at = self.find(ticket)?;
        let entry = self.waiters.remove(at)?;
        Some(Removed { entry, calls: if at == 0 { self.call() } else { None } })
    }

    /// Removes the first waiter if it has not acted since `seen`.
    pub(crate) fn pass_over(&mut self, seen: First) -> Option<Removed> {
        self.remove_first_if(|first| (first.ticket, first.act) == (seen.ticket, seen.act))
    }

    /// Removes the first waiter if it should have acted more than `patience` ago.
    pub(crate) fn pass_over_late(&mut self, patience: Duration) -> Option<Removed> {
        self.remove_first_if(|first| first.acted.elapsed() > first.sleeps.saturating_add(patience))
    }

    fn remove_first_if(&mut self, stands_still: impl FnOnce(&Entry) -> bool) -> Option<Removed> {
        if !stands_still(self.waiters.front()?) {
            return None;
        }
        let entry = self.waiters.pop_front()?;
        Some(Removed { entry, calls: self.call() })
    }

    /// Calls the waiter that has become the first.
    fn call(&mut self) -> Option<Waker> {
        let first = self.waiters.front_mut()?;
        self.acts += 1;
        first.act = self.acts;
        first.is_called = true;
        let waker = first.waker.take()?;
        first.acted = Instant::now();
        first.sleeps = Duration::ZERO;
        Some(waker)
    }

    fn first(&self) -> First {
        let Entry { ticket, act, sleeps, .. } = self.waiters[0];
        First { ticket, act, sleeps }
    }

    fn find(&self, ticket: Ticket) -> Option<usize> {
        self.waiters.binary_search_by_key(&ticket, |waiter| waiter.ticket).ok()
    }
}
