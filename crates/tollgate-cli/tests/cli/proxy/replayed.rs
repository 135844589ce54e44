//! Tests that a replay of the proxy's access log repeats the proxy's decision for every request.

use super::running::{Proxy, until};
use super::upstream::{Upstream, hello};
use super::wire::{get, send};
use serde_json::Value;
use std::fs;
use std::path::PathBuf;
use std::process::Command;

/// Clients that a trusted proxy reports. Most of them belong to a few customers with many
/// addresses.
const CLIENTS: [&str; 16] = [
    "2001:db8::1",
    "2001:db8::2",
    "192.0.2.1",
    "[2001:db8::3]:40001",
    "::ffff:192.0.2.1",
    "2001:db8:0:0:ffff::4",
    "2001:db8:0:1::1",
    "192.0.2.1:40002",
    "2001:db8::5",
    "198.51.100.7",
    "::ffff:c000:201",
    "2001:db8:0:1::2",
    "2001:db8:1::1",
    "2001:db8::6",
    "[::ffff:192.0.2.1]:443",
    "2001:db8:0:2::1",
];

/// Returns, for each request in a log, whether the replay allows it.
fn replayed(log: &str, args: &[&str]) -> Vec<bool> {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tollgate"));
    let output = command.args(["replay", log, "--decisions", "-"]).args(args).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let rows = String::from_utf8(output.stdout).unwrap();
    rows.lines().skip(1).map(|row| row.contains(",true,")).collect()
}

#[tokio::test]
async fn a_replay_of_the_access_log_decides_as_the_proxy_did() {
    let upstream = Upstream::start(hello).await;
    let directory = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("replayed");
    fs::create_dir_all(&directory).unwrap();
    for (by, prefix, refused) in [("ip", "64", 7), ("ip", "48", 10), ("ip", "128", 3), ("ip+path", "64", 4)] {
        let log = directory.join(format!("{by}-{prefix}.log"));
        let _ = fs::remove_file(&log);
        let log = log.to_str().unwrap();
        let limit = format!("a=2/d by {by}");
        let args = ["--limit", &limit, "--trust-hops", "1", "--ipv6-prefix", prefix, "--access-log", log];
        let mut proxy = Proxy::start(upstream.address, &args);
        let mut allowed = Vec::new();
        for (number, client) in CLIENTS.into_iter().enumerate() {
            let path = ["/a", "/b?c"][number % 2];
            let fields = format!("X-Forwarded-For: {client}\r\n");
            let status = get(proxy.address, path, &fields).await.status;
            assert!(matches!(status, 200 | 429), "{status}");
            allowed.push(status == 200);
            // The log orders requests by when they end, so each request must end before the next
            // one starts.
            until("the line is written", || {
                fs::read_to_string(log).is_ok_and(|text| text.lines().count() == number + 1)
            });
        }
        proxy.signal("TERM");
        assert!(proxy.ended().success());
        assert_eq!(allowed.iter().filter(|&&allowed| !allowed).count(), refused, "{by} {prefix}");
        let found = replayed(log, &["--limit", "2/d", "--key", by, "--ipv6-prefix", prefix]);
        assert_eq!(found, allowed, "{by} {prefix}");
    }
}

/// Picks pseudo-random elements. The same seed always leads to the same elements.
struct Picks(u64);

impl Picks {
    fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).unwrap() % end
    }

    fn of<'t>(&mut self, all: &[&'t str]) -> &'t str {
        all[self.below(all.len())]
    }

    /// Returns a file with one to four limits. Their quotas do not refill during the test.
    fn limits(&mut self) -> String {
        let mut texts = Vec::new();
        let limits = 1 + self.below(4);
        for number in 0..limits {
            let quota = self.of(&["2/h", "3/h", "5/d", "9/h and 11/d", "blocked", "6/h class own 1/h"]);
            let classes = if quota.contains("class") { " class by header x-plan" } else { "" };
            let key = self.of(&[
                "ip",
                "path",
                "method",
                "ip+path",
                "header x-key else allow",
                "header x-key else share",
                "header x-key or ip",
                "query x else allow",
                "host",
            ]);
            let key = if key == "host" { "header host else share" } else { key };
            let scope = self.of(&["", "", " for POST", " for /a", " for /a/{id}", " for header x-key"]);
            let except = self.of(&["", "", " except OPTIONS", " except preflight", " except from 192.0.2.1"]);
            // A limit that blocks everybody is only for few requests.
            let scope = if quota == "blocked" { " for header x-key=k2" } else { scope };
            let penalty = if quota == "blocked" { "" } else { self.of(&["", " then pause 1d"]) };
            texts.push(format!("l{number}={quota} by {key}{scope}{except}{classes}{penalty}"));
        }
        let algorithms =
            ["token-bucket", "leaky-bucket", "leaky-queue", "fixed-window", "sliding-window", "sliding-log"];
        let mut file = format!("trust-hops = 1\nlimit = {texts:?}\nalgorithm = {:?}\n", self.of(&algorithms));
        if self.below(4) == 0 {
            file.push_str("shadow = [\"l0\"]\n");
        }
        if self.below(4) == 0 {
            file.push_str(&format!("except = [{:?}]\n", self.of(&["/b", "preflight", "header x-plan"])));
        }
        file
    }

    /// Returns the head of a request.
    fn request(&mut self) -> String {
        let method = self.of(&["GET", "GET", "POST", "OPTIONS"]);
        let path = self.of(&["/a", "//a", "/a/7", "/b?x=1", "/b?x=2", "/%61"]);
        let client = self.of(&["192.0.2.1", "192.0.2.2", "2001:db8::1", "2001:db8::2"]);
        let key = self.of(&["", "X-Key: k1\r\n", "X-Key: k2\r\n"]);
        let plan = self.of(&["", "X-Plan: own\r\n"]);
        let preflight = self.of(&["", "Origin: a\r\nAccess-Control-Request-Method: PUT\r\n"]);
        format!(
            "{method} {path} HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\nX-Forwarded-For: {client}\r\n\
             {key}{plan}{preflight}Connection: close\r\n\r\n"
        )
    }
}

/// Returns the line numbers of all requests in the proxy's log, and whether the request passed.
///
/// Which of several limits a refusal names depends on nanoseconds if the limits have equal waits,
/// so the names are not compared.
fn passed(log: &str) -> Vec<(usize, bool)> {
    let lines = fs::read_to_string(log).unwrap();
    let line = |(number, line): (usize, &str)| {
        let line: Value = serde_json::from_str(line).unwrap();
        (number + 1, line["refused_by"].is_null())
    };
    lines.lines().enumerate().map(line).collect()
}

#[tokio::test]
async fn random_limits_are_replayed_as_the_proxy_enforced_them() {
    let upstream = Upstream::start(hello).await;
    let directory = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("replayed_random");
    fs::create_dir_all(&directory).unwrap();
    let mut counts = [0, 0];
    for seed in 0..24 {
        let mut picks = Picks(seed);
        let limits = picks.limits();
        let file = directory.join(format!("{seed}.toml"));
        fs::write(&file, &limits).unwrap();
        let file = ["--config", file.to_str().unwrap()];
        let log = directory.join(format!("{seed}.jsonl"));
        let _ = fs::remove_file(&log);
        let log = log.to_str().unwrap();
        let of_log = ["--access-log", log, "--access-log-format", "json"];
        let mut proxy = Proxy::start(upstream.address, &[&file[..], &of_log].concat());
        for _ in 0..40 {
            send(proxy.address, &picks.request()).await;
        }
        proxy.signal("TERM");
        assert!(proxy.ended().success());
        let mut decided = passed(log);
        assert_eq!(decided.len(), 40);
        let mut command = Command::new(env!("CARGO_BIN_EXE_tollgate"));
        let output = command.args(["replay", log, "--decisions", "-"]).args(file).output().unwrap();
        assert!(output.status.success(), "{limits}: {}", String::from_utf8_lossy(&output.stderr));
        let rows = String::from_utf8(output.stdout).unwrap();
        let mut replayed: Vec<(usize, bool)> = rows
            .lines()
            .skip(1)
            .map(|row| {
                let cells: Vec<&str> = row.split(',').collect();
                (cells[0].parse().unwrap(), cells[2] == "true")
            })
            .collect();
        decided.sort();
        replayed.sort();
        assert_eq!(replayed, decided, "{seed}: {limits}");
        decided.iter().for_each(|&(_, passed)| counts[usize::from(passed)] += 1);
    }
    assert!(counts.iter().all(|&count| count > 100), "{counts:?}");
}
