//! The one place that names atomics, threads and the model checker.
//!
//! Everything else in the crate says `sync::Atomic`, so the same source is compiled twice: for use,
//! with [`atomic::Atomic`] (a typed wrapper of the hardware's atomics), and for the models in
//! `loom-tests/` with the shim below. The switch is the compiler flag `--cfg tollgate_loom`, which
//! `loom-tests/build.rs` sets; it is no cargo feature, because a feature would be turned on by
//! `--all-features`.
//!
//! # The shim
//!
//! Loom remembers only the last access of each thread to an atomic, so a thread that loads and then
//! writes (every compare-and-swap loop does) hides its load, and loom skips interleavings
//! (tokio-rs/loom#166). Each shimmed atomic therefore carries a second one, `touch`, on which every
//! operation first does a relaxed `fetch_add(0)`. All accesses then conflict and all orders are
//! explored, and because the extra access is relaxed it orders nothing: weak outcomes stay possible.
//! It costs executions, so each model says whether it wants it ([`ModelSwitch::Touch`]).
//! `loom-tests/tests/litmus.rs` shows all three halves: what must be seen, what must stay possible,
//! what must never be seen.
//!
//! `tests/shuttle/` compiles this shim once more, with shuttle under loom's name: so it uses nothing of loom that
//! shuttle has not got. There the races are long and their schedules random.
//!
//! Loom's `compare_exchange_weak` never fails spuriously; [`ModelSwitch::FailWeakOnce`] makes the
//! next one do so.

#[cfg(not(tollgate_loom))]
pub(crate) use atomic::{Atomic, Ordering};
#[cfg(all(target_os = "linux", not(tollgate_loom)))]
pub(crate) use crossbeam_utils::atomic::AtomicCell;

mod find;
mod order;

pub(crate) use find::{Find, Hashed};

#[cfg(not(tollgate_loom))]
mod index;

#[cfg(not(tollgate_loom))]
pub(crate) use index::{Index, Reading, epoch, reading};

#[cfg(not(tollgate_loom))]
mod barrier;
#[cfg(not(tollgate_loom))]
mod link;
#[cfg(not(tollgate_loom))]
mod pin;
#[cfg(not(tollgate_loom))]
mod readers;

#[cfg(not(tollgate_loom))]
pub(crate) use link::Link;
#[cfg(not(tollgate_loom))]
pub(crate) use pin::{collect, pin, pin_at_once};
#[cfg(not(tollgate_loom))]
pub(crate) use readers::Guard;

#[cfg(not(tollgate_loom))]
pub(crate) use std::thread;

/// Lets others run for a millisecond: for calls that are not in a hurry.
#[cfg(not(tollgate_loom))]
pub(crate) fn rest() {
    thread::sleep(std::time::Duration::from_millis(1));
}

#[cfg(tollgate_loom)]
pub use shim::{Atomic, ModelSwitch, Ordering};
#[cfg(tollgate_loom)]
pub(crate) use shim::{
    Guard, Index, Link, Reading, collect, epoch, pin, pin_at_once, reading, rest, stops_at_vacant,
};

#[cfg(tollgate_loom)]
mod shim {
    use super::find::Find;
    use super::order::{ADVANCE, ADVANCE_LOST, INSTALL, INSTALL_LOST, LOAD};
    use bytemuck::Pod;
    use std::marker::PhantomData;
    use std::sync::atomic::AtomicBool;

    pub use loom::sync::atomic::Ordering;
    use loom::sync::atomic::{AtomicU64, Ordering::Relaxed};

    // The switches are plain std atomics: they belong to the test harness, not to the model, and
    // loom runs all threads of a model on one thread of the system.
    static TOUCH: AtomicBool = AtomicBool::new(false);
    static STOP_AT_VACANT: AtomicBool = AtomicBool::new(false);
    static FAIL_WEAK_ONCE: AtomicBool = AtomicBool::new(false);

    /// What a model can ask of the shim.
    #[derive(Clone, Copy, Debug)]
    pub enum ModelSwitch {
        /// Make every access to an atomic a conflict, so that loom skips no interleaving.
        Touch,
        /// Look at a line of the table no further than to its first vacant slot.
        StopAtVacant,
        /// Make the next `compare_exchange_weak` fail although the value is the expected one.
        FailWeakOnce,
    }

    impl ModelSwitch {
        /// Turns the switch on or off; for all models of the process, so run one at a time.
        pub fn set(self, on: bool) {
            // ORDERING: relaxed; the harness's own, see above.
            self.flag().store(on, Relaxed);
        }

        fn flag(self) -> &'static AtomicBool {
            match self {
                Self::Touch => &TOUCH,
                Self::StopAtVacant => &STOP_AT_VACANT,
                Self::FailWeakOnce => &FAIL_WEAK_ONCE,
            }
        }
    }

    /// Does the model want lines to be looked at no further than to the first vacant slot?
    pub(crate) fn stops_at_vacant() -> bool {
        // ORDERING: relaxed; the harness's own, see above.
        STOP_AT_VACANT.load(Relaxed)
    }

    /// A typed atomic that loom can see.
    #[derive(Debug)]
    pub struct Atomic<T> {
        value: AtomicU64,
        touch: Option<AtomicU64>,
        of: PhantomData<T>,
    }

    /// Values of up to 8 bytes, in the first bytes of a word.
    fn bits<T: Pod>(value: T) -> u64 {
        let mut bits = [0; 8];
        bits[..size_of::<T>()].copy_from_slice(bytemuck::bytes_of(&value));
        u64::from_ne_bytes(bits)
    }

    fn typed<T: Pod>(bits: u64) -> T {
        bytemuck::pod_read_unaligned(&bits.to_ne_bytes()[..size_of::<T>()])
    }

    impl<T: Pod> Atomic<T> {
        /// A new atomic; inside a model only.
        pub fn new(value: T) -> Self {
            Self {
                value: AtomicU64::new(bits(value)),
                // ORDERING: relaxed; the harness's own, see above.
                touch: TOUCH.load(Relaxed).then(|| AtomicU64::new(0)),
                of: PhantomData,
            }
        }

        fn conflict(&self) {
            if let Some(touch) = &self.touch {
                // ORDERING: relaxed, so that it makes loom see a conflict and orders nothing.
                touch.fetch_add(0, Relaxed);
            }
        }

        /// As the method of the same name in std.
        pub fn load(&self, order: Ordering) -> T {
            self.conflict();
            // ORDERING: the caller's.
            typed(self.value.load(order))
        }

        /// As the method of the same name in std.
        pub fn store(&self, value: T, order: Ordering) {
            self.conflict();
            // ORDERING: the caller's.
            self.value.store(bits(value), order);
        }

        /// As the method of the same name in std.
        pub fn swap(&self, value: T, order: Ordering) -> T {
            self.conflict();
            // ORDERING: the caller's.
            typed(self.value.swap(bits(value), order))
        }

        /// As the method of the same name in std.
        pub fn compare_exchange(
            &self,
            current: T,
            new: T,
            success: Ordering,
            failure: Ordering,
        ) -> Result<T, T> {
            self.conflict();
            // ORDERING: the caller's.
            self.value.compare_exchange(bits(current), bits(new), success, failure).map(typed).map_err(typed)
        }

        /// As the method of the same name in std; fails for no reason when a model asked for it.
        pub fn compare_exchange_weak(
            &self,
            current: T,
            new: T,
            success: Ordering,
            failure: Ordering,
        ) -> Result<T, T> {
            // ORDERING: relaxed; the harness's own, see above.
            if FAIL_WEAK_ONCE.swap(false, Relaxed) {
                return Err(self.load(failure));
            }
            self.compare_exchange(current, new, success, failure)
        }

        /// As the method of the same name in std.
        pub fn fetch_update(
            &self,
            set_order: Ordering,
            fetch_order: Ordering,
            mut next: impl FnMut(T) -> Option<T>,
        ) -> Result<T, T> {
            let mut current = self.load(fetch_order);
            loop {
                let Some(new) = next(current) else { return Err(current) };
                match self.compare_exchange_weak(current, new, set_order, fetch_order) {
                    Ok(old) => return Ok(old),
                    Err(found) => current = found,
                }
            }
        }
    }

    impl Atomic<u64> {
        /// As the method of the same name in std.
        pub fn fetch_or(&self, value: u64, order: Ordering) -> u64 {
            self.conflict();
            // ORDERING: the caller's.
            self.value.fetch_or(value, order)
        }

        /// As the method of the same name in std.
        pub fn fetch_add(&self, value: u64, order: Ordering) -> u64 {
            self.conflict();
            // ORDERING: the caller's.
            self.value.fetch_add(value, order)
        }

        /// As the method of the same name in std.
        pub fn fetch_sub(&self, value: u64, order: Ordering) -> u64 {
            self.conflict();
            // ORDERING: the caller's.
            self.value.fetch_sub(value, order)
        }
    }

    /// As the type of the same name in `index`: a list behind a mutex that loom sees, so each operation
    /// happens at once, and threads switch between operations.
    pub(crate) struct Index<T>(loom::sync::Mutex<Vec<T>>);

    impl<T: Find<T> + Clone> Index<T> {
        pub(crate) const ITEM_BYTES: usize = size_of::<T>();

        pub(crate) fn new() -> Self {
            Self(loom::sync::Mutex::new(Vec::new()))
        }

        pub(crate) fn find<R>(&self, what: &impl Find<T>, visit: impl FnOnce(&T) -> R) -> Option<R> {
            // Visited after the list is unlocked, as scc's readers hold nothing.
            let items = self.0.lock().unwrap();
            let found = items.iter().find(|item| what.hash() == item.hash() && what.is(item)).cloned();
            drop(items);
            found.map(|item| visit(&item))
        }

        pub(crate) fn insert(&self, item: T) -> Result<(), T> {
            let mut items = self.0.lock().unwrap();
            if items.iter().any(|other| item.is(other)) {
                return Err(item);
            }
            items.push(item);
            Ok(())
        }

        pub(crate) fn remove(&self, what: &impl Find<T>) -> bool {
            let mut items = self.0.lock().unwrap();
            let at = items.iter().position(|item| what.is(item));
            at.map(|at| items.swap_remove(at)).is_some()
        }

        pub(crate) fn capacity(&self) -> usize {
            self.0.lock().unwrap().len()
        }
    }

    /// Stands for the guard of the real index: the models free an item with its last owner.
    pub struct Reading;

    impl Reading {
        pub(crate) fn repin(&mut self) {}
    }

    pub(crate) fn reading() -> Reading {
        Reading
    }

    pub(crate) fn epoch(_reading: &Reading) -> u64 {
        0
    }

    /// Stands for a pinned epoch: the models free nothing before a table is dropped.
    pub struct Guard;

    pub(crate) fn pin_at_once() -> Option<Guard> {
        Some(pin())
    }

    pub(crate) fn pin() -> Guard {
        Guard
    }

    impl Guard {
        pub(crate) fn repin(&mut self) {}
    }

    impl Drop for Guard {
        // The real one has something to do here, and is dropped on purpose before a thread rests.
        fn drop(&mut self) {}
    }

    pub(crate) fn collect(_guard: &Guard) {}

    pub(crate) fn rest() {
        loom::thread::yield_now();
    }

    /// As the type of the same name in `link`, with loom's pointer, which loom sees.
    ///
    /// | edge | release side | acquire side | what becomes visible | loom test that fails if it is weakened |
    /// |---|---|---|---|---|
    /// | taken apart | `take` | `take` | that nobody reads the link any more | none: the library has `&mut` there; loom does not know how that came about where the owner is the last of an `Arc` of std's |
    #[derive(Debug)]
    pub(crate) struct Link<T> {
        to: loom::sync::atomic::AtomicPtr<T>,
        touch: Option<AtomicU64>,
        retired: std::sync::Mutex<Vec<*mut T>>,
    }

    // SAFETY: as for `link::Link`; the list of the retired is behind a mutex.
    #[allow(unsafe_code)]
    unsafe impl<T: Send + Sync> Send for Link<T> {}
    // SAFETY: as above.
    #[allow(unsafe_code)]
    unsafe impl<T: Send + Sync> Sync for Link<T> {}

    #[allow(unsafe_code)]
    impl<T> Link<T> {
        fn at(to: *mut T) -> Self {
            Self {
                to: loom::sync::atomic::AtomicPtr::new(to),
                // ORDERING: relaxed; the harness's own, see above.
                touch: TOUCH.load(Relaxed).then(|| AtomicU64::new(0)),
                retired: std::sync::Mutex::new(Vec::new()),
            }
        }

        pub(crate) fn null() -> Self {
            Self::at(std::ptr::null_mut())
        }

        pub(crate) fn to(value: T) -> Self {
            Self::at(Box::into_raw(Box::new(value)))
        }

        fn conflict(&self) {
            if let Some(touch) = &self.touch {
                // ORDERING: relaxed, as in `Atomic`.
                touch.fetch_add(0, Relaxed);
            }
        }

        pub(crate) fn load<'g>(&self, _guard: &'g Guard) -> Option<&'g T> {
            self.conflict();
            // ORDERING: see `order`.
            let to = self.to.load(LOAD);
            // SAFETY: null or a box that lives until this link is dropped.
            unsafe { to.as_ref() }
        }

        pub(crate) fn install<'g>(&self, value: T, _guard: &'g Guard) -> (&'g T, bool) {
            self.conflict();
            let new = Box::into_raw(Box::new(value));
            // ORDERING: see `order`.
            match self.to.compare_exchange(std::ptr::null_mut(), new, INSTALL, INSTALL_LOST) {
                // SAFETY: a box that lives until this link is dropped.
                Ok(_) => (unsafe { &*new }, true),
                Err(found) => {
                    // SAFETY: made in this call and seen by nobody else.
                    drop(unsafe { Box::from_raw(new) });
                    // SAFETY: not null, since null is what was expected; a box that lives until this link is
                    // dropped.
                    (unsafe { &*found }, false)
                }
            }
        }

        pub(crate) fn install_from(&self, other: &mut Self, _guard: &Guard) -> bool {
            self.conflict();
            let Some(value) = other.take() else { return false };
            let new = Box::into_raw(value);
            // ORDERING: see `order`.
            let linked = self.to.compare_exchange(std::ptr::null_mut(), new, INSTALL, INSTALL_LOST).is_ok();
            if !linked {
                other.to = loom::sync::atomic::AtomicPtr::new(new);
            }
            linked
        }

        pub(crate) fn advance(&self, from: &T, to: &T, _guard: &Guard) -> bool {
            self.conflict();
            let from = std::ptr::from_ref(from).cast_mut();
            let to = std::ptr::from_ref(to).cast_mut();
            // ORDERING: see `order`.
            let advanced = self.to.compare_exchange(from, to, ADVANCE, ADVANCE_LOST).is_ok();
            if advanced {
                self.retired.lock().unwrap().push(from);
            }
            advanced
        }

        pub(crate) fn take(&mut self) -> Option<Box<T>> {
            // ORDERING: both sides of *taken apart*.
            let to = self.to.swap(std::ptr::null_mut(), Ordering::AcqRel);
            // SAFETY: `&mut self`: nobody else has the pointer, and it came from a box.
            (!to.is_null()).then(|| unsafe { Box::from_raw(to) })
        }
    }

    impl<T> Drop for Link<T> {
        fn drop(&mut self) {
            for retired in std::mem::take(self.retired.get_mut().unwrap()) {
                // SAFETY: it came from a box, was unlinked, and the threads of the model are done.
                #[allow(unsafe_code)]
                drop(unsafe { Box::from_raw(retired) });
            }
        }
    }
}
