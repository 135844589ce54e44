//! The only module that refers to atomics, threads and the model checker.
//!
//! The rest of the crate uses `sync::Atomic`, so the same source can be compiled in two ways.
//! Normally, this type is [`atomic::Atomic`], a typed wrapper around the hardware's atomics. In the
//! models in `loom-tests/`, it is the shim below. The compiler flag `--cfg tollgate_loom`, which
//! `loom-tests/build.rs` sets, selects the shim. The flag is not a cargo feature, because
//! `--all-features` would turn it on.
//!
//! # The shim
//!
//! Loom remembers only each thread's last access to an atomic. If a thread loads and then writes,
//! as every compare-and-swap loop does, the write hides the load, and loom skips interleavings
//! (tokio-rs/loom#166). To prevent this, each shimmed atomic has a second atomic, `touch`. Every
//! operation first performs a relaxed `fetch_add(0)` on `touch`. All accesses then conflict, and
//! all orders are explored. The extra access is relaxed and orders nothing, so weak outcomes remain
//! possible.
//!
//! The extra access increases the number of executions, so a model turns it on only if necessary
//! ([`ModelSwitch::Touch`]). `loom-tests/tests/litmus.rs` tests three kinds of outcomes: those that
//! must be seen, those that must remain possible, and those that must never be seen.
//!
//! `tests/shuttle/` also compiles this shim, with shuttle in place of loom, for long races with
//! random schedules. Therefore the shim uses only the parts of loom that shuttle also provides.
//!
//! Loom's `compare_exchange_weak` never fails spuriously. [`ModelSwitch::FailWeakOnce`] makes the
//! next call to this method fail.

#[cfg(not(tollgate_loom))]
pub(crate) use atomic::{Atomic, Ordering};
#[cfg(all(target_os = "linux", not(tollgate_loom)))]
pub(crate) use crossbeam_utils::atomic::AtomicCell;

mod item;

pub(crate) use item::{Given, Item};
use std::sync::atomic::AtomicU64;

#[cfg(not(tollgate_loom))]
mod index;

#[cfg(not(tollgate_loom))]
pub(crate) use index::{Index, epoch, reading};

#[cfg(test)]
pub(crate) mod stop;

#[cfg(not(tollgate_loom))]
pub(crate) use std::sync::atomic::AtomicPtr;

#[cfg(not(tollgate_loom))]
pub(crate) use std::thread;

/// A count on which no race depends, such as a statistic or a hint that work is due.
///
/// A counter publishes no other data, and the order of its operations does not matter. All its
/// operations are therefore relaxed. Models do not explore counters: even in a model, a counter is
/// a std atomic, which loom does not track.
#[derive(Debug)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    pub(crate) fn new() -> Self {
        Self(AtomicU64::new(0))
    }

    pub(crate) fn get(&self) -> u64 {
        // ORDERING: relaxed; a count.
        self.0.load(std::sync::atomic::Ordering::Relaxed)
    }

    pub(crate) fn add(&self, more: u64) {
        // ORDERING: relaxed; a count.
        self.0.fetch_add(more, std::sync::atomic::Ordering::Relaxed);
    }

    /// Subtracts one from the count, to which at least one was added.
    pub(crate) fn sub_one(&self) {
        // ORDERING: relaxed; a count.
        self.0.fetch_sub(1, std::sync::atomic::Ordering::Relaxed);
    }

    /// Sets the count to 0.
    pub(crate) fn reset(&self) {
        // ORDERING: relaxed; a count.
        self.0.store(0, std::sync::atomic::Ordering::Relaxed);
    }
}

/// Returns the number of cores that this process may use.
#[cfg(not(tollgate_loom))]
pub(crate) fn cores() -> usize {
    thread::available_parallelism().map_or(1, usize::from)
}

/// Returns the number of this thread. Threads are numbered from 0, in the order in which they first
/// call this function.
#[cfg(not(tollgate_loom))]
#[inline(always)]
pub(crate) fn thread_number() -> usize {
    thread_local! {
        /// The number plus one; 0 until the thread has a number.
        static NUMBER: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
    }
    #[cold]
    fn next() -> usize {
        static NEXT: std::sync::atomic::AtomicUsize = std::sync::atomic::AtomicUsize::new(1);
        // ORDERING: relaxed; a count.
        NEXT.fetch_add(1, std::sync::atomic::Ordering::Relaxed)
    }
    NUMBER.with(|number| {
        if number.get() == 0 {
            number.set(next());
        }
        number.get() - 1
    })
}

/// Sleeps for a millisecond. Only calls that are allowed to wait use this function.
#[cfg(not(tollgate_loom))]
pub(crate) fn rest() {
    thread::sleep(std::time::Duration::from_millis(1));
}

#[cfg(tollgate_loom)]
pub use shim::{Atomic, AtomicPtr, ModelSwitch, Ordering, number_thread};
#[cfg(tollgate_loom)]
pub(crate) use shim::{Index, cores, epoch, reading, rest, thread_number};

#[cfg(tollgate_loom)]
mod shim {
    use super::item::Item;
    use bytemuck::Pod;
    use std::marker::PhantomData;
    use std::sync::atomic::AtomicBool;

    pub use loom::sync::atomic::Ordering;
    use loom::sync::atomic::{AtomicU64, Ordering::Relaxed};

    // The switches are plain std atomics for two reasons. They belong to the test harness, not to
    // the model, and loom runs all threads of a model on one system thread.
    static SWITCHES: [AtomicBool; 4] = [const { AtomicBool::new(false) }; 4];

    /// A setting of the shim.
    #[derive(Clone, Copy, Debug)]
    pub enum ModelSwitch {
        /// Makes every access to an atomic a conflict, so that loom skips no interleaving.
        Touch,
        /// Makes a lookup in one of the table's lines stop at the first vacant slot.
        StopAtVacant,
        /// Makes the next `compare_exchange_weak` fail even though it finds the expected value.
        FailWeakOnce,
        /// Lets checks follow the hints of leases. A model that turns this on explores the hints.
        LeaseHints,
    }

    impl ModelSwitch {
        /// Turns the switch on or off for all models in the process. For this reason, models must
        /// run one at a time.
        pub fn set(self, on: bool) {
            // ORDERING: relaxed, because the switches belong to the test harness.
            SWITCHES[self as usize].store(on, Relaxed);
        }

        pub(crate) fn is_on(self) -> bool {
            // ORDERING: relaxed, because the switches belong to the test harness.
            SWITCHES[self as usize].load(Relaxed)
        }
    }

    /// The second atomic of a shimmed atomic. If [`ModelSwitch::Touch`] is on, each access to the
    /// shimmed atomic also accesses this location.
    #[derive(Debug)]
    struct Touch(Option<AtomicU64>);

    impl Touch {
        fn new() -> Self {
            Self(ModelSwitch::Touch.is_on().then(|| AtomicU64::new(0)))
        }

        fn conflict(&self) {
            if let Self(Some(touch)) = self {
                // ORDERING: relaxed, so that the access makes loom see a conflict but orders
                // nothing.
                touch.fetch_add(0, Relaxed);
            }
        }
    }

    /// A typed atomic that loom tracks.
    #[derive(Debug)]
    pub struct Atomic<T> {
        value: AtomicU64,
        touch: Touch,
        of: PhantomData<T>,
    }

    /// Copies a value of up to 8 bytes into the first bytes of a word.
    fn bits<T: Pod>(value: T) -> u64 {
        let mut bits = [0; 8];
        bits[..size_of::<T>()].copy_from_slice(bytemuck::bytes_of(&value));
        u64::from_ne_bytes(bits)
    }

    fn typed<T: Pod>(bits: u64) -> T {
        bytemuck::pod_read_unaligned(&bits.to_ne_bytes()[..size_of::<T>()])
    }

    impl<T: Pod> Atomic<T> {
        /// Creates an atomic. This works only inside a model.
        pub fn new(value: T) -> Self {
            Self { value: AtomicU64::new(bits(value)), touch: Touch::new(), of: PhantomData }
        }

        /// Loads the value.
        pub fn load(&self, order: Ordering) -> T {
            self.touch.conflict();
            // ORDERING: given by the caller.
            typed(self.value.load(order))
        }

        /// Stores a value.
        pub fn store(&self, value: T, order: Ordering) {
            self.touch.conflict();
            // ORDERING: given by the caller.
            self.value.store(bits(value), order);
        }

        /// Stores a value and returns the old one.
        pub fn swap(&self, value: T, order: Ordering) -> T {
            self.touch.conflict();
            // ORDERING: given by the caller.
            typed(self.value.swap(bits(value), order))
        }

        /// Stores `new` if the value is equal to `current`. Returns the old value, as an error if
        /// the old value was different.
        pub fn compare_exchange(
            &self,
            current: T,
            new: T,
            success: Ordering,
            failure: Ordering,
        ) -> Result<T, T> {
            self.touch.conflict();
            // ORDERING: given by the caller.
            self.value.compare_exchange(bits(current), bits(new), success, failure).map(typed).map_err(typed)
        }

        /// Like [`compare_exchange`](Self::compare_exchange), but fails once after
        /// [`ModelSwitch::FailWeakOnce`] was turned on.
        pub fn compare_exchange_weak(
            &self,
            current: T,
            new: T,
            success: Ordering,
            failure: Ordering,
        ) -> Result<T, T> {
            if ModelSwitch::FailWeakOnce.is_on() {
                ModelSwitch::FailWeakOnce.set(false);
                return Err(self.load(failure));
            }
            self.compare_exchange(current, new, success, failure)
        }

        /// Replaces the value with the result of `next`. Retries if another thread has changed the
        /// value in the meantime. Returns the old value, as an error if `next` returned `None`.
        pub fn fetch_update(
            &self,
            set_order: Ordering,
            fetch_order: Ordering,
            mut next: impl FnMut(T) -> Option<T>,
        ) -> Result<T, T> {
            let mut current = self.load(fetch_order);
            loop {
                let new = next(current).ok_or(current)?;
                match self.compare_exchange_weak(current, new, set_order, fetch_order) {
                    Ok(old) => return Ok(old),
                    Err(found) => current = found,
                }
            }
        }
    }

    /// A pointer that loom tracks.
    #[derive(Debug)]
    pub struct AtomicPtr<T> {
        to: loom::sync::atomic::AtomicPtr<T>,
        touch: Touch,
    }

    impl<T> AtomicPtr<T> {
        /// Creates a pointer. This works only inside a model.
        pub fn new(to: *mut T) -> Self {
            Self { to: loom::sync::atomic::AtomicPtr::new(to), touch: Touch::new() }
        }

        /// Loads the value.
        pub fn load(&self, order: Ordering) -> *mut T {
            self.touch.conflict();
            // ORDERING: given by the caller.
            self.to.load(order)
        }

        /// Stores a value.
        pub fn store(&self, to: *mut T, order: Ordering) {
            self.touch.conflict();
            // ORDERING: given by the caller.
            self.to.store(to, order);
        }

        /// Stores a value and returns the old one.
        pub fn swap(&self, to: *mut T, order: Ordering) -> *mut T {
            self.touch.conflict();
            // ORDERING: given by the caller.
            self.to.swap(to, order)
        }

        /// Stores `new` if the value is equal to `current`. Returns the old value, as an error if
        /// the old value was different.
        pub fn compare_exchange(
            &self,
            current: *mut T,
            new: *mut T,
            success: Ordering,
            failure: Ordering,
        ) -> Result<*mut T, *mut T> {
            self.touch.conflict();
            // ORDERING: given by the caller.
            self.to.compare_exchange(current, new, success, failure)
        }

        /// Replaces the value with the result of `next`. Retries if another thread has changed the
        /// value in the meantime. Returns the old value, as an error if `next` returned `None`.
        pub fn fetch_update(
            &self,
            set_order: Ordering,
            fetch_order: Ordering,
            mut next: impl FnMut(*mut T) -> Option<*mut T>,
        ) -> Result<*mut T, *mut T> {
            let mut current = self.load(fetch_order);
            loop {
                let new = next(current).ok_or(current)?;
                match self.compare_exchange(current, new, set_order, fetch_order) {
                    Ok(old) => return Ok(old),
                    Err(found) => current = found,
                }
            }
        }
    }

    // These methods suit integers, if no result overflows.
    impl<T: Pod> Atomic<T> {
        /// Sets the bits of `value`. Returns the old value.
        pub fn fetch_or(&self, value: T, order: Ordering) -> T {
            self.touch.conflict();
            // ORDERING: given by the caller.
            typed(self.value.fetch_or(bits(value), order))
        }

        /// Adds `value`. Returns the old value.
        pub fn fetch_add(&self, value: T, order: Ordering) -> T {
            self.touch.conflict();
            // ORDERING: given by the caller.
            typed(self.value.fetch_add(bits(value), order))
        }

        /// Subtracts `value`. Returns the old value.
        pub fn fetch_sub(&self, value: T, order: Ordering) -> T {
            self.touch.conflict();
            // ORDERING: given by the caller.
            typed(self.value.fetch_sub(bits(value), order))
        }
    }

    /// The stand-in for the type of the same name in `index`: a list behind a loom mutex. Each
    /// operation is one step, and threads switch between operations.
    pub(crate) struct Index<T>(loom::sync::Mutex<Vec<T>>);

    impl<T: Item + Clone> Index<T> {
        pub(crate) const ITEM_BYTES: usize = size_of::<T>();

        pub(crate) fn new() -> Self {
            Self(loom::sync::Mutex::new(Vec::new()))
        }

        pub(crate) fn find<R>(
            &self,
            hash: u64,
            is: impl Fn(&T) -> bool,
            visit: impl FnOnce(&T) -> R,
        ) -> Option<R> {
            // The item is visited after the list is unlocked, because scc's readers hold no lock.
            let items = self.0.lock().unwrap();
            let found = items.iter().find(|item| item.hash() == hash && is(item)).cloned();
            drop(items);
            found.map(|item| visit(&item))
        }

        pub(crate) fn insert(&self, item: T) -> Result<(), T> {
            let mut items = self.0.lock().unwrap();
            if items.iter().any(|other| other.key() == item.key()) {
                return Err(item);
            }
            items.push(item);
            Ok(())
        }

        pub(crate) fn remove(&self, hash: u64, is: impl Fn(&T) -> bool) -> bool {
            let mut items = self.0.lock().unwrap();
            let at = items.iter().position(|item| item.hash() == hash && is(item));
            at.map(|at| items.swap_remove(at)).is_some()
        }

        pub(crate) fn capacity(&self) -> usize {
            self.0.lock().unwrap().len()
        }
    }

    /// The stand-in for the real index's guard. In models, an item is freed with its last owner.
    pub(crate) struct Reading;

    pub(crate) fn reading() -> Reading {
        Reading
    }

    pub(crate) fn epoch() -> u64 {
        0
    }

    pub(crate) fn rest() {
        loom::thread::yield_now();
    }

    pub(crate) fn cores() -> usize {
        2
    }

    loom::thread_local! {
        static NUMBER: std::cell::Cell<usize> = std::cell::Cell::new(0);
    }

    /// Returns the number that [`number_thread`] has set for this thread, or 0.
    pub(crate) fn thread_number() -> usize {
        NUMBER.with(std::cell::Cell::get)
    }

    /// Sets the number of this thread. A model numbers its threads itself, so that their numbers do
    /// not depend on the schedule.
    pub fn number_thread(number: usize) {
        NUMBER.with(|own| own.set(number));
    }
}
