//! Guards, and the registry: while a thread holds a guard, no value is freed that it may have seen.
//! It announces the guard by a participant of the registry, which also has the era of the process.

use super::barrier::{self, SeqCst};
use crate::sync::{
    Atomic, AtomicPtr,
    Ordering::{Acquire, Relaxed, Release},
};
use std::cell::Cell;
use std::marker::PhantomData;
use std::{array, iter, ptr};

/// While a guard is held, no value that was loaded under it is freed. It stays on its thread.
#[derive(Debug)]
pub(crate) struct Guard {
    participant: &'static Participant,
    /// The era in which the guard was made. Values that were born later are not covered.
    era: u64,
    /// Not `Send`: the thread that has the participant drops the guard.
    thread: PhantomData<*const ()>,
}

/// The error of a walk that has to begin again at the root, under another guard. Either the era of
/// its guard has ended, so the value that it finds next may be freed already; or another thread has
/// changed what the walk has seen.
#[derive(Debug)]
pub(crate) struct Retry;

/// How many guards a thread holds at once without joining the registry again: for the looks of a
/// `check_all`, for one of its charges, for a walk, and for a walk inside that one.
pub(super) const GUARDS: usize = 4;

/// The participants of a thread: one for the guard that it holds most of the time, and others for
/// guards beside that. They are handed on when the thread ends.
struct Own([Cell<Option<&'static Participant>>; GUARDS]);

impl Own {
    const fn new() -> Self {
        Self([const { Cell::new(None) }; GUARDS])
    }

    /// Returns a participant of this thread in which no guard is held.
    fn idle(&self) -> Option<&'static Participant> {
        let own = self.0.iter().map(|own| {
            let participant = own.get().unwrap_or_else(|| REGISTRY.join());
            own.set(Some(participant));
            participant
        });
        // Lazily: most threads need only the first.
        own.into_iter().find(|participant| participant.is_idle())
    }
}

impl Drop for Own {
    fn drop(&mut self) {
        set_mine([None; GUARDS]);
        self.0.iter().filter_map(Cell::take).for_each(Participant::leave);
    }
}

/// Stands for a participant that the thread does not have yet. It is never idle, so a check makes
/// one comparison, not two.
#[cfg(not(tollgate_loom))]
static MISSING: Participant = Participant::missing();

#[cfg(not(tollgate_loom))]
thread_local! {
    /// The thread's participants, where readers need no fence: each points to one that lives for
    /// ever. (Rust before 1.90 has no reference to a static with atomics in a constant.)
    static MINE: [Cell<*const Participant>; GUARDS] = const { [const { Cell::new(&raw const MISSING) }; GUARDS] };
    /// Apart from `MINE`: a thread-local with a destructor takes longer to read.
    static OWN: Own = const { Own::new() };
}

#[cfg(tollgate_loom)]
loom::thread_local! {
    static MINE: [Cell<Option<&'static Participant>>; GUARDS] = [const { Cell::new(None) }; GUARDS];
    static OWN: Own = Own::new();
}

/// Fast path: makes a guard in the thread's participant `nth`. `None` if it has none yet, or a
/// guard is held there.
#[inline(always)]
pub(super) fn pin_in(nth: usize) -> Option<Guard> {
    // SAFETY: `MINE` has pointers to `MISSING` and to participants that live for ever.
    #[cfg(not(tollgate_loom))]
    #[allow(unsafe_code)]
    let mine: &'static Participant = unsafe { &*MINE.with(|mine| mine[nth].get()) };
    #[cfg(tollgate_loom)]
    let mine = MINE.try_with(|mine| mine[nth].get()).ok().flatten()?;
    // An `if`, because the compiler makes two branches of `Option`'s methods.
    if !mine.is_idle() {
        return None;
    }
    let era = REGISTRY.era();
    mine.set(era);
    // ORDERING: *barrier*; the thread has participants here, so there is a heavy half.
    barrier::compiler_fence(SeqCst);
    Some(Guard::of(mine, era))
}

fn set_mine(participants: [Option<&'static Participant>; GUARDS]) {
    #[cfg(not(tollgate_loom))]
    let participants = participants.map(|own| std::ptr::from_ref(own.unwrap_or(&MISSING)));
    // An ending thread may have dropped them.
    let _ = MINE.try_with(|mine| mine.iter().zip(participants).for_each(|(mine, own)| mine.set(own)));
}

/// Makes a guard for this thread.
///
/// Wait-free, except for the first guards of a thread, and for a fifth beside four others. Those
/// join the registry, which is lock-free, and allocate if no participant is free.
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
    // Fails while the thread ends.
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
    // Left now, since no code will do it later. No thread takes it until the guard is dropped.
    participant.leave();
    guard
}

impl Guard {
    #[inline(always)]
    fn of(participant: &'static Participant, era: u64) -> Self {
        Self { participant, era, thread: PhantomData }
    }

    /// Announces that a guard is made in the present era.
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

    /// Returns the era in which the guard was made.
    #[inline(always)]
    pub(super) fn era(&self) -> u64 {
        self.era
    }

    /// Returns whether that era has ended.
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
