//! The kinds of limiters that a [`Builder`](crate::Builder) builds.
//!
//! | limiter | [`Rated`] | [`Keyed`] |
//! |---|---|---|
//! | [`Limiter`] | yes | yes |
//! | [`ClassLimiter`] | yes | yes |
//! | [`SingleLimiter`] | yes | |
//! | [`InFlight`] | | yes |
//!
//! No other type can be of these kinds. [`Sweepable`] is for all who have limiters of many keys.

use super::classes::ClassLimiter;
use super::in_flight::InFlight;
use super::keyed::Limiter;
use super::single::SingleLimiter;
use super::store::Store;

/// Slots to sweep between two questions whether to go on: some ten microseconds.
const BUDGET: usize = 1024;

/// A limiter that has a builder.
pub trait Kind {
    /// The hash of its keys.
    #[doc(hidden)]
    type Hash;
}

/// A limiter that enforces a rate.
pub trait Rated: Kind {}

/// A limiter of many keys.
pub trait Keyed: Kind + Sweepable {}

/// What a [`Sweeper`](crate::Sweeper) sweeps: a [`Limiter`], an [`InFlight`], or all classes of a
/// [`ClassLimiter`].
///
/// Implement it for a type of your own that holds several limiters.
///
/// ```
/// use tollgate::Limiter;
/// use tollgate::kind::Sweepable;
///
/// struct Limits {
///     by_user: Limiter<u64>,
///     by_address: Limiter<[u8; 4]>,
/// }
///
/// impl Sweepable for Limits {
///     fn sweep_while(&self, goes_on: &dyn Fn() -> bool) {
///         self.by_user.sweep_while(goes_on);
///         self.by_address.sweep_while(goes_on);
///     }
/// }
/// ```
pub trait Sweepable {
    /// Forgets the keys that are idle, and gives memory back: [sweeps](Limiter::sweep) until
    /// nothing is left to do, or until `goes_on` returns false, which it asks after each 1,024
    /// slots.
    fn sweep_while(&self, goes_on: &dyn Fn() -> bool);
}

impl<K: ?Sized, S: Store> Kind for Limiter<K, S> {
    type Hash = S::Hash;
}

impl<K: ?Sized, S: Store> Kind for ClassLimiter<K, S> {
    type Hash = S::Hash;
}

impl<K: ?Sized, S: Store> Kind for InFlight<K, S> {
    type Hash = S::Hash;
}

impl Kind for SingleLimiter {
    type Hash = ();
}

impl<K: ?Sized, S: Store> Rated for Limiter<K, S> {}

impl<K: ?Sized, S: Store> Rated for ClassLimiter<K, S> {}

impl Rated for SingleLimiter {}

impl<K: ?Sized, S: Store> Keyed for Limiter<K, S> {}

impl<K: ?Sized, S: Store> Keyed for ClassLimiter<K, S> {}

impl<K: ?Sized, S: Store> Keyed for InFlight<K, S> {}

impl<K: ?Sized, S: Store> Sweepable for Limiter<K, S> {
    fn sweep_while(&self, goes_on: &dyn Fn() -> bool) {
        while goes_on() && self.sweep(BUDGET) {}
    }
}

impl<K: ?Sized, S: Store> Sweepable for ClassLimiter<K, S> {
    fn sweep_while(&self, goes_on: &dyn Fn() -> bool) {
        self.classes().for_each(|(_, class)| class.sweep_while(goes_on));
    }
}

impl<K: ?Sized, S: Store> Sweepable for InFlight<K, S> {
    fn sweep_while(&self, goes_on: &dyn Fn() -> bool) {
        while goes_on() && self.sweep(BUDGET) {}
    }
}
