//! Tests `tollgate replay --quotas`, which gives keys their own quotas.
//!
//! The oracle is the program without the option. The decisions for a key with its own quota must be
//! the same as in a run with that quota as the limit. The decisions for all other keys must be the
//! same as in a run without the option. Other tests check that decisions under a single limit are
//! correct.

use crate::program::{
    Decision, LOG, command, decided, json, json_of, log, refusal, refusal_of, replay, replay_stdin, scratch,
    text_of,
};
use serde_json::Value;
use std::collections::HashMap;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::process::Output;
use tollgate::{Algorithm, Quota};

const STORES: [&[&str]; 2] = [&[], &["--exact-keys"]];

/// Writes a file of quotas for one test, and returns the name of the file.
fn quotas(test: &str, records: impl AsRef<[u8]>) -> String {
    let file = scratch(&format!("quotas_{test}")).join("quotas.csv");
    fs::write(&file, records).expect("the target directory can be written");
    file.to_str().expect("the target directory has a plain name").to_owned()
}

/// Returns the limit in the form that this algorithm accepts. Windows and logs have no burst.
fn limit_for(algorithm: Algorithm, limit: &str) -> String {
    let quota: Quota = limit.parse().expect("a quota");
    if algorithm.has_burst() {
        limit.to_owned()
    } else {
        Quota::new(quota.tokens(), quota.period()).to_string()
    }
}

/// Returns the decisions, without the limit that refused a request.
#[track_caller]
fn decisions(args: &[&str], input: &[u8]) -> Vec<Decision> {
    let without_limit = |row| Decision { refused_by: String::new(), ..row };
    decided(args, input).into_iter().map(without_limit).collect()
}

/// The fields that form the key, the cost, the common limit, and two keys with their own quotas.
/// Each of these keys consists of its record, its printed form and its quota.
type Case = (&'static str, &'static str, &'static str, [(&'static str, &'static str, &'static str); 2]);

const CASES: [Case; 4] = [
    (
        "ip",
        "1",
        "30/min burst 10",
        [
            ("203.0.113.66", "203.0.113.66", "20/h burst 5"),
            ("2001:db8::17", "2001:db8::/64", "100/min burst 30"),
        ],
    ),
    ("user", "1", "30/min burst 10", [("-", "-", "7/min burst 3"), ("jobs", "jobs", "5/s")]),
    (
        "ip+path",
        "1",
        "2/h",
        [
            ("203.0.113.66,/login", "203.0.113.66 + /login", "50/min burst 20"),
            ("2001:db8::17,/export/part-07", "2001:db8::/64 + /export/part-07", "1/h"),
        ],
    ),
    (
        "ip",
        "bytes",
        "100000/min burst 300000",
        [
            ("198.51.100.7", "198.51.100.7", "1000/s burst 30000"),
            ("2001:db8::17", "2001:db8::/64", "1000000/h burst 5000000"),
        ],
    ),
];

#[test]
fn a_key_fares_as_if_its_own_quota_were_the_limit_and_others_as_if_it_had_none() {
    for (number, (key, cost, limit, own)) in CASES.into_iter().enumerate() {
        for algorithm in Algorithm::ALL {
            for store in STORES {
                let name = algorithm.to_string();
                let limit_for = |limit| limit_for(algorithm, limit);
                let replay = |limit: &str, more: &[&str]| {
                    let args = [LOG, "--algorithm", &name, "--key", key, "--cost", cost, "--limit", limit];
                    decisions(&[&args, store, more].concat(), b"")
                };
                let mut records = String::new();
                for (record, _, limit) in own {
                    writeln!(records, "{record},{}", limit_for(limit)).expect("a string can be written");
                }
                let file = quotas(&format!("fare_{number}_{name}_{}", store.len()), records);
                let limit = limit_for(limit);
                let without = replay(&limit, &[]);
                let found = replay(&limit, &["--quotas", &file]);
                let alone = own.map(|(_, shown, limit)| (shown, replay(&limit_for(limit), &[])));

                assert_eq!(found.len(), without.len());
                let mut differ = HashMap::new();
                for (line, row) in found.iter().enumerate() {
                    let expected = match alone.iter().find(|(shown, _)| *shown == row.key) {
                        Some((_, rows)) => &rows[line],
                        None => &without[line],
                    };
                    assert_eq!(row, expected, "{name} {store:?}");
                    *differ.entry(&*row.key).or_insert(0) += usize::from(*row != without[line]);
                }
                for (_, shown, _) in own {
                    assert!(differ[shown] > 0, "{name}: a quota that changes nothing tests nothing: {shown}");
                }
            }
        }
    }
}

/// Returns the lines of our log with this address.
fn lines_of(ip: &str) -> String {
    let lines: Vec<String> = log().lines().filter(|line| line.starts_with(ip)).map(str::to_owned).collect();
    assert!(!lines.is_empty());
    lines.join("\n")
}

/// Returns a report's results.
fn results(output: &Output) -> Vec<Value> {
    json(output)["results"].as_array().expect("there are results").clone()
}

/// If a log contains a single key, all figures are based on that key's quota. These include the
/// compliant client's figures and, in a comparison, the figures of windows, which run without the
/// burst.
#[test]
fn the_compliant_client_and_algorithms_side_by_side_go_by_the_same_quotas() {
    let ip = "203.0.113.66";
    let log = lines_of(ip);
    for limit in ["10/min burst 3", "40/h"] {
        let file = quotas("compliant", format!("{ip},{limit}\n"));
        for store in STORES {
            let replay =
                |args: &[&str]| replay_stdin(&[args, store, &["--format", "json"]].concat(), log.as_bytes());
            let own = ["--limit", "1000/h", "--quotas", &file];
            let expected = results(&replay(&["--limit", limit, "--compare"]));
            assert_eq!(results(&replay(&[&own[..], &["--compare"]].concat())), expected, "{limit} {store:?}");
            assert_eq!(expected.len(), Algorithm::ALL.len());
            for result in &expected {
                assert!(result["compliant"]["denied"].as_u64() > Some(0), "{result}");
            }
            let buckets = Algorithm::ALL.iter().zip(&expected).filter(|(algorithm, _)| algorithm.has_burst());
            for (algorithm, expected) in buckets {
                let found = results(&replay(&[&own[..], &["--algorithm", &algorithm.to_string()]].concat()));
                assert_eq!(found, std::slice::from_ref(expected), "{limit} {store:?}");
            }
        }
    }
}

#[test]
fn the_report_counts_the_keys_of_the_file_and_those_that_the_log_has() {
    let file = quotas("counts", "203.0.113.66,10/min burst 3\n192.0.2.250,5/s\n2001:db8::17,5/s\n");
    let args = [LOG, "--limit", "30/min", "--quotas", &file];
    let report = text_of(&args, "");
    let words = report.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(words.contains(&format!("Own quotas ({file}): 3 keys, 2 seen in the log")), "{report}");
    let report = json_of(&args[..], "");
    assert_eq!(report["key_quotas"], serde_json::json!({ "file": file, "keys": 3, "seen": 2 }));

    // Without the option, the report does not mention quotas of keys.
    for more in [&[][..], &["--compare"], &["--format", "json"], &["--compare", "--format", "json"]] {
        let report = text_of(&[&[LOG, "--limit", "30/min"], more].concat(), "");
        assert!(!report.contains("uotas"), "{report}");
    }
}

#[test]
fn an_ipv6_address_in_the_file_means_its_network() {
    let log: String =
        [1, 2, 3, 4].map(|n| format!("{{\"time\":1,\"ip\":\"[2001:db8::{n}]:80\"}}\n")).concat();
    let allowed = |name: &str, records: &str, prefix: &str| {
        let file = quotas(name, records);
        let args = ["--limit", "1/d", "--quotas", &file, "--ipv6-prefix", prefix];
        let rows = decisions(&args, log.as_bytes());
        (rows.iter().filter(|row| row.allowed).count(), rows[0].key.clone())
    };
    let row = "2001:DB8::17,3/d\n";
    assert_eq!(allowed("network", row, "64"), (3, "2001:db8::/64".to_owned()));
    assert_eq!(allowed("network", row, "48"), (3, "2001:db8::/48".to_owned()));
    // Each address is a separate client, and the file's record contains a fifth address.
    assert_eq!(allowed("network", row, "128"), (4, "2001:db8::1".to_owned()));
    let file = quotas("network_twice", "2001:db8::17,3/d\n192.0.2.1,3/d\n2001:db8::18,5/d\n");
    let message = refusal_of(&[LOG, "--limit", "1/d", "--quotas", &file], "");
    assert!(message.contains(":3: the key 2001:db8::/64 already has a quota from line 1"), "{message}");
    let file = quotas("mapped_twice", "192.0.2.1,3/d\n::ffff:192.0.2.1,5/d\n");
    let message = refusal_of(&[LOG, "--limit", "1/d", "--quotas", &file], "");
    assert!(message.contains(":2: the key 192.0.2.1 already has a quota from line 1"), "{message}");
}

/// Returns for each key whether `--quotas` admits a second request, after the first one has
/// exhausted the common limit.
#[track_caller]
fn second_requests(file: &str, keys: &[&[u8]]) -> Vec<bool> {
    let mut log = b"time,who\n".to_vec();
    for second in [1, 2] {
        for key in keys {
            log.extend(format!("{second},\"").bytes());
            log.extend(*key);
            log.extend(b"\"\n");
        }
    }
    let rows = decided(&["--limit", "1/d", "--key", "who", "--quotas", file], &log);
    rows[keys.len()..].iter().map(|row| row.allowed).collect()
}

#[test]
fn comments_blank_lines_quoted_values_and_missing_ones_are_understood() {
    let file = quotas(
        "written",
        b"\xef\xbb\xbf# who pays\n\n-,2/d\r\n  \t\n\"#x\",2/d\n\"a,b\", 2 / d burst 2 \n#c,2/d\n\"\",2/d\nq\"q,2/d\n\
          \xff\xfe,2/d\nlast,2/d",
    );
    let keys: [(&[u8], bool); 9] = [
        (b"-", true),
        (b"#x", true),
        (b"a,b", true),
        (b"#c", false),
        (b"", true),
        (b"q\"\"q", true),
        (b"\xff\xfe", true),
        (b"last", true),
        (b"other", false),
    ];
    assert_eq!(second_requests(&file, &keys.map(|(key, _)| key)), keys.map(|(_, allowed)| allowed));
    // In a JSON record, an absent field is a missing value, like `null` and `-`.
    let file = quotas("missing", "-,2/d\n");
    let log = "{\"time\":1}\n{\"time\":2,\"who\":null}\n{\"time\":3,\"who\":\"-\"}\n";
    let args = ["--limit", "1/d", "--key", "who", "--quotas", &file];
    let found = decisions(&args, log.as_bytes());
    assert_eq!(found.iter().filter(|row| row.allowed).count(), 2, "{found:?}");
}

#[test]
fn quotas_come_from_standard_input_if_the_log_does_not() {
    let file = quotas("stdin", "203.0.113.66,1/h\n");
    let args = [LOG, "--limit", "30/min"];
    let from_file = decisions(&[&args[..], &["--quotas", &file]].concat(), b"");
    let from_stdin = decisions(&[&args[..], &["--quotas", "-"]].concat(), b"203.0.113.66,1/h\n");
    assert_eq!(from_stdin, from_file);
    assert_ne!(from_file, decisions(&args, b""));
    for log in [&[][..], &["-"], &[LOG, "-"]] {
        let message = refusal_of(&[log, &["--limit", "30/min", "--quotas", "-"]].concat(), "");
        assert!(message.contains("--quotas -") && message.contains("only once"), "{message}");
    }
}

#[test]
fn what_is_wrong_in_a_file_of_quotas_is_named_with_its_line() {
    let ip: &[&str] = &["--key", "ip"];
    let ip_path: &[&str] = &["--key", "ip+path"];
    let fixed: &[&str] = &["--algorithm", "fixed-window"];
    let long = format!("a,{}/s\n", "1".repeat(5000));
    let long_line = format!("a,1/s\n{}\n", "x".repeat(2_000_000));
    let long_key = format!("{0},1/s\n{0},1/s\n", "k".repeat(5000));
    // The arguments, the contents of the file, the line number in the message, and parts of the
    // message.
    type Row<'r> = (&'r [&'r str], &'r [u8], u32, &'r [&'r str]);
    let table: &[Row<'_>] = &[
        (ip, b"a,1/s\nb\n", 2, &["it has 1 value;", "expected 2 values", "--key ip)"]),
        (ip, b"a,b,1/s\n", 1, &["it has 3 values;", "expected 2 values"]),
        (ip_path, b"# c\n\na,1/s\n", 3, &["it has 2 values;", "expected 3 values", "--key ip+path)"]),
        (ip_path, b"a,b,c,1/s\n", 1, &["it has 4 values;", "expected 3 values"]),
        (ip, b"a,1/s\n\"b,1/s\n", 2, &["a quoted field does not end on its line;", "expected 2 values"]),
        (ip, long_line.as_bytes(), 2, &["longer than 1048576 bytes;", "expected 2 values"]),
        (
            ip,
            b"a,100/fortnight\n",
            1,
            &[
                "invalid quota \"100/fortnight\": at character 5",
                "allowed: ns, us, ms",
                "\n  100/fortnight\n      ^\n",
            ],
        ),
        (ip, b"a,\n", 1, &["invalid quota \"\"", "allowed: a whole number", "\n  \n  ^\n"]),
        (ip, b"a,1\t/x\n", 1, &["at character 4, unknown unit \"x\"", "\n  1\\t/x\n      ^\n"]),
        (ip, b"a,1/s\x1b[2J\n", 1, &["\\u{1b}", "\n  1/s\\u{1b}[2J\n     ^\n"]),
        (
            ip,
            b"\xff,1/s\nb,10/\xffs\n",
            2,
            &["invalid limit `10/\\xffs`, which is not UTF-8", "expected a quota such as 100/s"],
        ),
        (
            ip,
            long.as_bytes(),
            1,
            &["invalid limit `1111", "1…`, which is too long", "expected a quota such as"],
        ),
        (ip, b"a,1/s\nb,0/s\nc,0/s\n", 2, &["0 tokens would deny", "allowed: 1 and more"]),
        (
            fixed,
            b"a,1/s\n\nb,9/s burst 2\n",
            3,
            &["burst 2 has no meaning for a fixed-window", "allowed: no burst"],
        ),
        (
            ip,
            b"a,1/s\nb,1/s\n\n\"a\",2/s\n",
            4,
            &["the key a already has a quota from line 1:", "expected one for each key"],
        ),
        (ip_path, b"a,-,1/s\n-,a,1/s\na,-,1/s\n", 3, &["the key a + - already has a quota from line 1:"]),
        (ip, b"\x1b,1/s\n\x1b,1/s\n", 2, &["the key \\u{1b} already has"]),
        (ip, long_key.as_bytes(), 2, &["the key kkkk", "k… already has a quota from line 1"]),
    ];
    for store in STORES {
        for &(args, records, line, parts) in table {
            let file = quotas("wrong", records);
            let args = [&[LOG, "--limit", "30/min", "--quotas", &file], args, store].concat();
            let message = refusal_of(&args, "");
            assert!(message.starts_with(&format!("tollgate: --quotas {file}:{line}: ")), "{message}");
            for part in parts {
                assert!(message.contains(part), "{part:?} is missing: {message}");
            }
            assert!(!message.contains('\x1b') && message.chars().count() < 1000, "{message:?}");
        }
    }
    let missing = refusal_of(&[LOG, "--limit", "30/min", "--quotas", "no such file"], "");
    assert!(missing.starts_with("tollgate: cannot read no such file: "), "{missing}");
    let directory = refusal_of(&[LOG, "--limit", "30/min", "--quotas", "tests"], "");
    assert!(directory.starts_with("tollgate: cannot read tests: "), "{directory}");
    let no_limit = refusal_of_arguments(&replay(&[LOG, "--quotas", "no such file"]));
    assert!(no_limit.contains("--limit <QUOTA>"), "{no_limit}");
}

/// Returns the message for invalid arguments. It does not start with the program's name, because
/// clap prints it.
#[track_caller]
fn refusal_of_arguments(output: &Output) -> String {
    assert_eq!(output.status.code(), Some(2));
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn an_algorithm_that_refuses_a_key_s_quota_is_left_out_of_the_comparison() {
    // Only the sliding window refuses this quota, because a window of a second is limited to 32,767
    // tokens.
    let file = quotas("one_refuses", "a,1/s\nb,40000/s\n");
    let report = json_of(&[LOG, "--limit", "30/min", "--quotas", &file, "--compare"], "");
    for result in report["results"].as_array().expect("there are results") {
        let refused = result["refused"].as_str();
        assert_eq!(refused.is_some(), result["algorithm"] == "sliding-window", "{result}");
        let place = format!("--quotas {file}:2: 40000 tokens do not fit");
        assert!(refused.is_none_or(|refused| refused.starts_with(&place)), "{refused:?}");
        assert_eq!(result["passed"].is_null(), refused.is_some());
    }
    let file = quotas("all_refuse", "a,0/s\n");
    let message = refusal_of(&[LOG, "--limit", "30/min", "--quotas", &file, "--compare"], "");
    assert!(message.contains(&format!("no algorithm accepts 30/min and the quotas of {file}:")), "{message}");
    assert_eq!(message.matches(&format!(": --quotas {file}:1: ")).count(), Algorithm::ALL.len(), "{message}");
}

/// The file may also have another name, or be standard input or standard output.
#[test]
fn decisions_never_overwrite_the_log_or_the_quotas() {
    let quotas = quotas("own_inputs", "203.0.113.66,1/h\n");
    let copy = Path::new(&quotas).with_file_name("access.log");
    fs::copy(LOG, &copy).expect("the target directory can be written");
    let copy = copy.to_str().expect("a plain name");
    let limit = ["--limit", "30/min"];
    for (file, by_name, by_stdin, what) in [
        (copy, &[copy][..], &[][..], "the log it replays"),
        (&*quotas, &[LOG, "--quotas", &quotas], &[LOG, "--quotas", "-"], "the quotas of --quotas"),
    ] {
        let before = fs::read_to_string(file).expect("it was written");
        let link = format!("{file}.link");
        let _ = fs::remove_file(&link);
        fs::hard_link(file, &link).expect("the target directory has links");
        for target in [file, &link] {
            let run = |args: &[&str], to: &str| command(&[args, &limit, &["--decisions", to]].concat());
            let open = |path: &str| {
                fs::OpenOptions::new().read(true).append(true).open(path).expect("it was written")
            };
            let by_stdout = run(by_name, "-").stdout(open(target)).output();
            for output in
                [run(by_name, target).output(), run(by_stdin, target).stdin(open(file)).output(), by_stdout]
            {
                let message = refusal(&output.expect("the program was built"));
                assert!(
                    message.contains("--decisions would overwrite") && message.contains(what),
                    "{message}"
                );
                assert_eq!(fs::read_to_string(file).expect("it is there"), before, "it is as it was");
            }
        }
        fs::remove_file(link).expect("it was created");
    }
    let names = fs::read_dir(Path::new(&quotas).parent().expect("a directory")).expect("it is there");
    assert_eq!(names.count(), 2, "nothing else was left behind");
}

#[test]
fn a_hundred_thousand_keys_have_quotas_of_their_own() {
    const KEYS: u64 = 100_000;
    let limit = |key: u64| key % 3 + 1;
    let records: String = (0..KEYS).map(|key| format!("k{key},{}/d\n", limit(key))).collect();
    let file = quotas("many", records);
    // The log has four requests for every hundredth key. Half of the keys in the log have their own
    // quota, and all requests of the other keys pass.
    let keys = || (0..2 * KEYS).step_by(100);
    let log: String =
        (1..=4).flat_map(|second| keys().map(move |key| format!("{second},k{key}\n"))).collect();
    let log = format!("time,who\n{log}");
    let allowed: u64 = keys().map(|key| if key < KEYS { limit(key) } else { 4 }).sum();
    for store in STORES {
        let args = ["--limit", "4/d", "--key", "who", "--quotas", &file, "--format", "json"];
        let report = json(&replay_stdin(&[&args[..], store].concat(), log.as_bytes()));
        assert_eq!(report["results"][0]["passed"], allowed, "{store:?}");
        assert_eq!(report["key_quotas"]["keys"], KEYS);
        assert_eq!(report["key_quotas"]["seen"], KEYS / 100);
    }
}

/// Quotas do not occupy places, so a limiter with few places accepts any number of quotas.
#[test]
fn keys_with_quotas_of_their_own_count_as_keys_only_when_they_come() {
    let records: String = (0..1000).map(|key| format!("k{key},2/d\n")).collect();
    let file = quotas("few_places", records);
    let log = "time,who\n1,k998\n2,k999\n3,k998\n4,k3\n";
    for store in STORES {
        let args = ["--limit", "1/d", "--key", "who", "--quotas", &file, "--max-keys", "2"];
        let found = decisions(&[&args[..], store].concat(), log.as_bytes());
        let allowed: Vec<bool> = found.iter().map(|row| row.allowed).collect();
        assert_eq!(allowed, [true, true, true, false], "{store:?}");
    }
}

/// The example in docs/replay.md is a valid file of quotas.
#[test]
fn the_file_in_the_page_is_one_of_quotas() {
    let page = fs::read_to_string("../../docs/replay.md").expect("it is there");
    let block = page.split("```csv\n").nth(1).expect("it has an example");
    let records = block.split("```").next().unwrap_or_default();
    let file = quotas("page", records);
    let report = json_of(&[LOG, "--limit", "30/min burst 10", "--quotas", &file], "");
    assert_eq!(report["key_quotas"]["keys"], 2);
    assert_eq!(report["key_quotas"]["seen"], 2);
}
