//! Reads plain text logs according to the columns of their format. Either [`TEXTS`] or the log's
//! own `#Fields:` line describes the columns.
//!
//! ```text
//! 192.0.2.1 - frank [17/May/2015:10:05:03 +0000] "GET /a?b HTTP/1.1" 200 123 "referer" "agent"
//! ip   ident  user  time                          request            status bytes
//! ```
//!
//! A line is read only up to the last column that the replay needs. The rest of the line may have
//! any form, because many sites append their own fields. A request with a malformed user agent
//! is therefore still counted.
//!
//! Lines may contain any bytes, not just text. Even the request need not be an HTTP request line,
//! because scanners may send any bytes, and so may browsers that speak TLS to a plain port. If the
//! request does not begin with a method and a URI, then method, path, uri and protocol are all `-`.

use std::borrow::Cow;
use std::collections::HashSet;
use std::ops::Range;

use super::formats::{ALB_TYPES, CLOUDFRONT_COLUMN, Format, TEXTS, Text, W3C_FIELDS};
use super::json::{HEADER, field_of};
use super::key::KeyWriter;
use super::layout::{FIELDS_DIRECTIVE, Layout};
use super::path::unescaped;
use super::request::{MISSING, Reason, Record, byte_count};
use super::request_line::Part;
use super::schema::{Cost, Unopened, Wanted, unknown_field};
use super::timestamp::{Stamps, TimeUnit};
use crate::printable::printable;

/// The source of a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FieldSource {
    Column(usize),
    /// A part of the `request` column.
    Part(usize, Part),
    /// The path in the `request` column.
    Path(usize),
    /// The column with the path and, if the log has one, the column with the query.
    Target(usize, Option<usize>),
}

/// The columns to read from each line.
#[derive(Debug)]
struct Plan {
    layout: Layout,
    /// The number of steps required to find all columns in this plan.
    steps: usize,
    time: Range<usize>,
    cost: Option<usize>,
    key: Vec<FieldSource>,
}

/// Reads the records of one plain text log.
pub(crate) struct TextRecords {
    format: Format,
    /// The required parts of a record. They are stored because a later line in the log may name
    /// different columns.
    wanted: Wanted,
    /// The plan for reading a line, or an error if a later `#Fields:` line is insufficient, for
    /// example because a column is missing.
    plan: Result<Plan, Reason>,
    pub(crate) writer: KeyWriter,
    stamps: Stamps,
    /// The byte range of each column in the current line.
    columns: Vec<Range<usize>>,
    duration_unit: Option<TimeUnit>,
}

impl TextRecords {
    /// Opens a log in this format. `first` is the first line, which names the columns of a
    /// [`Format::W3c`] log.
    ///
    /// # Errors
    ///
    /// Returns an error if the log has no column for a required field.
    pub(crate) fn open(format: Format, first: &[u8], wanted: &Wanted) -> Result<Self, Unopened> {
        let layout = match TEXTS.iter().find(|text| text.0 == format) {
            Some(text) => Layout::of(text),
            None => Layout::named_by(first).map_err(Unopened::NotARecord)?,
        };
        let is_cloudfront = layout.names.iter().any(|name| name == CLOUDFRONT_COLUMN);
        let duration_unit = match format {
            Format::W3c if is_cloudfront => Some(TimeUnit::Seconds),
            Format::W3c => Some(TimeUnit::Millis),
            other => other.duration_unit(),
        };
        Ok(Self {
            format,
            plan: Ok(Plan::new(layout, format, wanted)?),
            wanted: wanted.clone(),
            writer: KeyWriter::new(wanted),
            stamps: Stamps::default(),
            columns: Vec::new(),
            duration_unit,
        })
    }

    /// Returns the unit of the `duration` column.
    pub(crate) fn duration_unit(&self) -> Option<TimeUnit> {
        self.duration_unit
    }

    /// Reads one line, and appends its key to `key`. Returns `None` if the line only describes the
    /// log.
    #[inline]
    pub(crate) fn read(&mut self, line: &[u8], key: &mut Vec<u8>) -> Result<Option<Record>, Reason> {
        if self.format == Format::W3c && line.starts_with(b"#") {
            self.directive(line);
            return Ok(None);
        }
        let plan = self.plan.as_ref().map_err(Clone::clone)?;
        self.columns.clear();
        plan.layout.split(plan.steps, line, &mut self.columns)?;
        let column = |index: usize| &line[self.columns[index].clone()];
        let at = match plan.time.len() {
            2 => self.stamps.read_date_and_time(column(plan.time.start), column(plan.time.start + 1))?,
            _ => self.stamps.read(column(plan.time.start))?,
        };
        let cost = match plan.cost {
            None => 1,
            Some(index) => byte_count(bare_number(column(index)))?,
        };
        let value = |source: &FieldSource| match *source {
            FieldSource::Column(index) => Cow::Borrowed(column(index)),
            FieldSource::Part(index, part) => Cow::Borrowed(part.of_line(column(index))),
            FieldSource::Path(index) => unescaped(Part::Target.of_line(column(index)), self.format.escapes()),
            FieldSource::Target(path, query) => match query.map(column) {
                Some(query) if !query.is_empty() && query != MISSING => {
                    Cow::Owned([column(path), b"?", query].concat())
                }
                _ => Cow::Borrowed(column(path)),
            },
        };
        self.writer.write(key, plan.key.iter().map(value));
        Ok(Some(Record { at, cost }))
    }

    /// Reads a line that describes the log. A `#Fields:` line replaces the columns for all later
    /// lines.
    fn directive(&mut self, line: &[u8]) {
        if line.starts_with(FIELDS_DIRECTIVE) {
            let layout = Layout::named_by(line).map_err(Unopened::NotARecord);
            let plan = layout.and_then(|layout| Plan::new(layout, self.format, &self.wanted));
            self.plan = plan.map_err(|unopened| match unopened {
                Unopened::NotARecord(reason) => reason,
                Unopened::Refused(message) => message.into(),
                Unopened::Directive => "its line '#Fields:' names no columns".into(),
            });
        }
    }
}

/// Returns the plain text format whose columns all match the line.
///
/// # Errors
///
/// If no format matches, returns why the line is not in Common Log Format.
pub(crate) fn recognize(line: &[u8]) -> Result<Format, Reason> {
    let mut reason = Reason::from("it has no columns of any format");
    for text in &TEXTS {
        match is_one(line, text) {
            Ok(()) => return Ok(text.0),
            Err(why) if text.0 == Format::Common => reason = why,
            Err(_) => {}
        }
    }
    Err(reason)
}

fn is_one(line: &[u8], text: &Text) -> Result<(), Reason> {
    let layout = Layout::of(text);
    let mut columns = Vec::new();
    let rest = layout.split(layout.steps(), line, &mut columns)?;
    for (name, column) in layout.names.iter().zip(columns) {
        let column = &line[column];
        let digits = |text: &[u8]| !text.is_empty() && text.iter().all(u8::is_ascii_digit);
        match &**name {
            "time" => drop(Stamps::default().read(column)?),
            "status" if column != MISSING && !(column.len() <= 3 && digits(column)) => {
                return Err("the status is not three digits".into());
            }
            "bytes" if column != MISSING && !digits(bare_number(column)) => {
                return Err("the bytes are neither a number nor '-'".into());
            }
            "type" if !ALB_TYPES.contains(&column) => return Err("it begins with no type of requests".into()),
            "host" if text.0 != Format::Envoy && !column.iter().all(is_of_host) => {
                return Err("it begins with no virtual host".into());
            }
            // This column may contain text that a client sent, including spaces. However, the line
            // that determines the format must not contain spaces here, except for one after each
            // comma.
            "ip" if !matches!(text.0, Format::Alb | Format::Haproxy) => {
                let spaces = column.iter().filter(|&&byte| byte == b' ').count();
                if spaces != column.iter().filter(|&&byte| byte == b',').count() {
                    return Err("the text before the time is not 'ip ident user'".into());
                }
            }
            _ => {}
        }
    }
    let rest = &line[rest..];
    let is_whole = match text.0 {
        Format::NginxMain | Format::Envoy => rest.is_empty(),
        // In Combined Log Format, a quoted referer follows the bytes. Any other text after the
        // bytes is a field that the site added.
        Format::Common | Format::VhostCommon => !rest.starts_with(b" \""),
        _ => true,
    };
    if is_whole { Ok(()) } else { Err("the referer and the user agent are not quoted to their ends".into()) }
}

fn is_of_host(byte: &u8) -> bool {
    byte.is_ascii_alphanumeric() || b".-_:[]*".contains(byte)
}

/// Returns the number without its leading plus sign, if it has one. The sign means that the line
/// was written before the end of the response.
fn bare_number(text: &[u8]) -> &[u8] {
    text.strip_prefix(b"+").unwrap_or(text)
}

impl Plan {
    fn new(layout: Layout, format: Format, wanted: &Wanted) -> Result<Self, Unopened> {
        let column = |name: &str| layout.names.iter().position(|known| known == name);
        let w3c = |ours: &str| {
            let fields = W3C_FIELDS.iter().find(|(name, _)| *name == ours);
            fields.and_then(|(_, theirs)| theirs.iter().find_map(|name| column(name)))
        };
        let source = |field: &str| match (format, field) {
            (Format::W3c, "path") => column("cs-uri-stem").map(FieldSource::Column),
            (Format::W3c, "uri") => {
                column("cs-uri-stem").map(|stem| FieldSource::Target(stem, column("cs-uri-query")))
            }
            (Format::W3c, field) => w3c(field).or_else(|| column(field)).map(FieldSource::Column),
            (_, "path") => column("request").map(FieldSource::Path),
            (_, "time" | "request") => None,
            (_, field) => match Part::named(field) {
                Some(part) => column("request").map(|index| FieldSource::Part(index, part)),
                None => column(field).filter(|_| !field.starts_with('{')).map(FieldSource::Column),
            },
        };
        let known = || -> Vec<String> {
            let theirs = layout.names.iter().map(|name| name.to_string());
            let derived = ["method", "path", "uri", "protocol"].map(str::to_owned);
            let ours = W3C_FIELDS.iter().map(|(name, _)| (*name).to_owned()).chain(derived);
            let mut names: Vec<String> = match format {
                Format::W3c => ours.chain(theirs).collect(),
                _ => {
                    let request = |name: String| match &*name {
                        "request" => ["method", "path", "uri", "protocol"].map(str::to_owned).to_vec(),
                        _ => vec![name],
                    };
                    theirs.flat_map(request).collect()
                }
            };
            names.retain(|name| source(name).is_some());
            let mut seen = HashSet::new();
            names.retain(|name| seen.insert(name.clone()));
            names
        };
        let find = |field: &str| {
            let name = wanted.name_of(field);
            let known_header = name.strip_prefix(HEADER).and_then(field_of);
            source(known_header.unwrap_or(name))
                .ok_or_else(|| unknown_field(name, format, known().iter().map(String::as_bytes)))
        };
        let time = wanted.name_of("time");
        if time != "time" {
            let columns = if format == Format::W3c { "columns 'date' and 'time'" } else { "column 'time'" };
            return Err(Unopened::Refused(format!(
                "unknown field '{}' for the time: a {format} log has the time in its {columns}; leave time out of \
                 --fields",
                printable(time.as_bytes())
            )));
        }
        let time = match format {
            Format::W3c => match (column("date"), column("time")) {
                (Some(date), Some(time)) if time == date + 1 => date..time + 1,
                _ => {
                    let message = "its line '#Fields:' does not name 'date' and after it 'time'";
                    return Err(Unopened::Refused(message.to_owned()));
                }
            },
            _ => column("time").map_or(0..1, |time| time..time + 1),
        };
        let cost = match wanted.cost {
            Cost::One => None,
            Cost::Bytes => match find("bytes")? {
                FieldSource::Column(index) => Some(index),
                _ => None,
            },
        };
        let key = wanted.key.iter().map(|field| find(field)).collect::<Result<Vec<_>, _>>()?;
        let last = key.iter().map(|source| source.last_column()).chain(cost).chain([time.end - 1]).max();
        let steps = layout.steps_to(last.unwrap_or(0));
        Ok(Self { steps, time, cost, key, layout })
    }
}

impl FieldSource {
    fn last_column(self) -> usize {
        match self {
            Self::Column(column) | Self::Part(column, _) | Self::Path(column) => column,
            Self::Target(path, query) => path.max(query.unwrap_or(0)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::replay::log::schema::tests::{COMBINED, wanted};

    /// Returns the value of a field. In the line, `@` stands for a time in brackets.
    fn read(format: Format, field: &str, line: &[u8]) -> Result<String, Reason> {
        let time = line.iter().position(|&byte| byte == b'@');
        let stamped = |at| [&line[..at], b"[17/May/2015:10:05:03 +0000]", &line[at + 1..]].concat();
        let line = time.map_or(line.to_vec(), stamped);
        let cost = if field == "bytes" { Cost::Bytes } else { Cost::One };
        let wanted = wanted(&[field], cost);
        let mut records = TextRecords::open(format, b"", &wanted).expect("the field is known");
        let mut key = Vec::new();
        records.read(&line, &mut key)?;
        Ok(String::from_utf8_lossy(&key).into_owned())
    }

    #[test]
    fn every_field_of_a_combined_line_is_found() {
        let values: [(&str, &str); 11] = [
            ("ip", "192.0.2.1"),
            ("ident", "-"),
            ("user", "frank"),
            ("method", "GET"),
            ("path", "/a"),
            ("uri", "/a?b=c"),
            ("protocol", "HTTP/1.1"),
            ("status", "200"),
            ("bytes", "123"),
            ("referer", "https://example.org/"),
            ("user-agent", "Agent/1.0 (\\\"x\\\")"),
        ];
        for (field, value) in values {
            for end in ["", " extra \"fields\" 0.003"] {
                let line = format!("{COMBINED}{end}");
                let found = read(Format::Combined, field, line.as_bytes());
                assert_eq!(found.as_deref(), Ok(value), "{field}");
            }
        }
    }

    #[test]
    fn time_and_cost_are_read() {
        let mut records = TextRecords::open(Format::Combined, b"", &wanted(&["ip"], Cost::Bytes))
            .expect("the field is known");
        let read = records.read(COMBINED.as_bytes(), &mut Vec::new());
        let request = read.expect("it parses").expect("it is a record");
        assert_eq!(request.at.as_nanos(), 1_431_857_103_000_000_000);
        assert_eq!(request.cost, 123);
    }

    #[test]
    fn common_has_no_referer_and_ignores_what_follows_its_fields() {
        assert_eq!(read(Format::Common, "bytes", COMBINED.as_bytes()).as_deref(), Ok("123"));
        for field in ["referer", "user-agent", "nonsense"] {
            let refused = TextRecords::open(Format::Common, b"", &wanted(&[field], Cost::One)).err();
            let Some(Unopened::Refused(message)) = refused else { panic!("{field} opened") };
            assert!(message.contains("ip, ident, user, method, path, uri"), "{message}");
            assert!(!message.contains("referer,"), "{message}");
        }
    }

    #[test]
    fn unusual_lines_that_real_logs_have_are_read() {
        let table: &[(&str, &str, &[u8])] = &[
            ("ip", "2001:db8::/64", b"2001:db8::1 - - @ \"GET / HTTP/1.1\" 200 - \"-\" \"-\""),
            ("bytes", "-", b"h - - @ \"GET / HTTP/1.1\" 304 - \"-\" \"-\""),
            ("user", "jane doe", b"h - jane doe @ \"GET / HTTP/1.1\" 200 1 \"-\" \"-\""),
            ("method", "-", b"h - - @ \"-\" 408 0 \"-\" \"-\""),
            ("path", "-", b"h - - @ \"\" 400 0 \"-\" \"-\""),
            ("path", "-", b"h - - @ \"\\x16\\x03\\x01 \\x02\" 400 0 \"-\" \"-\""),
            ("path", "-", b"h - - @ \"\x16\x03\x01\xff\0\" 400 0 \"-\" \"-\""),
            ("path", "/", b"h - - @ \"GET /\" 200 0 \"-\" \"-\""),
            ("protocol", "-", b"h - - @ \"GET /\" 200 0 \"-\" \"-\""),
            ("path", "/a%20b", b"h - - @ \"GET /a b?c d HTTP/1.0\" 200 0 \"-\" \"-\""),
            ("uri", "/\\\"q\\\"", b"h - - @ \"GET /\\\"q\\\" HTTP/1.0\" 200 0 \"-\" \"-\""),
            ("uri", "/\"q\"x", b"h - - @ \"GET /\"q\"x HTTP/1.0\" 200 0 \"-\" \"-\""),
            ("user-agent", "x\\\\", b"h - - @ \"GET / HTTP/1.0\" 200 0 \"-\" \"x\\\\\""),
            ("user-agent", "\u{fffd}", b"h - - @ \"GET / HTTP/1.0\" 200 0 \"-\" \"\xff\""),
            ("status", "-", b"h - - @ \"GET / HTTP/1.0\" - 0 \"-\" \"-\""),
        ];
        for &(field, value, line) in table {
            let shown = String::from_utf8_lossy(line);
            assert_eq!(read(Format::Combined, field, line).as_deref(), Ok(value), "{shown}");
        }
    }

    #[test]
    fn a_line_is_refused_for_what_is_asked_of_it_and_for_nothing_else() {
        // A required field, a line and, if the line is refused, a part of the expected reason.
        let table: &[(&str, &str, Option<&str>)] = &[
            ("ip", "", Some("ip ident user")),
            ("ip", "192.0.2.1", Some("ip ident user")),
            ("ip", "h - -@ \"GET /\" 200 1", Some("ip ident user")),
            ("ip", "v:80 h x y @ \"GET /\" 200 1 \"-\" \"-\"", Some("before")),
            ("ip", "h - - 17/May/2015:10:05:03 \"GET /\" 200 1 \"-\" \"-\"", Some("'['")),
            ("ip", "h - - [17/May/2015:10:05:03 +0000 \"GET /\" 200 1 \"-\" \"-\"", Some("']'")),
            ("ip", "h - - [17/May/2015:10:05 +0000] \"GET /\" 200 1 \"-\" \"-\"", Some("the form 17/May")),
            ("ip", "h - - [17/May/1915:10:05:03 +0000] \"GET /\" 200 1 \"-\" \"-\"", Some("1970")),
            ("path", "h - - @ GET / 200 1 \"-\" \"-\"", Some("request is not in quotes")),
            ("path", "h - - @ \"GET / 200 1", Some("request is not in quotes")),
            ("path", "h - - @ \"GET /\"", None),
            ("status", "h - - @ \"GET /\"", Some("ends before its status")),
            ("bytes", "h - - @ \"GET /\" 200", Some("ends before its bytes")),
            ("bytes", "h - - @ \"GET /\" 200 many \"-\" \"-\"", Some("bytes")),
            ("referer", "h - - @ \"GET /\" 200 1", Some("before its referer")),
            ("referer", "h - - @ \"GET /\" 200 1 \"-", Some("its referer is not in")),
            ("user-agent", "h - - @ \"GET /\" 200 1 \"-\" \"x\\\"", Some("user-agent")),
            ("path", "h - - @ \"GET /\" 200 1 \"-\" \"x\\\"", None),
            ("ip", "h - - @ \"GET / HT", None),
            ("ip", "h - - @", None),
        ];
        for &(field, line, part) in table {
            match (read(Format::Combined, field, line.as_bytes()), part) {
                (Ok(_), None) => {}
                (Err(reason), Some(part)) => assert!(reason.contains(part), "{line}: {reason}"),
                (found, _) => panic!("{field} of {line}: {found:?}"),
            }
        }
    }

    #[test]
    fn a_column_that_a_client_writes_does_not_move_the_others() {
        let table: &[(Format, &str, &str, &str)] = &[
            (Format::Combined, "user", "x [y", r#"h - x [y @ "GET / HTTP/1.1" 200 1 "-" "-""#),
            (Format::Combined, "status", "200", r#"h - - @ "GET /" x HTTP/1.1" 200 1 "-" "-""#),
            (Format::Combined, "ip", "a b", r#"a b - - @ "GET / HTTP/1.1" 200 1 "-" "-""#),
            (
                Format::Combined,
                "ip",
                "192.0.2.1, 192.0.2.2",
                r#"192.0.2.1, 192.0.2.2 - x y @ "GET / HTTP/1.1" 200 1 "-" "-""#,
            ),
            (Format::Combined, "ip", "", r#" - - @ "GET / HTTP/1.1" 200 1 "-" "-""#),
            (Format::VhostCombined, "ip", "h", r#"a.example:80 h - - @ "GET / HTTP/1.1" 200 1 "-" "-""#),
            (
                Format::VhostCombined,
                "host",
                "a.example:80",
                r#"a.example:80 h - - @ "GET / HTTP/1.1" 200 1 "-" "-""#,
            ),
            (
                Format::Haproxy,
                "path",
                "/a%22b",
                "192.0.2.1:9 [06/Feb/2009:12:14:14.655] f b/s 10/0/30/69/109 200 2750 - - ---- 1/1/1/1/0 0/0 {a b|x} {} \"GET /a#22b HTTP/1.1\"",
            ),
            (
                Format::Haproxy,
                "path",
                "/cut",
                "192.0.2.1:9 [06/Feb/2009:12:14:14.655] f b/s 10/0/30/69/109 200 2750 - - ---- 1/1/1/1/0 0/0 \"GET /cut",
            ),
            (Format::Haproxy, "ip", "2001:db8::/64", "2001:db8::17:8080 [06/Feb/2009:12:14:14.655] f"),
            (
                Format::Envoy,
                "user-agent",
                "x\\",
                "[2016-04-15T20:17:00.310Z] \"GET / HTTP/2\" 204 - 154 0 226 100 \"192.0.2.1\" \"x\\\" \"id\" \"a.example\" \"u\"",
            ),
        ];
        for &(format, field, value, line) in table {
            assert_eq!(read(format, field, line.as_bytes()).as_deref(), Ok(value), "{line}");
        }
    }
}
