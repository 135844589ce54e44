//! Shared limits in front of HTTP services.

use crate::limiter::SharedLimiter;
use crate::name::StoreKey;
use std::future::Future;
use std::pin::Pin;
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
}

impl StoreKey for Key {
    fn write(&self, bytes: &mut Vec<u8>) {
        self.write_to(bytes);
    }
}
