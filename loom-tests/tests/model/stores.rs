//! The stores that models run with.

use tollgate::store::{Accepts, ExactKeys, Fingerprints};
use tollgate::{Builder, Limiter};

/// The store that a model runs with.
pub trait Built: Accepts<u64> + Sized + 'static {
    fn build(builder: Builder<Limiter<u64>>) -> Limiter<u64, Self>;
}

impl Built for Fingerprints {
    fn build(builder: Builder<Limiter<u64>>) -> Limiter<u64> {
        builder.build().unwrap()
    }
}

impl Built for ExactKeys<u64> {
    fn build(builder: Builder<Limiter<u64>>) -> Limiter<u64, Self> {
        builder.exact_keys().build().unwrap()
    }
}
