//! The limiters of one class of callers, which the replay calls at the times of the log.

use std::time::Duration;

use tollgate::store::ExactKeys;
use tollgate::{
    Algorithm, Chargeable, ConfigError, Decision, InFlight, Limiter, ManualClock, Permit, Quota, QuotaError,
    Tick, WhenFull, WindowAlign,
};
use tollgate_http::settings::Allowance;

use crate::replay::keys::KeyId;

/// The settings of all limiters of a replay.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LimiterSettings {
    pub(crate) algorithm: Algorithm,
    pub(crate) when_full: WhenFull,
    /// Whether to keep the keys themselves instead of their fingerprints.
    pub(crate) exact_keys: bool,
}

/// How often a limiter must see a time before it believes the time.
const WITNESSES: usize = 4;

/// The limiter of one class.
pub(crate) enum ClassLimiter {
    Fingerprints(Box<Limiter<KeyId>>),
    Exact(Box<Limiter<KeyId, ExactKeys<KeyId>>>),
    InFlight(Box<InFlight<KeyId>>),
    /// The class is unlimited or blocked.
    Uncounted,
}

impl ClassLimiter {
    /// Creates a limiter that tracks at most `max_keys` keys. A denial pauses its key for `penalty`.
    /// `clock` is the clock of limits on requests in flight.
    ///
    /// # Errors
    ///
    /// Returns an error if the algorithm cannot enforce the quota, or if no limiter can track that
    /// many keys.
    pub(crate) fn new(
        allowance: Allowance,
        penalty: Option<Duration>,
        max_keys: usize,
        settings: LimiterSettings,
        clock: &ManualClock,
    ) -> Result<Self, ConfigError> {
        let LimiterSettings { algorithm, when_full, exact_keys } = settings;
        let quota = match allowance {
            Allowance::Unlimited | Allowance::Blocked => return Ok(Self::Uncounted),
            Allowance::AtOnce(most) => {
                let builder = InFlight::builder(most).clock(clock).max_keys(max_keys).when_full(when_full);
                return Ok(Self::InFlight(Box::new(builder.build()?)));
            }
            Allowance::Rate(quota) => quota,
        };
        let mut builder = Limiter::builder(quota).algorithm(algorithm);
        builder = builder.max_keys(max_keys).when_full(when_full);
        if let Some(penalty) = penalty {
            builder = builder.penalty(penalty);
        }
        if algorithm.has_windows() {
            // A tick is a Unix time, and servers align their windows to the Unix epoch, which is
            // tick 0.
            builder = builder.align(WindowAlign::ClockStart);
        }
        // An algorithm whose state does not fit in a single word requires exact keys.
        Ok(if exact_keys || !Algorithm::PACKED.contains(&algorithm) {
            Self::Exact(Box::new(builder.exact_keys().build()?))
        } else {
            Self::Fingerprints(Box::new(builder.build()?))
        })
    }

    /// Tells the limiter, which must have no keys, that the log begins at this time. A limiter
    /// believes a time far ahead of all earlier times only after it has seen the time repeatedly,
    /// and until then it forgets no keys.
    pub(crate) fn begin(&self, at: Tick) {
        for _ in 0..WITNESSES {
            match self {
                Self::Fingerprints(limiter) => limiter.at(at).clear(),
                Self::Exact(limiter) => limiter.at(at).clear(),
                Self::InFlight(limit) => limit.clear(),
                Self::Uncounted => {}
            }
        }
    }

    /// Sets the quotas of individual keys, in force from tick zero.
    ///
    /// # Errors
    ///
    /// Returns an error if the algorithm cannot enforce one of the quotas, or if the limiter is out
    /// of memory.
    pub(crate) fn set_key_quotas<'k>(
        &self,
        quotas: impl Iterator<Item = (&'k KeyId, Quota)>,
    ) -> Result<(), QuotaError> {
        let quotas = quotas.map(|(key, quota)| (key, Some(quota)));
        match self {
            Self::Fingerprints(limiter) => limiter.at(Tick::ZERO).set_key_quotas(quotas),
            Self::Exact(limiter) => limiter.at(Tick::ZERO).set_key_quotas(quotas),
            Self::InFlight(_) | Self::Uncounted => Ok(()),
        }
    }

    /// Checks a request. Returns `None` for a limit on requests in flight, which needs a
    /// [`permit`](Self::permit).
    #[inline]
    pub(crate) fn check(&self, key: KeyId, cost: u64, now: Tick) -> Option<Decision> {
        match self {
            Self::Fingerprints(limiter) => Some(limiter.at(now).check_n(&key, cost)),
            Self::Exact(limiter) => Some(limiter.at(now).check_n(&key, cost)),
            Self::InFlight(_) | Self::Uncounted => None,
        }
    }

    /// Returns what a request charges together with other limits: the key, or for a limit on
    /// requests in flight, a permit.
    pub(crate) fn charge<'l>(&'l self, key: &'l KeyId, now: Tick) -> ToCharge<'l> {
        match self {
            Self::Fingerprints(limiter) => ToCharge::Key(Box::new(limiter.at(now).for_key(key))),
            Self::Exact(limiter) => ToCharge::Key(Box::new(limiter.at(now).for_key(key))),
            Self::InFlight(limit) => ToCharge::Permit(limit.empty_permit_owned(*key)),
            Self::Uncounted => ToCharge::Nothing,
        }
    }
}

/// What a request charges.
pub(crate) enum ToCharge<'l> {
    Key(Box<dyn Chargeable + 'l>),
    Permit(Permit),
    Nothing,
}
