//! Guards: while a thread holds one, nothing is freed that it may have seen.

use super::barrier;
use super::participant::{Participant, REGISTRY};
use std::cell::Cell;
use std::marker::PhantomData;

/// While it is held, nothing is freed that was loaded under it. It stays on its thread.
#[derive(Debug)]
pub struct Guard {
    participant: &'static Participant,
    /// The latest age that was announced for it: values that were born later are not covered.
    age: Cell<u64>,
    /// It is dropped by the thread that has the participant.
    thread: PhantomData<*const ()>,
}

/// The participants of a thread: one for the guard that it holds most of the time, and one for a guard beside
/// that. They are handed on when the thread ends.
struct Own([Cell<Option<&'static Participant>>; 2]);

impl Own {
    const fn new() -> Self {
        Self([const { Cell::new(None) }; 2])
    }

    /// A participant of this thread in which no guard is held.
    fn idle(&self) -> Option<&'static Participant> {
        let own = self.0.iter().map(|own| {
            let participant = own.get().unwrap_or_else(|| REGISTRY.join());
            own.set(Some(participant));
            participant
        });
        // Lazily: most threads need one.
        own.into_iter().find(|participant| participant.is_idle())
    }
}

impl Drop for Own {
    fn drop(&mut self) {
        set_mine([None; 2]);
        self.0.iter().filter_map(Cell::take).for_each(Participant::leave);
    }
}

/// Stands for the participants that a thread has not got: one that is never idle, so that a check asks one
/// thing and not two.
#[cfg(not(tollgate_loom))]
static MISSING: Participant = Participant::missing();

#[cfg(not(tollgate_loom))]
thread_local! {
    /// The thread's participants, where readers need no fence.
    static MINE: [Cell<&'static Participant>; 2] = const { [const { Cell::new(&MISSING) }; 2] };
    /// Apart from `MINE`: what is dropped with its thread takes longer to read.
    static OWN: Own = const { Own::new() };
}

#[cfg(tollgate_loom)]
loom::thread_local! {
    static MINE: [Cell<Option<&'static Participant>>; 2] = [const { Cell::new(None) }; 2];
    static OWN: Own = Own::new();
}

/// A guard in the first of the thread's participants, or in the one beside it, if none is held there.
#[inline(always)]
pub(super) fn pin_in(nth: usize) -> Option<Guard> {
    #[cfg(not(tollgate_loom))]
    let mine = MINE.with(|mine| mine[nth].get());
    #[cfg(tollgate_loom)]
    let mine = MINE.try_with(|mine| mine[nth].get()).ok().flatten()?;
    // Written as a branch: the compiler makes two of `Option`'s methods.
    if mine.is_idle() { Some(Guard::begun_at_once(mine)) } else { None }
}

fn set_mine(participants: [Option<&'static Participant>; 2]) {
    #[cfg(not(tollgate_loom))]
    let participants = participants.map(|own| own.unwrap_or(&MISSING));
    // A thread that is ending may have dropped them.
    let _ = MINE.try_with(|mine| mine.iter().zip(participants).for_each(|(mine, own)| mine.set(own)));
}

/// A guard for this thread.
///
/// Wait-free, but for the first guards of a thread, and for a third one beside two others: those join the
/// registry, which is lock-free, and allocates if no thread has left a participant.
#[inline(always)]
pub(crate) fn pin() -> Guard {
    pin_in(0).unwrap_or_else(pin_slowly)
}

#[cold]
#[inline(never)]
fn pin_slowly() -> Guard {
    if let Some(guard) = pin_in(1) {
        return guard;
    }
    // There is none while the thread ends.
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
    // At once, for nobody will later: until the guard is dropped no thread takes it.
    participant.leave();
    guard
}

impl Guard {
    #[inline(always)]
    fn of(participant: &'static Participant, age: u64) -> Self {
        Self { participant, age: Cell::new(age), thread: PhantomData }
    }

    /// Where readers need no fence.
    #[inline(always)]
    fn begun_at_once(participant: &'static Participant) -> Self {
        let age = REGISTRY.age();
        participant.begin(age);
        barrier::light_where_heavy_is();
        Self::of(participant, age)
    }

    fn begun(participant: &'static Participant) -> Self {
        let age = REGISTRY.age();
        participant.begin(age);
        barrier::light();
        Self::of(participant, age)
    }

    /// Where it is announced.
    #[cfg(tollgate_loom)]
    pub(super) fn participant(&self) -> &'static Participant {
        self.participant
    }

    /// The latest age that was announced for it.
    #[inline(always)]
    pub(super) fn age(&self) -> u64 {
        self.age.get()
    }

    /// Has an age ended since the latest that was announced for it?
    #[inline(always)]
    pub(crate) fn is_old(&self) -> bool {
        REGISTRY.age_now() != self.age()
    }

    /// Announces the present age, until `load` was called in an age that did not end meanwhile; what it
    /// returned then. Each turn of the loop means that another thread has begun a collection.
    ///
    /// It takes what it needs of the guard and not a reference to it: so the guard of a check stays in
    /// registers.
    #[inline(always)]
    pub(super) fn renewed<T>(&self, load: impl Fn() -> T) -> T {
        let (loaded, age) = extended(self.participant, load);
        self.age.set(age);
        loaded
    }

    /// Ends, and begins again in the present age.
    pub(crate) fn repin(&mut self) {
        let age = REGISTRY.age();
        self.participant.begin(age);
        barrier::light();
        self.age.set(age);
    }
}

#[cold]
#[inline(never)]
fn extended<T>(participant: &Participant, load: impl Fn() -> T) -> (T, u64) {
    loop {
        let age = REGISTRY.age();
        participant.extend(age);
        barrier::light();
        let loaded = load();
        if REGISTRY.age_now() == age {
            return (loaded, age);
        }
    }
}

impl Drop for Guard {
    #[inline(always)]
    fn drop(&mut self) {
        self.participant.end();
    }
}
