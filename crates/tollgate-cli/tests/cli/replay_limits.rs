//! Tests `tollgate replay` with named limits: the decisions, and the logs and limits that the
//! program refuses.

use crate::program::{LOG, cri, decided, json_of, log, refusal_of, text_of};
use tollgate_testing::paths::PATHS;

/// Returns the name of the limit that refused each line of a log, or an empty string for a line
/// that passed.
#[track_caller]
fn refused_by(args: &[&str], log: &str) -> Vec<String> {
    decided(args, log.as_bytes()).into_iter().map(|row| row.refused_by).collect()
}

#[test]
fn a_request_passes_only_if_all_limits_admit_it() {
    let log = "time,ip,method,path\n1,192.0.2.1,POST,/login\n1,192.0.2.1,POST,//login\n1,192.0.2.1,GET,/a\n\
        1,192.0.2.1,GET,/a\n1,192.0.2.9,GET,/a\n";
    let limits = ["--limit", "logins=1/h by ip for POST /login", "--limit", "all=2/h by ip"];
    assert_eq!(refused_by(&limits, log), ["", "logins", "", "all", ""]);
    let shadow = [&limits[..], &["--shadow", "logins", "--except", "from 192.0.2.9"]].concat();
    assert_eq!(refused_by(&shadow, log), ["", "", "all", "all", ""]);
}

/// The times of a log may count from its start.
#[test]
fn requests_at_time_zero_are_counted() {
    let log = "time,ip\n0,192.0.2.1\n0,192.0.2.1\n0,192.0.2.1\n0.5,192.0.2.1\n";
    assert_eq!(refused_by(&["--limit", "x=2/min by ip"], log), ["", "", "x", "x"]);
}

/// The third request starts a pause of five minutes, which the fourth one does not extend.
#[test]
fn a_penalty_refuses_a_key_for_its_time() {
    let log = "time,ip\n0,192.0.2.1\n1,192.0.2.1\n2,192.0.2.1\n301,192.0.2.1\n302,192.0.2.1\n302,192.0.2.9\n";
    for exact in [&[][..], &["--exact-keys"]] {
        let args = [&["--limit", "x=2/min by ip then pause 5min"], exact].concat();
        let rows = decided(&args, log.as_bytes());
        let rows = rows.iter().map(|row| (&*row.outcome, row.retry_after_ns.unwrap() / 1_000_000_000));
        assert_eq!(
            rows.collect::<Vec<_>>(),
            [("", 0), ("", 0), ("denied", 300), ("paused", 1), ("", 0), ("", 0)]
        );
        let report = json_of(&args[..], &log);
        let counts = &report["limits"][0]["classes"][0];
        assert_eq!((&counts["denied"], &counts["paused"]), (&1.into(), &1.into()), "{counts}");
        // A client that waits as it is told is denied once.
        let compliant = &report["results"][0]["compliant"];
        assert_eq!((&compliant["denied"], &compliant["withheld"]), (&1.into(), &1.into()), "{compliant}");
        let shown = text_of(&args, &log);
        assert!(shown.contains("1 denied, 1 refused during a penalty"), "{shown}");
    }
}

#[test]
fn places_in_flight_are_held_until_arrival_plus_duration() {
    let log = "time,key,took\n1,a,2000\n2,a,1\n2,b,1\n3,a,1\n3.0005,a,1\n";
    let args = ["--limit", "jobs=1 at once by header x-key", "--fields", "header:x-key=key,duration=took"];
    let args = [&args[..], &["--duration-unit", "ms"]].concat();
    assert_eq!(refused_by(&args, log), ["", "jobs", "", "", "jobs"]);
}

#[test]
fn a_query_parameter_is_found_where_the_log_has_the_whole_target() {
    let log = "time,target\n1,/a?key=x\n1,/b?key=x\n1,/a?key=y\n1,/a\n";
    let args = ["--limit", "a=1/h by query key else allow"];
    assert_eq!(refused_by(&[&args[..], &["--fields", "uri=target"]].concat(), log), ["", "a", "", ""]);
    let message = refusal_of(&args, &log);
    assert!(message.contains("unknown field 'uri'"), "{message}");
}

#[test]
fn a_path_that_is_too_long_for_the_proxy_is_no_request() {
    let (long, query) = ("a".repeat(70_000), "<".repeat(70_000));
    let args = ["--limit", "a=1/h by path", "--except", "/"];
    let log = format!("time,target\n1,/{long}\n1,/?{query}\n1,/b?{query}\n1,/b\n");
    let report = json_of(&[&args[..], &["--fields", "uri=target"]].concat(), &log);
    assert_eq!((&report["log"]["no_requests"], &report["results"][0]["denied"]), (&1.into(), &1.into()));
    let line =
        r#"{"time_ns":1,"duration_ns":1,"ip":null,"method":"GET","host":null,"refused_by":null,"limits":[]"#;
    let log = format!("{line},\"path\":\"/\"}}\n{line},\"path\":\"/{long}\"}}\n");
    assert_eq!(json_of(&args, &log)["log"]["no_requests"], 1);
}

#[test]
fn a_path_that_is_mapped_is_the_target_in_a_known_format_too() {
    let log = "{\"start_time\":\"2024-01-01T00:00:00Z\",\"response_code\":200,\"method\":\"GET\",\
        \"downstream_remote_address\":\"192.0.2.1:1\",\"path\":\"/rewritten\",\"orig\":\"/login?a\"}\n"
        .repeat(2);
    for (names, refused) in [("path=orig", "a"), ("uri=orig", "a"), ("path=orig,uri=path", "")] {
        let args = ["--limit", "a=1/h by ip for /login", "--fields", names];
        assert_eq!(refused_by(&args, &log), ["", refused], "{names}");
    }
}

#[test]
fn a_header_that_occurs_twice_is_ambiguous_as_in_the_proxy() {
    let line = |headers: &str| {
        format!(
            "{{\"ts\":1,\"request\":{{\"remote_ip\":\"192.0.2.1\",\"method\":\"GET\",\"uri\":\"/\",\"headers\":{{\
             {headers}}}}},\"size\":0}}\n"
        )
    };
    for header in ["X-Api-Key", "User-Agent", "Referer", "X-Forwarded-For"] {
        let name = header.to_lowercase();
        let log: String =
            [r#"["a"]"#, r#"["a","b"]"#].map(|list| line(&format!("\"{header}\":{list}"))).concat();
        assert_eq!(refused_by(&["--limit", &format!("a=9/h by header {name}")], &log), ["", "a"], "{name}");
        let twice = log.repeat(2);
        for (otherwise, refused) in [("allow", ["", "a", "a", "a"]), ("share", ["", "", "a", "a"])] {
            let limit = format!("a=1/h by header {name} else {otherwise}");
            assert_eq!(refused_by(&["--limit", &limit], &twice), refused, "{limit}");
        }
        let scope = format!("a=1/h by ip for header {name}");
        assert_eq!(refused_by(&["--limit", &scope], &log), ["", "a"], "{name}");
    }
    let log: String =
        [r#"["a","b"]"#, r#"["a; b"]"#].map(|list| line(&format!("\"Cookie\":{list}"))).concat();
    assert_eq!(refused_by(&["--limit", "a=1/h by header cookie"], &log), ["", "a"]);
}

#[test]
fn a_method_may_be_any_token_of_an_http_request() {
    let line = |request: &&str| format!("192.0.2.1 - - [17/May/2015:10:05:03 +0000] \"{request}\" 200 1\n");
    let count = |requests: &[&str]| {
        let log: String = requests.iter().map(line).collect();
        let report = json_of(&["--limit", "a=1/h by method"], &log);
        ["passed", "denied"]
            .map(|name| report["results"][0][name].as_u64())
            .into_iter()
            .flatten()
            .collect::<Vec<_>>()
    };
    assert_eq!(count(&["M1 / HTTP/1.1", "GET_X / HTTP/1.1", "M1 / HTTP/1.1", "GET /"]), [3, 1]);
    let no_requests = ["SSH-2.0-Go x", "\\x16\\x03 x HTTP/1.1", "a:b / HTTP/1.1", "- - HTTP/1.1"];
    assert_eq!(count(&[&no_requests[..], &["GET /"]].concat()), [1, 0]);
}

#[test]
fn a_forwarded_address_that_is_asked_for_as_a_header_counts_by_its_bytes() {
    let line = |forwarded: &str| {
        let request = "[17/May/2015:10:05:03 +0000] \"GET / HTTP/1.1\" 200 1 \"r\" \"-\"";
        format!("192.0.2.1 - - {request} \"{forwarded}\"\n")
    };
    let log = ["192.0.2.9", "::ffff:192.0.2.9", "a, 192.0.2.9", "b, 192.0.2.9", "a, 192.0.2.9"].map(line);
    let args = ["--limit", "a=1/h by header x-forwarded-for", "--trust-hops", "1"];
    assert_eq!(refused_by(&args, &log.concat()), ["", "", "", "", "a"]);
    let w3c = "#Fields: date time c-ip cs-method cs-uri-stem cs(X-Forwarded-For) cs(X-Key)\n\
        2015-05-17 10:05:03 192.0.2.1 GET / 192.0.2.9 k\n\
        2015-05-17 10:05:03 192.0.2.1 GET / ::ffff:192.0.2.9 k\n";
    assert_eq!(refused_by(&args, w3c), ["", ""]);
    let named = ["--limit", "a=1/h by header x-key", "--fields", "header:x-key=cs(X-Key)"];
    assert_eq!(refused_by(&named, w3c), ["", "a"]);
}

#[test]
fn a_request_without_a_key_passes_a_limit_only_if_it_passes() {
    let log = "time,ip,key\n1,192.0.2.1,-\n1,192.0.2.1,-\n1,192.0.2.1,-\n";
    let args = ["--limit", "a=1/h by header x-key else allow", "--limit", "b=1/h by ip"];
    let args = [&args[..], &["--fields", "header:x-key=key"]].concat();
    let report = json_of(&args, log);
    let counts = &report["limits"][0]["classes"][0];
    assert_eq!((&counts["passed_without_key"], &counts["refused_by_another"]), (&1.into(), &2.into()));
}

#[test]
fn a_line_of_no_request_parses() {
    let log = "- - - [17/May/2015:10:05:03 +0000] \"-\" 400 0\nnonsense\n";
    let report = json_of(&["--limit", "a=1/h by ip"], &log);
    assert_eq!((&report["log"]["no_requests"], &report["log"]["unparsable"]), (&1.into(), &1.into()));
}

#[test]
fn a_log_that_lacks_what_a_limit_needs_is_refused_for_that_limit() {
    for (limit, needs) in [
        ("per-key=1/s by header x-api-key or ip", "--limit 'per-key' needs the header `x-api-key`"),
        // The log has a field with this name, but the field does not contain the header.
        ("per-key=1/s by header user", "--limit 'per-key' needs the header `user`"),
        ("jobs=8 at once by ip", "--limit 'jobs' needs the duration of each request"),
        ("vhost=1/s by ip for host a.example", "--limit 'vhost' needs the host"),
    ] {
        let message = refusal_of(&[LOG, "--limit", "a=1/s by ip", "--limit", limit], "");
        assert!(message.contains(needs) && message.contains("which the log does not have: "), "{message}");
    }
    let referers = json_of(&[LOG, "--limit", "r=1/s by header referer else allow"], "");
    assert!(referers["results"][0]["denied"].as_u64() > Some(0), "{referers}");
    let csv = "time,ip,x-key\n1,192.0.2.1,a\n";
    let message = refusal_of(&["--limit", "a=1/s by header x-key"], &csv);
    assert!(message.contains("as in --fields header:x-key=FIELD"), "{message}");
}

#[test]
fn without_the_headers_each_options_request_is_a_preflight() {
    let log = "time,ip,method,origin,asked\n1,192.0.2.1,GET,-,-\n1,192.0.2.1,OPTIONS,a,GET\n\
        1,192.0.2.1,OPTIONS,-,-\n1,192.0.2.1,GET,-,-\n";
    let args = ["--limit", "a=1/h by ip except preflight"];
    assert_eq!(refused_by(&args, log), ["", "", "", "a"]);
    let all = ["--limit", "a=1/h by ip", "--except", "preflight"];
    assert_eq!(refused_by(&all, log), ["", "", "", "a"]);
    let only = ["--limit", "a=1/h by ip for preflight"];
    assert_eq!(refused_by(&only, log), ["", "", "a", ""]);
    let headers = "header:origin=origin,header:access-control-request-method=asked";
    assert_eq!(refused_by(&[&args[..], &["--fields", headers]].concat(), log), ["", "", "a", "a"]);
    let note = "each OPTIONS request counts as a preflight";
    for args in [args, [all[0], all[1]]] {
        let is_noted = args[1].contains("preflight");
        let report = text_of(&args, &log).replace("\n  ", " ");
        assert_eq!(report.contains(note), is_noted, "{report}");
    }
    let report = json_of(&[LOG, "--limit", args[1]], "");
    assert!(report["log"]["notes"].to_string().contains(note), "{report}");
    // A limit that uses the header itself still needs it.
    let mixed = ["--limit", "a=1/h by header origin else allow except preflight"];
    let message = refusal_of(&[&[LOG][..], &mixed].concat(), "");
    assert!(message.contains("--limit 'a' needs the header `origin`"), "{message}");
}

#[test]
fn a_quota_without_a_name_is_a_limit_like_the_others() {
    let log = "time,ip,method,path,referer\n1,192.0.2.1,POST,/login,-\n1,192.0.2.1,POST,/login,-\n\
        1,192.0.2.1,GET,/a,-\n1,192.0.2.1,GET,/a,-\n1,-,GET,/b,-\n1,-,GET,/c,-\n1,-,GET,/d,-\n";
    let refused = |args: &[&str]| refused_by(args, log);
    let mixed = ["--limit", "2/h", "--limit", "logins=1/h by ip for POST /login"];
    assert_eq!(refused(&mixed), ["", "logins", "", "2/h", "", "", "2/h"]);
    assert_eq!(refused(&[&mixed[..], &["--key", "ip+path"]].concat()), ["", "logins", "", "", "", "", ""]);
    assert_eq!(refused(&["--limit", "3/h", "--limit", "1/s"]), ["", "1/s", "1/s", "1/s", "", "1/s", "1/s"]);
    assert_eq!(refused(&["--limit", "1/h", "--except", "GET"]), ["", "1/h", "", "", "", "", ""]);
    assert_eq!(refused(&["--limit", "1/h", "--limit", "9/s", "--shadow", "1/h"]), [""; 7]);
    let both = refused(&["--limit", "1/h and 9/d", "--key", "method"]);
    assert_eq!(
        both,
        [
            "",
            "1/h and 9/d-per-h",
            "",
            "1/h and 9/d-per-h",
            "1/h and 9/d-per-h",
            "1/h and 9/d-per-h",
            "1/h and 9/d-per-h"
        ]
    );
    let held = "time,ip,duration\n1,a,5\n2,a,1\n7,a,1\n".replace(",a,", ",192.0.2.1,");
    assert_eq!(refused_by(&["--limit", "1 at once"], &held), ["", "1 at once", ""]);
    for other in [["--against", "a=1/h by ip"], ["--against", "1/h"]] {
        let args = [&mixed[..], &other].concat();
        let report = json_of(&args, log);
        assert_eq!(report["changes"]["against"], other[1], "{report}");
    }
}

/// Returns the lines of our log that describe requests. A line without a method describes none, and
/// a limit with a name does not count it.
fn lines_of_requests() -> String {
    let log = log();
    let lines: Vec<&str> = log.split_inclusive('\n').collect();
    let rows = decided(&["--limit", "a=1/s by method"], log.as_bytes());
    rows.iter().map(|row| lines[row.line - 1]).collect()
}

/// Replays a log through a quota, and through the same quota with a name. Compares the decisions
/// and the reports, and returns the number of refused requests.
#[track_caller]
fn same_with_a_name(log: &str, [quota, key, by]: [&str; 3], options: &[&str]) -> u64 {
    let named = format!("x={quota} by {by}");
    let results = [&["--limit", quota, "--key", key][..], &["--limit", &named]].map(|limit| {
        let args = [limit, options].concat();
        // The names of the limits differ.
        let rows = decided(&args, log.as_bytes()).into_iter();
        let rows: Vec<_> = rows.map(|row| (row.line, row.allowed, row.retry_after_ns, row.outcome)).collect();
        let mut report = json_of(&args[..], &log);
        report["log"]["missing_key_fields"].take();
        let limit = ["keys", "keys_refused", "top_refused"].map(|part| report["limits"][0][part].take());
        (rows, report["log"].take(), report["results"].take(), report["timeline"].take(), limit)
    });
    let [alone, named] = &results;
    assert!(alone == named, "{options:?} {quota} per {key}: {:?} {:?}", alone.2, named.2);
    alone.0.iter().filter(|row| !row.1).count() as u64
}

#[test]
fn a_name_changes_neither_decisions_nor_counts() {
    let requests = lines_of_requests();
    let addresses =
        ["::ffff:192.0.2.1", "192.0.2.1:99", "2001:db8::1", "2001:DB8::2", "2001:db8:0:1::1", "-"];
    let spelled: String =
        (0..60).map(|n| format!("{{\"time\":{n},\"ip\":\"{}\"}}\n", addresses[n % 6])).collect();
    let by_ip = "ip else share";
    let mut refused = 0;
    for quota in ["30/min burst 10", "3/10s", "14/min", "20/h"] {
        refused += same_with_a_name(&requests, [quota, "ip", by_ip], &[]);
        refused += same_with_a_name(&requests, [quota, "ip+path", "ip+path"], &["--sort"]);
        refused += same_with_a_name(&spelled, [quota, "ip", by_ip], &["--exact-keys"]);
    }
    for (key, by) in [("ip", by_ip), ("ip+path", "ip+path")] {
        let options = ["--sort", "--cost", "bytes"];
        refused += same_with_a_name(&requests, ["500000/min", key, by], &options);
    }
    for algorithm in tollgate::Algorithm::ALL {
        let options = ["--algorithm", &algorithm.to_string()];
        refused += same_with_a_name(&requests, ["14/min", "ip", by_ip], &options);
    }
    let paths: String = PATHS
        .iter()
        .map(|(target, _)| {
            let target = target.replace('\\', "\\\\").replace('"', "\\\"");
            format!("192.0.2.1 - - [17/May/2015:10:05:03 +0000] \"GET {target} HTTP/1.1\" 200 1\n")
        })
        .collect();
    refused += same_with_a_name(&paths, ["1/h", "path", "path"], &[]);
    assert!(refused > 1_000, "{refused} refusals are few");
}

#[test]
fn a_quota_beside_another_limit_decides_as_alone() {
    let log = lines_of_requests();
    for key in ["ip", "path", "ip+path+referer", "method"] {
        for quota in ["3/10s", "20/h"] {
            let alone = ["--limit", quota, "--key", key];
            let beside = [&alone[..], &["--limit", "never=1000000/s by ip else share"]].concat();
            let same = decided(&alone, log.as_bytes()) == decided(&beside, log.as_bytes());
            assert!(same, "{quota} per {key}");
        }
    }
}

#[test]
fn a_split_line_is_joined_for_limits_of_both_kinds() {
    let line = |ip: &str, agent: &str| {
        format!("{ip} - - [17/May/2015:10:05:03 +0000] \"GET /a HTTP/1.1\" 200 1 \"-\" \"{agent}\"")
    };
    // The third line has an address that limits with names refuse.
    let agent = "x".repeat(40_000);
    let log = [
        line("192.0.2.1", "y"),
        line("192.0.2.1", &agent),
        line("example.org", &agent),
        line("192.0.2.1", &agent),
    ];
    let log: String = log.iter().map(|line| cri(line)).collect();
    let args = ["--limit", "1/h", "--key", "user-agent", "--limit", "b=9/h by ip"];
    assert_eq!(refused_by(&args, &log), ["", "", "1/h"]);
}

#[test]
fn a_quota_beside_limits_with_names_has_any_fields_and_quotas_of_single_keys() {
    let log = "time,ip,method,path,user\n1,192.0.2.1,GET,/a,x\n1,192.0.2.2,GET,/b,x\n1,192.0.2.3,GET,/c,y\n\
        1,192.0.2.3,GET,/c,y\n1,192.0.2.1,POST,/login,z\n1,192.0.2.1,POST,/login,w\n";
    let file = crate::program::scratch("quota_beside").join("quotas.csv");
    std::fs::write(&file, "y,2/h\n").expect("the target directory can be written");
    let beside = ["--limit", "1/h", "--key", "user", "--limit", "logins=1/h by ip for POST /login"];
    assert_eq!(refused_by(&beside, log), ["", "1/h", "", "1/h", "", "logins"]);
    let own = [&beside[..], &["--quotas", file.to_str().expect("UTF-8")]].concat();
    assert_eq!(refused_by(&own, log), ["", "1/h", "", "", "", "logins"]);
    let report = json_of(&own[..], &log);
    assert_eq!(report["key_quotas"]["seen"], 1);
    assert_eq!(report["limits"][0]["top_refused"][0]["key"], "x");
}

#[test]
fn the_text_report_has_each_limit_with_its_reasons() {
    let args = ["--limit", "per-ip=30/min burst 10 by ip", "--limit", "try=1/h by ip", "--shadow", "try"];
    let never = ["--limit", "never=1/s by ip for /nowhere"];
    let report = text_of(&[&[LOG][..], &args, &never].concat(), "");
    for part in [
        "3 limits, token-bucket",
        "  never: applied to no request\n",
        "Outcome of all limits together",
        "try (shadow)",
        "that it would have refused",
        "Keys that were refused most by per-ip",
        "203.0.113.66",
        "2 of no request",
    ] {
        assert!(report.contains(part), "no '{part}' in {report}");
    }
}

#[test]
fn a_limit_that_no_line_of_the_proxy_s_log_names_is_noted() {
    let line = "{\"time_ns\":1,\"duration_ns\":1,\"ip\":\"192.0.2.1\",\"method\":\"GET\",\"host\":null,\"path\":\"/\",\
        \"status\":200,\"bytes\":0,\"refused_by\":null,\"limits\":[{\"limit\":\"a\",\"class\":null,\"key\":\"00\",\
        \"outcome\":\"allowed\"}]}\n";
    let args = ["--limit", "a=1/h by header x-key", "--limit", "b=1/h by header x-key"];
    let report = json_of(&args, &line.repeat(2));
    assert_eq!((&report["results"][0]["passed"], &report["results"][0]["denied"]), (&1.into(), &1.into()));
    let notes = report["log"]["notes"].to_string();
    assert!(notes.contains("no line names the limit b,") && !notes.contains("limit a,"), "{notes}");
}

#[test]
fn the_limits_of_a_line_of_the_proxy_matter_only_to_those_that_go_by_them() {
    let line = |limits: &str| {
        format!(
            "{{\"time_ns\":1,\"duration_ns\":1,\"ip\":\"192.0.2.1\",\"method\":\"GET\",\"host\":null,\"path\":\"/\",\
             \"refused_by\":null,\"limits\":{limits}}}\n"
        )
    };
    let log = line("[]") + &line("7");
    for (by, unparsable) in [("ip", 0), ("header x-key", 1)] {
        let report = json_of(&["--limit", &format!("a=9/h by {by}")], &log);
        assert_eq!(report["log"]["unparsable"], unparsable, "{by}: {report}");
    }
}

#[cfg(feature = "proxy")]
mod config {
    use super::*;
    use crate::program::{command, json, scratch};
    use std::fs;

    #[cfg(feature = "html")]
    #[test]
    fn no_output_overwrites_a_file_of_limits() {
        let directory = scratch("own_config");
        let files = ["proxy.toml", "other.toml", "keys.csv", "known.txt"].map(|name| directory.join(name));
        let [config, other, keys, known] = files.each_ref().map(|file| file.to_str().expect("UTF-8"));
        let by_file = format!(
            "limit = [\"a=1/s class paid 2/s by header referer known {known} or ip class by ip in {keys}\"]\n"
        );
        let contents = [by_file.as_str(), "limit = [\"a=1/s by ip\"]\n", "203.0.113.66,paid\n", "k-7f3a\n"];
        for (file, content) in files.iter().zip(contents) {
            fs::write(file, content).expect("the target directory can be written");
        }
        for option in ["--decisions", "--html"] {
            for (target, content) in [config, other, keys, known].into_iter().zip(contents) {
                let args = [LOG, "--config", config, "--against-config", other, option, target];
                let message = refusal_of(&args, "");
                let part = format!("{option} would overwrite {target}, a file of its limits");
                assert!(message.contains(&part), "{message}");
                assert_eq!(fs::read_to_string(target).expect("it is there"), content);
            }
        }
    }

    #[test]
    fn all_unknown_classes_of_a_limit_are_one_note() {
        let file = scratch("unknown_classes").join("proxy.toml");
        let limit = "limit = [\"a=9/h class paid 99/h by ip class by header x-plan\"]\ntrust-hops = 1\n";
        fs::write(&file, limit).expect("the target directory can be written");
        let log = (0..25).map(|n| format!("1,192.0.2.1,plan{:02}\n", n % 24)).collect::<String>();
        let args = ["--config", file.to_str().expect("UTF-8"), "--fields", "header:x-plan=plan"];
        let log = format!("time,ip,plan\n{log}1,192.0.2.1,paid\n");
        let report = json_of(&args[..], &log);
        let notes = report["log"]["notes"].as_array().expect("notes");
        let note = notes[0].as_str().expect("a text");
        assert!(note.starts_with("25 requests of classes that limit a does not have"), "{note}");
        assert!(notes.len() == 1 && note.ends_with(", plan19 and 4 more."), "{notes:?}");
    }

    #[test]
    fn a_limit_that_counts_only_some_responses_is_a_note() {
        let file = scratch("charge_if").join("proxy.toml");
        let text = "limit = [\"logins=5/min by ip\"]\ncharge-if = { logins = \"401, 403\" }\n";
        fs::write(&file, text).expect("the target directory can be written");
        let args = [LOG, "--config", file.to_str().expect("UTF-8")];
        let notes = |more: &[&str]| json_of(&[&args, more].concat(), "")["log"]["notes"].to_string();
        let note = "limit logins counts only requests that are answered with 401, 403 (charge-if). In this replay it \
                    counts every request";
        assert!(notes(&[]).contains(note), "{}", notes(&[]));
        // The limit of the command line takes the place of the file's limit.
        assert!(!notes(&["--limit", "a=5/min by ip"]).contains("charge-if"));
    }

    /// These settings need others, which the proxy may get from its environment or its command
    /// line.
    #[test]
    fn a_file_whose_other_settings_are_elsewhere_is_replayed() {
        let directory = scratch("replay_partial");
        for settings in [
            "redis-lease = 5",
            "redis-max-unsynced = 5\nredis-deadline = \"9ms\"",
            "redis-share = 0.5\nredis-when-unavailable = \"local\"",
            "redis-sentinel = \"redis://127.0.0.1:26379\"",
            "access-log-format = \"json\"",
            "log-key = \"/nowhere/log.key\"",
            "when-full = \"share\"",
        ] {
            let file = directory.join("proxy.toml");
            fs::write(&file, format!("limit = [\"a=30/min by ip\"]\n{settings}\n")).expect("a file");
            let file = file.to_str().expect("UTF-8");
            for store in ["", "redis://127.0.0.1"] {
                let mut replay = command(&[LOG, "--config", file, "--format", "json"]);
                for variable in ["TOLLGATE_REDIS", "TOLLGATE_REDIS_SENTINEL"] {
                    replay.env(variable, store);
                }
                let report = json(&replay.output().expect("the program was built"));
                assert!(report["results"][0]["denied"].as_u64() > Some(0), "{settings}: {report}");
            }
        }
    }
}
