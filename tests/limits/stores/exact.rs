//! The store for the tests in this folder: exact keys.

use std::hash::Hash;
use tollgate::store::ExactKeys;
use tollgate::{Algorithm, Builder, ClassLimiter, Limiter};

/// The algorithms that this store accepts.
#[allow(dead_code)]
pub(crate) const ALGORITHMS: &[Algorithm] = &Algorithm::ALL;

pub(crate) type Gate<K> = Limiter<K, ExactKeys<K>>;

#[allow(dead_code)]
pub(crate) type Tiers<K> = ClassLimiter<K, ExactKeys<K>>;

pub(crate) trait IntoGate<K: Eq + Send + Sync + 'static> {
    fn gate(self) -> Gate<K>;

    /// A builder with this store, before it gets classes.
    #[allow(dead_code)]
    fn of_store(self) -> Builder<Gate<K>>;
}

impl<K: Hash + Eq + Send + Sync + 'static> IntoGate<K> for Builder<Limiter<K>> {
    fn gate(self) -> Gate<K> {
        self.exact_keys().build().unwrap()
    }

    fn of_store(self) -> Builder<Gate<K>> {
        self.exact_keys()
    }
}
