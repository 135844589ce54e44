//! [`ReplayLimiter`]: the limiter of a simulation, with either store of keys.
//!
//! A [`ReplayLimiter`] returns the same answers as a limiter whose clock follows the timestamps in
//! the log. It stores a state for every key in the log, and [`Places`] decides which of these keys
//! a limiter would be tracking.

use std::time::Duration;

use tollgate::store::ExactKeys;
use tollgate::{Algorithm, ConfigError, Decision, Limiter, Quota, QuotaError, Tick, WhenFull, WindowAlign};

use super::keys::KeyId;
use super::places::Places;

/// The maximum number of keys with a state. Any machine runs out of memory before it reaches this
/// number, even though a limiter could track more keys.
const ALL_KEYS: usize = if usize::BITS > 32 { 1 << 31 } else { 1 << 23 };

/// The settings of a limiter besides its quota.
#[derive(Clone, Copy, Debug)]
pub struct LimiterSettings {
    pub max_keys: usize,
    pub when_full: WhenFull,
    /// Whether to keep the keys themselves instead of their fingerprints.
    pub exact_keys: bool,
}

/// A limiter that identifies keys by their bytes, with the states of all keys.
pub(crate) struct ReplayLimiter {
    states: States,
    places: Places,
    /// A full limiter, whose policy answers requests with a key that has no place.
    full: States,
}

/// The states of the keys. They are never evicted.
enum States {
    Fingerprints(Box<Limiter<Vec<u8>>>),
    Exact(Box<Limiter<Vec<u8>, ExactKeys<Vec<u8>>>>),
}

impl ReplayLimiter {
    /// # Errors
    ///
    /// Returns an error if the algorithm cannot enforce this quota, or if no limiter can track that
    /// many keys.
    pub(crate) fn new(
        algorithm: Algorithm,
        quota: Quota,
        settings: LimiterSettings,
    ) -> Result<Self, ConfigError> {
        let states = |max_keys| States::new(algorithm, quota, LimiterSettings { max_keys, ..settings });
        // This limiter is built only to check that a limiter accepts the maximum number of keys.
        drop(states(settings.max_keys)?);
        let full = states(1)?;
        let _ = full.check_at(b"the key that has the place", 1, Tick::ZERO);
        Ok(Self { states: states(ALL_KEYS)?, places: Places::new(settings.max_keys), full })
    }

    /// Sets the quotas of individual keys, in force from tick zero.
    ///
    /// # Errors
    ///
    /// Returns an error if the algorithm cannot enforce one of the quotas, or if the limiter is out
    /// of memory.
    pub(crate) fn set_key_quotas<'k>(
        &self,
        quotas: impl Iterator<Item = (&'k [u8], Quota)>,
    ) -> Result<(), QuotaError> {
        let quotas = quotas.map(|(key, quota)| (key, Some(quota)));
        match &self.states {
            States::Fingerprints(limiter) => limiter.at(Tick::ZERO).set_key_quotas(quotas),
            States::Exact(limiter) => limiter.at(Tick::ZERO).set_key_quotas(quotas),
        }
    }

    pub(crate) fn check_at(&mut self, id: KeyId, key: &[u8], cost: u64, now: Tick) -> Decision {
        if !self.places.has_room_for(id, now) {
            let fresh = self.states.peek_at(key, cost, now);
            // A request that charges nothing needs no place.
            let needs_place = fresh.is_allowed() && cost > 0;
            return if needs_place { self.full.check_at(b"a new key", cost, now) } else { fresh };
        }
        let decision = self.states.check_at(key, cost, now);
        if decision.is_allowed() && cost > 0 {
            self.places.charged(id, now + decision.reset_after());
        }
        decision
    }

    /// Returns the number of keys whose state the replay stores.
    pub(crate) fn len(&self) -> usize {
        match &self.states {
            States::Fingerprints(limiter) => limiter.len(),
            States::Exact(limiter) => limiter.len(),
        }
    }

    /// Returns the size of the states in bytes.
    pub(crate) fn bytes(&self) -> usize {
        match &self.states {
            States::Fingerprints(limiter) => limiter.stats().bytes,
            States::Exact(limiter) => limiter.stats().bytes,
        }
    }
}

impl States {
    fn new(algorithm: Algorithm, quota: Quota, settings: LimiterSettings) -> Result<Self, ConfigError> {
        let mut builder = Limiter::builder(quota).algorithm(algorithm);
        builder = builder.max_keys(settings.max_keys).when_full(settings.when_full).grace(Duration::MAX);
        if algorithm.has_windows() {
            // A tick is a Unix time, and servers align their windows to the Unix epoch, which is
            // tick 0.
            builder = builder.align(WindowAlign::ClockStart);
        }
        // An algorithm whose state does not fit in a single word requires exact keys.
        Ok(if settings.exact_keys || !Algorithm::PACKED.contains(&algorithm) {
            Self::Exact(Box::new(builder.exact_keys().build()?))
        } else {
            Self::Fingerprints(Box::new(builder.build()?))
        })
    }

    fn check_at(&self, key: &[u8], cost: u64, now: Tick) -> Decision {
        match self {
            Self::Fingerprints(limiter) => limiter.at(now).check_n(key, cost),
            Self::Exact(limiter) => limiter.at(now).check_n(key, cost),
        }
    }

    fn peek_at(&self, key: &[u8], cost: u64, now: Tick) -> Decision {
        match self {
            Self::Fingerprints(limiter) => limiter.at(now).peek_n(key, cost),
            Self::Exact(limiter) => limiter.at(now).peek_n(key, cost),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_quotas_of_keys_are_one_change() {
        let settings = LimiterSettings { max_keys: 10, when_full: WhenFull::Deny, exact_keys: false };
        let gate =
            ReplayLimiter::new(Algorithm::TokenBucket, Quota::per_second(1), settings).expect("a quota");
        let keys: Vec<[u8; 2]> = (0..1000_u16).map(u16::to_le_bytes).collect();
        let quotas = keys.iter().map(|key| (&key[..], Quota::per_second(2)));
        assert_eq!(gate.set_key_quotas(quotas), Ok(()));
        let States::Fingerprints(limiter) = gate.states else {
            panic!("the keys themselves were not asked for")
        };
        assert_eq!((limiter.stats().turnovers, limiter.stats().own_quotas), (1, 1000));
    }
}
