//! The store for the tests in this folder: fingerprints in a table.

use std::hash::Hash;
use tollgate::{Algorithm, Builder, ClassLimiter, Limiter};

/// The algorithms that this store accepts.
#[allow(dead_code)]
pub(crate) const ALGORITHMS: &[Algorithm] = &Algorithm::PACKED;

pub(crate) type Gate<K> = Limiter<K>;

#[allow(dead_code)]
pub(crate) type Tiers<K> = ClassLimiter<K>;

pub(crate) trait IntoGate<K> {
    fn gate(self) -> Gate<K>;

    /// A builder with this store, before it gets classes.
    #[allow(dead_code)]
    fn of_store(self) -> Builder<Gate<K>>;
}

impl<K: Hash + Eq + Send + Sync + 'static> IntoGate<K> for Builder<Limiter<K>> {
    fn gate(self) -> Gate<K> {
        self.build().unwrap()
    }

    fn of_store(self) -> Builder<Gate<K>> {
        self
    }
}
