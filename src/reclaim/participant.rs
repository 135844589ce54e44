//! Which threads read, and since when: the age of the process and the participants of its threads.

use super::barrier;
use crate::sync::{
    Atomic, AtomicPtr,
    Ordering::{AcqRel, Acquire, Relaxed, Release},
};
use std::ptr;

/// The low bits of a state count the guards that are held.
const GUARDS: u64 = (1 << 16) - 1;

/// One age, in the other bits: enough for a million collections a second for nine years.
const AGE: u64 = GUARDS + 1;

/// No thread has the participant. A guard that was made there may be left.
const FREE: u8 = 0;
const TAKEN: u8 = 1;

/// The age of the process, and all participants.
#[derive(Debug)]
#[repr(align(128))]
pub(super) struct Registry {
    age: Atomic<u64>,
    first: AtomicPtr<Participant>,
}

/// What a thread says of its guards. It belongs to one thread at a time and is never freed.
#[derive(Debug)]
#[repr(align(128))]
pub(super) struct Participant {
    /// How many guards the thread holds, and the age in which it made the first of them.
    state: Atomic<u64>,
    /// The latest age in which the thread has loaded a link under these guards, if it is later than the
    /// one in which it made the first.
    until: Atomic<u64>,
    taken: Atomic<u8>,
    /// The participant before it in the list, or null; final once this one is in the list.
    next: AtomicPtr<Participant>,
}

#[cfg(not(tollgate_loom))]
pub(super) static REGISTRY: Registry = Registry::new();

// Loom makes and drops one for each execution.
#[cfg(tollgate_loom)]
loom::lazy_static! {
    pub(super) static ref REGISTRY: Registry = Registry::new();
}

/// The ages in which a value may be seen by the guards of one participant: see the page of `reclaim`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Interval {
    since: u64,
    until: u64,
}

impl Interval {
    /// May a guard of this interval have seen a value that was born and retired in these ages?
    pub(super) const fn meets(self, born: u64, retired: u64) -> bool {
        born <= self.until && self.since <= retired
    }
}

impl Registry {
    #[cfg(not(tollgate_loom))]
    const fn new() -> Self {
        Self { age: Atomic::new(AGE), first: AtomicPtr::new(ptr::null_mut()) }
    }

    #[cfg(tollgate_loom)]
    fn new() -> Self {
        Self { age: Atomic::new(AGE), first: AtomicPtr::new(ptr::null_mut()) }
    }

    /// The age, for a guard that begins with it.
    #[inline(always)]
    pub(super) fn age(&self) -> u64 {
        // ORDERING: acquire side of *aged*.
        self.age.load(Acquire)
    }

    /// The age, for a comparison with one that the thread has read before, and for a new value's birth.
    #[inline(always)]
    pub(super) fn age_now(&self) -> u64 {
        // ORDERING: relaxed. The link that leads to a value was loaded with acquire, and whoever linked it
        // had read the age of its birth: so no earlier one is read here.
        self.age.load(Relaxed)
    }

    /// Ends an age, and returns it: what was unlinked before is retired in it.
    pub(super) fn end_age(&self) -> u64 {
        // ORDERING: release side of *aged*. Acquire, so that it also releases what those did who ended
        // an age before.
        self.age.fetch_add(AGE, AcqRel)
    }

    /// A participant that no thread has.
    pub(super) fn join(&self) -> &'static Participant {
        // ORDERING: acquire side of *listed*.
        let mut at = self.first.load(Acquire);
        // SAFETY: null, or a participant in the list, which is never freed.
        #[allow(unsafe_code)]
        while let Some(participant) = unsafe { at.as_ref() } {
            if participant.is_free_and_taken() {
                return participant;
            }
            // ORDERING: relaxed; it is final, and came with the participant.
            at = participant.next.load(Relaxed);
        }
        let new = Box::leak(Box::new(Participant {
            state: Atomic::new(0),
            until: Atomic::new(0),
            taken: Atomic::new(TAKEN),
            next: AtomicPtr::new(ptr::null_mut()),
        }));
        // ORDERING: relaxed; it is not dereferenced.
        let mut first = self.first.load(Relaxed);
        loop {
            // ORDERING: relaxed; published by the compare-and-swap.
            new.next.store(first, Relaxed);
            let to = ptr::from_ref(new).cast_mut();
            // ORDERING: release side of *listed*; relaxed where another thread was first.
            match self.first.compare_exchange_weak(first, to, Release, Relaxed) {
                Ok(_) => return new,
                Err(found) => first = found,
            }
        }
    }

    /// The intervals of all participants that hold guards. To be asked after a heavy barrier.
    pub(super) fn intervals(&self) -> impl Iterator<Item = Interval> {
        // ORDERING: acquire side of *listed*.
        let mut at = self.first.load(Acquire);
        let all = std::iter::from_fn(move || {
            // SAFETY: null, or a participant in the list, which is never freed.
            #[allow(unsafe_code)]
            let participant = unsafe { at.as_ref() }?;
            // ORDERING: relaxed; it is final, and came with the participant.
            at = participant.next.load(Relaxed);
            Some(participant)
        });
        all.filter_map(Participant::interval)
    }
}

/// Each execution of a model has a registry of its own.
#[cfg(tollgate_loom)]
impl Drop for Registry {
    fn drop(&mut self) {
        // ORDERING: relaxed; all threads have ended.
        let mut at = self.first.load(Relaxed);
        while !at.is_null() {
            // SAFETY: it came from a box, and its threads have ended.
            #[allow(unsafe_code)]
            let participant = unsafe { Box::from_raw(at) };
            // ORDERING: relaxed; as above.
            at = participant.next.load(Relaxed);
        }
    }
}

impl Participant {
    #[inline(always)]
    fn state(&self) -> u64 {
        // ORDERING: relaxed; only its own thread writes it, and that thread asks.
        self.state.load(Relaxed)
    }

    #[inline(always)]
    fn set(&self, state: u64) {
        // ORDERING: release side of *left*: what was read under guards that were dropped was read before.
        self.state.store(state, Release);
    }

    /// How many guards its thread holds.
    #[inline(always)]
    pub(super) fn held(&self) -> u64 {
        self.state() & GUARDS
    }

    /// Does it count as many guards as it can?
    pub(super) fn is_full(&self) -> bool {
        self.held() == GUARDS
    }

    /// The thread holds one guard, made in this age. A barrier must follow.
    #[inline(always)]
    pub(super) fn begin(&self, age: u64) {
        self.set(age + 1);
    }

    /// The thread holds one guard more. What the first of them has announced holds for it, too.
    pub(super) fn begin_another(&self) {
        self.set(self.state() + 1);
    }

    /// The thread has dropped a guard.
    #[inline(always)]
    pub(super) fn end(&self) {
        self.set(self.state() - 1);
    }

    /// Announces that the thread loads links in this age, too, under the guards that it holds.
    pub(super) fn extend(&self, age: u64) {
        // ORDERING: relaxed; only its own thread writes it.
        if self.until.load(Relaxed) < age {
            // ORDERING: relaxed; the barrier orders it before what is loaded then.
            self.until.store(age, Relaxed);
            barrier::light();
        }
    }

    fn interval(&self) -> Option<Interval> {
        // ORDERING: acquire side of *left*.
        let state = self.state.load(Acquire);
        let since = state & !GUARDS;
        // ORDERING: relaxed; ordered by the barrier.
        let until = self.until.load(Relaxed).max(since);
        (state & GUARDS > 0).then_some(Interval { since, until })
    }

    /// Takes it for this thread, if no thread has it and no guard is left there.
    fn is_free_and_taken(&self) -> bool {
        // ORDERING: acquire side of *handed on*: its state is no older than that. Relaxed where another
        // thread has it.
        if self.taken.compare_exchange(FREE, TAKEN, Acquire, Relaxed).is_err() {
            return false;
        }
        // ORDERING: acquire side of *left*: what was read there was read before.
        let is_free = self.state.load(Acquire) & GUARDS == 0;
        if !is_free {
            self.leave();
        }
        is_free
    }

    /// Hands it on: to the next thread that comes when no guard is left there.
    pub(super) fn leave(&self) {
        // ORDERING: release side of *handed on*.
        self.taken.store(FREE, Release);
    }
}
