//! Tests the signals. SIGHUP reloads the limits and reopens the access log. SIGUSR1 reopens the
//! access log and does nothing else.

use super::config::file;
use super::running::{Proxy, until};
use super::state::state;
use super::upstream::{Upstream, hello};
use super::wire::{asking, get, metric, scratch};
use std::fs;
use std::process::Command;
use tollgate_testing::store::server::Server;

/// A running proxy and its settings file, which the test can replace.
struct Reloading {
    proxy: Proxy,
    path: String,
    reloads: usize,
}

impl Reloading {
    fn start(upstream: &Upstream, name: &str, content: &str, args: &[&str]) -> Self {
        let path = file(name, content);
        let proxy = Proxy::start(upstream.address, &[&["--config", &path], args].concat());
        Self { proxy, path, reloads: 0 }
    }

    /// Writes the file and reloads the proxy. The reload must succeed.
    fn reload(&mut self, content: &str) {
        fs::write(&self.path, content).unwrap();
        self.reloads += 1;
        self.proxy.signal("HUP");
        until("it is reloaded", || {
            let lines = self.proxy.said();
            assert!(!lines.contains("nothing is reloaded"), "{lines}");
            lines.lines().filter(|line| line.ends_with(" INFO reloaded")).count() == self.reloads
        });
    }

    async fn status(&self, path: &str) -> u16 {
        get(self.proxy.address, path, "").await.status
    }

    /// Returns the remaining quota that a response reports in its field.
    async fn left(&self, path: &str) -> String {
        let reply = get(self.proxy.address, path, "").await;
        let field = reply.field("ratelimit").unwrap_or_else(|| panic!("{reply:?}"));
        field.split(';').find(|part| part.starts_with("r=")).unwrap().to_owned()
    }
}

#[tokio::test]
async fn a_hangup_without_a_file_changes_nothing_and_does_not_end_the_proxy() {
    let upstream = Upstream::start(hello).await;
    let proxy = Proxy::start(upstream.address, &["--limit", "a=1/h by ip"]);
    assert_eq!(get(proxy.address, "/", "").await.status, 200);
    proxy.signal("HUP");
    until("it is reloaded", || proxy.said().contains(" INFO reloaded"));
    assert_eq!(get(proxy.address, "/", "").await.status, 429);
}

#[tokio::test]
async fn a_key_keeps_its_state_where_name_key_and_algorithm_stay() {
    let upstream = Upstream::start(hello).await;
    let mut it = Reloading::start(&upstream, "reload_state.toml", "limit = [\"a=5/h by ip\"]", &[]);
    for left in ["r=4", "r=3"] {
        assert_eq!(it.left("/").await, left);
    }
    // The first reload keeps the limit, and the second one raises its quota. Two of the five tokens
    // are spent.
    it.reload("limit = [\"a=5/h by ip\"]");
    assert_eq!(it.left("/").await, "r=2");
    it.reload("limit = [\"a=10/h by ip\", \"b=1000/h by path\"]");
    let reply = get(it.proxy.address, "/", "").await;
    assert!(reply.field("ratelimit-policy").unwrap().contains("\"a\";q=10;w=3600"), "{reply:?}");
    let left: u64 = it.left("/").await[2..].parse().unwrap();
    assert!(left < 7, "the state was translated, not forgotten: {left}");
    // The state also survives new exempt paths and a new status.
    it.reload("limit = [\"a=10/h by ip\"]\nexcept = [\"/health\"]\nstatus = 503");
    assert!(it.left("/").await[2..].parse::<u64>().unwrap() < left);
    assert_eq!(get(it.proxy.address, "/health", "").await.field("ratelimit"), None);
}

#[tokio::test]
async fn a_limit_with_another_name_key_algorithm_or_size_begins_anew() {
    let upstream = Upstream::start(hello).await;
    let first = "limit = [\"a=5/h by ip\"]";
    for other in [
        "limit = [\"b=5/h by ip\"]",
        "limit = [\"a=5/h by ip+method\"]",
        "limit = [\"a=5/h by ip\"]\nalgorithm = \"leaky-bucket\"",
        "limit = [\"a=5/h by ip\"]\nmax-keys = 7",
        "limit = [\"a=5/h by ip\"]\nwhen-full = \"share\"",
    ] {
        let mut it = Reloading::start(&upstream, "reload_anew.toml", first, &[]);
        for _ in 0..3 {
            it.left("/").await;
        }
        it.reload(other);
        assert_eq!(it.left("/").await, "r=4", "{other}");
    }
}

#[tokio::test]
async fn the_statuses_that_a_limit_counts_change_with_a_reload_and_its_keys_stay() {
    let upstream = Upstream::start(hello).await;
    let limit = "limit = [\"a=3/h by ip\"]\n";
    let mut it = Reloading::start(&upstream, "reload_statuses.toml", limit, &[]);
    assert_eq!([it.left("/").await, it.left("/").await], ["r=2", "r=1"]);
    it.reload(&format!("{limit}charge-if = {{ a = \"401\" }}"));
    // Each request takes a token, and its response gives the token back.
    assert_eq!([it.left("/").await, it.left("/").await], ["r=0", "r=0"]);
    it.reload(limit);
    assert_eq!([it.status("/").await, it.status("/").await], [200, 429]);
}

#[tokio::test]
async fn every_algorithm_keeps_what_was_taken_under_a_new_quota() {
    let upstream = Upstream::start(hello).await;
    for algorithm in tollgate::Algorithm::ALL {
        let settings = |quota: &str| format!("limit = [\"a={quota} by ip\"]\nalgorithm = \"{algorithm}\"");
        let mut it = Reloading::start(&upstream, "reload_algorithms.toml", &settings("2/1000d"), &[]);
        let mut before = 0;
        while it.status("/").await == 200 {
            before += 1;
            assert!(before < 9, "{algorithm}");
        }
        it.reload(&settings("3/1000d"));
        let mut after = 0;
        while it.status("/").await == 200 {
            after += 1;
            assert!(after < 9, "{algorithm}");
        }
        assert!(after < 3, "{algorithm}: {before} before, {after} after: the state was forgotten");
    }
}

#[tokio::test]
async fn a_bad_file_changes_nothing_and_is_told() {
    let upstream = Upstream::start(hello).await;
    let path = file("reload_bad.toml", "limit = [\"a=2/h by ip\"]");
    let proxy = Proxy::start(upstream.address, &["--config", &path]);
    assert_eq!(get(proxy.address, "/", "").await.status, 200);
    for (bad, why) in [
        ("limit = [\"a=9/h by ip\"", "reload_bad.toml:1: "),
        ("limit = [\"a=9/h by ip\",\n\"b=ten by ip\"]", "reload_bad.toml:2: --limit 'b=ten by ip': "),
        ("limit = [\"a=9/h by ip\", \"a=9/h by path\"]", "reload_bad.toml:1: --limit: duplicate limit name"),
        (
            "limit = [\"a=9/h burst 20 by ip\"]\nalgorithm = \"fixed-window\"",
            "reload_bad.toml:1: --limit 'a': ",
        ),
        ("limit = [\"a=9/h by ip\"]\nshadow = [\"b\"]", "reload_bad.toml:2: invalid --shadow `b`"),
        ("nonsense = 1", "reload_bad.toml:1: unknown setting `nonsense`"),
    ] {
        fs::write(&path, bad).unwrap();
        proxy.signal("HUP");
        until("it is told", || {
            proxy.said().contains(&format!("nothing is reloaded: {}", why_at(&path, why)))
        });
    }
    fs::remove_file(&path).unwrap();
    proxy.signal("HUP");
    until("it is told", || proxy.said().contains("nothing is reloaded: cannot read the file of --config"));
    // The old limits remain in force and retain their keys.
    assert_eq!(get(proxy.address, "/", "").await.status, 200);
    assert_eq!(get(proxy.address, "/", "").await.status, 429);
    assert_eq!(metric(proxy.metrics, "tollgate_reloads_failed_total").await, 7.0);
    assert_eq!(metric(proxy.metrics, "tollgate_reloads_total").await, 0.0);
}

/// Adds the folder to the file name in a message.
fn why_at(path: &str, why: &str) -> String {
    let folder = path.strip_suffix("reload_bad.toml").unwrap();
    format!("{folder}{why}")
}

#[tokio::test]
async fn what_needs_a_restart_is_named() {
    let upstream = Upstream::start(hello).await;
    let mut it = Reloading::start(&upstream, "reload_restart.toml", "limit = [\"a=5/h by ip\"]", &[]);
    it.reload("limit = [\"a=6/h by ip\"]\nidle-timeout = \"9s\"\ntrust = [\"10.0.0.0/8\"]");
    let said = it.proxy.said();
    for option in ["idle-timeout", "trust"] {
        assert!(said.contains(&format!("{option} has changed, and takes effect when")), "{said}");
    }
    assert!(!said.contains("limit has changed"), "{said}");
    assert!(said.contains("limit a: 6/h by ip"), "{said}");
}

#[tokio::test]
async fn the_access_log_is_opened_again() {
    let upstream = Upstream::start(hello).await;
    let log = file("reload_access.log", "");
    let rotated = format!("{log}.1");
    let _ = fs::remove_file(&rotated);
    let mut it = Reloading::start(&upstream, "reload_log.toml", "", &["--access-log", &log]);
    let lines = |path: &str| fs::read_to_string(path).unwrap_or_default().lines().count();
    assert_eq!(it.status("/one").await, 200);
    until("it is logged", || lines(&log) == 1);
    fs::rename(&log, &rotated).unwrap();
    assert_eq!(it.status("/two").await, 200);
    until("it is logged in the old file", || lines(&rotated) == 2);
    it.reload("");
    assert_eq!(it.status("/three").await, 200);
    until("it is logged in the new file", || lines(&log) == 1);
    assert!(fs::read_to_string(&log).unwrap().contains("GET /three"));
    assert_eq!(lines(&rotated), 2);
}

#[tokio::test]
async fn sigusr1_opens_the_access_log_again_and_reloads_nothing() {
    let upstream = Upstream::start(hello).await;
    let log = file("usr1_access.log", "");
    let rotated = format!("{log}.1");
    let _ = fs::remove_file(&rotated);
    let limits = "limit = [\"a=9/h by ip\"]";
    let it = Reloading::start(&upstream, "usr1.toml", limits, &["--access-log", &log]);
    let lines = |path: &str| fs::read_to_string(path).unwrap_or_default().lines().count();
    assert_eq!(it.left("/one").await, "r=8");
    until("it is logged", || lines(&log) == 1);
    fs::rename(&log, &rotated).unwrap();
    // SIGUSR1 must not read the settings at all.
    fs::write(&it.path, "nonsense").unwrap();
    it.proxy.signal("USR1");
    until("it is told", || it.proxy.said().contains("the access log is opened again"));
    assert_eq!(it.left("/two").await, "r=7");
    until("it is logged in the new file", || lines(&log) == 1);
    assert_eq!(lines(&rotated), 1);
    // If a file cannot be opened, the log must not change.
    fs::rename(&log, &rotated).unwrap();
    fs::create_dir(&log).unwrap();
    it.proxy.signal("USR1");
    until("it is told", || it.proxy.said().contains("the access log is not opened again: "));
    // The folder must be removed before any assertion can fail, because the next run creates a file
    // with the same name.
    fs::remove_dir(&log).unwrap();
    assert!(it.proxy.said().contains("usr1_access.log' cannot be written"), "{}", it.proxy.said());
    assert_eq!(it.left("/three").await, "r=6");
    until("it is logged in the old file", || lines(&rotated) == 2);
}

#[tokio::test]
async fn sigusr1_without_an_access_log_does_not_end_the_proxy() {
    let upstream = Upstream::start(hello).await;
    let proxy = Proxy::start(upstream.address, &[]);
    proxy.signal("USR1");
    proxy.signal("HUP");
    until("it is reloaded", || proxy.said().contains(" INFO reloaded"));
    assert_eq!(get(proxy.address, "/", "").await.status, 200);
}

/// The access log is a pipe that nobody reads yet, so the proxy waits for a reader while it starts.
#[test]
fn a_signal_during_the_start_is_answered_after_it() {
    for (signal, answer) in [("HUP", " INFO reloaded"), ("USR1", " INFO the access log is opened again")] {
        let (state, [pipe, said]) = (state("early_signal"), ["early_pipe", "early_said"].map(scratch));
        assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        let mut proxy = Command::new(env!("CARGO_BIN_EXE_tollgate"))
            .args(["proxy", "--listen", "127.0.0.1:0", "--upstream", "http://127.0.0.1:9"])
            .args(["--limit", "a=1/h by ip", "--access-log", &pipe, "--state"])
            .arg(&state)
            .stderr(fs::File::create(&said).unwrap())
            .spawn()
            .unwrap();
        until("the state is locked", || state.with_extension("lock").exists());
        let id = proxy.id().to_string();
        assert!(Command::new("kill").args([&format!("-{signal}"), &id]).status().unwrap().success());
        let _reader = fs::OpenOptions::new().read(true).write(true).open(&pipe).unwrap();
        until("the signal is answered", || {
            let said = fs::read_to_string(&said).unwrap();
            assert_eq!(proxy.try_wait().unwrap(), None, "{signal}: {said}");
            said.contains(answer)
        });
        proxy.kill().unwrap();
        proxy.wait().unwrap();
    }
}

#[tokio::test]
async fn a_log_that_cannot_be_opened_again_changes_nothing() {
    let upstream = Upstream::start(hello).await;
    let log = file("reload_no_log.log", "");
    let limits = "limit = [\"a=2/h by ip\"]";
    let it = Reloading::start(&upstream, "reload_no_log.toml", limits, &["--access-log", &log]);
    assert_eq!(it.left("/").await, "r=1");
    fs::remove_file(&log).unwrap();
    fs::create_dir_all(&log).unwrap();
    fs::write(&it.path, "limit = [\"a=100/h by ip\", \"b=9/h by ip\"]").unwrap();
    it.proxy.signal("HUP");
    until("it is refused", || it.proxy.said().contains("nothing is reloaded: "));
    // The folder must be removed before any assertion can fail, because the next run creates a file
    // with the same name.
    fs::remove_dir(&log).unwrap();
    assert!(it.proxy.said().contains("reload_no_log.log' cannot be written"), "{}", it.proxy.said());
    assert_eq!((it.left("/").await.as_str(), it.status("/").await), ("r=0", 429));
    let metrics = get(it.proxy.metrics, "/metrics", "").await.body;
    assert!(metrics.contains("limit=\"a\"") && !metrics.contains("limit=\"b\""), "{metrics}");
}

#[tokio::test]
async fn requests_in_progress_are_not_disturbed() {
    let (upstream, go) = super::operation::on_command().await;
    let mut it = Reloading::start(&upstream, "reload_busy.toml", "limit = [\"a=5/h by ip\"]", &[]);
    let mut client = asking(it.proxy.address, b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").await;
    super::wire::metric_is(it.proxy.metrics, "tollgate_requests_in_flight", 1.0).await;
    it.reload("limit = [\"b=5/h by ip\"]");
    go.notify_one();
    super::wire::read_until(&mut client, "at last").await;
}

/// The refused request waits for the store while the limits are reloaded.
#[tokio::test(flavor = "multi_thread")]
async fn a_request_in_progress_keeps_the_fields_of_its_refusal() {
    let upstream = Upstream::start(hello).await;
    let store = Server::start();
    let url = store.url();
    let args = ["--redis", url.as_str(), "--redis-deadline", "50s"];
    let settings =
        |version: &str| format!("limit = [\"a=1/1000d by ip\"]\nrefusal-field = [\"X-Version: {version}\"]");
    let mut it = Reloading::start(&upstream, "reload_refused.toml", &settings("old"), &args);
    super::shared::reaches_its_store(&it.proxy).await;
    assert_eq!(it.status("/").await, 200);
    store.stop();
    let address = it.proxy.address;
    let refused = tokio::spawn(async move { get(address, "/", "").await });
    super::wire::metric_is(it.proxy.metrics, "tollgate_requests_in_flight", 1.0).await;
    it.reload(&settings("new"));
    store.resume();
    let refused = refused.await.unwrap();
    assert_eq!((refused.status, refused.field("x-version")), (429, Some("old")), "{refused:?}");
    assert_eq!(get(address, "/", "").await.field("x-version"), Some("new"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_shared_limit_keeps_what_is_in_the_store() {
    let upstream = Upstream::start(hello).await;
    let store = Server::start();
    let url = store.url();
    let args = ["--redis", url.as_str(), "--redis-deadline", "10s"];
    let mut it = Reloading::start(&upstream, "reload_shared.toml", "limit = [\"a=3/h by ip\"]", &args);
    super::shared::reaches_its_store(&it.proxy).await;
    for _ in 0..3 {
        assert_eq!(it.status("/").await, 200);
    }
    it.reload("limit = [\"a=3/h by ip\"]\nstatus = 503");
    assert_eq!(it.status("/").await, 503);
    it.reload("limit = [\"a=4/h by ip\"]");
    assert_eq!(it.status("/").await, 200);
    assert_eq!(it.status("/").await, 429);
    it.reload("limit = [\"b=1/h by ip\"]");
    assert_eq!(it.status("/").await, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_shared_limit_has_its_new_penalty_and_keeps_what_is_in_the_store() {
    let upstream = Upstream::start(hello).await;
    let store = Server::start();
    let url = store.url();
    let args = ["--redis", url.as_str(), "--redis-deadline", "10s"];
    let mut it = Reloading::start(&upstream, "reload_penalty.toml", "limit = [\"a=3/h by ip\"]", &args);
    super::shared::reaches_its_store(&it.proxy).await;
    for _ in 0..3 {
        assert_eq!(it.status("/").await, 200);
    }
    it.reload("limit = [\"a=3/h by ip then pause 5h\"]");
    let refused = get(it.proxy.address, "/", "").await;
    assert_eq!((refused.status, refused.field("retry-after")), (429, Some("18000")));
}
