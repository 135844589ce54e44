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
//! age:            grows by one with each value that is retired
//! place.state:    (age, n): n guards are held; the first of them was made in this age, or a later one
//!                 (a, 0) -> (age, 1)       a guard is made; then `light`
//!                 (a, n) -> (a, n + 1)     another one
//!                 (a, n) -> (a, n - 1)     one is dropped
//! place.taken:    false <-> true           by the thread that has the place
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
//! Making a guard and dropping it is wait-free; the first time, a thread gets a place, which is lock-free and may allocate.
//! Limbo is looked after by upkeep; where that has left something, and after every 64th value, also by the next thread that
//! makes its first guard in an age. Whoever does it takes all that is in limbo and puts back what still waits; meanwhile
//! nobody else does. A thread that stops there keeps everything from being freed; so does one that stops with a guard, and it
//! has one.
//!
//! # Memory
//!
//! A place is 128 bytes. It is handed on when its thread ends, and never freed: there are as many as there were threads at
//! once. A thread that ends while it holds guards (they were forgotten) leaves its place as it is, for good.
//!
//! # Orderings
//!
//! | edge | release side | acquire side | what becomes visible | loom test that fails if it is weakened |
//! |---|---|---|---|---|
//! | aged | `Readers::retire` | `light` in models, in use `Readers::pin_slowly` | that what was retired before is unlinked | `retire_races_a_place_and_frees_nothing_under_its_guard` |
//! | known | | `Readers::pin_slowly` | the same | none: it is for where `light` is no fence, and in models it is one |
//! | left | `Reader::tell` | `Readers::oldest` | all that was read under guards that are dropped | `retire_races_a_place_and_frees_nothing_under_its_guard` |
//! | listed | `Readers::place` | `Readers::place`, `Readers::oldest` | the place itself | `places_are_handed_on_while_values_are_retired` |
//! | handed on | `Reader::leave_for_good` | `Readers::place` | the state in which the last thread left it | `places_are_handed_on_while_values_are_retired` |
//! | limbo | `Readers::push` | `Readers::sort_out` | what was retired, and that it is unlinked | `retire_races_retire_and_each_value_is_freed_once` |

use super::barrier::{heavy, light};
use crossbeam_epoch::Guard as Epoch;
#[cfg(tollgate_loom)]
use loom::sync::atomic::{
    AtomicBool, AtomicPtr, AtomicU64,
    Ordering::{Acquire, Relaxed, Release},
};
use std::ptr;
#[cfg(not(tollgate_loom))]
use std::sync::atomic::{
    AtomicBool, AtomicPtr, AtomicU64,
    Ordering::{Acquire, Relaxed, Release},
};

/// How many guards are held: in the low bits of a state.
const GUARDS: u64 = (1 << 16) - 1;

/// An age, in the other bits: enough for a million a second for nine years.
const AGE: u64 = GUARDS + 1;

/// After so many values limbo is looked after, also where upkeep does not.
const MANY: u64 = 64;

/// All places, and what waits for them.
#[derive(Debug)]
#[repr(align(128))]
pub(crate) struct Readers {
    pub(super) age: AtomicU64,
    pub(super) first: AtomicPtr<Reader>,
    pub(super) limbo: AtomicPtr<Retired>,
    /// Is the next one that comes to look after limbo?
    pub(super) is_due: AtomicBool,
    /// Does a thread do so now?
    pub(super) is_sorted: AtomicBool,
    /// All that was left in limbo the last time waits for a guard of this age, or an older one.
    pub(super) awaited: AtomicU64,
}

/// The place of a thread that reads.
#[derive(Debug)]
#[repr(align(128))]
pub(crate) struct Reader {
    /// Written by the thread that has the place.
    state: AtomicU64,
    taken: AtomicBool,
    of: &'static Readers,
    /// The place before it in the list, or null; not changed once this one is in the list.
    next: AtomicPtr<Reader>,
}

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

/// While it is held, nothing is freed that was linked when it was made, or later. It stays on its thread.
#[derive(Debug)]
pub struct Guard(Held);

#[derive(Debug)]
enum Held {
    /// Held in the place of its thread.
    Place(&'static Reader),
    Epoch(Epoch, &'static Readers),
}

#[allow(unsafe_code)]
impl Readers {
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
            // ORDERING: acquire side of *handed on*; relaxed where it is not.
            if reader.taken.compare_exchange(false, true, Acquire, Relaxed).is_ok() {
                return reader;
            }
            // ORDERING: relaxed; it came with the place.
            at = reader.next.load(Relaxed);
        }
        let reader = Box::leak(Box::new(Reader {
            state: AtomicU64::new(0),
            taken: AtomicBool::new(true),
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
    pub(super) unsafe fn retire<T: 'static>(&self, value: *mut T) {
        // ORDERING: release side of *aged*.
        let age = self.age.fetch_add(AGE, Release) + AGE;
        if age.is_multiple_of(MANY * AGE) {
            self.ask();
        }
        let next = AtomicPtr::new(ptr::null_mut());
        self.push(Box::new(Retired { value, age, next }));
    }

    fn push(&self, retired: Box<Retired>) {
        let retired = Box::leak(retired);
        // ORDERING: relaxed; it is not looked at.
        let mut first = self.limbo.load(Relaxed);
        loop {
            // ORDERING: relaxed; limbo tells of it.
            retired.next.store(first, Relaxed);
            let new = ptr::from_mut(retired);
            // ORDERING: release side of *limbo*; relaxed where it is not.
            match self.limbo.compare_exchange_weak(first, new, Release, Relaxed) {
                Ok(_) => return,
                Err(found) => first = found,
            }
        }
    }

    /// Is it this thread that is to look after limbo? Then no other.
    pub(super) fn is_asked(&self) -> bool {
        // ORDERING: relaxed twice; a hint.
        self.is_due.load(Relaxed) && self.is_due.swap(false, Relaxed)
    }

    /// Asks the next thread that makes its first guard in an age to look after limbo.
    fn ask(&self) {
        // ORDERING: relaxed; a hint.
        self.is_due.store(true, Relaxed);
    }

    /// The same, if there is anything in limbo.
    pub(super) fn ask_for_the_rest(&self) {
        // ORDERING: relaxed; a hint.
        if !self.limbo.load(Relaxed).is_null() {
            self.ask();
        }
    }

    /// Hands on to `epoch` what no place has a guard for any more; is that anything? One thread at a time: the others have
    /// better things to do.
    pub(super) fn sort_out(&self, epoch: &Epoch) -> bool {
        // ORDERING: relaxed; who retires something looks after it.
        if self.limbo.load(Relaxed).is_null() {
            return false;
        }
        // ORDERING: relaxed twice; it keeps threads apart and tells nothing: what is in limbo came with limbo.
        if self.is_sorted.compare_exchange(false, true, Relaxed, Relaxed).is_err() {
            return false;
        }
        let has_passed = self.sort_out_alone(epoch);
        // ORDERING: relaxed, as above.
        self.is_sorted.store(false, Relaxed);
        has_passed
    }

    fn sort_out_alone(&self, epoch: &Epoch) -> bool {
        // Who is seen to read reads: that takes no fence. And a look, where it is the same guard as the last time, for a
        // thread may stop for good, and limbo be long by then.
        let seen = self.oldest();
        // ORDERING: relaxed; a hint, which another thread may have written.
        if seen <= self.awaited.load(Relaxed) {
            return false;
        }
        // ORDERING: acquire side of *limbo*.
        let mut rest = self.limbo.swap(ptr::null_mut(), Acquire);
        let (mut oldest, mut has_passed, mut is_left) = (None, false, false);
        while !rest.is_null() {
            // SAFETY: it came from a box, and was taken out of limbo by this call alone.
            let retired = unsafe { Box::from_raw(rest) };
            // ORDERING: relaxed; it came with the value.
            rest = retired.next.load(Relaxed);
            let waits = retired.age > seen
                || retired.age > *oldest.get_or_insert_with(|| self.oldest_after_a_fence());
            if waits {
                self.push(retired);
                is_left = true;
                continue;
            }
            has_passed = true;
            // SAFETY: it came from a box, and nobody can reach it.
            let free = move || drop(unsafe { Box::from_raw(retired.value) });
            // SAFETY: as `retire` demands: any thread may do it, at any time from now on, and no guard of a place can reach it.
            unsafe { epoch.defer_unchecked(free) };
        }
        // All that is left began after it, and so does all that comes.
        let awaited = if is_left { oldest.unwrap_or(seen).min(seen) } else { 0 };
        // ORDERING: relaxed, as above.
        self.awaited.store(awaited, Relaxed);
        has_passed
    }

    /// The same as [`oldest`](Self::oldest), and nothing that was unlinked before is reached by guards that it does not tell of.
    fn oldest_after_a_fence(&self) -> u64 {
        if heavy() { self.oldest() } else { 0 }
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
    fn state(&self) -> u64 {
        // ORDERING: relaxed; its own thread asks, and nobody else writes it.
        self.state.load(Relaxed)
    }

    #[inline(always)]
    fn tell(&self, state: u64) {
        // ORDERING: release side of *left*, for guards that were dropped before, or are now.
        self.state.store(state, Release);
    }

    /// How many guards its thread holds.
    pub(super) fn held(&self) -> u64 {
        self.state() & GUARDS
    }

    /// The first guard, in this age.
    #[inline(always)]
    fn enter(&'static self, age: u64) -> Guard {
        self.tell(age + 1);
        light();
        Guard(Held::Place(self))
    }

    /// One more. What the first has said holds for it, too.
    fn enter_again(&'static self) -> Guard {
        self.tell(self.state() + 1);
        Guard(Held::Place(self))
    }

    #[inline(always)]
    fn leave(&self) {
        self.tell(self.state() - 1);
    }

    /// Hands the place on, unless guards are held.
    pub(super) fn leave_for_good(&self) {
        if self.held() == 0 {
            // ORDERING: release side of *handed on*.
            self.taken.store(false, Release);
        }
    }
}

impl Guard {
    /// A guard that needs no place.
    pub(super) fn of_epoch(epoch: Epoch, readers: &'static Readers) -> Self {
        Self(Held::Epoch(epoch, readers))
    }

    /// Ends, and begins again. (If the thread holds others, nothing of it is seen.)
    pub(crate) fn repin(&mut self) {
        match &mut self.0 {
            Held::Place(reader) => {
                let reader = *reader;
                reader.leave();
                let again = reader.of.pin_slowly(reader).expect("there is one fewer than before");
                // What it was is over already.
                std::mem::forget(std::mem::replace(self, again));
            }
            Held::Epoch(epoch, _) => epoch.repin(),
        }
    }

    /// See [`Readers::retire`].
    ///
    /// # Safety
    ///
    /// As there.
    #[allow(unsafe_code)]
    pub(super) unsafe fn retire<T: 'static>(&self, value: *mut T) {
        let (Held::Place(Reader { of: readers, .. }) | Held::Epoch(_, readers)) = &self.0;
        // SAFETY: the caller's.
        unsafe { readers.retire(value) };
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
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
    use std::thread;
    use std::time::{Duration, Instant};

    fn readers() -> &'static Readers {
        Box::leak(Box::new(Readers {
            age: AtomicU64::new(0),
            first: AtomicPtr::new(ptr::null_mut()),
            limbo: AtomicPtr::new(ptr::null_mut()),
            is_due: AtomicBool::new(false),
            is_sorted: AtomicBool::new(false),
            awaited: AtomicU64::new(0),
        }))
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
    fn sort_out(readers: &Readers) -> bool {
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

    /// Or limbo would grow where there is no upkeep; and every time would be too often.
    #[test]
    fn one_thread_is_asked_to_look_after_limbo_after_many_values() {
        let (readers, value) = (readers(), Arc::new(()));
        for _ in 0..3 {
            for n in 1..=MANY {
                assert!(!readers.is_asked(), "before value {n}");
                retire(readers, &value);
            }
            assert!(readers.is_asked() && !readers.is_asked());
        }
        readers.ask_for_the_rest();
        assert!(readers.is_asked() && sort_out(readers));
        readers.ask_for_the_rest();
        assert!(!readers.is_asked());
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
        sort_out(readers);
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
        let order = || readers.limbo.load(Relaxed);
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
