//! Tests `tollgate replay` from the outside. The inputs are arguments and logs, and the outputs are
//! a report and an exit code.
//!
//! Other tests check that each decision is correct. The tests in this file check that the same log
//! leads to the same decisions in every format, order and compression, and that every error message
//! states its reason.

use crate::program::{
    LOG, decided, json, json_of, log, refusal, refusal_of, replay, replay_stdin, run_stdin, scratch, started,
    text, text_of,
};
use serde_json::Value;
use std::fs;
use std::io::Write;
#[cfg(unix)]
use std::path::PathBuf;
use std::process::Command;
#[cfg(unix)]
use std::thread::JoinHandle;
use tollgate::Algorithm;
use tollgate_http::program::path_key;
use tollgate_testing::paths::{PATHS, RAW_PATHS};

const LIMIT: [&str; 2] = ["--limit", "30/min burst 10"];

/// The fields of one line in our log, from which tests write lines in other formats. `time` is in
/// RFC 3339 format, and `seconds` is the same time in Unix seconds. The fields contain neither
/// commas nor escapes.
struct Fields<'l> {
    ip: &'l str,
    user: &'l str,
    time: String,
    seconds: u64,
    bytes: &'l str,
}

/// Returns the fields of each line, or `None` for a line that does not parse.
fn fields(log: &str) -> Vec<Option<Fields<'_>>> {
    let line = |line| -> Option<Fields<'_>> {
        let line: &str = line;
        let words: Vec<&str> = line.split(' ').collect();
        let clock = words.get(3)?.strip_prefix("[03/Mar/2025:")?;
        let after_request = line.splitn(3, '"').nth(2)?;
        let bytes = after_request.split(' ').nth(2)?;
        // A cut line has an odd number of quotes.
        let quotes = line.replace("\\\"", "").matches('"').count();
        let [hours, minutes, seconds] =
            [0, 3, 6].map(|at| clock[at..at + 2].parse::<u64>().expect("a clock"));
        quotes.is_multiple_of(2).then(|| Fields {
            ip: words[0],
            user: words[2],
            time: format!("2025-03-03T{clock}Z"),
            seconds: 1_740_960_000 + (hours * 60 + minutes) * 60 + seconds,
            bytes,
        })
    };
    log.lines().map(line).collect()
}

/// Returns the rows that `--decisions -` writes.
#[track_caller]
fn decisions(args: &[&str], input: &str) -> Vec<String> {
    let args = [&LIMIT, args, &["--decisions", "-"]].concat();
    let rows = text_of(&args, &input);
    let mut rows = rows.lines().map(str::to_owned);
    assert_eq!(rows.next().as_deref(), Some("line,key,allowed,remaining,retry_after_ns,refused_by,outcome"));
    rows.collect()
}

/// Returns the rows without their line numbers.
fn without_lines(rows: &[String]) -> Vec<&str> {
    rows.iter().map(|row| row.split_once(',').map_or("", |(_, rest)| rest)).collect()
}

#[test]
fn the_text_report_tells_who_was_denied_and_when() {
    let report = text_of(&[&[LOG][..], &LIMIT].concat(), "");
    for part in [
        "30/min burst 10, token-bucket, per ip",
        "323 requests of 19 keys, 2 lines unparsable",
        "2025-03-03 08:00:",
        "15 lines step back in time, by up to 4 s",
        "passed",
        "2 of 19 keys",
        "203.0.113.66",
        "retry-after",
        "█",
        "░",
        "tests/data/access.log:130: as combined: the time has no ']' at its end",
        "tests/data/access.log:260: as combined: there is no '['",
        "lines/s",
    ] {
        assert!(report.contains(part), "{part} is missing:\n{report}");
    }
    for line in report.lines() {
        assert!(line.chars().count() <= 80, "wider than a terminal: {line}");
        assert_eq!(line, line.trim_end());
    }
}

#[test]
fn long_keys_do_not_widen_the_report() {
    let log = format!("{{\"time\":1,\"ip\":\"{}\"}}\n", "ä".repeat(200)).repeat(3);
    let report = text_of(&["--limit", "1/h"], &log);
    assert_eq!(report.matches("ä…").count(), 2, "the longest wait and the top row:\n{report}");
    assert!(report.lines().all(|line| line.chars().count() <= 80), "{report}");
    let whole = text_of(&["--limit", "1/h", "--format", "json"], &log);
    assert!(whole.contains(&"ä".repeat(200)), "JSON has all of the key");
}

#[test]
fn the_json_report_adds_up() {
    let report = json_of(&[&[LOG][..], &LIMIT].concat(), "");
    let log = &report["log"];
    assert_eq!((&log["lines"], &log["requests"]), (&325.into(), &323.into()));
    assert_eq!((&log["unparsable"], &report["limits"][0]["keys"]), (&2.into(), &19.into()));
    assert_eq!(log["files"][0]["format"], "combined");
    assert_eq!(log["bad_lines"][0]["line"], 130);
    let number = |value: &Value| value.as_u64().expect("a count");
    let result = &report["results"][0];
    let (passed, denied) = (number(&result["passed"]), number(&result["denied"]));
    assert_eq!(passed + denied, 323);
    assert!(denied > 0);
    let compliant = &result["compliant"];
    let compliant: u64 = ["passed", "denied", "withheld"].map(|part| number(&compliant[part])).iter().sum();
    assert_eq!(compliant, 323);
    let rows = report["timeline"]["rows"].as_array().expect("rows");
    let sum = |part| rows.iter().map(|row| number(&row[part])).sum::<u64>();
    assert_eq!((sum("passed"), sum("denied")), (passed, denied));
    let top = report["limits"][0]["top_refused"].as_array().expect("keys");
    assert_eq!(top[0]["key"], "203.0.113.66");
    assert_eq!(top.iter().map(|key| number(&key["refused"])).sum::<u64>(), denied);
}

#[test]
fn two_runs_differ_in_nothing_but_the_run() {
    for args in [&[][..], &["--compare"], &["--sort", "--key", "ip+path", "--cost", "bytes"]] {
        let args = [&[LOG, "--format", "json", "--limit", "30/min"], args].concat();
        let [mut first, mut second] = [json(&replay(&args)), json(&replay(&args))];
        assert!(first["run"].take().is_object() && second["run"].take().is_object());
        assert_eq!(first.to_string(), second.to_string());
        let args: Vec<_> = args.into_iter().filter(|arg| !matches!(*arg, "--format" | "json")).collect();
        let stable = || {
            let report = text_of(&args, "");
            report.split_once("This run").expect("the last section").0.to_owned()
        };
        assert_eq!(stable(), stable());
    }
}

#[test]
fn standard_input_is_read_with_and_without_its_name() {
    let expected = decisions(&[LOG], "");
    assert_eq!(expected.len(), 323);
    assert_eq!(decisions(&[], &log()), expected);
    assert_eq!(decisions(&["-"], &log()), expected);
    assert_eq!(decisions(&[], &log().replace('\n', "\r\n")), expected);
    assert_eq!(decisions(&[], log().trim_end()), expected);
}

#[test]
fn exact_keys_decide_as_fingerprints_do() {
    let buckets = ["token-bucket", "leaky-bucket", "leaky-queue"];
    let keys = ["ip", "user", "ip+path"];
    let of_buckets = buckets.iter().flat_map(|name| keys.map(|key| ["--algorithm", name, "--key", key]));
    // The policy answers for the same keys at the cap.
    let capped = ["deny", "allow", "share"].map(|full| ["--max-keys", "5", "--when-full", full]);
    let windows = ["fixed-window", "sliding-window", "sliding-log"];
    let windows = windows.map(|name| ["--algorithm", name, "--limit", "30/min"]);
    for options in of_buckets.chain(capped).chain(windows) {
        let limit = if options.contains(&"--limit") { &[][..] } else { &LIMIT };
        let args = [&[LOG], limit, &options].concat();
        let expected = decided(&args, b"");
        assert!(expected.iter().any(|row| !row.allowed), "{options:?}");
        assert!(decided(&[&args[..], &["--exact-keys"]].concat(), b"") == expected, "{options:?}");
    }
}

#[test]
fn gzip_is_unpacked_from_files_and_standard_input() {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    encoder.write_all(log().as_bytes()).expect("a vector can be written");
    let packed = encoder.finish().expect("a vector can be written");
    let expected = decisions(&[LOG], "").join("\n");
    // The file's first bytes determine the format, not its name.
    let file = scratch("gzip").join("access.log");
    fs::write(&file, &packed).expect("the target directory can be written");
    let args = [&LIMIT[..], &["--decisions", "-"]].concat();
    let from_stdin = text_of(&args, &packed);
    let from_file = text_of(&[&args[..], &[&file.to_string_lossy()]].concat(), "");
    for found in [from_stdin, from_file] {
        assert_eq!(found.trim_end().split_once('\n').map(|(_, rows)| rows), Some(&*expected));
    }
    let cut_off = refusal_of(&args[..2], &packed[..packed.len() / 2]);
    assert!(cut_off.contains("standard input"), "{cut_off}");
}

#[test]
fn the_same_log_as_csv_and_json_leads_to_the_same_decisions() {
    let log = log();
    let expected = decisions(&[LOG, "--key", "ip+user", "--cost", "1"], "");
    let mut csv = String::from("when,bytes,ip,who\n");
    let mut seconds = String::from("ip,who,when\n");
    let mut json = String::new();
    let mut millis = String::new();
    for fields in fields(&log).iter().flatten() {
        let Fields { ip, user, time, seconds: second, bytes } = fields;
        csv.push_str(&format!("{time},{bytes},\"{ip}\",{user}\n"));
        seconds.push_str(&format!("{ip},{user},{second}\n"));
        json.push_str(&format!("{{\"when\":\"{time}\",\"ip\":\"{ip}\",\"who\":\"{user}\"}}\n"));
        millis.push_str(&format!("{{\"who\":\"{user}\",\"ip\":\"{ip}\",\"when\":{second}000.0}}\n"));
    }
    let args = ["--key", "ip+user", "--fields", "time=when,user=who"];
    for (name, input, unit) in
        [("csv", &csv, "s"), ("csv", &seconds, "s"), ("json", &json, "s"), ("json", &millis, "ms")]
    {
        for format in [name, "auto"] {
            let args = [&args[..], &["--log-format", format, "--time-unit", unit]].concat();
            let found = decisions(&args, input);
            assert_eq!(without_lines(&found), without_lines(&expected), "{name}");
        }
    }
}

#[test]
fn bytes_are_a_cost_and_a_dash_costs_nothing() {
    let args = [LOG, "--cost", "bytes", "--limit", "1000000/min", "--format", "json"];
    let report = json(&replay(&args));
    let log = log();
    let bytes: u64 = fields(&log).iter().flatten().map(|fields| fields.bytes.parse().unwrap_or(0)).sum();
    let result = &report["results"][0];
    let cost = |part: &str| result[part].as_u64().expect("a sum");
    assert!(cost("cost_passed") > 0 && cost("cost_denied") > 0);
    assert_eq!(cost("cost_passed") + cost("cost_denied"), bytes);
    let small = [LOG, "--cost", "bytes", "--limit", "100000/min", "--format", "json"];
    let result = &json(&replay(&small))["results"][0];
    assert_eq!(result["too_costly"], 42);
    // Requests that can never pass are counted apart from the denials of a compliant client.
    let compliant = &result["compliant"];
    assert_eq!(compliant["too_costly"], 42);
    let parts = ["passed", "denied", "withheld", "too_costly"];
    assert_eq!(parts.iter().map(|part| compliant[part].as_u64().expect("a count")).sum::<u64>(), 323);
}

#[test]
fn sorting_goes_by_time_and_keeps_the_order_of_equal_stamps() {
    let log = log();
    let mut order: Vec<(u64, usize)> = fields(&log)
        .iter()
        .zip(1..)
        .filter_map(|(fields, line)| fields.as_ref().map(|fields| (fields.seconds, line)))
        .collect();
    order.sort_unstable();
    let rows = decisions(&[LOG, "--sort"], "");
    let lines: Vec<usize> =
        rows.iter().map(|row| row.split(',').next().and_then(|n| n.parse().ok()).expect("n")).collect();
    assert_eq!(lines, order.iter().map(|&(_, line)| line).collect::<Vec<_>>());
    assert_ne!(rows, decisions(&[LOG], ""));
}

#[test]
fn time_never_runs_backwards() {
    // The lines stamped 00:02 and 00:03 are judged at 00:10, before the single token of `a` has
    // refilled.
    let line = |ip: &str, second: u64| {
        format!("{ip} - - [03/Mar/2025:08:00:{second:02} +0000] \"GET / HTTP/1.1\" 200 1\n")
    };
    let log = [("a", 10), ("a", 2), ("b", 3), ("a", 40)].map(|(ip, second)| line(ip, second)).concat();
    let args = ["--limit", "2/min burst 1", "--decisions", "-"];
    let rows = text_of(&args, &log);
    assert_eq!(
        rows.lines().skip(1).collect::<Vec<_>>(),
        [
            "1,a,true,0,0,,",
            "2,a,false,0,30000000000,2/min burst 1,denied",
            "3,b,true,0,0,,",
            "4,a,true,0,0,,"
        ]
    );
    let report = json_of(&["--limit", "2/min"], &log);
    assert_eq!(report["log"]["stepped_back"], 1);
    assert_eq!(report["log"]["largest_step_ns"], 8_000_000_000_u64);
    assert_eq!(report["log"]["judged_later_than_stamped"], 2);
}

#[test]
fn a_compliant_client_waits_and_is_denied_less() {
    // The limit is one token in 30 s. After its denial at 00:01, a compliant client sends nothing
    // until 00:30.
    let log: String = [0, 1, 2, 3, 30, 31]
        .map(|s| format!("a - - [03/Mar/2025:08:00:{s:02} +0000] \"GET / HTTP/1.1\" 200 1\n"))
        .concat();
    let args = ["--limit", "2/min burst 1", "--format", "json"];
    let result = &json(&replay_stdin(&args, log.as_bytes()))["results"][0];
    assert_eq!((&result["passed"], &result["denied"]), (&2.into(), &4.into()));
    assert_eq!(
        result["compliant"],
        serde_json::json!({"passed": 2, "denied": 2, "withheld": 2, "too_costly": 0})
    );
    assert_eq!(result["longest_wait"]["ns"], 29_000_000_000_u64);
    assert_eq!(result["longest_wait"]["line"], 2);
}

/// With costs, the compliant client has limiters of its own.
#[test]
fn a_compliant_client_fares_alike_if_each_request_costs_one_byte() {
    let log = log();
    let row = |fields: &Fields<'_>| format!("{},{},1\n", fields.seconds, fields.ip);
    let rows: String = fields(&log).iter().flatten().map(row).collect();
    let log = format!("time,ip,bytes\n{rows}");
    for limits in [
        &["--limit", "30/min burst 10"][..],
        &["--limit", "3/10s", "--max-keys", "4"],
        &["--limit", "a=14/min by ip else allow", "--limit", "all=40/min by nothing"],
    ] {
        let results = |cost: &str| {
            let args = [limits, &["--sort", "--compare", "--format", "json", "--cost", cost]].concat();
            json(&replay_stdin(&args, log.as_bytes()))["results"].clone()
        };
        let (one, bytes) = (results("1"), results("bytes"));
        assert!(one[0]["compliant"]["withheld"].as_u64() > Some(0), "{one}");
        assert_eq!(one, bytes, "{limits:?}");
    }
}

#[test]
fn compare_shows_all_algorithms_and_windows_without_the_burst() {
    let named = ["--limit", "a=14/min by ip", "--limit", "b=3/10s burst 9 by ip+path"];
    for limits in [&LIMIT[..], &named] {
        let args = [&[LOG, "--sort", "--compare"][..], limits].concat();
        let report = text_of(&args, "");
        for part in ["\nAlgorithms side by side\n", "Windows and logs take no burst"] {
            assert!(report.contains(part), "{report}");
        }
        for line in report.lines() {
            assert!(line.chars().count() <= 80, "wider than a terminal: {line}");
        }
        let compared = json_of(&args[..], "");
        let compared = compared["results"].as_array().expect("rows");
        assert_eq!(compared.len(), Algorithm::ALL.len());
        for (result, algorithm) in compared.iter().zip(Algorithm::ALL) {
            let name = algorithm.to_string();
            assert!(report.lines().any(|line| line.trim().starts_with(&name)), "{report}");
            let without =
                |limit: &&str| limit.split(" burst 10").next().unwrap_or_default().replace(" burst 9", "");
            let limits = limits
                .iter()
                .map(|limit| if algorithm.has_burst() { (*limit).to_owned() } else { without(limit) });
            let limits: Vec<String> = limits.collect();
            let args = [LOG, "--sort", "--algorithm", &name, "--format", "json"].into_iter();
            let args: Vec<&str> = args.chain(limits.iter().map(String::as_str)).collect();
            assert_eq!(json(&replay(&args))["results"][0], *result, "{name}");
            assert!(result["denied"].as_u64() > Some(20), "{result}");
        }
    }
    // An algorithm that refuses a limit says why.
    for (limit, option) in [("1000000/s", "--limit: "), ("a=2000000/h by ip", "--limit 'a': ")] {
        let args = [LOG, "--compare", "--limit", limit];
        let report = json_of(&args[..], "");
        let results = report["results"].as_array().expect("rows").iter();
        let refused: Vec<_> = results.filter(|result| result["passed"].is_null()).collect();
        assert!(!refused.is_empty() && refused.len() < Algorithm::ALL.len(), "{report}");
        assert!(refused.iter().all(|it| it["refused"].to_string().contains(option)), "{refused:?}");
        assert!(text_of(&args, "").contains("refused:"));
    }
}

#[test]
fn decisions_go_to_a_file_and_name_the_logs_if_there_are_several() {
    let file = scratch("decisions").join("decisions.csv");
    let path = file.to_string_lossy();
    let report = text_of(&[&[LOG, "--decisions", &path][..], &LIMIT].concat(), "");
    assert!(report.contains("This run"));
    let written = fs::read_to_string(&file).expect("the file was written");
    let rows: Vec<&str> = written.lines().collect();
    assert_eq!(rows[0], "line,key,allowed,remaining,retry_after_ns,refused_by,outcome");
    assert_eq!(rows[1..], decisions(&[LOG], ""));
    assert!(rows.iter().all(|row| !row.starts_with("130,") && !row.starts_with("260,")));

    text_of(&[&[LOG, LOG, "--decisions", &path][..], &LIMIT].concat(), "");
    let written = fs::read_to_string(&file).expect("the file was written");
    assert_eq!(
        written.lines().next(),
        Some("file,line,key,allowed,remaining,retry_after_ns,refused_by,outcome")
    );
    let counted = written.lines().filter(|row| row.starts_with("tests/data/access.log,1,")).count();
    assert_eq!(counted, 2, "lines are counted in each log");
    let unwritable = scratch("decisions").join("no/such/directory.csv");
    let unwritable = unwritable.to_string_lossy();
    let args = [&[LOG, "--decisions", &unwritable][..], &LIMIT].concat();
    assert!(refusal_of(&args, "").contains("directory.csv"));
}

#[test]
fn a_full_table_answers_new_keys_by_its_policy() {
    let keys: Vec<String> = (0..200).map(|n| format!("{{\"time\":1,\"ip\":\"{n}\"}}\n")).collect();
    let counts = |full| {
        let args = ["--limit", "1/h", "--max-keys", "8", "--when-full", full, "--format", "json"];
        let report = json(&replay_stdin(&args, keys.concat().as_bytes()));
        let result = &report["results"][0];
        let count = |part: &str| result[part].as_u64().expect("a count");
        (count("passed"), count("answered_by_full_policy"), count("charged_to_shared_overflow"))
    };
    let (passed, by_policy, _) = counts("deny");
    assert!(by_policy > 0);
    assert_eq!(passed, 200 - by_policy);
    assert_eq!(counts("allow").0, 200);
    let (passed, _, shared) = counts("share");
    assert!(shared > 0);
    assert_eq!(passed, 200 - shared + 1, "those who share one state share its one token");
}

/// Returns how many requests were denied because no place was free, and how many were denied in
/// all.
fn denied(log: &str, args: &[&str]) -> (u64, u64) {
    let args = [args, &["--limit", "3/10s", "--format", "json"]].concat();
    let report = json(&replay_stdin(&args, log.as_bytes()));
    let result = &report["results"][0];
    let count = |part: &str| result[part].as_u64().expect("a count");
    (count("answered_by_full_policy"), count("denied"))
}

#[test]
fn a_limiter_of_few_places_forgets_keys_at_the_times_of_the_log() {
    // The log has a new key each second. A key is idle 3 1/3 s after its charge, and is evicted a
    // second later. Therefore, five places are in use at a time.
    let log: String = (0..2000).map(|second| line_at(&format!("192.0.2.{}", second % 200), second)).collect();
    for store in [&[][..], &["--exact-keys"]] {
        for (places, refused) in [("5", 0), ("200", 0), ("4", 400)] {
            let args = [&["--max-keys", places][..], store].concat();
            assert_eq!(denied(&log, &args), (refused, refused), "{places} {store:?}");
        }
    }
    // No key is evicted while all keys are in use.
    let log: String = (0..50).map(|key| line_at(&format!("192.0.2.{key}"), 1)).collect();
    assert_eq!(denied(&log, &["--max-keys", "20"]), (30, 30));
}

#[test]
fn few_places_change_no_decision_of_a_log_that_steps_back_while_there_is_one_free() {
    // A line's timestamp may be up to a minute later than those of the following lines. A limiter
    // evicts an idle key after a much shorter time.
    let second = |n: u64| 600 + n - n * 7 % 60;
    let log: String = (0..1500).map(|n| line_at(&format!("192.0.2.{}", n % 100), second(n))).collect();
    let rows = |places| decisions(&["--max-keys", places], &log);
    assert_eq!(rows("20"), rows("1000000"));
}

#[test]
fn strict_stops_at_the_first_bad_line() {
    let message = refusal_of(&[&[LOG, "--strict"][..], &LIMIT].concat(), "");
    assert_eq!(message, "tollgate: tests/data/access.log:130: as combined: the time has no ']' at its end\n");
    let good: String = log().lines().take(100).map(|line| format!("{line}\n")).collect();
    text_of(&[&["--strict"][..], &LIMIT].concat(), &good);
}

#[test]
fn an_unreadable_file_is_named_before_anything_is_read() {
    let message = refusal_of(&[&[LOG, "no/such.log"][..], &LIMIT].concat(), "");
    assert!(message.contains("no/such.log"), "{message}");
    let message = refusal_of(&[&["tests/data"][..], &LIMIT].concat(), "");
    assert!(message.contains("tests/data"), "{message}");
}

#[test]
fn a_malformed_limit_is_pointed_at() {
    let message = refusal_of(&[LOG, "--limit", "30/fortnight burst 10"], "");
    let lines: Vec<&str> = message.lines().collect();
    assert!(lines[0].contains("allowed"), "{message}");
    assert_eq!(lines[lines.len() - 2..], ["  30/fortnight burst 10", "     ^"]);
    for limit in ["", "30", "30/", "many/s", "30/min burst", "-1/s", "1.5/s", "0/s", "1/0s", "\u{1b}/s"] {
        refusal_of(&[LOG, &format!("--limit={limit}")], "");
    }
}

/// The log, or an empty text for our log; the arguments; and parts of the message. Without a limit
/// in the arguments, the limit is [`LIMIT`].
type Refused<'r> = (&'r str, &'r [&'r str], &'r [&'r str]);

const REFUSED: [Refused<'_>; 49] = [
    // Fields.
    ("", &["--key", "ip+cookie"], &["'cookie'", "ip, ident, user"]),
    ("", &["--key", "ip+"], &["empty field"]),
    ("", &["--key", ""], &["empty field"]),
    ("", &["--key", "ip++path"], &["empty field"]),
    ("", &["--key", "ip+path+ ip"], &["--key", "'ip' twice"]),
    ("", &["--key", "ip+path+ip"], &["--key", "'ip' twice"]),
    ("", &["--fields", "time"], &["'time' is not a pair of names"]),
    ("", &["--fields", "time="], &["'time=' is not a pair of names"]),
    ("", &["--fields", "=ts"], &["'=ts' is not a pair of names"]),
    ("", &["--fields", "time=ts,"], &["'' is not a pair of names"]),
    ("", &["--fields", "ip=a, time=b,ip=c"], &["--fields names 'ip' twice"]),
    ("", &["--fields", "ip=addr"], &["combined"]),
    ("", &["--fields", "time=a,time=b"], &["--fields", "'time' twice"]),
    ("", &["--fields", "time=ts,user=who"], &["'user'", "time, bytes, ip"]),
    ("when,addr\n1,a\n", &["--fields", "time=when"], &["'ip'", "when, addr (--fields maps names: "]),
    ("{\"when\":1,\"addr\":\"a\"}\n", &["--fields", "time=when"], &["'ip'", "addr, when (--fields maps"]),
    ("time,ip\n1,a\n", &["--fields", "ip=a=b"], &["unknown field 'a=b'"]),
    ("when,addr\n1,a\n", &[], &["'time'", "when"]),
    ("{\"when\":1,\"addr\":\"a\"}\n", &[], &["'time'", "when"]),
    ("", &["--fields", "time=when"], &["unknown field 'when' for the time"]),
    ("", &["--fields", "time=when", "--limit", "a=1/h by nothing"], &["unknown field 'when' for the time"]),
    (W3C, &["--fields", "time=when"], &["unknown field 'when' for the time"]),
    (W3C, &["--fields", "time=when", "--limit", "a=1/h by nothing"], &["unknown field 'when' for the time"]),
    ("", &["--limit", "a=1/s by ip", "--fields", "bytes=b"], &["expected before '=': time, ip, method"]),
    // Limits and limiters.
    ("", &["--limit", "0/s"], &["tollgate: --limit: "]),
    ("", &["--limit", "10000000000/s"], &["tollgate: --limit: "]),
    ("", &["--limit", "1/s burst 0"], &["tollgate: --limit: "]),
    ("", &["--limit", "1/0s"], &["tollgate: --limit: "]),
    ("", &["--limit", "8 at one"], &["tollgate: --limit: "]),
    ("", &["--limit", "5/x", "--limit", "a=1/s by ip"], &["tollgate: --limit: "]),
    ("", &["--limit", "5/s", "--limit", "5/s"], &["5/s"]),
    ("", &["--algorithm", "fixed-window"], &["burst"]),
    ("", &["--max-keys", "0"], &["tollgate: --max-keys: "]),
    ("", &["--compare", "--limit", "5/s", "--max-keys", "0"], &["token-bucket:", "sliding-window:"]),
    // Options that have no meaning beside others.
    ("", &["-", "-"], &["only once"]),
    ("", &["--decisions", "-", "--format", "json"], &["--decisions", "--format"]),
    ("", &["--limit", "a=1/s by ip", "--key", "ip"], &["--key is for a quota without a name"]),
    ("", &["--limit", "a=1/s by ip", "--quotas", "x"], &["--quotas is for a quota without a name"]),
    ("", &["--limit", "5/s", "--limit", "9/h", "--quotas", "x"], &["there are several quotas without names"]),
    ("", &["--limit", "8 at once", "--quotas", "x"], &["the place of a quota, and this is none: "]),
    ("", &["--limit", "5/s and 9/h", "--quotas", "x"], &["the place of a quota, and this is none: "]),
    ("", &["--limit", "5/s", "--except", "/a", "--path-template", "/a"], &["would not be used"]),
    ("", &["--limit", "5/s", "--shadow", "a"], &["invalid --shadow `a`"]),
    ("", &["--limit", "a=1/s by ip", "--shadow", "b"], &["invalid --shadow `b`"]),
    // Limits to compare with.
    ("", &["--against", "6/x"], &["--against: "]),
    ("", &["--limit", "a=5/s by ip", "--against", "5/x"], &["--against: "]),
    ("", &["--limit", "a=5/s by ip", "--against", "b=5/s by"], &["--against: "]),
    ("", &["--limit", "2/s", "-a", "sliding-log", "--against", "9/s burst 20"], &["--against: "]),
    (
        "",
        &["--limit", "a=5/s by ip", "--against", "b=5/s by header x-key"],
        &["--limit 'b' needs the header `x-key`"],
    ),
];

const W3C: &str = "#Fields: date time c-ip\n2025-03-03 08:00:00 192.0.2.1\n";

#[test]
fn what_is_refused_is_named_with_its_reason() {
    for (log, args, parts) in REFUSED {
        let limit = if args.contains(&"--limit") { &[][..] } else { &LIMIT };
        let file = if log.is_empty() { &[LOG][..] } else { &[] };
        let message = refusal_of(&[file, args, limit].concat(), &log);
        for part in parts {
            assert!(message.contains(part), "{part} is missing in the answer to {args:?}: {message}");
        }
    }
}

#[test]
fn arguments_that_contradict_each_other_are_refused() {
    for args in [
        &["--compare", "--algorithm", "token-bucket"][..],
        &["--compare", "--decisions", "x.csv"],
        &["--algorithm", "magic"],
        &["--cost", "2"],
    ] {
        let output = replay(&[&[LOG], args, &LIMIT].concat());
        assert_eq!(output.status.code(), Some(2), "{args:?}");
    }
    assert_eq!(replay(&[LOG]).status.code(), Some(2), "a limit is needed");
}

#[test]
fn an_empty_log_is_said_to_be_empty() {
    for input in ["", "\n\r\n  \n", "time,ip\n"] {
        let report = text_of(&LIMIT, &input);
        assert!(report.contains("The log is empty"), "{report}");
        let report = json_of(&LIMIT, &input);
        assert_eq!(report["log"]["requests"], 0);
    }
}

#[test]
fn a_log_of_which_no_line_parses_is_refused() {
    let message = refusal_of(&LIMIT, b"one\ntwo\n\0\xff\xfe\n\x1b[2J\n5\n6\n");
    assert!(message.contains("no line of the log parses; the first of 6:"), "{message}");
    assert!(message.contains("standard input:5:") && !message.contains("standard input:6:"));
    assert!(!message.contains('\u{1b}'));
}

#[test]
fn hostile_bytes_in_keys_do_not_reach_the_terminal() {
    let line = b"\x1b[2J\xff - - [03/Mar/2025:08:00:00 +0000] \"GET / HTTP/1.1\" 200 1\n".repeat(3);
    let report = text_of(&["--limit", "1/h"], &line);
    assert!(report.contains("\\u{1b}[2J\\xff"), "{report}");
    assert!(!report.contains('\u{1b}'));
}

#[test]
fn a_line_too_long_to_be_one_is_skipped() {
    let mut log = b"x".repeat(3 << 20);
    log.push(b'\n');
    log.extend(log_line());
    let report = json_of(&LIMIT, &log);
    assert_eq!((&report["log"]["requests"], &report["log"]["unparsable"]), (&1.into(), &1.into()));
}

fn log_line() -> Vec<u8> {
    log().lines().next().map(|line| format!("{line}\n").into_bytes()).expect("a line")
}

#[test]
fn whoever_stops_reading_ends_the_program_quietly() {
    for args in [&["--decisions", "-"][..], &[]] {
        let mut child = started(&[&["--limit", "30/min"], args].concat());
        // The reader closes the pipe before the first row.
        drop(child.stdout.take());
        let mut stdin = child.stdin.take().expect("it is a pipe");
        let line = log_line();
        for _ in 0..20_000 {
            if stdin.write_all(&line).is_err() {
                break;
            }
        }
        drop(stdin);
        let output = child.wait_with_output().expect("it ends");
        assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
    }
}

#[test]
fn help_and_version_are_there() {
    let help = text_of(&["--help"], "");
    for part in [
        "Examples:",
        "--limit",
        "token-bucket",
        "--quotas",
        "192.0.2.1,/login,5/min",
        "--compare",
        "user-agent",
        "Exit code",
        "warns where",
        "share the key '-'",
        "--ipv6-prefix",
        "2001:db8::17,1000/h is one quota for all addresses in",
        "NUL bytes",
    ] {
        assert!(help.contains(part), "{part} is missing:\n{help}");
    }
    let version = Command::new(env!("CARGO_BIN_EXE_tollgate")).arg("--version").output();
    let version = text(&version.expect("the program was built"));
    assert_eq!(version, concat!("tollgate ", env!("CARGO_PKG_VERSION"), "\n"));
}

#[test]
fn a_real_log_is_replayed_where_there_is_one() {
    let real = "../../../shared/data/apache_access.log";
    if fs::metadata(real).is_err() {
        return;
    }
    let report = json_of(&[&[real][..], &LIMIT].concat(), "");
    let log = &report["log"];
    assert_eq!((&log["lines"], &log["requests"]), (&10_000.into(), &10_000.into()));
    assert_eq!((&report["limits"][0]["keys"], &log["stepped_back"]), (&1_753.into(), &4_915.into()));
    assert_eq!(log["largest_step_ns"], 59_000_000_000_u64);
    // One line's user agent is cut off, which matters only to a replay that needs the user agent.
    let report = json_of(&[&[real, "--key", "user-agent"][..], &LIMIT].concat(), "");
    assert_eq!(report["log"]["bad_lines"][0]["line"], 8_899);
}

#[test]
fn a_replay_that_fails_leaves_earlier_decisions_as_they_were() {
    let directory = scratch("earlier_decisions");
    let file = directory.join("decisions.csv");
    let path = file.to_string_lossy();
    fs::write(&file, "earlier").expect("the target directory can be written");
    let broken = directory.join("broken.gz");
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    encoder.write_all(log().as_bytes()).expect("a vector can be written");
    let packed = encoder.finish().expect("a vector can be written");
    fs::write(&broken, &packed[..packed.len() / 2]).expect("the target directory can be written");
    let broken = broken.to_string_lossy();
    for args in [&[LOG, "--key", "cookie"][..], &[LOG, "--strict"], &[&broken]] {
        refusal_of(&[args, &["--decisions", &path], &LIMIT].concat(), "");
        assert_eq!(fs::read_to_string(&file).expect("it is there"), "earlier", "{args:?}");
    }
    let message = refusal_of(&[&["--decisions", &path][..], &LIMIT].concat(), b"nonsense\n");
    assert!(message.contains("no line of the log parses"), "{message}");
    assert_eq!(fs::read_to_string(&file).expect("it is there"), "earlier");
    let names: Vec<_> = fs::read_dir(&directory).expect("it is there").collect();
    assert_eq!(names.len(), 2, "nothing else was left behind: {names:?}");
    text_of(&[&[LOG, "--decisions", &path][..], &LIMIT].concat(), "");
    assert_eq!(fs::read_to_string(&file).expect("it is there").lines().count(), 324);
    assert_eq!(fs::read_dir(&directory).expect("it is there").count(), 2);
}

/// Creates a named pipe with a reader.
#[cfg(unix)]
fn pipe<T: Send + 'static>(test: &str, read: fn(PathBuf) -> T) -> (PathBuf, JoinHandle<T>) {
    let fifo = scratch(test).join("decisions");
    let _ = fs::remove_file(&fifo);
    assert!(Command::new("mkfifo").arg(&fifo).status().expect("mkfifo is there").success());
    let reader = fifo.clone();
    (fifo, std::thread::spawn(move || read(reader)))
}

#[cfg(unix)]
#[test]
fn decisions_go_straight_to_what_is_no_regular_file() {
    let (fifo, reader) = pipe("fifo", |fifo| fs::read_to_string(fifo).expect("a pipe can be read"));
    text_of(&[&[LOG, "--decisions", &fifo.to_string_lossy()][..], &LIMIT].concat(), "");
    assert_eq!(reader.join().expect("reading does not panic").lines().count(), 324);
    text_of(&[&[LOG, "--decisions", "/dev/null"][..], &LIMIT].concat(), "");

    // A link is followed: the linked file is replaced, and the link is kept.
    let directory = scratch("link_to_decisions");
    let (file, link) = (directory.join("decisions.csv"), directory.join("link"));
    fs::write(&file, "earlier").expect("the target directory can be written");
    let _ = fs::remove_file(&link);
    std::os::unix::fs::symlink(&file, &link).expect("the target directory has links");
    text_of(&[&[LOG, "--decisions", &link.to_string_lossy()][..], &LIMIT].concat(), "");
    assert_eq!(fs::read_to_string(&file).expect("it is there").lines().count(), 324);
    assert!(fs::symlink_metadata(&link).expect("it is there").is_symlink());
}

#[cfg(unix)]
#[test]
fn a_reader_of_decisions_that_leaves_does_not_take_the_report_with_it() {
    let (fifo, reader) =
        pipe("reader_left", |fifo| drop(fs::File::open(fifo).expect("a pipe can be opened")));
    let long = log().repeat(200);
    let path = fifo.to_string_lossy();
    let args = [&["--decisions", &path][..], &LIMIT].concat();
    let message = refusal_of(&args, &long);
    assert!(message.contains("cannot write to") && message.contains("decisions"), "{message}");
    reader.join().expect("opening does not panic");
}

#[test]
fn what_a_log_says_in_messages_does_not_steer_the_terminal() {
    let evil = "\u{1b}[2J\u{202e}";
    let many: String = (0..50).map(|n| format!(",column{n}")).collect();
    let runs: [(Vec<String>, String); 6] = [
        (vec![], format!("{{\"{evil}\":1}}\n")),
        (vec!["--log-format".into(), "json".into()], format!("{{\"time\":1,\"{evil}\":1}}\n")),
        (vec!["--log-format".into(), "csv".into()], format!("when,{evil}\n1,2\n")),
        (vec!["--log-format".into(), "csv".into()], format!("when{many}\n")),
        (vec!["--key".into(), format!("{evil}+")], String::new()),
        (vec!["--fields".into(), evil.into()], String::new()),
    ];
    for (args, input) in runs {
        let args: Vec<&str> = args.iter().map(String::as_str).chain(LIMIT).collect();
        let message = refusal_of(&args, &input);
        assert!(!message.contains('\u{1b}') && !message.contains('\u{202e}'), "{args:?}: {message:?}");
        assert!(message.chars().count() < 1000, "{message}");
        if input.contains("column9") {
            assert!(message.contains("and 31 more") && !message.contains("column30"), "{message}");
        }
    }
    let message = refusal_of(&[&[&format!("no{evil}.log")[..]], &LIMIT[..]].concat(), "");
    assert!(message.contains("no\\u{1b}[2J\\u{202e}.log"), "{message:?}");
    let key = replay_stdin(&[&["--key", &format!("a{evil}")][..], &LIMIT].concat(), b"time,ip\n1,2\n");
    assert!(refusal(&key).contains("a\\u{1b}[2J\\u{202e}"));
    let header = format!("time,{evil}\n1,2\n");
    let args = ["--key", evil, "--log-format", "csv"];
    let report = text_of(&[&args[..], &LIMIT].concat(), &header);
    assert!(!report.contains('\u{1b}') && !report.contains('\u{202e}'), "{report:?}");
}

/// Returns a line in Common Log Format, stamped with this second of 3 March 2025.
fn line_at(ip: &str, second: u64) -> String {
    let (hours, minutes, seconds) = (second / 3600, second / 60 % 60, second % 60);
    format!("{ip} - - [03/Mar/2025:{hours:02}:{minutes:02}:{seconds:02} +0000] \"GET / HTTP/1.1\" 200 1\n")
}

#[test]
fn a_disordered_log_is_given_its_size_and_a_plain_note() {
    // At two tokens per minute, a token refills in 30 s, which is less than the shift of 50 s.
    let log = [line_at("a", 60), line_at("a", 10), line_at("a", 40), line_at("b", 61)].concat();
    let args = ["--limit", "2/min burst 1"];
    let report = text_of(&args, &log);
    let flat = report.split_whitespace().collect::<Vec<_>>().join(" ");
    for part in ["35 s later on average", "50 s at most", "disagree by up to 50 s", "--sort judges by stamp"]
    {
        assert!(flat.contains(part), "{part} is missing:\n{report}");
    }
    let figures = json_of(&args[..], &log);
    let figures = &figures["log"];
    assert_eq!(figures["judged_later_than_stamped"], 2);
    assert_eq!(figures["mean_shift_ns"], 35_000_000_000_u64);
    assert_eq!(figures["largest_shift_ns"], 50_000_000_000_u64);
    assert_eq!(figures["notes"].as_array().expect("notes").len(), 1);
    let sorted = text_of(&[&args[..], &["--sort"]].concat(), &log);
    assert!(!sorted.contains("disagree"), "{sorted}");
    // A shift that is short for the limit needs no note.
    let slow = text_of(&["--limit", "1/h"], &log);
    assert!(!slow.contains("disagree"), "{slow}");
}

#[test]
fn a_json_log_begins_with_the_first_record_that_has_the_fields() {
    let started = "{\"level\":\"info\",\"msg\":\"started\"}\n";
    let log = format!("{started}{{\"time\":1,\"ip\":\"a\"}}\n{started}{{\"time\":2,\"ip\":\"a\"}}\n");
    let report = json_of(&LIMIT, &log);
    let log = &report["log"];
    assert_eq!((&log["requests"], &log["unparsable"]), (&2.into(), &2.into()));
    assert!(log["bad_lines"][0]["reason"].as_str().is_some_and(|reason| reason.contains("'time'")));
    let message = refusal_of(&LIMIT, &started.repeat(3));
    assert!(message.contains("'time'") && message.contains("level, msg"), "{message}");
}

#[test]
fn logs_in_the_wrong_order_and_stamps_that_leap_are_noted() {
    let directory = scratch("order_of_logs");
    let files = ["early.log", "late.log"].map(|name| directory.join(name));
    fs::write(&files[0], line_at("192.0.2.1", 10) + &line_at("192.0.2.1", 20))
        .expect("the directory can be written");
    fs::write(&files[1], line_at("192.0.2.1", 15) + &line_at("192.0.2.1", 30))
        .expect("the directory can be written");
    let [early, late] = files.each_ref().map(|file| file.to_string_lossy());
    let ip = |last: u64| format!("192.0.2.{last}");
    let leaping = line_at(&ip(1), 1) + &line_at(&ip(2), 2).replace("/2025", "/2035") + &line_at(&ip(1), 3);
    let flat = |args: &[&str], log: &str| {
        let report = text_of(&[&["--limit", "1/h"], args].concat(), &log);
        report.split_whitespace().collect::<Vec<_>>().join(" ")
    };
    for (order, noted) in [([&*late, &*early], "20 s before"), ([&*early, &*late], "5 s before")] {
        let report = flat(&order, "");
        assert!(report.contains(&format!("begins {noted}")), "{noted} is missing:\n{report}");
        let sorted = flat(&[&order[..], &["--sort"]].concat(), "");
        assert!(!sorted.contains("begins"), "{sorted}");
    }
    let report = flat(&[], &leaping);
    let is_noted =
        report.contains("standard input:2 is stamped 3652 d") && report.contains("every later request is");
    assert!(is_noted, "{report}");
    assert!(!flat(&["--sort"], &leaping).contains("is stamped"));
    // A gap without traffic is not a leap, because no earlier timestamp follows it.
    let pause: String = leaping.split_inclusive('\n').take(2).collect();
    assert!(!flat(&[], &pause).contains("is stamped"));
}

#[test]
fn nested_json_fields_are_reached_by_dotted_names() {
    let log = [
        r#"{"level":"info","msg":"serving initial configuration"}"#,
        r#"{"ts":1.5,"size":3,"request":{"remote_ip":"192.0.2.1","headers":{"Agent":["x"]}}}"#,
        r#"{"ts":2.5,"size":3,"request":{"remote_ip":"192.0.2.1","headers":{"Agent":["x"]}}}"#,
        r#"{"ts":3.5,"size":3,"request.remote_ip":"exact","request":{"remote_ip":"192.0.2.1"}}"#,
        r#"{"ts":4.5,"size":3,"request":7}"#,
    ]
    .join("\n");
    let args = ["--fields", "time=ts,ip=request.remote_ip", "--decisions", "-", "--limit", "1/h"];
    let rows = text_of(&args, &log);
    let keys: Vec<&str> = rows.lines().skip(1).filter_map(|row| row.split(',').nth(1)).collect();
    assert_eq!(keys, ["192.0.2.1", "192.0.2.1", "exact", "-"]);
    for (key, kind) in [("request", "an object"), ("request.headers.Agent", "an array")] {
        let args = ["--fields", "time=ts", "--key", key, "--limit", "1/h"];
        let message = refusal_of(&args, &log.lines().nth(1).unwrap_or_default());
        assert!(message.contains(kind) && message.contains(key), "{message}");
    }
}

#[test]
fn prose_and_fields_of_ones_own_do_not_hide_the_format() {
    let log = format!("Logs begin, as usual, here\n{}", log());
    let report = json_of(&LIMIT, &log);
    assert_eq!(report["log"]["files"][0]["format"], "combined");
    assert_eq!((&report["log"]["requests"], &report["log"]["unparsable"]), (&323.into(), &3.into()));

    let timed = line_at("a", 1).replace(" 200 1\n", " 200 1 0.003 upstream\n").repeat(2);
    let report = json_of(&LIMIT, &timed);
    assert_eq!(report["log"]["files"][0]["format"], "common");
    assert_eq!(report["log"]["requests"], 2);

    // `--fields` renames the time's column.
    let csv = "when,ip\n1,a\n";
    let mapped = [&["--fields", "time=when", "--format", "json"][..], &LIMIT].concat();
    assert_eq!(json(&replay_stdin(&mapped, csv.as_bytes()))["log"]["files"][0]["format"], "csv");
    let message = refusal_of(&LIMIT, &csv);
    assert!(message.contains("no column 'time'"), "{message}");
}

#[test]
fn requests_without_the_field_of_the_key_are_counted() {
    let log = "{\"time\":1,\"user\":\"a\"}\n{\"time\":1}\n{\"time\":1,\"user\":null}\n";
    let args = [&["--key", "user"][..], &LIMIT].concat();
    let report = text_of(&args, &log);
    assert!(report.contains("2 requests have no 'user'; they share one key."), "{report}");
    let report = json_of(&args[..], &log);
    assert_eq!(report["log"]["missing_key_fields"], serde_json::json!([{"field": "user", "requests": 2}]));
    assert!(!text_of(&[&[LOG][..], &LIMIT].concat(), "").contains("have no"));
    let anonymous = text_of(&[&[LOG, "--key", "user+ip"][..], &LIMIT].concat(), "");
    assert!(anonymous.contains("requests have no 'user'"), "{anonymous}");
}

#[test]
fn the_json_report_counts_every_line_of_every_file() {
    let csv = "time,ip\n\n1,a\nx,b\n\n";
    let report = json_of(&LIMIT, &csv);
    let file = &report["log"]["files"][0];
    let counts = ["lines", "requests", "unparsable", "blank", "header"].map(|part| file[part].as_u64());
    assert_eq!(counts, [5, 1, 1, 2, 1].map(Some));
}

#[test]
fn the_report_counts_one_thing_as_one() {
    let report = text_of(&LIMIT, &line_at("a", 1));
    assert!(report.contains("(common, 1 line)") && report.contains("1 request of 1 key,"), "{report}");
}

#[test]
fn every_spelling_of_a_path_is_counted_as_the_proxy_counts_it() {
    let escaped = |path: &str| path.replace('\\', "\\\\").replace('"', "\\\"");
    let clf = |path: &str| {
        let path = escaped(path);
        format!("192.0.2.1 - - [17/May/2015:10:05:03 +0000] \"GET {path} HTTP/1.1\" 200 1\n")
    };
    let record = |path: &str| format!("{{\"time\":1,\"path\":\"{}\"}}\n", escaped(path));
    let others = [("example.org:443", "/"), ("*", "*"), ("/caf\u{e9}", "/caf%C3%A9")];
    let paths: Vec<_> = PATHS.into_iter().chain(others).collect();
    let logs = [
        paths.iter().map(|(sent, _)| clf(sent)).collect(),
        paths.iter().map(|(sent, _)| record(sent)).collect(),
    ];
    for log in logs {
        let log: String = log;
        let rows = decisions(&["--key", "path"], &log);
        let keys = rows.iter().map(|row| {
            let mut reader = csv::ReaderBuilder::new().has_headers(false).from_reader(row.as_bytes());
            reader.records().next().unwrap().unwrap()[1].to_owned()
        });
        let keys: Vec<String> = keys.collect();
        let form = |form: &str| String::from_utf8_lossy(&path_key(form.as_bytes())).into_owned();
        assert_eq!(keys, paths.iter().map(|(_, path)| form(path)).collect::<Vec<_>>(), "{log}");
    }
    // These paths contain bytes that are not valid text in JSON. Servers write such paths in one of
    // two forms.
    let hex = |byte: &u8| match byte {
        b' '..=b'~' if !b"\"\\".contains(byte) => char::from(*byte).to_string(),
        _ => format!("\\x{byte:02X}"),
    };
    let line = |target: &str| clf("/").replace("GET /", &format!("GET {target}"));
    for (sent, passed_on, form) in RAW_PATHS {
        for target in [sent.iter().map(hex).collect(), passed_on.replace('\\', "\\\\").replace('"', "\\\"")] {
            let rows = decisions(&["--key", "path"], &line(&target));
            let form = String::from_utf8_lossy(&path_key(form.as_bytes())).into_owned();
            assert!(
                rows[0].replace('"', "").contains(&format!(",{},", form.replace('"', ""))),
                "{target}: {rows:?}"
            );
        }
    }
}

#[test]
fn every_spelling_of_an_address_is_counted_as_the_proxy_counts_it() {
    let spellings = [
        ("192.0.2.1", "192.0.2.1"),
        ("192.0.2.1:40001", "192.0.2.1"),
        ("::ffff:192.0.2.1", "192.0.2.1"),
        ("[::ffff:c000:201]:40002", "192.0.2.1"),
        ("2001:db8::17", "2001:db8::/64"),
        ("2001:DB8::1:0:0:18", "2001:db8::/64"),
        ("[2001:db8::19]:443", "2001:db8::/64"),
        ("2001:db8:0:1::17", "2001:db8:0:1::/64"),
        ("host.example.org", "host.example.org"),
        ("-", "-"),
    ];
    let clf: String = spellings.iter().map(|(ip, _)| line_at(ip, 1)).collect();
    let records: String =
        spellings.iter().map(|(ip, _)| format!("{{\"time\":1,\"remote_addr\":\"{ip}\"}}\n")).collect();
    let csv: String = spellings.iter().map(|(ip, _)| format!("1,{ip}\n")).collect();
    let mapped = ["--fields", "ip=remote_addr"];
    let logs = [(&[][..], clf), (&mapped, records), (&mapped, format!("time,remote_addr\n{csv}"))];
    for (args, log) in logs {
        let rows = decisions(args, &log);
        let keys: Vec<&str> = rows.iter().filter_map(|row| row.split(',').nth(1)).collect();
        assert_eq!(keys, spellings.map(|(_, key)| key), "{log}");
    }
    // In other fields, an address is plain text.
    let user = "{\"time\":1,\"user\":\"192.0.2.1:40001\"}\n";
    assert!(decisions(&["--key", "user"], user)[0].contains(",192.0.2.1:40001,"));
    for prefix in ["0", "129", "many"] {
        let refused = replay(&[&[LOG, "--ipv6-prefix", prefix][..], &LIMIT].concat());
        assert_eq!(refused.status.code(), Some(2), "{prefix}");
    }
}

#[test]
fn holes_and_marks_of_a_log_are_part_of_no_key_in_any_format() {
    let hole = "\0".repeat(5000);
    let line = |ip: &str| line_at(ip, 1);
    let record = |ip: &str| format!("{{\"time\":1,\"ip\":\"{ip}\"}}\n");
    let row = |ip: &str| format!("1,{ip}\n");
    type Form<'f> = &'f dyn Fn(&str) -> String;
    let logs: [(&str, Form<'_>); 3] = [("", &line), ("", &record), ("time,ip\n", &row)];
    for (header, line) in logs {
        // The log was truncated by copytruncate, and joined with a log that starts with a byte
        // order mark. Crashes have left holes within a line and at the end of a line.
        let cut = line("192.0.2.9");
        let cut = &cut[..cut.len() / 2];
        let parts = [
            format!("{hole}\u{feff}{header}{}", line("192.0.2.1")),
            format!("\u{feff}{}", line("192.0.2.1").replace('\n', "\r\n")),
            format!("\0{}{cut}{hole}{}", line("192.0.2.1"), line("192.0.2.1")),
            format!("{hole}{}{hole}", line("192.0.2.1")),
        ];
        let log = parts.concat();
        let rows = decisions(&[], &log);
        let keys: Vec<&str> = rows.iter().filter_map(|row| row.split(',').nth(1)).collect();
        let whole = keys.iter().filter(|&&key| key == "192.0.2.1").count();
        assert_eq!(whole, 5, "{rows:?}");
        assert!(!rows.concat().contains("\\0") && !rows.concat().contains("feff"), "{rows:?}");
        let report = json_of(&LIMIT[..], &log);
        let notes = report["log"]["notes"].to_string();
        assert!(notes.contains("20,001 NUL bytes of standard input were skipped"), "{notes}");
    }
    let utf16: Vec<u8> = "\u{feff}time,ip\n1,a\n".encode_utf16().flat_map(u16::to_le_bytes).collect();
    let message = refusal_of(&LIMIT, &utf16);
    assert!(message.contains("UTF-16") && message.contains("iconv"), "{message}");
}

#[test]
fn a_last_line_that_is_cut_off_is_a_bad_line_or_is_noted() {
    let record = "{\"time\":1,\"ip\":\"192.0.2.17\"}\n";
    let combined = String::from_utf8(log_line()).expect("UTF-8");
    let logs = [
        ("", &*combined, true),
        ("", record, false),
        ("", &line_at("192.0.2.17", 1).replace(" 1\n", " 123\n"), true),
        ("time,ip\n", "1,192.0.2.17\n", true),
    ];
    for (header, line, still_parses) in logs {
        let whole = format!("{header}{}", line.repeat(3));
        let report = |log: &str| {
            let report = json_of(&LIMIT[..], &log);
            let count = |part: &str| report["log"][part].as_u64().expect("a count");
            (count("requests"), count("unparsable"), report["log"]["notes"].to_string())
        };
        assert_eq!(report(&whole), (3, 0, "[]".to_owned()));
        let (requests, unparsable, notes) = report(&whole[..whole.len() - 2]);
        assert_eq!((requests, unparsable), if still_parses { (3, 0) } else { (2, 1) }, "{whole}");
        let noted = notes.contains("the last line of standard input has no line end");
        assert_eq!(noted, still_parses, "{notes}");
    }
}

#[test]
fn every_kind_of_report_notes_holes_and_a_last_line_that_is_cut_off() {
    let log = [&*"\0".repeat(5000), &line_at("192.0.2.1", 1), line_at("192.0.2.2", 2).trim_end()].concat();
    for command in [&["replay", "--limit", "30/min"][..], &["suggest"]] {
        let noted = json(&run_stdin(&[command, &["--format", "json"]].concat(), log.as_bytes())).to_string();
        let shown = text(&run_stdin(command, log.as_bytes()));
        let shown = shown.split_whitespace().collect::<Vec<_>>().join(" ");
        for report in [noted, shown] {
            assert!(
                report.contains("5,000 NUL bytes of standard input were skipped"),
                "{command:?}: {report}"
            );
            assert!(
                report.contains("the last line of standard input has no line end"),
                "{command:?}: {report}"
            );
        }
    }
}

#[test]
fn templates_make_one_key_of_many_paths() {
    let line =
        |path: &str| format!("192.0.2.1 - - [17/May/2015:10:05:03 +0000] \"GET {path} HTTP/1.1\" 200 1\n");
    let log: String = ["/users/1", "/users/2?x", "//users/%33", "/login", "/logout"].map(line).concat();
    let templates = ["--path-template", "/login", "--path-template", "/users/{id}"];
    let keys = |args: &[&str]| {
        let report = json_of(&[&LIMIT, args, &["-"]].concat(), &log);
        report["limits"][0]["keys"].as_u64()
    };
    assert_eq!(keys(&["--key", "path"]), Some(5));
    assert_eq!(keys(&[&["--key", "ip+path"][..], &templates].concat()), Some(3));
    let rows = decisions(&[&["--key", "path"][..], &templates].concat(), &log);
    for (key, count) in [(",/users/{id},", 3), (",/login,", 1), (",(other),", 1)] {
        assert_eq!(rows.iter().filter(|row| row.contains(key)).count(), count, "{key}: {rows:?}");
    }
    let of = |args: &[&str]| refusal_of(&[&LIMIT, args].concat(), &log);
    let unused = of(&["--path-template", "/a"]);
    assert!(
        unused.contains("--path-template `/a` would not be used: expected path among the fields"),
        "{unused}"
    );
    let bad = of(&["--key", "path", "--path-template", "/a{id}"]);
    assert!(bad.contains("--path-template: invalid path template `/a{id}` at segment 1"), "{bad}");
}

/// Returns a log that is long enough for other threads to start. It also contains bad lines, blank
/// lines, and lines with holes.
pub(crate) fn long_log() -> Vec<u8> {
    let mut log = Vec::new();
    for turn in 0..40 {
        for (index, line) in crate::program::log().lines().enumerate() {
            let line = line.replace("03/Mar/2025:08", &format!("03/Mar/2025:{:02}", turn % 12));
            log.extend_from_slice(line.as_bytes());
            log.extend_from_slice(match (turn + index) % 97 {
                0 => b"\r\n",
                1 => b"\n\n",
                2 => b"\n\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0",
                3 => b"\nnonsense\n",
                _ => b"\n",
            });
        }
    }
    log
}

#[test]
fn threads_change_nothing_in_decisions_and_report() {
    let mut log = long_log();
    let whole = log.len();
    let shapes: [(&str, Vec<u8>); 3] = [
        ("no line end", log[..whole - 30].to_vec()),
        ("a line that is too long", {
            log.splice(whole / 2..whole / 2, std::iter::repeat_n(b'x', 3 << 20));
            log.clone()
        }),
        ("one that does not end", {
            log.extend(std::iter::repeat_n(b'y', 3 << 20));
            log.clone()
        }),
    ];
    let runs: [&[&str]; 7] = [
        &["--limit", "30/min burst 10"],
        &["--limit", "30/min", "--key", "ip+path", "--cost", "bytes", "--sort"],
        &["--limit", "3/10s", "--max-keys", "4"],
        &["--limit", "30/min", "--algorithm", "sliding-window", "--key", "user-agent"],
        &["--limit", "30/min", "--compare"],
        &["--limit", "a=30/min by ip", "--limit", "b=5/min by ip+path for POST"],
        &["--limit", "9/min", "--key", "user", "--limit", "b=5/min by ip for POST"],
    ];
    for (shape, log) in &shapes {
        for run in runs {
            let with = |threads: &str| {
                let args = [run, &["--threads", threads]].concat();
                let mut report = json_of(&args[..], log);
                report["run"].take();
                let rows = match run.contains(&"--compare") {
                    true => String::new(),
                    false => text_of(&[&args[..], &["--decisions", "-"]].concat(), log),
                };
                (report.to_string(), rows)
            };
            let one = with("1");
            for threads in ["2", "5"] {
                assert!(with(threads) == one, "{shape}: {run:?} on {threads} threads");
            }
        }
    }
}

#[cfg(target_os = "linux")]
#[test]
fn a_replay_that_is_interrupted_leaves_no_file() {
    let directory = scratch("interrupted");
    let file = directory.join("decisions.csv");
    fs::write(&file, "earlier").expect("the target directory can be written");
    for threads in ["1", "2"] {
        let path = file.to_string_lossy();
        let mut child = started(&[&["--threads", threads, "--decisions", &path][..], &LIMIT].concat());
        let mut stdin = child.stdin.take().expect("it is a pipe");
        // The log does not fit into the pipe, so the program must have started to read when this
        // write returns.
        stdin.write_all(&long_log()).expect("the program reads");
        // The test does not send the signal of Ctrl-C, because a shell's background jobs ignore it.
        // The program cannot handle SIGKILL, so it has even less time to clean up.
        child.kill().expect("it runs");
        let status = child.wait().expect("it ends");
        assert!(!status.success(), "{status}");
        drop(stdin);
        assert_eq!(fs::read_to_string(&file).expect("it is there"), "earlier");
        let names: Vec<_> = fs::read_dir(&directory).expect("it is there").collect();
        assert_eq!(names.len(), 1, "{names:?}");
    }
}
