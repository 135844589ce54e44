//! What can be charged alone, together with others, and in advance: a limiter of one resource, or
//! of one key.

use super::keyed::Limiter;
use super::look::Look;
use super::single::SingleLimiter;
use super::store::{Accepts, Store};
use super::time_of::{OwnClock, Time};
use crate::decision::Decision;
use equivalent::Equivalent;
use std::borrow::Borrow;
use std::hash::Hash;
use std::marker::PhantomData;
use std::sync::Arc;

/// One state that [`check_all`](crate::check_all) and [`Reservation`](crate::Reservation) can
/// charge: a [`SingleLimiter`], a [`Limiter`] for one key ([`Limiter::for_key`]), or either at a
/// time of the caller's own ([`At`](crate::At)).
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
    /// Charges `cost` tokens or none, as [`Limiter::check_n`].
    fn check_n(&self, cost: u64) -> Decision;
    /// What [`check_n`](Self::check_n) would answer now. Charges nothing.
    fn peek_n(&self, cost: u64) -> Decision;
    /// Gives back at most `tokens` of what the check that returned `decision` took, as
    /// [`Limiter::refund_n`].
    fn refund_n(&self, decision: &Decision, tokens: u64);
    /// Charges one token or none, as [`Limiter::check`].
    fn check(&self) -> Decision {
        self.check_n(1)
    }
    /// What [`check`](Self::check) would answer now. Charges nothing.
    fn peek(&self) -> Decision {
        self.peek_n(1)
    }
    /// Gives back all that the check which returned `decision` took, as [`Limiter::refund`].
    fn refund(&self, decision: &Decision) {
        self.refund_n(decision, u64::MAX);
    }
    /// Charges `tokens` that are spent already, as [`Limiter::force`], and returns how many. The
    /// default has no debt: it charges all of them, or none where they do not fit.
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

impl Chargeable for SingleLimiter {
    fn check_n(&self, cost: u64) -> Decision {
        Self::check_n(self, cost)
    }

    fn peek_n(&self, cost: u64) -> Decision {
        Self::peek_n(self, cost)
    }

    fn refund_n(&self, decision: &Decision, tokens: u64) {
        Self::refund_n(self, decision, tokens);
    }

    fn force(&self, tokens: u64) -> u64 {
        Self::force(self, tokens)
    }

    fn look<'m>(&'m self, cost: u64, look: &mut Look<'m>) {
        Self::look(self, cost, OwnClock, look);
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
pub(super) struct KeyLimiter<L, B, Q: ?Sized, T = OwnClock> {
    limiter: L,
    key: B,
    time: T,
    asked_as: PhantomData<fn(&Q)>,
}

impl<L, B, Q: ?Sized, T> KeyLimiter<L, B, Q, T> {
    #[inline]
    pub(super) fn new(limiter: L, key: B, time: T) -> Self {
        Self { limiter, key, time, asked_as: PhantomData }
    }
}

impl<K: ?Sized, S: Store> Limiter<K, S> {
    /// This limiter for one key, to do several things with it, or to charge it together with others
    /// in [`check_all`](crate::check_all).
    ///
    /// ```
    /// # use tollgate::{Chargeable, Limiter, Quota};
    /// let limiter: Limiter<str> = Limiter::builder(Quota::per_hour(1)).build()?;
    /// let alice = limiter.for_key("alice");
    /// assert!(alice.check().is_allowed());
    /// assert!(!alice.check().is_allowed());
    /// # Ok::<(), tollgate::ConfigError>(())
    /// ```
    pub fn for_key<'l, Q>(&'l self, key: &'l Q) -> impl Chargeable + use<'l, K, S, Q>
    where
        Q: Hash + Equivalent<K> + ?Sized,
        S: Accepts<Q>,
    {
        KeyLimiter::new(self, key, OwnClock)
    }

    /// [`for_key`](Self::for_key) for a result that owns the key and a share of the limiter, so
    /// that it may outlive both.
    ///
    /// A `Limiter<str>` takes a `String` or an `Arc<str>`, a `Limiter<u64>` a `u64`.
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use tollgate::{Chargeable, Limiter, Quota};
    /// let limiter = Arc::new(Limiter::<str>::builder(Quota::per_hour(1)).build()?);
    /// let alice = limiter.for_key_owned("alice".to_owned());
    /// drop(limiter);
    /// assert!(alice.check().is_allowed());
    /// assert!(!alice.check().is_allowed());
    /// # Ok::<(), tollgate::ConfigError>(())
    /// ```
    pub fn for_key_owned<B>(self: &Arc<Self>, key: B) -> impl Chargeable + use<K, S, B>
    where
        B: Borrow<K>,
        K: Hash + Eq,
        S: Accepts<K>,
    {
        KeyLimiter::new(Arc::clone(self), key, OwnClock)
    }
}

/// Charges a key of a limiter that is borrowed or in an [`Arc`]. (One implementation for all that
/// points to a limiter would not know that the limiter lives as long as a look.)
macro_rules! charge_a_key {
    ($(<$($lifetime:lifetime)?> $limiter:ty),*) => {$(
        impl<$($lifetime,)? B, Q, K, S, T> Chargeable for KeyLimiter<$limiter, B, Q, T>
        where
            B: Borrow<Q>,
            Q: Hash + Equivalent<K> + ?Sized,
            K: ?Sized,
            S: Store + Accepts<Q>,
            T: Time,
        {
            fn check_n(&self, cost: u64) -> Decision {
                let now = || self.time.now(self.limiter.clock());
                self.limiter.check_at(self.key.borrow(), cost, now)
            }

            fn peek_n(&self, cost: u64) -> Decision {
                self.limiter.peek_at(self.key.borrow(), cost, self.time.now(self.limiter.clock()))
            }

            fn refund_n(&self, decision: &Decision, tokens: u64) {
                let now = self.time.now(self.limiter.clock());
                self.limiter.refund_at(self.key.borrow(), decision, tokens, now);
            }

            fn force(&self, tokens: u64) -> u64 {
                self.limiter.force_at(self.key.borrow(), tokens, self.time.now(self.limiter.clock()))
            }

            fn look<'m>(&'m self, cost: u64, look: &mut Look<'m>) {
                self.limiter.look_at(self.key.borrow(), cost, self.time, look);
            }
        }
    )*};
}

charge_a_key!(<'l> &'l Limiter<K, S>, <> Arc<Limiter<K, S>>);
