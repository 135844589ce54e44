//! A pointer to something that is replaced while others read it, reclaimed when nobody does: see `readers`.

use super::order::{ADVANCE, ADVANCE_LOST, INSTALL, INSTALL_LOST, LOAD};
use super::readers::Guard;
use crossbeam_epoch::{Atomic, Guard as Epoch, Owned, Shared, unprotected};

/// Null or a pointer to a `T`. What it pointed to is freed when no guard that may have seen it is left.
///
/// | edge | release side | acquire side | what becomes visible | loom test that fails if it is weakened |
/// |---|---|---|---|---|
/// | link | `install`, `advance` | `load`, `install` that was not first | all that was done to the value before it was linked | `retire_races_a_reader_and_frees_nothing_under_its_guard`, `retire_races_retire_and_each_value_is_freed_once` |
#[derive(Debug)]
pub(crate) struct Link<T>(Atomic<T>);

#[allow(unsafe_code)]
impl<T> Link<T> {
    /// What crossbeam-epoch wants to see where a pointer is read.
    #[inline(always)]
    fn epoch(_guard: &Guard) -> &Epoch {
        // SAFETY: with it, links are loaded and compared, and nothing is retired; what is read lives as long as the guard.
        unsafe { unprotected() }
    }

    pub(crate) fn null() -> Self {
        Self(Atomic::null())
    }

    pub(crate) fn to(value: T) -> Self {
        Self(Atomic::new(value))
    }

    #[inline]
    pub(crate) fn load<'g>(&self, guard: &'g Guard) -> Option<&'g T> {
        // ORDERING: see `order`.
        let to = self.0.load(LOAD, Self::epoch(guard));
        // SAFETY: null, or a value that is freed only after `guard` is dropped: `advance` retires it.
        unsafe { to.as_ref() }
    }

    /// Makes a null link point to `value`, unless another thread was first; what it points to, and
    /// whether that is `value`.
    pub(crate) fn install<'g>(&self, value: T, guard: &'g Guard) -> (&'g T, bool) {
        // ORDERING: see `order`.
        match self.0.compare_exchange(
            Shared::null(),
            Owned::new(value),
            INSTALL,
            INSTALL_LOST,
            Self::epoch(guard),
        ) {
            // SAFETY: just linked, and freed only after `guard` is dropped.
            Ok(new) => (unsafe { new.deref() }, true),
            // SAFETY: not null, since null is what was expected; freed only after `guard` is dropped.
            Err(lost) => (unsafe { lost.current.deref() }, false),
        }
    }

    /// Makes a null link point to what `other` points to, which is null from then on, unless another thread was
    /// first; true if not.
    pub(crate) fn install_from(&self, other: &mut Self, guard: &Guard) -> bool {
        let Some(value) = other.take() else { return false };
        // ORDERING: see `order`.
        let linked = self.0.compare_exchange(
            Shared::null(),
            Owned::from(value),
            INSTALL,
            INSTALL_LOST,
            Self::epoch(guard),
        );
        let lost = linked.map(|_| ()).map_err(|lost| lost.new);
        match lost {
            Ok(()) => true,
            Err(value) => {
                other.0 = Atomic::from(value);
                false
            }
        }
    }

    /// Makes it point to `to` if it points to `from`, which is then freed when no guard needs it.
    pub(crate) fn advance(&self, from: &T, to: &T, guard: &Guard) -> bool
    where
        T: Send + 'static,
    {
        let (from, to) = (Shared::from(std::ptr::from_ref(from)), Shared::from(std::ptr::from_ref(to)));
        // ORDERING: see `order`.
        let advanced = self.0.compare_exchange(from, to, ADVANCE, ADVANCE_LOST, Self::epoch(guard)).is_ok();
        if advanced {
            // SAFETY: it came from a box, and was unlinked by this call alone, so it is retired once and no new guard can
            // reach it. Whoever has a link drops what it leads to, so any thread may.
            unsafe { guard.retire(from.as_raw().cast_mut()) };
        }
        advanced
    }

    /// What it points to, for the owner.
    pub(crate) fn take(&mut self) -> Option<Box<T>> {
        let owned = std::mem::replace(&mut self.0, Atomic::null());
        // SAFETY: `&mut self`: nobody else can reach it through this link.
        unsafe { owned.try_into_owned() }.map(Owned::into_box)
    }
}
