//! Reads the quotas of individual keys from a CSV file. Each line is one record: a value for each
//! field of the key, followed by the key's limit.
//!
//! A value must equal the value in the log byte by byte. It may be `-`, empty, or invalid UTF-8.
//! Paths and addresses are converted before the comparison, both here and in the log: a path to the
//! form in which it is counted or to its template, and an IPv6 address to its whole network.

use std::collections::HashMap;

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

impl KeyQuotas {
    /// Reads the quotas. `wanted` defines the fields of a key.
    ///
    /// # Errors
    ///
    /// Returns an error if the file cannot be read, if a line does not consist of these fields and
    /// a limit, or if a key occurs twice.
    pub(crate) fn read(input: &Input, wanted: &Wanted) -> Result<Self, Failure> {
        let fields = &wanted.key;
        let mut lines = Lines::new(input.open()?);
        let mut writer = KeyWriter::new(wanted);
        let (mut reader, mut record) = (LineReader::new(), csv::ByteRecord::new());
        let mut quotas: Vec<KeyQuota> = Vec::new();
        let mut line_of: HashMap<Box<[u8]>, u64, RandomState> = HashMap::default();
        let mut line = 0;
        while let Some(text) = lines.next_line().map_err(|error| Failure::reading(input, &error))? {
            line += 1;
            let place = place(input, line);
            let read = match text {
                Line::Text(text) if text.trim_ascii().is_empty() || text.starts_with(b"#") => continue,
                Line::Text(text) => reader.read(text, &mut record),
                Line::TooLong => Err(format!("it is longer than {MAX_LINE} bytes").into()),
            };
            let read = read.and_then(|()| match record.len() {
                found if found == fields.len() + 1 => Ok(()),
                1 => Err("it has 1 value".into()),
                found => Err(format!("it has {found} values").into()),
            });
            read.map_err(|found| no_record(&place, &found, fields))?;
            let mut values = record.iter();
            let limit = values.next_back().unwrap_or_default();
            let mut key = Vec::new();
            writer.write(&mut key, values);
            let quota = quota(limit, &place)?;
            if let Some(earlier) = line_of.insert(key.clone().into(), line) {
                let shown = KeyShape::new(fields.len()).show(&key);
                return Err(Failure::refused(format!(
                    "{place}: the key {} already has a quota from line {earlier}: expected one for each key",
                    cut(&shown, SHOWN),
                )));
            }
            quotas.push(KeyQuota { key: key.into(), quota, line });
        }
        Ok(Self { input: input.clone(), quotas })
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

fn quota(limit: &[u8], place: &str) -> Result<Quota, Failure> {
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
fn no_record(place: &str, found: &str, fields: &[String]) -> Failure {
    let values = match fields.len() {
        1 => "2 values, the key's and the limit".to_owned(),
        fields => format!("{} values, one for each of the key's {fields} fields and the limit", fields + 1),
    };
    Failure::refused(format!(
        "{place}: {found}; expected {values}, with commas between them and a value that has commas in double \
         quotes (--key {})",
        printable(fields.join("+").as_bytes())
    ))
}

/// `--quotas quotas.csv:7`
fn place(input: &Input, line: u64) -> String {
    format!("--quotas {input}:{line}")
}
