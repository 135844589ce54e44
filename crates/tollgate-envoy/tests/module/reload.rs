//! Tests configurations that replace each other, and configurations that are in use at the same
//! time.

use std::fs::OpenOptions;
use std::io::Write;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

use rustix::fs::{CWD, Mode, mkfifoat};

use crate::host::{Answer, Module, get, logged};

fn ask(module: &Module) -> Answer {
    module.serve(&get("/"))
}

#[test]
fn a_limit_of_the_same_name_keeps_its_keys_across_a_reload() {
    let before = Module::load("kept", "limit = [\"a=2/h by ip\", \"gone=9/h by ip\"]").unwrap();
    assert_eq!(ask(&before).status, 200);
    let after = Module::load("kept", "limit = [\"new=9/h by ip\", \"a=2/h by ip\"]").unwrap();
    drop(before);
    assert_eq!(ask(&after).header("ratelimit"), Some("\"new\";r=8;t=400, \"a\";r=0;t=1800"));
    assert_eq!(ask(&after).status, 429);
    assert_eq!(logged("filter kept"), "");
}

#[test]
fn the_newest_quota_counts_and_a_throttled_client_stays_throttled() {
    let before = Module::load(
        "quota",
        "limit = [\"a=2/h class p 1/d by ip class by header x-p\"]\ntrust-headers = [\"x-p\"]",
    )
    .unwrap();
    assert_eq!([ask(&before).status, ask(&before).status, ask(&before).status], [200, 200, 429]);
    let paid = get("/").with("x-p", "p");
    assert_eq!(before.serve(&paid).status, 200);
    let after = Module::load(
        "quota",
        "limit = [\"a=4/h burst 2 class p 2/d by ip class by header x-p\"]\ntrust-headers = [\"x-p\"]",
    )
    .unwrap();
    // Both tokens have been charged. With the new quota, the first token refills sooner.
    let refused = ask(&after);
    assert_eq!(refused.status, 429);
    assert_eq!(refused.header("retry-after"), Some("900"));
    // The old listener uses the new quota while it drains.
    assert_eq!(ask(&before).header("retry-after"), refused.header("retry-after"));
    assert!(after.serve(&paid).header("ratelimit").is_some());
    assert_eq!(logged("filter quota"), "tollgate: filter quota, limit a: keeps its keys, with a new quota");
}

#[test]
fn another_key_or_algorithm_begins_anew_and_the_log_says_which() {
    let first = Module::load("anew", "limit = [\"a=1/h by ip\", \"b=9/h by ip\"]").unwrap();
    assert_eq!([ask(&first).status, ask(&first).status], [200, 429]);
    for (config, lines) in [
        (
            "limit = [\"a=1/h by ip+method\", \"b=9/h by ip\"]",
            vec!["limit a: all keys begin anew, because its key has changed"],
        ),
        (
            "limit = [\"a=1/h by ip\", \"b=9/h by ip\"]\nalgorithm = \"sliding-window\"",
            vec![
                "limit a: all keys begin anew, because the algorithm has changed",
                "limit b: all keys begin anew, because the algorithm has changed",
            ],
        ),
        (
            "limit = [\"a=1/h by ip\", \"b=9/h by ip\"]\nmax-keys = 5",
            vec![
                "limit a: all keys begin anew, because max-keys or when-full has changed",
                "limit b: all keys begin anew, because max-keys or when-full has changed",
            ],
        ),
        (
            "limit = [\"a=1/h class p 9/h by ip class by header x-p\", \"b=9/h by ip\"]\ntrust-headers = [\"x-p\"]",
            vec!["limit a: all keys begin anew, because the number of its classes has changed"],
        ),
        (
            "limit = [\"a=1/h by ip+method\", \"b=9 at once by ip\"]",
            vec![
                "limit a: all keys begin anew, because its key has changed",
                "limit b: all keys begin anew, because its kind of quota has changed",
            ],
        ),
        (
            "limit = [\"a=1/h by ip then pause 10min\", \"b=9/h by ip\"]",
            vec!["limit a: all keys begin anew, because its penalty has changed"],
        ),
        (
            "limit = [\"a=1/h and 8 at once by ip\", \"b=9/h by ip\"]",
            vec![
                "limit a-per-h: all keys begin anew, because its rates or its requests at once have changed",
                "limit a-at-once: all keys begin anew, because its rates or its requests at once have changed",
            ],
        ),
    ] {
        let before = logged("filter anew");
        let changed = Module::load("anew", config).unwrap();
        assert_eq!([ask(&changed).status, ask(&changed).status], [200, 429], "{config}");
        let now = logged("filter anew");
        let expected: Vec<String> = lines.iter().map(|it| format!("tollgate: filter anew, {it}")).collect();
        assert_eq!(now[before.len()..].trim(), expected.join("\n"), "{config}");
        drop(changed);
    }
    assert_eq!(ask(&first).status, 429);
}

#[test]
fn a_configuration_that_is_discarded_takes_its_quota_with_it() {
    let used = Module::load("discarded", "limit = [\"a=2/h by ip\"]").unwrap();
    assert_eq!([ask(&used).status, ask(&used).status], [200, 200]);
    drop(Module::load("discarded", "limit = [\"a=100/h by ip\"]").unwrap());
    let refused = ask(&used);
    assert_eq!((refused.status, refused.header("retry-after")), (429, Some("1800")));
}

#[test]
fn no_older_quota_is_in_force_when_a_configuration_is_discarded() {
    let oldest = Module::load("draining", "limit = [\"a=10/h by ip\"]").unwrap();
    let older = Module::load("draining", "limit = [\"a=10/h by ip\"]").unwrap();
    let newest = Module::load("draining", "limit = [\"a=100/h by ip\"]").unwrap();
    for _ in 0..60 {
        assert_eq!(ask(&newest).status, 200);
    }
    drop(oldest);
    assert_eq!(ask(&newest).header("ratelimit"), Some("\"a\";r=39;t=36"));
    drop(older);
    assert_eq!(ask(&newest).header("ratelimit"), Some("\"a\";r=38;t=36"));
}

#[test]
fn only_classes_that_change_begin_anew_and_the_log_names_them() {
    let load = |limit: &str| {
        let config = format!("limit = [\"a={limit} by ip class by header x-p\"]\ntrust-headers = [\"x-p\"]");
        Module::load("classes", &config).unwrap()
    };
    let status = |module: &Module, class| module.serve(&get("/").with("x-p", class)).status;
    let first = load("1/h class p 1/h class q 1/h");
    for class in ["none", "p", "q"] {
        assert_eq!([status(&first, class), status(&first, class)], [200, 429], "{class}");
    }
    let second = load("blocked class p 1/h class q unlimited");
    assert_eq!(["none", "p", "q"].map(|class| status(&second, class)), [403, 429, 200]);
    let third = load("blocked class p 1/h class q unlimited class r 1/h");
    assert_eq!(["none", "p", "q"].map(|class| status(&third, class)), [403, 200, 200]);
    let lines = [
        "the keys of class default, q begin anew, because its kind of quota has changed",
        "the keys of class p begin anew, because the number of its classes has changed",
    ];
    let expected = lines.map(|it| format!("tollgate: filter classes, limit a: {it}"));
    assert_eq!(logged("filter classes").trim(), expected.join("\n"));
}

#[test]
fn filters_of_one_name_share_a_limit_and_those_of_another_do_not() {
    let config = "limit = [\"a=2/h by ip\"]";
    let [one, two] = [(); 2].map(|()| Module::load("shared", config).unwrap());
    let other = Module::load("not-shared", config).unwrap();
    assert_eq!(
        [ask(&one).status, ask(&two).status, ask(&one).status, ask(&two).status],
        [200, 200, 429, 429]
    );
    assert_eq!(ask(&other).status, 200);
    drop((one, two));
    assert_eq!(ask(&Module::load("shared", config).unwrap()).status, 200, "it ended with its last filter");
}

#[test]
fn a_refused_configuration_changes_nothing() {
    let module = Module::load("stays", "limit = [\"a=1/h by ip\"]").unwrap();
    assert_eq!(ask(&module).status, 200);
    assert!(Module::load("stays", "limit = [\"a=5/h by ip\", \"a=6/h by ip\"]").is_err());
    assert!(
        Module::load("stays", "limit = [\"a=5/h by ip\", \"b=5/h by header x known /nowhere\"]").is_err()
    );
    assert_eq!(ask(&module).header("retry-after"), Some("3600"));
}

#[test]
fn a_worker_waits_for_no_file_that_a_new_configuration_reads() {
    let folder = tempfile::tempdir().unwrap();
    let pipe = folder.path().join("keys.txt");
    mkfifoat(CWD, &pipe, Mode::RWXU).unwrap();
    let discarded = Module::load("released", "limit = [\"a=1/h by ip\"]").unwrap();
    let config = format!("limit = [\"a=1/h by header x-key known {} or ip\"]", pipe.display());
    let loading = thread::spawn(move || Module::load("reading", &config).map(drop));
    // The pipe opens when the configuration begins to read it.
    let mut keys = OpenOptions::new().write(true).open(&pipe).unwrap();
    let (done, is_done) = channel::<()>();
    thread::spawn(move || {
        drop(discarded);
        drop(done);
    });
    let released = is_done.recv_timeout(Duration::from_secs(10));
    keys.write_all(b"k1\n").unwrap();
    drop(keys);
    loading.join().unwrap().unwrap();
    assert_eq!(released, Err(RecvTimeoutError::Disconnected), "the worker has waited");
}
