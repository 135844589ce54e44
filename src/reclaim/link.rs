//! Pointers to values that are replaced while others read them.

use super::bag::{Bag, Node, Retire};
use super::guard::Guard;
use super::order::{ADVANCE, ADVANCE_LOST, INSTALL, INSTALL_LOST, LOAD};
use super::participant::REGISTRY;
use crossbeam_epoch::{Atomic, Guard as Epoch, Owned as Boxed, Shared, unprotected};
use std::mem::offset_of;
use std::ops::{Deref, DerefMut};

/// An age has ended since the guard was announced: what a link inside a value leads to may be freed. Begin
/// again at a link that no guard protects.
#[derive(Debug)]
pub(crate) struct Stale;

/// Null, or a pointer to a `T`. What it has led to is freed when no guard is left that may have seen it.
///
/// Links form chains: a *root*, in what is not retired itself, and the link inside each value to the next.
/// A root moves along its chain, from a value to the next one ([`advance`](Self::advance)).
#[derive(Debug)]
pub(crate) struct Link<T>(Atomic<Node<T>>);

/// A value that was taken out of its link by the owner.
#[derive(Debug)]
pub(crate) struct Owned<T>(Box<Node<T>>);

impl<T> Deref for Owned<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0.value
    }
}

impl<T> DerefMut for Owned<T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.0.value
    }
}

/// What crossbeam-epoch wants to see where a pointer is loaded or stored. Its own guards are not used.
#[allow(unsafe_code)]
#[inline(always)]
fn epoch() -> &'static Epoch {
    // SAFETY: nothing is deferred with it; `Guard` says how long a value is there.
    unsafe { unprotected() }
}

#[allow(unsafe_code)]
impl<T> Link<T> {
    /// The bytes of a value with what stands before it.
    pub(crate) const BYTES: usize = size_of::<Node<T>>();

    pub(crate) fn null() -> Self {
        Self(Atomic::null())
    }

    /// A link that leads to `value`, which nobody else has seen.
    pub(crate) fn to(value: T) -> Self {
        Self(Atomic::new(Node::new(value, REGISTRY.age_now())))
    }

    #[inline(always)]
    fn get(&self) -> Shared<'_, Node<T>> {
        // ORDERING: see `order`.
        self.0.load(LOAD, epoch())
    }

    /// What a root leads to.
    #[inline(always)]
    pub(crate) fn load<'g>(&'g self, guard: &'g Guard) -> Option<&'g T> {
        let mut to = self.get();
        if guard.is_old() {
            to = guard.renewed(|| self.get());
        }
        // SAFETY: null, or a value that was linked in an age which the guard has announced.
        unsafe { to.as_ref() }.map(|node| &node.value)
    }

    /// What a link leads to that is inside a value, which was loaded under this guard.
    #[inline]
    pub(crate) fn follow<'g>(&'g self, guard: &'g Guard) -> Result<Option<&'g T>, Stale> {
        let to = self.get();
        if guard.is_old() {
            return Err(Stale);
        }
        // SAFETY: null, or a value that was linked behind one which was still linked when the guard announced
        // this age.
        Ok(unsafe { to.as_ref() }.map(|node| &node.value))
    }

    /// What a link leads to that was followed before.
    ///
    /// # Safety
    ///
    /// It was followed under this guard, and was not null.
    #[inline]
    pub(crate) unsafe fn follow_again<'g>(&'g self, _guard: &'g Guard) -> &'g T {
        // SAFETY: the caller's: the guard has announced an age in which the value was linked.
        unsafe { &self.get().deref().value }
    }

    /// Does it lead to anything?
    pub(crate) fn is_linked(&self) -> bool {
        !self.get().is_null()
    }

    /// Makes a null link lead to `value`; what it leads to then, or `None` if another thread was first.
    pub(crate) fn install<'g>(&'g self, value: T, guard: &'g Guard) -> Option<&'g T> {
        // The guard covers it so, when another thread retires it at once.
        let new = Boxed::new(Node::new(value, guard.age()));
        // ORDERING: see `order`.
        let installed = self.0.compare_exchange(Shared::null(), new, INSTALL, INSTALL_LOST, epoch());
        // SAFETY: linked in an age that the guard has announced.
        installed.ok().map(|new| unsafe { &new.deref().value })
    }

    /// Makes a null link lead to what `other` leads to, which is null from then on; false if another thread
    /// was first.
    pub(crate) fn install_from(&self, other: &mut Self) -> bool {
        let Some(Owned(value)) = other.take() else { return false };
        // ORDERING: see `order`.
        match self.0.compare_exchange(Shared::null(), Boxed::from(value), INSTALL, INSTALL_LOST, epoch()) {
            Ok(_) => true,
            Err(lost) => {
                other.0 = Atomic::from(lost.new);
                false
            }
        }
    }

    /// Makes a root that leads to `from` lead to what is behind it, at `next`, and retires `from` then. True
    /// of one caller for each value.
    pub(crate) fn advance(&self, from: &T, next: &Self, guard: &Guard, bag: &Bag) -> bool
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
            // SAFETY: it came from a box. This call alone has unlinked it: the root never leads back, and the value is behind
            // no other. Whoever has a link drops what it leads to, so any thread may.
            unsafe { bag.retire(first.as_raw().cast_mut(), guard) };
        }
        advanced
    }

    /// What it leads to, for the owner.
    pub(crate) fn take(&mut self) -> Option<Owned<T>> {
        let owned = std::mem::replace(&mut self.0, Atomic::null());
        // SAFETY: `&mut self`: nobody else can reach it through this link.
        unsafe { owned.try_into_owned() }.map(|node| Owned(node.into_box()))
    }
}
