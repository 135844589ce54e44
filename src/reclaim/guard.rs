//! Guards: while a thread holds one, no value is freed that it may have seen.

use super::barrier;
use super::participant::{IDLE, Participant, REGISTRY};
use std::cell::Cell;
use std::marker::PhantomData;

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
    /// The thread's participants, where readers need no fence.
    static MINE: [Cell<&'static Participant>; GUARDS] = const { [const { Cell::new(&MISSING) }; GUARDS] };
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
    #[cfg(not(tollgate_loom))]
    let mine = MINE.with(|mine| mine[nth].get());
    #[cfg(tollgate_loom)]
    let mine = MINE.try_with(|mine| mine[nth].get()).ok().flatten()?;
    // An `if`, because the compiler makes two branches of `Option`'s methods.
    if mine.is_idle() { Some(Guard::begun_at_once(mine)) } else { None }
}

fn set_mine(participants: [Option<&'static Participant>; GUARDS]) {
    #[cfg(not(tollgate_loom))]
    let participants = participants.map(|own| own.unwrap_or(&MISSING));
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

    /// Makes a guard where readers need no fence.
    #[inline(always)]
    fn begun_at_once(participant: &'static Participant) -> Self {
        let era = REGISTRY.era();
        participant.set(era);
        barrier::light_where_heavy_is();
        Self::of(participant, era)
    }

    fn begun(participant: &'static Participant) -> Self {
        Self::of(participant, announced(participant))
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

/// Announces that a guard is made in the present era, and returns that era.
fn announced(participant: &Participant) -> u64 {
    let era = REGISTRY.era();
    participant.set(era);
    barrier::light();
    era
}

impl Drop for Guard {
    #[inline(always)]
    fn drop(&mut self) {
        self.participant.set(IDLE);
    }
}
