//! Runs the program for tests with given arguments and input, and returns its report or its error
//! message.

use serde::Deserialize;
use serde_json::Value;
use std::fs;
use std::io::Write;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};

pub(crate) const LOG: &str = "tests/data/access.log";

pub(crate) fn command(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tollgate"));
    command.arg("replay").args(args);
    command
}

/// Starts a replay whose standard input, output and error are pipes.
pub(crate) fn started(args: &[&str]) -> Child {
    command(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program was built")
}

/// Runs a replay with `input` as its standard input.
pub(crate) fn replay_stdin(args: &[&str], input: &[u8]) -> Output {
    run_stdin(&[&["replay"], args].concat(), input)
}

/// Runs the program with `input` as its standard input.
pub(crate) fn run_stdin(args: &[&str], input: &[u8]) -> Output {
    let mut child = Command::new(env!("CARGO_BIN_EXE_tollgate"))
        .args(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program was built");
    let mut stdin = child.stdin.take().expect("it is a pipe");
    let input = input.to_vec();
    // A write error is ignored, because the program may refuse its arguments before it has read all
    // input.
    let feeder = std::thread::spawn(move || drop(stdin.write_all(&input)));
    let output = child.wait_with_output().expect("it ends");
    feeder.join().expect("feeding does not panic");
    output
}

pub(crate) fn replay(args: &[&str]) -> Output {
    replay_stdin(args, b"")
}

/// Returns the output of a run that must succeed without writing to standard error.
#[track_caller]
pub(crate) fn text(output: &Output) -> String {
    let complaint = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && complaint.is_empty(), "{}: {complaint}", output.status);
    String::from_utf8(output.stdout.clone()).expect("reports are UTF-8")
}

/// Returns the error message of a run that the program must refuse without writing to standard
/// output.
#[track_caller]
pub(crate) fn refusal(output: &Output) -> String {
    let message = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(2), "{message}");
    assert!(message.starts_with("tollgate: "), "{message}");
    assert_eq!(String::from_utf8_lossy(&output.stdout), "");
    message
}

/// Returns the text report of a replay of this log.
#[track_caller]
pub(crate) fn text_of(args: &[&str], log: &(impl AsRef<[u8]> + ?Sized)) -> String {
    text(&replay_stdin(args, log.as_ref()))
}

/// Returns the JSON report of a replay of this log.
#[track_caller]
pub(crate) fn json_of(args: &[&str], log: &(impl AsRef<[u8]> + ?Sized)) -> Value {
    json(&replay_stdin(&[args, &["--format", "json"]].concat(), log.as_ref()))
}

/// Returns the error message of a replay of this log that the program must refuse.
#[track_caller]
pub(crate) fn refusal_of(args: &[&str], log: &(impl AsRef<[u8]> + ?Sized)) -> String {
    refusal(&replay_stdin(args, log.as_ref()))
}

/// A row of `--decisions`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub(crate) struct Decision {
    pub(crate) line: usize,
    pub(crate) key: String,
    pub(crate) allowed: bool,
    pub(crate) remaining: Option<u64>,
    pub(crate) retry_after_ns: Option<u64>,
    pub(crate) refused_by: String,
    pub(crate) outcome: String,
}

/// Returns the decisions on the requests of one log.
#[track_caller]
pub(crate) fn decided(args: &[&str], input: &[u8]) -> Vec<Decision> {
    let rows = text(&replay_stdin(&[args, &["--decisions", "-"]].concat(), input));
    let rows: Result<_, csv::Error> = csv::Reader::from_reader(rows.as_bytes()).deserialize().collect();
    rows.expect("each row is a decision")
}

#[track_caller]
pub(crate) fn json(output: &Output) -> Value {
    serde_json::from_str(&text(output)).expect("the report is JSON")
}

/// Returns a directory for one test.
pub(crate) fn scratch(test: &str) -> PathBuf {
    let directory = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(test);
    fs::create_dir_all(&directory).expect("the target directory can be written");
    directory
}

pub(crate) fn log() -> String {
    fs::read_to_string(LOG).expect("the log is there")
}

/// Returns a line of standard output as Kubernetes writes it: in parts, the last of which has the
/// tag `F`.
pub(crate) fn cri(line: &str) -> String {
    let parts: Vec<&[u8]> = line.as_bytes().chunks(16_384).collect();
    let part = |(index, part): (usize, &&[u8])| {
        let tag = if index + 1 == parts.len() { "F" } else { "P" };
        format!("2016-10-06T00:17:09.6Z stdout {tag} {}\n", str::from_utf8(part).expect("ASCII"))
    };
    parts.iter().enumerate().map(part).collect()
}
