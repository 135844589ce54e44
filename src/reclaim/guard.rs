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

/// Hands the thread's participant on when the thread ends.
struct Leave(Cell<Option<&'static Participant>>);

impl Drop for Leave {
    fn drop(&mut self) {
        set_mine(None);
        if let Some(participant) = self.0.take() {
            participant.leave();
        }
    }
}

#[cfg(not(tollgate_loom))]
thread_local! {
    /// The thread's participant, where readers need no fence.
    static MINE: Cell<Option<&'static Participant>> = const { Cell::new(None) };
    /// The thread's participant. Apart from `MINE`: what is dropped with its thread takes longer to read.
    static LEAVE: Leave = const { Leave(Cell::new(None)) };
}

#[cfg(tollgate_loom)]
loom::thread_local! {
    static MINE: Cell<Option<&'static Participant>> = Cell::new(None);
    static LEAVE: Leave = Leave(Cell::new(None));
}

#[inline(always)]
fn mine() -> Option<&'static Participant> {
    #[cfg(not(tollgate_loom))]
    return MINE.get();

    #[cfg(tollgate_loom)]
    return MINE.try_with(Cell::get).ok().flatten();
}

fn set_mine(participant: Option<&'static Participant>) {
    // A thread that is ending may have dropped it.
    let _ = MINE.try_with(|mine| mine.set(participant));
}

/// A guard for this thread.
///
/// Wait-free, but for the first guard of a thread, which joins the registry: that is lock-free, and
/// allocates if no thread has left a participant.
#[inline(always)]
pub(crate) fn pin() -> Guard {
    pin_at_once().unwrap_or_else(pin_slowly)
}

/// The same, for a thread that has a participant, holds no guard, and needs no fence.
#[inline(always)]
pub(crate) fn pin_at_once() -> Option<Guard> {
    let participant = mine().filter(|mine| mine.held() == 0)?;
    let age = REGISTRY.age();
    participant.begin(age);
    barrier::light_where_heavy_is();
    Some(Guard::of(participant, age))
}

#[cold]
#[inline(never)]
fn pin_slowly() -> Guard {
    // Fails while the thread ends.
    let participant = LEAVE.try_with(|leave| {
        leave.0.get().unwrap_or_else(|| {
            let joined = REGISTRY.join();
            leave.0.set(Some(joined));
            if barrier::is_there() {
                set_mine(Some(joined));
            }
            joined
        })
    });
    match participant {
        Ok(participant) if participant.held() == 0 => Guard::first(participant),
        Ok(participant) if !participant.is_full() => {
            participant.begin_another();
            let age = REGISTRY.age();
            participant.extend(age);
            Guard::of(participant, age)
        }
        _ => {
            let participant = REGISTRY.join();
            let guard = Guard::first(participant);
            // At once, for nobody will: it is taken again when the guard is dropped.
            participant.leave();
            guard
        }
    }
}

impl Guard {
    #[inline(always)]
    fn of(participant: &'static Participant, age: u64) -> Self {
        Self { participant, age: Cell::new(age), thread: PhantomData }
    }

    /// The only guard of this participant.
    fn first(participant: &'static Participant) -> Self {
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

    /// Ends, and begins again in the present age, if the thread holds no other guard.
    pub(crate) fn repin(&mut self) {
        if self.participant.held() == 1 {
            let age = REGISTRY.age();
            self.participant.begin(age);
            barrier::light();
            self.age.set(age);
        }
    }
}

#[cold]
#[inline(never)]
fn extended<T>(participant: &Participant, load: impl Fn() -> T) -> (T, u64) {
    loop {
        let age = REGISTRY.age();
        participant.extend(age);
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
