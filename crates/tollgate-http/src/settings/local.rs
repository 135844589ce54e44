//! The limiters of this process that settings make.

use crate::key::parts::Key;
use std::sync::Arc;
use tollgate::{ConfigError, Decision, ExactKeys, Limiter, Quota, SingleLimiter, Stats};

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

    /// Returns the quota.
    pub fn quota(&self) -> Quota {
        match self {
            Self::Single(limiter) => limiter.quota(),
            Self::Keyed(limiter) => limiter.quota(),
            Self::Exact(limiter) => limiter.quota(),
        }
    }

    /// Returns what a request of this key would get now, without charging it. Without keys, the
    /// one state is looked at.
    pub fn peek(&self, key: &Key) -> Decision {
        match self {
            Self::Single(limiter) => limiter.peek(),
            Self::Keyed(limiter) => limiter.peek(key),
            Self::Exact(limiter) => limiter.peek(key),
        }
    }

    /// Makes a key as if it had never been charged. Without keys, the one state is reset.
    pub fn reset(&self, key: &Key) {
        match self {
            Self::Single(limiter) => limiter.reset(),
            Self::Keyed(limiter) => limiter.reset(key),
            Self::Exact(limiter) => limiter.reset(key),
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
