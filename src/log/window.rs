//! The rule of a sliding log: the limit, and how long admissions count.

use super::slot::SlotFields;
use crate::algorithm::Algorithm;
use crate::decision::NEVER;
use crate::error::Refused;
use crate::quota::Quota;
use crate::time::Tick;
use std::time::Duration;

/// Admits at most `limit` tokens in any trailing period.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct SlidingLog {
    pub(super) limit: u64,
    pub(super) period: u64,
    /// The fields of a chunk whose row may contain the whole limit.
    pub(super) fields: SlotFields,
    pub(super) past: Past,
}

/// Tokens that were admitted at one time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Admission {
    pub(crate) time: Tick,
    pub(crate) tokens: u64,
}

/// Describes the admissions that have already left the windows of earlier rules. These admissions
/// do not count again.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Past {
    /// Admissions before this time do not count.
    pub(super) from: u64,
    /// The time at which the last of the excluded admissions left its window. Requests are never
    /// decided at an earlier time.
    pub(super) until: u64,
}

impl Past {
    /// The past of a log whose quota never changed.
    pub(crate) const NONE: Self = Self { from: 0, until: 0 };
}

impl SlidingLog {
    /// The largest limit. A key that exhausts this limit occupies 8 to 24 MB.
    const MOST: u64 = 1_000_000;

    /// Creates the rule for `quota`.
    ///
    /// # Errors
    ///
    /// Returns an error for a limit or period of 0, a period above [`Quota::MAX_PERIOD`], a burst,
    /// or a limit above a million.
    pub(crate) fn new(quota: Quota) -> Result<Self, Refused> {
        let (limit, period) = quota.rate()?;
        if let Some(burst) = quota.explicit_burst() {
            return Err(Refused::BurstUnsupported { algorithm: Algorithm::SlidingLog, burst });
        }
        if limit > Self::MOST {
            return Err(Refused::LogTooLarge { tokens: limit, most: Self::MOST });
        }
        Ok(Self { limit, period, fields: SlotFields::of_tokens(limit), past: Past::NONE })
    }

    /// Returns the time from which a log with these admissions is idle. Returns `None` if no log
    /// can contain the admissions: they are out of order, larger than any limit, or without tokens.
    pub(crate) fn until(&self, admissions: &[Admission]) -> Option<Tick> {
        let is_ordered = admissions.is_sorted_by_key(|admission| admission.time);
        let total = admissions.iter().try_fold(0_u64, |sum, admission| sum.checked_add(admission.tokens))?;
        let is_real = admissions.iter().all(|admission| admission.tokens > 0);
        let last = admissions.last().map_or(Tick::ZERO, |admission| admission.time);
        let is_possible = is_ordered && is_real && total <= Self::MOST;
        let period = if admissions.is_empty() { 0 } else { self.period };
        is_possible.then(|| last + Duration::from_nanos(period))
    }

    /// Returns this rule for a log with the given past.
    #[inline]
    pub(crate) fn with_past(self, past: Past) -> Self {
        Self { past, ..self }
    }

    /// Returns the latest time before the window that ends at `time`, or `None` if there is none.
    #[inline]
    pub(super) fn out_at(&self, time: u64) -> Option<u64> {
        match time.checked_sub(self.period) {
            Some(out) if out >= self.past.from => Some(out),
            out => out.max(self.past.from.checked_sub(1)),
        }
    }

    /// Returns how many nanoseconds after `now` an admission leaves the window.
    #[inline]
    pub(super) fn until_out(&self, admission: u64, now: Tick) -> u64 {
        let out = admission + self.period;
        if out > Tick::MAX.as_nanos() { NEVER } else { out.saturating_sub(now.as_nanos()) }
    }
}
