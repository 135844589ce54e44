//! The limiters of this process that settings make.

use crate::key::parts::Key;
use std::sync::Arc;
use tollgate::{ConfigError, ExactKeys, Limiter, Quota, SingleLimiter, Stats};

/// The limiter of a limit that was made from [`LimitSettings`](crate::settings::LimitSettings): to
/// read its statistics, to change its quota, or to check its keys beside the layer.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum LocalLimiter {
    /// All requests have one state.
    Single(Arc<SingleLimiter>),
    /// Each key has a state, found by the key's fingerprint.
    Keyed(Arc<Limiter<Key>>),
    /// Each key has a state, found by the key itself: of algorithms whose state does not fit a
    /// word.
    Exact(Arc<Limiter<Key, ExactKeys<Key>>>),
}

impl LocalLimiter {
    /// Returns the statistics; `None` without keys.
    pub fn stats(&self) -> Option<Stats> {
        match self {
            Self::Single(_) => None,
            Self::Keyed(limiter) => Some(limiter.stats()),
            Self::Exact(limiter) => Some(limiter.stats()),
        }
    }

    /// Changes the quota while the limiter is in use; see
    /// [`Limiter::set_quota`](tollgate::Limiter::set_quota) for what becomes of the keys.
    ///
    /// # Errors
    ///
    /// A quota that the algorithm cannot enforce. The old one stays.
    pub fn set_quota(&self, quota: Quota) -> Result<(), ConfigError> {
        match self {
            Self::Single(limiter) => limiter.set_quota(quota),
            Self::Keyed(limiter) => limiter.set_quota(quota),
            Self::Exact(limiter) => limiter.set_quota(quota),
        }
    }
}
