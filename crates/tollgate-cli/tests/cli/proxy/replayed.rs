//! Tests that a replay of the proxy's access log repeats the proxy's decision for every request.

use super::running::{Proxy, until};
use super::upstream::{Upstream, hello};
use super::wire::get;
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
