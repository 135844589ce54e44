//! Finds the smallest rate that denies no more than is allowed.
//!
//! [`Search::smallest`] finds N by bisection. Bisection is correct because a larger N never denies
//! more requests:
//!
//! - A token bucket, a fixed window and a sliding log admit as many requests as any selection of
//!   requests that stays within their bound, because admitting an early request instead of a later
//!   one never costs a second request. A selection within the bound for N is also within the bound
//!   for N + 1.
//! - At any time, a sliding window with N + 1 tokens has counted as many requests in its current
//!   window as one with N tokens, or one more. If the counts for the previous windows differ by at
//!   most one, then the remaining room differs by at most one, and never to the disadvantage of the
//!   larger N. Therefore no window admits fewer requests with the larger N.
//!
//! If N denies nothing to a key, then a larger N denies nothing to that key either. A larger N
//! therefore never denies requests from more clients. The test
//! `no_smaller_rate_of_any_row_is_enough` tries all N.

use std::time::Duration;

use serde::Serialize;
use tollgate::{Algorithm, Chargeable, ConfigError, Quota, SingleLimiter, WindowAlign};

use super::client::Client;

/// The number of requests that a limit may deny, or of clients that may be denied a request.
/// Exactly one field is set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Allowed {
    pub(crate) requests: Option<u64>,
    pub(crate) clients: Option<u64>,
}

/// The clients in a log, prepared for quotas with a single period.
pub(crate) struct Search<'t> {
    clients: &'t [Client],
    seconds: u64,
    /// The maximum number of requests that each client sends in a period, and the client's id. The
    /// busiest client is first.
    busiest: Vec<(u64, usize)>,
}

impl<'t> Search<'t> {
    pub(crate) fn new(clients: &'t [Client], seconds: u64) -> Self {
        // Rules differ in which end of a period they include. This period includes both ends.
        let period = Duration::from_secs(seconds) + Duration::from_nanos(1);
        let most = |(id, client): (usize, &Client)| (client.most_in(period), id);
        let mut busiest: Vec<(u64, usize)> = clients.iter().enumerate().map(most).collect();
        busiest.sort_unstable_by(|one, other| other.cmp(one));
        Self { clients, seconds, busiest }
    }

    /// Returns the smallest quota that denies no more than is allowed.
    ///
    /// # Errors
    ///
    /// Returns an error if the algorithm does not accept any quota that is large enough.
    pub(crate) fn smallest(&self, algorithm: Algorithm, allowed: Allowed) -> Result<Quota, ConfigError> {
        // If the algorithm refuses a quota, the quota is too large, so the search continues with
        // smaller ones.
        let is_enough = |tokens| self.is_enough(algorithm, tokens, allowed).unwrap_or(true);
        let (mut too_small, mut enough) = (0, 1);
        while !is_enough(enough) {
            (too_small, enough) = (enough, enough * 2);
        }
        while enough - too_small > 1 {
            let between = too_small + (enough - too_small) / 2;
            if is_enough(between) {
                enough = between;
            } else {
                too_small = between;
            }
        }
        self.is_enough(algorithm, enough, allowed).map(|_| self.quota(enough))
    }

    fn quota(&self, tokens: u64) -> Quota {
        Quota::new(tokens, Duration::from_secs(self.seconds))
    }

    /// Returns whether a quota of this many tokens per period denies no more than is allowed.
    fn is_enough(&self, algorithm: Algorithm, tokens: u64, allowed: Allowed) -> Result<bool, ConfigError> {
        let quota = self.quota(tokens);
        // This refuses an invalid quota even if no client is tried.
        drop(limiter(algorithm, quota)?);
        // A sliding window counts requests from up to two periods. Any other algorithm denies
        // nothing to a client that stays within the quota in every period.
        let periods = if algorithm == Algorithm::SlidingWindow { 2 } else { 1 };
        let mut left = allowed.requests.or(allowed.clients).unwrap_or(0);
        for &(most, id) in &self.busiest {
            if most.saturating_mul(periods) <= tokens {
                break;
            }
            let limiter = limiter(algorithm, quota)?;
            for &at in &self.clients[id].times {
                if limiter.at(at).check_n(1).is_allowed() {
                    continue;
                }
                if left == 0 {
                    return Ok(false);
                }
                left -= 1;
                if allowed.clients.is_some() {
                    break;
                }
            }
        }
        Ok(true)
    }
}

/// Returns the limiter of one client.
pub(crate) fn limiter(algorithm: Algorithm, quota: Quota) -> Result<SingleLimiter, ConfigError> {
    let builder = SingleLimiter::builder(quota).algorithm(algorithm);
    if algorithm.has_windows() {
        // As in a replay, a tick is a Unix time, and windows are aligned to the Unix epoch.
        builder.align(WindowAlign::ClockStart).build()
    } else {
        builder.build()
    }
}
