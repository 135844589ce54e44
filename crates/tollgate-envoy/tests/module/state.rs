//! Tests that the counts of a filter outlive its last configuration in the file of `state`.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use rustix::fs::{CWD, Mode, mkfifoat};
use tempfile::TempDir;
use tollgate::StateFile;
use tollgate_envoy::hooks::{write_now, write_without_rest};

use crate::host::{Module, get, logged};

/// A folder with a file for `state`.
struct Files {
    folder: TempDir,
}

impl Files {
    fn new() -> Self {
        Self { folder: tempfile::tempdir().unwrap() }
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("edge.state")
    }

    /// Returns a configuration with the file.
    fn config(&self, text: &str) -> String {
        with_state(text, &self.path())
    }

    /// Returns the names of the files in the folder.
    fn names(&self) -> Vec<String> {
        let names = fs::read_dir(self.folder.path()).unwrap();
        let mut names: Vec<String> =
            names.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    fn bytes(&self) -> Vec<u8> {
        fs::read(self.path()).unwrap()
    }
}

fn with_state(text: &str, path: &Path) -> String {
    format!("{text}\nstate = {path:?}")
}

const LIMIT: &str = "limit = [\"a=2/d by ip\"]";

fn status(module: &Module) -> u16 {
    module.serve(&get("/")).status
}

/// Returns the logged lines about a filter, without its name.
fn said(filter: &str) -> Vec<String> {
    let prefix = format!("tollgate: filter {filter}: ");
    let lines = logged(&prefix);
    lines.lines().map(|line| line.strip_prefix(&prefix).unwrap().to_owned()).collect()
}

#[test]
fn counts_continue_when_envoy_starts_again() {
    let limits = "limit = [\"all=9/d by nothing\", \"key=1/d class paid 2/d by ip class by header x-plan\"]\n\
        trust-headers = [\"x-plan\"]";
    for algorithm in ["token-bucket", "sliding-window", "sliding-log"] {
        let files = Files::new();
        let config = files.config(&format!("{limits}\nalgorithm = \"{algorithm}\""));
        let filter = format!("again-{algorithm}");
        let paid = get("/").with("x-plan", "paid");
        let statuses =
            [(get("/"), 200), (paid.clone(), 200), (get("/"), 429), (paid.clone(), 200), (paid, 429)];
        for (asked, expected) in statuses {
            let module = Module::load(&filter, &config).unwrap();
            assert_eq!(module.serve(&asked).status, expected, "{algorithm}");
        }
        let module = Module::load(&filter, &config).unwrap();
        let left = module.serve(&get("/").from("192.0.2.9:80"));
        assert!(left.header("ratelimit").unwrap().starts_with("\"all\";r=5;"), "{algorithm}: {left:?}");
        assert_eq!(said(&filter), [] as [&str; 0], "{algorithm}");
        assert_eq!(files.names(), ["edge.state", "edge.state.lock"]);
    }
}

#[test]
fn the_file_is_written_while_envoy_runs() {
    let files = Files::new();
    let module = Module::load("meanwhile", &files.config(LIMIT)).unwrap();
    assert_eq!([status(&module), status(&module)], [200, 200]);
    let begun = Instant::now();
    while !files.path().exists() {
        assert!(begun.elapsed() < Duration::from_secs(60), "it is never written");
        thread::sleep(Duration::from_millis(50));
    }
    // A killed Envoy leaves such a file.
    let other = files.folder.path().join("other.state");
    fs::copy(files.path(), &other).unwrap();
    let killed = Module::load("after-a-kill", &with_state(LIMIT, &other)).unwrap();
    assert_eq!(status(&killed), 429);
}

#[test]
fn the_file_stays_with_a_filter_whose_configuration_changes() {
    let files = Files::new();
    let load =
        |limits: &str| Module::load("changing", &files.config(&format!("limit = [{limits}]"))).unwrap();
    let first = load("\"a=2/d by ip\", \"b=9/d by ip\"");
    assert_eq!(status(&first), 200);
    let second = load("\"a=3/d by ip\", \"c=9/d by ip\"");
    // The old listener drains, but the file already contains the limits of the new one.
    write_now("changing");
    let copy = files.folder.path().join("copy.state");
    fs::copy(files.path(), &copy).unwrap();
    let copied = Module::load("copied", &with_state("limit = [\"a=3/d by ip\", \"c=9/d by ip\"]", &copy));
    drop(copied.unwrap());
    assert_eq!(said("copied"), [] as [&str; 0]);
    drop(first);
    assert_eq!([status(&second), status(&second), status(&second)], [200, 200, 429]);
    let third = load("\"a=9/d by ip\", \"d=9/d by ip\"");
    assert_eq!(status(&third), 200);
    // Envoy may discard the newest configuration, too.
    drop(third);
    drop(second);
    assert_eq!(said("changing"), [] as [&str; 0]);
    let last = load("\"a=5/d by ip\", \"c=9/d by ip\"");
    assert_eq!(last.serve(&get("/")).header("ratelimit"), Some("\"a\";r=1;t=17280, \"c\";r=6;t=9600"));
    assert_eq!(said("changing"), [] as [&str; 0]);
}

/// Returns the `RateLimit` field of the response to a request.
fn left(module: &Module) -> String {
    module.serve(&get("/")).header("ratelimit").unwrap().to_owned()
}

#[test]
fn listeners_with_different_limits_keep_their_counts_in_one_file() {
    let files = Files::new();
    let listener = |limit: &str| {
        let config = files.config(&format!("limit = [\"{limit}=9/d by ip\"]"));
        Module::load("listeners", &config).unwrap()
    };
    for turn in 1..=8 {
        // Envoy may create and discard its listeners in any order.
        let mut names = ["a", "b"];
        names.rotate_left(turn / 2 % 2);
        let mut listeners = names.map(|name| (name, listener(name)));
        for (name, module) in &listeners {
            let (left, begin) = (left(module), format!("\"{name}\";r={};", 9 - turn));
            assert!(left.starts_with(&begin), "turn {turn}: {left}");
        }
        listeners.rotate_left(turn % 2);
        let [first, second] = listeners;
        drop(first);
        drop(second);
    }
    assert_eq!(said("listeners"), [] as [&str; 0]);
}

#[test]
fn counts_for_a_listener_that_arrives_late_stay_in_the_file() {
    let files = Files::new();
    let both = Module::load("late", &files.config("limit = [\"a=1/d by ip\", \"b=1/d by ip\"]")).unwrap();
    assert_eq!(status(&both), 200);
    drop(both);
    let first = Module::load("late", &files.config("limit = [\"a=1/d by ip\"]")).unwrap();
    write_now("late");
    // A killed Envoy leaves such a file.
    let copy = files.folder.path().join("copy.state");
    fs::copy(files.path(), &copy).unwrap();
    let killed = Module::load("late-copy", &with_state("limit = [\"b=1/d by ip\"]", &copy)).unwrap();
    assert_eq!(status(&killed), 429);
    assert!(Module::load("late", &files.config("limit = [\"b=1/d by ip\", \"b=2/d by ip\"]")).is_err());
    let second = Module::load("late", &files.config("limit = [\"b=1/d by ip\"]")).unwrap();
    assert_eq!([status(&first), status(&second)], [429, 429]);
    drop((first, second));
    // A process may also end before the listener has arrived.
    let load = |limits: &str| Module::load("late", &files.config(&format!("limit = [{limits}]"))).unwrap();
    drop(load("\"a=1/d by ip\""));
    let both = load("\"a=1/d by ip\", \"b=1/d by ip\"");
    assert_eq!(status(&both), 429);
    drop(both);
    assert!(!said("late").iter().any(|line| line.contains("dropped")), "{:?}", said("late"));
    let first = load("\"a=1/d by ip\"");
    write_without_rest("late");
    let said = said("late");
    let dropped: Vec<_> = said.iter().filter(|line| line.contains("dropped")).collect();
    let [line] = &dropped[..] else { panic!("{said:?}") };
    assert!(line.contains("the saved counts of limit \"b\" are dropped"), "{line}");
    drop(first);
    assert_eq!(status(&load("\"b=1/d by ip\"")), 200);
}

#[test]
fn the_counts_in_force_are_those_in_the_file() {
    let files = Files::new();
    let load = |limit: &str| Module::load("keys", &files.config(&format!("limit = [\"{limit}\"]"))).unwrap();
    let kept = load("a=1/d by ip");
    // The newest configuration counts by another key, and Envoy discards it.
    drop(load("a=1/d by ip+path"));
    assert_eq!(status(&kept), 200);
    drop(kept);
    assert_eq!(status(&load("a=1/d by ip")), 429);
}

#[test]
fn each_file_of_a_filter_is_read() {
    let files = [Files::new(), Files::new()];
    for expected in [200, 429] {
        let [a, b] = ["a", "b"].map(|name| format!("limit = [\"{name}=1/d by ip\"]"));
        let a = Module::load("two-files", &files[0].config(&a)).unwrap();
        let b = Module::load("two-files", &files[1].config(&b)).unwrap();
        assert_eq!([status(&a), status(&b)], [expected; 2]);
    }
    assert_eq!(said("two-files"), [] as [&str; 0]);
}

#[test]
fn a_configuration_waits_for_the_last_write_of_its_file() {
    let files = Files::new();
    let config = files.config("limit = [\"a=1/d by header x-key\"]\ntrust-headers = [\"x-key\"]");
    let module = Module::load("handed-over", &config).unwrap();
    let of_key = |key: u32| get("/").with("x-key", &key.to_string());
    // It takes a while to write so many keys.
    (0..30_000).for_each(|key| assert_eq!(module.serve(&of_key(key)).status, 200));
    thread::spawn(move || drop(module)).join().unwrap();
    let next = Module::load("handed-over", &config).unwrap();
    assert_eq!(next.serve(&of_key(0)).status, 429);
    assert_eq!(said("handed-over"), [] as [&str; 0]);
}

#[test]
fn limits_that_do_not_continue_are_in_the_log() {
    let files = Files::new();
    drop(Module::load("renamed", &files.config("limit = [\"a=2/d by ip\", \"b=2/d by ip\"]")).unwrap());
    assert_eq!(said("renamed"), [] as [&str; 0]);
    let config = files.config("limit = [\"a=2/d by ip+path\", \"c=2/d by ip\"]");
    let renamed = Module::load("renamed", &config).unwrap();
    write_without_rest("renamed");
    drop(renamed);
    let said = said("renamed");
    for (line, begin) in said.iter().zip([
        "limit \"a\" begins without counts: its saved counts are by `ip`",
        "limit \"c\"",
        "",
    ]) {
        assert!(line.starts_with(begin), "{said:?}");
    }
    assert!(said.len() == 3 && said[2].contains("\"b\""), "{said:?}");
}

#[test]
fn counts_in_force_are_newer_than_those_of_a_file() {
    let files = Files::new();
    drop(Module::load("newer", &files.config(LIMIT)).unwrap());
    let without = Module::load("newer", LIMIT).unwrap();
    assert_eq!([status(&without), status(&without)], [200, 200]);
    let with = Module::load("newer", &files.config("limit = [\"a=2/d by ip\", \"b=9/d by ip\"]")).unwrap();
    drop(without);
    assert_eq!(status(&with), 429);
    assert_eq!(said("newer"), [] as [&str; 0]);
    drop(with);
    assert_eq!(status(&Module::load("newer", &files.config(LIMIT)).unwrap()), 429);
}

type Make = fn(&str, &str) -> Result<Module, String>;

#[test]
fn a_file_belongs_to_one_filter() {
    let files = Files::new();
    let folder = files.folder.path();
    let beside = folder.join("same");
    std::os::unix::fs::symlink(folder, &beside).unwrap();
    let path = files.path();
    let refusal = format!(
        "the configuration is refused: state `{}` is the file of the filter owner: expected a file \
         for each filter_name",
        fs::canonicalize(folder).unwrap().join("edge.state").display()
    );
    for (turn, make) in [Module::load as Make, Module::validate].into_iter().enumerate() {
        let owner = make("owner", &files.config(LIMIT)).unwrap();
        let same = make("owner", &files.config(LIMIT)).unwrap();
        for (spelling, path) in
            [path.clone(), folder.join("./edge.state"), beside.join("edge.state")].iter().enumerate()
        {
            let other = format!("other-{turn}-{spelling}");
            let said =
                make(&other, &with_state(LIMIT, path)).err().unwrap_or_else(|| panic!("{path:?} is taken"));
            assert!(said.contains(&refusal), "{said}");
        }
        drop((owner, same));
    }
    drop(Module::load("next-owner", &files.config(LIMIT)).unwrap());
}

#[test]
fn a_refused_configuration_leaves_the_file_to_the_next_one() {
    let files = Files::new();
    let used = Module::load("corrected", &files.config(LIMIT)).unwrap();
    assert_eq!([status(&used), status(&used)], [200, 200]);
    drop(used);
    let before = files.bytes();
    assert!(Module::load("corrected", &files.config("limit = [\"a=2/d by ip\", \"a=3/d by ip\"]")).is_err());
    assert_eq!(files.bytes(), before);
    assert_eq!(status(&Module::load("corrected", &files.config(LIMIT)).unwrap()), 429);
}

#[test]
fn a_new_process_takes_the_file_over_when_the_old_one_has_ended() {
    let files = Files::new();
    drop(Module::load("hot", &files.config(LIMIT)).map(|module| assert_eq!(status(&module), 200)));
    // This test plays the old process, which drains.
    let old = StateFile::open(files.path()).unwrap();
    let before = files.bytes();
    let new = Module::load("hot", &files.config(LIMIT)).unwrap();
    assert_eq!([status(&new), status(&new)], [200, 429], "the counts of the last write continue");
    (0..2).for_each(|_| write_now("hot"));
    assert_eq!(files.bytes(), before, "the old process owns the file");
    old.write(|file| file.write_all(&before)).unwrap();
    drop(old);
    write_now("hot");
    assert_ne!(files.bytes(), before);
    assert!(StateFile::open(files.path()).is_err(), "the new process owns the file");
    drop(new);
    assert_eq!(status(&Module::load("hot", &files.config(LIMIT)).unwrap()), 429);
    let said = said("hot");
    let [used, owned] = &said[..] else { panic!("{said:?}") };
    assert!(used.contains("is in use by another process, as in a hot restart"), "{used}");
    assert!(owned.ends_with("belongs to this process now"), "{owned}");
}

#[test]
fn the_last_write_takes_the_file_over_as_well() {
    let files = Files::new();
    let old = StateFile::open(files.path()).unwrap();
    let new = Module::load("short", &files.config(LIMIT)).unwrap();
    assert_eq!([status(&new), status(&new)], [200, 200]);
    drop(old);
    drop(new);
    assert_eq!(status(&Module::load("short", &files.config(LIMIT)).unwrap()), 429);
}

#[test]
fn an_unusable_file_is_moved_aside() {
    let files = Files::new();
    fs::write(files.path(), "something else").unwrap();
    let module = Module::load("unusable", &files.config(LIMIT)).unwrap();
    assert_eq!(files.names(), ["edge.state.lock", "edge.state.unusable"]);
    assert_eq!([status(&module), status(&module)], [200, 200]);
    drop(module);
    assert_eq!(fs::read(files.folder.path().join("edge.state.unusable")).unwrap(), b"something else");
    assert_eq!(status(&Module::load("unusable", &files.config(LIMIT)).unwrap()), 429);
    let said = said("unusable");
    let [why, aside] = &said[..] else { panic!("{said:?}") };
    assert!(
        why.contains("it does not begin with \"tollgate-http\"")
            && why.ends_with("all limits begin without counts")
    );
    assert!(aside.contains("is moved aside to `") && aside.ends_with("edge.state.unusable`"), "{aside}");
}

/// The counts in the file may be good. A name that is too long is an error for root as well.
#[test]
fn a_file_that_cannot_be_read_or_replaced_is_refused() {
    let files = Files::new();
    let (file, link) = (files.folder.path().join("file"), files.folder.path().join("link"));
    fs::write(&file, "").unwrap();
    std::os::unix::fs::symlink(&file, &link).unwrap();
    for make in [Module::load as Make, Module::validate] {
        let refused = make("linked", &with_state(LIMIT, &link)).err().unwrap_or_default();
        assert!(refused.contains("is a symbolic link: expected the name of a file"), "{refused}");
    }
    let path = files.folder.path().join("s".repeat(300));
    let refused = Module::load("unread", &with_state(LIMIT, &path)).err().unwrap_or_default();
    assert!(
        refused.contains("cannot be read: ") && refused.contains("let Envoy's user read it"),
        "{refused}"
    );
}

#[test]
fn an_unusable_file_of_another_process_stays_until_that_process_has_ended() {
    for (filter, vanishes) in [("downgraded", false), ("vanished", true)] {
        let files = Files::new();
        fs::write(files.path(), "of a newer version").unwrap();
        let old = StateFile::open(files.path()).unwrap();
        let module = Module::load(filter, &files.config(LIMIT)).unwrap();
        write_now(filter);
        assert_eq!(files.names(), ["edge.state", "edge.state.lock"]);
        if vanishes {
            fs::remove_file(files.path()).unwrap();
        }
        drop(old);
        write_now(filter);
        let aside = (!vanishes).then_some("edge.state.unusable");
        let names: Vec<&str> = ["edge.state", "edge.state.lock"].into_iter().chain(aside).collect();
        assert_eq!(files.names(), names);
        assert_eq!(status(&module), 200);
    }
}

#[test]
fn a_file_that_cannot_be_written_is_in_the_log_once() {
    let files = Files::new();
    let folder = files.folder.path().join("later");
    let path = folder.join("edge.state");
    let module = Module::load("full-disk", &with_state(LIMIT, &path)).unwrap();
    assert_eq!([status(&module), status(&module), status(&module)], [200, 200, 429]);
    let failures = || said("full-disk").iter().filter(|line| line.contains("cannot be written")).count();
    for turn in 1..3 {
        (0..3).for_each(|_| write_now("full-disk"));
        assert_eq!(failures(), turn);
        fs::create_dir(&folder).unwrap();
        (0..3).for_each(|_| write_now("full-disk"));
        assert!(path.exists());
        assert_eq!(failures(), turn);
        fs::remove_dir_all(&folder).unwrap();
    }
    drop(module);
    assert_eq!(failures(), 3, "the last write is also in the log");
    let said = said("full-disk");
    assert!(said[0].ends_with("a restart would lose the counts since the last write"), "{said:?}");
    assert!(said[1].ends_with("is written again"), "{said:?}");
}

/// Returns a configuration whose thread hangs in its next write, as if the disk did not answer.
fn hanging(files: &Files, filter: &str) -> (Module, String) {
    let folder = files.folder.path().join(filter);
    let config = with_state(LIMIT, &folder.join("edge.state"));
    let module = Module::load(filter, &config).unwrap();
    fs::create_dir(&folder).unwrap();
    // Nobody reads from this pipe, so nobody can open it for writing. A command could not create
    // it: a new process briefly holds the locks of this one, which all tests share.
    mkfifoat(CWD, folder.join("edge.state.lock"), Mode::RWXU).unwrap();
    let filter = filter.to_owned();
    thread::spawn(move || write_now(&filter));
    (module, config)
}

#[test]
fn no_worker_waits_for_the_disk_and_the_main_thread_not_for_ever() {
    let files = Files::new();
    let (module, config) = hanging(&files, "hanging");
    let begun = Instant::now();
    let newer = Module::load("hanging", &config).unwrap();
    assert_eq!([status(&newer), status(&module), status(&newer)], [200, 200, 429]);
    drop(module);
    thread::spawn(move || drop(newer)).join().unwrap();
    assert!(begun.elapsed() < Duration::from_secs(8), "a worker has waited");
    assert_eq!(said("hanging").len(), 1, "{:?}", said("hanging"));
    drop(hanging(&files, "hanging-main"));
    let said = said("hanging-main");
    assert!(
        said[1].ends_with("is not written after 10s, and the counts since the last write may be lost"),
        "{said:?}"
    );
}

#[test]
fn a_validation_writes_nothing() {
    let files = Files::new();
    drop(Module::validate("validated", &files.config(LIMIT)).unwrap());
    assert_eq!(files.names(), [] as [&str; 0]);
    fs::write(files.path(), "something else").unwrap();
    drop(Module::validate("validated", &files.config(LIMIT)).unwrap());
    assert_eq!(files.names(), ["edge.state"]);
    assert_eq!(files.bytes(), b"something else");
    assert!(said("validated")[0].contains("it does not begin with"), "{:?}", said("validated"));
}

#[test]
fn a_file_in_a_file_is_relative_to_its_folder() {
    let files = Files::new();
    let settings = files.folder.path().join("limits.toml");
    fs::write(&settings, format!("{LIMIT}\nstate = \"edge.state\"")).unwrap();
    drop(Module::load("relative", &format!("file = {settings:?}")).unwrap());
    assert_eq!(files.names(), ["edge.state", "edge.state.lock", "limits.toml"]);
}

#[test]
fn a_file_that_keeps_nothing_is_warned_of() {
    let files = Files::new();
    let at_once = files.config(
        "limit = [\"a=8 at once class p unlimited by ip class by header x\"]\ntrust-headers = [\"x\"]",
    );
    drop(Module::load("useless", &at_once).unwrap());
    assert!(said("useless")[0].starts_with("state keeps nothing, because no limit counts a rate"));
    let of_class = files
        .config("limit = [\"a=8 at once class p 9/h by ip class by header x\"]\ntrust-headers = [\"x\"]");
    drop(Module::load("useful", &of_class).unwrap());
    assert!(!logged("filter useful").contains("keeps nothing"));
}
