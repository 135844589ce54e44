//! The registry: the era of the process, and the participants by which threads announce their
//! guards.

use crate::sync::{
    Atomic, AtomicPtr,
    Ordering::{Acquire, Relaxed, Release},
};
use std::{array, iter, ptr};

/// The state of a participant in which no guard is held. No era is 0.
pub(super) const IDLE: u64 = 0;

/// The first era of a process.
const FIRST: u64 = 1;

/// No thread has the participant. A guard that was made in it may still be held.
const FREE: u8 = 0;
const TAKEN: u8 = 1;

/// How many participants join at once. They lie side by side, because a collection looks at all of
/// them: the processor loads lines in a row ahead of the loop, and could not do so along a list.
const BLOCK: usize = if cfg!(tollgate_loom) { 1 } else { 16 };

/// The era of the process, and all participants.
#[derive(Debug)]
#[repr(align(128))]
pub(super) struct Registry {
    era: Atomic<u64>,
    first: AtomicPtr<Block>,
}

/// Participants that are never freed.
#[derive(Debug)]
struct Block {
    participants: [Participant; BLOCK],
    /// The block that joined before, or null; final once this one is in the list.
    next: AtomicPtr<Block>,
}

/// What a thread announces about one guard. A participant belongs to one thread at a time and is
/// never freed.
#[derive(Debug)]
#[repr(align(128))]
pub(super) struct Participant {
    /// The era in which the guard was made, or `IDLE`.
    state: Atomic<u64>,
    taken: Atomic<u8>,
}

#[cfg(not(tollgate_loom))]
pub(super) static REGISTRY: Registry =
    Registry { era: Atomic::new(FIRST), first: AtomicPtr::new(ptr::null_mut()) };

// Loom makes and drops a registry for each execution.
#[cfg(tollgate_loom)]
loom::lazy_static! {
    pub(super) static ref REGISTRY: Registry =
        Registry { era: Atomic::new(FIRST), first: AtomicPtr::new(ptr::null_mut()) };
}

impl Registry {
    /// Returns the era, for a guard that begins with it.
    #[inline(always)]
    pub(super) fn era(&self) -> u64 {
        // ORDERING: acquire side of *new era*.
        self.era.load(Acquire)
    }

    /// Returns the era, for a comparison with one that the thread has read before, or for the birth
    /// of a value.
    #[inline(always)]
    pub(super) fn era_now(&self) -> u64 {
        // ORDERING: relaxed. The link that leads to a value was loaded with acquire, and the thread
        // that linked the value had read the era of its birth: so no earlier era is read here.
        self.era.load(Relaxed)
    }

    /// Ends an era, and returns it: the values that were unlinked before are retired in it.
    pub(super) fn end_era(&self) -> u64 {
        // ORDERING: release side of *new era*. The era is changed by this operation alone, so a
        // thread that reads a later era is ordered after all that ended earlier ones (release
        // sequence).
        self.era.fetch_add(1, Release)
    }

    /// Takes a participant that no thread has, or adds a new one.
    pub(super) fn join(&self) -> &'static Participant {
        if let Some(left) = self.all().find(|participant| participant.is_free_and_taken()) {
            return left;
        }
        let participants = array::from_fn(|nth| Participant::idle(if nth == 0 { TAKEN } else { FREE }));
        let new = Box::leak(Box::new(Block { participants, next: AtomicPtr::new(ptr::null_mut()) }));
        // ORDERING: release side of *listed*; relaxed where another thread was first.
        let _ = self.first.fetch_update(Release, Relaxed, |first| {
            // ORDERING: relaxed; published by the update.
            new.next.store(first, Relaxed);
            Some(ptr::from_ref(new).cast_mut())
        });
        &new.participants[0]
    }

    /// Returns the eras of all guards. A guard made just now is sure to be seen only after a heavy
    /// barrier.
    pub(super) fn guards(&self) -> impl Iterator<Item = u64> {
        self.all().filter_map(Participant::era)
    }

    fn all(&self) -> impl Iterator<Item = &'static Participant> {
        // ORDERING: acquire side of *listed*.
        let mut at = self.first.load(Acquire);
        let blocks = iter::from_fn(move || {
            // SAFETY: null, or a block in the list, which is never freed.
            #[allow(unsafe_code)]
            let block = unsafe { at.as_ref() }?;
            // ORDERING: relaxed; it is final, and came with the block.
            at = block.next.load(Relaxed);
            Some(block)
        });
        blocks.flat_map(|block: &'static Block| &block.participants)
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
            let block = unsafe { Box::from_raw(at) };
            // ORDERING: relaxed; all threads have ended.
            at = block.next.load(Relaxed);
        }
    }
}

impl Participant {
    /// Makes a participant that is never idle, and is not in the list.
    #[cfg(not(tollgate_loom))]
    pub(super) const fn missing() -> Self {
        Self { state: Atomic::new(FIRST), taken: Atomic::new(TAKEN) }
    }

    fn idle(taken: u8) -> Self {
        Self { state: Atomic::new(IDLE), taken: Atomic::new(taken) }
    }

    /// Announces that a guard is made in this era, or dropped ([`IDLE`]). A barrier must
    /// follow an era.
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

    /// Returns the era of the guard that is held in the participant, if there is one.
    fn era(&self) -> Option<u64> {
        // ORDERING: acquire side of *left*.
        let state = self.state.load(Acquire);
        (state != IDLE).then_some(state)
    }

    /// Takes the participant for this thread, if no thread has it and no guard is held in it.
    /// Returns whether it did.
    fn is_free_and_taken(&self) -> bool {
        // ORDERING: relaxed twice; a look, so that a thread that joins writes no line of a thread
        // that has the participant or holds a guard in it.
        if self.taken.load(Relaxed) != FREE || self.state.load(Relaxed) != IDLE {
            return false;
        }
        // ORDERING: acquire side of *handed on*: the state read below is no older than that.
        // Relaxed where another thread has taken the participant first.
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
