//! Writes every decision as a line of CSV, for other programs to check or plot.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;

use tollgate::Decision;

use super::Failure;
use super::key::KeyShape;
use super::keys::KeyId;
use super::trial::Place;

/// A CSV file with one row per request: `line,key,allowed,remaining,retry_after_ns`, behind a column
/// `file` if there are several.
pub(crate) struct Decisions {
    csv: csv::Writer<Box<dyn Write>>,
    /// For messages.
    name: String,
    /// The inputs' names, if rows begin with one.
    files: Option<Vec<String>>,
    shape: KeyShape,
    last_key: Option<(KeyId, String)>,
    number: Vec<u8>,
}

impl Decisions {
    /// Creates the file, or takes standard output for `-`, and writes the header.
    pub(crate) fn create(path: &Path, files: Vec<String>, shape: KeyShape) -> Result<Self, Failure> {
        let (name, sink): (String, Box<dyn Write>) = if path == Path::new("-") {
            ("standard output".into(), Box::new(io::stdout()))
        } else {
            let name = path.display().to_string();
            let file = File::create(path).map_err(|error| Failure::writing(&name, &error))?;
            (name, Box::new(file))
        };
        let sink: Box<dyn Write> = Box::new(BufWriter::with_capacity(1 << 16, sink));
        let mut decisions = Self {
            csv: csv::Writer::from_writer(sink),
            name,
            files: (files.len() > 1).then_some(files),
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
        place: Place,
        id: KeyId,
        key: &[u8],
        decision: &Decision,
    ) -> Result<(), Failure> {
        let written = self.write_row(place, id, key, decision);
        self.done(written)
    }

    fn write_row(&mut self, place: Place, id: KeyId, key: &[u8], decision: &Decision) -> csv::Result<()> {
        if let Some(files) = &self.files {
            self.csv.write_field(&files[place.file])?;
        }
        self.write_number(u128::from(place.line))?;
        // Requests of one client often stand together.
        let shown = match self.last_key.take() {
            Some((last, shown)) if last == id => shown,
            _ => self.shape.show(key),
        };
        self.csv.write_field(&shown)?;
        self.last_key = Some((id, shown));
        self.csv.write_field(if decision.allowed() { "true" } else { "false" })?;
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

    /// Writes out what is buffered.
    pub(crate) fn finish(mut self) -> Result<(), Failure> {
        let written = self.csv.flush();
        written.map_err(|error| Failure::writing(&self.name, &error))
    }

    fn done(&self, written: csv::Result<()>) -> Result<(), Failure> {
        written.map_err(|error| match error.into_kind() {
            csv::ErrorKind::Io(error) => Failure::writing(&self.name, &error),
            other => Failure::refused(format!("cannot write to {}: {other:?}", self.name)),
        })
    }
}
