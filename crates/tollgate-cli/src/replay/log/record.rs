//! Turns lines of any format into requests: the time, the key and the cost.

use std::net::IpAddr;

use super::csv::{self, CsvRecords};
use super::formats::{Format, TEXTS};
use super::json::{self, JsonRecords};
use super::key::KeyWriter;
use super::layout::FIELDS_DIRECTIVE;
use super::request::{Reason, Record};
use super::schema::{Unopened, Wanted};
use super::text::{self, TextRecords};
use super::timestamp::TimeUnit;
use super::wrapped::{self, Unwrapper};

/// A hint explains how to remove up to this many leading words.
const MOST_WORDS_BEFORE: usize = 6;

/// Reads the records of one log.
pub struct Records {
    unwrapper: Option<Unwrapper>,
    kind: Kind,
    format: Format,
    /// The line that opened the log, for [`Records::again`].
    first: Vec<u8>,
    wanted: Wanted,
}

enum Kind {
    Text(Box<TextRecords>),
    Json(Box<JsonRecords>),
    Csv(Box<CsvRecords>),
}

impl Records {
    /// Opens a log. If `format` is `None`, detects the format from the first line. The first line
    /// is the header in a CSV log, the `#Fields:` line in a W3C log, and a record in any other log.
    pub fn open(first: &[u8], format: Option<Format>, wanted: &Wanted) -> Result<(Format, Self), Unopened> {
        let mut unwrapper = Unwrapper::of(first);
        let first = match wrapped::whole(&mut unwrapper, first, |_| false).map_err(Unopened::NotARecord)? {
            Some(whole) => whole.to_vec(),
            None => return Err(Unopened::NotARecord("it is a part of a line".into())),
        };
        let format = match format {
            Some(Format::W3c) | None if is_directive(&first) => match first.starts_with(FIELDS_DIRECTIVE) {
                true => Format::W3c,
                false => return Err(Unopened::Directive),
            },
            Some(format) => format,
            None => recognize(&first, wanted).map_err(Unopened::NotARecord)?,
        };
        let kind = match format {
            Format::Csv => Kind::Csv(Box::new(CsvRecords::open(&first, wanted)?)),
            json if json.is_json() => Kind::Json(Box::new(JsonRecords::open(json, &first, wanted)?)),
            text => Kind::Text(Box::new(TextRecords::open(text, &first, wanted)?)),
        };
        Ok((format, Self { unwrapper, kind, format, first, wanted: wanted.clone() }))
    }

    /// Returns a reader of the same log for another thread, or `None` if lines in the log depend on
    /// earlier lines.
    pub(crate) fn again(&self) -> Option<Self> {
        if self.unwrapper.is_some() || self.format == Format::W3c {
            return None;
        }
        Self::open(&self.first, Some(self.format), &self.wanted).ok().map(|(_, records)| records)
    }

    /// Returns, for each field of the key, the number of requests in which the field has no value.
    pub(crate) fn missing(&self) -> &[u64] {
        self.writer().missing()
    }

    /// Returns the client's address in the key of the last request, if the key has an address.
    pub(crate) fn last_address(&self) -> Option<IpAddr> {
        self.writer().last_address()
    }

    fn writer(&self) -> &KeyWriter {
        match &self.kind {
            Kind::Text(records) => &records.writer,
            Kind::Json(records) => &records.values.writer,
            Kind::Csv(records) => &records.values.writer,
        }
    }

    /// Returns the number of split lines whose last part has not been read.
    pub(crate) fn incomplete(&self) -> usize {
        self.unwrapper.as_ref().map_or(0, Unwrapper::incomplete)
    }

    /// See [`Format::is_by_ends`].
    pub(crate) fn is_by_ends(&self) -> bool {
        self.format.is_by_ends()
    }

    /// Returns the unit of durations, if the format has one.
    pub(crate) fn duration_unit(&self) -> Option<TimeUnit> {
        match &self.kind {
            Kind::Text(records) => records.duration_unit(),
            _ => self.format.duration_unit(),
        }
    }

    /// Reads one line, and appends its key to `key`. Returns `None` if the line describes the log,
    /// or is part of a split line that is still incomplete.
    #[inline]
    pub fn read(&mut self, line: &[u8], key: &mut Vec<u8>) -> Result<Option<Record>, Reason> {
        let is_record = |text: &[u8]| {
            let mut wanted = self.wanted.clone();
            if TEXTS.iter().any(|text| text.0 == self.format) {
                // A client's text may fill a part of a split line and contain a time, but it cannot
                // contain the quotes around a request.
                wanted.key.push("method".to_owned());
            }
            let opened = Self::open(&self.first, Some(self.format), &wanted);
            opened.is_ok_and(|(_, mut records)| matches!(records.read(text, &mut Vec::new()), Ok(Some(_))))
        };
        let Some(line) = wrapped::whole(&mut self.unwrapper, line, is_record)? else { return Ok(None) };
        match &mut self.kind {
            Kind::Text(records) => records.read(line, key),
            Kind::Json(records) => records.read(line, key).map(Some),
            Kind::Csv(records) => records.read(line, key).map(Some),
        }
    }
}

/// Returns whether a line is a directive in a W3C log, such as `#Version: 1.0`.
fn is_directive(line: &[u8]) -> bool {
    let Some(rest) = line.strip_prefix(b"#") else { return false };
    let name = rest.iter().take_while(|byte| byte.is_ascii_alphabetic() || **byte == b'-').count();
    name > 0 && rest.get(name) == Some(&b':')
}

/// Recognizes the format of a log from one of its lines.
fn recognize(line: &[u8], wanted: &Wanted) -> Result<Format, Reason> {
    if [b"\xff\xfe", b"\xfe\xff"].iter().any(|mark| line.starts_with(*mark)) {
        return Err("the log begins with the byte order mark of UTF-16; convert it to UTF-8 first, as with \
                    iconv -f UTF-16 -t UTF-8"
            .into());
    }
    if line.trim_ascii_start().starts_with(b"{") {
        return match line.windows(11).any(|name| name == b"\"MESSAGE\" :" || &name[..10] == b"\"MESSAGE\":") {
            true => Err("it is of the journal; unwrap its lines, as with journalctl -o cat".into()),
            false => Ok(json::recognize(line, wanted)),
        };
    }
    text::recognize(line).or_else(|reason| match csv::recognise_header(line, wanted.name_of("time")) {
        Some(header) => header.map(|()| Format::Csv),
        None => Err(hint(line).unwrap_or_else(|| format!("as common: {reason}").into())),
    })
}

/// Returns a hint if the line would match a known format without its first few words.
fn hint(line: &[u8]) -> Option<Reason> {
    let spaces = line.iter().enumerate().filter(|(_, byte)| byte.is_ascii_whitespace());
    let beginnings = spaces.map(|(at, _)| at + 1).take(MOST_WORDS_BEFORE);
    beginnings.zip(1..).find_map(|(at, words)| {
        let rest = &line[at..];
        let format = match rest.starts_with(b"{") && rest.ends_with(b"}") {
            true => Format::Json,
            false => text::recognize(rest).ok()?,
        };
        Some(Reason::from(format!(
            "behind its first {words} words it is {format}: unwrap its lines, as with sed -E 's/^([^ ]* ){{{words}}}//'"
        )))
    })
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
            assert_eq!(recognize(line.as_bytes(), &wanted).ok(), format, "{line}");
        }
    }

    proptest! {
        #[test]
        fn no_bytes_make_any_format_panic(
            first in prop::collection::vec(any::<u8>(), 0..200),
            line in prop::collection::vec(any::<u8>(), 0..200),
        ) {
            let wanted = wanted(&["ip", "path"], Cost::Bytes);
            for format in Format::ALL.map(|(format, _)| Some(format)).into_iter().chain([None]) {
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
