//! The admissions of several processes, measured by their common clock.

use rustix::time::{ClockId, clock_gettime};
use std::time::Duration;

/// Returns the nanoseconds of the monotonic clock, which all processes of a machine share.
pub fn now() -> u64 {
    nanos(ClockId::Monotonic)
}

/// Returns how many nanoseconds the time of day is ahead of [`now`].
pub fn ahead() -> u64 {
    nanos(ClockId::Realtime) - now()
}

fn nanos(clock: ClockId) -> u64 {
    let time = clock_gettime(clock);
    u64::try_from(time.tv_sec).unwrap() * 1_000_000_000 + u64::try_from(time.tv_nsec).unwrap()
}

/// A token that was admitted at some moment between two times.
#[derive(Clone, Copy, Debug)]
pub struct Admission {
    pub begin: u64,
    pub end: u64,
}

/// Admissions, ordered by their ends.
pub struct Admissions(Vec<Admission>);

impl Admissions {
    pub fn new(mut admissions: Vec<Admission>) -> Self {
        admissions.sort_by_key(|admission| admission.end);
        Self(admissions)
    }

    pub fn len(&self) -> u64 {
        self.0.len() as u64
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the admissions that were certainly made in the interval.
    pub fn within(&self, from: u64, to: u64) -> Self {
        let is_within = |it: &&Admission| it.begin >= from && it.end <= to;
        Self(self.0.iter().filter(is_within).copied().collect())
    }

    /// Returns the largest number by which an interval admits more than `most` returns for the
    /// interval's length, and that length. The number is negative if no interval reaches its bound.
    ///
    /// Only admissions that certainly fall into an interval are counted, so the result is never too
    /// large. The intervals are those from the start of one admission to the end of another.
    pub fn beyond(&self, most: impl Fn(u64) -> Option<u64>) -> (i64, Duration) {
        let mut beyond = (i64::MIN, Duration::ZERO);
        for first in &self.0 {
            let within = self.0.iter().filter(|admission| admission.begin >= first.begin);
            for (count, admission) in (1_i64..).zip(within) {
                let time = admission.end - first.begin;
                let Some(most) = most(time) else { break };
                beyond = beyond.max((count - i64::try_from(most).unwrap(), Duration::from_nanos(time)));
            }
        }
        beyond
    }

    /// Returns how far the admissions exceed a bucket in some interval; see
    /// [`beyond`](Self::beyond).
    pub fn beyond_bucket(&self, burst: u64, per_second: u64) -> (i64, Duration) {
        // One token more, because the refill is rounded down.
        self.beyond(|time| Some(burst + per_second * time / 1_000_000_000 + 1))
    }

    /// Returns how far the admissions exceed a log in some interval; see [`beyond`](Self::beyond).
    pub fn beyond_log(&self, limit: u64, period: Duration) -> (i64, Duration) {
        let period = u64::try_from(period.as_nanos()).unwrap();
        self.beyond(|time| (time < period).then_some(limit))
    }

    /// Asserts that no interval admits more than the burst plus the refill.
    #[track_caller]
    pub fn assert_bucket(&self, burst: u64, per_second: u64) {
        let (beyond, time) = self.beyond_bucket(burst, per_second);
        assert!(beyond <= 0, "{beyond} too many in {time:?}");
    }

    /// Asserts that every trailing period contains at most the limit.
    #[track_caller]
    pub fn assert_log(&self, limit: u64, period: Duration) {
        let (beyond, time) = self.beyond_log(limit, period);
        assert!(beyond <= 0, "{beyond} too many in {time:?}");
    }

    /// For each window of the time of day between these moments, returns how many admissions were
    /// certainly in the window, and how many were possibly in it. The windows at both ends are
    /// omitted, because the load covers only a part of them.
    pub fn windows(&self, period: Duration, begun: u64, ended: u64) -> Vec<(u64, u64)> {
        let window = self.window(period);
        let (first, last) = (window(begun) + 1, window(ended));
        self.counts(first..last, window)
    }

    /// Returns the same numbers as [`windows`](Self::windows) for all windows with admissions.
    pub fn all_windows(&self, period: Duration) -> Vec<(u64, u64)> {
        let window = self.window(period);
        let first = self.0.iter().map(|it| it.begin).min().map_or(0, &window);
        let last = self.0.last().map_or(0, |it| window(it.end) + 1);
        self.counts(first..last, window)
    }

    fn window(&self, period: Duration) -> impl Fn(u64) -> u64 + use<> {
        let (period, ahead) = (u64::try_from(period.as_nanos()).unwrap(), ahead());
        move |time| (time + ahead) / period
    }

    fn counts(&self, windows: std::ops::Range<u64>, window: impl Fn(u64) -> u64) -> Vec<(u64, u64)> {
        let number =
            |admissions: &dyn Fn(&&Admission) -> bool| self.0.iter().filter(admissions).count() as u64;
        windows
            .map(|this| {
                let surely = number(&|one| window(one.begin) == this && window(one.end) == this);
                // The server's clock is read between the start and the end of the admission, except
                // for the last tick of a lease.
                let possibly = number(&|one| window(one.begin) <= this && window(one.end) >= this);
                (surely, possibly)
            })
            .collect()
    }
}
