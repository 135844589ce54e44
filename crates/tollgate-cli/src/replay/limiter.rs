//! [`ReplayLimiter`]: the limiter of a simulation, with either store of keys.

use std::time::Duration;

use tollgate::{Algorithm, ConfigError, Decision, ExactKeys, Limiter, Quota, Tick, WhenFull, WindowAlign};

/// The settings of a limiter besides its quota.
#[derive(Clone, Copy, Debug)]
pub struct LimiterSettings {
    pub max_keys: usize,
    pub full: WhenFull,
    /// Whether to keep the keys themselves instead of their fingerprints.
    pub exact_keys: bool,
}

/// A limiter whose keys are bytes.
pub(crate) enum ReplayLimiter {
    Fingerprints(Box<Limiter<Vec<u8>>>),
    Exact(Box<Limiter<Vec<u8>, ExactKeys<Vec<u8>>>>),
}

impl ReplayLimiter {
    /// # Errors
    ///
    /// The reason why the algorithm cannot enforce this quota.
    pub(crate) fn new(
        algorithm: Algorithm,
        quota: Quota,
        settings: LimiterSettings,
    ) -> Result<Self, ConfigError> {
        let mut builder = Limiter::builder(quota).algorithm(algorithm);
        // Keys are never forgotten: a log may step back by more than any grace, and the report
        // keeps its keys in any case.
        builder = builder.max_keys(settings.max_keys).when_full(settings.full).grace(Duration::MAX);
        if algorithm.has_windows() {
            // Ticks are Unix time, and servers count their windows from the Unix epoch, which is
            // tick 0.
            builder = builder.align(WindowAlign::TickZero);
        }
        // An algorithm whose state does not fit a word needs exact keys.
        Ok(if settings.exact_keys || !Algorithm::PACKED.contains(&algorithm) {
            Self::Exact(Box::new(builder.exact_keys().build()?))
        } else {
            Self::Fingerprints(Box::new(builder.build()?))
        })
    }

    /// Sets quotas of single keys, from the beginning of time.
    ///
    /// # Errors
    ///
    /// The reason why the algorithm cannot enforce one of them, or that the limiter is out of
    /// memory.
    pub(crate) fn set_key_quotas<'k>(
        &self,
        quotas: impl Iterator<Item = (&'k [u8], Quota)>,
    ) -> Result<(), ConfigError> {
        let quotas = quotas.map(|(key, quota)| (key, Some(quota)));
        match self {
            Self::Fingerprints(limiter) => limiter.set_key_quotas_at(quotas, Tick::ZERO),
            Self::Exact(limiter) => limiter.set_key_quotas_at(quotas, Tick::ZERO),
        }
    }

    pub(crate) fn check_at(&self, key: &[u8], cost: u64, now: Tick) -> Decision {
        match self {
            Self::Fingerprints(limiter) => limiter.check_at(key, cost, now),
            Self::Exact(limiter) => limiter.check_at(key, cost, now),
        }
    }

    /// Returns the number of keys that the limiter holds a state for.
    pub(crate) fn len(&self) -> usize {
        match self {
            Self::Fingerprints(limiter) => limiter.len(),
            Self::Exact(limiter) => limiter.len(),
        }
    }

    /// Returns the bytes that the limiter holds.
    pub(crate) fn bytes(&self) -> usize {
        match self {
            Self::Fingerprints(limiter) => limiter.bytes(),
            Self::Exact(limiter) => limiter.bytes(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_quotas_of_keys_are_one_change() {
        let settings = LimiterSettings { max_keys: 10, full: WhenFull::Deny, exact_keys: false };
        let gate =
            ReplayLimiter::new(Algorithm::TokenBucket, Quota::per_second(1), settings).expect("a quota");
        let keys: Vec<[u8; 2]> = (0..1000_u16).map(u16::to_le_bytes).collect();
        let quotas = keys.iter().map(|key| (&key[..], Quota::per_second(2)));
        assert_eq!(gate.set_key_quotas(quotas), Ok(()));
        let ReplayLimiter::Fingerprints(limiter) = gate else {
            panic!("the keys themselves were not asked for")
        };
        assert_eq!((limiter.stats().turnovers, limiter.stats().own_quotas), (1, 1000));
    }
}
