//! Turns lines of any format into requests: the time, the key and the cost.

use super::clf::{ClfLine, ClfRecords};
use super::csv::{self, CsvRecords};
use super::json::JsonRecords;
use super::request::{Reason, Request};
use super::schema::{Format, Unopened, Wanted};

/// Reads the records of one log.
pub enum Records {
    Clf(ClfRecords),
    Json(JsonRecords),
    Csv(Box<CsvRecords>),
}

impl Records {
    /// Opens a log by its first line. For CSV that is the header; for the others it is a record
    /// too.
    pub fn open(first: &[u8], format: Option<Format>, wanted: &Wanted) -> Result<(Format, Self), Unopened> {
        let format = match format {
            Some(format) => format,
            None => recognise(first, wanted).map_err(Unopened::NotARecord)?,
        };
        let records = match format {
            Format::Common | Format::Combined if !wanted.names.is_empty() => {
                let message = format!("--fields maps names of JSON and CSV logs; this log is {format}");
                return Err(Unopened::Refused(message));
            }
            Format::Common | Format::Combined => Self::Clf(ClfRecords::open(format, wanted)?),
            Format::Json => Self::Json(JsonRecords::open(first, wanted)?),
            Format::Csv => Self::Csv(Box::new(CsvRecords::open(first, wanted)?)),
        };
        Ok((format, records))
    }

    /// Returns, for each field of the key, how many requests had no value of it.
    pub(crate) fn missing(&self) -> &[u64] {
        match self {
            Self::Clf(records) => records.writer.missing(),
            Self::Json(records) => records.writer.missing(),
            Self::Csv(records) => records.writer.missing(),
        }
    }

    /// Reads one line, and writes its key into `key`, which is empty.
    #[inline]
    pub fn read(&mut self, line: &[u8], key: &mut Vec<u8>) -> Result<Request, Reason> {
        match self {
            Self::Clf(records) => records.read(line, key),
            Self::Json(records) => records.read(line, key),
            Self::Csv(records) => records.read(line, key),
        }
    }
}

/// Guesses the format of a log by one of its lines.
fn recognise(line: &[u8], wanted: &Wanted) -> Result<Format, Reason> {
    if [b"\xff\xfe", b"\xfe\xff"].iter().any(|mark| line.starts_with(*mark)) {
        return Err("the log begins with the byte order mark of UTF-16; convert it to UTF-8 first, as with \
                    iconv -f UTF-16 -t UTF-8"
            .into());
    }
    if line.trim_ascii_start().starts_with(b"{") {
        return Ok(Format::Json);
    }
    match ClfLine::split(line) {
        // In Combined a quoted referer follows; other fields after the bytes are the site's own.
        Ok(clf) if !clf.rest.starts_with(b" \"") => Ok(Format::Common),
        Ok(clf) => clf.referer_and_agent().map(|_| Format::Combined),
        Err(reason) => match csv::recognise_header(line, wanted.name_of("time")) {
            Some(header) => header.map(|()| Format::Csv),
            None => Err(reason),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::replay::log::schema::Cost;
    use crate::replay::log::schema::tests::{COMBINED, wanted};
    use proptest::prelude::*;

    #[test]
    fn the_first_line_tells_the_format() {
        let common = COMBINED.split_once(" \"https").map_or("", |(common, _)| common);
        let table: &[(&str, Option<Format>)] = &[
            (COMBINED, Some(Format::Combined)),
            (common, Some(Format::Common)),
            (&format!("{common} 0.003 upstream"), Some(Format::Common)),
            (&format!("{common} \"referer only"), None),
            ("{\"time\": 1}", Some(Format::Json)),
            ("  {", Some(Format::Json)),
            ("time,ip,bytes", Some(Format::Csv)),
            ("\"time\",\"user-agent\"", Some(Format::Csv)),
            ("192.0.2.1,GET,/", None),
            ("Logs begin, as usual, here", None),
            ("when,ip", None),
            ("nonsense", None),
            ("Well, this is prose that nobody would call a header", None),
            ("", None),
            ("\0\u{1}\u{2}", None),
        ];
        for &(line, format) in table {
            let wanted = wanted(&["ip"], Cost::One);
            assert_eq!(recognise(line.as_bytes(), &wanted).ok(), format, "{line}");
        }
    }

    proptest! {
        #[test]
        fn no_bytes_make_any_format_panic(
            first in prop::collection::vec(any::<u8>(), 0..200),
            line in prop::collection::vec(any::<u8>(), 0..200),
        ) {
            let wanted = wanted(&["ip", "path"], Cost::Bytes);
            let formats = [Format::Common, Format::Combined, Format::Json, Format::Csv];
            for format in formats.map(Some).into_iter().chain([None]) {
                let opened = [&first[..], b"time,ip,path,bytes", COMBINED.as_bytes()]
                    .map(|first| Records::open(first, format, &wanted));
                for (_, mut records) in opened.into_iter().flatten() {
                    let _ = records.read(&line, &mut Vec::new());
                }
            }
        }

        #[test]
        fn a_damaged_line_never_panics(at in 0..COMBINED.len(), byte in any::<u8>()) {
            let mut line = COMBINED.as_bytes().to_vec();
            line[at] = byte;
            let wanted = wanted(&["user", "uri", "user-agent"], Cost::Bytes);
            for format in [None, Some(Format::Common), Some(Format::Combined)] {
                if let Ok((_, mut records)) = Records::open(COMBINED.as_bytes(), format, &wanted) {
                    let _ = records.read(&line, &mut Vec::new());
                    let _ = records.read(&line[..at], &mut Vec::new());
                }
            }
        }
    }
}
