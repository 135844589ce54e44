//! Tests an operator's workflow. The same file of limits is checked, served and replayed, and a
//! replay of the proxy's log must reproduce the proxy's decisions.

use super::config::file;
use super::running::{Proxy, until, within};
use super::upstream::{Body, Upstream, full};
use super::wire::{asking, get, send};
use http::{Request, Response};
use hyper::body::Incoming;
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use tokio::io::AsyncReadExt;
use tokio::sync::Semaphore;

const CUSTOMERS: &str =
    "k-paid,paid\nk-free,default\nk-evil,blocked\nk-staff,staff\nk-own,2/h and 1 at once\n";

/// Controls the requests for /api/slow, which the upstream holds back.
struct Slow {
    arrived: AtomicUsize,
    open: Semaphore,
}

/// Writes a copy of docs/operator.toml with this test's paths. Returns the paths of the file and of
/// its log.
fn operators_file(name: &str, upstream: &str) -> (String, String) {
    let (customers, key) = (file("operator.csv", CUSTOMERS), file("operator.key", &format!("{:032x}", 7)));
    let log = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}.jsonl"));
    let _ = fs::remove_file(&log);
    let log = log.into_os_string().into_string().unwrap();
    let mut text = fs::read_to_string("../../docs/operator.toml").unwrap();
    for (from, to) in [
        ("127.0.0.1:8080", "127.0.0.1:0"),
        ("127.0.0.1:9090", "127.0.0.1:0"),
        ("127.0.0.1:3000", upstream),
        ("/var/log/tollgate/access.jsonl", &log),
        ("/etc/tollgate/log.key", &key),
        ("/etc/tollgate/customers.csv", &customers),
        ("10.0.0.0/8", "127.0.0.0/8"),
    ] {
        assert!(text.contains(from), "{from}");
        text = text.replace(from, to);
    }
    (file(&format!("{name}.toml"), &text), log)
}

fn tollgate(args: &[&str]) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_tollgate")).args(args).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{args:?}: {said}");
    String::from_utf8(output.stdout).unwrap()
}

fn lines(log: &str) -> usize {
    fs::read_to_string(log).unwrap_or_default().lines().count()
}

/// Sends requests from several clients with different addresses, keys and paths.
async fn traffic(proxy: &Proxy, log: &str, slow: &Slow) {
    let to = proxy.address;
    let from = |address: &str| format!("X-Forwarded-For: {address}\r\n");
    let with_key = |key: &str| format!("{}X-Api-Key: {key}\r\n", from("198.51.100.9"));
    for number in 0..7 {
        let path = ["/login", "//%6cogin"][number % 2];
        let head = format!(
            "POST {path} HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n{}Connection: close\r\n\r\n",
            from("203.0.113.1")
        );
        assert_eq!(send(to, &head).await.status, if number < 5 { 200 } else { 429 });
    }
    // This client sends requests too fast. All addresses in its network count as a single client.
    let mut number = 0;
    while get(to, "/", &from(&format!("2001:db8::{number:x}"))).await.status != 429 {
        number += 1;
        assert!(number < 1000, "the limit for each address refuses nobody");
    }
    for number in 0..40 {
        assert_eq!(get(to, "/", &from("192.0.2.77")).await.status, 200, "{number}");
        let preflight = format!(
            "{}Origin: https://a.example\r\nAccess-Control-Request-Method: PUT\r\n",
            from("203.0.113.3")
        );
        let head = format!("OPTIONS /api/a HTTP/1.1\r\nHost: a\r\n{preflight}Connection: close\r\n\r\n");
        assert_eq!(send(to, &head).await.status, 200, "{number}");
    }
    let mut statuses = BTreeMap::new();
    for key in ["k-free", "k-own", "k-evil", "k-staff", "k-unknown", "k-paid"] {
        for _ in 0..4 {
            let from = from(&format!("203.0.113.{}", 10 + statuses.len()));
            let status = get(to, "/api/a", &format!("{from}X-Api-Key: {key}\r\n")).await.status;
            *statuses.entry((key, status)).or_insert(0) += 1;
        }
    }
    assert_eq!(
        (statuses[&("k-own", 200)], statuses[&("k-evil", 403)], statuses[&("k-staff", 200)]),
        (2, 4, 4)
    );
    assert_eq!(send(to, "NONSENSE\r\n\r\n").await.status, 400);
    // A paying caller sends eight simultaneous requests. The log must contain their lines before
    // the next request is sent.
    let mut held = Vec::new();
    let before = 7 + (number + 1) + 80 + 24 + 1;
    until("all lines so far are written", || lines(log) == before);
    for _ in 0..8 {
        let head =
            format!("GET /api/slow HTTP/1.1\r\nHost: a\r\nConnection: close\r\n{}\r\n", with_key("k-paid"));
        held.push(asking(to, head).await);
    }
    until("eight are in flight", || slow.arrived.load(SeqCst) == 8);
    assert_eq!(get(to, "/api/a", &with_key("k-paid")).await.status, 429);
    assert_eq!(get(to, "/api/a", &with_key("k-free")).await.status, 200);
    slow.open.add_permits(8);
    for mut stream in held {
        let mut reply = Vec::new();
        within(stream.read_to_end(&mut reply)).await.unwrap();
        assert!(reply.starts_with(b"HTTP/1.1 200"), "{}", String::from_utf8_lossy(&reply));
    }
    until("their lines are written", || lines(log) == before + 10);
    assert_eq!(get(to, "/api/a", &with_key("k-paid")).await.status, 200);
    until("the last line is written", || lines(log) == before + 11);
}

/// Returns every log line that describes a request, with the name of the limit that refused it.
fn refused_by(log: &str) -> BTreeMap<usize, String> {
    let text = fs::read_to_string(log).unwrap();
    let lines = (1..).zip(text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap()));
    let requests = lines.filter(|(_, line)| !line["method"].is_null());
    requests.map(|(number, line)| (number, line["refused_by"].as_str().unwrap_or("").to_owned())).collect()
}

/// Returns how often each limit gave each answer in each class.
fn answers(log: &str) -> BTreeMap<(String, String, String), u64> {
    let mut answers = BTreeMap::new();
    for line in fs::read_to_string(log).unwrap().lines() {
        let line: Value = serde_json::from_str(line).unwrap();
        for said in line["limits"].as_array().unwrap() {
            let text = |name: &str| said[name].as_str().unwrap_or("").to_owned();
            *answers.entry((text("limit"), text("class"), text("outcome"))).or_insert(0) += 1;
        }
    }
    answers
}

#[tokio::test(flavor = "multi_thread")]
async fn one_file_is_checked_and_served_and_its_log_replays_to_the_same_decisions() {
    let slow = Arc::new(Slow { arrived: AtomicUsize::new(0), open: Semaphore::new(0) });
    let held = Arc::clone(&slow);
    let upstream = Upstream::start(move |request: Request<Incoming>| {
        let held = Arc::clone(&held);
        async move {
            if request.uri().path() == "/api/slow" {
                held.arrived.fetch_add(1, SeqCst);
                held.open.acquire().await.unwrap().forget();
            }
            Response::<Body>::new(full("hello"))
        }
    })
    .await;
    let (path, log) = operators_file("operator", &upstream.address.to_string());
    assert!(tollgate(&["proxy", "--check", &path]).contains("the proxy would start, with 4 limits\n"));
    let mut proxy = Proxy::spawn(upstream.address, &["--config", &path]);
    traffic(&proxy, &log, &slow).await;
    proxy.signal("TERM");
    assert!(proxy.ended().success());

    let decided = refused_by(&log);
    let names: Vec<&str> = ["per-ip", "logins", "api-per-min", "api-at-once"].into();
    for name in names {
        assert!(decided.values().any(|limit| limit.starts_with(name)), "{name} refused nothing: {decided:?}");
    }
    let rows = tollgate(&["replay", &log, "--config", &path, "--strict", "--decisions", "-"]);
    let mut rows = rows.lines();
    assert_eq!(rows.next(), Some("line,key,allowed,remaining,retry_after_ns,refused_by,outcome"));
    let mut replayed = BTreeMap::new();
    for row in rows {
        let fields: Vec<&str> = row.split(',').collect();
        assert_eq!(fields[2] == "true", fields[5].is_empty(), "{row}");
        replayed.insert(fields[0].parse::<usize>().unwrap(), fields[5].to_owned());
    }
    assert_eq!(replayed, decided);

    // Each limit must give the same answer to every request.
    let report = tollgate(&["replay", &log, "--config", &path, "--format", "json"]);
    let report: Value = serde_json::from_str(&report).unwrap();
    let mut found = BTreeMap::new();
    for limit in report["limits"].as_array().unwrap() {
        for class in limit["classes"].as_array().unwrap() {
            for (field, outcome) in [
                ("passed", "allowed"),
                ("denied", "denied"),
                ("blocked", "blocked"),
                ("would_refuse", "shadow"),
                ("refused_by_another", ""),
            ] {
                let count = class[field].as_u64().unwrap();
                if count > 0 {
                    let text = |value: &Value| value.as_str().unwrap_or("").to_owned();
                    found.insert((text(&limit["limit"]), text(&class["class"]), outcome.to_owned()), count);
                }
            }
        }
    }
    assert_eq!(found, answers(&log));
    assert_eq!((&report["log"]["no_requests"], &report["order"]), (&1.into(), &"time".into()));
    assert_eq!(report["log"]["notes"].as_array().map(Vec::len), Some(0), "{}", report["log"]["notes"]);

    // With these additional limits, every client may log in more often.
    let more = ["--limit", "logins=7/min by ip for POST /login", "--shadow", "logins"];
    let report = tollgate(&[&["replay", &log, "--config", &path, "--format", "json"][..], &more].concat());
    let report: Value = serde_json::from_str(&report).unwrap();
    assert_eq!(
        (&report["results"][0]["denied"], &report["limits"][0]["classes"][0]["passed"]),
        (&0.into(), &7.into())
    );
}
