//! Tests that `tollgate replay --against` finds the same differences as two separate replays.

#[cfg(feature = "proxy")]
use crate::program::refusal_of;
use crate::program::{LOG, decided, json_of, log, text_of};
use serde_json::Value;
use std::collections::BTreeMap;

/// Returns a replay's decisions by line.
fn decisions(args: &[&str]) -> BTreeMap<usize, bool> {
    let rows = decided(&[&[LOG], args].concat(), b"");
    rows.into_iter().map(|row| (row.line, row.allowed)).collect()
}

/// The numbers of newly refused and newly passed requests, by name.
type Counts = BTreeMap<String, [u64; 2]>;

/// Compares two replays. Returns the number of unchanged decisions, and the changes by address and
/// by minute.
fn changes(before: &[&str], after: &[&str]) -> (u64, Counts, Counts) {
    let text = log();
    let lines: Vec<&str> = text.lines().collect();
    let (before, after) = (decisions(before), decisions(after));
    assert_eq!(before.len(), after.len());
    let (mut same, mut clients, mut minutes) = (0, BTreeMap::new(), BTreeMap::new());
    for (line, passes) in after {
        if before[&line] == passes {
            same += 1;
            continue;
        }
        let text = lines[line - 1];
        let ip = text.split(' ').next().expect("an address");
        let ip = match ip.rsplit_once("::") {
            Some((network, _)) => format!("{network}::/64"),
            None => ip.to_owned(),
        };
        let minute = text.split(':').skip_while(|part| !part.ends_with("2025")).nth(2).expect("a time");
        clients.entry(ip).or_insert([0, 0])[usize::from(passes)] += 1;
        minutes.entry(minute.to_owned()).or_insert([0, 0])[usize::from(passes)] += 1;
    }
    (same, clients, minutes)
}

fn rows(report: &Value, list: &str, name: &str) -> BTreeMap<String, [u64; 2]> {
    let rows = report["changes"][list].as_array().expect("rows").iter();
    let number = |row: &Value, part: &str| row[part].as_u64().expect("a number");
    let row = |row: &Value| {
        (
            row[name].as_str().expect("a name").to_owned(),
            [number(row, "newly_refused"), number(row, "newly_passed")],
        )
    };
    rows.map(row).collect()
}

fn the_changes_are_those_of_two_replays(before: &[&str], after: &[&str], against: &[&str]) -> Value {
    let report = json_of(&[&[LOG], after, against].concat(), "");
    let (same, clients, minutes) = changes(before, after);
    assert!(!clients.is_empty(), "limits that decide alike compare little");
    assert_eq!(report["changes"]["same"], same);
    assert_eq!(rows(&report, "top_changed", "name"), clients);
    assert_eq!(report["changes"]["seconds_per_row"], 60);
    let by_minute = rows(&report, "timeline", "start")
        .into_iter()
        .map(|(start, counts)| (start.get(14..16).expect("minutes").to_owned(), counts));
    assert_eq!(by_minute.collect::<BTreeMap<_, _>>(), minutes);
    let total = |part: usize| clients.values().map(|counts| counts[part]).sum::<u64>();
    let newly = ["newly_refused", "newly_passed"].map(|part| report["changes"][part].as_u64());
    assert_eq!(newly, [Some(total(0)), Some(total(1))]);
    report
}

#[test]
fn another_quota_changes_what_two_replays_decide_differently() {
    let (before, after) = (["--limit", "20/min burst 20"], ["--limit", "30/min burst 10"]);
    the_changes_are_those_of_two_replays(&before, &after, &["--against", "20/min burst 20"]);
    let sorted = |limit: [&'static str; 2], algorithm: &'static str| {
        [&limit[..], &["--sort", "-a", algorithm]].concat()
    };
    the_changes_are_those_of_two_replays(
        &sorted(["--limit", "7/10s"], "sliding-log"),
        &sorted(["--limit", "20/min"], "sliding-log"),
        &["--against", "7/10s"],
    );
    let alike = json_of(&[LOG, "--limit", "9/min", "--against", "9/min"], "");
    assert_eq!((&alike["changes"]["same"], &alike["changes"]["clients_changed"]), (&323.into(), &0.into()));
}

const LIMITS: [&str; 4] =
    ["--limit", "a=30/min burst 10 by ip", "--limit", "logins=5/min by ip for POST /login"];

#[test]
fn other_limits_change_what_two_replays_decide_differently() {
    let before = ["--limit", "a=20/min burst 20 by ip"];
    let report = the_changes_are_those_of_two_replays(&before, &LIMITS, &["--against", before[1]]);
    let by_limit = rows(&report, "limits", "name");
    assert_eq!(by_limit.keys().collect::<Vec<_>>(), ["a", "logins"]);
    let shown = text_of(&[&[LOG], &LIMITS[..], &["--against", before[1]]].concat(), "");
    assert!(shown.contains("\nWhat changes against a=20/min burst 20 by ip\n"), "{shown}");
    assert!(shown.contains("\nChanges by the limit that refuses\n"), "{shown}");
}

#[cfg(feature = "proxy")]
#[test]
fn the_file_of_a_proxy_is_compared_with_all_its_settings() {
    let file = crate::program::scratch("replay_against").join("old.toml");
    std::fs::write(
        &file,
        "limit = [\"a=5/min by ip\"]\nalgorithm = \"fixed-window\"\nexcept = [\"from 203.0.113.0/24\"]\n",
    )
    .expect("a file");
    let path = file.to_str().expect("UTF-8");
    let before = ["--config", path];
    let report = the_changes_are_those_of_two_replays(&before, &LIMITS, &["--against-config", path]);
    assert_eq!(report["changes"]["against"], path);
    // Both limits are read from files, as before a reload.
    let alike = json_of(&[LOG, "--config", path, "--against-config", path], "");
    assert_eq!(
        (&alike["changes"]["newly_refused"], &alike["changes"]["newly_passed"]),
        (&0.into(), &0.into())
    );
    let mixed = json_of(&[LOG, "--limit", "5/s", "--against-config", path], "");
    assert_eq!(mixed["changes"]["against"], path);
}

/// Both files set `limit`, in different lines.
#[cfg(feature = "proxy")]
#[test]
fn an_error_names_the_file_that_contains_the_limit() {
    let directory = crate::program::scratch("replay_against_errors");
    let file = |name: &str, text: &str| {
        let path = directory.join(name);
        std::fs::write(&path, text).expect("a file");
        path.into_os_string().into_string().expect("UTF-8")
    };
    let good = "limit = [\"a=5/min by ip\"]\n";
    let unenforced =
        "\nlimit = [\n\"c=5/min by ip\",\n\"b=9/s burst 99 by ip\"]\nalgorithm = \"fixed-window\"\n";
    let lacking = "\n\nlimit = [\"b=9/s by header x-key\"]\n";
    let good = file("good.toml", good);
    for (text, old, new) in [
        (unenforced, "old.toml:4: --against-config: --limit 'b': ", "new.toml:4: --limit 'b': "),
        (lacking, "old.toml:3: --limit 'b' needs the header `x-key`", "new.toml:3: --limit 'b' needs "),
        ("limit = 5\nlimit = 6\n", "old.toml:2: `limit = 6` is no setting", "new.toml:2: `limit = 6` is no "),
    ] {
        let message = refusal_of(&[LOG, "--config", &good, "--against-config", &file("old.toml", text)], "");
        assert!(message.contains(old) && !message.contains("good.toml"), "{message}");
        let message = refusal_of(&[LOG, "--config", &file("new.toml", text), "--against-config", &good], "");
        assert!(message.contains(new) && !message.contains("good.toml"), "{message}");
    }
    let message = refusal_of(&[LOG, "--config", &good, "--against", "b=9/s by header x-key"], "");
    assert!(message.contains("--limit 'b' needs the header") && !message.contains(".toml"), "{message}");
    for option in ["--config", "--against-config"] {
        let message = refusal_of(&[&[LOG, option, "/nowhere/a.toml"], &LIMITS[..]].concat(), "");
        let part = format!("cannot read the file of {option}, /nowhere/a.toml: ");
        assert!(message.contains(&part), "{message}");
    }
}

/// Control characters in a client's name are escaped.
#[test]
fn a_client_of_a_change_is_printable() {
    let log = b"time,ip\n1,\x1b[2J\n1,\x1b[2J\n";
    let shown = text_of(&["--limit", "1/h", "--against", "9/h"], log);
    assert!(shown.contains("\\u{1b}[2J") && !shown.contains('\u{1b}'), "{shown}");
}
