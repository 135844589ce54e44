//! The registry: the age of the process, and the participants by which threads announce their
//! guards.

use crate::sync::{
    Atomic, AtomicPtr,
    Ordering::{Acquire, Relaxed, Release},
};
use std::ptr;

/// The state of a participant in which no guard is held. No age is 0.
pub(super) const IDLE: u64 = 0;

/// The first age of a process.
const FIRST: u64 = 1;

/// No thread has the participant. A guard that was made in it may still be held.
const FREE: u8 = 0;
const TAKEN: u8 = 1;

/// The age of the process, and all participants.
#[derive(Debug)]
#[repr(align(128))]
pub(super) struct Registry {
    age: Atomic<u64>,
    first: AtomicPtr<Participant>,
}

/// What a thread announces about one guard. A participant belongs to one thread at a time and is
/// never freed.
#[derive(Debug)]
#[repr(align(128))]
pub(super) struct Participant {
    /// The age in which the guard was made or renewed, or `IDLE`.
    state: Atomic<u64>,
    taken: Atomic<u8>,
    /// The participant that joined before, or null; final once this one is in the list.
    next: AtomicPtr<Participant>,
}

#[cfg(not(tollgate_loom))]
pub(super) static REGISTRY: Registry =
    Registry { age: Atomic::new(FIRST), first: AtomicPtr::new(ptr::null_mut()) };

// Loom makes and drops a registry for each execution.
#[cfg(tollgate_loom)]
loom::lazy_static! {
    pub(super) static ref REGISTRY: Registry =
        Registry { age: Atomic::new(FIRST), first: AtomicPtr::new(ptr::null_mut()) };
}

impl Registry {
    /// Returns the age, for a guard that begins with it.
    #[inline(always)]
    pub(super) fn age(&self) -> u64 {
        // ORDERING: acquire side of *aged*.
        self.age.load(Acquire)
    }

    /// Returns the age, for a comparison with one that the thread has read before, or for the birth
    /// of a value.
    #[inline(always)]
    pub(super) fn age_now(&self) -> u64 {
        // ORDERING: relaxed. The link that leads to a value was loaded with acquire, and the thread
        // that linked the value had read the age of its birth: so no earlier age is read here.
        self.age.load(Relaxed)
    }

    /// Ends an age, and returns it: the values that were unlinked before are retired in it.
    pub(super) fn end_age(&self) -> u64 {
        // ORDERING: release side of *aged*. The age is changed by this operation alone, so a thread
        // that reads a later age is ordered after all that ended earlier ones (release sequence).
        self.age.fetch_add(1, Release)
    }

    /// Takes a participant that no thread has, or adds a new one.
    pub(super) fn join(&self) -> &'static Participant {
        if let Some(left) = self.all().find(|participant| participant.is_free_and_taken()) {
            return left;
        }
        let new = Box::leak(Box::new(Participant {
            state: Atomic::new(IDLE),
            taken: Atomic::new(TAKEN),
            next: AtomicPtr::new(ptr::null_mut()),
        }));
        // ORDERING: release side of *listed*; relaxed where another thread was first.
        let _ = self.first.fetch_update(Release, Relaxed, |first| {
            // ORDERING: relaxed; published by the update.
            new.next.store(first, Relaxed);
            Some(ptr::from_ref(new).cast_mut())
        });
        new
    }

    /// Returns the ages of all guards. A guard made just now is sure to be seen only after a heavy
    /// barrier.
    pub(super) fn guards(&self) -> impl Iterator<Item = u64> {
        self.all().filter_map(Participant::age)
    }

    fn all(&self) -> impl Iterator<Item = &'static Participant> {
        // ORDERING: acquire side of *listed*.
        let mut at = self.first.load(Acquire);
        std::iter::from_fn(move || {
            // SAFETY: null, or a participant in the list, which is never freed.
            #[allow(unsafe_code)]
            let participant = unsafe { at.as_ref() }?;
            // ORDERING: relaxed; it is final, and came with the participant.
            at = participant.next.load(Relaxed);
            Some(participant)
        })
    }

    /// Returns the number of participants.
    #[cfg(all(test, not(tollgate_loom)))]
    pub(super) fn participants(&self) -> usize {
        self.all().count()
    }
}

/// Each execution of a model has a registry of its own.
#[cfg(tollgate_loom)]
impl Drop for Registry {
    fn drop(&mut self) {
        // ORDERING: relaxed; all threads have ended.
        let mut at = self.first.load(Relaxed);
        while !at.is_null() {
            // SAFETY: it came from a box, and the threads of the model have ended.
            #[allow(unsafe_code)]
            let participant = unsafe { Box::from_raw(at) };
            // ORDERING: relaxed; all threads have ended.
            at = participant.next.load(Relaxed);
        }
    }
}

impl Participant {
    /// Makes a participant that is never idle, and is not in the list.
    #[cfg(not(tollgate_loom))]
    pub(super) const fn missing() -> Self {
        Self { state: Atomic::new(FIRST), taken: Atomic::new(TAKEN), next: AtomicPtr::new(ptr::null_mut()) }
    }

    /// Announces that a guard is made or renewed in this age, or dropped ([`IDLE`]). A barrier must
    /// follow an age.
    #[inline(always)]
    pub(super) fn set(&self, state: u64) {
        // ORDERING: release side of *left*: the reads under a guard that is dropped come before.
        self.state.store(state, Release);
    }

    /// Returns whether no guard is held in the participant.
    #[inline(always)]
    pub(super) fn is_idle(&self) -> bool {
        // ORDERING: relaxed; only its own thread writes it, and that thread calls this.
        self.state.load(Relaxed) == IDLE
    }

    /// Returns the age of the guard that is held in the participant, if there is one.
    fn age(&self) -> Option<u64> {
        // ORDERING: acquire side of *left*.
        let state = self.state.load(Acquire);
        (state != IDLE).then_some(state)
    }

    /// Takes the participant for this thread, if no thread has it and no guard is held in it.
    /// Returns whether it did.
    fn is_free_and_taken(&self) -> bool {
        // ORDERING: acquire side of *handed on*: the state read below is no older than that.
        // Relaxed where another thread has the participant.
        if self.taken.compare_exchange(FREE, TAKEN, Acquire, Relaxed).is_err() {
            return false;
        }
        // ORDERING: acquire side of *left*: the reads under its last guard come before.
        let is_free = self.state.load(Acquire) == IDLE;
        if !is_free {
            self.leave();
        }
        is_free
    }

    /// Hands the participant on, to the next thread that joins when no guard is held in it.
    pub(super) fn leave(&self) {
        // ORDERING: release side of *handed on*.
        self.taken.store(FREE, Release);
    }
}
