//! Chains of values. A root, which is loaded under a guard, points to the first value, and each
//! value links to the next one.

use super::bag::{Bag, Retire};
use super::guard::{Guard, Retry, pin};
use super::link::Link;
use std::ops::Deref;
use std::ptr;

/// A value in a chain, with a link to the next value.
pub(crate) trait Chained: Sized {
    fn next(&self) -> &Link<Self>;
}

/// The start of a chain: null, or a link to the first value. The root can move from a value to the
/// next value ([`advance`](Self::advance)). The root owns the first value and all values behind it.
#[derive(Debug)]
pub(crate) struct Root<T: Chained>(Link<T>);

/// A value in a chain, reached by a walk from the root under a guard.
#[derive(Debug)]
pub(crate) struct Followed<'g, T> {
    value: &'g T,
    guard: &'g Guard,
}

/// A range of consecutive values in a chain, all of which a walk has reached. The walk can read
/// these values again under the same guard, even if the chain has changed since.
#[derive(Debug)]
pub(crate) struct Walked<'g, T> {
    first: Followed<'g, T>,
    last: Followed<'g, T>,
}

/// Calls `attempt`, each time under a new guard, until it returns something other than [`Retry`].
/// Therefore a thread that stops anywhere in `attempt` keeps no more memory than was in use at one
/// moment.
///
/// This function is lock-free if `attempt` is. `attempt` is called again only if a collection has
/// started in the meantime, or if another thread has changed a value that `attempt` had read.
#[inline(always)]
pub(crate) fn under_guard<T>(mut attempt: impl FnMut(&Guard) -> Result<T, Retry>) -> T {
    loop {
        if let Ok(done) = attempt(&pin()) {
            return done;
        }
    }
}

impl<T: Chained> Root<T> {
    pub(crate) fn null() -> Self {
        Self(Link::null())
    }

    /// Creates a root that points to `first` and owns all values behind it. No other thread may
    /// have seen `first`.
    pub(crate) fn to(first: T) -> Self {
        Self(Link::to(first))
    }

    /// Returns the first value, if there is one. Returns [`Retry`] if the guard's era has ended.
    #[inline(always)]
    pub(crate) fn load<'g>(&'g self, guard: &'g Guard) -> Result<Option<Followed<'g, T>>, Retry> {
        Ok(self.0.follow(guard)?.map(|value| Followed { value, guard }))
    }

    /// Returns whether the root has a value. A root that has a value never becomes null again.
    pub(crate) fn is_linked(&self) -> bool {
        self.0.is_linked()
    }

    /// Makes a null root point to `first`. Returns the linked value, or `first` as an error if
    /// another thread has installed a value first.
    pub(crate) fn install<'g>(&'g self, first: T, guard: &'g Guard) -> Result<&'g T, T> {
        self.0.install(first, guard)
    }

    /// Moves the root from `from` to the value behind `from`, and then retires `from`. For each
    /// value, exactly one call returns true.
    pub(crate) fn advance(&self, from: &T, guard: &Guard, bag: &Bag) -> bool
    where
        T: Retire,
    {
        self.0.advance(from, from.next(), guard, bag)
    }
}

/// Frees the values in a loop, because a chain may be long.
impl<T: Chained> Drop for Root<T> {
    fn drop(&mut self) {
        self.0.free_all(T::next);
    }
}

impl<T> Clone for Followed<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Followed<'_, T> {}

impl<T> Clone for Walked<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Walked<'_, T> {}

impl<T> Deref for Followed<'_, T> {
    type Target = T;

    #[inline(always)]
    fn deref(&self) -> &T {
        self.value
    }
}

impl<'g, T> Followed<'g, T> {
    #[inline(always)]
    pub(crate) fn get(self) -> &'g T {
        self.value
    }
}

impl<T: Chained> Followed<'_, T> {
    /// Returns the next value in the chain, if there is one. Returns [`Retry`] if the guard's era
    /// has ended.
    #[inline]
    pub(crate) fn next(self) -> Result<Option<Self>, Retry> {
        // The walk has reached this value from the root in the guard's era.
        Ok(self.value.next().follow(self.guard)?.map(|value| Self { value, ..self }))
    }
}

impl<'g, T: Chained> Walked<'g, T> {
    /// Starts a walk at one value.
    pub(crate) fn from(first: Followed<'g, T>) -> Self {
        Self { first, last: first }
    }

    #[inline(always)]
    pub(crate) fn first(self) -> &'g T {
        self.first.value
    }

    #[inline(always)]
    pub(crate) fn last(self) -> &'g T {
        self.last.value
    }

    /// Extends the range by the value after the last one, and returns the new last value. Returns
    /// `None` if there is no such value, and [`Retry`] if the guard's era has ended.
    #[inline]
    pub(crate) fn go_on(&mut self) -> Result<Option<&'g T>, Retry> {
        let next = self.last.next()?;
        self.last = next.unwrap_or(self.last);
        Ok(next.map(Followed::get))
    }

    /// Removes all values except the last from the range.
    #[inline]
    pub(crate) fn begin_at_last(&mut self) {
        self.first = self.last;
    }

    /// Returns the range without its first value, or `None` if the first value is also the last.
    #[inline]
    pub(crate) fn behind_first(self) -> Option<Self> {
        if ptr::eq(self.first.value, self.last.value) {
            return None;
        }
        let guard = self.first.guard;
        // SAFETY: the walk has continued from the first value to the last value, so the walk has
        // followed this link under this guard.
        #[allow(unsafe_code)]
        let value = unsafe { self.first.value.next().follow_again(guard) };
        Some(Self { first: Followed { value, guard }, ..self })
    }

    pub(crate) fn iter(self) -> impl Iterator<Item = &'g T> {
        std::iter::successors(Some(self), |rest| rest.behind_first()).map(Self::first)
    }
}
