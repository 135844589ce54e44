//! The line of one key as a plain value. It contains the waiters in order, and decides which waiter
//! to wake.
//!
//! Invariants:
//!
//! 1. Tickets ascend from the first waiter to the last. A waiter that has lost its place returns to
//!    the place determined by its ticket, so no waiter that arrived later is ahead of it.
//! 2. The change to the line that makes a waiter the first also *calls* this waiter: it records a
//!    new last act, ends the waiter's sleep, and returns the waiter's waker to the caller. The
//!    return of a waiter to the first place also counts as an act. A sleeping first waiter is
//!    called again when one of the key's permits is returned. A call is remembered until the first
//!    waiter looks, which happens before each check of the limiter, so a call during a check causes
//!    another check.
//! 3. The first waiter loses its place only if it has stopped acting. Another waiter detects this
//!    if it reads the first waiter's last act as a [`First`], sleeps for at least the sum of the
//!    first waiter's sleep and the patience, and finds that the last act is still the same. (No two
//!    acts in a line have the same number.)
//!
//!    The line also detects this if, according to the system clock, the last act is older than this
//!    sum. The system clock alone is not sufficient, because it does not advance with the timers of
//!    a runtime with paused time.
//! 4. No waker is cloned, dropped or woken here. The caller holds the lock, and these operations
//!    run user code, which may drop another waiter. Wakers are only swapped, and returned to the
//!    caller.

use std::collections::VecDeque;
use std::mem;
use std::task::Waker;
use std::time::{Duration, Instant};

/// The number of a waiter, starting at 1. No ticket is issued twice.
pub(crate) type Ticket = u64;

/// The ticket of a caller that is not in any line.
pub(crate) const NO_TICKET: Ticket = 0;

#[derive(Debug, Default)]
pub(crate) struct Line {
    waiters: VecDeque<Entry>,
    /// The number of the latest act of any waiter.
    acts: u64,
}

#[derive(Debug)]
pub(crate) struct Entry {
    ticket: Ticket,
    cost: u64,
    /// The waiter's waker, once the waiter has been polled.
    waker: Option<Waker>,
    /// True if the waiter was called since it last looked.
    is_called: bool,
    /// The number of the waiter's last act. A waiter acts when it joins, is called, looks as the
    /// first waiter, or falls asleep.
    act: u64,
    /// The time of the last act.
    acted: Instant,
    /// How long the waiter sleeps after its last act.
    sleeps: Duration,
}

/// A waiter that was removed from the line.
pub(crate) struct Removed {
    /// The removed entry, which must be dropped after the unlock.
    pub(crate) entry: Entry,
    /// The waker of the new first waiter.
    pub(crate) calls: Option<Waker>,
}

/// The place of a waiter in its line.
#[derive(Debug)]
pub(crate) enum Place {
    /// The waiter is the first one, and may check the limiter.
    First,
    /// The first waiter is another one.
    Behind {
        first: First,
        /// The number of waiters ahead of this one.
        ahead: u32,
        /// The total cost of this waiter and of all waiters between the first waiter and this one.
        cost: u64,
    },
    /// The waiter is not in the line, because it was inactive for too long.
    Lost,
    /// The queue is closed, so the waiter has no turn.
    Closed,
}

/// The state of the first waiter when another waiter looked.
#[derive(Clone, Copy, Debug)]
pub(crate) struct First {
    ticket: Ticket,
    act: u64,
    /// How long the first waiter sleeps after its last act.
    pub(crate) sleeps: Duration,
}

impl Line {
    pub(crate) fn len(&self) -> usize {
        self.waiters.len()
    }

    /// Returns the total cost of all waiters, or `None` if the line is empty.
    pub(crate) fn cost(&self) -> Option<u64> {
        self.waiters.iter().map(|waiter| waiter.cost).reduce(u64::saturating_add)
    }

    /// Adds a waiter at the place determined by its ticket. This is the last place for a new
    /// waiter, but may be an earlier place for a returning waiter.
    pub(crate) fn join(&mut self, ticket: Ticket, cost: u64) {
        let at = self.waiters.partition_point(|other| other.ticket < ticket);
        self.acts += 1;
        let (act, acted, sleeps) = (self.acts, Instant::now(), Duration::ZERO);
        self.waiters.insert(at, Entry { ticket, cost, waker: None, is_called: false, act, acted, sleeps });
    }

    /// Returns the place of the waiter with `ticket`. For the first waiter, this call counts as an
    /// act. For any other waiter, the line stores `waker`, which will wake the waiter when it
    /// becomes the first, and returns the previous waker in `waker`.
    pub(crate) fn look(&mut self, ticket: Ticket, waker: &mut Option<Waker>) -> Place {
        let Some(at) = self.find(ticket) else { return Place::Lost };
        if at == 0 {
            self.waiters[0].is_called = false;
            self.act(ticket, Duration::ZERO);
            return Place::First;
        }
        mem::swap(&mut self.waiters[at].waker, waker);
        let cost = self.waiters.range(1..=at).fold(0, |sum: u64, waiter| sum.saturating_add(waiter.cost));
        Place::Behind { first: self.first(), ahead: u32::try_from(at).unwrap_or(u32::MAX), cost }
    }

    /// Returns true if the waiter with `ticket`, which sleeps as the first waiter, must look again,
    /// because it was called or has lost its place. Otherwise the line stores `waker`, and returns
    /// the previous waker in `waker`.
    pub(crate) fn is_called(&mut self, ticket: Ticket, waker: &mut Option<Waker>) -> bool {
        let Some(at) = self.find(ticket) else { return true };
        if at == 0 && self.waiters[0].is_called {
            return true;
        }
        mem::swap(&mut self.waiters[at].waker, waker);
        false
    }

    /// Returns the wakers of all waiters.
    pub(crate) fn wakers(&mut self) -> impl Iterator<Item = Waker> + '_ {
        self.waiters.iter_mut().filter_map(|waiter| waiter.waker.take())
    }

    /// Calls the first waiter, unless its ticket is `except`.
    pub(crate) fn call_again(&mut self, except: Ticket) -> Option<Waker> {
        let first = self.waiters.front_mut().filter(|first| first.ticket != except)?;
        first.is_called = true;
        first.waker.take()
    }

    /// If the first waiter has this ticket, records that it acts and then sleeps for `sleeps`.
    pub(crate) fn act(&mut self, ticket: Ticket, sleeps: Duration) {
        if let Some(first) = self.waiters.front_mut().filter(|first| first.ticket == ticket) {
            self.acts += 1;
            first.act = self.acts;
            first.acted = Instant::now();
            first.sleeps = sleeps;
        }
    }

    /// Removes the waiter with `ticket`, if it is in the line.
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

    /// Calls the new first waiter.
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
