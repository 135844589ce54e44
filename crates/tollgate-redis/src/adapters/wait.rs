//! Callers that wait for a shared limit.

use crate::limiter::SharedLimiter;
use crate::name::StoreKey;
use std::future::Future;
use tollgate::{Decision, Quota};
use tollgate_wait::Waitable;

/// The order is that of one machine: between machines the store decides.
impl<K: StoreKey + Sync + ?Sized> Waitable<K> for SharedLimiter<K> {
    fn check_n(&self, key: &K, cost: u64) -> impl Future<Output = Decision> + Send {
        Self::check_n(self, key, cost)
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
