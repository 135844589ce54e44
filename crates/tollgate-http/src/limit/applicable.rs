//! The limits that apply to one request.

use super::backend::{Backend, Bound, SharedBound};
use super::compiled::CompiledLimit;
use crate::key::parts::KeyRef;
use smallvec::SmallVec;
use tollgate::ToKey;

/// The number of limits that are asked without an allocation.
pub(crate) const INLINE: usize = 4;

/// The limits that apply to a request, with its keys, costs and classes.
#[derive(Default)]
pub(crate) struct ApplicableLimits<'r> {
    pub(crate) local: SmallVec<[Bound<'r>; INLINE]>,
    pub(crate) shared: Vec<SharedBound<'r>>,
}

impl<'r> ApplicableLimits<'r> {
    /// Adds the limit with this index in the layer, for a caller of this class.
    pub(crate) fn add(
        &mut self,
        number: usize,
        limit: &'r CompiledLimit,
        class: usize,
        key: KeyRef<'r>,
        cost: u64,
    ) {
        match &limit.class(class).backend {
            Backend::Local(limiter) => {
                self.local.push(Bound { limit: number, class, limiter, key, cost });
            }
            Backend::Shared(limiter) => {
                let key = key.to_key();
                self.shared.push(SharedBound { limit: number, class, limiter: &**limiter, key, cost });
            }
        }
    }
}
