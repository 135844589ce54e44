//! Pointers to values that can be replaced while other threads read them.

use super::bag::{Bag, Node, Retire};
use super::coin;
use super::guard::{Guard, REGISTRY, Retry};
use super::order::{ADVANCE, ADVANCE_LOST, INSTALL, INSTALL_LOST, LOAD};
use crossbeam_epoch::{Atomic, Guard as Epoch, Owned as Boxed, Shared, unprotected};
use std::mem::offset_of;

/// Null, or a pointer to a `T`. The value is freed once no remaining guard may have seen it.
///
/// A [`Root`](super::Root) links to the first value of its chain, and each value links to the next
/// value.
#[derive(Debug)]
pub(crate) struct Link<T>(Atomic<Node<T>>);

/// Returns the guard that crossbeam-epoch's pointers require. crossbeam-epoch's collector is not
/// used.
#[allow(unsafe_code)]
#[inline(always)]
fn epoch() -> &'static Epoch {
    // SAFETY: nothing is deferred with this guard, and the `Guard` of this module keeps each value
    // alive.
    unsafe { unprotected() }
}

#[allow(unsafe_code)]
impl<T> Link<T> {
    /// The size in bytes of a value and its header.
    pub(crate) const BYTES: usize = size_of::<Node<T>>();

    pub(crate) fn null() -> Self {
        Self(Atomic::null())
    }

    /// Creates a link to `value`. No other thread may have seen `value`.
    pub(crate) fn to(value: T) -> Self {
        Self(Atomic::new(Node::new(value, REGISTRY.era_now())))
    }

    #[inline(always)]
    fn get(&self) -> Shared<'_, Node<T>> {
        // ORDERING: see `order`.
        self.0.load(LOAD, epoch())
    }

    /// Returns the value that the link points to, if there is one. Returns [`Retry`] if the guard's
    /// era has ended. The link must belong to a root, or to a value that was reached from the root
    /// under this guard.
    #[inline(always)]
    pub(super) fn follow<'g>(&'g self, guard: &'g Guard) -> Result<Option<&'g T>, Retry> {
        let to = self.get();
        if guard.is_old() || coin::asks_to_retry() {
            return Err(Retry);
        }
        // SAFETY: the pointer is null, or points to a value that is linked in the guard's era. The
        // guard is held for as long as the value is borrowed.
        Ok(unsafe { to.as_ref() }.map(|node| &node.value))
    }

    /// Returns the value behind a link that was already followed.
    ///
    /// # Safety
    ///
    /// The link must already have been followed under this guard, with a result other than null.
    #[inline]
    pub(super) unsafe fn follow_again<'g>(&'g self, _guard: &'g Guard) -> &'g T {
        // SAFETY: by the contract of this function, the value was linked in the guard's era.
        unsafe { &self.get().deref().value }
    }

    /// Returns whether the link is not null.
    pub(crate) fn is_linked(&self) -> bool {
        !self.get().is_null()
    }

    /// Makes a null link point to `value`. Returns the linked value, or `value` as an error if
    /// another thread got there first.
    pub(crate) fn install<'g>(&'g self, value: T, guard: &'g Guard) -> Result<&'g T, T> {
        // The value is born in the guard's era. Therefore the guard covers the value even if
        // another thread retires it immediately.
        let new = Boxed::new(Node::new(value, guard.era()));
        // ORDERING: see `order`.
        match self.0.compare_exchange(Shared::null(), new, INSTALL, INSTALL_LOST, epoch()) {
            // SAFETY: the value was born in the guard's era.
            Ok(new) => Ok(unsafe { &new.deref().value }),
            Err(lost) => Err(lost.new.into_box().value),
        }
    }

    /// Moves the link of a root from `from` to the value behind `from`, and then retires `from`.
    /// `next` is the link inside `from`. For each value, exactly one call returns true.
    pub(super) fn advance(&self, from: &T, next: &Self, _guard: &Guard, bag: &Bag) -> bool
    where
        T: Retire,
    {
        let (first, second) = (self.get(), next.get());
        let value = first.as_raw().wrapping_byte_add(offset_of!(Node<T>, value)).cast::<T>();
        if second.is_null() || !std::ptr::eq(value, from) {
            return false;
        }
        // ORDERING: see `order`.
        let advanced = self.0.compare_exchange(first, second, ADVANCE, ADVANCE_LOST, epoch()).is_ok();
        if advanced {
            // SAFETY: the node came from a box. Only this call has unlinked the node, because the
            // root never moves back and no other link points to the value. The owner of a link
            // drops the values behind the link, so any thread may drop these values.
            unsafe { bag.retire(first.as_raw().cast_mut()) };
        }
        advanced
    }

    /// Frees the value and all values behind it. Only the owner of the chain may call this method.
    /// `next` returns the link inside a value.
    pub(super) fn free_all(&mut self, next: impl Fn(&T) -> &Self) {
        let mut link = std::mem::replace(&mut self.0, Atomic::null());
        // SAFETY: the owner borrows the link mutably, so no other thread can reach a value through
        // the link.
        while let Some(node) = unsafe { link.try_into_owned() } {
            link = Atomic::from(next(&node.value).get());
        }
    }
}
