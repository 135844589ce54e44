//! What can be waited for.

use std::future::{Future, ready};
use std::hash::Hash;
use std::sync::Arc;
use tollgate::store::{Accepts, Equivalent, Store};
use tollgate::{Decision, Limiter, Quota, SingleLimiter};

/// A limiter that callers can wait for: [`Limiter`], [`SingleLimiter`] (whose key is `()`),
/// references and `Arc`s of them, and with its feature `wait` the `SharedLimiter` of
/// `tollgate-redis`.
///
/// [`check_n`](Self::check_n) charges all of the cost or nothing, and says when a retry passes.
pub trait Waitable<Q: ?Sized> {
    /// Charges `cost` tokens to `key` if it has that many, else nothing.
    fn check_n(&self, key: &Q, cost: u64) -> impl Future<Output = Decision> + Send;

    /// What [`check_n`](Self::check_n) would answer. Charges nothing.
    fn peek_n(&self, key: &Q, cost: u64) -> impl Future<Output = Decision> + Send;

    /// The quota of `key`. Its capacity is the most that one request can take.
    fn quota(&self, key: &Q) -> Quota;

    /// The quota by which `answer` was decided: another one than [`quota`](Self::quota) if a
    /// limiter with a share of the quota stands in for a store.
    fn quota_of(&self, key: &Q, answer: &Decision) -> Quota {
        let _ = answer;
        self.quota(key)
    }
}

impl<K, S, Q> Waitable<Q> for Limiter<K, S>
where
    K: ?Sized,
    S: Store + Accepts<Q>,
    Q: Hash + Equivalent<K> + ?Sized,
{
    fn check_n(&self, key: &Q, cost: u64) -> impl Future<Output = Decision> + Send {
        ready(self.check_n(key, cost))
    }

    fn peek_n(&self, key: &Q, cost: u64) -> impl Future<Output = Decision> + Send {
        ready(self.peek_n(key, cost))
    }

    fn quota(&self, key: &Q) -> Quota {
        self.key_quota(key).unwrap_or_else(|| self.quota())
    }
}

impl Waitable<()> for SingleLimiter {
    fn check_n(&self, _: &(), cost: u64) -> impl Future<Output = Decision> + Send {
        ready(self.check_n(cost))
    }

    fn peek_n(&self, _: &(), cost: u64) -> impl Future<Output = Decision> + Send {
        ready(self.peek_n(cost))
    }

    fn quota(&self, _: &()) -> Quota {
        self.quota()
    }
}

impl<L: Waitable<Q> + ?Sized, Q: ?Sized> Waitable<Q> for &L {
    fn check_n(&self, key: &Q, cost: u64) -> impl Future<Output = Decision> + Send {
        (**self).check_n(key, cost)
    }

    fn peek_n(&self, key: &Q, cost: u64) -> impl Future<Output = Decision> + Send {
        (**self).peek_n(key, cost)
    }

    fn quota(&self, key: &Q) -> Quota {
        (**self).quota(key)
    }

    fn quota_of(&self, key: &Q, answer: &Decision) -> Quota {
        (**self).quota_of(key, answer)
    }
}

impl<L: Waitable<Q> + ?Sized, Q: ?Sized> Waitable<Q> for Arc<L> {
    fn check_n(&self, key: &Q, cost: u64) -> impl Future<Output = Decision> + Send {
        (**self).check_n(key, cost)
    }

    fn peek_n(&self, key: &Q, cost: u64) -> impl Future<Output = Decision> + Send {
        (**self).peek_n(key, cost)
    }

    fn quota(&self, key: &Q) -> Quota {
        (**self).quota(key)
    }

    fn quota_of(&self, key: &Q, answer: &Decision) -> Quota {
        (**self).quota_of(key, answer)
    }
}
