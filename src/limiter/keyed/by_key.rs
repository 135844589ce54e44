//! Implements [`Chargeable`] for a single key of a limiter.

use super::limiter::Limiter;
use crate::decision::Decision;
use crate::limiter::store::interface::{Accepts, KeyOf, Store};
use crate::limiter::time_of::Time;
use crate::limiter::together::chargeable::{Chargeable, KeyLimiter};
use crate::limiter::together::look::Look;
use std::borrow::Borrow;
use std::sync::Arc;

/// Implements [`Chargeable`] for a key whose limiter is borrowed or stored in an [`Arc`]. (One
/// generic implementation for every pointer type could not guarantee that the limiter outlives a
/// look.)
macro_rules! charge_a_key {
    ($(<$($lifetime:lifetime)?> $limiter:ty),*) => {$(
        impl<$($lifetime,)? B, Q, K, S, T> Chargeable for KeyLimiter<$limiter, B, Q, T>
        where
            B: Borrow<Q>,
            Q: KeyOf<K> + ?Sized,
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

            fn note_denial(&self, denied: &Decision) {
                self.limiter.note_denial(self.key.borrow(), denied);
            }
        }
    )*};
}

charge_a_key!(<'l> &'l Limiter<K, S>, <> Arc<Limiter<K, S>>);
