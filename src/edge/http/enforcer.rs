//! The limiters behind limits, whatever their stores are.

use super::key::{Key, KeyRef};
use crate::{Decision, Gate, Holds, Limiter, Quota, SingleLimiter, Store};
use std::sync::Arc;

/// A limiter that is asked with keys of requests.
pub(super) trait Keyed: Send + Sync {
    fn check_n(&self, key: &KeyRef<'_>, cost: u64) -> Decision;
    fn peek_n(&self, key: &KeyRef<'_>, cost: u64) -> Decision;
    fn refund(&self, key: &KeyRef<'_>, charge: &Decision);
    /// Gives back what a request was charged that is over.
    fn give_back(&self, key: &Key, charge: &Decision);
    /// The quota of all keys without one of their own.
    fn quota(&self) -> Quota;
    /// The key's own quota, if it has one.
    fn quota_of(&self, key: &KeyRef<'_>) -> Option<Quota>;
}

impl<S> Keyed for Limiter<Key, S>
where
    S: Store + Holds<Key> + for<'a> Holds<KeyRef<'a>> + Send + Sync,
{
    fn check_n(&self, key: &KeyRef<'_>, cost: u64) -> Decision {
        Limiter::check_n(self, key, cost)
    }

    fn peek_n(&self, key: &KeyRef<'_>, cost: u64) -> Decision {
        self.peek_at(key, cost, self.clock().now())
    }

    fn refund(&self, key: &KeyRef<'_>, charge: &Decision) {
        Limiter::refund(self, key, charge);
    }

    fn give_back(&self, key: &Key, charge: &Decision) {
        Limiter::refund(self, key, charge);
    }

    fn quota(&self) -> Quota {
        Limiter::quota(self)
    }

    fn quota_of(&self, key: &KeyRef<'_>) -> Option<Quota> {
        self.key_quota(key)
    }
}

/// What enforces a limit.
#[derive(Clone)]
pub(super) enum Enforcer {
    Keyed(Arc<dyn Keyed>),
    Single(Arc<SingleLimiter>),
}

impl Enforcer {
    /// What a request would be answered.
    pub(super) fn peek(&self, key: &KeyRef<'_>, cost: u64) -> Decision {
        match self {
            Self::Keyed(limiter) => limiter.peek_n(key, cost),
            Self::Single(limiter) => limiter.peek_at(cost, limiter.clock().now()),
        }
    }

    pub(super) fn quota(&self) -> Quota {
        match self {
            Self::Keyed(limiter) => limiter.quota(),
            Self::Single(limiter) => limiter.quota(),
        }
    }

    pub(super) fn quota_of(&self, key: &KeyRef<'_>) -> Option<Quota> {
        match self {
            Self::Keyed(limiter) => limiter.quota_of(key),
            Self::Single(_) => None,
        }
    }

    /// Do both go by one state, whatever the key?
    pub(super) fn is_one_state_with(&self, other: &Self) -> bool {
        matches!((self, other), (Self::Single(one), Self::Single(other)) if Arc::ptr_eq(one, other))
    }

    pub(super) fn give_back(&self, key: &Key, charge: &Decision) {
        match self {
            Self::Keyed(limiter) => limiter.give_back(key, charge),
            Self::Single(limiter) => limiter.refund(charge),
        }
    }
}

/// One limit's limiter, bound to the key of one request.
pub(super) struct Bound<'r> {
    /// Which limit of the layer.
    pub(super) limit: usize,
    pub(super) enforcer: &'r Enforcer,
    pub(super) key: KeyRef<'r>,
}

impl Gate for Bound<'_> {
    fn check_n(&self, cost: u64) -> Decision {
        match self.enforcer {
            Enforcer::Keyed(limiter) => limiter.check_n(&self.key, cost),
            Enforcer::Single(limiter) => limiter.check_n(cost),
        }
    }

    fn peek_n(&self, cost: u64) -> Decision {
        self.enforcer.peek(&self.key, cost)
    }

    fn refund(&self, charge: &Decision) {
        match self.enforcer {
            Enforcer::Keyed(limiter) => limiter.refund(&self.key, charge),
            Enforcer::Single(limiter) => limiter.refund(charge),
        }
    }
}
