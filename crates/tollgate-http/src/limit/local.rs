//! Process-local limiters, which answer immediately.

use super::permits::LocalPermit;
use crate::key::parts::{Key, KeyRef};
use std::time::Duration;
use tollgate::store::{Accepts, ToKey};
use tollgate::{Chargeable, Decision, InFlight, Limiter, Look, Quota, SingleLimiter, Stats};

/// A process-local limiter. A limiter without keys ignores the key of a request.
pub(crate) trait Local: Send + Sync {
    /// Returns whether the limiter has a state for each key.
    fn is_keyed(&self) -> bool {
        true
    }
    fn check_n(&self, key: &KeyRef<'_>, cost: u64) -> Decision;
    fn peek_n(&self, key: &KeyRef<'_>, cost: u64) -> Decision;
    /// Looks at a key before it is charged, like [`Chargeable::look`].
    fn look<'m>(&'m self, _key: &KeyRef<'_>, _cost: u64, _look: &mut Look<'m>) {}
    /// Counts a denial that a peek has returned, like [`Chargeable::note_denial`].
    fn note_denial(&self, _key: &KeyRef<'_>, _denied: &Decision) {}
    fn refund_n(&self, key: &KeyRef<'_>, decision: &Decision, tokens: u64);
    fn force(&self, key: &KeyRef<'_>, tokens: u64) -> u64;
    /// Returns the quota of keys that do not have their own quota. The quota of a limit on requests
    /// in flight has a period of 0.
    fn quota(&self) -> Quota;
    /// Returns the figures of a limiter with keys.
    fn stats(&self) -> Option<Stats>;
    /// Returns the key's own quota, if it has one.
    fn quota_of(&self, _key: &KeyRef<'_>) -> Option<Quota> {
        None
    }
    /// For a limit on requests in flight, returns a permit, which is charged and refunded in place
    /// of the limiter.
    fn permit(&self, _key: &KeyRef<'_>) -> Option<LocalPermit> {
        None
    }
}

impl<S> Local for Limiter<Key, S>
where
    S: Accepts<Key> + for<'a> Accepts<KeyRef<'a>>,
{
    fn check_n(&self, key: &KeyRef<'_>, cost: u64) -> Decision {
        Limiter::check_n(self, key, cost)
    }

    fn peek_n(&self, key: &KeyRef<'_>, cost: u64) -> Decision {
        Limiter::peek_n(self, key, cost)
    }

    fn look<'m>(&'m self, key: &KeyRef<'_>, cost: u64, look: &mut Look<'m>) {
        Limiter::look(self, key, cost, look);
    }

    fn note_denial(&self, key: &KeyRef<'_>, denied: &Decision) {
        Limiter::note_denial(self, key, denied);
    }

    fn refund_n(&self, key: &KeyRef<'_>, decision: &Decision, tokens: u64) {
        Limiter::refund_n(self, key, decision, tokens);
    }

    fn force(&self, key: &KeyRef<'_>, tokens: u64) -> u64 {
        Limiter::force(self, key, tokens)
    }

    fn quota(&self) -> Quota {
        Limiter::quota(self)
    }

    fn stats(&self) -> Option<Stats> {
        Some(Limiter::stats(self))
    }

    fn quota_of(&self, key: &KeyRef<'_>) -> Option<Quota> {
        self.key_quota(key)
    }
}

impl Local for SingleLimiter {
    fn is_keyed(&self) -> bool {
        false
    }

    fn check_n(&self, _key: &KeyRef<'_>, cost: u64) -> Decision {
        SingleLimiter::check_n(self, cost)
    }

    fn peek_n(&self, _key: &KeyRef<'_>, cost: u64) -> Decision {
        SingleLimiter::peek_n(self, cost)
    }

    fn look<'m>(&'m self, _key: &KeyRef<'_>, cost: u64, look: &mut Look<'m>) {
        Chargeable::look(self, cost, look);
    }

    fn refund_n(&self, _key: &KeyRef<'_>, decision: &Decision, tokens: u64) {
        SingleLimiter::refund_n(self, decision, tokens);
    }

    fn force(&self, _key: &KeyRef<'_>, tokens: u64) -> u64 {
        SingleLimiter::force(self, tokens)
    }

    fn quota(&self) -> Quota {
        SingleLimiter::quota(self)
    }

    fn stats(&self) -> Option<Stats> {
        None
    }
}

/// Charges belong to permits. The methods of this implementation have no permit to charge, so they
/// give back each charge before they return.
impl<S> Local for InFlight<Key, S>
where
    S: Accepts<Key> + for<'a> Accepts<KeyRef<'a>>,
{
    fn check_n(&self, key: &KeyRef<'_>, cost: u64) -> Decision {
        self.empty_permit(key).check_n(cost)
    }

    fn peek_n(&self, key: &KeyRef<'_>, cost: u64) -> Decision {
        self.empty_permit(key).peek_n(cost)
    }

    fn refund_n(&self, _key: &KeyRef<'_>, _decision: &Decision, _tokens: u64) {}

    fn force(&self, key: &KeyRef<'_>, tokens: u64) -> u64 {
        self.empty_permit(key).force(tokens)
    }

    fn quota(&self) -> Quota {
        Quota::new(self.limit(), Duration::ZERO)
    }

    fn stats(&self) -> Option<Stats> {
        Some(InFlight::stats(self))
    }

    fn permit(&self, key: &KeyRef<'_>) -> Option<LocalPermit> {
        Some(Box::new(self.empty_permit_owned(key.to_key())))
    }
}
