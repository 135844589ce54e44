//! The admissions of several processes, measured by their common clock.

use rustix::time::{ClockId, clock_gettime};
use std::time::Duration;

/// Returns the nanoseconds of the monotonic clock, which all processes of a machine share.
pub(crate) fn now() -> u64 {
    nanos(ClockId::Monotonic)
}

fn nanos(clock: ClockId) -> u64 {
    let time = clock_gettime(clock);
    u64::try_from(time.tv_sec).unwrap() * 1_000_000_000 + u64::try_from(time.tv_nsec).unwrap()
}

/// A token that was admitted at some moment between two times.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Admission {
    pub(crate) begin: u64,
    pub(crate) end: u64,
}

/// Admissions, ordered by their ends.
pub(crate) struct Admissions(Vec<Admission>);

impl Admissions {
    pub(crate) fn new(mut admissions: Vec<Admission>) -> Self {
        admissions.sort_by_key(|admission| admission.end);
        Self(admissions)
    }

    pub(crate) fn len(&self) -> u64 {
        self.0.len() as u64
    }

    /// Calls `check` for each interval from the start of one admission to the end of another,
    /// passing the interval's length and the number of admissions that certainly fall into it.
    fn each_interval(&self, check: impl Fn(u64, u64)) {
        // Every tenth start is enough, because a lasting excess is visible from many starts.
        for first in self.0.iter().step_by(10) {
            let within = self.0.iter().filter(|admission| admission.begin >= first.begin);
            for (count, admission) in (1..).zip(within) {
                check(admission.end - first.begin, count);
            }
        }
    }

    /// Asserts that no interval admits more than the burst plus the refill.
    #[track_caller]
    pub(crate) fn assert_bucket(&self, burst: u64, per_second: u64) {
        self.each_interval(|time, count| {
            let most = burst + per_second * time / 1_000_000_000 + 1;
            assert!(count <= most, "{count} instead of {most} in {:?}", Duration::from_nanos(time));
        });
    }

    /// Asserts that every trailing period contains at most the limit.
    #[track_caller]
    pub(crate) fn assert_log(&self, limit: u64, period: Duration) {
        let period = u64::try_from(period.as_nanos()).unwrap();
        self.each_interval(|time, count| {
            assert!(time >= period || count <= limit, "{count} in {:?}", Duration::from_nanos(time));
        });
    }

    /// For each window of the wall clock between these moments, returns how many admissions were
    /// certainly in the window, and how many were possibly in it.
    pub(crate) fn windows(&self, period: Duration, begun: u64, ended: u64) -> Vec<(u64, u64)> {
        let period = u64::try_from(period.as_nanos()).unwrap();
        let ahead = nanos(ClockId::Realtime) - now();
        let window = |time: u64| (time + ahead) / period;
        let number =
            |admissions: &dyn Fn(&&Admission) -> bool| self.0.iter().filter(admissions).count() as u64;
        // The first and the last window are omitted, because the load covers only a part of them.
        (window(begun) + 1..window(ended))
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
