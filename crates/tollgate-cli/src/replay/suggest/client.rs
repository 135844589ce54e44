//! One client in a log: a key, with the times of its requests and the number of its retries.

use std::time::Duration;

use tollgate::Tick;

/// A request counts as a retry if the client's previous request failed, was for the same path, and
/// came at most this time before.
const RETRY: Duration = Duration::from_secs(10);

/// The requests with one key.
#[derive(Clone, Debug, Default)]
pub(crate) struct Client {
    /// The times at which the requests are judged, in ascending order.
    pub(crate) times: Vec<Tick>,
    /// The number of requests that repeat the previous request after it failed.
    pub(crate) retries: u64,
    pub(crate) last: Option<Last>,
}

/// The facts about a client's latest request in the log.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Last {
    path_hash: u64,
    has_failed: bool,
    at: Tick,
}

impl Client {
    /// Records a request. It counts as a retry if the previous request failed and the new request
    /// repeats it.
    pub(crate) fn requested(&mut self, path_hash: u64, status: &[u8], at: Tick) {
        let is_retry = self.last.is_some_and(|last| {
            let is_soon = (last.at..=last.at + RETRY).contains(&at);
            last.has_failed && last.path_hash == path_hash && is_soon
        });
        self.retries += u64::from(is_retry);
        let has_failed = matches!(status, [b'4' | b'5', _, _]);
        self.last = Some(Last { path_hash, has_failed, at });
    }

    /// Returns the maximum number of requests in any period shorter than `time`.
    pub(crate) fn most_in(&self, time: Duration) -> u64 {
        let mut first = 0;
        let mut most = 0;
        for (index, &at) in self.times.iter().enumerate() {
            while at.since(self.times[first]) >= time {
                first += 1;
            }
            most = most.max(index + 1 - first);
        }
        most as u64
    }

    /// Returns the median interval between two successive requests, and the number of intervals
    /// close to the median. An interval is close if it differs by at most a quarter of the median
    /// or by at most a second.
    pub(crate) fn usual_gap(&self) -> Option<(Duration, usize)> {
        let gap = |pair: &[Tick]| pair[1].as_nanos() - pair[0].as_nanos();
        let mut gaps: Vec<u64> = self.times.windows(2).map(gap).collect();
        gaps.sort_unstable();
        let middle = *gaps.get(gaps.len() / 2)?;
        let tolerance = (middle / 4).max(1_000_000_000);
        let near = gaps.iter().filter(|&&gap| gap.abs_diff(middle) <= tolerance).count();
        Some((Duration::from_nanos(middle), near))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    fn client(seconds: &[u64]) -> Client {
        let times = seconds.iter().map(|&second| Tick::from_nanos(second * SECOND)).collect();
        Client { times, ..Client::default() }
    }

    #[test]
    fn the_busiest_stretch_is_found_wherever_it_begins() {
        let mut client = client(&[0, 4, 5, 6, 9, 14]);
        for (seconds, most) in [(1, 1), (2, 2), (3, 3), (6, 4), (10, 5), (100, 6)] {
            assert_eq!(client.most_in(Duration::from_secs(seconds)), most, "{seconds}");
        }
        client.times.extend([Tick::MAX; 7]);
        assert_eq!(client.most_in(Duration::from_secs(1)), 7);
        assert_eq!(Client::default().most_in(Duration::from_secs(1)), 0);
    }

    #[test]
    fn the_usual_gap_is_the_middle_one() {
        let times: Vec<u64> = (0..20).map(|n| n * 8 + n % 2).chain([1000]).collect();
        assert_eq!(client(&times).usual_gap(), Some((Duration::from_secs(9), 19)));
        assert_eq!(client(&[5]).usual_gap(), None);
    }

    #[test]
    fn a_retry_repeats_the_path_of_a_failed_request_soon() {
        let mut client = Client::default();
        let at = |second| Tick::from_nanos(second * SECOND);
        let steps: &[(u64, &[u8], u64, u64)] = &[
            (1, b"401", 0, 0),
            (1, b"401", 5, 1),
            (1, b"200", 6, 2),
            (1, b"200", 7, 2),
            (2, b"503", 8, 2),
            (1, b"503", 9, 2),
            (1, b"503", 30, 2),
            (1, b"-", 31, 3),
            (1, b"-", 32, 3),
            (1, b"503", 33, 3),
            (1, b"503", 20, 3),
        ];
        for &(path, status, second, retries) in steps {
            client.requested(path, status, at(second));
            assert_eq!(client.retries, retries, "at {second} s");
        }
    }
}
