//! Reads CSV whose first line names the columns.
//!
//! A record is exactly one line. A quoted field may contain commas and doubled quotes, but no line
//! break, so a stray quote spoils only its own line and not the rest of the log.

use csv_core::ReadRecordResult;

use super::formats::Format;
use super::key::NamedValues;
use super::request::{Reason, Record};
use super::schema::{Unopened, Wanted, unknown_field};
use crate::printable::{listed, printable};

/// Reads the records of one CSV log.
pub(crate) struct CsvRecords {
    line: LineReader,
    record: csv::ByteRecord,
    width: usize,
    /// The indices of the columns that [`Wanted::columns`] lists: the time, the bytes if they are
    /// needed, and the key's fields.
    columns: Vec<usize>,
    pub(crate) values: NamedValues,
}

impl CsvRecords {
    /// # Errors
    ///
    /// Returns an error if the first line is not CSV, or if a required column is missing.
    pub(crate) fn open(first: &[u8], wanted: &Wanted) -> Result<Self, Unopened> {
        let mut line = LineReader::new();
        let mut header = csv::ByteRecord::new();
        line.read(first, &mut header).map_err(Unopened::NotARecord)?;
        header.trim();
        let find = |name: &String| {
            let found = header.iter().position(|known| known == name.as_bytes());
            found.ok_or_else(|| unknown_field(name, Format::Csv, header.iter()))
        };
        let columns = wanted.columns().iter().map(find).collect::<Result<_, _>>()?;
        Ok(Self {
            line,
            record: csv::ByteRecord::new(),
            width: header.len(),
            columns,
            values: NamedValues::new(wanted, wanted.unit),
        })
    }

    pub(crate) fn read(&mut self, line: &[u8], key: &mut Vec<u8>) -> Result<Record, Reason> {
        self.line.read(line, &mut self.record)?;
        let found = self.record.len();
        if found != self.width {
            return Err(format!("it has {found} fields, the header has {}", self.width).into());
        }
        self.values.read(self.columns.iter().map(|&column| &self.record[column]), key)
    }
}

/// Checks whether a line of unknown format is a CSV header, that is, a list of names that includes
/// `time`, the name of the time column. Returns `None` if the line does not look like a header. If
/// the line looks like a header but lacks the time column, returns the reason as an error.
pub(crate) fn recognise_header(line: &[u8], time: &str) -> Option<Result<(), Reason>> {
    let mut names = csv::ByteRecord::new();
    LineReader::new().read(line, &mut names).ok()?;
    names.trim();
    if !looks_like_a_header(&names) {
        return None;
    }
    Some(match names.iter().any(|name| name == time.as_bytes()) {
        true => Ok(()),
        false => Err(format!(
            "as a CSV header it has no column '{}' but {} (--fields maps names)",
            printable(time.as_bytes()),
            listed(names.iter()),
        )
        .into()),
    })
}

/// Returns whether these strings look like names, which distinguishes a header from a damaged line
/// in another format.
fn looks_like_a_header(names: &csv::ByteRecord) -> bool {
    let is_name = |name: &[u8]| {
        name.first().is_some_and(|byte| byte.is_ascii_alphabetic() || *byte == b'_')
            && name.iter().all(|byte| byte.is_ascii_alphanumeric() || b"_-. $()".contains(byte))
    };
    // Prose also contains commas, but its clauses are longer than names.
    let is_short = |name: &[u8]| name.len() <= 40 && name.split(|&byte| byte == b' ').count() <= 3;
    names.len() >= 2 && names.iter().all(|name| is_name(name) && is_short(name))
}

/// Reads lines as records.
pub(crate) struct LineReader {
    reader: csv_core::Reader,
    /// The fields of a line without their quotes, and the end of each field.
    text: Vec<u8>,
    ends: Vec<usize>,
}

impl LineReader {
    pub(crate) fn new() -> Self {
        // The line end has already been removed. A carriage return inside a line does not end a
        // record.
        let reader = csv_core::ReaderBuilder::new().terminator(csv_core::Terminator::Any(b'\n')).build();
        Self { reader, text: Vec::new(), ends: Vec::new() }
    }

    /// Reads a line as one record.
    pub(crate) fn read(&mut self, line: &[u8], record: &mut csv::ByteRecord) -> Result<(), Reason> {
        if line.trim_ascii().is_empty() {
            return Err("it is empty".into());
        }
        let Self { reader, text, ends } = self;
        // Each byte of the line is at most one byte of a field, or ends a field.
        text.resize(line.len() + 1, 0);
        ends.resize(line.len() + 1, 0);
        let (result, _, length, fields) = reader.read_record(line, text, ends);
        let is_open = result == ReadRecordResult::InputEmpty;
        let (result, _, _, rest) = reader.read_record(b"\n", &mut text[length..], &mut ends[fields..]);
        if !is_open || result != ReadRecordResult::Record {
            reader.reset();
            return Err("a quoted field does not end on its line".into());
        }
        record.clear();
        let mut start = 0;
        for &end in &ends[..fields + rest] {
            record.push_field(&text[start..end]);
            start = end;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::replay::log::key::KeyShape;
    use crate::replay::log::schema::Cost;
    use crate::replay::log::schema::tests::wanted;

    const HEADER: &[u8] = b"time,ip,\"user agent\",bytes";

    fn open(key: &[&str]) -> CsvRecords {
        CsvRecords::open(HEADER, &wanted(key, Cost::Bytes)).expect("it has these columns")
    }

    fn read(records: &mut CsvRecords, line: &str) -> Result<(u64, u64, String), Reason> {
        let mut key = Vec::new();
        let request = records.read(line.as_bytes(), &mut key)?;
        let shape = KeyShape::new(records.values.writer.missing().len());
        Ok((request.at.as_nanos(), request.cost, shape.show(&key)))
    }

    /// The time, the cost and the printed key, or part of the expected error message.
    type Expected = Result<(u64, u64, &'static str), &'static str>;

    #[test]
    fn records_are_read_also_after_bad_ones() {
        let table: &[(&str, Expected)] = &[
            ("1,192.0.2.1,agent,5", Ok((1_000_000_000, 5, "192.0.2.1 + agent"))),
            ("1.5,h,\"a, \"\"b\"\"\",-", Ok((1_500_000_000, 0, "h + a, \"b\""))),
            ("1,h,\"never closed,5", Err("does not end")),
            ("1,h,5\" disk,5", Ok((1_000_000_000, 5, "h + 5\" disk"))),
            ("1,h,a\rb,5", Ok((1_000_000_000, 5, "h + a\\rb"))),
            ("", Err("empty")),
            ("1,h", Err("2 fields, the header has 4")),
            ("1,h,a,b,c,5", Err("6 fields, the header has 4")),
            ("then,h,a,5", Err("RFC 3339")),
            ("1,h,a,five", Err("bytes")),
            ("\"1970-01-01T00:00:01Z\",,,", Ok((1_000_000_000, 0, "\"\" + \"\""))),
        ];
        let mut records = open(&["ip", "user agent"]);
        for &(line, ref expected) in table {
            match (read(&mut records, line), expected) {
                (Ok((nanos, cost, shown)), &Ok(expected)) => {
                    assert_eq!((nanos, cost, shown.as_str()), expected, "{line}");
                }
                (Err(reason), Err(part)) => assert!(reason.contains(part), "{line}: {reason}"),
                (found, _) => panic!("{line}: {found:?}"),
            }
        }
    }

    #[test]
    fn a_long_line_is_one_record() {
        let agent = "x".repeat(100_000);
        let found = read(&mut open(&["user agent"]), &format!("1,h,{agent},5"));
        assert_eq!(found, Ok((1_000_000_000, 5, agent)));
    }
}
