//! The kinds of limiters that a [`Builder`](crate::Builder) builds.
//!
//! | limiter | [`Limit`](Kind::Limit) | has many keys ([`Sweepable`]) |
//! |---|---|---|
//! | [`Limiter`](crate::Limiter) | a [`Quota`](crate::Quota) | yes |
//! | [`ClassLimiter`](crate::ClassLimiter) | a [`Quota`](crate::Quota) | yes |
//! | [`SingleLimiter`](crate::SingleLimiter) | a [`Quota`](crate::Quota) | no |
//! | [`InFlight`](crate::InFlight) | a number of permits, as a `u64` | yes |
//!
//! Only these limiters have builders. [`Sweepable`] can be implemented for any type that contains
//! limiters for many keys.

/// How many slots to sweep between two calls to `goes_on`. Sweeping this many slots takes about ten
/// microseconds.
pub(crate) const BUDGET: usize = 1024;

/// A limiter that has a builder.
pub trait Kind {
    /// The limit that the limiter enforces. It determines which settings the
    /// [`Builder`](crate::Builder) has: an algorithm enforces only a quota, for example.
    type Limit;
    /// The hash of the limiter's keys.
    #[doc(hidden)]
    type Hash;
}

/// A type that a [`Sweeper`](crate::Sweeper) can sweep: a [`Limiter`](crate::Limiter), an
/// [`InFlight`](crate::InFlight), or all classes of a [`ClassLimiter`](crate::ClassLimiter).
///
/// Implement this trait for your own types that contain several limiters.
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
    /// Forgets idle keys and frees their memory. This method [sweeps](crate::Limiter::sweep) until
    /// nothing is left to sweep, or until `goes_on` returns false. It calls `goes_on` once per
    /// 1,024 slots.
    fn sweep_while(&self, goes_on: &dyn Fn() -> bool);
}
