//! Shared limits whose callers can wait.

use crate::in_flight::{SharedInFlight, SharedPermit};
use crate::limiter::SharedLimiter;
use crate::name::StoreKey;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;
use tollgate::{Decision, DecisionParts, DecisionSource, Outcome, Quota, Tick};
use tollgate_wait::{NextWaiter, Turn, Waitable};

/// The waiters on one machine are served in order. The store decides between waiters on different
/// machines.
impl<K: StoreKey + Sync + ?Sized> Waitable<K> for SharedLimiter<K> {
    type Turn = Turn;

    /// A leaky queue is charged when the request may start, because a charge for a later start
    /// would leave a gap if the caller gave up.
    async fn take(&self, key: &K, cost: u64, _: NextWaiter<'_>) -> Result<Turn, Decision> {
        if self.is_leaky_queue() && cost > 0 {
            let later = Self::peek_n(self, key, cost).await;
            if !later.start_after().is_zero() {
                return Err(later);
            }
        }
        let answer = Self::check_n(self, key, cost).await;
        if answer.start_after().is_zero() {
            return answer.try_into();
        }
        // Another caller has taken this start since the queue was peeked.
        self.refund(key, &answer).await;
        Err(answer)
    }

    fn peek_n(&self, key: &K, cost: u64) -> impl Future<Output = Decision> + Send {
        Self::peek_n(self, key, if self.is_leaky_queue() { cost.min(1) } else { cost })
    }

    fn quota(&self, _: &K) -> Quota {
        Self::quota(self)
    }

    fn quota_of(&self, _: &K, answer: &Decision) -> Quota {
        self.own_class().quota_of(answer)
    }
}

/// A request acquires one permit. The next waiter on this machine wakes after the store has
/// confirmed that a permit was returned, so the waiter finds the permit in the store.
impl<K: StoreKey + Sync + ?Sized> Waitable<K> for SharedInFlight<K> {
    type Turn = SharedPermit;

    async fn take(&self, key: &K, permits: u64, next: NextWaiter<'_>) -> Result<SharedPermit, Decision> {
        if permits > 1 {
            return Err(peeked(Outcome::TooCostly, permits));
        }
        let after = Some(Arc::new(next.wake_after(())) as _);
        self.acquire_before(key, after).await.map_err(|denied| denied.decision())
    }

    async fn peek_n(&self, key: &K, permits: u64) -> Decision {
        let is_free = Self::in_flight(self, key).await < self.limit();
        peeked(if is_free { Outcome::Allowed } else { Outcome::Denied }, permits)
    }

    /// Returns a quota of one permit. Its period is zero, because permits do not refill at a rate.
    fn quota(&self, _: &K) -> Quota {
        Quota::new(1, Duration::ZERO)
    }

    async fn in_flight(&self, key: &K) -> Option<u64> {
        Some(Self::in_flight(self, key).await)
    }
}

/// Returns the answer to a request that acquires no permits.
fn peeked(outcome: Outcome, permits: u64) -> Decision {
    Decision::from(DecisionParts {
        outcome,
        cost: permits,
        capacity: 1,
        remaining: (outcome == Outcome::Allowed).into(),
        wait: (outcome == Outcome::Allowed).then_some(Duration::ZERO),
        reset_after: Duration::MAX,
        refill_after: Duration::MAX,
        at: Tick::ZERO,
        source: DecisionSource::Store,
    })
}
