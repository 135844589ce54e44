//! The store that the tests of this folder run with: exact keys.

use std::hash::Hash;
use tollgate::{Algorithm, Builder, ExactKeys, Limiter};

/// The algorithms that this store accepts.
#[allow(dead_code)]
pub(crate) const ALGORITHMS: &[Algorithm] = &Algorithm::ALL;

pub(crate) type Gate<K> = Limiter<K, ExactKeys<K>>;

pub(crate) trait IntoGate<K> {
    fn gate(self) -> Gate<K>;
}

impl<K: Hash + Eq + Send + Sync + 'static> IntoGate<K> for Builder<Limiter<K>> {
    fn gate(self) -> Gate<K> {
        self.exact_keys().build().unwrap()
    }
}
