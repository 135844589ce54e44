//! The stand-in for a link. It holds a loom-tracked pointer. Values are not freed before the bag is
//! dropped. The link returns `Retry` only in models that turn on `coin`.
//!
//! The real reclamation has its own models (`loom-tests/tests/reclaim.rs`). A model of the real
//! reclamation and the table together would have too many schedules.
//!
//! | edge | release side | acquire side | what becomes visible | loom test that fails if it is weakened |
//! |---|---|---|---|---|
//! | taken apart | `free_all` | `free_all` | that no thread reads the link any more | none: the library has `&mut` there; loom cannot see the ordering behind that `&mut` if the owner is the last of an `Arc` of std |

use super::bag::{Bag, Retire};
use super::coin;
use super::guard::{Guard, Retry};
use super::order::{ADVANCE, ADVANCE_LOST, INSTALL, INSTALL_LOST, LOAD};
use crate::sync::{AtomicPtr, Ordering::AcqRel};
use std::marker::PhantomData;
use std::ptr;

#[derive(Debug)]
pub(crate) struct Link<T> {
    to: AtomicPtr<T>,
    owned: PhantomData<T>,
}

#[allow(unsafe_code)]
impl<T> Link<T> {
    pub(crate) const BYTES: usize = size_of::<T>();

    fn at(to: *mut T) -> Self {
        Self { to: AtomicPtr::new(to), owned: PhantomData }
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
        // SAFETY: the pointer is null, or points to a box that lives until the bag or the owner of
        // the chain is dropped.
        unsafe { to.as_ref() }
    }

    pub(super) fn follow<'g>(&'g self, _guard: &'g Guard) -> Result<Option<&'g T>, Retry> {
        let to = self.get();
        if coin::asks_to_retry() { Err(Retry) } else { Ok(to) }
    }

    /// Returns the value behind a link that was already followed.
    ///
    /// # Safety
    ///
    /// The contract of the real link applies.
    pub(super) unsafe fn follow_again<'g>(&'g self, _guard: &'g Guard) -> &'g T {
        self.get().expect("it was followed before")
    }

    pub(crate) fn is_linked(&self) -> bool {
        self.get().is_some()
    }

    pub(crate) fn install<'g>(&'g self, value: T, _guard: &'g Guard) -> Result<&'g T, T> {
        let new = Box::into_raw(Box::new(value));
        // ORDERING: see `order`.
        match self.to.compare_exchange(ptr::null_mut(), new, INSTALL, INSTALL_LOST) {
            // SAFETY: as in `get`.
            Ok(_) => Ok(unsafe { &*new }),
            // SAFETY: the box was created in this call, and no other thread has seen it.
            Err(_) => Err(*unsafe { Box::from_raw(new) }),
        }
    }

    pub(super) fn advance(&self, from: &T, next: &Self, _guard: &Guard, bag: &Bag) -> bool
    where
        T: Retire,
    {
        // ORDERING: see `order`.
        let to = next.to.load(LOAD);
        let from = ptr::from_ref(from).cast_mut();
        // ORDERING: see `order`.
        let advanced = !to.is_null() && self.to.compare_exchange(from, to, ADVANCE, ADVANCE_LOST).is_ok();
        if advanced {
            // SAFETY: the value came from a box, and only this call has unlinked it.
            unsafe { bag.retire(from) };
        }
        advanced
    }

    pub(super) fn free_all(&mut self, next: impl Fn(&T) -> &Self) {
        let take = |link: &Self| {
            // ORDERING: both sides of *taken apart*.
            let to = link.to.swap(ptr::null_mut(), AcqRel);
            // SAFETY: the pointer came from a box, and no other thread has the pointer.
            (!to.is_null()).then(|| unsafe { Box::from_raw(to) })
        };
        let mut value = take(self);
        while let Some(this) = value {
            value = take(next(&this));
        }
    }
}
