//! Any kind of limiter that a limit can use. Keyed limiters, single limiters and limits on requests
//! in flight may be process-local or shared.

use super::async_in_flight::{AsyncInFlight, AsyncPermit};
use super::async_limiter::AsyncLimiter;
use super::local::Local;
use super::permits::{HeldPermit, LocalPermit};
use crate::figure::{self, ReadFigures};
use crate::key::parts::{Key, KeyRef};
use std::ptr;
use std::sync::Arc;
use std::time::Duration;
use tollgate::{Chargeable, Decision, Look, Outcome, Quota};

/// The limiter of a limit, or of one of its classes.
pub(crate) enum AnyLimiter {
    Local(Arc<dyn Local>),
    Shared(Arc<dyn AsyncLimiter>),
    SharedInFlight(Arc<dyn AsyncInFlight>),
    /// The limit does not apply to this class.
    Unlimited,
    /// Each request is refused.
    Blocked,
}

impl AnyLimiter {
    /// Returns the quota; `None` if nothing is counted. The quota of a limit on requests in flight
    /// has a period of 0.
    pub(crate) fn quota(&self) -> Option<Quota> {
        match self {
            Self::Local(limiter) => Some(limiter.quota()),
            Self::Shared(limiter) => Some(limiter.quota()),
            Self::SharedInFlight(limit) => Some(Quota::new(limit.limit(), Duration::ZERO)),
            Self::Unlimited | Self::Blocked => None,
        }
    }

    /// Returns whether requests are counted at all.
    pub(crate) fn counts(&self) -> bool {
        !matches!(self, Self::Unlimited | Self::Blocked)
    }

    /// Returns whether this limiter limits requests in flight rather than a rate.
    pub(crate) fn is_in_flight(&self) -> bool {
        match self {
            Self::Local(limiter) => limiter.quota().period().is_zero(),
            Self::Shared(_) | Self::Unlimited | Self::Blocked => false,
            Self::SharedInFlight(_) => true,
        }
    }

    /// Returns whether the limiter has a state for each key.
    pub(crate) fn is_keyed(&self) -> bool {
        self.is_shared() || matches!(self, Self::Local(limiter) if limiter.is_keyed())
    }

    /// Returns whether the counts are on another machine.
    pub(crate) fn is_shared(&self) -> bool {
        matches!(self, Self::Shared(_) | Self::SharedInFlight(_))
    }

    /// Returns the maximum number of keys of a process-local keyed limiter.
    pub(crate) fn max_keys(&self) -> Option<usize> {
        match self {
            Self::Local(limiter) => Some(limiter.stats()?.max_keys),
            Self::Shared(_) | Self::SharedInFlight(_) | Self::Unlimited | Self::Blocked => None,
        }
    }

    /// Returns a function that reads the limiter's figures as long as the limiter exists. Returns
    /// `None` if the limiter has no figures.
    pub(crate) fn figures(&self) -> Option<Arc<ReadFigures>> {
        match self {
            Self::Local(limiter) if limiter.is_keyed() => {
                let limiter = Arc::downgrade(limiter);
                Some(Arc::new(move || Some(figure::of_keys(&limiter.upgrade()?.stats()?))))
            }
            Self::Local(_) | Self::Unlimited | Self::Blocked => None,
            Self::Shared(limiter) => {
                let limiter = Arc::downgrade(limiter);
                Some(Arc::new(move || Some(limiter.upgrade()?.figures())))
            }
            Self::SharedInFlight(limit) => {
                let limit = Arc::downgrade(limit);
                Some(Arc::new(move || Some(limit.upgrade()?.figures())))
            }
        }
    }

    /// Returns the maximum number of tokens that a request with this key can be charged.
    pub(crate) fn capacity(&self, key: &KeyRef<'_>) -> u64 {
        match self {
            Self::Local(limiter) => limiter.peek_n(key, 0).capacity(),
            Self::Shared(limiter) => limiter.quota().capacity(),
            Self::SharedInFlight(limit) => limit.limit(),
            Self::Unlimited => u64::MAX,
            Self::Blocked => 0,
        }
    }

    /// Returns the capacity for a request with this key if the capacity is below `cost`, and `None`
    /// otherwise.
    pub(crate) fn capacity_below(&self, key: &KeyRef<'_>, cost: u64) -> Option<u64> {
        match self {
            Self::Local(limiter) => {
                let fresh = limiter.peek_n(key, cost);
                (fresh.outcome() == Outcome::TooCostly).then(|| fresh.capacity())
            }
            Self::Blocked => None,
            other => Some(other.capacity(key)).filter(|&capacity| capacity < cost),
        }
    }

    /// Returns whether both are the same `SingleLimiter`.
    pub(crate) fn is_one_state_with(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Local(one), Self::Local(other)) => {
                !one.is_keyed() && ptr::addr_eq(Arc::as_ptr(one), Arc::as_ptr(other))
            }
            _ => false,
        }
    }
}

/// A process-local limiter, paired with the key and the cost of one request.
pub(crate) struct Bound<'r> {
    /// The index of the limit in the layer.
    pub(crate) limit: usize,
    /// The index of the caller's class; 0 is the default class.
    pub(crate) class: usize,
    pub(crate) limiter: &'r dyn Local,
    /// For a limit on requests in flight, the request's permit, which is charged and refunded in
    /// place of `limiter`.
    pub(crate) permit: Option<LocalPermit>,
    pub(crate) key: KeyRef<'r>,
    /// The cost of the request, in tokens.
    pub(crate) cost: u64,
}

/// A shared limiter, paired with the key and the cost of one request.
pub(crate) struct SharedBound<'r> {
    pub(crate) limit: usize,
    pub(crate) class: usize,
    pub(crate) limiter: Shared<'r>,
    pub(crate) key: Key,
    pub(crate) cost: u64,
}

/// A limiter whose counts are on another machine.
#[derive(Clone, Copy)]
pub(crate) enum Shared<'r> {
    Rate(&'r dyn AsyncLimiter),
    InFlight(&'r dyn AsyncInFlight),
}

/// A shared limiter's answer: the decision and, for a limit on requests in flight, the permit,
/// which is released when dropped.
pub(crate) struct SharedAnswer {
    pub(crate) decision: Decision,
    pub(crate) permit: Option<HeldPermit>,
}

impl SharedBound<'_> {
    pub(crate) async fn charge(&self) -> SharedAnswer {
        match self.limiter {
            Shared::Rate(limiter) => {
                SharedAnswer { decision: limiter.check_n(&self.key, self.cost).await, permit: None }
            }
            Shared::InFlight(limit) => match limit.acquire(&self.key).await {
                Ok(AsyncPermit { decision, guard }) => SharedAnswer { decision, permit: Some(guard) },
                Err(denied) => SharedAnswer { decision: denied.decision(), permit: None },
            },
        }
    }

    /// Gives back the charge of a request refused by another limit.
    pub(crate) async fn refund(&self, answer: SharedAnswer) {
        drop(answer.permit);
        if let (Shared::Rate(limiter), 1..) = (self.limiter, answer.decision.charged()) {
            limiter.refund_n(&self.key, &answer.decision, u64::MAX).await;
        }
    }
}

impl Chargeable for Bound<'_> {
    fn check_n(&self, cost: u64) -> Decision {
        if let Some(permit) = &self.permit {
            return permit.check_n(cost);
        }
        self.limiter.check_n(&self.key, cost)
    }

    fn peek_n(&self, cost: u64) -> Decision {
        self.limiter.peek_n(&self.key, cost)
    }

    fn look<'m>(&'m self, cost: u64, look: &mut Look<'m>) {
        // A permit must be charged directly, because the permit records the charges that it owns.
        if self.permit.is_none() {
            self.limiter.look(&self.key, cost, look);
        }
    }

    fn note_denial(&self, denied: &Decision) {
        self.limiter.note_denial(&self.key, denied);
    }

    fn refund_n(&self, decision: &Decision, tokens: u64) {
        if let Some(permit) = &self.permit {
            return permit.refund_n(decision, tokens);
        }
        self.limiter.refund_n(&self.key, decision, tokens);
    }
}

/// A shared limiter, paired with a request's key, used for charges that outlive the request.
pub(crate) struct OwnedShared {
    pub(crate) limiter: Arc<dyn AsyncLimiter>,
    pub(crate) key: Key,
}

/// A process-local limiter, paired with a request's key, used for charges that outlive the request.
pub(crate) struct OwnedBound {
    pub(crate) limiter: Arc<dyn Local>,
    pub(crate) key: Key,
}

impl Chargeable for OwnedBound {
    fn check_n(&self, cost: u64) -> Decision {
        self.limiter.check_n(&self.key.borrowed(), cost)
    }

    fn peek_n(&self, cost: u64) -> Decision {
        self.limiter.peek_n(&self.key.borrowed(), cost)
    }

    fn refund_n(&self, decision: &Decision, tokens: u64) {
        self.limiter.refund_n(&self.key.borrowed(), decision, tokens);
    }

    fn force(&self, tokens: u64) -> u64 {
        self.limiter.force(&self.key.borrowed(), tokens)
    }
}
