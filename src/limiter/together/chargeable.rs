//! Limits that can be charged, alone or together with others. Such a limit is a limiter for one
//! resource, or one key of a limiter.

use super::look::Look;
use crate::decision::Decision;
use crate::limiter::time_of::OwnClock;
use std::marker::PhantomData;
use std::sync::Arc;

/// A limit that [`check_all`](crate::check_all) and [`Reservation`](crate::Reservation) can charge.
/// It is a [`SingleLimiter`](crate::SingleLimiter), one key of a [`Limiter`](crate::Limiter)
/// ([`Limiter::for_key`](crate::Limiter::for_key)), or either of them at a time passed by the
/// caller ([`At`](crate::At)).
///
/// Other types may implement this trait. The guarantees of `check_all` then depend on the
/// implementation: `check_n` must charge either the whole cost or nothing, `peek_n` must charge
/// nothing, and `refund_n` must return the tokens that `check_n` has charged.
///
/// ```
/// use tollgate::{Chargeable, Decision, Look, Quota, SingleLimiter};
///
/// /// A limiter that counts in kilobytes. Its costs are given in bytes.
/// struct Bytes(SingleLimiter);
///
/// impl Chargeable for Bytes {
///     fn check_n(&self, cost: u64) -> Decision {
///         // `self.0.check_n` may spend a lease (see `Builder::core_leases`), whose refund may
///         // have no effect.
///         Chargeable::check_n(&self.0, cost.div_ceil(1_000))
///     }
///
///     fn peek_n(&self, cost: u64) -> Decision {
///         self.0.peek_n(cost.div_ceil(1_000))
///     }
///
///     fn refund_n(&self, decision: &Decision, tokens: u64) {
///         self.0.refund_n(decision, tokens / 1_000);
///     }
///
///     // With this method, `check_all` computes the charge only once.
///     fn look<'m>(&'m self, cost: u64, look: &mut Look<'m>) {
///         Chargeable::look(&self.0, cost.div_ceil(1_000), look);
///     }
/// }
///
/// let upload = Bytes(SingleLimiter::builder(Quota::per_hour(2)).build()?);
/// assert!(upload.check_n(1_500).is_allowed());
/// assert!(!upload.check().is_allowed());
/// # Ok::<(), tollgate::ConfigError>(())
/// ```
pub trait Chargeable {
    /// Charges either `cost` tokens or none, like [`Limiter::check_n`](crate::Limiter::check_n).
    fn check_n(&self, cost: u64) -> Decision;
    /// Returns the answer that [`check_n`](Self::check_n) would give now. Charges nothing.
    fn peek_n(&self, cost: u64) -> Decision;
    /// Refunds at most `tokens` of a charge, like [`Limiter::refund_n`](crate::Limiter::refund_n).
    /// `decision` is the result of the check that made the charge.
    fn refund_n(&self, decision: &Decision, tokens: u64);
    /// Charges either one token or none, like [`Limiter::check`](crate::Limiter::check).
    fn check(&self) -> Decision {
        self.check_n(1)
    }
    /// Returns the answer that [`check`](Self::check) would give now. Charges nothing.
    fn peek(&self) -> Decision {
        self.peek_n(1)
    }
    /// Refunds all tokens of a charge, like [`Limiter::refund`](crate::Limiter::refund). `decision`
    /// is the result of the check that made the charge.
    fn refund(&self, decision: &Decision) {
        self.refund_n(decision, u64::MAX);
    }
    /// Charges `tokens` that are already spent, like [`Limiter::force`](crate::Limiter::force), and
    /// returns how many were charged. The default implementation allows no debt. It charges all of
    /// the tokens, or none if they do not fit.
    fn force(&self, tokens: u64) -> u64 {
        self.check_n(tokens).charged()
    }
    /// Looks at the state before a charge, and records in `look` how a charge of `cost` would
    /// change the state. [`check_all`](crate::check_all) first looks at all limits, and then makes
    /// the recorded charges.
    ///
    /// A type that wraps a limiter passes `look` on to the limiter, with the cost that
    /// [`check_n`](Self::check_n) would charge. The default implementation records nothing. This is
    /// always correct but slower, because `check_all` then calls [`peek_n`](Self::peek_n) and
    /// [`check_n`](Self::check_n).
    fn look<'m>(&'m self, cost: u64, look: &mut Look<'m>) {
        let _ = (cost, look);
    }
    /// Counts a denial that [`peek_n`](Self::peek_n) has returned. If a peek denies a request,
    /// [`check_all`](crate::check_all) denies the request without a call of
    /// [`check_n`](Self::check_n), which counts its own denials.
    ///
    /// The default implementation counts nothing.
    fn note_denial(&self, denied: &Decision) {
        let _ = denied;
    }
}

/// Forwards all calls to the target of a pointer.
macro_rules! charge_by_pointer {
    ($($pointer:ty),*) => {$(
        impl<C: Chargeable + ?Sized> Chargeable for $pointer {
            fn check_n(&self, cost: u64) -> Decision {
                (**self).check_n(cost)
            }

            fn peek_n(&self, cost: u64) -> Decision {
                (**self).peek_n(cost)
            }

            fn refund_n(&self, decision: &Decision, tokens: u64) {
                (**self).refund_n(decision, tokens);
            }

            fn force(&self, tokens: u64) -> u64 {
                (**self).force(tokens)
            }

            fn look<'m>(&'m self, cost: u64, look: &mut Look<'m>) {
                (**self).look(cost, look);
            }

            fn note_denial(&self, denied: &Decision) {
                (**self).note_denial(denied);
            }
        }
    )*};
}

charge_by_pointer!(&C, Arc<C>, Box<C>);

/// A limit that consists of one key of a limiter.
///
/// `L` is the limiter, either borrowed or in an [`Arc`]. `B` is the key, either borrowed or owned.
/// The key is looked up as a `Q`. `T` provides the time.
pub(crate) struct KeyLimiter<L, B, Q: ?Sized, T = OwnClock> {
    pub(crate) limiter: L,
    pub(crate) key: B,
    pub(crate) time: T,
    asked_as: PhantomData<fn(&Q)>,
}

impl<L, B, Q: ?Sized, T> KeyLimiter<L, B, Q, T> {
    #[inline]
    pub(crate) fn new(limiter: L, key: B, time: T) -> Self {
        Self { limiter, key, time, asked_as: PhantomData }
    }
}
