//! Shared limits in front of HTTP services.

use crate::classes::Class;
use crate::limiter::SharedLimiter;
use crate::name::StoreKey;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use tollgate::{Decision, Quota};
use tollgate_http::{AsyncLimiter, Key};

type Answer<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

impl AsyncLimiter for SharedLimiter<Key> {
    fn check_n<'a>(&'a self, key: &'a Key, cost: u64) -> Answer<'a, Decision> {
        Box::pin(Self::check_n(self, key, cost))
    }

    fn refund<'a>(&'a self, key: &'a Key, charge: &'a Decision) -> Answer<'a, ()> {
        Box::pin(Self::refund(self, key, charge))
    }

    fn quota(&self) -> Quota {
        Self::quota(self)
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

    fn refund<'a>(&'a self, key: &'a Key, charge: &'a Decision) -> Answer<'a, ()> {
        Box::pin(self.limiter.refund_as(self.class, key, charge))
    }

    fn quota(&self) -> Quota {
        self.limiter.quota_of(self.class)
    }

    fn capacity(&self) -> u64 {
        self.limiter.capacity_of(self.class)
    }
}

impl StoreKey for Key {
    fn write(&self, bytes: &mut Vec<u8>) {
        self.write_to(bytes);
    }
}
