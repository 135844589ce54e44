//! Tests that a name changes nothing about a limit: a quota, and a limit with a name that has the
//! same quota for each address, lead to the same decisions and to the same counts.
//!
//! The logs are in order of time, and each of their lines describes a request.

use crate::program::{LOG, json, log, replay, replay_stdin, run_stdin, text};
use crate::replay::long_log;
use serde_json::Value;
use std::path::Path;
use tollgate::Algorithm;
use tollgate_testing::paths::PATHS;

/// The quotas of the other tests.
const QUOTAS: [&str; 12] = [
    "30/min burst 10",
    "100/min burst 20",
    "1/s",
    "3/10s",
    "7/min burst 3",
    "14/min",
    "5/min",
    "20/h",
    "50/d",
    "1/10min",
    "2/20s",
    "1000/h burst 50",
];

/// Returns the lines of a text log that describe requests, in order of time.
fn in_order(log: &str) -> String {
    // A line without a method describes no request, and a limit with a name does not count it.
    let args = ["--limit", "a=1/s by method", "--sort", "--decisions", "-"];
    let rows = text(&replay_stdin(&args, log.as_bytes()));
    let lines: Vec<&str> = log.split('\n').collect();
    let line = |row: &str| row.split(',').next().and_then(|number| number.parse::<usize>().ok());
    rows.lines().filter_map(line).flat_map(|number| [lines[number - 1], "\n"]).collect()
}

/// Returns the logs of the other tests, in order of time.
fn logs() -> Vec<String> {
    let csv: String =
        (0..400).map(|n: u64| format!("{}.{:03},192.0.2.{}\n", n / 7, n * 37 % 1000, n * n % 5)).collect();
    let mut csv: Vec<&str> = csv.lines().collect();
    csv.sort_by_key(|line| line.split(',').next().and_then(|time| time.replace('.', "").parse::<u64>().ok()));
    let addresses =
        ["::ffff:192.0.2.1", "192.0.2.1:99", "2001:db8::1", "2001:DB8::2", "2001:db8:0:1::1", "-"];
    let spelled: String = (0..60)
        .map(|n| format!("{{\"time\":{},\"ip\":\"{}\"}}\n", n, addresses[n % addresses.len()]))
        .collect();
    let mut logs = vec![
        in_order(&log()),
        in_order(&String::from_utf8_lossy(&long_log()).replace('\0', "")),
        format!("time,ip\n{}\n", csv.join("\n")),
        spelled,
    ];
    let real = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data/apache_access.log");
    match std::fs::read(&real) {
        Ok(text) => logs.push(in_order(&String::from_utf8_lossy(&text))),
        Err(_) => eprintln!("no real log beside this checkout"),
    }
    logs
}

/// Returns whether each row is of an admitted request, and the retry-after of a denied one.
fn decisions(args: &[&str], log: &str) -> Vec<(String, bool, String)> {
    let rows = text(&replay_stdin(&[args, &["--decisions", "-"]].concat(), log.as_bytes()));
    let mut rows = rows.lines();
    let names: Vec<&str> = rows.next().unwrap_or_default().split(',').collect();
    let column = |name: &str| names.iter().position(|known| *known == name).expect("a column");
    let [line, allowed, retry] = ["line", "allowed", "retry_after_ns"].map(column);
    rows.map(|row| {
        let mut reader = csv::ReaderBuilder::new().has_headers(false).from_reader(row.as_bytes());
        let cells = reader.records().next().expect("a row").expect("CSV");
        let is_allowed = &cells[allowed] == "true";
        (cells[line].to_owned(), is_allowed, if is_allowed { "" } else { &cells[retry] }.to_owned())
    })
    .collect()
}

/// Returns the counts that both kinds of report contain: the requests that passed, those that were
/// refused, the keys with refused requests, and the keys that were refused most.
fn counts(report: &Value) -> [Value; 4] {
    let keys = |keys: &Value, count: &str| {
        let keys = keys.as_array().expect("keys").iter();
        keys.map(|key| Value::from(vec![key["key"].clone(), key[count].clone()])).collect::<Vec<_>>().into()
    };
    let (result, limit) = (&report["results"][0], &report["limits"][0]);
    let top = keys(&limit["top_refused"], "refused");
    [result["passed"].clone(), result["denied"].clone(), limit["keys_refused"].clone(), top]
}

/// Replays a log through a quota, and through a limit with the same quota for each address.
fn compare(log: &str, quota: &str, options: &[&str]) -> u64 {
    let limit = format!("x={quota} by ip else share");
    let [alone, named] = [quota, &limit].map(|limit| [&["--limit", limit], options].concat());
    let context = format!("{options:?} {quota} on {}", log.lines().next().unwrap_or_default());
    assert!(decisions(&alone, log) == decisions(&named, log), "decisions: {context}");
    let report = |args: &[&str]| json(&replay_stdin(&[args, &["--format", "json"]].concat(), log.as_bytes()));
    let [alone, named] = [&alone, &named].map(|args| report(args));
    let [counts_alone, counts_named] = [&alone, &named].map(counts);
    assert_eq!(counts_alone, counts_named, "{context}");
    for fact in ["lines", "requests", "unparsable", "first", "last"] {
        assert_eq!(alone["log"][fact], named["log"][fact], "{fact}: {context}");
    }
    counts_alone[1].as_u64().expect("a count")
}

#[test]
fn a_name_changes_neither_decisions_nor_counts() {
    let mut refused = 0;
    for log in logs() {
        // A long log takes long, so it is tried with a few quotas.
        let every = if log.len() > 1 << 20 { 5 } else { 1 };
        for quota in QUOTAS.into_iter().step_by(every) {
            refused += compare(&log, quota, &["--threads", "1"]);
        }
        for algorithm in Algorithm::ALL {
            for quota in ["3/10s", "14/min"].into_iter().take(if every > 1 { 1 } else { 2 }) {
                refused += compare(&log, quota, &["--algorithm", &algorithm.to_string()]);
            }
        }
    }
    assert!(refused > 10_000, "{refused} refusals are few");
}

#[test]
fn a_quota_beside_another_limit_decides_as_alone() {
    let log = in_order(&log());
    for key in ["ip", "path", "ip+path", "referer", "ip+path+referer", "method"] {
        for quota in ["3/10s", "14/min", "20/h"] {
            let alone = ["--limit", quota, "--key", key];
            let beside = [&alone[..], &["--limit", "never=1000000/s by ip else share"]].concat();
            assert!(decisions(&alone, &log) == decisions(&beside, &log), "{quota} per {key}");
        }
    }
}

#[test]
fn a_path_is_counted_alike_with_and_without_a_name() {
    let log: String = PATHS
        .iter()
        .map(|(target, _)| {
            let target = target.replace('\\', "\\\\").replace('"', "\\\"");
            format!("192.0.2.1 - - [17/May/2015:10:05:03 +0000] \"GET {target} HTTP/1.1\" 200 1\n")
        })
        .collect();
    let [alone, named] = [&["--limit", "1/h", "--key", "path"][..], &["--limit", "x=1/h by path"]];
    assert_eq!(decisions(alone, &log), decisions(named, &log));
}

#[test]
fn a_suggestion_is_the_replay_of_a_limit_with_a_name_too() {
    for log in logs() {
        let report = json(&run_stdin(&["suggest", "--format", "json"], log.as_bytes()));
        let every = if log.len() > 1 << 20 { 7 } else { 1 };
        for row in report["rows"].as_array().expect("rows").iter().step_by(every) {
            let [quota, algorithm] = ["limit", "algorithm"].map(|name| row[name].as_str().expect("a text"));
            let limit = format!("x={quota} by ip else share");
            let args = ["--limit", &limit, "--algorithm", algorithm, "--format", "json"];
            let counts = counts(&json(&replay_stdin(&args, log.as_bytes())));
            let suggested = ["passed", "denied", "clients_denied"].map(|name| row[name].clone());
            assert_eq!(suggested[..], counts[..3], "{row}");
        }
    }
}

#[test]
fn a_sorted_log_is_decided_alike_with_and_without_a_name() {
    let [alone, named] = ["30/min burst 10", "x=30/min burst 10 by ip"].map(|limit| {
        let report = json(&replay(&[LOG, "--limit", limit, "--sort", "--format", "json"]));
        let [_, refused, keys, _] = counts(&report);
        (refused, keys)
    });
    assert_eq!(alone, named);
}
