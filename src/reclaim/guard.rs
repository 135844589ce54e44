//! Guards and the registry. A guard keeps alive the values that its thread may have seen. A
//! participant in the registry announces the guard to collections. The registry also contains the
//! current era of the process.

use super::barrier::{self, SeqCst};
use crate::sync::{
    Atomic, AtomicPtr,
    Ordering::{Acquire, Relaxed, Release},
};
use std::cell::Cell;
use std::marker::PhantomData;
use std::{array, iter, ptr};

/// Keeps the values loaded under this guard alive for as long as the guard is held. A guard cannot
/// move to another thread.
#[derive(Debug)]
pub(crate) struct Guard {
    participant: &'static Participant,
    /// The era in which the guard was created. The guard does not cover values that are born later.
    era: u64,
    /// Makes the guard not `Send`, because the thread that owns the participant must drop the
    /// guard.
    thread: PhantomData<*const ()>,
}

/// The error returned when a walk must start again at the root, under a new guard. Either the
/// guard's era has ended, so that the next value may already be freed, or another thread has
/// changed a value that the walk has read.
#[derive(Debug)]
pub(crate) struct Retry;

/// How many guards a thread can hold at the same time without joining the registry again: one for
/// the lookups of a `check_all`, one for a charge within that call, one for a walk, and one for a
/// walk inside that walk.
pub(super) const GUARDS: usize = 4;

/// The participants of a thread. Most calls need only one guard, which uses the first participant.
/// All participants are handed on when the thread ends.
struct OwnParticipants([Cell<Option<&'static Participant>>; GUARDS]);

impl OwnParticipants {
    const fn new() -> Self {
        Self([const { Cell::new(None) }; GUARDS])
    }

    /// Returns a participant of this thread that announces no guard.
    fn idle(&self) -> Option<&'static Participant> {
        let own = self.0.iter().map(|own| {
            let participant = own.get().unwrap_or_else(|| REGISTRY.join());
            own.set(Some(participant));
            participant
        });
        // The iterator is lazy, because most threads need only the first participant.
        own.into_iter().find(|participant| participant.is_idle())
    }
}

impl Drop for OwnParticipants {
    fn drop(&mut self) {
        set_mine([None; GUARDS]);
        self.0.iter().filter_map(Cell::take).for_each(Participant::leave);
    }
}

/// A placeholder for a participant that the thread does not have yet. The placeholder is never
/// idle, so a single comparison in each check covers both cases: no participant, and a participant
/// in use.
#[cfg(not(tollgate_loom))]
static MISSING: Participant = Participant::missing();

#[cfg(not(tollgate_loom))]
thread_local! {
    /// Pointers to the thread's participants, which are never freed. The pointers are set only if
    /// readers need no fence. (They are not references, because before Rust 1.90 a constant cannot
    /// refer to a static with atomics.)
    static MINE: [Cell<*const Participant>; GUARDS] = const { [const { Cell::new(&raw const MISSING) }; GUARDS] };
    /// This is separate from `MINE`, because a thread-local with a destructor takes longer to read.
    static OWN: OwnParticipants = const { OwnParticipants::new() };
}

#[cfg(tollgate_loom)]
loom::thread_local! {
    static MINE: [Cell<Option<&'static Participant>>; GUARDS] = [const { Cell::new(None) }; GUARDS];
    static OWN: OwnParticipants = OwnParticipants::new();
}

/// The fast path: creates a guard in the thread's participant `nth`. Returns `None` if the thread
/// does not have that participant yet, or if the participant already announces a guard.
#[inline(always)]
pub(super) fn pin_in(nth: usize) -> Option<Guard> {
    // SAFETY: `MINE` only points to `MISSING` or to participants, and these are never freed.
    #[cfg(not(tollgate_loom))]
    #[allow(unsafe_code)]
    let mine: &'static Participant = unsafe { &*MINE.with(|mine| mine[nth].get()) };
    #[cfg(tollgate_loom)]
    let mine = MINE.try_with(|mine| mine[nth].get()).ok().flatten()?;
    // This is an `if`, because the compiler would turn `Option`'s methods into two branches.
    if !mine.is_idle() {
        return None;
    }
    let era = REGISTRY.era();
    mine.set(era);
    // ORDERING: *barrier*. `MINE` contains a participant, so there is a heavy half.
    barrier::compiler_fence(SeqCst);
    Some(Guard::of(mine, era))
}

fn set_mine(participants: [Option<&'static Participant>; GUARDS]) {
    #[cfg(not(tollgate_loom))]
    let participants = participants.map(|own| std::ptr::from_ref(own.unwrap_or(&MISSING)));
    // If the thread is ending, `MINE` may already be dropped.
    let _ = MINE.try_with(|mine| mine.iter().zip(participants).for_each(|(mine, own)| mine.set(own)));
}

/// Creates a guard for this thread.
///
/// This function is wait-free, except when it creates a thread's first guards, or a fifth or later
/// guard held at the same time. In these cases, the thread joins the registry, which is lock-free
/// and allocates if no participant is free.
#[inline(always)]
pub(crate) fn pin() -> Guard {
    pin_in(0).unwrap_or_else(pin_slowly)
}

#[cold]
#[inline(never)]
fn pin_slowly() -> Guard {
    if let Some(guard) = (1..GUARDS).find_map(pin_in) {
        return guard;
    }
    // This fails if the thread is ending.
    let own = OWN.try_with(|own| {
        let idle = own.idle();
        if barrier::is_there() {
            set_mine(own.0.each_ref().map(Cell::get));
        }
        idle
    });
    if let Ok(Some(participant)) = own {
        return Guard::begun(participant);
    }
    let participant = REGISTRY.join();
    let guard = Guard::begun(participant);
    // Hand the participant on now, because no later code does so. No other thread can take the
    // participant until the guard is dropped.
    participant.leave();
    guard
}

impl Guard {
    #[inline(always)]
    fn of(participant: &'static Participant, era: u64) -> Self {
        Self { participant, era, thread: PhantomData }
    }

    /// Creates and announces a guard in the current era.
    fn begun(participant: &'static Participant) -> Self {
        let era = REGISTRY.era();
        participant.set(era);
        barrier::light();
        Self::of(participant, era)
    }

    /// Returns the participant that announces the guard.
    #[cfg(tollgate_loom)]
    pub(super) fn participant(&self) -> &'static Participant {
        self.participant
    }

    /// Returns the era in which the guard was created.
    #[inline(always)]
    pub(super) fn era(&self) -> u64 {
        self.era
    }

    /// Returns whether the guard's era has ended.
    #[inline(always)]
    pub(crate) fn is_old(&self) -> bool {
        REGISTRY.era_now() != self.era
    }
}

impl Drop for Guard {
    #[inline(always)]
    fn drop(&mut self) {
        self.participant.set(IDLE);
    }
}

/// The state of a participant without an announced guard. No era has the value 0.
pub(super) const IDLE: u64 = 0;

/// The first era of a process.
const FIRST: u64 = 1;

/// No thread owns the participant. The participant may still announce its last owner's guard.
const FREE: u8 = 0;
const TAKEN: u8 = 1;

/// How many participants join at once. They are adjacent in memory, because a collection reads all
/// participants. The processor can prefetch adjacent lines, but not the entries of a list.
const BLOCK: usize = if cfg!(tollgate_loom) { 1 } else { 16 };

/// The era of the process, and all of its participants.
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
    /// The previous block that joined, or null. This pointer is final once this block is in the
    /// list.
    next: AtomicPtr<Block>,
}

/// The announcement of one guard. A participant belongs to one thread at a time and is never freed.
#[derive(Debug)]
#[repr(align(128))]
pub(super) struct Participant {
    /// The era in which the guard was created, or `IDLE`.
    state: Atomic<u64>,
    taken: Atomic<u8>,
}

#[cfg(not(tollgate_loom))]
pub(super) static REGISTRY: Registry =
    Registry { era: Atomic::new(FIRST), first: AtomicPtr::new(ptr::null_mut()) };

// Loom creates and drops a registry for each execution.
#[cfg(tollgate_loom)]
loom::lazy_static! {
    pub(super) static ref REGISTRY: Registry =
        Registry { era: Atomic::new(FIRST), first: AtomicPtr::new(ptr::null_mut()) };
}

impl Registry {
    /// Returns the era for a new guard.
    #[inline(always)]
    pub(super) fn era(&self) -> u64 {
        // ORDERING: acquire side of *new era*.
        self.era.load(Acquire)
    }

    /// Returns the current era. The caller may only compare the result with an era that the thread
    /// has read before, or use it as the era of a value's birth.
    #[inline(always)]
    pub(super) fn era_now(&self) -> u64 {
        // ORDERING: relaxed. The link that leads to a value was loaded with acquire, and the thread
        // that linked the value had read the era of the value's birth. Therefore this load does not
        // return an earlier era.
        self.era.load(Relaxed)
    }

    /// Ends the current era and returns it. Values that were unlinked before this call are retired
    /// in this era.
    pub(super) fn end_era(&self) -> u64 {
        // ORDERING: release side of *new era*. Only this operation changes the era. By the release
        // sequence, a thread that reads a later era is therefore ordered after all threads that
        // ended earlier eras.
        self.era.fetch_add(1, Release)
    }

    /// Takes a participant that no thread owns, or adds a new one.
    pub(super) fn join(&self) -> &'static Participant {
        if let Some(left) = self.all().find(|participant| participant.is_free_and_taken()) {
            return left;
        }
        let participants = array::from_fn(|nth| Participant::idle(if nth == 0 { TAKEN } else { FREE }));
        let new = Box::leak(Box::new(Block { participants, next: AtomicPtr::new(ptr::null_mut()) }));
        // ORDERING: release side of *listed*. Relaxed if another thread got there first.
        let _ = self.first.fetch_update(Release, Relaxed, |first| {
            // ORDERING: relaxed; published by the update.
            new.next.store(first, Relaxed);
            Some(ptr::from_ref(new).cast_mut())
        });
        &new.participants[0]
    }

    /// Returns the eras of all guards. A recent guard is certain to be included only if this call
    /// follows the heavy half of the barrier.
    pub(super) fn guards(&self) -> impl Iterator<Item = u64> {
        self.all().filter_map(Participant::era)
    }

    fn all(&self) -> impl Iterator<Item = &'static Participant> {
        // ORDERING: acquire side of *listed*.
        let mut at = self.first.load(Acquire);
        let blocks = iter::from_fn(move || {
            // SAFETY: the pointer is null, or points to a block in the list. Blocks in the list are
            // never freed.
            #[allow(unsafe_code)]
            let block = unsafe { at.as_ref() }?;
            // ORDERING: relaxed, because `next` is final and was published with the block.
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

/// Each execution of a model has its own registry.
#[cfg(tollgate_loom)]
impl Drop for Registry {
    fn drop(&mut self) {
        // ORDERING: relaxed, because all threads have ended.
        let mut at = self.first.load(Relaxed);
        while !at.is_null() {
            // SAFETY: the block came from a box, and the threads of the model have ended.
            #[allow(unsafe_code)]
            let block = unsafe { Box::from_raw(at) };
            // ORDERING: relaxed, because all threads have ended.
            at = block.next.load(Relaxed);
        }
    }
}

impl Participant {
    /// Creates a participant that is never idle and is not in the list.
    #[cfg(not(tollgate_loom))]
    pub(super) const fn missing() -> Self {
        Self { state: Atomic::new(FIRST), taken: Atomic::new(TAKEN) }
    }

    fn idle(taken: u8) -> Self {
        Self { state: Atomic::new(IDLE), taken: Atomic::new(taken) }
    }

    /// Announces the era of a new guard, or [`IDLE`] if the guard is dropped. A barrier must follow
    /// the announcement of an era.
    #[inline(always)]
    pub(super) fn set(&self, state: u64) {
        // ORDERING: release side of *left*. The reads under a dropped guard happen before this
        // store.
        self.state.store(state, Release);
    }

    /// Returns whether the participant announces no guard.
    #[inline(always)]
    pub(super) fn is_idle(&self) -> bool {
        // ORDERING: relaxed, because only the owning thread writes the state, and only that thread
        // calls this method.
        self.state.load(Relaxed) == IDLE
    }

    /// Returns the era of the guard that the participant announces, if there is one.
    fn era(&self) -> Option<u64> {
        // ORDERING: acquire side of *left*.
        let state = self.state.load(Acquire);
        (state != IDLE).then_some(state)
    }

    /// Takes the participant for this thread, if the participant has no owner and announces no
    /// guard. Returns whether this call has taken the participant.
    fn is_free_and_taken(&self) -> bool {
        // ORDERING: both loads are relaxed, because they only avoid a write. A joining thread
        // should not write to the cache line of a participant that has an owner or announces a
        // guard.
        if self.taken.load(Relaxed) != FREE || self.state.load(Relaxed) != IDLE {
            return false;
        }
        // ORDERING: acquire side of *handed on*. The state read below is at least as recent as the
        // hand-over. Relaxed if another thread has taken the participant first.
        if self.taken.compare_exchange(FREE, TAKEN, Acquire, Relaxed).is_err() {
            return false;
        }
        // ORDERING: acquire side of *left*. The reads under the participant's last guard happened
        // before this load.
        let is_free = self.state.load(Acquire) == IDLE;
        if !is_free {
            self.leave();
        }
        is_free
    }

    /// Hands the participant on. The next thread that joins takes the participant, unless the
    /// participant still announces a guard.
    pub(super) fn leave(&self) {
        // ORDERING: release side of *handed on*.
        self.taken.store(FREE, Release);
    }
}
