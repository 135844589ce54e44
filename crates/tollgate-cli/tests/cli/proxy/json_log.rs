//! Tests the JSON access log. In both log formats, the line of a refused request must name the
//! limit that refused it.

use super::config::file;
use super::running::{Proxy, until};
use super::upstream::{Upstream, hello};
use super::wire::{Reply, get, scratch, send};
use serde_json::{Value, json};
use std::fs;
use std::process::Command;
use std::time::{SystemTime, UNIX_EPOCH};

fn lines(log: &str, count: usize) -> Vec<String> {
    let read = || fs::read_to_string(log).unwrap_or_default();
    until("all lines are there", || read().lines().count() >= count);
    read().lines().map(str::to_owned).collect()
}

fn records(log: &str, count: usize) -> Vec<Value> {
    lines(log, count).iter().map(|line| serde_json::from_str(line).expect(line)).collect()
}

async fn with_key(proxy: &Proxy, path: &str, key: &str) -> Reply {
    get(proxy.address, path, &format!("X-Api-Key: {key}\r\n")).await
}

#[tokio::test]
async fn a_record_says_what_each_limit_said_and_shows_no_key() {
    let upstream = Upstream::start(hello).await;
    let log = scratch("proxy_records.jsonl");
    let limits = ["--limit", "wide=9/h by ip", "--limit", "per-key=1/h by header x-api-key else allow"];
    let args = ["--limit", "trial=1/h by nothing", "--shadow", "trial", "--access-log", &log];
    let proxy =
        Proxy::start(upstream.address, &[&limits[..], &args, &["--access-log-format", "json"]].concat());
    let now = || SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos();
    let before = now();
    assert_eq!(with_key(&proxy, "/a?token=secret", "secret").await.status, 200);
    assert_eq!(with_key(&proxy, "/b", "secret").await.status, 429);
    assert_eq!(get(proxy.address, "/c", "").await.status, 200);
    assert_eq!(send(proxy.address, "NONSENSE\r\n\r\n").await.status, 400);
    let records = records(&log, 4);
    let after = now();
    let mut at = before;
    for record in &records {
        let (time, duration) = (&record["time_ns"], &record["duration_ns"]);
        let time = u128::from(time.as_u64().unwrap());
        assert!(time >= at && time + u128::from(duration.as_u64().unwrap()) <= after, "{record}");
        at = time;
    }
    let text = fs::read_to_string(&log).unwrap();
    assert!(!text.contains("secret") && !text.contains("token"), "{text}");
    let shown = |record: &Value| {
        let names = ["ip", "method", "host", "path", "status", "bytes", "refused_by"];
        names.map(|name| record[name].clone())
    };
    assert_eq!(
        shown(&records[0]),
        [
            "127.0.0.1".into(),
            "GET".into(),
            "example.org".into(),
            "/a".into(),
            200.into(),
            5.into(),
            Value::Null
        ]
    );
    assert_eq!(records[1]["refused_by"], "per-key");
    assert_eq!(shown(&records[3])[1..5], [Value::Null, Value::Null, Value::Null, 400.into()]);
    let said = |record: &Value| -> Vec<Value> {
        let of = |limit: &Value| json!([limit["limit"], limit["outcome"]]);
        record["limits"].as_array().unwrap().iter().map(of).collect()
    };
    assert_eq!(
        said(&records[0]),
        [json!(["wide", "allowed"]), json!(["per-key", "allowed"]), json!(["trial", "allowed"])]
    );
    assert_eq!(
        said(&records[1]),
        [json!(["wide", null]), json!(["per-key", "denied"]), json!(["trial", "shadow"])]
    );
    // A limit that finds no key refuses the request before the other limits decide.
    assert_eq!(
        said(&records[2]),
        [json!(["per-key", "no-key"]), json!(["wide", "allowed"]), json!(["trial", "shadow"])]
    );
    let key = |record: usize, limit: usize| records[record]["limits"][limit]["key"].clone();
    assert_eq!((key(0, 0), key(0, 1)), (key(1, 0), key(1, 1)));
    assert_eq!((key(0, 0), key(2, 0)), (key(2, 1), Value::Null));
    assert!(key(0, 1).as_str().is_some_and(|key| key.len() == 32) && key(0, 0) != key(0, 1));
}

#[tokio::test]
async fn a_class_is_named_and_a_key_has_the_same_hash_under_one_log_key() {
    let upstream = Upstream::start(hello).await;
    let (classes, key) =
        (file("json_classes.csv", "secret,paid\n"), file("json_log.key", &format!("{:032x}\n", 7)));
    let limit = format!("api=1/h class paid 9/h by header x-api-key class by header x-api-key in {classes}");
    let mut hashes = Vec::new();
    for more in [&["--log-key", &key][..], &["--log-key", &key], &[], &[]] {
        let log = scratch("proxy_hashes.jsonl");
        let args = ["--limit", &limit, "--access-log", &log, "--access-log-format", "json"];
        let proxy = Proxy::start(upstream.address, &[&args[..], more].concat());
        assert_eq!(with_key(&proxy, "/", "secret").await.status, 200);
        let record = records(&log, 1).remove(0);
        assert_eq!(record["limits"][0]["class"], "paid", "{record}");
        hashes.push(record["limits"][0]["key"].as_str().unwrap().to_owned());
    }
    assert_eq!(hashes[0], hashes[1]);
    hashes.sort();
    hashes.dedup();
    assert_eq!(hashes.len(), 3, "each process without a log key has one of its own");
}

#[tokio::test]
async fn the_json_log_can_be_replayed() {
    let upstream = Upstream::start(hello).await;
    let log = scratch("proxy_replayed.jsonl");
    let proxy = Proxy::start(upstream.address, &["--access-log", &log, "--access-log-format", "json"]);
    for path in ["/a", "/b", "/a"] {
        assert_eq!(get(proxy.address, path, "").await.status, 200);
    }
    let _ = records(&log, 3);
    let fields = ["--fields", "time=time_ns", "--time-unit", "ns", "--format", "json", "--strict"];
    let output = Command::new(env!("CARGO_BIN_EXE_tollgate"))
        .args(["replay", &log, "--limit", "1/h", "--key", "ip+path"])
        .args(fields)
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let report = String::from_utf8(output.stdout).unwrap().replace([' ', '\n'], "");
    assert!(report.contains("\"denied\":1") && report.contains("\"passed\":2"), "{report}");
}

#[tokio::test]
async fn the_combined_log_ends_with_the_limit_that_refused() {
    let upstream = Upstream::start(hello).await;
    let log = scratch("proxy_refused_by.log");
    let proxy = Proxy::start(upstream.address, &["--limit", "per-ip=1/h by ip", "--access-log", &log]);
    for status in [200, 429] {
        assert_eq!(get(proxy.address, "/", "").await.status, status);
    }
    let lines = lines(&log, 2);
    assert!(
        lines[0].ends_with("\"-\" \"-\"") && lines[1].ends_with("\"-\" \"-\" limit=\"per-ip\""),
        "{lines:?}"
    );
}
