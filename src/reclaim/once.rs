//! A pointer that is set only once. Its value lives as long as the pointer.

use crate::sync::{
    AtomicPtr,
    Ordering::{Acquire, Relaxed, Release},
};
use std::marker::PhantomData;
use std::ptr;

/// Null at first, then a pointer to a `T`. Once set, the pointer never changes. Any thread that can
/// access the pointer can read the value without a guard.
///
/// Unlike with `std::sync::OnceLock`, no thread ever waits for another thread to set the value.
///
/// | edge | release side | acquire side | what becomes visible | loom test that fails if it is weakened |
/// |---|---|---|---|---|
/// | set | `OnceLink::get_or` | `OnceLink::get`, `OnceLink::get_or` | the value | `a_value_that_is_found_is_seen_whole`, `two_set_a_value_and_both_get_the_first` |
#[derive(Debug)]
pub(crate) struct OnceLink<T> {
    to: AtomicPtr<T>,
    owned: PhantomData<T>,
}

#[allow(unsafe_code)]
impl<T> OnceLink<T> {
    #[cfg(not(tollgate_loom))]
    pub(crate) const fn null() -> Self {
        Self { to: AtomicPtr::new(ptr::null_mut()), owned: PhantomData }
    }

    /// This is a separate function, because the constructors of the models' atomics are not const.
    #[cfg(tollgate_loom)]
    pub(crate) fn null() -> Self {
        Self { to: AtomicPtr::new(ptr::null_mut()), owned: PhantomData }
    }

    /// Returns the value, if it has been set.
    #[inline]
    pub(crate) fn get(&self) -> Option<&T> {
        // ORDERING: acquire side of *set*.
        let to = self.to.load(Acquire);
        // SAFETY: the pointer is null, or points to a box that is freed with the holder.
        unsafe { to.as_ref() }
    }

    /// Returns the value. If no value has been set, first sets it to the result of `make`.
    pub(crate) fn get_or(&self, make: impl FnOnce() -> T) -> &T {
        if let Some(value) = self.get() {
            return value;
        }
        let new = Box::into_raw(Box::new(make()));
        // ORDERING: release side of *set*, or acquire side if another thread got there first.
        match self.to.compare_exchange(ptr::null_mut(), new, Release, Acquire) {
            // SAFETY: the pointer came from a box that is freed with the holder.
            Ok(_) => unsafe { &*new },
            Err(first) => {
                // SAFETY: the box was created in this call, and no other thread has seen it.
                drop(unsafe { Box::from_raw(new) });
                // SAFETY: the pointer is not null, because the exchange expected null and failed.
                // The pointer points to a box that is freed with the holder.
                unsafe { &*first }
            }
        }
    }
}

#[allow(unsafe_code)]
impl<T> Drop for OnceLink<T> {
    fn drop(&mut self) {
        // ORDERING: relaxed, because `&mut self` is ordered after everything that other threads did
        // with the holder.
        let to = self.to.load(Relaxed);
        if !to.is_null() {
            // SAFETY: the pointer came from a box, and no other thread can reach it.
            drop(unsafe { Box::from_raw(to) });
        }
    }
}

// SAFETY: `OnceLink` owns the value and hands out shared references to it, like a box.
#[allow(unsafe_code)]
unsafe impl<T: Send> Send for OnceLink<T> {}
// SAFETY: as for a box. In addition, one thread may set a value that another thread drops, so `T`
// must be `Send`.
#[allow(unsafe_code)]
unsafe impl<T: Send + Sync> Sync for OnceLink<T> {}
