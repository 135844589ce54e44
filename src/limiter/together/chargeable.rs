//! What can be charged alone, together with others, and in advance: a limiter of one resource, or
//! of one key.

use super::look::Look;
use crate::decision::Decision;
use crate::limiter::time_of::OwnClock;
use std::marker::PhantomData;
use std::sync::Arc;

/// One state that [`check_all`](crate::check_all) and [`Reservation`](crate::Reservation) can
/// charge: a [`SingleLimiter`](crate::SingleLimiter), a [`Limiter`](crate::Limiter) for one key
/// ([`Limiter::for_key`](crate::Limiter::for_key)), or either at a time of the caller's own
/// ([`At`](crate::At)).
///
/// Other types may implement this trait. The guarantees of `check_all` follow from theirs:
/// `check_n` charges all of the cost or nothing, `peek_n` charges nothing, `refund_n` gives back a
/// charge of `check_n`.
///
/// ```
/// use tollgate::{Chargeable, Decision, Quota, SingleLimiter};
///
/// /// A limiter that counts in kilobytes and is asked in bytes.
/// struct Bytes(SingleLimiter);
///
/// impl Chargeable for Bytes {
///     fn check_n(&self, cost: u64) -> Decision {
///         self.0.check_n(cost.div_ceil(1_000))
///     }
///
///     fn peek_n(&self, cost: u64) -> Decision {
///         self.0.peek_n(cost.div_ceil(1_000))
///     }
///
///     fn refund_n(&self, decision: &Decision, tokens: u64) {
///         self.0.refund_n(decision, tokens / 1_000);
///     }
/// }
///
/// let upload = Bytes(SingleLimiter::builder(Quota::per_hour(2)).build()?);
/// assert!(upload.check_n(1_500).is_allowed());
/// assert!(!upload.check().is_allowed());
/// # Ok::<(), tollgate::ConfigError>(())
/// ```
pub trait Chargeable {
    /// Charges `cost` tokens or none, as [`Limiter::check_n`](crate::Limiter::check_n).
    fn check_n(&self, cost: u64) -> Decision;
    /// What [`check_n`](Self::check_n) would answer now. Charges nothing.
    fn peek_n(&self, cost: u64) -> Decision;
    /// Gives back at most `tokens` of what the check that returned `decision` took, as
    /// [`Limiter::refund_n`](crate::Limiter::refund_n).
    fn refund_n(&self, decision: &Decision, tokens: u64);
    /// Charges one token or none, as [`Limiter::check`](crate::Limiter::check).
    fn check(&self) -> Decision {
        self.check_n(1)
    }
    /// What [`check`](Self::check) would answer now. Charges nothing.
    fn peek(&self) -> Decision {
        self.peek_n(1)
    }
    /// Gives back all that the check which returned `decision` took, as
    /// [`Limiter::refund`](crate::Limiter::refund).
    fn refund(&self, decision: &Decision) {
        self.refund_n(decision, u64::MAX);
    }
    /// Charges `tokens` that are spent already, as [`Limiter::force`](crate::Limiter::force), and
    /// returns how many. The default has no debt: it charges all of them, or none where they do not
    /// fit.
    fn force(&self, tokens: u64) -> u64 {
        self.check_n(tokens).charged()
    }
    /// Looks at the state before it is charged: notes in `look` what a charge of `cost` would make
    /// of it. [`check_all`](crate::check_all) looks at all limits, and then charges what it saw.
    ///
    /// The default notes nothing. That is always right and takes longer: `check_all` asks
    /// [`peek_n`](Self::peek_n) and [`check_n`](Self::check_n) then.
    #[doc(hidden)]
    fn look<'m>(&'m self, cost: u64, look: &mut Look<'m>) {
        let _ = (cost, look);
    }
}

/// Passes all calls on to what a pointer points to.
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
        }
    )*};
}

charge_by_pointer!(&C, Arc<C>, Box<C>);

/// A limiter for one of its keys.
///
/// `L` is the limiter, borrowed or in an [`Arc`]. `B` is the key, borrowed or owned, which is
/// looked up as a `Q`. `T` tells the time.
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
