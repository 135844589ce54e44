//! Chains: a root, which is loaded under a guard, and the values that are linked behind each other.

use super::bag::{Bag, Retire};
use super::guard::{Guard, Retry, pin};
use super::link::Link;
use std::ops::Deref;
use std::ptr;

/// A value of a chain, which has a link to the next one.
pub(crate) trait Chained: Sized {
    fn next(&self) -> &Link<Self>;
}

/// The beginning of a chain: null, or a link to its first value. It moves along the chain, from a
/// value to the next one ([`advance`](Self::advance)), and owns the values that are left.
#[derive(Debug)]
pub(crate) struct Root<T: Chained>(Link<T>);

/// A value of a chain that a walk from the root has come to under a guard.
#[derive(Debug)]
pub(crate) struct At<'g, T> {
    value: &'g T,
    guard: &'g Guard,
}

/// The values of a chain from one to another that a walk has come to, both included. They can be
/// read again under the same guard, whatever has become of the chain.
#[derive(Debug)]
pub(crate) struct Walked<'g, T> {
    first: At<'g, T>,
    last: At<'g, T>,
}

/// Calls `attempt`, each time under a guard of its own, until it does not ask to [`Retry`]. So a
/// thread that is stopped in it, at any time, keeps no more than what was in use at one moment.
///
/// Lock-free, if `attempt` is: it is called again if a collection has begun meanwhile, or if
/// `attempt` finds that another thread has changed what it has seen.
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

    /// Makes a root of `first`, which no other thread has seen, and all that is linked behind it.
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
    /// another thread was first.
    pub(crate) fn install<'g>(&'g self, first: T, guard: &'g Guard) -> Result<&'g T, T> {
        self.0.install(first, guard)
    }

    /// Moves the root from `from` to the value behind it, and then retires `from`. Returns true to
    /// one caller for each value.
    pub(crate) fn advance(&self, from: &T, guard: &Guard, bag: &Bag) -> bool
    where
        T: Retire,
    {
        self.0.advance(from, from.next(), guard, bag)
    }
}

/// In a loop, because a chain may be long.
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
    /// Goes to the next value of the chain, if there is one. [`Retry`] if the era of the guard has
    /// ended.
    #[inline]
    pub(crate) fn next(self) -> Result<Option<Self>, Retry> {
        // The walk has come here from the root in the era of the guard.
        Ok(self.value.next().follow(self.guard)?.map(|value| Self { value, ..self }))
    }
}

impl<'g, T: Chained> Walked<'g, T> {
    /// Begins a walk, which has come to one value.
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

    /// Goes to the value behind the last, and returns it if there is one. [`Retry`] if the era of
    /// the guard has ended.
    #[inline]
    pub(crate) fn go_on(&mut self) -> Result<Option<&'g T>, Retry> {
        let next = self.last.next()?;
        self.last = next.unwrap_or(self.last);
        Ok(next.map(At::get))
    }

    /// Leaves out all but the last.
    #[inline]
    pub(crate) fn begin_at_last(&mut self) {
        self.first = self.last;
    }

    /// Returns the values without the first; `None` if that is the last, too.
    #[inline]
    pub(crate) fn behind_first(self) -> Option<Self> {
        if ptr::eq(self.first.value, self.last.value) {
            return None;
        }
        let guard = self.first.guard;
        // SAFETY: the walk has gone on from the first value to the last, so it has followed this
        // link under this guard.
        #[allow(unsafe_code)]
        let value = unsafe { self.first.value.next().follow_again(guard) };
        Some(Self { first: At { value, guard }, ..self })
    }

    pub(crate) fn iter(self) -> impl Iterator<Item = &'g T> {
        std::iter::successors(Some(self), |rest| rest.behind_first()).map(Self::first)
    }
}
