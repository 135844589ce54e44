//! Tests `--state`, the file that keeps counts over restarts. [`restarts`](super::restarts) tests
//! it under load.

use super::arguments::refused;
use super::config::file;
use super::running::{Proxy, until};
use super::upstream::{Upstream, hello};
use super::wire::{get, metric, metric_is};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Returns the path of a state file in an empty folder.
pub(crate) fn state(test: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(test);
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).unwrap();
    folder.join("counts")
}

fn start(upstream: &Upstream, state: &Path, args: &[&str]) -> Proxy {
    Proxy::start(upstream.address, &[&["--state", state.to_str().unwrap()], args].concat())
}

fn end(mut proxy: Proxy) -> String {
    proxy.signal("TERM");
    assert!(proxy.ended().success(), "{}", proxy.said());
    proxy.said()
}

async fn statuses<const N: usize>(proxy: &Proxy, keys: [&str; N]) -> [u16; N] {
    let mut statuses = [0; N];
    for (status, key) in statuses.iter_mut().zip(keys) {
        *status = get(proxy.address, "/", &format!("X-Api-Key: {key}\r\n")).await.status;
    }
    statuses
}

#[tokio::test]
async fn a_restart_keeps_the_counts_also_of_limits_that_a_reload_has_added() {
    let (upstream, state) = (Upstream::start(hello).await, state("state_kept"));
    for algorithm in ["token-bucket", "sliding-log"] {
        let _ = fs::remove_file(&state);
        let config = file("state_kept.toml", "limit = 'a=2/d by header x-api-key'");
        let args = ["--algorithm", algorithm, "--config", &config];
        let proxy = start(&upstream, &state, &args);
        assert_eq!(statuses(&proxy, ["k", "k", "k"]).await, [200, 200, 429], "{algorithm}");
        let reloaded = "limit = ['a=2/d by header x-api-key', 'b=3/d by nothing']";
        fs::write(&config, reloaded).unwrap();
        proxy.signal("HUP");
        until("it is reloaded", || proxy.said().contains(" INFO reloaded"));
        assert_eq!(statuses(&proxy, ["k", "j"]).await, [429, 200], "{algorithm}");
        end(proxy);
        let proxy = start(&upstream, &state, &args);
        assert!(!proxy.said().contains("begins"), "{}", proxy.said());
        // `b` has two left, and `j` has one of `a`.
        assert_eq!(statuses(&proxy, ["k", "j", "j", "i", "h"]).await, [429, 200, 429, 200, 429]);
    }
}

#[tokio::test]
async fn what_does_not_continue_is_one_line_each_at_the_start_and_in_a_check() {
    let (upstream, state) = (Upstream::start(hello).await, state("state_changed"));
    let args = ["--limit", "a=1/d by header x-api-key", "--limit", "b=9/d by nothing"];
    let proxy = start(&upstream, &state, &args);
    assert_eq!(statuses(&proxy, ["k"]).await, [200]);
    end(proxy);
    let lines = [
        "limit \"a\" begins without counts: its saved counts are by `header x-api-key`, and it counts by `header \
         x-api-key or ip` now",
        "limit \"c\" begins without counts: the saved state does not contain it",
        "the saved counts of limit \"b\" are dropped: it does not exist any more, or counts no rate in this process",
    ];
    let settings = format!(
        "listen = '127.0.0.1:0'\nupstream = 'http://127.0.0.1:9'\nstate = '{}'\n\
         limit = ['a=1/d by header x-api-key or ip', 'c=9/d by nothing', 'd=8 at once by ip']\n",
        state.display()
    );
    let path = file("state_changed.toml", &settings);
    let checked =
        Command::new(env!("CARGO_BIN_EXE_tollgate")).args(["proxy", "--check", &path]).output().unwrap();
    assert!(checked.status.success());
    let checked = String::from_utf8(checked.stderr).unwrap();
    let own = ["--metrics", "127.0.0.1:0", "--config", &path];
    let proxy = Proxy::spawn(upstream.address, &own);
    for line in lines {
        assert!(proxy.said().contains(&format!(" WARN {line}")), "{line}: {}", proxy.said());
        assert!(checked.contains(&format!(" WARN {line}")), "{line}: {checked}");
    }
}

#[tokio::test]
async fn an_unusable_file_is_moved_aside_with_one_line() {
    let (upstream, state) = (Upstream::start(hello).await, state("state_unusable"));
    let args = ["--limit", "a=1/d by header x-api-key"];
    let proxy = start(&upstream, &state, &args);
    assert_eq!(statuses(&proxy, ["k"]).await, [200]);
    end(proxy);
    let good = fs::read(&state).unwrap();
    let cases: [(&[u8], &str); 3] = [
        (b"", "it is truncated"),
        (&good[..good.len() - 1], "it is truncated"),
        (b"limit = 'a=1/d by ip'", "it does not begin with \"tollgate-http\""),
    ];
    for (bytes, why) in cases {
        fs::write(&state, bytes).unwrap();
        let path = file("state_unusable.toml", &format!("state = '{}'", state.display()));
        let needed = ["--listen", "127.0.0.1:0", "--upstream", "http://127.0.0.1:9"];
        let checked = Command::new(env!("CARGO_BIN_EXE_tollgate"))
            .args([&["proxy", "--check", &path], &needed[..], &args].concat())
            .output()
            .unwrap();
        let said = String::from_utf8(checked.stderr).unwrap();
        assert!(checked.status.success() && said.contains(why) && said.contains("the start would"), "{said}");
        assert_eq!(fs::read(&state).unwrap(), bytes, "a check changes nothing");

        let proxy = start(&upstream, &state, &args);
        let said = proxy.said();
        let lines: Vec<_> = said.lines().filter(|line| line.contains("--state")).collect();
        let aside = format!("{}.unusable", state.display());
        let [line] = lines[..] else { panic!("{said}") };
        assert!(line.contains(why) && line.contains(&format!("it is moved to {aside}")), "{line}");
        assert_eq!(fs::read(aside).unwrap(), bytes);
        assert_eq!(statuses(&proxy, ["k", "k"]).await, [200, 429]);
        end(proxy);
    }
    let proxy = start(&upstream, &state, &args);
    assert_eq!(statuses(&proxy, ["k"]).await, [429]);
}

#[tokio::test]
async fn a_file_in_use_and_a_folder_are_refused() {
    let (upstream, state) = (Upstream::start(hello).await, state("state_used"));
    let args = ["--limit", "a=1/d by header x-api-key"];
    let proxy = start(&upstream, &state, &args);
    let path = state.to_str().unwrap();
    let other = ["--listen", "127.0.0.1:0", "--upstream", "http://127.0.0.1:9", "--state"];
    let said = refused(&[&other[..], &[path]].concat());
    assert!(said.contains(&format!("--state: {path}: another process uses this state")), "{said}");
    // A check must succeed while the proxy runs, and leaves nothing behind.
    let config = file("state_used.toml", &format!("state = '{path}'"));
    let check = [&["proxy", "--check", &config], &other[..4]].concat();
    let status = Command::new(env!("CARGO_BIN_EXE_tollgate")).args(check).output().unwrap().status;
    assert!(status.success());
    let folder = state.parent().unwrap();
    let said = refused(&[&other[..], &[folder.to_str().unwrap()]].concat());
    assert!(said.contains("is not a file: expected the name of a file"), "{said}");
    let said = refused(&[&other[..], &["/nowhere/counts"]].concat());
    assert!(said.contains("--state: /nowhere/counts.lock: No such file"), "{said}");
    end(proxy);
    let names = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name());
    let mut names: Vec<_> = names.collect();
    names.sort();
    assert_eq!(names, ["counts", "counts.lock"]);
}

/// A write would replace a symbolic link, and a lock file that cannot be opened locks nothing.
#[test]
fn a_check_refuses_what_the_start_refuses() {
    let state = state("state_refused");
    let path = state.to_str().unwrap();
    let folder = state.parent().unwrap();
    let args = ["--listen", "127.0.0.1:0", "--upstream", "http://127.0.0.1:9", "--state", path];
    let refuse = |part: &str| {
        for check in [&["--check", &file("state_refused.toml", "")][..], &[]] {
            let said = refused(&[check, &args].concat());
            assert!(said.contains(part), "{check:?}: {said}");
        }
    };
    for target in ["none", "good"] {
        fs::write(folder.join("good"), "").unwrap();
        std::os::unix::fs::symlink(folder.join(target), &state).unwrap();
        refuse("is a symbolic link: expected the name of a file");
        fs::remove_file(&state).unwrap();
    }
    fs::create_dir(folder.join("counts.lock")).unwrap();
    refuse(&format!("--state: {path}.lock: Is a directory"));
}

#[tokio::test]
async fn a_file_that_cannot_be_written_is_one_line_and_a_count() {
    let (upstream, state) = (Upstream::start(hello).await, state("state_unwritable"));
    let proxy = start(&upstream, &state, &["--limit", "a=1/d by header x-api-key"]);
    assert_eq!(statuses(&proxy, ["k"]).await, [200]);
    fs::remove_dir_all(state.parent().unwrap()).unwrap();
    metric_is(proxy.metrics, "tollgate_state_writes_failed_total", 2.0).await;
    let said = proxy.said();
    let failed = format!(" WARN the state cannot be written: {}: No such file", state.display());
    assert_eq!(said.matches(&failed).count(), 1, "{said}");
    fs::create_dir_all(state.parent().unwrap()).unwrap();
    until("it is written", || state.exists() && proxy.said().contains(" INFO the state is written again"));
    assert_eq!(metric(proxy.metrics, "tollgate_state_writes_failed_total").await, 2.0);
}

#[tokio::test]
async fn a_state_that_keeps_nothing_is_a_warning() {
    let (upstream, state) = (Upstream::start(hello).await, state("state_of_nothing"));
    let warning = " WARN --state keeps nothing, because no limit counts a rate in this proxy";
    let rate = ["--limit", "a=9/d by ip"];
    for (args, warns) in [
        (&["--limit", "a=8 at once by ip"][..], true),
        (&[&rate[..], &["--redis", "redis://127.0.0.1:1"]].concat(), true),
        (&rate, false),
        (&[], true),
    ] {
        let said = end(start(&upstream, &state, args));
        assert_eq!(said.contains(warning), warns, "{args:?}: {said}");
    }
}
