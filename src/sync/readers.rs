//! Who reads, and what waits for them: reclamation by epochs whose readers run no fence and no locked instruction.
//!
//! A guard of crossbeam-epoch costs a locked instruction, which is a fifth of a check. So a thread has a *place* of its
//! own instead, in which it says that it holds guards, and since when. A value that was unlinked waits in *limbo* until no place
//! holds a guard that may have seen it. Then it goes to crossbeam-epoch, which frees it when no guard of its own is left:
//! those are held by threads that have no place, for there is no `membarrier` (see [`super::barrier`]), or the thread is
//! ending, or it holds very many guards. So each of the two kinds of guards protects, and neither knows of the other.
//!
//! # State
//!
//! ```text
//! age:            grows by one with each value that is retired, and where everybody is to look after limbo
//! place.state:    (age, n): n guards are held; the first of them was made in this age, or a later one
//!                 (a, 0) -> (age, 1)       a guard is made; then `light`
//!                 (a, 1) -> (age, 1)       it is renewed; then `light`
//!                 (a, n) -> (a, n + 1)     another one
//!                 (a, n) -> (a, n - 1)     one is dropped
//! place.taken:    FREE -> TAKEN            by a thread
//!                 TAKEN -> FREE, LEFT      by the same, when it ends: without guards, with some
//!                 LEFT -> TAKEN            by another, when they are dropped; the first makes no more of them here
//!                 LEFT -> TAKEN -> LEFT    by another that looked too early
//! a value:        linked -> unlinked -> in limbo, with the age that began with it -> crossbeam-epoch's -> freed
//! ```
//!
//! # Why nothing is freed under a guard
//!
//! Let a value be unlinked, and retired with age `a`. It leaves limbo after [`heavy`](super::barrier) and a look at all
//! places that shows no guards held since an age before `a`. Take any guard of a place:
//!
//! 1. It was made in age `a` or later. Its thread has read that age, which was written after the value was unlinked; so it
//!    finds the value unlinked.
//! 2. It was made before, and the look shows it: the value stays in limbo.
//! 3. It was made before, and the look shows the place as it was earlier. By the *barrier*, the guard's thread then reads
//!    links after the value was unlinked, and does not find it.
//! 4. It was made before, and the look shows the place as it was later. The guard is dropped, and what its thread has read
//!    under it was read before (edge *left*).
//!
//! A place that is not in the list yet, when its thread makes a guard, is case 3. A value reached from another that is
//! retired is in the hands of who has had a guard since before that; it was retired later, so it waits for the same guard.
//!
//! # Progress
//!
//! Making a guard and dropping it is wait-free, but for two cases: the first time, a thread gets a place, which is lock-free
//! and may allocate; and one thread is asked to look after limbo, with its first guard in an age, where upkeep has left
//! something and after every 64th age. It looks at what is in limbo, hands on up to [`MOST`] values and frees what the epochs
//! let go, of others' too; if anything is left, the next is asked, and if that may be done at once, everybody's next guard is
//! the first of an age. What waits for a thread that drops its guard and makes no other, and has not ended, waits for the next
//! value or for upkeep.
//!
//! One thread at a time sorts what is in limbo. If it stops there, nothing is freed any more; so it is if it stops with a
//! guard, and it has one.
//!
//! A thread that keeps a guard for good keeps all that is retired since. Limbo may be long then: it is not gone through again
//! while the oldest guard is the same.
//!
//! # Memory
//!
//! A place is 128 bytes. It is handed on when its thread has ended, and never freed: there are as many as there were threads
//! at once, and one more for each thread that has ended and forgot a guard. A value that waits takes 48 bytes besides. After
//! a fork, the places of threads that the child has not got stay as they were: if one held a guard, or sorted limbo, nothing is
//! freed there.
//!
//! # Orderings
//!
//! | edge | release side | acquire side | what becomes visible | loom test that fails if it is weakened |
//! |---|---|---|---|---|
//! | aged | `Readers::retire` | `light` in models, in use `Readers::pin_slowly`, `Guard::repin` | that what was retired before is unlinked | `retire_races_a_place_and_frees_nothing_under_its_guard` |
//! | known | | `Readers::pin_slowly`, `Guard::repin` | the same | none: it is for where `light` is no fence, and in models it is one |
//! | left | `Reader::tell` | `Readers::oldest` | all that was read under guards that are dropped | `retire_races_a_place_and_frees_nothing_under_its_guard`, `a_place_is_handed_on_with_all_that_was_read_there` |
//! | read there | `Reader::tell` | `Reader::is_taken_over` | to the next that has a place, what was read under guards that were dropped after it was left | none: it takes a reader, one that takes its place over and one that collects, held up three times, which is too much for a model |
//! | listed | `Readers::place` | `Readers::place`, `Readers::oldest` | the place itself | `places_are_handed_on_while_values_are_retired` |
//! | handed on | `Reader::is_taken_over` | `Reader::is_taken_over` | the state in which the last thread left it | `places_are_handed_on_while_values_are_retired` |
//! | left behind | `Reader::leave_for_good` | `Reader::is_taken_over` | the same, of the thread that had it | none: as of *known* |
//! | heard | `Readers::look_after`, `Readers::tell_all` | `Readers::is_asked`, `Readers::pin_slowly` | to one of the two what the other did before: that limbo is to be looked after, or that a guard is dropped | none: without it a value waits for the next that is retired, or for upkeep; the models retire few |
//! | limbo | `Limbo::push` | `Readers::sort_out` | what was retired, and that it is unlinked | `retire_races_retire_and_each_value_is_freed_once` |
//! | rest | `Readers::sort_out` | `Readers::sort_out` | the same, of what one thread leaves to the next | none: what it says, a fence between has said before, but not of a value's plain fields, which loom does not see |
//! | sorted | `Readers::sort_out` | `Readers::sort_out` | to the next that sorts, all that this one has left | none: without it, two sorters' stores might change places, which loom does not show where a compare-and-swap reads them |

use super::barrier::{heavy, is_there, light};
use crossbeam_epoch::Guard as Epoch;
#[cfg(tollgate_loom)]
use loom::sync::atomic::{
    AtomicBool, AtomicPtr, AtomicU8, AtomicU64,
    Ordering::{Acquire, Relaxed, Release, SeqCst},
    fence,
};
use std::marker::PhantomData;
use std::ptr;
#[cfg(not(tollgate_loom))]
use std::sync::atomic::{
    AtomicBool, AtomicPtr, AtomicU8, AtomicU64,
    Ordering::{Acquire, Relaxed, Release, SeqCst},
    fence,
};

/// How many guards are held: in the low bits of a state.
const GUARDS: u64 = (1 << 16) - 1;

/// An age, in the other bits: enough for a million a second for nine years.
const AGE: u64 = GUARDS + 1;

/// After so many ages limbo is looked after, also where upkeep does not: no more values than that wait for it.
const MANY: u64 = 64;

/// How many values leave limbo at once at the most: to free one may take as long as a check.
const MOST: usize = if cfg!(tollgate_loom) { 1 } else { 256 };

/// All places, and what waits for them.
#[derive(Debug)]
#[repr(align(128))]
pub(crate) struct Readers {
    pub(super) age: AtomicU64,
    pub(super) first: AtomicPtr<Reader>,
    pub(super) limbo: Limbo,
}

/// What waits, on cache lines of its own: everybody who makes a guard reads the others.
#[derive(Debug)]
#[repr(align(128))]
pub(crate) struct Limbo {
    /// The last one that came.
    pub(super) last: AtomicPtr<Retired>,
    /// What was looked at no more, for there was so much.
    pub(super) rest: AtomicPtr<Retired>,
    /// How many were handed on and are not freed yet.
    pub(super) queued: AtomicU64,
    /// Is the next one that comes to look after it?
    pub(super) is_due: AtomicBool,
    /// Does a thread do so now?
    pub(super) is_sorted: AtomicBool,
    /// All that was left the last time waits for a guard of this age, or an older one; 0 if that is not known.
    pub(super) awaited: AtomicU64,
}

/// The place of a thread that reads.
#[derive(Debug)]
#[repr(align(128))]
pub(crate) struct Reader {
    /// Written by the thread that has the place.
    state: AtomicU64,
    taken: AtomicU8,
    of: &'static Readers,
    /// The place before it in the list, or null; not changed once this one is in the list.
    next: AtomicPtr<Reader>,
}

/// A place that was left without a guard.
const FREE: u8 = 0;
const TAKEN: u8 = 1;
/// Its thread has ended, or is about to, and had guards when it left it. Free as soon as they are dropped.
const LEFT: u8 = 2;

/// A value that waits to be freed.
#[derive(Debug)]
pub(crate) struct Retired {
    value: *mut dyn Anything,
    /// The age that began when it was retired.
    age: u64,
    /// The next in limbo, or null; not changed while this one is in limbo.
    next: AtomicPtr<Retired>,
}

/// What can be dropped.
trait Anything {}

impl<T> Anything for T {}

/// While it is held, nothing is freed that was linked when it was made, or later. It stays on its thread, as a pointer does.
#[derive(Debug)]
pub struct Guard(Held, PhantomData<*const ()>);

#[derive(Debug)]
enum Held {
    /// Held in the place of its thread.
    Place(&'static Reader),
    Epoch(Epoch, &'static Readers),
}

#[allow(unsafe_code)]
impl Readers {
    /// Nobody reads, and nothing waits. (Loom's atomics are not made in constants, so models put it together themselves.)
    #[cfg(not(tollgate_loom))]
    pub(super) const fn new() -> Self {
        Self {
            age: AtomicU64::new(0),
            first: AtomicPtr::new(ptr::null_mut()),
            limbo: Limbo {
                last: AtomicPtr::new(ptr::null_mut()),
                rest: AtomicPtr::new(ptr::null_mut()),
                queued: AtomicU64::new(0),
                is_due: AtomicBool::new(false),
                is_sorted: AtomicBool::new(false),
                awaited: AtomicU64::new(0),
            },
        }
    }

    /// A guard for the thread that has this place, if it holds none and has held one in this age. (Both in one comparison.)
    #[inline(always)]
    pub(super) fn pin(&self, reader: &'static Reader) -> Option<Guard> {
        // ORDERING: relaxed; where it is the same, the thread has acquired it in `pin_slowly`, or its place came with it.
        let age = self.age.load(Relaxed);
        (reader.state() == age).then(|| reader.enter(age))
    }

    /// A guard for the thread that has this place, if there are not too many.
    pub(super) fn pin_slowly(&self, reader: &'static Reader) -> Option<Guard> {
        match reader.held() {
            0 => {
                // ORDERING: acquire side of *known*.
                Some(reader.enter(self.age.load(Acquire)))
            }
            GUARDS => None,
            _ => Some(reader.enter_again()),
        }
    }

    /// A place for a thread that has none.
    pub(super) fn place(&'static self) -> &'static Reader {
        // ORDERING: acquire side of *listed*.
        let mut at = self.first.load(Acquire);
        // SAFETY: null, or a place in the list, which is never freed.
        while let Some(reader) = unsafe { at.as_ref() } {
            if reader.is_taken_over() {
                return reader;
            }
            // ORDERING: relaxed; it came with the place.
            at = reader.next.load(Relaxed);
        }
        let reader = Box::leak(Box::new(Reader {
            state: AtomicU64::new(0),
            taken: AtomicU8::new(TAKEN),
            of: self,
            next: AtomicPtr::new(ptr::null_mut()),
        }));
        // ORDERING: relaxed; it is not looked at.
        let mut first = self.first.load(Relaxed);
        loop {
            // ORDERING: relaxed; the list tells of it.
            reader.next.store(first, Relaxed);
            let new = ptr::from_mut(reader);
            // ORDERING: release side of *listed*; relaxed where it is not.
            match self.first.compare_exchange_weak(first, new, Release, Relaxed) {
                Ok(_) => return reader,
                Err(found) => first = found,
            }
        }
    }

    /// Frees a value when no guard is left that may have seen it.
    ///
    /// # Safety
    ///
    /// It came from a box, any thread may drop it, no new guard can reach it, and it is retired once.
    pub(super) unsafe fn retire<T: Send + 'static>(&self, value: *mut T) {
        // ORDERING: release side of *aged*.
        let age = self.age.fetch_add(AGE, Release) + AGE;
        let next = AtomicPtr::new(ptr::null_mut());
        self.limbo.push(Box::into_raw(Box::new(Retired { value, age, next })));
        if age.is_multiple_of(MANY * AGE) {
            self.limbo.ask();
        }
    }

    /// Looks after limbo, with guards of the epochs from `pin`, and asks the next thread to do so if anything is left.
    pub(super) fn look_after(&'static self, pin: impl Fn() -> Epoch) {
        /// What the epochs are given they free two epochs later, if no guard of theirs is in the way.
        const EPOCHS: usize = 3;
        if !self.limbo.holds_any() {
            return;
        }
        let (oldest, queued) = (self.oldest(), self.limbo.queued());
        let has_passed = self.sort_out(&pin());
        if has_passed || queued > 0 {
            (0..EPOCHS).for_each(|_| pin().flush());
        }
        // (Where there are no places, the epochs look after themselves.)
        if self.limbo.holds_any() && is_there() {
            self.limbo.ask();
            // ORDERING: *heard*.
            fence(SeqCst);
            if has_passed || self.limbo.queued() < queued || self.oldest() > oldest {
                // There may be more to be done at once, and who was waited for may have been here before this asked.
                self.tell_all();
            }
        }
    }

    /// Lets everybody's next guard be the first of an age.
    fn tell_all(&self) {
        // ORDERING: release side of *heard*. (What those released that have added to it before stays released.)
        self.age.fetch_add(AGE, Release);
    }

    /// For a thread that makes no guard any more: others are to look after what may have waited for it.
    pub(super) fn hand_over(&self) {
        if self.limbo.holds_any() {
            self.limbo.ask();
            self.tell_all();
        }
    }

    /// Is it this thread, which has just made its first guard in an age, that is to look after limbo? Then no other.
    pub(super) fn is_asked(&self) -> bool {
        // ORDERING: *heard*.
        fence(SeqCst);
        // ORDERING: relaxed twice; a hint.
        self.limbo.is_due.load(Relaxed) && self.limbo.is_due.swap(false, Relaxed)
    }

    /// Hands on to `epoch` what no place has a guard for any more; is that anything? One thread at a time: the others have
    /// better things to do.
    pub(super) fn sort_out(&'static self, epoch: &Epoch) -> bool {
        // Who is seen to read reads: that takes no fence. And a look, where it is the same guard as the last time, for a
        // thread may stop for good, and limbo be long by then.
        let (limbo, seen) = (&self.limbo, self.oldest());
        // ORDERING: relaxed; a hint, which another thread may have written.
        if seen <= limbo.awaited.load(Relaxed) {
            return false;
        }
        // ORDERING: acquire side of *sorted*; relaxed where another thread sorts.
        if limbo.is_sorted.compare_exchange(false, true, Acquire, Relaxed).is_err() {
            return false;
        }
        // ORDERING: acquire side of *rest*.
        let mut values = limbo.rest.swap(ptr::null_mut(), Acquire);
        let is_new = values.is_null();
        if is_new {
            // ORDERING: acquire side of *limbo*.
            values = limbo.last.swap(ptr::null_mut(), Acquire);
        }
        let (mut passed, mut oldest, mut is_left) = (0, None, false);
        // SAFETY: null, or a value that was taken out of limbo by this call alone.
        while let Some(retired) = unsafe { values.as_ref() }.filter(|_| passed < MOST) {
            let waits = retired.age > seen || {
                let oldest = match oldest {
                    Some(oldest) => oldest,
                    None if heavy() => *oldest.insert(self.oldest()),
                    // The system has refused the fence, so nothing is known: for another time.
                    None => break,
                };
                retired.age > oldest
            };
            // ORDERING: relaxed; it came with the value.
            let next = retired.next.load(Relaxed);
            let this = std::mem::replace(&mut values, next);
            if waits {
                limbo.push(this);
                is_left = true;
            } else {
                passed += 1;
                // SAFETY: it came from a box, and is not in limbo any more.
                let value = unsafe { Box::from_raw(this) }.value;
                // SAFETY: as `retire` demands, and no guard of a place can reach it.
                unsafe { self.queue(value, epoch) };
            }
        }
        let is_all = values.is_null();
        if !is_all {
            // ORDERING: release side of *rest*.
            limbo.rest.store(values, Release);
        }
        // What comes is younger than any guard that was seen. (A thread that was slow to put its value here may have it wait for
        // one guard more than it must.)
        let awaited = if is_left && is_all && is_new { oldest.unwrap_or(seen).min(seen) } else { 0 };
        // ORDERING: relaxed, as above.
        limbo.awaited.store(awaited, Relaxed);
        // ORDERING: release side of *sorted*.
        limbo.is_sorted.store(false, Release);
        passed > 0
    }

    /// Has a value freed when no guard of the epochs is left that may have seen it.
    ///
    /// # Safety
    ///
    /// As of [`retire`](Self::retire); and no guard of a place has seen it.
    unsafe fn queue(&'static self, value: *mut dyn Anything, epoch: &Epoch) {
        // ORDERING: relaxed; a count.
        self.limbo.queued.fetch_add(1, Relaxed);
        let free = move || {
            // SAFETY: it came from a box, and nobody can reach it.
            drop(unsafe { Box::from_raw(value) });
            // ORDERING: relaxed; a count.
            self.limbo.queued.fetch_sub(1, Relaxed);
        };
        // SAFETY: any thread may do it, at any time from now on.
        unsafe { epoch.defer_unchecked(free) };
    }

    /// The age of the oldest guard of all places, or more than any.
    fn oldest(&self) -> u64 {
        let mut oldest = u64::MAX;
        // ORDERING: acquire side of *listed*.
        let mut at = self.first.load(Acquire);
        // SAFETY: null, or a place in the list, which is never freed.
        while let Some(reader) = unsafe { at.as_ref() } {
            // ORDERING: acquire side of *left*.
            let state = reader.state.load(Acquire);
            if state & GUARDS > 0 {
                oldest = oldest.min(state & !GUARDS);
            }
            // ORDERING: relaxed; it came with the place.
            at = reader.next.load(Relaxed);
        }
        oldest
    }
}

impl Limbo {
    /// Adds a value that nobody else has. (A pointer, for it may be freed before this returns.)
    #[allow(unsafe_code)]
    fn push(&self, new: *mut Retired) {
        // ORDERING: relaxed; it is not looked at.
        let mut last = self.last.load(Relaxed);
        loop {
            // SAFETY: from a box, and nobody else has it yet.
            let next = unsafe { &(*new).next };
            // ORDERING: relaxed; limbo tells of it.
            next.store(last, Relaxed);
            // ORDERING: release side of *limbo*; relaxed where it is not.
            match self.last.compare_exchange_weak(last, new, Release, Relaxed) {
                Ok(_) => return,
                Err(found) => last = found,
            }
        }
    }

    fn queued(&self) -> u64 {
        // ORDERING: relaxed; a count.
        self.queued.load(Relaxed)
    }

    /// Is anything not freed yet?
    pub(super) fn holds_any(&self) -> bool {
        // ORDERING: relaxed; who retires something looks after it.
        let is_there = |values: &AtomicPtr<Retired>| !values.load(Relaxed).is_null();
        is_there(&self.last) || is_there(&self.rest) || self.queued() > 0
    }

    /// Asks the next thread that makes its first guard in an age to look after it.
    fn ask(&self) {
        // ORDERING: relaxed; a hint.
        self.is_due.store(true, Relaxed);
    }
}

/// Models make new ones all the time.
#[cfg(tollgate_loom)]
impl Drop for Readers {
    fn drop(&mut self) {
        // ORDERING: relaxed twice; all threads are done.
        let mut at = self.first.load(Relaxed);
        while !at.is_null() {
            // SAFETY: it came from a box, and its thread is done.
            #[allow(unsafe_code)]
            let reader = unsafe { Box::from_raw(at) };
            at = reader.next.load(Relaxed);
        }
    }
}

impl Reader {
    #[inline(always)]
    fn state(&self) -> u64 {
        // ORDERING: relaxed; its own thread asks, and nobody else writes it.
        self.state.load(Relaxed)
    }

    #[inline(always)]
    fn tell(&self, state: u64) {
        // ORDERING: release side of *left* and *read there*, for guards that were dropped before, or are now.
        self.state.store(state, Release);
    }

    /// How many guards its thread holds.
    pub(super) fn held(&self) -> u64 {
        self.state() & GUARDS
    }

    /// The first guard, in this age.
    #[inline(always)]
    fn enter(&'static self, age: u64) -> Guard {
        self.begin(age);
        self.guard()
    }

    #[inline(always)]
    fn guard(&'static self) -> Guard {
        Guard(Held::Place(self), PhantomData)
    }

    /// One guard is held, since this age.
    #[inline(always)]
    fn begin(&self, age: u64) {
        self.tell(age + 1);
        light();
    }

    /// One more. What the first has said holds for it, too.
    fn enter_again(&'static self) -> Guard {
        self.tell(self.state() + 1);
        self.guard()
    }

    #[inline(always)]
    fn leave(&self) {
        self.tell(self.state() - 1);
    }

    /// Takes the place if nobody has it.
    fn is_taken_over(&self) -> bool {
        // ORDERING: relaxed; a look.
        let taken = self.taken.load(Relaxed);
        // ORDERING: acquire side of *handed on*: its state is no older than that. Relaxed where it is not.
        if taken == TAKEN || self.taken.compare_exchange(taken, TAKEN, Acquire, Relaxed).is_err() {
            return false;
        }
        // Only now: it may have been left by another thread since, with guards again.
        // ORDERING: acquire side of *read there*.
        let is_free = self.state.load(Acquire) & GUARDS == 0;
        if !is_free {
            // ORDERING: release side of *handed on*, for who has left it.
            self.taken.store(LEFT, Release);
        }
        is_free
    }

    /// Hands the place on, at once or when the last guard is dropped.
    pub(super) fn leave_for_good(&self) {
        let taken = if self.held() == 0 { FREE } else { LEFT };
        // ORDERING: release side of *left behind*.
        self.taken.store(taken, Release);
    }
}

impl Guard {
    /// A guard that needs no place.
    pub(super) fn of_epoch(epoch: Epoch, readers: &'static Readers) -> Self {
        Self(Held::Epoch(epoch, readers), PhantomData)
    }

    /// Ends, and begins again; not if the thread holds others. (It is never without a guard between, or its place might be
    /// handed on.)
    pub(crate) fn repin(&mut self) {
        match &mut self.0 {
            Held::Place(reader) if reader.held() == 1 => {
                // ORDERING: acquire side of *known*.
                reader.begin(reader.of.age.load(Acquire));
            }
            Held::Place(_) => {}
            Held::Epoch(epoch, _) => epoch.repin(),
        }
    }

    /// See [`Readers::retire`].
    ///
    /// # Safety
    ///
    /// As there.
    #[allow(unsafe_code)]
    pub(super) unsafe fn retire<T: Send + 'static>(&self, value: *mut T) {
        match &self.0 {
            Held::Epoch(epoch, readers) if !is_there() => {
                // SAFETY: the caller's; and there are no places.
                unsafe { readers.queue(value, epoch) };
                // Others can free it then.
                epoch.flush();
            }
            // SAFETY: the caller's.
            Held::Place(Reader { of: readers, .. }) | Held::Epoch(_, readers) => unsafe {
                readers.retire(value)
            },
        }
    }
}

impl Drop for Guard {
    #[inline(always)]
    fn drop(&mut self) {
        if let Held::Place(reader) = &self.0 {
            reader.leave();
        }
    }
}

#[cfg(all(test, not(tollgate_loom)))]
mod tests {
    use super::super::link::Link;
    use super::*;
    use crossbeam_epoch::Collector;
    use std::sync::Arc;
    use std::sync::atomic::AtomicUsize;
    use std::thread;
    use std::time::{Duration, Instant};

    fn readers() -> &'static Readers {
        Box::leak(Box::new(Readers::new()))
    }

    fn pin(readers: &Readers, reader: &'static Reader) -> Guard {
        readers.pin(reader).or_else(|| readers.pin_slowly(reader)).unwrap()
    }

    #[allow(unsafe_code)]
    fn retire(readers: &Readers, value: &Arc<()>) {
        // SAFETY: from a box, and nobody else has it.
        unsafe { readers.retire(Box::into_raw(Box::new(value.clone()))) };
    }

    /// Frees what may be freed, at once.
    #[allow(unsafe_code)]
    fn sort_out(readers: &'static Readers) -> bool {
        // SAFETY: no guard of an epoch is used here.
        readers.sort_out(unsafe { crossbeam_epoch::unprotected() })
    }

    #[test]
    fn a_value_waits_for_the_guards_that_were_there_before_it_was_retired_and_no_others() {
        let (readers, value) = (readers(), Arc::new(()));
        let [early, late] = [(); 2].map(|()| readers.place());
        let (first, second) = (pin(readers, early), pin(readers, early));
        retire(readers, &value);
        let _late = pin(readers, late);
        assert!(!sort_out(readers));
        // In whatever order they end.
        drop(first);
        let third = pin(readers, early);
        drop(second);
        assert!(!sort_out(readers));
        assert_eq!(Arc::strong_count(&value), 2);
        drop(third);
        assert!(sort_out(readers));
        assert_eq!(Arc::strong_count(&value), 1);
        assert!(!sort_out(readers));
    }

    #[test]
    fn a_guard_that_is_renewed_is_a_new_one() {
        let (readers, value) = (readers(), Arc::new(()));
        let reader = readers.place();
        let mut guard = pin(readers, reader);
        retire(readers, &value);
        assert!(!sort_out(readers));
        guard.repin();
        assert_eq!(reader.held(), 1);
        assert!(sort_out(readers));
        drop(guard);
        assert_eq!(reader.held(), 0);
    }

    #[test]
    fn a_place_is_handed_on_if_no_guard_is_held() {
        let readers = readers();
        let [first, second] = [(); 2].map(|()| readers.place());
        assert!(!ptr::eq(first, second));
        let guard = pin(readers, first);
        first.leave_for_good();
        second.leave_for_good();
        assert!(ptr::eq(readers.place(), second));
        assert!(!ptr::eq(readers.place(), first));
        drop(guard);
    }

    #[test]
    fn a_place_has_room_for_many_guards_and_says_when_there_are_too_many() {
        let readers = readers();
        let reader = readers.place();
        let mut guards: Vec<_> = (0..GUARDS).map(|_| pin(readers, reader)).collect();
        assert_eq!(reader.held(), GUARDS);
        assert!(readers.pin(reader).is_none() && readers.pin_slowly(reader).is_none());
        guards.pop();
        guards.push(pin(readers, reader));
        drop(guards);
        assert_eq!(reader.held(), 0);
    }

    /// Looks after limbo as a thread does that is asked, with epochs of its own.
    fn look_after(readers: &'static Readers, collector: &Collector) {
        let participant = collector.register();
        readers.look_after(|| participant.pin());
    }

    /// Or limbo would grow where there is no upkeep; and every time would be too often.
    #[test]
    fn one_thread_is_asked_to_look_after_limbo_after_many_values() {
        let (readers, value, collector) = (readers(), Arc::new(()), Collector::new());
        for _ in 0..3 {
            for n in 1..=MANY {
                assert!(!readers.is_asked(), "before value {n}");
                retire(readers, &value);
            }
            assert!(readers.is_asked() && !readers.is_asked());
        }
        look_after(readers, &collector);
        assert_eq!((Arc::strong_count(&value), readers.limbo.holds_any()), (1, false));
        assert!(!readers.is_asked());
    }

    /// It would wait for the 64th value, which may never come.
    #[test]
    fn what_has_to_wait_is_looked_after_by_the_next_thread() {
        let (readers, value, collector) = (readers(), Arc::new(()), Collector::new());
        let reader = readers.place();
        let guard = pin(readers, reader);
        retire(readers, &value);
        for _ in 0..3 {
            look_after(readers, &collector);
            assert!(readers.is_asked());
        }
        drop(guard);
        // The one that was waited for has not been here in this age, so it hears of it.
        assert!(readers.pin(reader).is_none());
        look_after(readers, &collector);
        assert_eq!((Arc::strong_count(&value), readers.is_asked()), (1, false));
    }

    #[test]
    fn what_has_waited_for_a_thread_that_ends_is_looked_after_by_others() {
        let (readers, value, collector) = (readers(), Arc::new(()), Collector::new());
        let [ending, other] = [(); 2].map(|()| readers.place());
        let guard = pin(readers, ending);
        retire(readers, &value);
        drop(pin(readers, other));
        look_after(readers, &collector);
        assert!(readers.is_asked(), "and that was in vain");
        drop(guard);
        // The other one has been here in this age.
        drop(readers.pin(other).unwrap());
        ending.leave_for_good();
        readers.hand_over();
        assert!(readers.pin(other).is_none() && readers.is_asked());
        look_after(readers, &collector);
        assert_eq!((Arc::strong_count(&value), readers.limbo.holds_any()), (1, false));
    }

    /// Also where the epochs are held up by somebody else.
    #[test]
    fn what_was_handed_on_is_looked_after_until_it_is_freed() {
        let (readers, value, collector) = (readers(), Arc::new(()), Collector::new());
        let other = collector.register();
        let foreign = other.pin();
        retire(readers, &value);
        for _ in 0..3 {
            look_after(readers, &collector);
            assert_eq!((Arc::strong_count(&value), readers.is_asked()), (2, true));
        }
        drop(foreign);
        (0..3).for_each(|_| look_after(readers, &collector));
        assert_eq!((Arc::strong_count(&value), readers.limbo.holds_any()), (1, false));
    }

    /// And everybody is told that there is more, though nothing else is retired.
    #[test]
    fn a_long_limbo_is_freed_in_parts() {
        let (readers, value, collector) = (readers(), Arc::new(()), Collector::new());
        let reader = readers.place();
        let many = 4 * MOST + 10;
        (0..many).for_each(|_| retire(readers, &value));
        let mut left = many;
        while readers.limbo.holds_any() {
            let Some(guard) = readers.pin(reader).or_else(|| readers.pin_slowly(reader)) else {
                unreachable!()
            };
            look_after(readers, &collector);
            drop(guard);
            let now = Arc::strong_count(&value) - 1;
            assert!(now < left && left - now <= 2 * MOST, "{left}, then {now}");
            assert_eq!(readers.pin(reader).is_none(), readers.limbo.holds_any());
            left = now;
        }
        assert_eq!(left, 0);
    }

    /// Where the thread's last guard is dropped after it has left its place, as thread-locals may have it.
    #[test]
    fn a_place_that_was_left_with_a_guard_is_handed_on_when_that_is_dropped() {
        let readers = readers();
        let reader = readers.place();
        let mut guard = pin(readers, reader);
        reader.leave_for_good();
        guard.repin();
        let other = readers.place();
        assert!(!ptr::eq(other, reader));
        drop(guard);
        assert!(ptr::eq(readers.place(), reader));
        assert_eq!(reader.held(), 0);
    }

    /// What is known of a value from outside, when it is freed.
    #[derive(Debug)]
    struct Value {
        /// 7 as long as it is there.
        canary: AtomicUsize,
        next: Link<Value>,
        freed: Arc<AtomicUsize>,
    }

    impl Value {
        fn new(freed: &Arc<AtomicUsize>) -> Self {
            Self { canary: AtomicUsize::new(7), next: Link::null(), freed: freed.clone() }
        }
    }

    impl Drop for Value {
        fn drop(&mut self) {
            self.canary.store(0, SeqCst);
            self.freed.fetch_add(1, SeqCst);
        }
    }

    /// A value that is freed under a guard shows it: by its canary, or the sanitizer does.
    #[test]
    fn readers_never_see_what_was_freed() {
        if !is_there() {
            return println!("there are no places where there is no barrier");
        }
        let (readers, freed) = (readers(), Arc::new(AtomicUsize::new(0)));
        let root = Link::to(Value::new(&freed));
        let end = Instant::now() + Duration::from_millis(300);
        let (replaced, looks) = thread::scope(|scope| {
            let looks = [(); 2].map(|()| {
                scope.spawn(|| {
                    let (reader, mut looks) = (readers.place(), 0_u64);
                    while Instant::now() < end {
                        for _ in 0..1_000 {
                            let guard = pin(readers, reader);
                            assert_eq!(root.load(&guard).unwrap().canary.load(SeqCst), 7);
                            looks += 1;
                        }
                    }
                    looks
                })
            });
            let (reader, mut replaced) = (readers.place(), 0);
            while Instant::now() < end {
                let guard = pin(readers, reader);
                let value = root.load(&guard).unwrap();
                let (next, _) = value.next.install(Value::new(&freed), &guard);
                assert!(root.advance(value, next, &guard));
                drop(guard);
                replaced += 1;
                sort_out(readers);
            }
            (replaced, looks.map(|looks| looks.join().unwrap()))
        });
        while sort_out(readers) {}
        assert_eq!(freed.load(SeqCst), replaced);
        assert!(looks.iter().all(|&looks| looks > 1_000) && replaced > 100, "{looks:?}, {replaced}");
    }

    /// It may be long, where a thread has stopped for good.
    #[test]
    fn limbo_is_not_gone_through_again_while_the_same_guard_is_held() {
        let (readers, value) = (readers(), Arc::new(()));
        let [stopped, other] = [(); 2].map(|()| readers.place());
        let guard = pin(readers, stopped);
        (0..3).for_each(|_| retire(readers, &value));
        assert!(!sort_out(readers));
        let order = || readers.limbo.last.load(Relaxed);
        let first = order();
        for _ in 0..3 {
            drop(pin(readers, other));
            assert!(!sort_out(readers));
            // Going through it turns it around.
            assert_eq!(order(), first);
        }
        drop(guard);
        assert!(sort_out(readers));
        assert_eq!(Arc::strong_count(&value), 1);
    }
}
