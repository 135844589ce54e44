//! Process-local limiters with a state for each key.

use super::permits::LocalPermit;
use crate::key::parts::{Key, KeyRef};
use std::time::Duration;
use tollgate::store::{Accepts, ToKey};
use tollgate::{Chargeable, Decision, InFlight, Limiter, Look, Quota, Stats};

/// A process-local limiter with a state for each key.
pub(crate) trait Keyed: Send + Sync {
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
    /// Returns the figures of the limiter.
    fn stats(&self) -> Stats;
    /// Returns the key's own quota, if it has one.
    fn quota_of(&self, key: &KeyRef<'_>) -> Option<Quota>;
    /// For a limit on requests in flight, returns a permit, which is charged and refunded in place
    /// of the limiter.
    fn permit(&self, _key: &KeyRef<'_>) -> Option<LocalPermit> {
        None
    }
}

impl<S> Keyed for Limiter<Key, S>
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

    fn stats(&self) -> Stats {
        Limiter::stats(self)
    }

    fn quota_of(&self, key: &KeyRef<'_>) -> Option<Quota> {
        self.key_quota(key)
    }
}

/// Charges belong to permits. The methods of this implementation have no permit to charge, so they
/// give back each charge before they return.
impl<S> Keyed for InFlight<Key, S>
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

    fn stats(&self) -> Stats {
        InFlight::stats(self)
    }

    fn quota_of(&self, _key: &KeyRef<'_>) -> Option<Quota> {
        None
    }

    fn permit(&self, key: &KeyRef<'_>) -> Option<LocalPermit> {
        Some(Box::new(self.empty_permit_owned(key.to_key())))
    }
}
