//! Chains: a root, which is loaded under a guard, and values that are linked one behind the other.

use super::bag::{Bag, Retire};
use super::guard::{Guard, Retry, pin};
use super::link::Link;
use std::ops::Deref;
use std::ptr;

/// A value of a chain, which has a link to the next one.
pub(crate) trait Chained: Sized {
    fn next(&self) -> &Link<Self>;
}

/// The beginning of a chain: null, or a link to the first value. The root moves along the chain,
/// from a value to the next one ([`advance`](Self::advance)), and owns the first value and all
/// values behind it.
#[derive(Debug)]
pub(crate) struct Root<T: Chained>(Link<T>);

/// A value of a chain that a walk from the root has reached under a guard.
#[derive(Debug)]
pub(crate) struct At<'g, T> {
    value: &'g T,
    guard: &'g Guard,
}

/// The values of a chain that a walk has reached, from one value to another, both included. They
/// can be read again under the same guard, however the chain has changed since.
#[derive(Debug)]
pub(crate) struct Walked<'g, T> {
    first: At<'g, T>,
    last: At<'g, T>,
}

/// Calls `attempt`, each time under a new guard, until it does not return [`Retry`]. A thread that
/// is stopped in `attempt`, at any time, therefore keeps no more than what was in use at one
/// moment.
///
/// This function is lock-free if `attempt` is. It calls `attempt` again only if a collection has
/// begun meanwhile, or if `attempt` finds that another thread has changed a value that it has read.
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

    /// Makes a root that points to `first`, which no other thread has seen, and owns all values
    /// behind `first`.
    pub(crate) fn to(first: T) -> Self {
        Self(Link::to(first))
    }

    /// Returns the first value, if there is one. [`Retry`] if the era of the guard has ended.
    #[inline(always)]
    pub(crate) fn load<'g>(&'g self, guard: &'g Guard) -> Result<Option<At<'g, T>>, Retry> {
        Ok(self.0.follow(guard)?.map(|value| At { value, guard }))
    }

    /// Returns whether there is a value. Once there is, there always will be one.
    pub(crate) fn is_linked(&self) -> bool {
        self.0.is_linked()
    }

    /// Makes a null root point to `first`. Returns the linked value, or `first` as an error if
    /// another thread was faster.
    pub(crate) fn install<'g>(&'g self, first: T, guard: &'g Guard) -> Result<&'g T, T> {
        self.0.install(first, guard)
    }

    /// Moves the root from `from` to the value behind `from`, and then retires `from`. Returns true
    /// to exactly one caller for each value.
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

impl<T> Clone for At<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for At<'_, T> {}

impl<T> Clone for Walked<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Walked<'_, T> {}

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
}

impl<T: Chained> At<'_, T> {
    /// Returns the next value of the chain, if there is one. [`Retry`] if the era of the guard has
    /// ended.
    #[inline]
    pub(crate) fn next(self) -> Result<Option<Self>, Retry> {
        // The walk has reached this value from the root in the era of the guard.
        Ok(self.value.next().follow(self.guard)?.map(|value| Self { value, ..self }))
    }
}

impl<'g, T: Chained> Walked<'g, T> {
    /// Begins a walk, which has reached one value.
    pub(crate) fn from(first: At<'g, T>) -> Self {
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

    /// Continues to the value behind the last, and returns it if there is one. [`Retry`] if the era
    /// of the guard has ended.
    #[inline]
    pub(crate) fn go_on(&mut self) -> Result<Option<&'g T>, Retry> {
        let next = self.last.next()?;
        self.last = next.unwrap_or(self.last);
        Ok(next.map(At::get))
    }

    /// Drops all values but the last from the range.
    #[inline]
    pub(crate) fn begin_at_last(&mut self) {
        self.first = self.last;
    }

    /// Returns the values without the first. `None` if the first value is also the last.
    #[inline]
    pub(crate) fn behind_first(self) -> Option<Self> {
        if ptr::eq(self.first.value, self.last.value) {
            return None;
        }
        let guard = self.first.guard;
        // SAFETY: the walk has continued from the first value to the last, so it has followed this
        // link under this guard.
        #[allow(unsafe_code)]
        let value = unsafe { self.first.value.next().follow_again(guard) };
        Some(Self { first: At { value, guard }, ..self })
    }

    pub(crate) fn iter(self) -> impl Iterator<Item = &'g T> {
        std::iter::successors(Some(self), |rest| rest.behind_first()).map(Self::first)
    }
}
