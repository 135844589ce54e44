//! The lines of waiters of all keys, divided into shards. Each shard has its own mutex.
//!
//! # Why shards
//!
//! Behind a single mutex, waits for different keys would block each other. The table shows how long
//! a waiter takes to join a line, obtain its token and leave, while 1,000 other keys have waiters.
//! (Times are in nanoseconds: medians of 11 interleaved runs of `make bench BENCHES=wait`, and
//! their quartiles, on two cores.)
//!
//! | | one mutex | scc's `HashMap` | shards |
//! |---|---|---|---|
//! | one thread | 634 (624 to 666) | 652 (641 to 741) | 588 (573 to 656) |
//! | two threads, a key each | 4,034 (3,841 to 4,315) | 1,062 (1,006 to 1,155) | 876 (824 to 919) |
//!
//! scc's locks do not belong to single keys either, but to buckets of 32 keys, and there are just
//! two buckets while few keys have waiters. In addition, scc acquires locks inside a per-thread
//! epoch guard, which is stored in a thread-local. If another thread-local contained a waiter and
//! were dropped after this one, dropping the waiter would abort the process
//! (`a_waiter_in_a_thread_local_leaves_when_the_thread_ends`). Finally, the models run the shards
//! unchanged, whereas scc would have to be replaced.
//!
//! Each shard's map is a `BTreeMap`, which keeps no memory for removed lines. A queue's shards
//! occupy 8 KiB.
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
//! 1. A shard contains an entry for a line if and only if the line has waiters. Only
//!    [`LineShard::change`] accesses a line, and it restores this invariant before the shard is
//!    unlocked. Therefore no waiter can join a line while another thread removes it, and a key
//!    without waiters occupies no memory.
//! 2. The id of a line determines its shard, and every function locks one shard at a time. A thread
//!    that holds a lock never waits, wakes no waiter and calls no user code (invariant 4 of
//!    `line.rs`). The locks therefore cannot deadlock. [`Lines::removed`] runs wakers and their
//!    destructors after the unlock, so these may call any function of the queue again, even for the
//!    same key.
//! 3. A turn is never lost. The critical section that removes the first waiter also takes the next
//!    waiter's waker. If [`Waiter::look`] finds a waiter behind another one, it stores the waiter's
//!    waker in the same critical section. If the look happens before the removal, the removal finds
//!    the waker and wakes the waiter. If the look happens after the removal, it finds the waiter in
//!    the first place.
//! 4. A returned permit is never overlooked. [`Lines::wake`] takes the lock after the permit is
//!    returned. A waiter enters its line, under the lock, before it checks the limiter as the first
//!    waiter. If the wake takes the lock first, the check finds the permit. If the waiter takes the
//!    lock first, the wake finds the waiter.
//!
//! This is true for any memory orderings in the limiter. Waking does not read the count of waiters,
//! because the read could happen too early.
//! 5. A shard issues ascending tickets under its lock, and continues the numbers when lines are
//!    removed. A returning waiter is therefore placed ahead of all later waiters, even if its line
//!    was absent in the meantime.
//! 6. `waiting` is at least the number of waiters in all lines. It is raised before a waiter enters
//!    a line. It is lowered after the waiter has left, but before the next waiter is woken. The
//!    limit on the number of waiters therefore also limits the lines' memory, and a woken caller
//!    reads a count that does not include the waiter that woke it.
//! 7. No waiter sleeps on in a closed queue. [`Lines::close`] sets `closed`, and then takes the
//!    wakers of each line under its lock. A waiter stores its waker under this lock before it reads
//!    `closed` and sleeps. If the closing thread takes the lock first, the waiter reads that the
//!    queue is closed. If the waiter takes the lock first, the closing thread finds the waker.

mod sync;

use crate::line::{First, Line, Place, Removed, Ticket};
use crate::outcome::WaitError;
use crate::settings::Settings;
use std::collections::btree_map::{BTreeMap, Entry};
use std::hash::{BuildHasher, Hash};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::PoisonError;
use std::task::Waker;
use std::time::Duration;
use sync::{AtomicBool, AtomicUsize, HashSeed, Mutex, MutexGuard, Relaxed, SHARDS};

/// The id of a line, which is a hash of the key. Keys with the same hash share a line, but each
/// wait still charges its own key.
pub(crate) type LineId = u64;

#[derive(Debug)]
pub(crate) struct Lines {
    shards: Box<[Padded<Mutex<LineShard>>]>,
    /// The number of waiters.
    waiting: Padded<AtomicUsize>,
    seed: HashSeed,
    closed: AtomicBool,
}

/// A value in its own cache lines, so that threads in different shards do not share a cache line.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Padded<T>(T);

#[derive(Debug, Default)]
struct LineShard {
    lines: BTreeMap<LineId, Line>,
    last_ticket: Ticket,
}

impl LineShard {
    /// Applies `change` to the line. If the line is absent, it is created before the change. If the
    /// line is empty after the change, it is removed.
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

/// The result of [`Lines::join`].
pub(crate) enum Joined<'l> {
    Waits(Waiter<'l>),
    /// Another waiter has joined since the caller last looked.
    Changed,
}

impl Default for Lines {
    fn default() -> Self {
        let shards = (0..SHARDS).map(|_| Padded::default()).collect();
        Self { shards, waiting: Padded::default(), seed: HashSeed::default(), closed: AtomicBool::new(false) }
    }
}

impl Lines {
    /// Returns the id of the key's line.
    pub(crate) fn id(&self, key: &(impl Hash + ?Sized)) -> LineId {
        self.seed.hash_one(key)
    }

    /// Returns the total number of waiters of all keys.
    pub(crate) fn waiting(&self) -> usize {
        // ORDERING: relaxed, because this count publishes no other data. A caller that reads 0 is
        // treated as earlier than callers that join at the same time.
        self.waiting.0.load(Relaxed)
    }

    /// Returns the number of keys that have waiters.
    pub(crate) fn keys(&self) -> usize {
        self.shards.iter().map(|shard| lock(shard).lines.len()).sum()
    }

    /// Closes the queue for good, and wakes all waiters.
    pub(crate) fn close(&self) {
        // ORDERING: relaxed, because the locks below publish the flag to waiters (invariant 7). A
        // caller that arrives after this call in some other way also reads it, because it reads the
        // latest write that happened before.
        self.closed.store(true, Relaxed);
        // Wakers run user code, so they are woken without the lock.
        let wakers_of =
            |shard| -> Vec<Waker> { lock(shard).lines.values_mut().flat_map(Line::wakers).collect() };
        let wakers = self.shards.iter().flat_map(wakers_of);
        // If a waker panics, the other waiters are woken first.
        let panics = wakers.filter_map(|waker| catch_unwind(AssertUnwindSafe(|| waker.wake())).err());
        if let Some(first) = panics.reduce(|first, _| first) {
            resume_unwind(first);
        }
    }

    /// Returns true if the queue is closed.
    pub(crate) fn is_closed(&self) -> bool {
        // ORDERING: relaxed, because the flag publishes no other data; see invariant 7.
        self.closed.load(Relaxed)
    }

    /// Returns how many tokens the waiters in the line will take, or `None` if the line has no
    /// waiters. If the first waiter is late by more than `patience`, it loses its place and is not
    /// counted.
    pub(crate) fn cost(&self, id: impl FnOnce() -> LineId, patience: Duration) -> Option<u64> {
        if self.waiting() == 0 {
            return None;
        }
        let (late, cost) = self.change(id(), |line| (line.pass_over_late(patience), line.cost()));
        self.removed(late);
        cost
    }

    /// Takes the last place in the line, unless the waiters in the line now require more tokens
    /// than `seen`.
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
            // ORDERING: relaxed, because this count publishes no other data.
            let one_more = |waiting| (waiting < settings.max_waiters).then_some(waiting + 1);
            if let Err(waiting) = self.waiting.0.fetch_update(Relaxed, Relaxed, one_more) {
                return Err(WaitError::Full { waiting, for_key: false });
            }
            line.join(ticket, cost);
            Ok(Joined::Waits(Waiter { lines: self, id, ticket, cost }))
        })
    }

    /// Wakes the first waiter in the line after a permit was returned, unless that waiter's ticket
    /// is `except`.
    pub(crate) fn wake(&self, id: LineId, except: Ticket) {
        if let Some(waker) = self.change(id, |line| line.call_again(except)) {
            waker.wake();
        }
    }

    /// Subtracts a removed waiter from the count, and wakes the new first waiter. The caller must
    /// not hold a lock, because wakers run user code, which may drop another waiter. A panic of a
    /// waker reaches the caller.
    fn removed(&self, removed: Option<Removed>) {
        // The destructor of the entry's waker may panic, so the entry is dropped last.
        let Some(Removed { entry: _entry, calls }) = removed else { return };
        // ORDERING: relaxed, because this count publishes no other data.
        self.waiting.0.fetch_sub(1, Relaxed);
        if let Some(waker) = calls {
            waker.wake();
        }
    }

    fn change<R>(&self, id: LineId, change: impl FnOnce(&mut Line) -> R) -> R {
        self.shard(id).change(id, change)
    }

    fn shard(&self, id: LineId) -> MutexGuard<'_, LineShard> {
        lock(&self.shards[(id % SHARDS) as usize])
    }
}

/// Locks a shard. Poison is ignored, because no panic leaves a shard half changed.
fn lock(Padded(shard): &Padded<Mutex<LineShard>>) -> MutexGuard<'_, LineShard> {
    shard.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A place in a line, or the right to return to this place. Dropping this value removes the waiter
/// from the line.
#[derive(Debug)]
pub(crate) struct Waiter<'l> {
    lines: &'l Lines,
    id: LineId,
    ticket: Ticket,
    cost: u64,
}

impl Waiter<'_> {
    /// Returns to the place that the waiter has lost, ahead of all waiters that arrived later. The
    /// bounds are not rechecked, because they were checked when the waiter joined.
    pub(crate) fn come_back(&self) {
        // ORDERING: relaxed, because this count publishes no other data.
        self.lines.waiting.0.fetch_add(1, Relaxed);
        self.change(|line| line.join(self.ticket, self.cost));
    }

    /// Returns the place of the waiter. For the first waiter, this call counts as an act (see
    /// `line`). Any other waiter will be woken through `waker` when it becomes the first, or when
    /// the queue is closed.
    pub(crate) fn look(&self, waker: &Waker) -> Place {
        let mut waker = Some(waker.clone());
        let place = self.change(|line| line.look(self.ticket, &mut waker));
        if self.lines.is_closed() { Place::Closed } else { place }
    }

    /// Returns the number of the waiter.
    pub(crate) fn ticket(&self) -> Ticket {
        self.ticket
    }

    /// Returns true if the waiter, which sleeps as the first waiter, must look again. Otherwise
    /// `waker` will wake the waiter when it must look.
    pub(crate) fn is_called(&self, waker: &Waker) -> bool {
        let mut waker = Some(waker.clone());
        self.change(|line| line.is_called(self.ticket, &mut waker)) || self.lines.is_closed()
    }

    /// Records that the waiter, if it is the first, now sleeps for `sleeps`.
    pub(crate) fn act(&self, sleeps: Duration) {
        self.change(|line| line.act(self.ticket, sleeps));
    }

    /// Removes the first waiter from the line if it has not acted since `seen`. Returns true if it
    /// was removed.
    pub(crate) fn pass_over(&self, seen: First) -> bool {
        let removed = self.change(|line| line.pass_over(seen));
        let is_removed = removed.is_some();
        self.lines.removed(removed);
        is_removed
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
