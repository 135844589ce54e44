//! The lines of all keys that somebody waits for, behind one mutex.
//!
//! A line exists while it has waiters. The mutex is held for the functions of `line.rs` and for
//! nothing else: its holder never waits, wakes nobody and calls no code of the user.

mod sync;

use crate::line::{First, Line, Place, Removed, Ticket};
use crate::outcome::WaitError;
use crate::settings::Settings;
use std::collections::HashMap;
use std::sync::PoisonError;
use std::task::Waker;
use std::time::Duration;
use sync::{AtomicUsize, Mutex, MutexGuard, Relaxed};

/// Which line: a hash of the key. Keys with one hash share a line; each still charges its own.
pub(crate) type LineId = u64;

#[derive(Debug, Default)]
pub(crate) struct Lines {
    inner: Mutex<Inner>,
    /// How many wait. It is written under the mutex.
    waiting: AtomicUsize,
}

#[derive(Debug, Default)]
struct Inner {
    lines: HashMap<LineId, Line>,
    last_ticket: Ticket,
}

/// What [`Lines::join`] found.
pub(crate) enum Joined<'l> {
    Waits(Waiter<'l>),
    /// Somebody else has joined since the caller looked.
    Changed,
}

impl Lines {
    /// How many wait, for all keys together.
    pub(crate) fn waiting(&self) -> usize {
        // ORDERING: relaxed: a count that publishes nothing. A caller that reads 0 has come before
        // those that join at the same time.
        self.waiting.load(Relaxed)
    }

    /// How many keys have waiters.
    pub(crate) fn keys(&self) -> usize {
        self.lock().lines.len()
    }

    /// What those who wait in the line will take, in tokens. `None` if nobody waits. A first waiter
    /// that is late by more than `patience` is not counted: it has lost its place.
    pub(crate) fn cost(&self, id: impl FnOnce() -> LineId, patience: Duration) -> Option<u64> {
        if self.waiting() == 0 {
            return None;
        }
        let id = id();
        self.remove(id, |line| line.pass_over_late(patience));
        self.lock().lines.get(&id).map(Line::cost)
    }

    /// Takes the last place of the line, if those who wait there will take `seen` as before.
    pub(crate) fn join(
        &self,
        id: LineId,
        cost: u64,
        seen: Option<u64>,
        settings: &Settings,
    ) -> Result<Joined<'_>, WaitError> {
        let mut inner = self.lock();
        let line = inner.lines.get(&id);
        if line.map(Line::cost) > seen {
            return Ok(Joined::Changed);
        }
        let waiting = line.map_or(0, Line::len);
        if waiting >= settings.max_waiters_per_key {
            return Err(WaitError::Full { waiting, for_key: true });
        }
        // ORDERING: relaxed: written under the mutex, which is held.
        let waiting = self.waiting.load(Relaxed);
        if waiting >= settings.max_waiters {
            return Err(WaitError::Full { waiting, for_key: false });
        }
        inner.last_ticket += 1;
        let ticket = inner.last_ticket;
        inner.lines.entry(id).or_default().join(ticket, cost);
        // ORDERING: as above.
        self.waiting.store(waiting + 1, Relaxed);
        Ok(Joined::Waits(Waiter { lines: self, id, ticket, cost }))
    }

    /// Changes a line by `change`, which removes a waiter or nobody.
    fn remove(&self, id: LineId, change: impl FnOnce(&mut Line) -> Option<Removed>) {
        let mut inner = self.lock();
        let Some(line) = inner.lines.get_mut(&id) else { return };
        let Some(removed) = change(line) else { return };
        if line.len() == 0 {
            inner.lines.remove(&id);
        }
        // What idle queues once needed is given back.
        if inner.lines.is_empty() && inner.lines.capacity() > 1_024 {
            inner.lines.shrink_to_fit();
        }
        // ORDERING: relaxed: written under the mutex, which is held.
        self.waiting.store(self.waiting.load(Relaxed) - 1, Relaxed);
        drop(inner);
        // Wakers are code of the user, which may drop another waiter.
        let Removed { entry, calls } = removed;
        drop(entry);
        if let Some(waker) = calls {
            waker.wake();
        }
    }

    /// A line is a value that no panic leaves half changed, so poison means nothing.
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A place in a line, or the right to come back to it. It is left when this is dropped.
#[derive(Debug)]
pub(crate) struct Waiter<'l> {
    lines: &'l Lines,
    id: LineId,
    ticket: Ticket,
    cost: u64,
}

impl Waiter<'_> {
    /// Comes back to the place that the waiter has lost, in front of all who came after it. The
    /// bounds do not count here: it was counted when it came.
    pub(crate) fn come_back(&self) {
        let mut inner = self.lines.lock();
        inner.lines.entry(self.id).or_default().join(self.ticket, self.cost);
        // ORDERING: relaxed: written under the mutex, which is held.
        self.lines.waiting.store(self.lines.waiting.load(Relaxed) + 1, Relaxed);
    }

    /// Where the waiter stands. `waker` will tell of a change if it is not the first.
    pub(crate) fn look(&self, waker: &Waker) -> Place {
        let mut waker = Some(waker.clone());
        let mut inner = self.lines.lock();
        let line = inner.lines.get_mut(&self.id);
        let place = line.map_or(Place::Lost, |line| line.look(self.ticket, &mut waker));
        drop(inner);
        place
    }

    /// Notes that the waiter acts now and then sleeps for `sleeps`, if it is the first.
    pub(crate) fn act(&self, sleeps: Duration) {
        let mut inner = self.lines.lock();
        if let Some(line) = inner.lines.get_mut(&self.id) {
            line.act(self.ticket, sleeps);
        }
    }

    /// Takes the place of the first waiter away if it has not acted since `seen`.
    pub(crate) fn pass_over(&self, seen: First) {
        self.lines.remove(self.id, |line| line.pass_over(seen));
    }
}

impl Drop for Waiter<'_> {
    fn drop(&mut self) {
        self.lines.remove(self.id, |line| line.leave(self.ticket));
    }
}
