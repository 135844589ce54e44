//! The atomics of models, with the methods that the words need.

use tollgate::sync::{Atomic, Ordering};

#[derive(Debug)]
pub struct AtomicU64(Atomic<u64>);

#[derive(Debug)]
pub struct AtomicBool(Atomic<u64>);

impl AtomicU64 {
    pub fn new(value: u64) -> Self {
        Self(Atomic::new(value))
    }

    pub fn load(&self, order: Ordering) -> u64 {
        self.0.load(order)
    }

    pub fn store(&self, value: u64, order: Ordering) {
        self.0.store(value, order);
    }

    pub fn compare_exchange(
        &self,
        current: u64,
        new: u64,
        success: Ordering,
        failure: Ordering,
    ) -> Result<u64, u64> {
        self.0.compare_exchange(current, new, success, failure)
    }

    pub fn compare_exchange_weak(
        &self,
        current: u64,
        new: u64,
        success: Ordering,
        failure: Ordering,
    ) -> Result<u64, u64> {
        self.0.compare_exchange_weak(current, new, success, failure)
    }
}

impl Default for AtomicU64 {
    fn default() -> Self {
        Self::new(0)
    }
}

impl AtomicBool {
    pub fn new(value: bool) -> Self {
        Self(Atomic::new(value.into()))
    }

    pub fn load(&self, order: Ordering) -> bool {
        self.0.load(order) != 0
    }

    pub fn store(&self, value: bool, order: Ordering) {
        self.0.store(value.into(), order);
    }

    pub fn swap(&self, value: bool, order: Ordering) -> bool {
        self.0.swap(value.into(), order) != 0
    }
}

impl Default for AtomicBool {
    fn default() -> Self {
        Self::new(false)
    }
}
