//! Shared limits in front of HTTP services.

use crate::in_flight::SharedInFlight;
use crate::limiter::SharedLimiter;
use crate::name::StoreKey;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use tokio::runtime::Handle;
use tollgate::{Decision, Denied, Quota};
use tollgate_http::{AsyncInFlight, AsyncLimiter, AsyncPermit, Key};

type Answer<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

impl AsyncLimiter for SharedLimiter<Key> {
    fn check_n<'a>(&'a self, key: &'a Key, cost: u64) -> Answer<'a, Decision> {
        Box::pin(Self::check_n(self, key, cost))
    }

    fn refund_n<'a>(&'a self, key: &'a Key, decision: &'a Decision, tokens: u64) -> Answer<'a, ()> {
        Box::pin(Self::refund_n(self, key, decision, tokens))
    }

    fn force<'a>(&'a self, key: &'a Key, tokens: u64) -> Answer<'a, u64> {
        Box::pin(Self::force(self, key, tokens))
    }

    fn quota(&self) -> Quota {
        Self::quota(self)
    }

    /// Runs the task in the runtime in which the store is asked. Without one, the store was not
    /// asked.
    fn spawn(&self, task: Answer<'static, ()>) {
        if let Ok(runtime) = Handle::try_current() {
            runtime.spawn(task);
        }
    }

    fn capacity(&self) -> u64 {
        Self::quota(self).capacity()
    }

    fn classes(self: Arc<Self>) -> Vec<(String, Arc<dyn AsyncLimiter>)> {
        let of_class = |name: &str| -> Option<(String, Arc<dyn AsyncLimiter>)> {
            Some((name.to_owned(), Arc::new(self.class(name)?)))
        };
        self.class_names().filter_map(of_class).collect()
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

impl StoreKey for Key {
    fn write(&self, bytes: &mut Vec<u8>) {
        self.write_to(bytes);
    }
}
