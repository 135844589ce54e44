//! Writes CSV rows. Each row starts with the position of a request in the logs.

use std::io::{self, Write};
use std::path::Path;

use super::sink::{ReadFiles, Sink};
use crate::failure::Failure;
use crate::printable::printable_path;
use crate::replay::input::Input;
use crate::replay::position::Position;

const BUFFER: usize = 1 << 16;

/// A CSV file with one row per request. The first columns are `file`, present only with several
/// logs, and `line`.
pub(crate) struct Rows {
    csv: csv::Writer<Sink>,
    /// The file's name for messages, or `None` for standard output.
    name: Option<String>,
    /// The names of the inputs, if each row starts with an input's name.
    files: Option<Vec<String>>,
    number: Vec<u8>,
}

impl Rows {
    /// Opens the file, or standard output for `-`, and writes the header. Returns an error if the
    /// file is one of the `read` files. If `is_only_output` is not set, rows that nobody reads from
    /// standard output are dropped without an error.
    pub(crate) fn create(
        path: &Path,
        inputs: &[Input],
        read: &ReadFiles<'_>,
        is_only_output: bool,
        columns: &[&str],
    ) -> Result<Self, Failure> {
        let mut sink = Sink::open("--decisions", path, read)?;
        if let Sink::Stdout { needs_reader, .. } = &mut sink {
            *needs_reader = is_only_output;
        }
        let mut rows = Self {
            name: (!matches!(sink, Sink::Stdout { .. })).then(|| printable_path(path)),
            csv: csv::WriterBuilder::new().buffer_capacity(BUFFER).from_writer(sink),
            files: (inputs.len() > 1).then(|| inputs.iter().map(Input::to_string).collect()),
            number: Vec::new(),
        };
        let place = if rows.files.is_some() { &["file", "line"][..] } else { &["line"] };
        let written = rows.csv.write_record(place.iter().chain(columns));
        rows.done(written)?;
        Ok(rows)
    }

    /// Writes the row for a request. The closure `values` writes the columns after the position.
    pub(crate) fn write(
        &mut self,
        position: Position,
        values: impl FnOnce(&mut Self) -> csv::Result<()>,
    ) -> Result<(), Failure> {
        let written = self.row(position, values);
        self.done(written)
    }

    fn row(
        &mut self,
        position: Position,
        values: impl FnOnce(&mut Self) -> csv::Result<()>,
    ) -> csv::Result<()> {
        if let Some(files) = &self.files {
            self.csv.write_field(&files[position.file])?;
        }
        self.number(u128::from(position.line))?;
        values(self)?;
        self.csv.write_record(None::<&[u8]>)
    }

    pub(crate) fn text(&mut self, text: &str) -> csv::Result<()> {
        self.csv.write_field(text)
    }

    /// Writes a number, or an empty value.
    pub(crate) fn optional(&mut self, number: Option<u128>) -> csv::Result<()> {
        match number {
            Some(number) => self.number(number),
            None => self.text(""),
        }
    }

    fn number(&mut self, number: u128) -> csv::Result<()> {
        self.number.clear();
        write!(self.number, "{number}")?;
        self.csv.write_field(&self.number)
    }

    /// Flushes the buffered rows. A file does not appear under its name before this call.
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
