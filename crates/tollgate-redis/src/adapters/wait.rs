//! Callers that wait for a shared limit.

use crate::limiter::SharedLimiter;
use crate::name::StoreKey;
use std::future::Future;
use tollgate::{Decision, Quota};
use tollgate_wait::{NextWaiter, Turn, Waitable};

/// The order is that of one machine: between machines the store decides.
impl<K: StoreKey + Sync + ?Sized> Waitable<K> for SharedLimiter<K> {
    type Turn = Turn;

    async fn take(&self, key: &K, cost: u64, _: NextWaiter<'_>) -> Result<Turn, Decision> {
        Self::check_n(self, key, cost).await.try_into()
    }

    fn peek_n(&self, key: &K, cost: u64) -> impl Future<Output = Decision> + Send {
        Self::peek_n(self, key, cost)
    }

    fn quota(&self, _: &K) -> Quota {
        Self::quota(self)
    }

    fn quota_of(&self, _: &K, answer: &Decision) -> Quota {
        self.own_class().quota_of(answer)
    }
}
