//! Tests `tollgate suggest`. Each row must contain the figures of a replay, no smaller rate may be
//! sufficient, and the proxy must accept the file that the program writes.

use crate::program::{LOG, json, refusal, replay, replay_stdin, run_stdin, scratch, text};
use crate::replay::long_log;
use serde_json::Value;
use std::fs;
use std::path::Path;
use std::time::Duration;
use tollgate::{Algorithm, Quota};
use tollgate_testing::oracle::Oracle;

const SECOND: u64 = 1_000_000_000;

fn suggest_stdin(args: &[&str], input: &str) -> std::process::Output {
    run_stdin(&[&["suggest"], args].concat(), input.as_bytes())
}

fn suggest(args: &[&str]) -> std::process::Output {
    suggest_stdin(args, "")
}

fn rows(report: &Value) -> &Vec<Value> {
    report["rows"].as_array().expect("rows")
}

/// Suggests limits for a log, and replays every row of the suggestion with the same options.
fn every_row_is_replayed(log: &str, options: &[&str], allowed: &[&str]) {
    let report = json(&suggest(&[&[log, "--format", "json"], options, allowed].concat()));
    assert_eq!(rows(&report).len(), 30);
    for row in rows(&report) {
        let [limit, algorithm] = ["limit", "algorithm"].map(|name| row[name].as_str().expect("a text"));
        let args = [log, "--limit", limit, "--algorithm", algorithm, "--sort", "--format", "json"];
        let replayed = json(&replay(&[&args[..], options].concat()));
        let result = &replayed["results"][0];
        for (ours, theirs) in [("passed", "passed"), ("denied", "denied"), ("clients_denied", "keys_denied")]
        {
            assert_eq!(row[ours], result[theirs], "{ours} of {row}");
        }
        let wait = result["longest_wait"]["ns"].as_u64().unwrap_or(0);
        assert_eq!(row["longest_wait_ns"], wait, "{row}");
        if let (Some(most), Some(denied)) = (report["allowed"]["requests"].as_u64(), row["denied"].as_u64()) {
            assert!(denied <= most, "{row}");
        }
        if let (Some(most), Some(denied)) =
            (report["allowed"]["clients"].as_u64(), row["clients_denied"].as_u64())
        {
            assert!(denied <= most, "{row}");
        }
    }
}

#[test]
fn the_figures_of_every_row_are_those_of_the_replay() {
    every_row_is_replayed(LOG, &[], &[]);
    every_row_is_replayed(LOG, &["--key", "ip+path", "--ipv6-prefix", "128"], &["--deny-clients", "2"]);
    every_row_is_replayed(LOG, &[], &["--deny-requests", "10%"]);
}

#[test]
fn the_figures_on_the_real_log_are_those_of_the_replay_where_it_is_there() {
    let log = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data/apache_access.log");
    match log.to_str().filter(|_| log.exists()) {
        Some(log) => every_row_is_replayed(log, &[], &["--deny-requests", "0.5%"]),
        None => eprintln!("no real log beside this checkout"),
    }
}

/// Generates pseudo-random numbers. The same seed always produces the same sequence.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % end
    }
}

/// Generates a log of several clients, each of which sends at random, in bursts, or steadily.
/// Returns each client's times in milliseconds, and the log.
fn generated(seed: u64) -> (Vec<Vec<u64>>, String) {
    let mut numbers = Numbers(seed);
    let mut clients = Vec::new();
    for _ in 0..=numbers.below(5) {
        let (kind, gap) = (numbers.below(3), 1 + numbers.below(4000));
        let mut now = numbers.below(90_000);
        let times = (0..=numbers.below(50)).map(|number| {
            now += match kind {
                0 => numbers.below(gap),
                1 if number % 9 != 0 => numbers.below(20),
                _ => gap,
            };
            now
        });
        clients.push(times.collect::<Vec<u64>>());
    }
    let mut lines: Vec<(u64, usize)> = Vec::new();
    for (client, times) in clients.iter().enumerate() {
        lines.extend(times.iter().map(|&time| (time, client)));
    }
    lines.sort_unstable();
    let line =
        |(time, client): &(u64, usize)| format!("{}.{:03},192.0.2.{client}\n", time / 1000, time % 1000);
    (clients, format!("time,ip\n{}", lines.iter().map(line).collect::<String>()))
}

/// Returns how many requests a quota denies, and how many clients have a denied request.
fn denied(clients: &[Vec<u64>], algorithm: Algorithm, quota: Quota) -> (u64, u64) {
    let of_one = |times: &Vec<u64>| {
        let mut oracle = Oracle::new(algorithm, quota, 0);
        let mut denied = 0;
        for now in times.iter().map(|millis| millis * (SECOND / 1000)) {
            if oracle.fits(now, 1) {
                oracle.charge(now, 1);
            } else {
                denied += 1;
            }
        }
        denied
    };
    let denied: Vec<u64> = clients.iter().map(of_one).collect();
    (denied.iter().sum(), denied.iter().filter(|&&denied| denied > 0).count() as u64)
}

#[test]
fn no_smaller_rate_of_any_row_is_enough() {
    let mut tried = 0;
    for seed in 0..50 {
        let (clients, log) = generated(seed);
        let requests = clients.iter().map(Vec::len).sum::<usize>() as u64;
        let mut numbers = Numbers(seed + 1000);
        let (option, most) = match numbers.below(2) {
            0 => ("--deny-requests", numbers.below(1 + requests / 8)),
            _ => ("--deny-clients", numbers.below(clients.len() as u64)),
        };
        let report = json(&suggest_stdin(&[option, &most.to_string(), "--format", "json"], &log));
        for row in rows(&report) {
            let algorithm: Algorithm = row["algorithm"].as_str().expect("a name").parse().expect("a name");
            let seconds = row["burst_seconds"].as_u64().expect("a number");
            let limit: Quota = row["limit"].as_str().expect("a limit").parse().expect("a limit");
            assert_eq!(limit.period(), Duration::from_secs(seconds), "{row}");
            for tokens in 1..=limit.tokens() {
                let quota = Quota::new(tokens, limit.period());
                let (requests, of_clients) = denied(&clients, algorithm, quota);
                let is_enough = most >= if option == "--deny-requests" { requests } else { of_clients };
                assert_eq!(is_enough, tokens == limit.tokens(), "seed {seed}: {quota} of {row}");
                tried += 1;
            }
        }
    }
    assert!(tried > 5_000, "{tried} rates are few");
}

#[test]
fn a_suggestion_names_the_replay_that_shows_the_same() {
    let report = text(&suggest(&[LOG]));
    assert!(report.starts_with("Suggested: 11/10s per ip, token-bucket\n"), "{report}");
    let command = format!("  tollgate replay {LOG} --limit 11/10s --sort");
    assert!(report.contains(&command), "{report}");
    let args = ["--key", "forwarded", "--trust-hops", "2"];
    let csv = "time,forwarded\n1,\"192.0.2.1, 198.51.100.9\"\n";
    let report = text(&suggest_stdin(&args, csv));
    assert!(report.contains(" --limit 1/10s --key forwarded --trust-hops 2"), "{report}");
    let log = "{\"ts\":1000,\"remote addr\":\"192.0.2.1\",\"code\":200}\n";
    let named = ["--log-format", "json", "--fields", "time=ts,ip=remote addr", "--time-unit", "ms"];
    let args = [&named[..2], &["--fields", "time=ts,ip=remote addr,status=code"], &named[4..]].concat();
    let report = text(&suggest_stdin(&args, log));
    let options = "--log-format json --fields 'time=ts,ip=remote addr' --time-unit ms";
    assert!(report.contains(&format!("tollgate replay - --limit 1/10s {options}")), "{report}");
    text(&replay_stdin(&[&["--limit", "1/10s"], &named[..]].concat(), log.as_bytes()));
    let odd = scratch("suggest").join("it's a log");
    fs::copy(LOG, &odd).expect("it can be copied");
    let args =
        [odd.to_str().expect("UTF-8"), "--algorithm", "sliding-log", "--key", "ip+path", "--burst", "60"];
    let report = text(&suggest(&args));
    let command = r"it'\''s a log' --limit 67/min --algorithm sliding-log --key ip+path --sort";
    assert!(report.contains(command), "{report}");
    assert!(report.lines().all(|line| line.len() <= 80 || line.contains("it'")), "{report}");
}

/// Returns the rows `time,ip` of a log, in order of time and far out of it.
fn in_and_out_of_order() -> [String; 2] {
    let mut rows: Vec<(u64, String)> =
        (0..600).map(|n| (n * n % 997, format!("192.0.2.{}", n % 3))).collect();
    let log = |rows: &[(u64, String)]| {
        let rows = rows.iter().map(|(time, ip)| format!("{time},{ip}\n"));
        format!("time,ip\n{}", rows.collect::<String>())
    };
    let out_of_order = log(&rows);
    rows.sort();
    [log(&rows), out_of_order]
}

#[test]
fn a_log_out_of_order_is_suggested_for_in_order_of_time() {
    let [in_order, out_of_order] = in_and_out_of_order();
    let reports = [&in_order, &out_of_order].map(|log| json(&suggest_stdin(&["--format", "json"], log)));
    for part in ["suggested", "rows"] {
        assert_eq!(reports[0][part], reports[1][part], "{part}");
    }
    let report = text(&suggest_stdin(&[], &out_of_order));
    let limit = reports[1]["suggested"]["limit"].as_str().expect("a limit");
    assert!(report.contains(&format!("tollgate replay - --limit {limit} --sort")), "{report}");
    assert!(!text(&suggest_stdin(&[], &in_order)).contains("--sort"));
    let replayed =
        json(&replay_stdin(&["--limit", limit, "--sort", "--format", "json"], out_of_order.as_bytes()));
    assert_eq!(replayed["results"][0]["denied"], reports[1]["suggested"]["denied"]);
    assert_eq!(replayed["results"][0]["keys_denied"], reports[1]["suggested"]["clients_denied"]);
}

/// Suggests a limit for a log, with a file for the proxy. Returns the file, the report, and the
/// report of a replay of the file with `options`.
#[cfg(feature = "proxy")]
#[track_caller]
fn replayed_file(test: &str, log: &str, args: &[&str], options: &[&str]) -> (String, Value, Value) {
    let directory = scratch(test);
    let [log_file, file] = ["log", "proxy.toml"].map(|name| directory.join(name));
    fs::write(&log_file, log).expect("the target directory can be written");
    let [log, file] = [&log_file, &file].map(|path| path.to_str().expect("UTF-8"));
    let suggested = json(&suggest(&[&[log, "--config-out", file, "--format", "json"], args].concat()));
    let replayed = json(&replay(&[&[log, "--config", file, "--format", "json"], options].concat()));
    let written = fs::read_to_string(file).expect("it was written");
    assert!(replayed["results"][0]["denied"].as_u64() > Some(0), "{replayed}");
    assert_eq!(replayed["results"][0]["denied"], suggested["suggested"]["denied"], "{args:?}");
    (written, suggested, replayed)
}

#[cfg(feature = "proxy")]
#[test]
fn the_file_for_a_log_out_of_order_denies_what_it_says() {
    let log = &in_and_out_of_order()[1];
    let (written, _, replayed) = replayed_file("suggest_out_of_order", log, &[], &["--sort"]);
    assert!(written.contains("`tollgate replay LOG --config FILE --sort`"), "{written}");
    let refused = &replayed["results"][0]["denied"];
    let keys = replayed["limits"][0]["keys_refused"].as_u64().expect("a count");
    let clients = if keys == 1 { "client" } else { "clients" };
    assert!(written.contains(&format!("denies {refused} (")), "{written}: {replayed}");
    assert!(written.contains(&format!("of {keys} {clients}")), "{written}: {replayed}");
}

/// Lines of the proxy's JSON log, in the order in which requests ended.
const PROXY_LOG: [(u64, &str); 5] =
    [(3, "192.0.2.1"), (1, "192.0.2.1"), (2, "192.0.2.1"), (2, "192.0.2.9"), (1, "192.0.2.1")];

#[test]
fn the_json_log_of_the_proxy_is_a_log_like_others() {
    let line = |(second, ip): (u64, &str)| {
        format!(
            "{{\"time_ns\":{second}000000000,\"duration_ns\":1,\"ip\":\"{ip}\",\"method\":\"GET\",\"host\":null,\
             \"path\":\"//a\",\"status\":200,\"bytes\":7,\"refused_by\":null,\"limits\":[]}}\n"
        )
    };
    let log: String = PROXY_LOG.into_iter().map(line).collect();
    let report = json(&suggest_stdin(&["--format", "json", "--deny-requests", "1"], &log));
    assert_eq!((&report["log"]["clients"], &report["log"]["requests"]), (&2.into(), &5.into()), "{report}");
    let rows = text(&replay_stdin(&["--limit", "2/min", "--decisions", "-"], log.as_bytes()));
    let decided: Vec<&str> = rows.lines().skip(1).collect();
    let decided: Vec<String> =
        decided.iter().map(|row| row.split(',').take(3).collect::<Vec<_>>().join(",")).collect();
    let expected = [
        "2,192.0.2.1,true",
        "5,192.0.2.1,true",
        "3,192.0.2.1,false",
        "4,192.0.2.9,true",
        "1,192.0.2.1,false",
    ];
    assert_eq!(decided, expected);
    let args = ["--limit", "9/h", "--key", "path+status", "--cost", "bytes", "--format", "json"];
    let report = json(&replay_stdin(&args, log.as_bytes()));
    assert_eq!(report["limits"][0]["top_refused"][0]["key"], "/a + 200", "{report}");
    assert_eq!(
        (&report["log"]["files"][0]["format"], &report["order"]),
        (&"tollgate".into(), &"time".into())
    );
}

#[test]
fn clients_that_stand_out_are_told_by_their_pattern() {
    let mut log = String::from("time,ip,path,status\n");
    let mut add = |time: u64, ip: &str, path: &str, status: u32| {
        log.push_str(&format!("{time},{ip},{path},{status}\n"))
    };
    for minute in 0..40 {
        for client in 0..12 {
            add(minute * 60 + client * 5, &format!("192.0.2.{client}"), "/", 200);
        }
    }
    (0..60).for_each(|n| add(n * 30 + n % 3, "198.51.100.1", "/feed", 200));
    (0..50).for_each(|n| add(100 + n, "198.51.100.2", "/job", 503));
    (0..40).for_each(|n| add(200 + n / 20, "198.51.100.3", "/", 200));
    // Printed unchanged, this name would be a terminal command, or markup.
    (0..50).for_each(|n| add(300 + n * n % 7, "\u{1b}[2J<b>", "/", 200));
    let report = json(&suggest_stdin(&["--format", "json"], &log));
    let clients = &report["clients"];
    let of = |key: &str| {
        let all = clients["standing_out"].as_array().expect("clients");
        let found = all.iter().find(|client| client["key"] == key);
        found
            .map(|client| (client["pattern"].as_str().expect("a name").to_owned(), client["outlier"] == true))
    };
    assert_eq!(of("198.51.100.1"), Some(("steady".into(), false)), "{clients}");
    assert_eq!(of("198.51.100.2"), Some(("retries".into(), true)), "{clients}");
    assert_eq!(of("198.51.100.3"), Some(("bursts".into(), true)), "{clients}");
    assert_eq!(of("\\u{1b}[2J<b>").map(|(_, outlier)| outlier), Some(true), "{clients}");
    let ordinary = |n| of(&format!("192.0.2.{n}"));
    assert_eq!(ordinary(3), Some(("steady".into(), false)), "one request a minute: {clients}");
    assert_eq!((&clients["retrying"], &clients["outliers"]), (&1.into(), &3.into()), "{clients}");
}

#[test]
fn what_is_not_a_share_a_burst_or_a_key_of_the_proxy_is_refused() {
    for (args, part) in [
        (&["--deny-requests", "101%"][..], "invalid --deny-requests `101%`: expected a part from 0% to 100%"),
        (&["--deny-clients", "1,5%"], "invalid --deny-clients `1,5%`"),
        (
            &["--burst", "3"],
            "invalid --burst 3: expected one of the bursts that are tried, 1, 2, 5, 10 or 60",
        ),
        (&["--path-template", "/a/{b}"], "--path-template `/a/{b}` would not be used"),
        (&["--key", "user", "--config-out", "-"], "--config-out: the proxy has no key `user`"),
        (&["--config-out", "-", "--format", "json"], "so --format json has nothing to write"),
        (&["--config-out", LOG], "--config-out would overwrite"),
        (&["--key", "nobody"], "unknown field 'nobody'"),
    ] {
        let message = refusal(&suggest(&[&[LOG], args].concat()));
        assert!(message.contains(part), "{args:?}: {message}");
    }
    let message = refusal(&suggest(&[]));
    assert!(message.contains("the log is empty"), "{message}");
}

#[test]
fn the_most_that_is_allowed_is_one_request_in_a_period() {
    let report = json(&suggest(&[LOG, "--deny-requests", "100%", "--format", "json"]));
    assert!(rows(&report).iter().all(|row| row["at_once"] == 1), "{report}");
}

#[cfg(feature = "proxy")]
#[test]
fn the_file_for_the_proxy_is_accepted_and_replays_alike() {
    use std::process::Command;
    let file = scratch("suggest").join("proxy.toml");
    let path = file.to_str().expect("UTF-8");
    for (options, limit) in [
        (&[][..], "suggested=11/10s by ip"),
        (&["--algorithm", "sliding-window", "--burst", "60", "--ipv6-prefix", "128"], "suggested="),
        (&["--key", "ip+path", "--path-template", "/articles/{name}"], "by ip+path"),
        (&["--key", "user-agent"], "by header user-agent"),
    ] {
        let report = json(&suggest(&[&[LOG, "--config-out", path, "--format", "json"], options].concat()));
        let written = fs::read_to_string(&file).expect("it was written");
        assert!(written.contains(limit), "{written}");
        let checked = Command::new(env!("CARGO_BIN_EXE_tollgate")).args(["proxy", "--check", path]).output();
        let checked = checked.expect("the program was built");
        assert!(checked.status.success(), "{}", String::from_utf8_lossy(&checked.stderr));
        let replayed = json(&replay(&[LOG, "--config", path, "--sort", "--format", "json"]));
        // The proxy's limits never see requests that are not HTTP, none of which is denied in this
        // log.
        if options.is_empty() {
            assert_eq!(replayed["results"][0]["denied"], report["suggested"]["denied"], "{replayed}");
        }
        assert!(replayed["results"][0]["denied"].as_u64() > Some(0), "{replayed}");
    }
    let shown = text(&suggest(&[LOG, "--config-out", "-"]));
    assert!(shown.starts_with("# Written by tollgate suggest."), "{shown}");
}

#[cfg(feature = "proxy")]
#[test]
fn the_file_for_the_proxy_counts_requests_without_a_header_as_the_suggestion_does() {
    let lines = (0..240).map(|n| {
        let header = |every: u64| if n % every == 0 { "-" } else { "x" };
        let (ip, minute, referer, agent) = (n * n % 7, n / 60, header(2), header(3));
        let request = format!("[17/May/2015:10:0{minute}:00 +0000] \"GET / HTTP/1.1\" 200 1");
        format!("192.0.2.{ip} - - {request} \"{referer}\" \"{agent}\"\n")
    });
    let log: String = lines.collect();
    for (key, by) in [
        ("referer", "header referer else share"),
        ("ip+referer", "ip+header referer or ip"),
        (
            "referer+user-agent",
            "header referer+header user-agent or header user-agent or header referer else share",
        ),
    ] {
        let args = ["--key", key, "--deny-requests", "20%"];
        let (written, ..) = replayed_file("suggest_headers", &log, &args, &[]);
        assert!(written.contains(&format!(" by {by}\"]")), "{written}");
    }
}

#[cfg(feature = "proxy")]
#[test]
fn a_forwarded_address_is_the_address_of_the_proxy_s_limit() {
    let line = |n: u64| {
        format!(
            "[2024-01-01T00:{:02}:{:02}Z] \"GET /{} HTTP/1.1\" 200 - 0 1 2 1 \"10.9.9.9, 192.0.2.{}, 10.0.0.1\" \"a\" \
             \"r\" \"h\" \"u\"\n",
            n / 60,
            n % 60 / 20 * 20,
            n % 2,
            n * n % 5
        )
    };
    let log: String = (0..300).map(line).collect();
    for (key, by) in [("forwarded", "ip"), ("path+forwarded", "path+ip")] {
        let options = ["--fields", "ip=forwarded", "--trust-hops", "2"];
        let args = ["--key", key, "--trust-hops", "2", "--deny-requests", "40%"];
        let (written, ..) = replayed_file("suggest_forwarded", &log, &args, &options);
        for part in [&*format!(" by {by}\"]"), "\ntrust-hops = 2\n", &format!("FILE {}`", options.join(" "))]
        {
            assert!(written.contains(part), "{part} is missing: {written}");
        }
    }
    for (args, part) in [
        (&["--key", "forwarded"][..], "--config-out: the key `forwarded` needs --trust-hops"),
        (&["--key", "ip+forwarded", "--trust-hops", "1"], "`ip` and `forwarded` are one address"),
    ] {
        let message = refusal(&suggest_stdin(&[args, &["--config-out", "-"]].concat(), ""));
        assert!(message.contains(part), "{message}");
    }
}

#[test]
fn the_file_for_the_proxy_says_how_it_is_replayed() {
    let log = "{\"ts\":1,\"forwarded\":\"192.0.2.1, 198.51.100.9\",\"from\":\"-\"}\n";
    let fields = "time=ts,ip=forwarded,referer=from,path=p";
    let args = ["--key", "ip+referer", "--fields", fields, "--trust-hops", "2", "--config-out", "-"];
    let file = text(&suggest_stdin(&args, log));
    assert!(file.contains("\ntrust-hops = 2\n"), "{file}");
    let options = "--fields time=ts,ip=forwarded,header:referer=from --trust-hops 2";
    assert!(file.contains(&format!("`tollgate replay LOG --config FILE {options}`")), "{file}");
    let log = "{\"time\":1,\"user-agent\":\"x\"}\n";
    let file = text(&suggest_stdin(&["--key", "user-agent", "--config-out", "-"], log));
    assert!(file.contains("FILE --fields header:user-agent=user-agent`"), "{file}");
    let file = text(&suggest(&[LOG, "--key", "user-agent", "--config-out", "-"]));
    assert!(file.contains("`tollgate replay LOG --config FILE --sort`"), "{file}");
}

/// The path and the status only reveal the patterns of clients.
#[test]
fn a_line_without_a_path_or_a_status_counts_as_in_the_replay() {
    let clf = "192.0.2.1 - - [17/May/2015:10:05:03 +0000] \"GET / HTTP/1.1\" 200 1 \"-\" \"-\"\n";
    let cut = "192.0.2.1 - - [17/May/2015:10:05:04 +0000] \"GET / HT";
    let object = "{\"time\":1,\"ip\":\"192.0.2.1\",\"path\":\"/\",\"status\":{\"code\":200}}\n";
    for log in [format!("{clf}{cut}"), object.repeat(2)] {
        let replayed = json(&replay_stdin(&["--limit", "9/s", "--format", "json"], log.as_bytes()));
        let suggested = json(&suggest_stdin(&["--format", "json"], &log));
        assert_eq!(suggested["log"]["requests"], 2, "{suggested}");
        for count in ["requests", "unparsable"] {
            assert_eq!(suggested["log"][count], replayed["log"][count], "{count} of {log}");
        }
    }
}

/// A log of several thousand lines is parsed by several threads, and each of its parts by one.
#[test]
fn a_long_log_leads_to_the_same_suggestion_as_its_parts() {
    let log = long_log();
    let lines: Vec<&[u8]> = log.split_inclusive(|&byte| byte == b'\n').collect();
    let directory = scratch("parts_of_a_long_log");
    let parts: Vec<String> = lines
        .chunks(4000)
        .enumerate()
        .map(|(index, part)| {
            let file = directory.join(index.to_string());
            fs::write(&file, part.concat()).expect("the target directory can be written");
            file.to_string_lossy().into_owned()
        })
        .collect();
    assert!(parts.len() > 2);
    let whole = directory.join("whole");
    fs::write(&whole, &log).expect("the target directory can be written");
    let whole = [whole.to_string_lossy().into_owned()];
    for key in ["ip", "ip+path", "referer"] {
        let report = |logs: &[String]| {
            let logs = logs.iter().map(String::as_str);
            let args: Vec<&str> = ["--format", "json", "--key", key].into_iter().chain(logs).collect();
            let mut report = json(&suggest(&args));
            for part in ["files", "notes", "bad_lines"] {
                report["log"][part].take();
            }
            report.to_string()
        };
        assert!(report(&whole) == report(&parts), "{key}");
    }
}
