//! The kinds of limiters that a [`Builder`](crate::Builder) builds.
//!
//! | limiter | [`Rated`] | [`Keyed`] |
//! |---|---|---|
//! | [`Limiter`](crate::Limiter) | yes | yes |
//! | [`ClassLimiter`](crate::ClassLimiter) | yes | yes |
//! | [`SingleLimiter`](crate::SingleLimiter) | yes | |
//! | [`InFlight`](crate::InFlight) | | yes |
//!
//! No other type can be of these kinds. [`Sweepable`] is for all who have limiters of many keys.

/// Slots to sweep between two questions whether to go on: some ten microseconds.
pub(crate) const BUDGET: usize = 1024;

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

/// What a [`Sweeper`](crate::Sweeper) sweeps: a [`Limiter`](crate::Limiter), an
/// [`InFlight`](crate::InFlight), or all classes of a [`ClassLimiter`](crate::ClassLimiter).
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
    /// Forgets the keys that are idle, and gives memory back: [sweeps](crate::Limiter::sweep) until
    /// nothing is left to do, or until `goes_on` returns false, which it asks after each 1,024
    /// slots.
    fn sweep_while(&self, goes_on: &dyn Fn() -> bool);
}
