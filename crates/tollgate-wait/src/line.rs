//! The line of one key, as a value: its waiters in their order, and which one is to be woken.
//!
//! Invariants:
//!
//! 1. Tickets ascend from the first waiter to the last. A waiter that has lost its place comes back
//!    to where its ticket belongs, so nobody who came later is before it.
//! 2. A waiter that becomes the first has been *called* before the line is seen again: its last
//!    act is new, it does not sleep, and its waker is in the caller's hands. One that comes back to
//!    the first place acts itself. A first waiter that sleeps is called again when a permit of the
//!    key is given back. A call is kept until the first waiter looks, which it does before it asks
//!    the limiter; so a call during the question makes it ask again.
//! 3. The first waiter loses its place only if it stands still: its last act is the one of the
//!    [`First`] that another waiter was told, a sleep of the first and the patience ago; or the
//!    system's clock says that the act is older than both. No two acts of a line have one number.
//!    (The clock alone would not do: under a runtime whose time is paused it stands still.)
//! 4. No waker is cloned, dropped or woken here: that is code of the user, which may drop another
//!    waiter, and the caller holds the lock. Wakers are swapped, and handed to the caller.

use std::collections::VecDeque;
use std::mem;
use std::task::Waker;
use std::time::{Duration, Instant};

/// A waiter's number, from 1. They are given once.
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
    /// What wakes it, once it has been polled.
    waker: Option<Waker>,
    /// Whether it was called since it looked.
    is_called: bool,
    /// The number of its last act: it came, was called, or asked the limiter.
    act: u64,
    /// When that was.
    acted: Instant,
    /// How long it sleeps since then.
    sleeps: Duration,
}

/// A waiter that is out of the line.
pub(crate) struct Removed {
    /// To be dropped without the lock.
    pub(crate) entry: Entry,
    /// What wakes the waiter that has become the first.
    pub(crate) calls: Option<Waker>,
}

/// Where a waiter stands.
#[derive(Debug)]
pub(crate) enum Place {
    /// It may ask the limiter.
    First,
    /// Another one is first.
    Behind {
        first: First,
        /// The costs of those between the first and this one, and its own.
        cost: u64,
    },
    /// It is not in the line: it stood still for too long.
    Lost,
}

/// What a waiter knows of the first one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct First {
    ticket: Ticket,
    act: u64,
    /// How long it sleeps since its last act.
    pub(crate) sleeps: Duration,
}

impl Line {
    pub(crate) fn len(&self) -> usize {
        self.waiters.len()
    }

    /// The costs of all waiters. `None` if nobody waits.
    pub(crate) fn cost(&self) -> Option<u64> {
        self.waiters.iter().map(|waiter| waiter.cost).reduce(u64::saturating_add)
    }

    /// Adds a waiter at the place of its ticket, which is the last place unless it comes back.
    pub(crate) fn join(&mut self, ticket: Ticket, cost: u64) {
        let at = self.waiters.partition_point(|other| other.ticket < ticket);
        self.acts += 1;
        let (act, acted, sleeps) = (self.acts, Instant::now(), Duration::ZERO);
        self.waiters.insert(at, Entry { ticket, cost, waker: None, is_called: false, act, acted, sleeps });
    }

    /// Where the waiter of `ticket` stands. The first waiter acts by looking. For another one, the
    /// line takes `waker`, which will tell it when it is the first, and gives back the one that it
    /// had.
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

    /// Whether the waiter of `ticket`, which sleeps as the first, is to look again: it was called,
    /// or has lost its place. If not, the line takes `waker`, and gives back the one that it had.
    pub(crate) fn is_called(&mut self, ticket: Ticket, waker: &mut Option<Waker>) -> bool {
        let Some(at) = self.find(ticket) else { return true };
        if at == 0 && self.waiters[0].is_called {
            return true;
        }
        mem::swap(&mut self.waiters[at].waker, waker);
        false
    }

    /// Calls the first waiter, unless it is that of `except`.
    pub(crate) fn call_again(&mut self, except: Ticket) -> Option<Waker> {
        let first = self.waiters.front_mut().filter(|first| first.ticket != except)?;
        first.is_called = true;
        first.waker.take()
    }

    /// Notes that the first waiter, if it is that of `ticket`, acts and then sleeps for `sleeps`.
    pub(crate) fn act(&mut self, ticket: Ticket, sleeps: Duration) {
        if let Some(first) = self.waiters.front_mut().filter(|first| first.ticket == ticket) {
            self.acts += 1;
            first.act = self.acts;
            first.acted = Instant::now();
            first.sleeps = sleeps;
        }
    }

    /// Removes the waiter of `ticket`, if it is there.
    pub(crate) fn leave(&mut self, ticket: Ticket) -> Option<Removed> {
        let at = self.find(ticket)?;
        let entry = self.waiters.remove(at)?;
        Some(Removed { entry, calls: if at == 0 { self.call() } else { None } })
    }

    /// Removes the first waiter if it has not acted since `seen`.
    pub(crate) fn pass_over(&mut self, seen: First) -> Option<Removed> {
        self.remove_first_if(|first| (first.ticket, first.act) == (seen.ticket, seen.act))
    }

    /// Removes the first waiter if it ought to have acted more than `patience` ago.
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
