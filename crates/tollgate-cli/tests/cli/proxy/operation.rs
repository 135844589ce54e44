//! Tests the proxy's operation: the access log, the metrics, and shutdown.

use super::arguments::refused;
use super::running::{Proxy, until, within};
use super::upstream::{Upstream, full, hello};
use super::wire::{asking, get, metric, metric_is, read_until, scratch};
use bytes::Bytes;
use http::{Request, Response};
use http_body::Frame;
use hyper::body::Incoming;
use std::collections::{BTreeSet, HashSet};
use std::fs;
use std::future::pending;
use std::io::{BufRead, BufReader};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;
use tokio::sync::Notify;

#[tokio::test]
async fn the_access_log_can_be_replayed() {
    let upstream = Upstream::start(hello).await;
    let log = scratch("proxy_replayed.log");
    let args = ["--limit", "a=4/h by ip", "--trust-hops", "1", "--access-log", &log];
    let mut proxy = Proxy::start(upstream.address, &args);
    for (client, path) in
        [("192.0.2.1", "/a"), ("192.0.2.1", "/b?x=1"), ("2001:db8::1", "/c"), ("192.0.2.1", "/d")]
    {
        let fields =
            format!("X-Forwarded-For: {client}\r\nUser-Agent: \"quoted\" \\ \u{e4}\r\nReferer: x\r\n");
        assert_eq!(get(proxy.address, path, &fields).await.status, 200);
    }
    proxy.signal("TERM");
    assert!(proxy.ended().success());
    let lines = fs::read_to_string(&log).unwrap();
    assert_eq!(lines.lines().count(), 4, "{lines}");
    assert!(lines.lines().next().unwrap().starts_with("192.0.2.1 - - ["), "{lines}");
    assert!(lines.contains("\"GET /a HTTP/1.1\" 200 5 \"x\" "), "{lines}");
    // The replay must report the limit's effect: two requests pass, and two more from the same
    // client are refused.
    let replay = |args: &[&str]| {
        let output = Command::new(env!("CARGO_BIN_EXE_tollgate"))
            .args(["replay", &log, "--strict"])
            .args(args)
            .output()
            .unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        serde_json::from_slice::<serde_json::Value>(&output.stdout).unwrap()
    };
    let report = replay(&["--limit", "1/h", "--format", "json", "--log-format", "combined", "--key", "ip"]);
    let text = report.to_string();
    assert!(text.contains("\"denied\":2") && text.contains("\"passed\":2"), "{text}");
    let report = replay(&["--limit", "1/h", "--format", "json", "--key", "user-agent+referer"]).to_string();
    assert!(report.contains("\"denied\":3"), "{report}");
}

#[tokio::test]
async fn the_access_log_tells_of_refusals_failures_and_clients_that_left() {
    let upstream = Upstream::start(|_: Request<Incoming>| async { pending().await }).await;
    let log = scratch("proxy_failures.log");
    // The timeout is long enough for the second request to arrive while the first is open, even on
    // a busy machine.
    let args = ["--limit", "a=2/h by ip", "--access-log", &log, "--request-timeout", "3s"];
    let proxy = Proxy::start(upstream.address, &args);
    assert_eq!(get(proxy.address, "/slow", "").await.status, 504);
    let client = asking(proxy.address, b"GET /left HTTP/1.1\r\nHost: a\r\n\r\n").await;
    metric_is(proxy.metrics, "tollgate_requests_in_flight", 1.0).await;
    drop(client);
    metric_is(proxy.metrics, "tollgate_requests_in_flight", 0.0).await;
    assert_eq!(get(proxy.address, "/many", "").await.status, 429);
    // The log must be flushed without any further request.
    until("three lines are there", || fs::read_to_string(&log).unwrap().lines().count() == 3);
    let lines = fs::read_to_string(&log).unwrap();
    for line in ["\"GET /slow HTTP/1.1\" 504 ", "\"GET /left HTTP/1.1\" 499 -", "\"GET /many HTTP/1.1\" 429 "]
    {
        assert!(lines.contains(line), "{line}: {lines}");
    }
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_full_disk_under_the_access_log_is_one_line_and_a_count() {
    let upstream = Upstream::start(hello).await;
    let proxy = Proxy::start(upstream.address, &["--access-log", "/dev/full"]);
    for _ in 0..200 {
        assert_eq!(get(proxy.address, "/", "").await.status, 200);
    }
    metric_is(proxy.metrics, "tollgate_access_log_lost_total", 200.0).await;
    let said = proxy.said();
    assert_eq!(said.matches("the access log cannot be written").count(), 1, "{said}");
}

/// Parses metrics as Prometheus does, and returns their names.
fn read_metrics(text: &str) -> HashSet<&str> {
    assert!(text.ends_with("# EOF\n"), "{text}");
    let (mut names, mut samples) = (HashSet::new(), HashSet::new());
    for line in text.lines() {
        if let Some(described) = line.strip_prefix("# TYPE ") {
            let name = described.split(' ').next().unwrap();
            assert!(names.insert(name), "{name} is described twice");
        } else if !line.starts_with('#') {
            let (name, value) = line.rsplit_once(' ').unwrap_or_else(|| panic!("{line}"));
            assert!(value.parse::<f64>().is_ok(), "{line}");
            let family = name.split('{').next().unwrap();
            let of = |suffix: &str| family.strip_suffix(suffix).is_some_and(|name| names.contains(name));
            assert!(["", "_total", "_sum", "_count", "_bucket"].into_iter().any(of), "{line}");
            assert!(samples.insert(name), "{name} is there twice");
        }
    }
    samples
}

#[tokio::test]
async fn metrics_can_be_read_and_hold_nothing_that_clients_chose() {
    let upstream = Upstream::start(hello).await;
    let proxy = Proxy::start(upstream.address, &["--limit", "a=2/h by ip", "--limit", "b=9/h by nothing"]);
    for status in [200, 200, 429] {
        let fields = "X-Api-Key: client-chosen\r\nUser-Agent: client-chosen\r\n";
        assert_eq!(get(proxy.address, "/client-chosen", fields).await.status, status);
    }
    let reply = get(proxy.metrics, "/metrics", "").await;
    let kind = reply.field("content-type").unwrap();
    assert!(kind.starts_with("application/openmetrics-text"), "{kind}");
    let samples = read_metrics(&reply.body);
    for name in [
        "tollgate_requests_total{status=\"2xx\"}",
        "tollgate_request_duration_seconds_bucket{le=\"0.1\"}",
        "tollgate_keys{limit=\"a\"}",
        "tollgate_limiter_memory_bytes{limit=\"a\"}",
        "tollgate_access_log_lost_total",
    ] {
        assert!(samples.contains(name), "{name}: {}", reply.body);
    }
    assert!(!reply.body.contains("client-chosen") && !reply.body.contains("127.0.0.1"), "{}", reply.body);
    for (name, value) in [
        ("tollgate_requests_total{status=\"2xx\"}", 2.0),
        ("tollgate_requests_total{status=\"4xx\"}", 1.0),
        ("tollgate_request_duration_seconds_count", 3.0),
        ("tollgate_keys{limit=\"a\"}", 1.0),
        ("tollgate_connections_total", 3.0),
        ("tollgate_open_connections", 0.0),
    ] {
        metric_is(proxy.metrics, name, value).await;
    }
    // The clients' port must not serve the metrics.
    assert_eq!(get(proxy.address, "/metrics", "").await.status, 429);
    assert_eq!(get(proxy.metrics, "/", "").await.status, 404);
}

/// A response may last for hours, and a counter that grows at its end shows a rate of zero until
/// then.
#[tokio::test]
async fn the_bytes_of_a_response_are_counted_as_they_pass() {
    let (upstream, mut handed) = Upstream::handing_over().await;
    let proxy = Proxy::start(upstream.address, &[]);
    let mut client = asking(proxy.address, b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").await;
    let sender = within(handed.recv()).await.unwrap();
    for total in [1_000.0, 2_000.0] {
        sender.send(Frame::data(Bytes::from(vec![b'x'; 1_000]))).await.unwrap();
        metric_is(proxy.metrics, "tollgate_response_body_bytes_total", total).await;
        assert_eq!(metric(proxy.metrics, "tollgate_requests_in_flight").await, 1.0);
    }
    drop(sender);
    read_until(&mut client, "\r\n0\r\n\r\n").await;
    metric_is(proxy.metrics, "tollgate_requests_in_flight", 0.0).await;
    assert_eq!(metric(proxy.metrics, "tollgate_response_body_bytes_total").await, 2_000.0);
}

/// Returns an upstream that responds only when it is notified.
pub(crate) async fn on_command() -> (Upstream, Arc<Notify>) {
    let go = Arc::new(Notify::new());
    let wait = Arc::clone(&go);
    let upstream = Upstream::start(move |_: Request<Incoming>| {
        let wait = Arc::clone(&wait);
        async move {
            wait.notified().await;
            Response::new(full("at last"))
        }
    })
    .await;
    (upstream, go)
}

#[tokio::test]
async fn a_signal_lets_requests_end_and_accepts_no_more() {
    for signal in ["TERM", "INT"] {
        let (upstream, go) = on_command().await;
        let mut proxy = Proxy::start(upstream.address, &[]);
        let mut client = asking(proxy.address, b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").await;
        // This connection has no open request, so the shutdown closes it.
        let mut idle = TcpStream::connect(proxy.address).await.unwrap();
        metric_is(proxy.metrics, "tollgate_requests_in_flight", 1.0).await;
        metric_is(proxy.metrics, "tollgate_open_connections", 2.0).await;
        proxy.signal(signal);
        within(async { while TcpStream::connect(proxy.address).await.is_ok() {} }).await;
        assert!(within(idle.read_u8()).await.is_err());
        go.notify_one();
        read_until(&mut client, "at last").await;
        assert!(within(client.read_u8()).await.is_err(), "the connection is closed");
        assert_eq!(proxy.ended().code(), Some(0), "{}", proxy.said());
    }
}

#[tokio::test]
async fn requests_that_do_not_end_are_cut_off_and_logged() {
    let (upstream, _go) = on_command().await;
    let log = scratch("proxy_cut.log");
    let mut proxy = Proxy::start(upstream.address, &["--shutdown-timeout", "100ms", "--access-log", &log]);
    let _client = asking(proxy.address, b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").await;
    metric_is(proxy.metrics, "tollgate_requests_in_flight", 1.0).await;
    proxy.signal("TERM");
    assert_eq!(proxy.ended().code(), Some(0));
    until("it is told", || proxy.said().contains("1 requests were cut off"));
    assert!(fs::read_to_string(&log).unwrap().contains("\" 499 -"));
}

#[tokio::test]
async fn a_second_signal_ends_it_at_once() {
    let (upstream, _go) = on_command().await;
    let mut proxy = Proxy::start(upstream.address, &["--shutdown-timeout", "1h"]);
    let _client = asking(proxy.address, b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").await;
    metric_is(proxy.metrics, "tollgate_requests_in_flight", 1.0).await;
    proxy.signal("TERM");
    until("it has heard the first", || proxy.said().contains("a second signal"));
    proxy.signal("TERM");
    assert_eq!(proxy.ended().code(), Some(1));
}

/// The access log is a pipe whose reader does not read, or leaves before the log is opened again.
#[cfg(unix)]
#[tokio::test]
async fn a_signal_ends_the_proxy_while_its_access_log_blocks() {
    let upstream = Upstream::start(hello).await;
    for reader_leaves in [false, true] {
        let pipe = scratch("proxy_pipe");
        let _ = fs::remove_file(&pipe);
        assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        let reader = fs::OpenOptions::new().read(true).write(true).open(&pipe).unwrap();
        let mut proxy = Proxy::start(upstream.address, &["--access-log", &pipe]);
        if reader_leaves {
            drop(reader);
            proxy.signal("USR1");
            // The signal is not answered, so there is nothing to wait for.
            tokio::time::sleep(Duration::from_millis(200)).await;
        } else {
            let path = format!("/{}", "a".repeat(8_000));
            for _ in 0..20 {
                assert_eq!(get(proxy.address, &path, "").await.status, 200);
            }
        }
        proxy.signal("TERM");
        assert_eq!(proxy.ended().code(), Some(0), "{}", proxy.said());
        // The last line may arrive after the process has ended.
        match reader_leaves {
            true => assert!(!proxy.said().contains("the access log takes no lines")),
            false => until("it is told", || proxy.said().contains("the access log takes no lines")),
        }
    }
}

/// Standard error is the pipe of the access log, which nobody reads.
#[cfg(unix)]
#[tokio::test]
async fn a_signal_ends_the_proxy_while_its_standard_error_blocks() {
    let upstream = Upstream::start(hello).await;
    let (reader, writer) = std::io::pipe().unwrap();
    let mut proxy = Command::new(env!("CARGO_BIN_EXE_tollgate"))
        .args(["proxy", "--listen", "127.0.0.1:0", "--access-log", "-"])
        .arg(format!("--upstream=http://{}", upstream.address))
        .stdout(writer.try_clone().unwrap())
        .stderr(writer)
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(reader).lines().map(Result::unwrap);
    let line = lines.find(|line| line.contains("listening on ")).unwrap();
    let address = line.split("http://").nth(1).unwrap().split(' ').next().unwrap().parse().unwrap();
    let path = format!("/{}", "a".repeat(8_000));
    for _ in 0..20 {
        assert_eq!(get(address, &path, "").await.status, 200);
    }
    assert!(Command::new("kill").arg(proxy.id().to_string()).status().unwrap().success());
    until("the proxy ends", || proxy.try_wait().unwrap().is_some());
}

#[tokio::test]
async fn each_line_of_standard_error_has_a_time_in_utc_and_a_level() {
    let upstream = Upstream::start(hello).await;
    let mut proxy = Proxy::start(upstream.address, &["--limit", "a=2/h by header x-a"]);
    proxy.signal("HUP");
    until("it is reloaded", || proxy.said().contains(" INFO reloaded"));
    proxy.signal("TERM");
    assert!(proxy.ended().success());
    let said = proxy.said();
    assert!(said.contains(" WARN limit a counts by header `x-a`, which any client can invent"), "{said}");
    let taken = refused(&["--listen", &upstream.address.to_string(), "--upstream", "http://127.0.0.1:9"]);
    assert!(taken.contains(" ERROR --listen "), "{taken}");
    for line in said.lines().chain(taken.lines()) {
        let (time, rest) = line.split_once(' ').unwrap();
        let form: String = time.chars().map(|it| if it.is_ascii_digit() { '0' } else { it }).collect();
        assert_eq!(form, "0000-00-00T00:00:00.000Z", "{line}");
        assert!(["INFO ", "WARN ", "ERROR "].iter().any(|level| rest.starts_with(level)), "{line}");
    }
}

/// Returns the names in the first column of every table on a page.
fn documented(page: &str) -> BTreeSet<String> {
    let named = page.lines().filter_map(|line| line.strip_prefix("| `tollgate_")?.split('`').next());
    named.map(|name| format!("tollgate_{name}")).collect()
}

#[tokio::test]
async fn the_page_of_metrics_names_every_metric_and_no_other() {
    let upstream = Upstream::start(hello).await;
    // The first proxy also serves metrics about its store, even though the store is unreachable.
    // The second proxy does its own counting, because a limit is counted either in the proxy or in
    // the store.
    let store = ["--limit", "a=2/h by ip", "--redis", "redis://127.0.0.1:1"];
    let mut served = BTreeSet::new();
    for args in [&store[..], &store[..2]] {
        let proxy = Proxy::start(upstream.address, args);
        assert_eq!(get(proxy.address, "/", "").await.status, 200);
        let reply = get(proxy.metrics, "/metrics", "").await;
        let described = reply.body.lines().filter_map(|line| line.strip_prefix("# TYPE "));
        served.extend(described.map(|line| match line.split_once(' ') {
            Some((name, "counter")) => format!("{name}_total"),
            Some((name, _)) => name.to_owned(),
            None => panic!("{line}"),
        }));
    }
    let page = fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/metrics.md")).unwrap();
    assert_eq!(documented(&page), served);
    // The layer's own documentation lists the layer's metrics under the same names.
    let layer = include_str!("../../../../tollgate-http/src/metrics.rs").replace("/// |", "|");
    let of_layer = documented(&layer);
    assert!(of_layer.len() == 5 && of_layer.is_subset(&served), "{of_layer:?}");
    // An alert with an unknown metric would never fire.
    let alerts = page.split("## Alerts").nth(1).unwrap();
    let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let used = alerts.split(|c| !is_name(c)).filter(|word| word.starts_with("tollgate_"));
    used.for_each(|name| assert!(served.contains(name), "{name} in an alert"));
}
