//! Shared limits in front of HTTP services.

use crate::classes::Class;
use crate::in_flight::SharedInFlight;
use crate::limiter::SharedLimiter;
use crate::name::StoreKey;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use tokio::runtime::Handle;
use tollgate::{Decision, Denied, Quota};
use tollgate_http::{AsyncInFlight, AsyncLimiter, AsyncPermit, Backend, Key};

type Answer<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Runs a task in the runtime in which the store is asked. Without one, the store was not asked.
fn spawn(task: Answer<'static, ()>) {
    if let Ok(runtime) = Handle::try_current() {
        runtime.spawn(task);
    }
}

impl AsyncLimiter for SharedLimiter<Key> {
    fn check_n<'a>(&'a self, key: &'a Key, cost: u64) -> Answer<'a, Decision> {
        Box::pin(Self::check_n(self, key, cost))
    }

    fn refund_n<'a>(&'a self, key: &'a Key, charge: &'a Decision, tokens: u64) -> Answer<'a, ()> {
        Box::pin(Self::refund_n(self, key, charge, tokens))
    }

    fn force<'a>(&'a self, key: &'a Key, tokens: u64) -> Answer<'a, u64> {
        Box::pin(Self::force_n(self, key, tokens))
    }

    fn quota(&self) -> Quota {
        Self::quota(self)
    }

    fn spawn(&self, task: Answer<'static, ()>) {
        spawn(task);
    }

    fn capacity(&self) -> u64 {
        Self::capacity(self)
    }

    fn classes(self: Arc<Self>) -> Vec<(String, Arc<dyn AsyncLimiter>)> {
        let of_class = |name: &str| -> (String, Arc<dyn AsyncLimiter>) {
            let class = self.class(name).unwrap_or_default();
            (name.to_owned(), Arc::new(OfClass { limiter: Arc::clone(&self), class }))
        };
        self.class_names().map(of_class).collect()
    }
}

/// One class of callers of a shared limit.
struct OfClass {
    limiter: Arc<SharedLimiter<Key>>,
    class: Class,
}

impl AsyncLimiter for OfClass {
    fn check_n<'a>(&'a self, key: &'a Key, cost: u64) -> Answer<'a, Decision> {
        Box::pin(self.limiter.check_n_as(self.class, key, cost))
    }

    fn refund_n<'a>(&'a self, key: &'a Key, charge: &'a Decision, tokens: u64) -> Answer<'a, ()> {
        Box::pin(self.limiter.refund_n_as(self.class, key, charge, tokens))
    }

    fn force<'a>(&'a self, key: &'a Key, tokens: u64) -> Answer<'a, u64> {
        Box::pin(self.limiter.force_n_as(self.class, key, tokens))
    }

    fn quota(&self) -> Quota {
        self.limiter.quota_of(self.class)
    }

    fn spawn(&self, task: Answer<'static, ()>) {
        spawn(task);
    }

    fn capacity(&self) -> u64 {
        self.limiter.capacity_of(self.class)
    }
}

impl AsyncInFlight for SharedInFlight<Key> {
    fn acquire<'a>(&'a self, key: &'a Key) -> Answer<'a, Result<AsyncPermit, Denied>> {
        Box::pin(async move {
            let permit = Self::acquire(self, key).await?;
            Ok(AsyncPermit { decision: *permit.decision(), guard: Box::new(permit) })
        })
    }

    fn limit(&self) -> u64 {
        Self::limit(self)
    }
}

impl From<SharedInFlight<Key>> for Backend {
    fn from(limit: SharedInFlight<Key>) -> Self {
        Self::in_flight(limit)
    }
}

impl StoreKey for Key {
    fn write(&self, bytes: &mut Vec<u8>) {
        self.write_to(bytes);
    }
}
