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

pub(crate) use find::{Find, Hashed};

#[cfg(not(tollgate_loom))]
mod index;

#[cfg(not(tollgate_loom))]
pub(crate) use index::{Index, Reading, epoch, reading};

#[cfg(not(tollgate_loom))]
pub(crate) use std::sync::atomic::AtomicPtr;

#[cfg(not(tollgate_loom))]
pub(crate) use std::thread;

#[cfg(not(tollgate_loom))]
type Count = Atomic<u64>;
#[cfg(tollgate_loom)]
type Count = std::sync::atomic::AtomicU64;

/// A count that nothing is decided by in a race: a statistic, or a hint when something is due.
///
/// It publishes nothing and nothing rests on its order, so all its operations are relaxed, and the models do
/// not explore it: there it is an atomic of std's, which loom does not see.
#[derive(Debug)]
pub(crate) struct Counter(Count);

impl Counter {
    pub(crate) fn new() -> Self {
        Self(Count::new(0))
    }

    pub(crate) fn get(&self) -> u64 {
        // ORDERING: relaxed; a count.
        self.0.load(std::sync::atomic::Ordering::Relaxed)
    }

    pub(crate) fn add(&self, more: u64) {
        // ORDERING: relaxed; a count.
        self.0.fetch_add(more, std::sync::atomic::Ordering::Relaxed);
    }

    /// Begins to count again.
    pub(crate) fn reset(&self) {
        // ORDERING: relaxed; a count.
        self.0.store(0, std::sync::atomic::Ordering::Relaxed);
    }
}

/// Lets others run for a millisecond: for calls that are not in a hurry.
#[cfg(not(tollgate_loom))]
pub(crate) fn rest() {
    thread::sleep(std::time::Duration::from_millis(1));
}

#[cfg(tollgate_loom)]
pub use shim::{Atomic, AtomicPtr, ModelSwitch, Ordering};
#[cfg(tollgate_loom)]
pub(crate) use shim::{Index, Reading, epoch, reading, rest, stops_at_vacant};

#[cfg(tollgate_loom)]
mod shim {
    use super::find::Find;
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

    /// A pointer that loom can see.
    #[derive(Debug)]
    pub struct AtomicPtr<T> {
        to: loom::sync::atomic::AtomicPtr<T>,
        touch: Option<AtomicU64>,
    }

    impl<T> AtomicPtr<T> {
        /// A new pointer; inside a model only.
        pub fn new(to: *mut T) -> Self {
            // ORDERING: relaxed; the harness's own, see above.
            let touch = TOUCH.load(Relaxed).then(|| AtomicU64::new(0));
            Self { to: loom::sync::atomic::AtomicPtr::new(to), touch }
        }

        fn conflict(&self) {
            if let Some(touch) = &self.touch {
                // ORDERING: relaxed, so that it makes loom see a conflict and orders nothing.
                touch.fetch_add(0, Relaxed);
            }
        }

        /// As the method of the same name in std.
        pub fn load(&self, order: Ordering) -> *mut T {
            self.conflict();
            // ORDERING: the caller's.
            self.to.load(order)
        }

        /// As the method of the same name in std.
        pub fn store(&self, to: *mut T, order: Ordering) {
            self.conflict();
            // ORDERING: the caller's.
            self.to.store(to, order);
        }

        /// As the method of the same name in std.
        pub fn swap(&self, to: *mut T, order: Ordering) -> *mut T {
            self.conflict();
            // ORDERING: the caller's.
            self.to.swap(to, order)
        }

        /// As the method of the same name in std.
        pub fn compare_exchange(
            &self,
            current: *mut T,
            new: *mut T,
            success: Ordering,
            failure: Ordering,
        ) -> Result<*mut T, *mut T> {
            self.conflict();
            // ORDERING: the caller's.
            self.to.compare_exchange(current, new, success, failure)
        }

        /// As the method of the same name in std; it never fails for no reason.
        pub fn compare_exchange_weak(
            &self,
            current: *mut T,
            new: *mut T,
            success: Ordering,
            failure: Ordering,
        ) -> Result<*mut T, *mut T> {
            self.compare_exchange(current, new, success, failure)
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
    pub(crate) struct Reading;

    pub(crate) fn reading() -> Reading {
        Reading
    }

    pub(crate) fn epoch(_reading: &Reading) -> u64 {
        0
    }

    pub(crate) fn rest() {
        loom::thread::yield_now();
    }
}
