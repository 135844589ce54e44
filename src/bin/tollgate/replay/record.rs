//! Turns lines into requests, whatever the log's format: when, by which key, at what cost.

use std::borrow::Cow;
use std::fmt;

use tollgate::Tick;

use super::clf::{ClfLine, ClfRecords};
use super::csv::{self, CsvRecords};
use super::json::JsonRecords;
use super::key::MISSING;
use super::printable::{listed, printable};
use super::stamp::TimeUnit;

/// Why a line does not parse.
pub(crate) type Reason = Cow<'static, str>;

/// What a line asks of the limiter, apart from its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Request {
    pub(crate) at: Tick,
    pub(crate) cost: u64,
}

/// How a log is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Format {
    Common,
    Combined,
    Json,
    Csv,
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Common => "common",
            Self::Combined => "combined",
            Self::Json => "json",
            Self::Csv => "csv",
        })
    }
}

/// What a request costs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cost {
    One,
    /// The bytes of the response; none where the log has `-`.
    Bytes,
}

/// What of a record the replay needs.
#[derive(Clone, Debug)]
pub(crate) struct Wanted {
    /// The fields whose values are the key, in this order.
    pub(crate) key: Vec<String>,
    pub(crate) cost: Cost,
    /// Pairs of our name of a field and the name that JSON and CSV logs have for it.
    pub(crate) names: Vec<(String, String)>,
    pub(crate) unit: TimeUnit,
}

impl Wanted {
    /// The name under which a JSON or CSV log has this field.
    pub(crate) fn name_of<'w>(&'w self, field: &'w str) -> &'w str {
        self.names.iter().find(|(ours, _)| ours == field).map_or(field, |(_, theirs)| theirs)
    }

    /// The names of time, bytes (if they matter) and the key's fields in a JSON or CSV log.
    pub(crate) fn columns(&self) -> Vec<String> {
        let bytes = (self.cost == Cost::Bytes).then_some("bytes");
        std::iter::once("time")
            .chain(bytes)
            .chain(self.key.iter().map(String::as_str))
            .map(|field| self.name_of(field).to_owned())
            .collect()
    }
}

/// Why a log's first line did not open it.
#[derive(Debug)]
pub(crate) enum Unopened {
    /// The line is no record; the next one may be.
    NotARecord(Reason),
    /// The log has not the fields that are asked for; the message lists those it has.
    Refused(String),
}

/// The field that is not there, and those that are.
pub(crate) fn unknown_field<'n>(
    field: &str,
    format: Format,
    known: impl IntoIterator<Item = &'n [u8]>,
) -> Unopened {
    let hint = match format {
        Format::Json | Format::Csv => " (--fields maps names: time=ts,ip=remote_addr)",
        Format::Common | Format::Combined => "",
    };
    let field = printable(field.as_bytes());
    Unopened::Refused(format!("unknown field '{field}': this {format} log has {}{hint}", listed(known)))
}

/// Reads the records of one log.
pub(crate) enum Records {
    Clf(ClfRecords),
    Json(JsonRecords),
    Csv(Box<CsvRecords>),
}

impl Records {
    /// Opens a log by its first line. For CSV that is the header; for the others it is a record too.
    pub(crate) fn open(
        first: &[u8],
        format: Option<Format>,
        wanted: &Wanted,
    ) -> Result<(Format, Self), Unopened> {
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

    /// For each field of the key, how many requests had no value of it.
    pub(crate) fn missing(&self) -> &[u64] {
        match self {
            Self::Clf(records) => records.writer.missing(),
            Self::Json(records) => records.writer.missing(),
            Self::Csv(records) => records.writer.missing(),
        }
    }

    /// Reads one line, and writes its key into `key`, which is empty.
    #[inline]
    pub(crate) fn read(&mut self, line: &[u8], key: &mut Vec<u8>) -> Result<Request, Reason> {
        match self {
            Self::Clf(records) => records.read(line, key),
            Self::Json(records) => records.read(line, key),
            Self::Csv(records) => records.read(line, key),
        }
    }
}

/// Guesses the format of a log by a line of it.
fn recognise(line: &[u8], wanted: &Wanted) -> Result<Format, Reason> {
    if line.trim_ascii_start().starts_with(b"{") {
        return Ok(Format::Json);
    }
    match ClfLine::split(line) {
        // Combined goes on with a quoted referer; other fields after the bytes are the site's own.
        Ok(clf) if !clf.rest.starts_with(b" \"") => Ok(Format::Common),
        Ok(clf) => clf.referer_and_agent().map(|_| Format::Combined),
        Err(reason) => match csv::recognise_header(line, wanted.name_of("time")) {
            Some(header) => header.map(|()| Format::Csv),
            None => Err(reason),
        },
    }
}

/// Reads a number of bytes; `-` and nothing at all are none.
pub(crate) fn byte_count(text: &[u8]) -> Result<u64, Reason> {
    if text.is_empty() || text == MISSING {
        return Ok(0);
    }
    text.iter()
        .try_fold(0_u64, |count, &byte| {
            let digit = byte.is_ascii_digit().then(|| u64::from(byte - b'0'))?;
            count.checked_mul(10)?.checked_add(digit)
        })
        .ok_or(Cow::Borrowed("the bytes are not a number"))
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use proptest::prelude::*;

    pub(crate) fn wanted(key: &[&str], cost: Cost) -> Wanted {
        Wanted {
            key: key.iter().map(|&field| field.to_owned()).collect(),
            cost,
            names: Vec::new(),
            unit: TimeUnit::Seconds,
        }
    }

    pub(crate) const COMBINED: &str = "192.0.2.1 - frank [17/May/2015:10:05:03 +0000] \
        \"GET /a?b=c HTTP/1.1\" 200 123 \"https://example.org/\" \"Agent/1.0 (\\\"x\\\")\"";

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

    #[test]
    fn byte_counts_are_whole_numbers() {
        for (text, count) in [("-", 0), ("", 0), ("0", 0), ("18446744073709551615", u64::MAX)] {
            assert_eq!(byte_count(text.as_bytes()), Ok(count));
        }
        for text in ["18446744073709551616", "-1", "1.5", "1e3", " 1", "x"] {
            assert!(byte_count(text.as_bytes()).is_err(), "{text}");
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
