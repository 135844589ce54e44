//! The limiters behind limits: keyed, single or of what is in flight, of this process or shared.

use super::async_limiter::AsyncLimiter;
use super::permits::HeldPermit;
use crate::key::parts::{Key, KeyRef};
use std::sync::Arc;
use std::time::Duration;
use tollgate::{
    Accepts, Chargeable, Decision, InFlight, Limiter, Outcome, Quota, SingleLimiter, Store, ToKey,
};

/// A limiter of this process that has a state for each key of requests.
pub(crate) trait Keyed: Send + Sync {
    fn check_n(&self, key: &KeyRef<'_>, cost: u64) -> Decision;
    fn peek_n(&self, key: &KeyRef<'_>, cost: u64) -> Decision;
    fn refund_n(&self, key: &KeyRef<'_>, charge: &Decision, tokens: u64);
    /// Refunds the charge of a request that has been handled.
    fn give_back(&self, key: &Key, charge: &Decision);
    /// Returns the quota of the keys that have none of their own. That of a limit on what is in
    /// flight has a period of 0.
    fn quota(&self) -> Quota;
    /// Returns the most keys that are tracked.
    fn max_keys(&self) -> usize;
    /// Returns the key's own quota, if it has one.
    fn quota_of(&self, key: &KeyRef<'_>) -> Option<Quota>;
    /// Returns the permit to charge in place of the limiter, for a limit on what is in flight.
    fn permit(&self, _key: &KeyRef<'_>) -> Option<HeldPermit> {
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

    fn refund_n(&self, key: &KeyRef<'_>, charge: &Decision, tokens: u64) {
        Limiter::refund_n(self, key, charge, tokens);
    }

    fn give_back(&self, key: &Key, charge: &Decision) {
        Limiter::refund(self, key, charge);
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

    fn give_back(&self, _key: &Key, _charge: &Decision) {}

    fn quota(&self) -> Quota {
        Quota::new(self.limit(), Duration::ZERO)
    }

    fn max_keys(&self) -> usize {
        self.stats().max_keys
    }

    fn quota_of(&self, _key: &KeyRef<'_>) -> Option<Quota> {
        None
    }

    fn permit(&self, key: &KeyRef<'_>) -> Option<HeldPermit> {
        Some(Box::new(self.for_owned_key(key.to_key())))
    }
}

/// The limiter of a limit.
pub(crate) enum Backend {
    Local(Local),
    Shared(Arc<dyn AsyncLimiter>),
}

impl Backend {
    pub(crate) fn quota(&self) -> Quota {
        match self {
            Self::Local(limiter) => limiter.quota(),
            Self::Shared(limiter) => limiter.quota(),
        }
    }

    /// Returns whether it limits what is in flight, and no rate.
    pub(crate) fn is_in_flight(&self) -> bool {
        matches!(self, Self::Local(limiter) if limiter.quota().period().is_zero())
    }

    /// Returns whether the counts are on another machine.
    pub(crate) fn is_shared(&self) -> bool {
        matches!(self, Self::Shared(_))
    }

    /// Returns the most keys that a limiter of this process tracks, if it has keys.
    pub(crate) fn max_keys(&self) -> Option<usize> {
        match self {
            Self::Local(Local::Keyed(limiter)) => Some(limiter.max_keys()),
            Self::Local(Local::Single(_)) | Self::Shared(_) => None,
        }
    }

    /// Returns the most tokens that a request can take, if that is less than `cost`.
    pub(crate) fn capacity_below(&self, key: &KeyRef<'_>, cost: u64) -> Option<u64> {
        match self {
            Self::Local(limiter) => {
                let fresh = limiter.peek(key, cost);
                (fresh.outcome() == Outcome::TooCostly).then(|| fresh.capacity())
            }
            Self::Shared(limiter) => Some(limiter.capacity()).filter(|&capacity| capacity < cost),
        }
    }

    /// Returns whether both use one state for all keys.
    pub(crate) fn is_one_state_with(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Local(Local::Single(one)), Self::Local(Local::Single(other))) => Arc::ptr_eq(one, other),
            _ => false,
        }
    }
}

/// A limiter of this process, which answers immediately.
pub(crate) enum Local {
    Keyed(Arc<dyn Keyed>),
    Single(Arc<SingleLimiter>),
}

impl Local {
    /// Returns what a request would be answered, without a charge.
    pub(crate) fn peek(&self, key: &KeyRef<'_>, cost: u64) -> Decision {
        match self {
            Self::Keyed(limiter) => limiter.peek_n(key, cost),
            Self::Single(limiter) => limiter.peek_n(cost),
        }
    }

    fn quota(&self) -> Quota {
        match self {
            Self::Keyed(limiter) => limiter.quota(),
            Self::Single(limiter) => limiter.quota(),
        }
    }

    pub(crate) fn quota_of(&self, key: &KeyRef<'_>) -> Option<Quota> {
        match self {
            Self::Keyed(limiter) => limiter.quota_of(key),
            Self::Single(_) => None,
        }
    }

    pub(crate) fn permit(&self, key: &KeyRef<'_>) -> Option<HeldPermit> {
        match self {
            Self::Keyed(limiter) => limiter.permit(key),
            Self::Single(_) => None,
        }
    }

    pub(crate) fn give_back(&self, key: &Key, charge: &Decision) {
        match self {
            Self::Keyed(limiter) => limiter.give_back(key, charge),
            Self::Single(limiter) => limiter.refund(charge),
        }
    }
}

/// A limiter of this process with the key and the cost of one request.
pub(crate) struct Bound<'r> {
    /// The index of the limit in the layer.
    pub(crate) limit: usize,
    pub(crate) limiter: &'r Local,
    /// For a limit on what is in flight: what is charged in place of the limiter.
    pub(crate) permit: Option<HeldPermit>,
    pub(crate) key: KeyRef<'r>,
    /// The cost of the request, in tokens.
    pub(crate) cost: u64,
}

/// A shared limiter with the key and the cost of one request.
pub(crate) struct SharedBound<'r> {
    pub(crate) limit: usize,
    pub(crate) limiter: &'r dyn AsyncLimiter,
    pub(crate) key: Key,
    pub(crate) cost: u64,
}

impl Chargeable for Bound<'_> {
    fn check_n(&self, cost: u64) -> Decision {
        if let Some(permit) = &self.permit {
            return permit.check_n(cost);
        }
        match self.limiter {
            Local::Keyed(limiter) => limiter.check_n(&self.key, cost),
            Local::Single(limiter) => limiter.check_n(cost),
        }
    }

    fn peek_n(&self, cost: u64) -> Decision {
        self.limiter.peek(&self.key, cost)
    }

    fn refund_n(&self, charge: &Decision, tokens: u64) {
        if let Some(permit) = &self.permit {
            return permit.refund_n(charge, tokens);
        }
        match self.limiter {
            Local::Keyed(limiter) => limiter.refund_n(&self.key, charge, tokens),
            Local::Single(limiter) => limiter.refund_n(charge, tokens),
        }
    }
}
