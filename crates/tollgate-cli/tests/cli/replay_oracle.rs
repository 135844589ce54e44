//! Tests that every decision of `tollgate replay --decisions` equals an oracle's decision. The test
//! uses our own log, and a real log if one exists next to the checkout.
//!
//! The test shares no code with the program. It has its own code to split lines and count days, and
//! its oracle uses plain lists.

use crate::program::{Decision, decided};
use std::collections::HashMap;
use std::fs;
use std::net::Ipv6Addr;
use std::path::{Path, PathBuf};
use tollgate::{Algorithm, Limiter, Quota, Tick, WindowAlign};
use tollgate_testing::oracle::Oracle;

/// More keys than any log in this test has.
const NO_CAP: usize = 1_000_000;

/// How long a key is idle before a limiter evicts it.
const GRACE: u64 = 1_000_000_000;

struct Request {
    line: usize,
    ip: String,
    path: String,
    bytes: u64,
    at: u64,
}

/// Parses lines such as `ip - - [17/May/2015:10:05:03 +0000] "GET /x?y HTTP/1.1" 200 5 "referer"
/// "agent"`. Everything after the number of bytes may be cut off.
fn requests(log: &Path) -> Vec<Request> {
    let text = fs::read_to_string(log).unwrap();
    let read = |(index, line): (usize, &str)| {
        let line = line.replace("\\\"", "'");
        let parts: Vec<&str> = line.split('"').collect();
        let (before, stamp) = parts[0].split_once('[')?;
        let [_, request, numbers, ..] = parts[..] else { return None };
        let bytes = numbers.split_whitespace().nth(1)?;
        Some(Request {
            line: index + 1,
            ip: network(before.split(' ').next()?),
            // A malformed request line has no path.
            path: path(request.split(' ').nth(1).unwrap_or("-").split('?').next()?),
            bytes: if bytes == "-" { 0 } else { bytes.parse().ok()? },
            at: nanos(stamp.split(']').next()?),
        })
    };
    text.lines().enumerate().filter_map(read).collect()
}

/// Returns the part of an address that identifies a customer: the whole IPv4 address, or the first
/// 64 bits of an IPv6 address.
fn network(ip: &str) -> String {
    match ip.parse::<Ipv6Addr>() {
        Ok(address) => format!("{:x?}", &address.segments()[..4]),
        Err(_) => ip.to_owned(),
    }
}

/// Returns the path by which requests are counted: segments end at a semicolon, and the last slash
/// does not count.
fn path(path: &str) -> String {
    let segments: Vec<&str> = path.split('/').map(|segment| segment.split(';').next().unwrap()).collect();
    segments.join("/").trim_end_matches('/').to_owned()
}

/// Converts a time such as `17/May/2015:10:05:03 +0000` to nanoseconds since 1970.
fn nanos(stamp: &str) -> u64 {
    const MONTHS: &str = "Jan Feb Mar Apr May Jun Jul Aug Sep Oct Nov Dec";
    const DAYS: [u64; 12] = [31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
    let (stamp, zone) = stamp.split_once(' ').unwrap();
    assert_eq!(zone, "+0000", "this reader knows no zones");
    let parts: Vec<&str> = stamp.split(['/', ':']).collect();
    let [day, month, year, hour, minute, second] = parts[..] else { panic!("{stamp}") };
    let number = |text: &str| text.parse::<u64>().unwrap();
    let leap = |year: u64| year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
    let year = number(year);
    let mut days: u64 = (1970..year).map(|year| if leap(year) { 366 } else { 365 }).sum();
    let months = MONTHS.split(' ').position(|name| name == month).unwrap();
    days += DAYS[..months].iter().sum::<u64>();
    days += u64::from(leap(year) && months >= 2) + number(day) - 1;
    (((days * 24 + number(hour)) * 60 + number(minute)) * 60 + number(second)) * 1_000_000_000
}

#[derive(Clone, Copy)]
struct Run {
    limit: &'static str,
    key: &'static str,
    cost: &'static str,
    sort: bool,
    max_keys: usize,
}

/// Returns the program's decisions.
fn decisions(log: &Path, algorithm: Algorithm, limit: &str, run: Run) -> Vec<Decision> {
    let (log, algorithm, max_keys) = (log.to_string_lossy(), algorithm.to_string(), run.max_keys.to_string());
    let args = [&*log, "--limit", limit, "--algorithm", &algorithm, "--key", run.key, "--cost", run.cost];
    let sort = if run.sort { &["--sort"][..] } else { &[] };
    decided(&[&args, sort, &["--max-keys", &max_keys]].concat(), b"")
}

/// Returns a run's quota in the form that this algorithm accepts.
fn quota(algorithm: Algorithm, run: Run) -> Quota {
    let quota: Quota = run.limit.parse().unwrap();
    if algorithm.has_burst() { quota } else { Quota::new(quota.tokens(), quota.period()) }
}

/// How many requests were denied, by reason.
#[derive(Clone, Copy, Debug, Default)]
struct Denied {
    by_the_limit: usize,
    for_want_of_a_place: usize,
}

/// Compares every decision, and returns the numbers of denied requests.
fn compare(log: &Path, requests: &[Request], algorithm: Algorithm, run: Run) -> Denied {
    let quota = quota(algorithm, run);
    let decided = decisions(log, algorithm, &quota.to_string(), run);
    assert_eq!(decided.len(), requests.len(), "one decision for each line that parses");
    let mut order: Vec<&Request> = requests.iter().collect();
    if run.sort {
        order.sort_by_key(|request| request.at);
    }
    let mut oracles: HashMap<String, Oracle> = HashMap::new();
    // The keys that a limiter would not have evicted yet, each with the time at which it becomes
    // idle.
    let mut places: HashMap<String, u64> = HashMap::new();
    let mut now = 0;
    let mut denied = Denied::default();
    for (request, decision) in order.into_iter().zip(decided) {
        let Decision { line, allowed, remaining, retry_after_ns: retry, .. } = decision;
        let remaining = remaining.expect("a limit applies");
        assert_eq!(line, request.line);
        let key =
            if run.key == "ip" { request.ip.clone() } else { format!("{} {}", request.ip, request.path) };
        let oracle = oracles.entry(key.clone()).or_insert_with(|| Oracle::new(algorithm, quota, 0));
        // All keys share one clock, which never runs backwards.
        now = request.at.max(now);
        let cost = if run.cost == "bytes" { request.bytes } else { 1 };

        let context = format!("{algorithm} {quota} {} {} line {line}", run.key, run.cost);
        places.retain(|_, idle_from| *idle_from + GRACE > now);
        let fits = oracle.fits(now, cost);
        if fits && cost > 0 && !places.contains_key(&key) && places.len() >= run.max_keys {
            assert_eq!((allowed, remaining, retry), (false, 0, None), "{context}");
            denied.for_want_of_a_place += 1;
            continue;
        }
        assert_eq!(allowed, fits, "{context}");
        if allowed {
            oracle.charge(now, cost);
        }
        // Without a cap on the number of keys, it does not matter which keys have a place.
        if allowed && cost > 0 && run.max_keys < NO_CAP {
            places.insert(key, oracle.idle_at(now).unwrap());
        }
        denied.by_the_limit += usize::from(!allowed);
        assert_eq!(remaining, oracle.remaining(now), "{context}");
        let exact = oracle.fits_at(now, cost).map(|then| if allowed { 0 } else { then - now });
        match (retry, exact) {
            // If an interval is not a whole number of nanoseconds, a bucket may report up to two
            // nanoseconds less.
            (Some(retry), Some(exact)) if !oracle.is_exact() => {
                assert!(retry <= exact && exact - retry <= 2, "{context}: {retry} instead of {exact}");
            }
            // For an allowed request, the reported retry time is zero.
            (Some(retry), exact) if allowed => assert_eq!((retry, true), (0, exact.is_some() || cost > 0)),
            (retry, exact) => assert_eq!(retry, exact, "{context}"),
        }
    }
    denied
}

const RUNS: [Run; 12] = [
    Run { limit: "30/min burst 10", key: "ip", cost: "1", sort: false, max_keys: NO_CAP },
    Run { limit: "100/min burst 20", key: "ip", cost: "1", sort: false, max_keys: NO_CAP },
    Run { limit: "1/s", key: "ip", cost: "1", sort: false, max_keys: NO_CAP },
    Run { limit: "7/min burst 3", key: "ip", cost: "1", sort: false, max_keys: NO_CAP },
    Run { limit: "20/h", key: "ip", cost: "1", sort: false, max_keys: NO_CAP },
    Run { limit: "50/d", key: "ip", cost: "1", sort: true, max_keys: NO_CAP },
    Run { limit: "1/10min", key: "ip+path", cost: "1", sort: false, max_keys: NO_CAP },
    Run { limit: "2000000/h", key: "ip", cost: "bytes", sort: false, max_keys: NO_CAP },
    Run { limit: "1000003/h", key: "ip", cost: "bytes", sort: true, max_keys: NO_CAP },
    // Runs with few places. The first of these runs has enough places for all keys of the real log
    // that are not idle, and the other two have too few.
    Run { limit: "3/10s", key: "ip", cost: "1", sort: false, max_keys: 60 },
    Run { limit: "3/10s", key: "ip", cost: "1", sort: false, max_keys: 2 },
    Run { limit: "2/20s", key: "ip", cost: "1", sort: true, max_keys: 2 },
];

fn all_decisions_equal_the_oracles(log: &Path) {
    let requests = requests(log);
    assert!(requests.len() > 100);
    let (mut denied, mut unplaced) = (0, 0);
    for run in RUNS {
        for algorithm in Algorithm::ALL {
            let limit = run.limit.parse::<Quota>().unwrap().tokens();
            if algorithm == Algorithm::SlidingLog && limit > 1_000_000 {
                continue; // Refused: it would keep that many admissions.
            }
            let found = compare(log, &requests, algorithm, run);
            denied += found.by_the_limit;
            unplaced += found.for_want_of_a_place;
            let is_tight = run.max_keys < 60;
            assert_eq!(found.for_want_of_a_place > 0, is_tight, "{algorithm} {} {found:?}", run.max_keys);
        }
    }
    assert!(denied > 100 && unplaced > 100, "limits that deny nothing compare little");
}

/// For a log sorted by time, a real limiter with the same number of places and the log's times
/// makes the same decisions.
fn decisions_in_order_are_those_of_a_limiter(log: &Path) {
    let mut requests = requests(log);
    requests.sort_by_key(|request| request.at);
    // The limiter starts on the day of the first request, so that its windows are aligned to Unix
    // time.
    let origin = requests[0].at - requests[0].at % 86_400_000_000_000;
    let mut unplaced = 0;
    for (limit, max_keys) in [("2/10s", 20), ("2/10s", 6), ("30/min burst 10", 3)] {
        let run = Run { limit, key: "ip", cost: "1", sort: true, max_keys };
        for algorithm in Algorithm::PACKED {
            let quota = quota(algorithm, run);
            let mut builder = Limiter::<str>::builder(quota).algorithm(algorithm).max_keys(max_keys);
            if algorithm.has_windows() {
                builder = builder.align(WindowAlign::ClockStart);
            }
            let limiter = builder.build().unwrap();
            let decided = decisions(log, algorithm, &quota.to_string(), run);
            for (request, found) in requests.iter().zip(decided) {
                let expected = limiter.at(Tick::from_nanos(request.at - origin)).check(&*request.ip);
                let expected_retry =
                    expected.retry_after().map(|time| u64::try_from(time.as_nanos()).unwrap());
                assert_eq!(
                    (found.line, found.allowed, found.remaining, found.retry_after_ns),
                    (request.line, expected.is_allowed(), Some(expected.remaining()), expected_retry),
                    "{algorithm} {quota} with {max_keys} places"
                );
            }
            unplaced += limiter.stats().refused;
        }
    }
    assert!(unplaced > 0, "a limiter that always has room compares little");
}

fn file(relative: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(relative)
}

/// Compares decisions on the real log, if the log exists next to the checkout.
fn on_the_real_log(compare: impl Fn(&Path)) {
    let log = file("../../../shared/data/apache_access.log");
    if log.exists() {
        compare(&log);
    } else {
        eprintln!("no real log beside this checkout: only our own was compared");
    }
}

#[test]
fn every_decision_on_our_log_equals_the_oracles() {
    all_decisions_equal_the_oracles(&file("tests/data/access.log"));
}

#[test]
fn every_decision_on_the_real_log_equals_the_oracles_where_it_is_there() {
    on_the_real_log(all_decisions_equal_the_oracles);
}

#[test]
fn our_log_in_order_is_decided_as_by_a_limiter_with_as_many_places() {
    decisions_in_order_are_those_of_a_limiter(&file("tests/data/access.log"));
}

#[test]
fn the_real_log_in_order_is_decided_as_by_a_limiter_with_as_many_places_where_it_is_there() {
    on_the_real_log(decisions_in_order_are_those_of_a_limiter);
}
