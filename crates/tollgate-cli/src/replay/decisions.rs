//! Writes every decision as a line of CSV, so that other programs can check or plot it.

mod identity;
pub(crate) mod sink;

use std::io;
use std::path::{Path, PathBuf};

use serde::Serialize;
use tollgate::Decision;

use super::engine::{Answer, Engine};
use super::input::Input;
use super::keys::KeyId;
use super::position::Position;
use crate::failure::Failure;
use sink::{ReadFiles, Sink};

const BUFFER: usize = 1 << 16;

const COLUMNS: [&str; 8] =
    ["file", "line", "key", "allowed", "remaining", "retry_after_ns", "refused_by", "outcome"];

/// A CSV file with one row per request. With several logs, the first column is `file`.
pub(crate) struct Decisions {
    csv: csv::Writer<Sink>,
    path: PathBuf,
    /// The names of the inputs, if each row starts with an input's name.
    files: Option<Vec<String>>,
    /// The last shown key, with its limit and its id.
    last_key: Option<(usize, KeyId, String)>,
}

/// The values of [`COLUMNS`].
#[derive(Serialize)]
struct DecisionRow<'r> {
    #[serde(skip_serializing_if = "Option::is_none")]
    file: Option<&'r str>,
    line: u64,
    key: &'r str,
    allowed: bool,
    remaining: Option<u64>,
    retry_after_ns: Option<u128>,
    refused_by: &'r str,
    outcome: &'r str,
}

impl Decisions {
    /// Opens the file, or standard output for `-`, and writes the header. Returns an error if the
    /// file is one of the `read` files. If `is_only_output` is not set, rows that nobody reads from
    /// standard output are dropped without an error.
    pub(crate) fn create(
        path: &Path,
        inputs: &[Input],
        read: &ReadFiles<'_>,
        is_only_output: bool,
    ) -> Result<Self, Failure> {
        let mut sink = Sink::open("--decisions", path, read)?;
        sink.needs_reader = is_only_output || path != Path::new("-");
        let mut decisions = Self {
            path: path.to_owned(),
            csv: csv::WriterBuilder::new().has_headers(false).buffer_capacity(BUFFER).from_writer(sink),
            files: (inputs.len() > 1).then(|| inputs.iter().map(Input::to_string).collect()),
            last_key: None,
        };
        let first = usize::from(decisions.files.is_none());
        let written = decisions.csv.write_record(&COLUMNS[first..]);
        written.map_err(|error| failure(&decisions.path, error))?;
        Ok(decisions)
    }

    /// Writes the answer to a request, which the engine has just given. The key, the remaining
    /// tokens and the time are those of the limit that refused the request or, if it passed, of the
    /// limit with the fewest tokens left.
    pub(crate) fn write(
        &mut self,
        position: Position,
        engine: &Engine,
        answer: &Answer,
    ) -> Result<(), Failure> {
        let Self { csv, path, files, last_key } = self;
        // Adjacent requests often have the same key, so the last key's printed form is kept for
        // reuse.
        if let Some(by) = answer.by
            && last_key.as_ref().is_none_or(|(limit, id, _)| (*limit, *id) != (by.limit, by.id))
        {
            *last_key = Some((by.limit, by.id, engine.shown(&by)));
        }
        let decision = engine.decision(answer);
        let refusing = answer.by.filter(|_| !answer.passes()).map(|by| &engine.limits[by.limit]);
        let row = DecisionRow {
            file: files.as_ref().map(|files| &*files[position.file]),
            line: position.line,
            key: last_key.as_ref().filter(|_| answer.by.is_some()).map_or("", |(.., shown)| shown),
            allowed: answer.passes(),
            remaining: decision.map(Decision::remaining),
            retry_after_ns: decision.and_then(Decision::retry_after).map(|wait| wait.as_nanos()),
            refused_by: refusing.map_or("", |limit| &limit.part.name),
            outcome: answer.outcome.unwrap_or_default(),
        };
        csv.serialize(row).map_err(|error| failure(path, error))
    }

    /// Flushes the buffered rows. A file does not appear under its name before this call.
    pub(crate) fn finish(self) -> Result<(), Failure> {
        let Self { csv, path, .. } = self;
        let written = csv.into_inner().map_err(csv::IntoInnerError::into_error).and_then(Sink::finish);
        written.map_err(|error| failure(&path, error.into()))
    }
}

fn failure(path: &Path, error: csv::Error) -> Failure {
    // The csv crate's own conversion would hide the kind of the error.
    let error = match error.into_kind() {
        csv::ErrorKind::Io(error) => error,
        other => io::Error::other(format!("{other:?}")),
    };
    sink::failure(path, &error)
}
