//! The stand-in for reclamation in the models: nothing is freed before a model ends.
//!
//! The real reclamation has models of its own (`loom-tests/tests/reclaim.rs`); with the table on
//! top it would have too many schedules. A link here never returns [`Stale`].

use super::order::{ADVANCE, ADVANCE_LOST, INSTALL, INSTALL_LOST, LOAD};
use crate::sync::{AtomicPtr, Ordering::AcqRel};
use std::ops::Deref;
use std::ptr;
use std::sync::Mutex;

/// The stand-in for a guard.
#[derive(Debug)]
pub struct Guard;

pub(crate) fn pin() -> Guard {
    Guard
}

impl Guard {
    pub(crate) fn is_old(&self) -> bool {
        false
    }

    pub(crate) fn repin(&mut self) {}
}

impl Drop for Guard {
    // The real guard has a destructor, and is dropped explicitly before a thread rests.
    fn drop(&mut self) {}
}

/// The stand-in for a bag: each link keeps what it has retired.
#[derive(Debug)]
pub(crate) struct Bag;

impl Bag {
    pub(crate) fn new() -> Self {
        Self
    }

    pub(crate) fn bytes(&self) -> usize {
        0
    }

    pub(crate) fn tidy(&self) {}

    pub(crate) fn collect(&self) {}
}

/// A value that can be retired.
pub(crate) trait Retire: Send + 'static {
    // The models count no bytes.
    #[allow(dead_code)]
    fn bytes(&self) -> usize;
}

/// A value of a chain, which has a link to the next one.
pub(crate) trait Chained: Sized {
    fn next(&self) -> &Link<Self>;
}

/// The stand-in for a value that a walk has come to.
#[derive(Debug)]
pub(crate) struct At<'g, T>(&'g T);

/// The error of the real link when an age has ended.
#[derive(Debug)]
pub(crate) struct Stale;

/// The stand-in for `link::Link`, with a pointer that loom sees.
///
/// | edge | release side | acquire side | what becomes visible | loom test that fails if it is weakened |
/// |---|---|---|---|---|
/// | taken apart | `free_all` | `free_all` | that nobody reads the link any more | none: the library has `&mut` there; loom does not know how that came about where the owner is the last of an `Arc` of std's |
#[derive(Debug)]
pub(crate) struct Link<T> {
    to: AtomicPtr<T>,
    retired: Mutex<Vec<*mut T>>,
}

// SAFETY: as for `link::Link`; the list of the retired is behind a mutex.
#[allow(unsafe_code)]
unsafe impl<T: Send + Sync> Send for Link<T> {}
// SAFETY: as for `link::Link`, like `Send` above.
#[allow(unsafe_code)]
unsafe impl<T: Send + Sync> Sync for Link<T> {}

#[allow(unsafe_code)]
impl<T> Link<T> {
    pub(crate) const BYTES: usize = size_of::<T>();

    fn at(to: *mut T) -> Self {
        Self { to: AtomicPtr::new(to), retired: Mutex::new(Vec::new()) }
    }

    pub(crate) fn null() -> Self {
        Self::at(ptr::null_mut())
    }

    pub(crate) fn to(value: T) -> Self {
        Self::at(Box::into_raw(Box::new(value)))
    }

    fn get(&self) -> Option<&T> {
        // ORDERING: see `order`.
        let to = self.to.load(LOAD);
        // SAFETY: null or a box that lives until this link is dropped.
        unsafe { to.as_ref() }
    }

    pub(crate) fn load<'g>(&'g self, _guard: &'g Guard) -> Option<At<'g, T>> {
        self.get().map(At)
    }

    /// Returns the value behind a link that was followed before.
    ///
    /// # Safety
    ///
    /// The contract of `link::Link::follow_again`.
    pub(crate) unsafe fn follow_again<'g>(&'g self, _guard: &'g Guard) -> &'g T {
        self.get().expect("it was followed before")
    }

    pub(crate) fn is_linked(&self) -> bool {
        // ORDERING: see `order`.
        !self.to.load(LOAD).is_null()
    }

    pub(crate) fn install<'g>(&'g self, value: T, _guard: &'g Guard) -> Result<&'g T, T> {
        let new = Box::into_raw(Box::new(value));
        // ORDERING: see `order`.
        match self.to.compare_exchange(ptr::null_mut(), new, INSTALL, INSTALL_LOST) {
            // SAFETY: a box that lives until this link is dropped.
            Ok(_) => Ok(unsafe { &*new }),
            // SAFETY: made in this call, and no other thread has seen it.
            Err(_) => Err(*unsafe { Box::from_raw(new) }),
        }
    }

    pub(crate) fn advance(&self, from: &T, _guard: &Guard, _bag: &Bag) -> bool
    where
        T: Chained + Retire,
    {
        // ORDERING: see `order`.
        let to = from.next().to.load(LOAD);
        let from = ptr::from_ref(from).cast_mut();
        // ORDERING: see `order`.
        let advanced = !to.is_null() && self.to.compare_exchange(from, to, ADVANCE, ADVANCE_LOST).is_ok();
        if advanced {
            self.retired.lock().unwrap().push(from);
        }
        advanced
    }

    pub(crate) fn free_all(&mut self, next: impl Fn(&mut T) -> &mut Self) {
        let mut link = self;
        let mut last: Box<T>;
        loop {
            // ORDERING: both sides of *taken apart*.
            let to = link.to.swap(ptr::null_mut(), AcqRel);
            if to.is_null() {
                return;
            }
            // SAFETY: `&mut self`: no other thread has the pointer, and it came from a box.
            last = unsafe { Box::from_raw(to) };
            link = next(&mut last);
        }
    }
}

impl<T> Clone for At<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for At<'_, T> {}

impl<T> Deref for At<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.0
    }
}

impl<'g, T> At<'g, T> {
    pub(crate) fn get(self) -> &'g T {
        self.0
    }

    pub(crate) fn next(self) -> Result<Option<Self>, Stale>
    where
        T: Chained,
    {
        Ok(self.0.next().get().map(Self))
    }

    /// Continues a walk.
    ///
    /// # Safety
    ///
    /// The contract of `link::At::behind`.
    #[allow(unsafe_code)]
    pub(crate) unsafe fn behind(self, _root: Self) -> Self {
        self
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
