//! The lines of all keys that somebody waits for, in shards that have a mutex each.
//!
//! # Why shards
//!
//! Behind one mutex, waits for different keys take turns. The time of a wait that joins a line, is
//! given its token and leaves, while 1,000 other keys have waiters (nanoseconds, medians of 11
//! interleaved runs of `make bench BENCHES=wait`, and their quartiles; two cores):
//!
//! | | one mutex | scc's `HashMap` | shards |
//! |---|---|---|---|
//! | one thread | 634 (624 to 666) | 652 (641 to 741) | 588 (573 to 656) |
//! | two threads, a key each | 4,034 (3,841 to 4,315) | 1,062 (1,006 to 1,155) | 876 (824 to 919) |
//!
//! scc's locks do not belong to single keys either, but to buckets of 32, and there are two of them
//! while few keys have waiters. Besides, scc takes a lock under an epoch of the thread, which is in
//! a thread-local. A waiter that is dropped after it, with the other thread-locals of the thread,
//! aborts the process (`a_waiter_in_a_thread_local_leaves_when_the_thread_ends`). And the models
//! run the shards as they are, where scc would have a stand-in.
//!
//! The map of a shard is a `BTreeMap`, which keeps no memory for lines that are gone. The shards of
//! a queue take 8 KiB.
//!
//! # States of a line
//!
//! | state | in its shard | how it ends |
//! |---|---|---|
//! | *absent* | no entry | the first waiter (`join`, `come_back`) inserts the entry |
//! | *waiting* | an entry with a waiter | the last waiter to leave or be passed over removes it |
//!
//! # Invariants
//!
//! 1. A shard has an entry for a line exactly if the line has waiters. [`Shard::change`] alone
//!    reaches a line, and it restores this before the shard is unlocked. So nobody joins a line
//!    that another thread removes, and a key without waiters takes no memory.
//! 2. The id of a line determines its shard, and every function locks one shard at a time. The
//!    holder of a lock never waits, wakes nobody and calls no code of the user (invariant 4 of
//!    `line.rs`). So the locks cannot deadlock, and a waker or its destructor may call any function
//!    of the queue again, for the same key too: [`Lines::removed`] runs both after the unlock.
//! 3. A turn is never lost. The critical section that removes the first waiter also takes the waker
//!    of the next one, and the section of [`Waiter::look`] that finds a waiter behind another one
//!    also stores its waker. If the look is earlier, the removal finds the waker and wakes the
//!    waiter; if it is later, the look finds the waiter in the first place.
//! 4. A permit that is given back is never overlooked. [`Lines::wake`] takes the lock after the
//!    permit is back, and a waiter is in its line, under the lock, before it asks as the first. If
//!    the lock is taken earlier for the wake, the question finds the permit; if later, the wake
//!    finds the waiter. So no ordering of the limiter matters, and the count of waiters, which
//!    could be read too early, is not read for it.
//! 5. Tickets ascend in a shard, under its lock, and outlive the lines. So a waiter that comes back
//!    is placed before all later ones, even if its line was absent meanwhile.
//! 6. `waiting` is at least the number of waiters in all lines: it is raised before a waiter enters
//!    and lowered after the waiter is out, but before the next one is woken. So the bound on all
//!    waiters holds for the memory of the lines, and a woken caller sees the count without the
//!    waiter that woke it.

mod sync;

use crate::line::{First, Line, Place, Removed, Ticket};
use crate::outcome::WaitError;
use crate::settings::Settings;
use std::collections::btree_map::{BTreeMap, Entry};
use std::hash::{BuildHasher, Hash};
use std::sync::PoisonError;
use std::task::Waker;
use std::time::Duration;
use sync::{AtomicUsize, HashSeed, Mutex, MutexGuard, Relaxed, SHARDS};

/// Which line: a hash of the key. Keys with one hash share a line; each still charges its own.
pub(crate) type LineId = u64;

#[derive(Debug)]
pub(crate) struct Lines {
    shards: Box<[Padded<Mutex<Shard>>]>,
    /// How many wait.
    waiting: Padded<AtomicUsize>,
    seed: HashSeed,
}

/// Has its cache lines to itself, so that threads in different shards do not share one.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Padded<T>(T);

#[derive(Debug, Default)]
struct Shard {
    lines: BTreeMap<LineId, Line>,
    last_ticket: Ticket,
}

impl Shard {
    /// Changes the line by `change`. A line without waiters is made for it, and removed after it.
    fn change<R>(&mut self, id: LineId, change: impl FnOnce(&mut Line) -> R) -> R {
        match self.lines.entry(id) {
            Entry::Vacant(entry) => {
                let mut line = Line::default();
                let result = change(&mut line);
                if line.len() > 0 {
                    entry.insert(line);
                }
                result
            }
            Entry::Occupied(mut entry) => {
                let result = change(entry.get_mut());
                if entry.get().len() == 0 {
                    entry.remove();
                }
                result
            }
        }
    }
}

/// What [`Lines::join`] found.
pub(crate) enum Joined<'l> {
    Waits(Waiter<'l>),
    /// Somebody else has joined since the caller looked.
    Changed,
}

impl Default for Lines {
    fn default() -> Self {
        let shards = (0..SHARDS).map(|_| Padded::default()).collect();
        Self { shards, waiting: Padded::default(), seed: HashSeed::default() }
    }
}

impl Lines {
    /// Which line the key has.
    pub(crate) fn id(&self, key: &(impl Hash + ?Sized)) -> LineId {
        self.seed.hash_one(key)
    }

    /// How many wait, for all keys together.
    pub(crate) fn waiting(&self) -> usize {
        // ORDERING: relaxed: a count that publishes nothing. A caller that reads 0 has come before
        // those that join at the same time.
        self.waiting.0.load(Relaxed)
    }

    /// How many keys have waiters.
    pub(crate) fn keys(&self) -> usize {
        self.shards.iter().map(|shard| lock(shard).lines.len()).sum()
    }

    /// What those who wait in the line will take, in tokens. `None` if nobody waits. A first waiter
    /// that is late by more than `patience` is not counted: it has lost its place.
    pub(crate) fn cost(&self, id: impl FnOnce() -> LineId, patience: Duration) -> Option<u64> {
        if self.waiting() == 0 {
            return None;
        }
        let (late, cost) = self.change(id(), |line| (line.pass_over_late(patience), line.cost()));
        self.removed(late);
        cost
    }

    /// Takes the last place of the line, if those who wait there will take `seen` as before.
    pub(crate) fn join(
        &self,
        id: LineId,
        cost: u64,
        seen: Option<u64>,
        settings: &Settings,
    ) -> Result<Joined<'_>, WaitError> {
        let mut shard = self.shard(id);
        let ticket = shard.last_ticket + 1;
        shard.last_ticket = ticket;
        shard.change(id, |line| {
            if line.cost() > seen {
                return Ok(Joined::Changed);
            }
            let waiting = line.len();
            if waiting >= settings.max_waiters_per_key {
                return Err(WaitError::Full { waiting, for_key: true });
            }
            // ORDERING: relaxed: a count that publishes nothing.
            let one_more = |waiting| (waiting < settings.max_waiters).then_some(waiting + 1);
            if let Err(waiting) = self.waiting.0.fetch_update(Relaxed, Relaxed, one_more) {
                return Err(WaitError::Full { waiting, for_key: false });
            }
            line.join(ticket, cost);
            Ok(Joined::Waits(Waiter { lines: self, id, ticket, cost }))
        })
    }

    /// Wakes the first waiter of the line after a permit was given back, unless that waiter is
    /// `except`.
    pub(crate) fn wake(&self, id: LineId, except: Ticket) {
        if let Some(waker) = self.change(id, |line| line.call_again(except)) {
            waker.wake();
        }
    }

    /// Counts a waiter that is out of its line, and wakes the one that has become the first. The
    /// caller holds no lock: wakers are code of the user, which may drop another waiter.
    fn removed(&self, removed: Option<Removed>) {
        let Some(Removed { entry, calls }) = removed else { return };
        // ORDERING: relaxed: a count that publishes nothing.
        self.waiting.0.fetch_sub(1, Relaxed);
        drop(entry);
        if let Some(waker) = calls {
            waker.wake();
        }
    }

    fn change<R>(&self, id: LineId, change: impl FnOnce(&mut Line) -> R) -> R {
        self.shard(id).change(id, change)
    }

    fn shard(&self, id: LineId) -> MutexGuard<'_, Shard> {
        lock(&self.shards[(id % SHARDS) as usize])
    }
}

/// A shard is a value that no panic leaves half changed, so poison means nothing.
fn lock(Padded(shard): &Padded<Mutex<Shard>>) -> MutexGuard<'_, Shard> {
    shard.lock().unwrap_or_else(PoisonError::into_inner)
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
        // ORDERING: relaxed: a count that publishes nothing.
        self.lines.waiting.0.fetch_add(1, Relaxed);
        self.change(|line| line.join(self.ticket, self.cost));
    }

    /// Where the waiter stands. The first waiter acts by looking; another one will be told of a
    /// change by `waker`.
    pub(crate) fn look(&self, waker: &Waker) -> Place {
        let mut waker = Some(waker.clone());
        self.change(|line| line.look(self.ticket, &mut waker))
    }

    /// The number of the waiter.
    pub(crate) fn ticket(&self) -> Ticket {
        self.ticket
    }

    /// Whether the waiter, which sleeps as the first, is to look again; if not, it will be told by
    /// `waker`.
    pub(crate) fn is_called(&self, waker: &Waker) -> bool {
        let mut waker = Some(waker.clone());
        self.change(|line| line.is_called(self.ticket, &mut waker))
    }

    /// Notes that the waiter, if it is the first, sleeps for `sleeps` from now on.
    pub(crate) fn act(&self, sleeps: Duration) {
        self.change(|line| line.act(self.ticket, sleeps));
    }

    /// Takes the place of the first waiter away if it has not acted since `seen`.
    pub(crate) fn pass_over(&self, seen: First) {
        self.lines.removed(self.change(|line| line.pass_over(seen)));
    }

    fn change<R>(&self, change: impl FnOnce(&mut Line) -> R) -> R {
        self.lines.change(self.id, change)
    }
}

impl Drop for Waiter<'_> {
    fn drop(&mut self) {
        self.lines.removed(self.change(|line| line.leave(self.ticket)));
    }
}
