//! `tollgate replay --decisions`: every single decision equals the oracle's, on a real log if there
//! is one beside the checkout, and on our own in any case.
//!
//! The test shares nothing with the program: it reads the lines by splitting them, counts the days
//! itself, and the oracle keeps plain lists.

use std::collections::HashMap;
use std::fs;
use std::net::Ipv6Addr;
use std::path::{Path, PathBuf};
use std::process::Command;
use tollgate::{Algorithm, Quota};
use tollgate_testing::oracle::Oracle;

struct Request {
    line: usize,
    ip: String,
    path: String,
    bytes: u64,
    at: u64,
}

/// Reads lines such as `ip - - [17/May/2015:10:05:03 +0000] "GET /x?y HTTP/1.1" 200 5 "referer"
/// "agent"`; skips a line whose quotes don't pair up.
fn requests(log: &Path) -> Vec<Request> {
    let text = fs::read_to_string(log).unwrap();
    let read = |(index, line): (usize, &str)| {
        let line = line.replace("\\\"", "'");
        let parts: Vec<&str> = line.split('"').collect();
        let (before, stamp) = parts[0].split_once('[')?;
        let [_, request, numbers, _, _, _, ""] = parts[..] else { return None };
        let bytes = numbers.split_whitespace().nth(1)?;
        Some(Request {
            line: index + 1,
            ip: network(before.split(' ').next()?),
            // A malformed request line has no path.
            path: request.split(' ').nth(1).unwrap_or("-").split('?').next()?.to_owned(),
            bytes: if bytes == "-" { 0 } else { bytes.parse().ok()? },
            at: nanos(stamp.split(']').next()?),
        })
    };
    text.lines().enumerate().filter_map(read).collect()
}

/// Returns the nanoseconds since 1970 of `17/May/2015:10:05:03 +0000`.
fn nanos(stamp: &str) -> u64 {
    const MONTHS: [(&str, u64); 12] = [
        ("Jan", 31),
        ("Feb", 28),
        ("Mar", 31),
/// Returns what one customer has of an address: all of IPv4, the first 64 bits of IPv6.
fn network(ip: &str) -> String {
    match ip.parse::<Ipv6Addr>() {
        Ok(address) => format!("{:x?}", &address.segments()[..4]),
        Err(_) => ip.to_owned(),
    }
}

        ("Apr", 30),
        ("May", 31),
        ("Jun", 30),
        ("Jul", 31),
        ("Aug", 31),
        ("Sep", 30),
        ("Oct", 31),
        ("Nov", 30),
        ("Dec", 31),
    ];
    let (stamp, zone) = stamp.split_once(' ').unwrap();
    assert_eq!(zone, "+0000", "this reader knows no zones");
    let parts: Vec<&str> = stamp.split(['/', ':']).collect();
    let [day, month, year, hour, minute, second] = parts[..] else { panic!("{stamp}") };
    let number = |text: &str| text.parse::<u64>().unwrap();
    let leap = |year: u64| year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
    let year = number(year);
    let mut days: u64 = (1970..year).map(|year| if leap(year) { 366 } else { 365 }).sum();
    let before = MONTHS.iter().take_while(|(name, _)| *name != month);
    let months: Vec<_> = before.collect();
    days += months.iter().map(|(_, days)| days).sum::<u64>();
    days += u64::from(leap(year) && months.len() >= 2) + number(day) - 1;
    (((days * 24 + number(hour)) * 60 + number(minute)) * 60 + number(second)) * 1_000_000_000
}

#[derive(Clone, Copy)]
struct Run {
    limit: &'static str,
    key: &'static str,
    cost: &'static str,
    sort: bool,
}

/// Returns the program's decisions, by line: allowed, remaining, nanoseconds until a retry.
fn decisions(
    log: &Path,
    algorithm: Algorithm,
    limit: &str,
    run: Run,
) -> Vec<(usize, bool, u64, Option<u64>)> {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tollgate"));
    command.arg("replay").arg(log).args(["--decisions", "-", "--limit", limit]);
    command.args(["--algorithm", &algorithm.to_string(), "--key", run.key, "--cost", run.cost]);
    if run.sort {
        command.arg("--sort");
    }
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).unwrap();
    let mut rows = text.lines();
    assert_eq!(rows.next(), Some("line,key,allowed,remaining,retry_after_ns"));
    let row = |row: &str| {
        // From the right, because a key may contain commas.
        let mut cells = row.rsplitn(4, ',');
        let retry = cells.next().unwrap();
        let remaining = cells.next().unwrap().parse().unwrap();
        let allowed = cells.next().unwrap().parse().unwrap();
        let line = cells.next().unwrap().split(',').next().unwrap().parse().unwrap();
        (line, allowed, remaining, (!retry.is_empty()).then(|| retry.parse().unwrap()))
    };
    rows.map(row).collect()
}

/// Compares every decision, and returns how many were denied.
fn compare(log: &Path, requests: &[Request], algorithm: Algorithm, run: Run) -> usize {
    let mut quota: Quota = run.limit.parse().unwrap();
    if !algorithm.has_burst() {
        quota = Quota::new(quota.tokens(), quota.period());
    }
    let decided = decisions(log, algorithm, &quota.to_string(), run);
    assert_eq!(decided.len(), requests.len(), "one decision for each line that parses");
    let mut order: Vec<&Request> = requests.iter().collect();
    if run.sort {
        order.sort_by_key(|request| request.at);
    }
    let mut oracles: HashMap<String, (Oracle, u64)> = HashMap::new();
    let mut denied = 0;
    for (request, (line, allowed, remaining, retry)) in order.into_iter().zip(decided) {
        assert_eq!(line, request.line);
        let key =
            if run.key == "ip" { request.ip.clone() } else { format!("{} {}", request.ip, request.path) };
        let (oracle, latest) = oracles.entry(key).or_insert_with(|| (Oracle::new(algorithm, quota, 0), 0));
        // For each key, time never runs backwards.
        *latest = request.at.max(*latest);
        let now = *latest;
        let cost = if run.cost == "bytes" { request.bytes } else { 1 };

        let context = format!("{algorithm} {quota} {} {} line {line}", run.key, run.cost);
        assert_eq!(allowed, oracle.fits(now, cost), "{context}");
        if allowed {
            oracle.charge(now, cost);
        }
        denied += usize::from(!allowed);
        assert_eq!(remaining, oracle.remaining(now), "{context}");
        let exact = oracle.fits_at(now, cost).map(|then| if allowed { 0 } else { then - now });
        match (retry, exact) {
            // If an interval is not a whole number of nanoseconds, a bucket may say two nanoseconds
            // less.
            (Some(retry), Some(exact)) if !oracle.is_exact() => {
                assert!(retry <= exact && exact - retry <= 2, "{context}: {retry} instead of {exact}");
            }
            // A retry time is reported also for an allowed request: zero.
            (Some(retry), exact) if allowed => assert_eq!((retry, true), (0, exact.is_some() || cost > 0)),
            (retry, exact) => assert_eq!(retry, exact, "{context}"),
        }
    }
    denied
}

const RUNS: [Run; 9] = [
    Run { limit: "30/min burst 10", key: "ip", cost: "1", sort: false },
    Run { limit: "100/min burst 20", key: "ip", cost: "1", sort: false },
    Run { limit: "1/s", key: "ip", cost: "1", sort: false },
    Run { limit: "7/min burst 3", key: "ip", cost: "1", sort: false },
    Run { limit: "20/h", key: "ip", cost: "1", sort: false },
    Run { limit: "50/d", key: "ip", cost: "1", sort: true },
    Run { limit: "1/10min", key: "ip+path", cost: "1", sort: false },
    Run { limit: "2000000/h", key: "ip", cost: "bytes", sort: false },
    Run { limit: "1000003/h", key: "ip", cost: "bytes", sort: true },
];

fn all_decisions_equal_the_oracles(log: &Path) {
    let requests = requests(log);
    assert!(requests.len() > 100);
    let mut denied = 0;
    for run in RUNS {
        for algorithm in Algorithm::ALL {
            let limit = run.limit.parse::<Quota>().unwrap().tokens();
            if algorithm == Algorithm::SlidingLog && limit > 1_000_000 {
                continue; // Refused: it would keep that many admissions.
            }
            denied += compare(log, &requests, algorithm, run);
        }
    }
    assert!(denied > 100, "limits that deny nothing compare little");
}

fn path(relative: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(relative)
}

#[test]
fn every_decision_on_our_log_equals_the_oracles() {
    all_decisions_equal_the_oracles(&path("tests/data/access.log"));
}

#[test]
fn every_decision_on_the_real_log_equals_the_oracles_where_it_is_there() {
    let log = path("../../../shared/data/apache_access.log");
    if log.exists() {
        all_decisions_equal_the_oracles(&log);
    } else {
        eprintln!("no real log beside this checkout: only our own was compared");
    }
}
