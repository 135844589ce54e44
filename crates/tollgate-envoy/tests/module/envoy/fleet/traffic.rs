//! The requests of one limit, as Envoys' access logs contain them.

use std::path::Path;
use std::time::Duration;
use std::{fs, iter};

use tollgate::{Algorithm, Chargeable, Quota, SingleLimiter, Tick, WindowAlign};
use tollgate_testing::store::admissions::{self, Admission, Admissions};

/// A limit of the fleet. A bucket has the burst `tokens`.
#[derive(Clone, Copy)]
pub(super) struct Rate {
    pub(super) tokens: u64,
    pub(super) period: Duration,
}

/// A request, with its times in nanoseconds of the monotonic clock.
#[derive(Clone, Copy)]
struct Logged {
    begin: u64,
    /// The time at which Envoy sent the request to the upstream.
    admitted: Option<u64>,
    status: u16,
}

/// The requests of one limit, from all Envoys.
pub(super) struct Traffic {
    pub(super) algorithm: Algorithm,
    rate: Rate,
    requests: Vec<Logged>,
}

impl Traffic {
    pub(super) fn new(algorithm: Algorithm, rate: Rate) -> Self {
        Self { algorithm, rate, requests: Vec::new() }
    }

    /// Reads the access log of an Envoy whose time of day is `shift` seconds ahead.
    pub(super) fn read(&mut self, log: &Path, shift: u64) {
        let ahead = admissions::ahead() + shift * 1_000_000_000;
        for line in fs::read_to_string(log).unwrap().lines() {
            let [begin, taken, status] = line.split(' ').collect::<Vec<_>>()[..] else { panic!("{line}") };
            let (seconds, micros) = begin.split_once('.').unwrap();
            let micros: u64 = format!("{seconds}{micros}").parse().unwrap();
            let begin = micros * 1000 - ahead;
            // Both times are rounded down to microseconds.
            let admitted = taken.parse().ok().map(|taken: u64| begin + (taken + 2) * 1000);
            self.requests.push(Logged { begin, admitted, status: status.parse().unwrap() });
        }
        self.requests.sort_by_key(|request| request.begin);
    }

    fn between(&self, from: u64, to: u64) -> impl Iterator<Item = &Logged> {
        self.requests.iter().filter(move |it| it.begin >= from && it.begin < to)
    }

    /// Returns the number of requests that arrived between these times and have this status.
    pub(super) fn count(&self, status: u16, from: u64, to: u64) -> u64 {
        self.between(from, to).filter(|it| it.status == status).count() as u64
    }

    /// Returns the admitted requests that arrived between these times.
    pub(super) fn admitted(&self, from: u64, to: u64) -> Admissions {
        let admitted = self.between(from, to);
        let admitted = admitted.filter_map(|it| Some(Admission { begin: it.begin, end: it.admitted? }));
        Admissions::new(admitted.collect())
    }

    /// Returns how far all admissions exceed the bound of the algorithm.
    pub(super) fn beyond(&self) -> i64 {
        self.beyond_between(0, u64::MAX)
    }

    /// Returns how far the admissions between these times exceed the bound of the algorithm in some
    /// interval. For a window, also counts what exceeds the limit within a window.
    pub(super) fn beyond_between(&self, from: u64, to: u64) -> i64 {
        let Rate { tokens, period } = self.rate;
        let length = u64::try_from(period.as_nanos()).unwrap();
        let admitted = self.admitted(from, to);
        match self.algorithm {
            // One token more, because the refill is rounded down.
            Algorithm::TokenBucket => admitted.beyond(|time| Some(tokens + tokens * time / length + 1)).0,
            Algorithm::SlidingLog => admitted.beyond_log(tokens, period).0,
            Algorithm::SlidingWindow => {
                let (beyond, _) = admitted.beyond(|time| Some(tokens * (time / length + 2)));
                let windows = admitted.all_windows(period).into_iter();
                let of_windows =
                    windows.map(|(surely, _)| i64::try_from(surely).unwrap().wrapping_sub_unsigned(tokens));
                iter::once(beyond).chain(of_windows).max().unwrap()
            }
            other => unreachable!("{other} is no limit of the fleet"),
        }
    }

    /// Returns how many of the requests between these times a single limiter would have admitted
    /// beyond those that the fleet has admitted, if the limiter was fresh at the first of them.
    pub(super) fn missing(&self, from: u64, to: u64) -> i64 {
        let Rate { tokens, period } = self.rate;
        let mut builder = SingleLimiter::builder(Quota::new(tokens, period)).algorithm(self.algorithm);
        if self.algorithm.has_windows() {
            builder = builder.align(WindowAlign::ClockStart);
        }
        let one = builder.build().unwrap();
        // The windows of the store begin at multiples of the period.
        let length = u64::try_from(period.as_nanos()).unwrap();
        let ahead = (admissions::ahead() % length + length) % length;
        let mut missing = 0;
        for request in self.between(from, to) {
            let at = Tick::from_nanos(request.begin + ahead);
            missing += i64::from(one.at(at).check().is_allowed()) - i64::from(request.admitted.is_some());
        }
        missing
    }
}
