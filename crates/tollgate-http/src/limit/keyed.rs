//! Limiters of this process that have a state for each key, with or without classes of callers.

use super::permits::LocalPermit;
use crate::key::parts::{Key, KeyRef};
use std::sync::Arc;
use std::time::Duration;
use tollgate::{
    Accepts, Chargeable, Class, ClassLimiter, Decision, InFlight, Limiter, Look, Quota, Store, ToKey,
};

/// A limiter of this process that has a state for each key of requests.
pub(crate) trait Keyed: Send + Sync {
    fn check_n(&self, key: &KeyRef<'_>, cost: u64) -> Decision;
    fn peek_n(&self, key: &KeyRef<'_>, cost: u64) -> Decision;
    /// Looks at a key before it is charged, as [`Chargeable::look`].
    fn look<'m>(&'m self, _key: &KeyRef<'_>, _cost: u64, _look: &mut Look<'m>) {}
    fn refund_n(&self, key: &KeyRef<'_>, charge: &Decision, tokens: u64);
    fn force_n(&self, key: &KeyRef<'_>, tokens: u64) -> u64;
    /// Returns the quota of the keys that have none of their own. That of a limit on what is in
    /// flight has a period of 0.
    fn quota(&self) -> Quota;
    /// Returns the most keys that are tracked.
    fn max_keys(&self) -> usize;
    /// Returns the key's own quota, if it has one.
    fn quota_of(&self, key: &KeyRef<'_>) -> Option<Quota>;
    /// Returns the permit to charge in place of the limiter, for a limit on what is in flight.
    fn permit(&self, _key: &KeyRef<'_>) -> Option<LocalPermit> {
        None
    }
}

impl<S> Keyed for Limiter<Key, S>
where
    S: Store + Accepts<Key> + for<'a> Accepts<KeyRef<'a>> + Send + Sync,
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

    fn refund_n(&self, key: &KeyRef<'_>, charge: &Decision, tokens: u64) {
        Limiter::refund_n(self, key, charge, tokens);
    }

    fn force_n(&self, key: &KeyRef<'_>, tokens: u64) -> u64 {
        Limiter::force_n(self, key, tokens)
    }

    fn quota(&self) -> Quota {
        Limiter::quota(self)
    }

    fn max_keys(&self) -> usize {
        Limiter::stats(self).max_keys
    }

    fn quota_of(&self, key: &KeyRef<'_>) -> Option<Quota> {
        self.key_quota(key)
    }
}

/// Charges are made to its permits. A charge without one is given back before this returns.
impl<S> Keyed for InFlight<Key, S>
where
    S: Store + Accepts<Key> + for<'a> Accepts<KeyRef<'a>> + Send + Sync + 'static,
{
    fn check_n(&self, key: &KeyRef<'_>, cost: u64) -> Decision {
        self.for_key(key).check_n(cost)
    }

    fn peek_n(&self, key: &KeyRef<'_>, cost: u64) -> Decision {
        self.for_key(key).peek_n(cost)
    }

    fn refund_n(&self, _key: &KeyRef<'_>, _charge: &Decision, _tokens: u64) {}

    fn force_n(&self, key: &KeyRef<'_>, tokens: u64) -> u64 {
        self.for_key(key).force_n(tokens)
    }

    fn quota(&self) -> Quota {
        Quota::new(self.limit(), Duration::ZERO)
    }

    fn max_keys(&self) -> usize {
        self.stats().max_keys
    }

    fn quota_of(&self, _key: &KeyRef<'_>) -> Option<Quota> {
        None
    }

    fn permit(&self, key: &KeyRef<'_>) -> Option<LocalPermit> {
        Some(Box::new(self.for_owned_key(key.to_key())))
    }
}

/// One class of a limiter, whose [`Limiter`] is not shared by itself.
pub(super) struct OfClass<S> {
    pub(super) limiter: Arc<ClassLimiter<Key, S>>,
    pub(super) class: Class,
}

impl<S> Keyed for OfClass<S>
where
    S: Store + Accepts<Key> + for<'a> Accepts<KeyRef<'a>> + Send + Sync,
{
    fn check_n(&self, key: &KeyRef<'_>, cost: u64) -> Decision {
        self.limiter.of(self.class).check_n(key, cost)
    }

    fn peek_n(&self, key: &KeyRef<'_>, cost: u64) -> Decision {
        self.limiter.of(self.class).peek_n(key, cost)
    }

    fn look<'m>(&'m self, key: &KeyRef<'_>, cost: u64, look: &mut Look<'m>) {
        self.limiter.of(self.class).look(key, cost, look);
    }

    fn refund_n(&self, key: &KeyRef<'_>, charge: &Decision, tokens: u64) {
        self.limiter.of(self.class).refund_n(key, charge, tokens);
    }

    fn force_n(&self, key: &KeyRef<'_>, tokens: u64) -> u64 {
        self.limiter.of(self.class).force_n(key, tokens)
    }

    fn quota(&self) -> Quota {
        self.limiter.of(self.class).quota()
    }

    fn max_keys(&self) -> usize {
        self.limiter.of(self.class).stats().max_keys
    }

    fn quota_of(&self, key: &KeyRef<'_>) -> Option<Quota> {
        self.limiter.of(self.class).key_quota(key)
    }
}
