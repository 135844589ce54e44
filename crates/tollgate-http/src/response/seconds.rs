//! Converts times for fields to whole seconds. The times are rounded up, so that a client that
//! obeys them always waits long enough.

use std::time::Duration;
use tollgate::{Decision, DecisionSource};

/// The largest Integer of structured fields (RFC 9651, section 3.3.1).
pub(crate) const MAX_INTEGER: u64 = 999_999_999_999_999;

/// Returns whole seconds, rounded up.
pub(crate) fn rounded_up(duration: Duration) -> u64 {
    duration.as_secs().saturating_add(u64::from(duration.subsec_nanos() > 0))
}

/// Returns how long a refused client should wait, at least one second. Returns `None` if the limit
/// cannot say when a retry would succeed.
pub(crate) fn until_retry(decision: &Decision) -> Option<u64> {
    decision.retry_after().map(|wait| rounded_up(wait).max(1))
}

/// For a limit that did not refuse, returns the time until the limit has more tokens than now.
/// Returns `None` if all tokens are available, or if there will never be more.
pub(crate) fn until_more(decision: &Decision) -> Option<u64> {
    until(decision, decision.refill_after())
}

/// Returns the time until all tokens are available. Returns `None` if all tokens are available now,
/// or never will be.
pub(crate) fn until_reset(decision: &Decision) -> Option<u64> {
    until(decision, decision.reset_after())
}

fn until(decision: &Decision, time: Duration) -> Option<u64> {
    let told = decision.source() != DecisionSource::Policy && !time.is_zero() && time != Duration::MAX;
    told.then(|| rounded_up(time)).filter(|&seconds| seconds <= MAX_INTEGER)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_begun_second_counts_whole() {
        for (nanos, seconds) in [(0, 0), (1, 1), (999_999_999, 1), (1_000_000_000, 1), (1_000_000_001, 2)] {
            assert_eq!(rounded_up(Duration::from_nanos(nanos)), seconds);
        }
        assert_eq!(rounded_up(Duration::MAX), u64::MAX);
    }
}
