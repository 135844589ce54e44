//! Reads the quotas of individual keys from a CSV file. Each line is one record: a value for each
//! field of the key, followed by the key's limit.
//!
//! A value must equal the value in the log byte by byte. It may be `-`, empty, or invalid UTF-8.
//! Paths and addresses are converted before the comparison, both here and in the log: a path to the
//! form in which it is counted or to its template, and an IPv6 address to its whole network.

use std::collections::HashMap;
use std::io;

use foldhash::fast::RandomState;
use tollgate::Quota;

use super::input::Input;
use crate::failure::Failure;
use crate::limit::parse_limit;
use crate::printable::{cut, printable};
use crate::replay::log::csv::LineReader;
use crate::replay::log::key::{KeyShape, KeyWriter};
use crate::replay::log::lines::{Line, Lines, MAX_LINE};
use crate::replay::log::schema::Wanted;

/// The maximum length of a limit in bytes. A longer limit would only fill the screen with its error
/// message.
const LONGEST_LIMIT: usize = 100;

/// The maximum number of a value's characters that a message shows.
const SHOWN: usize = 40;

/// The quotas in one file.
pub(crate) struct KeyQuotas {
    input: Input,
    /// The quotas in the order of their lines.
    pub(crate) quotas: Vec<KeyQuota>,
}

/// A key that has its own quota.
pub(crate) struct KeyQuota {
    pub(crate) key: Box<[u8]>,
    pub(crate) quota: Quota,
    line: u64,
}

/// Reads a file's records, and stores the keys of the records read so far.
struct QuotaRecords<'r> {
    input: &'r Input,
    /// The names of the key's fields.
    fields: &'r [String],
    line: LineReader,
    record: csv::ByteRecord,
    writer: KeyWriter,
    quotas: Vec<KeyQuota>,
    /// The line of each key.
    lines: HashMap<Box<[u8]>, u64, RandomState>,
}

impl KeyQuotas {
    /// Reads the quotas. `wanted` defines the fields of a key.
    ///
    /// # Errors
    ///
    /// Returns an error if the file cannot be read, if a line does not consist of these fields and
    /// a limit, or if a key occurs twice.
    pub(crate) fn read(input: &Input, wanted: &Wanted) -> Result<Self, Failure> {
        let unreadable = |error: io::Error| Failure::reading(input, &error);
        let mut lines = Lines::new(input.open()?);
        let mut records = QuotaRecords {
            input,
            fields: &wanted.key,
            line: LineReader::new(),
            record: csv::ByteRecord::new(),
            writer: KeyWriter::new(wanted),
            quotas: Vec::new(),
            lines: HashMap::default(),
        };
        let mut number = 0;
        while let Some(line) = lines.next_line().map_err(unreadable)? {
            number += 1;
            match line {
                Line::Text(text) if text.trim_ascii().is_empty() || text.starts_with(b"#") => {}
                Line::Text(text) => records.take(number, text)?,
                Line::TooLong => {
                    let found = format!("it is longer than {MAX_LINE} bytes");
                    return Err(records.no_record(number, &found));
                }
            }
        }
        Ok(Self { input: input.clone(), quotas: records.quotas })
    }

    /// Returns the file's name, safe to print.
    pub(crate) fn name(&self) -> String {
        self.input.to_string()
    }

    /// Returns the file and the line of this quota, for messages.
    pub(crate) fn place(&self, own: &KeyQuota) -> String {
        place(&self.input, own.line)
    }
}

impl QuotaRecords<'_> {
    /// Adds the record of a line.
    fn take(&mut self, line: u64, text: &[u8]) -> Result<(), Failure> {
        self.line.read(text, &mut self.record).map_err(|reason| self.no_record(line, &reason))?;
        let found = self.record.len();
        if found != self.fields.len() + 1 {
            let values = if found == 1 { "value" } else { "values" };
            return Err(self.no_record(line, &format!("it has {found} {values}")));
        }
        let mut values = self.record.iter();
        let limit = values.next_back().unwrap_or_default();
        let mut key = Vec::new();
        self.writer.write(&mut key, values);
        let quota = self.quota(line, limit)?;
        if let Some(earlier) = self.lines.insert(key.clone().into(), line) {
            let shown = KeyShape::new(self.fields.len()).show(&key);
            return Err(Failure::refused(format!(
                "{}: the key {} already has a quota from line {earlier}: expected one for each key",
                place(self.input, line),
                cut(&shown, SHOWN),
            )));
        }
        self.quotas.push(KeyQuota { key: key.into(), quota, line });
        Ok(())
    }

    fn quota(&self, line: u64, limit: &[u8]) -> Result<Quota, Failure> {
        let place = place(self.input, line);
        match str::from_utf8(limit) {
            Ok(limit) if limit.len() <= LONGEST_LIMIT => parse_limit(limit, place),
            unfit => {
                let why = if unfit.is_ok() { "is too long" } else { "is not UTF-8" };
                let shown = printable(limit);
                Err(Failure::refused(format!(
                    "{place}: invalid limit `{}`, which {why}: expected a quota such as 100/s, 5/10s or \
                     1000/h burst 50",
                    cut(&shown, SHOWN),
                )))
            }
        }
    }

    /// Returns the error for a line that is not a valid record.
    fn no_record(&self, line: u64, found: &str) -> Failure {
        let place = place(self.input, line);
        let fields = printable(self.fields.join("+").as_bytes());
        let values = match self.fields.len() {
            1 => "2 values, the key's and the limit".to_owned(),
            fields => {
                format!("{} values, one for each of the key's {fields} fields and the limit", fields + 1)
            }
        };
        Failure::refused(format!(
            "{place}: {found}; expected {values}, with commas between them and a value that has commas in double \
             quotes (--key {fields})"
        ))
    }
}

/// `--quotas quotas.csv:7`
fn place(input: &Input, line: u64) -> String {
    format!("--quotas {input}:{line}")
}
