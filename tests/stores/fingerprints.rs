//! The store that the tests of this folder run with: fingerprints in a table.

use std::hash::Hash;
use tollgate::{Algorithm, Builder, Limiter};

/// The algorithms that this store accepts.
#[allow(dead_code)]
pub(crate) const ALGORITHMS: &[Algorithm] = &Algorithm::PACKED;

pub(crate) type Gate<K> = Limiter<K>;

pub(crate) trait IntoGate<K> {
    fn gate(self) -> Gate<K>;
}

impl<K: Hash + Eq + Send + Sync + 'static> IntoGate<K> for Builder<Limiter<K>> {
    fn gate(self) -> Gate<K> {
        self.build().unwrap()
    }
}
