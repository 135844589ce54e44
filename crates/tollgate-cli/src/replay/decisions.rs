//! Writes every decision as a line of CSV, for other programs to check or plot.

mod identity;
mod sink;

use std::io::{self, Write};
use std::path::Path;

use tollgate::Decision;

use super::input::Input;
use super::keys::KeyId;
use super::position::Position;
use crate::failure::Failure;
use crate::printable::printable_path;
use crate::replay::log::key::KeyShape;
use sink::Sink;

const BUFFER: usize = 1 << 16;

/// A CSV file with one row per request: `line,key,allowed,remaining,retry_after_ns`, after a column
/// `file` if there are several logs.
pub(crate) struct Decisions {
    csv: csv::Writer<Sink>,
    /// The file's name, for messages; `None` is standard output.
    name: Option<String>,
    /// The inputs' names, if rows begin with one.
    files: Option<Vec<String>>,
    shape: KeyShape,
    last_key: Option<(KeyId, String)>,
    number: Vec<u8>,
}

impl Decisions {
    /// Opens the file, or standard output for `-`, and writes the header. Refuses to overwrite an
    /// input or the file of `--quotas`.
    pub(crate) fn create(
        path: &Path,
        inputs: &[Input],
        key_quotas: Option<&Input>,
        shape: KeyShape,
    ) -> Result<Self, Failure> {
        let sink = Sink::open(path, inputs, key_quotas)?;
        let mut decisions = Self {
            name: (!matches!(sink, Sink::Stdout(_))).then(|| printable_path(path)),
            csv: csv::WriterBuilder::new().buffer_capacity(BUFFER).from_writer(sink),
            files: (inputs.len() > 1).then(|| inputs.iter().map(Input::to_string).collect()),
            shape,
            last_key: None,
            number: Vec::new(),
        };
        let header = ["file", "line", "key", "allowed", "remaining", "retry_after_ns"];
        let header = &header[usize::from(decisions.files.is_none())..];
        let written = decisions.csv.write_record(header);
        decisions.done(written)?;
        Ok(decisions)
    }

    pub(crate) fn write(
        &mut self,
        position: Position,
        id: KeyId,
        key: &[u8],
        decision: &Decision,
    ) -> Result<(), Failure> {
        let written = self.write_row(position, id, key, decision);
        self.done(written)
    }

    fn write_row(
        &mut self,
        position: Position,
        id: KeyId,
        key: &[u8],
        decision: &Decision,
    ) -> csv::Result<()> {
        if let Some(files) = &self.files {
            self.csv.write_field(&files[position.file])?;
        }
        self.write_number(u128::from(position.line))?;
        // Requests of one client are often adjacent.
        let shown = match self.last_key.take() {
            Some((last, shown)) if last == id => shown,
            _ => self.shape.show(key),
        };
        self.csv.write_field(&shown)?;
        self.last_key = Some((id, shown));
        self.csv.write_field(if decision.is_allowed() { "true" } else { "false" })?;
        self.write_number(u128::from(decision.remaining()))?;
        match decision.retry_after() {
            Some(wait) => self.write_number(wait.as_nanos())?,
            None => self.csv.write_field("")?,
        }
        self.csv.write_record(None::<&[u8]>)
    }

    fn write_number(&mut self, number: u128) -> csv::Result<()> {
        self.number.clear();
        write!(self.number, "{number}")?;
        self.csv.write_field(&self.number)
    }

    /// Writes out what is buffered. A file appears under its name only now.
    pub(crate) fn finish(self) -> Result<(), Failure> {
        let Self { csv, name, .. } = self;
        let written = csv.into_inner().map_err(csv::IntoInnerError::into_error).and_then(Sink::finish);
        written.map_err(|error| failure(name.as_deref(), &error))
    }

    fn done(&self, written: csv::Result<()>) -> Result<(), Failure> {
        written.map_err(|error| {
            // The csv crate's own conversion would hide the kind of the error.
            let error = match error.into_kind() {
                csv::ErrorKind::Io(error) => error,
                other => io::Error::other(format!("{other:?}")),
            };
            failure(self.name.as_deref(), &error)
        })
    }
}

fn failure(name: Option<&str>, error: &io::Error) -> Failure {
    match name {
        Some(name) => Failure::writing(name, error),
        None => Failure::writing_stdout(error),
    }
}
