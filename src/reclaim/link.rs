//! Pointers to values that are replaced while other threads read them.

use super::bag::{Bag, Node, Retire};
use super::guard::Guard;
use super::order::{ADVANCE, ADVANCE_LOST, INSTALL, INSTALL_LOST, LOAD};
use super::participant::REGISTRY;
use crossbeam_epoch::{Atomic, Guard as Epoch, Owned as Boxed, Shared, unprotected};
use std::mem::offset_of;
use std::ops::Deref;

/// Null, or a pointer to a `T`, which is freed when no guard is left that may have seen it.
///
/// Links form chains: a *root*, in a value that is not retired itself, and a link inside each value
/// to the next. A root moves along its chain, from a value to the next one
/// ([`advance`](Self::advance)).
#[derive(Debug)]
pub(crate) struct Link<T>(Atomic<Node<T>>);

/// A value of a chain, which has a link to the next one.
pub(crate) trait Chained: Sized {
    fn next(&self) -> &Link<Self>;
}

/// A value that a walk from a root has come to, and the age in which it was linked.
#[derive(Debug)]
pub(crate) struct At<'g, T> {
    value: &'g T,
    /// One that the guard has announced.
    age: u64,
}

/// An age has ended since the root of a walk was loaded, so the next value may be freed. The walk
/// must begin again at the root.
#[derive(Debug)]
pub(crate) struct Stale;

/// Returns the guard that the pointers of crossbeam-epoch require. Its collector is not used.
#[allow(unsafe_code)]
#[inline(always)]
fn epoch() -> &'static Epoch {
    // SAFETY: nothing is deferred with it; our `Guard` keeps each value alive.
    unsafe { unprotected() }
}

#[allow(unsafe_code)]
impl<T> Link<T> {
    /// The bytes of a value and its header.
    pub(crate) const BYTES: usize = size_of::<Node<T>>();

    pub(crate) fn null() -> Self {
        Self(Atomic::null())
    }

    /// Makes a link to `value`, which no other thread has seen.
    pub(crate) fn to(value: T) -> Self {
        Self(Atomic::new(Node::new(value, REGISTRY.age_now())))
    }

    #[inline(always)]
    fn get(&self) -> Shared<'_, Node<T>> {
        // ORDERING: see `order`.
        self.0.load(LOAD, epoch())
    }

    /// Loads a root: returns the value that it points to.
    #[inline(always)]
    pub(crate) fn load<'g>(&'g self, guard: &'g Guard) -> Option<At<'g, T>> {
        let mut to = self.get();
        if guard.is_old() {
            to = guard.renewed(|| self.get());
        }
        // SAFETY: null, or a value that was linked in an age which the guard has announced.
        unsafe { to.as_ref() }.map(|node| At { value: &node.value, age: guard.age() })
    }

    /// Returns the value behind a link that was followed before.
    ///
    /// # Safety
    ///
    /// The link was followed under this guard, and was not null.
    #[inline]
    pub(crate) unsafe fn follow_again<'g>(&'g self, _guard: &'g Guard) -> &'g T {
        // SAFETY: by the contract of this function, the guard has announced an age in which the
        // value was linked.
        unsafe { &self.get().deref().value }
    }

    /// Returns whether the link is not null.
    pub(crate) fn is_linked(&self) -> bool {
        !self.get().is_null()
    }

    /// Makes a null link point to `value`. Returns the linked value, or `value` as an error if
    /// another thread was first.
    pub(crate) fn install<'g>(&'g self, value: T, guard: &'g Guard) -> Result<&'g T, T> {
        // Born in the guard's age, so that the guard covers it even if another thread retires it
        // immediately.
        let new = Boxed::new(Node::new(value, guard.age()));
        // ORDERING: see `order`.
        match self.0.compare_exchange(Shared::null(), new, INSTALL, INSTALL_LOST, epoch()) {
            // SAFETY: it was linked in an age that the guard has announced.
            Ok(new) => Ok(unsafe { &new.deref().value }),
            Err(lost) => Err(lost.new.into_box().value),
        }
    }

    /// Moves a root from `from` to the value behind it, and then retires `from`. Returns true to
    /// one caller for each value.
    pub(crate) fn advance(&self, from: &T, _guard: &Guard, bag: &Bag) -> bool
    where
        T: Chained + Retire,
    {
        let (first, second) = (self.get(), from.next().get());
        let value = first.as_raw().wrapping_byte_add(offset_of!(Node<T>, value)).cast::<T>();
        if second.is_null() || !std::ptr::eq(value, from) {
            return false;
        }
        // ORDERING: see `order`.
        let advanced = self.0.compare_exchange(first, second, ADVANCE, ADVANCE_LOST, epoch()).is_ok();
        if advanced {
            // SAFETY: it came from a box. This call alone has unlinked it: the root never leads
            // back, and the value is behind no other. The owner of a link drops the values behind
            // it, so any thread may.
            unsafe { bag.retire(first.as_raw().cast_mut()) };
        }
        advanced
    }

    /// Frees the value and all those behind it, for the owner. `next` is the link inside a value.
    pub(crate) fn free_all(&mut self, next: impl Fn(&mut T) -> &mut Self) {
        let mut link = std::mem::replace(&mut self.0, Atomic::null());
        // SAFETY: the owner has the link mutably, so no other thread can reach a value through it.
        while let Some(node) = unsafe { link.try_into_owned() } {
            let mut node = node.into_box();
            link = std::mem::replace(&mut next(&mut node.value).0, Atomic::null());
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

    #[inline(always)]
    fn deref(&self) -> &T {
        self.value
    }
}

impl<'g, T> At<'g, T> {
    #[inline(always)]
    pub(crate) fn get(self) -> &'g T {
        self.value
    }

    /// Goes to the next value of the chain, if there is one. [`Stale`] if an age has ended since
    /// the root was loaded.
    #[inline]
    #[allow(unsafe_code)]
    pub(crate) fn next(self) -> Result<Option<Self>, Stale>
    where
        T: Chained,
    {
        let to = self.value.next().get();
        if REGISTRY.age_now() != self.age {
            return Err(Stale);
        }
        // SAFETY: null, or a value that was linked behind one which was linked in this age. The
        // guard has announced the age, and is borrowed for as long as the value.
        Ok(unsafe { to.as_ref() }.map(|node| Self { value: &node.value, ..self }))
    }

    /// Continues a walk in the age in which its root was loaded again.
    ///
    /// # Safety
    ///
    /// The value is that of the root, or is still linked behind it.
    #[inline]
    #[allow(unsafe_code)]
    pub(crate) unsafe fn behind(self, root: Self) -> Self {
        Self { age: root.age, ..self }
    }
}
