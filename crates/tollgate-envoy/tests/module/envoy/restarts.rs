//! Stops Envoy and starts it again. The counts continue from the file of `state`.

use std::fs;
use std::path::Path;
use std::time::SystemTime;

use tokio::task::block_in_place;

use super::client::{Client, from, run, upstream};
use super::process::{Envoy, Front, found, free_port, newest, programs, validated};

/// Returns a listener whose limit admits two requests a day, with this file.
fn front(filter: &str, path: &Path) -> Front {
    Front::new(filter, &format!("limit = [\"a=2/d by ip\"]\nstate = {path:?}"))
}

/// Sends two requests on a new connection, and returns their statuses.
async fn statuses(front: &Front) -> [u16; 2] {
    let mut client = Client::connect(front.port, false).await;
    let mut statuses = [0; 2];
    for status in &mut statuses {
        *status = client.send(from("192.0.2.1")).await.unwrap().status().as_u16();
    }
    statuses
}

/// Waits until a write that began after this call has ended.
fn written(path: &Path) {
    let modified = || fs::metadata(path).and_then(|it| it.modified()).unwrap_or(SystemTime::UNIX_EPOCH);
    // A write that is under way may end first.
    for _ in 0..2 {
        let before = modified();
        found("the counts are written", || (modified() != before).then_some(()));
    }
}

#[test]
#[ignore = "needs Envoy: make envoy"]
fn counts_continue_after_envoy_has_been_stopped() {
    run(async {
        let upstream = upstream().await;
        for program in programs() {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("edge.state");
            let front = front("stopped", &path);
            let fronts = std::slice::from_ref(&front);
            let envoy = Envoy::start(&program, upstream, fronts);
            assert_eq!(statuses(&front).await, [200, 200]);
            let (status, log) = block_in_place(|| envoy.end("TERM"));
            assert!(status.success() && !log.contains("tollgate"), "{status}: {log}");
            let saved = fs::read(&path).unwrap();
            let envoy = Envoy::start(&program, upstream, fronts);
            assert_eq!(statuses(&front).await, [429, 429], "{}", program.display());
            let log = block_in_place(|| validated(&program, &front));
            assert!(!log.contains("edge.state"), "a validation leaves the file to the other Envoy: {log}");
            let (status, log) = block_in_place(|| envoy.end("TERM"));
            assert!(status.success() && !log.contains("tollgate"), "{status}: {log}");
            assert_ne!(fs::read(&path).unwrap(), saved);
            fs::write(&path, "something else").unwrap();
            let log = block_in_place(|| validated(&program, &front));
            assert!(log.contains("edge.state`: the saved state is unusable"), "{log}");
            assert_eq!(fs::read(&path).unwrap(), b"something else", "a validation changes nothing");
            println!("{}: two requests before the restart, and none after it", program.display());
        }
    });
}

#[test]
#[ignore = "needs Envoy: make envoy"]
fn written_counts_continue_after_envoy_has_been_killed() {
    run(async {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("edge.state");
        let front = front("killed", &path);
        let upstream = upstream().await;
        let envoy = Envoy::start(&newest(), upstream, std::slice::from_ref(&front));
        assert_eq!(statuses(&front).await, [200, 200]);
        block_in_place(|| {
            written(&path);
            envoy.end("KILL")
        });
        let _envoy = Envoy::start(&newest(), upstream, std::slice::from_ref(&front));
        assert_eq!(statuses(&front).await, [429, 429]);
    });
}

#[test]
#[ignore = "needs Envoy: make envoy"]
fn a_hot_restart_continues_the_written_counts_and_takes_the_file_over() {
    run(async {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("edge.state");
        let front = front("hot", &path);
        let fronts = std::slice::from_ref(&front);
        let upstream = upstream().await;
        let base = free_port().to_string();
        let args =
            ["--base-id", &base, "--drain-time-s", "1", "--parent-shutdown-time-s", "3", "--restart-epoch"];
        let start =
            |epoch: &str| Envoy::start_with(|envoy| envoy.args(args).arg(epoch), &newest(), upstream, fronts);
        let mut old = start("0");
        assert_eq!(statuses(&front).await, [200, 200]);
        block_in_place(|| written(&path));
        let new = start("1");
        assert_eq!(statuses(&front).await, [429, 429]);
        block_in_place(|| {
            let (status, log) = old.ended();
            assert!(status.success() && !log.contains("tollgate"), "{status}: {log}");
            found("the new process owns the file", || {
                new.log().contains("edge.state` belongs to this process now").then_some(())
            });
        });
        assert_eq!(statuses(&front).await, [429, 429], "this is the new process for sure");
        let used = "edge.state` is in use by another process, as in a hot restart";
        assert!(new.log().contains(used), "{}", new.log());
        let (status, log) = block_in_place(|| new.end("TERM"));
        assert!(status.success() && !log.contains("cannot be written"), "{status}: {log}");
        let _envoy = Envoy::start(&newest(), upstream, fronts);
        assert_eq!(statuses(&front).await, [429, 429]);
    });
}
