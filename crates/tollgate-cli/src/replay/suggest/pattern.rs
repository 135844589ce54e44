//! Finds the clients that stand out, and the patterns in their requests.
//!
//! A client is an *outlier* if its busiest minute has far more requests than the busiest minutes of
//! other clients. Two conditions must hold:
//!
//! - On a logarithmic scale, the number of requests exceeds the upper quartile of all clients by
//!   more than 1.5 times the distance between the quartiles. J. W. Tukey's box plots use the same
//!   factor.
//! - The number of requests exceeds the upper quartile by a factor of at least four.
//!
//! The quartiles do not depend on how many requests a few clients send.

use std::time::Duration;

use serde::Serialize;

use super::client::Client;
use crate::replay::report::quantity::nanos;

/// The minimum number of requests for a pattern.
const FEW: u64 = 20;

/// The minimum factor by which an outlier exceeds the upper quartile.
const LEAST_FACTOR: u64 = 4;

/// The pattern of a client's requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "pattern", rename_all = "lowercase")]
pub(crate) enum Pattern {
    /// At least half of the requests repeat the previous request, which failed shortly before.
    Retries,
    /// At least four out of five intervals between requests are close to the median interval, which
    /// is at least two seconds.
    Steady { every_ns: u64 },
    /// At least half of the requests in the busiest minute were sent within two seconds.
    Bursts,
    /// No other pattern applies.
    Mixed,
}

/// The busiest minutes of all clients.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct BusiestMinutes {
    /// The number of requests in each client's busiest minute, indexed by the id of the client's
    /// key.
    pub(crate) of: Vec<u64>,
    /// The lower quartile, the median, the upper quartile, the 99th percentile and the maximum, in
    /// this order.
    pub(crate) quantiles: [u64; 5],
    /// Clients with more requests in their busiest minute are outliers.
    pub(crate) fence: u64,
}

impl Pattern {
    /// `most_in_minute` is the number of requests in the busiest minute.
    pub(crate) fn of(client: &Client, most_in_minute: u64) -> Self {
        let requests = client.times.len() as u64;
        if requests < FEW {
            return Self::Mixed;
        }
        if client.retries * 2 >= requests {
            return Self::Retries;
        }
        if let Some((every, near)) = client.usual_gap()
            && every >= Duration::from_secs(2)
            && near as u64 * 5 >= (requests - 1) * 4
        {
            return Self::Steady { every_ns: nanos(every) };
        }
        if client.most_in(Duration::from_secs(2)) * 2 >= most_in_minute {
            return Self::Bursts;
        }
        Self::Mixed
    }
}

impl BusiestMinutes {
    pub(crate) fn new(clients: &[Client]) -> Self {
        let of: Vec<u64> = clients.iter().map(|client| client.most_in(Duration::from_secs(60))).collect();
        let mut sorted = of.clone();
        sorted.sort_unstable();
        let at =
            |part: usize| sorted.get((sorted.len().saturating_sub(1)) * part / 100).copied().unwrap_or(0);
        let quantiles = [25, 50, 75, 99, 100].map(at);
        let [lower, _, upper, ..] = quantiles;
        // The fence is the upper quartile multiplied by r^1.5, where r is the ratio of the upper to
        // the lower quartile. This expression computes the square of the fence.
        let square = u128::from(upper).saturating_pow(5) / u128::from(lower.max(1)).saturating_pow(3);
        let far = u64::try_from(square.isqrt()).unwrap_or(u64::MAX);
        Self { of, quantiles, fence: far.max(upper.saturating_mul(LEAST_FACTOR)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tollgate::Tick;

    #[test]
    fn the_fence_goes_by_the_quartiles_alone() {
        let at_once = |count: usize| Client { times: vec![Tick::ZERO; count], ..Client::default() };
        let of = |counts: &[usize]| {
            let clients: Vec<Client> = counts.iter().map(|&count| at_once(count)).collect();
            let minutes = BusiestMinutes::new(&clients);
            (minutes.quantiles, minutes.fence)
        };
        assert_eq!(of(&[2; 5]), ([2; 5], 8));
        assert_eq!(of(&[1, 2, 4, 8, 16]), ([2, 4, 8, 8, 16], 64));
        assert_eq!(of(&[1, 2, 4, 8, 5000]), ([2, 4, 8, 8, 5000], 64));
        assert_eq!(of(&[]), ([0; 5], 0));
    }
}
