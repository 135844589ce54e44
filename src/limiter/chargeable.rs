//! What can be charged alone, together with others, and in advance: a limiter of one resource, or
//! of one key.

use super::keyed::Limiter;
use super::look::Look;
use super::single::SingleLimiter;
use super::store::{Accepts, Store};
use crate::decision::Decision;
use crate::exact::ExactRule;
use crate::state::State;
use equivalent::Equivalent;
use std::borrow::Borrow;
use std::fmt;
use std::hash::Hash;
use std::marker::PhantomData;
use std::sync::Arc;

/// One state that [`check_all`](crate::check_all) and [`Reservation`](crate::Reservation) can
/// charge: a [`SingleLimiter`], or a [`Limiter`] for one key ([`Limiter::for_key`]).
///
/// Other types may implement this trait. The guarantees of `check_all` follow from theirs:
/// `check_n` charges all of the cost or nothing, `peek_n` charges nothing, `refund_n` gives back a
/// charge of `check_n`.
///
/// ```
/// use tollgate::{Chargeable, Decision, Look, Quota, SingleLimiter};
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
///     fn look<'m>(&'m self, cost: u64, look: &mut Look<'m>) {
///         self.0.look(cost.div_ceil(1_000), look);
///     }
///
///     fn refund_n(&self, charge: &Decision, tokens: u64) {
///         self.0.refund_n(charge, tokens / 1_000);
///     }
/// }
///
/// let upload = Bytes(SingleLimiter::builder(Quota::per_hour(2)).build()?);
/// assert!(upload.check_n(1_500).is_allowed());
/// assert!(!upload.check_n(1).is_allowed());
/// # Ok::<(), tollgate::ConfigError>(())
/// ```
pub trait Chargeable {
    /// Charges `cost` tokens or none, as [`Limiter::check_n`].
    fn check_n(&self, cost: u64) -> Decision;
    /// What [`check_n`](Self::check_n) would answer now. Charges nothing.
    fn peek_n(&self, cost: u64) -> Decision;
    /// Looks at the state before it is charged: notes in `look` what a charge of `cost` would make
    /// of it. [`check_all`](crate::check_all) looks at all limits, and then charges what it saw.
    ///
    /// The default notes nothing. That is always right and takes longer: `check_all` asks
    /// [`peek_n`](Self::peek_n) and [`check_n`](Self::check_n) then. A type whose `check_n` only
    /// charges another limit passes this call on to it, with the cost that it charges. A type whose
    /// `check_n` does anything else keeps the default, because what was seen is charged without
    /// another call.
    fn look<'m>(&'m self, cost: u64, look: &mut Look<'m>) {
        let _ = (cost, look);
    }
    /// Gives back at most `tokens` of what `charge` took, as [`Limiter::refund_n`].
    fn refund_n(&self, charge: &Decision, tokens: u64);
    /// Charges `tokens` that are spent already, as [`Limiter::force_n`], and returns how many. The
    /// default has no debt: it charges all of them, or none where they do not fit.
    fn force_n(&self, tokens: u64) -> u64 {
        self.check_n(tokens).charged()
    }
    /// Gives back all that `charge` took, as [`Limiter::refund`].
    fn refund(&self, charge: &Decision) {
        self.refund_n(charge, u64::MAX);
    }
}

impl Chargeable for SingleLimiter {
    fn check_n(&self, cost: u64) -> Decision {
        Self::check_n(self, cost)
    }

    fn peek_n(&self, cost: u64) -> Decision {
        Self::peek_n(self, cost)
    }

    fn look<'m>(&'m self, cost: u64, look: &mut Look<'m>) {
        if let ExactRule::Packed(rule) = self.state.0.first_rule() {
            let state = State { rule, word: self.state.0.first_word() };
            look.see(state, look.now(self.clock()), cost, &self.resets);
        }
    }

    fn refund_n(&self, charge: &Decision, tokens: u64) {
        Self::refund_n(self, charge, tokens);
    }

    fn force_n(&self, tokens: u64) -> u64 {
        Self::force_n(self, tokens)
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

            fn look<'m>(&'m self, cost: u64, look: &mut Look<'m>) {
                (**self).look(cost, look);
            }

            fn refund_n(&self, charge: &Decision, tokens: u64) {
                (**self).refund_n(charge, tokens);
            }

            fn force_n(&self, tokens: u64) -> u64 {
                (**self).force_n(tokens)
            }
        }
    )*};
}

charge_by_pointer!(&C, Arc<C>, Box<C>);

/// A limiter for one of its keys, which is [`Chargeable`]. Made by [`Limiter::for_key`] or
/// [`Limiter::for_owned_key`].
///
/// `L` is the limiter, borrowed or in an [`Arc`]. `B` is the key, borrowed or owned, which is
/// looked up as a `Q`.
pub struct KeyLimiter<L, B, Q: ?Sized> {
    limiter: L,
    key: B,
    asked_as: PhantomData<fn(&Q)>,
}

impl<K: ?Sized, S: Store> Limiter<K, S> {
    /// Binds this limiter to one key, to charge it together with others in
    /// [`check_all`](crate::check_all).
    ///
    /// ```
    /// # use tollgate::{Chargeable, Limiter, Quota};
    /// let limiter: Limiter<str> = Limiter::builder(Quota::per_hour(1)).build()?;
    /// let alice = limiter.for_key("alice");
    /// assert!(alice.check_n(1).is_allowed());
    /// assert!(!alice.check_n(1).is_allowed());
    /// # Ok::<(), tollgate::ConfigError>(())
    /// ```
    pub fn for_key<'l, Q>(&'l self, key: &'l Q) -> KeyLimiter<&'l Self, &'l Q, Q>
    where
        Q: Hash + Equivalent<K> + ?Sized,
        S: Accepts<Q>,
    {
        KeyLimiter { limiter: self, key, asked_as: PhantomData }
    }

    /// Binds a shared limiter to a key that the result owns, so that it may outlive both.
    ///
    /// A `Limiter<str>` takes a `String` or an `Arc<str>`, a `Limiter<u64>` a `u64`.
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use tollgate::{Chargeable, Limiter, Quota};
    /// let limiter = Arc::new(Limiter::<str>::builder(Quota::per_hour(1)).build()?);
    /// let alice = limiter.for_owned_key("alice".to_owned());
    /// drop(limiter);
    /// assert!(alice.check_n(1).is_allowed());
    /// assert!(!alice.check_n(1).is_allowed());
    /// # Ok::<(), tollgate::ConfigError>(())
    /// ```
    pub fn for_owned_key<B>(self: &Arc<Self>, key: B) -> KeyLimiter<Arc<Self>, B, K>
    where
        B: Borrow<K>,
        K: Hash + Eq,
        S: Accepts<K>,
    {
        KeyLimiter { limiter: Arc::clone(self), key, asked_as: PhantomData }
    }
}

/// Charges a key of a limiter that is borrowed or in an [`Arc`]. (One implementation for all that
/// points to a limiter would not know that the limiter lives as long as a look.)
macro_rules! charge_a_key {
    ($(<$($lifetime:lifetime)?> $limiter:ty),*) => {$(
        impl<$($lifetime,)? B, Q, K, S> Chargeable for KeyLimiter<$limiter, B, Q>
        where
            B: Borrow<Q>,
            Q: Hash + Equivalent<K> + ?Sized,
            K: ?Sized,
            S: Store + Accepts<Q>,
        {
            fn check_n(&self, cost: u64) -> Decision {
                self.limiter.check_n(self.key.borrow(), cost)
            }

            fn peek_n(&self, cost: u64) -> Decision {
                self.limiter.peek_n(self.key.borrow(), cost)
            }

            fn look<'m>(&'m self, cost: u64, look: &mut Look<'m>) {
                self.limiter.look(self.key.borrow(), cost, look);
            }

            fn refund_n(&self, charge: &Decision, tokens: u64) {
                self.limiter.refund_n(self.key.borrow(), charge, tokens);
            }

            fn force_n(&self, tokens: u64) -> u64 {
                self.limiter.force_n(self.key.borrow(), tokens)
            }
        }
    )*};
}

charge_a_key!(<'l> &'l Limiter<K, S>, <> Arc<Limiter<K, S>>);

impl<L: fmt::Debug, B: fmt::Debug, Q: ?Sized> fmt::Debug for KeyLimiter<L, B, Q> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeyLimiter").field("limiter", &self.limiter).field("key", &self.key).finish()
    }
}
