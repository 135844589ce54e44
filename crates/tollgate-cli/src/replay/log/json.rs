//! Reads JSON lines: one object per line, with named fields.
//!
//! A dotted name, such as `request.remote_ip`, refers to a field of a nested object, unless a field
//! has exactly that name. Numbers keep their digits as written, so times are exact. If a field
//! occurs twice, the first value counts, because servers write the values that they determined
//! themselves before the values that a client sent.
//!
//! A log starts with the first record that has all required fields. Messages that the server logged
//! at startup may precede this record; they are not requests. In later records, a missing or `null`
//! field of the key is read as `-`, as in the other formats.
//!
//! For a known server ([`DIALECTS`]), the user need not name any fields. Instead, certain fields
//! distinguish the records of requests from messages.
//!
//! Some servers write the client's bytes unescaped, so a record may contain bytes that are not
//! valid JSON. If all required fields precede these bytes, the fields are used as they are.
//! Otherwise, the bytes are read as if the server had escaped them.

use std::borrow::Cow;
use std::fmt;

use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;

use super::formats::{DIALECTS, Dialect, Format};
use super::key::NamedValues;
use super::request::{MISSING, Reason, Record};
use super::schema::{Unopened, Wanted};
use crate::printable::{listed, printable};

/// The prefix of our names for headers.
pub(crate) const HEADER: &str = "header:";

/// Returns our name for the field that contains this header, if there is one.
pub(crate) fn field_of(header: &str) -> Option<&str> {
    match header {
        "referer" | "user-agent" => Some(header),
        "x-forwarded-for" => Some("forwarded"),
        _ => None,
    }
}

/// Reads the records of one log of JSON lines.
pub(crate) struct JsonRecords {
    columns: JsonColumns,
    /// The number of columns at the end that only distinguish a record from a message. They do not
    /// belong to the key.
    marks: usize,
    pub(crate) values: NamedValues,
}

impl JsonRecords {
    /// # Errors
    ///
    /// Returns an error if the line is not a record, or if a required field is missing.
    pub(crate) fn open(format: Format, first: &[u8], wanted: &Wanted) -> Result<Self, Unopened> {
        let dialect = DIALECTS.iter().find(|dialect| dialect.format == format);
        let columns = match dialect {
            Some(dialect) => JsonColumns::of(dialect, first, wanted),
            None => JsonColumns::new(&wanted.columns()),
        };
        let marks = dialect.map_or(0, |dialect| dialect.marks.len());
        let repaired = repaired(first);
        let values = columns.read(first).or_else(|why| columns.read(repaired.as_deref().ok_or(why)?));
        let values = values.map_err(Unopened::NotARecord)?;
        // A known server may omit a header's field if the request did not have that header.
        let needed =
            |(column, value): &(&JsonColumn, &Option<&RawValue>)| !column.is_optional && value.is_none();
        if let Some((column, _)) = columns.0.iter().zip(&values).find(needed) {
            let record: serde_json::Map<String, serde_json::Value> =
                serde_json::from_slice(first).map_err(|error| Unopened::NotARecord(not_an_object(&error)))?;
            return Err(Unopened::NotARecord(
                format!(
                    "it has no field '{}' but {} (--fields maps names)",
                    printable(column.name.as_bytes()),
                    listed(record.keys().map(String::as_bytes)),
                )
                .into(),
            ));
        }
        let values = NamedValues::new(wanted, format.time_unit().unwrap_or(wanted.unit));
        Ok(Self { columns, marks, values })
    }

    pub(crate) fn read(&mut self, line: &[u8], key: &mut Vec<u8>) -> Result<Record, Reason> {
        let repaired;
        let values = match self.columns.read(line) {
            Ok(values) => values,
            Err(reason) => {
                repaired = self::repaired(line).ok_or(reason)?;
                self.columns.read(&repaired)?
            }
        };
        let columns = &self.columns.0;
        let of_key = columns.len() - self.marks;
        if let Some(mark) = (of_key..columns.len()).find(|&mark| values[mark].is_none()) {
            return Err(
                format!("it has no field '{}', so it is no record of a request", columns[mark].name).into()
            );
        }
        let mut texts = Vec::with_capacity(of_key);
        for (column, value) in columns[..of_key].iter().zip(values) {
            texts.push(value.map_or(Ok(Cow::Borrowed(MISSING)), |value| column.text(value))?);
        }
        if texts.first().is_none_or(|time| **time == *MISSING) {
            let name = printable(columns[0].name.as_bytes());
            return Err(format!("it has no field '{name}'").into());
        }
        self.values.read(texts.iter(), key)
    }
}

/// Finds the server that writes such records.
pub(crate) fn recognize(line: &[u8], wanted: &Wanted) -> Format {
    let is_one = |dialect: &&Dialect| {
        let marks: Vec<String> = dialect.marks.iter().map(|&mark| mark.to_owned()).collect();
        let columns = JsonColumns::of(dialect, line, wanted);
        let time = columns.0.first().map(|time| time.name.clone());
        let asked = JsonColumns::new(&marks.into_iter().chain(time).collect::<Vec<_>>());
        asked.read(line).is_ok_and(|values| values.iter().all(Option::is_some))
    };
    DIALECTS.iter().find(is_one).map_or(Format::Json, |dialect| dialect.format)
}

/// Escapes each byte that JSON does not allow in a string, because some servers write such bytes.
/// Returns `None` if the line contains no such bytes.
fn repaired(line: &[u8]) -> Option<Vec<u8>> {
    let mut out = Vec::with_capacity(line.len() + 16);
    let mut is_changed = false;
    for chunk in line.utf8_chunks() {
        let mut rest = chunk.valid().as_bytes();
        while let Some((&byte, after)) = rest.split_first() {
            rest = after;
            match (byte, after) {
                (b'\\', [escaped, behind @ ..]) if b"\"\\/bfnrtu".contains(escaped) => {
                    out.extend_from_slice(&[byte, *escaped]);
                    rest = behind;
                }
                (b'\\', _) => {
                    out.extend_from_slice(b"\\\\");
                    is_changed = true;
                }
                (0..=0x1f, _) => {
                    out.extend_from_slice(format!("\\u{byte:04x}").as_bytes());
                    is_changed = true;
                }
                _ => out.push(byte),
            }
        }
        for byte in chunk.invalid() {
            out.extend_from_slice(format!("\\\\x{byte:02X}").as_bytes());
            is_changed = true;
        }
    }
    is_changed.then_some(out)
}

fn not_an_object(error: &serde_json::Error) -> Reason {
    // serde_json's message ends with a line number, which is meaningless because the input is
    // always a single line.
    let what = error.to_string();
    let what = what.split(" at line ").next().unwrap_or_default();
    let what = printable(what.as_bytes());
    format!("it is not a JSON object: {what} at column {}", error.column()).into()
}

fn scalar(raw: &str) -> Cow<'_, [u8]> {
    match raw.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')) {
        Some(plain) if !plain.contains('\\') => Cow::Borrowed(plain.as_bytes()),
        Some(_) => match serde_json::from_str::<String>(raw) {
            Ok(text) => Cow::Owned(text.into_bytes()),
            // JSON allows half of a surrogate pair, although it is not valid text. The half
            // therefore stays escaped.
            Err(_) => Cow::Borrowed(raw.as_bytes()),
        },
        None if raw == "null" => Cow::Borrowed(MISSING),
        None => Cow::Borrowed(raw.as_bytes()),
    }
}

/// The columns: the time, the bytes if they are needed, the fields of the key, and the fields that
/// mark a record.
struct JsonColumns(Vec<JsonColumn>);

/// A required field. It is found by its exact name or, if the name is `first.rest`, as the field
/// `rest` in the object `first`.
struct JsonColumn {
    name: String,
    /// Whether the first record may lack this field.
    is_optional: bool,
    /// Whether the field was asked for as a header.
    is_header: bool,
}

impl JsonColumns {
    fn new(names: &[String]) -> Self {
        Self(names.iter().map(|name| JsonColumn::required(name)).collect())
    }

    /// Returns the columns of the wanted fields in a known server's log. Where a field has several
    /// names, the first record determines which name is used.
    fn of(dialect: &Dialect, first: &[u8], wanted: &Wanted) -> Self {
        let has = |name: &&&str| {
            let asked = Self::new(&[(**name).to_owned()]);
            asked.read(first).is_ok_and(|values| values.iter().all(Option::is_some))
        };
        let column = |field: &str| {
            let header = field.strip_prefix(HEADER);
            // Our name for the field, unless it is known only as a header.
            let ours = header.map_or(Some(field), field_of);
            let theirs =
                dialect.fields.iter().find(|(name, _)| Some(*name) == ours).map(|(_, theirs)| theirs);
            let mapped =
                wanted.names.iter().find(|(name, _)| name == field).map(|(_, theirs)| theirs.clone());
            let of_dialect = match (theirs, header, dialect.headers) {
                (Some(theirs), ..) => Some((*theirs.iter().find(has).unwrap_or(&theirs[0])).to_owned()),
                (None, Some(header), Some(prefix)) if ours.is_none() => {
                    Some(format!("{prefix}{}", capitalized(header)))
                }
                _ => None,
            };
            let is_optional = mapped.is_none() && of_dialect.is_some();
            let name = mapped.or(of_dialect).unwrap_or_else(|| ours.unwrap_or(field).to_owned());
            JsonColumn { name, is_optional, is_header: header.is_some() }
        };
        let marks = dialect.marks.iter().map(|&mark| JsonColumn::required(mark));
        Self(wanted.fields().map(column).chain(marks).collect())
    }

    /// Returns the values of the columns in a line. If a field occurs twice, the first value
    /// counts. Once all values have been found, the rest of the line need not be JSON.
    fn read<'de>(&self, line: &'de [u8]) -> Result<Vec<Option<&'de RawValue>>, Reason> {
        let mut json = serde_json::Deserializer::from_slice(line);
        let mut fields = Vec::new();
        let read = Fields(&mut fields).deserialize(&mut json).and_then(|()| json.end());
        let values: Vec<_> = self.0.iter().map(|column| column.find(&fields)).collect();
        let ends = |value: &RawValue| value.get().as_bytes().as_ptr_range().end;
        let is_after_value =
            || fields.last().is_some_and(|(_, last)| ends(last) == line.trim_ascii_end().as_ptr_range().end);
        match read {
            Ok(()) => Ok(values),
            // The line was cut off right after a value, which may be incomplete: a number, for
            // example, may have lost digits. A line that ends with a brace is complete, even if a
            // client's user agent has opened another object.
            Err(error) if error.is_eof() && is_after_value() && !line.ends_with(b"}") => {
                Err(not_an_object(&error))
            }
            Err(_) if values.iter().all(Option::is_some) => Ok(values),
            Err(error) => Err(not_an_object(&error)),
        }
    }
}

/// Returns a header's name as Go writes it: `X-Api-Key`.
fn capitalized(header: &str) -> String {
    let mut begins = true;
    let mut letter = |letter: char| {
        let written = if begins { letter.to_ascii_uppercase() } else { letter.to_ascii_lowercase() };
        begins = letter == '-';
        written
    };
    header.chars().map(&mut letter).collect()
}

/// Reads the fields of an object, in order. If the text ends too early, the fields before its end
/// remain.
struct Fields<'f, 'de>(&'f mut Vec<(Cow<'de, str>, &'de RawValue)>);

impl<'de> DeserializeSeed<'de> for Fields<'_, 'de> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, json: D) -> Result<Self::Value, D::Error> {
        json.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Fields<'_, 'de> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        while let Some((Name(name), value)) = map.next_entry()? {
            self.0.push((name, value));
        }
        Ok(())
    }
}

/// The name of a field, which is copied only if it has escapes.
#[derive(Deserialize)]
struct Name<'n>(#[serde(borrow)] Cow<'n, str>);

impl JsonColumn {
    fn required(name: &str) -> Self {
        Self { name: name.to_owned(), is_optional: false, is_header: false }
    }

    /// Returns a value as text. A string is returned without its quotes. If a known server writes
    /// lists in this field, a list of strings is joined with commas, or with line ends for the
    /// lines of a header. Everything else is returned as written.
    fn text<'v>(&self, value: &'v RawValue) -> Result<Cow<'v, [u8]>, Reason> {
        let raw = value.get();
        let kind = match raw.as_bytes().first() {
            Some(b'{') => "an object",
            // A list of objects is returned as written.
            Some(b'[') if self.is_optional && raw.as_bytes().get(1) == Some(&b'{') => {
                return Ok(Cow::Borrowed(raw.as_bytes()));
            }
            Some(b'[') if self.is_optional => {
                return match serde_json::from_str::<Vec<String>>(raw) {
                    Ok(values) => {
                        let between = if self.is_header { "\n" } else { ", " };
                        Ok(Cow::Owned(values.join(between).into_bytes()))
                    }
                    Err(_) => Ok(Cow::Borrowed(raw.as_bytes())),
                };
            }
            Some(b'[') => "an array",
            _ => return Ok(scalar(raw)),
        };
        let name = printable(self.name.as_bytes());
        Err(format!("its '{name}' is {kind}; expected a string or a number, in an object {name}.its-field")
            .into())
    }

    /// Returns this column's value among the fields of a line.
    fn find<'de>(&self, fields: &[(Cow<'de, str>, &'de RawValue)]) -> Option<&'de RawValue> {
        let named = |name: &str| fields.iter().find(|(field, _)| field == name).map(|(_, value)| *value);
        named(&self.name).or_else(|| {
            let (outer, inner) = self.name.split_once('.')?;
            let outer = named(outer).filter(|outer| outer.get().starts_with('{'))?;
            JsonColumns::new(&[inner.to_owned()]).read(outer.get().as_bytes()).ok()?.pop()?
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::replay::log::key::KeyShape;
    use crate::replay::log::schema::Cost;
    use crate::replay::log::schema::tests::wanted;

    const FIRST: &[u8] = br#"{"time": 7, "ip": "h", "bytes": 1, "path": "/"}"#;

    fn read(key: &[&str], line: &str) -> Result<(u64, u64, String), Reason> {
        let wanted = wanted(key, Cost::Bytes);
        let mut records = JsonRecords::open(Format::Json, FIRST, &wanted).expect("it has these fields");
        let mut bytes = Vec::new();
        let request = records.read(line.as_bytes(), &mut bytes)?;
        Ok((request.at.as_nanos(), request.cost, KeyShape::new(key.len()).show(&bytes)))
    }

    /// The fields of the key, a line, and the line's time, cost and printed key.
    type Row = (&'static [&'static str], &'static str, (u64, u64, &'static str));

    #[test]
    fn records_are_read() {
        let table: &[Row] = &[
            (
                &["ip"],
                r#"{"ip":"192.0.2.1","time":1431857103.123456789,"bytes":9}"#,
                (1_431_857_103_123_456_789, 9, "192.0.2.1"),
            ),
            (&["ip"], r#"{"time":1,"bytes":2,"ip":"h","agent":"","":{"":""}"#, (1_000_000_000, 2, "h")),
            (&["ip"], r#" { "time" : "1970-01-01T00:00:01Z" } "#, (1_000_000_000, 0, "-")),
            (&["ip"], r#"{"time":"1","ip":null,"bytes":null}"#, (1_000_000_000, 0, "-")),
            (&["ip"], r#"{"time":1,"ip":"\u0061\"","bytes":"5"}"#, (1_000_000_000, 5, "a\"")),
            (&["ip"], r#"{"time":1,"ip":"\ud800"}"#, (1_000_000_000, 0, "\"\\\\ud800\"")),
            (&["ip"], r#"{"time":1,"ip":7,"x":{"ip":2}}"#, (1_000_000_000, 0, "7")),
            (&["bytes", "ip"], r#"{"time":1,"ip":true,"bytes":3}"#, (1_000_000_000, 3, "3 + true")),
            (&["ip"], r#"{"time":1,"ip":1,"ip":2}"#, (1_000_000_000, 0, "1")),
            // The client's bytes end a string, and begin the name of a field that does not end.
            (&["ip"], r#"{"time":1,"bytes":2,"ip":"h","agent":"","}"#, (1_000_000_000, 2, "h")),
        ];
        for &(key, line, (nanos, cost, shown)) in table {
            assert_eq!(read(key, line), Ok((nanos, cost, shown.to_owned())), "{line}");
        }
    }

    #[test]
    fn a_line_that_is_no_record_says_why() {
        let table = [
            ("", "JSON"),
            ("[]", "an object"),
            (r#"{"time":1"#, "EOF"),
            (r#"{"ip":"h","bytes":2,"time":1"#, "EOF"),
            (r#"{"time":1} x"#, "trailing"),
            (r#"{"ip":"h"}"#, "no field 'time'"),
            (r#"{"time":null}"#, "no field 'time'"),
            (r#"{"time":true}"#, "RFC 3339"),
            (r#"{"time":1,"bytes":1.5}"#, "bytes"),
            (r#"{"time":1,"bytes":-1}"#, "bytes"),
            (r#"{"time":1e30}"#, "1970"),
            (r#"{"time":1,"ip":[1, {}]}"#, "its 'ip' is an array"),
            (r#"{"time":1,"ip":{"v4":"x"}}"#, "its 'ip' is an object"),
            (r#"{"time":{}}"#, "its 'time' is an object"),
        ];
        for (line, part) in table {
            let reason = read(&["ip"], line).expect_err(line);
            assert!(reason.contains(part), "{line}: {reason}");
        }
    }

    #[test]
    fn dotted_names_reach_into_objects_unless_a_field_has_just_that_name() {
        let table = [
            (r#"{"time":1,"a":{"b":{"c":"deep"}}}"#, "deep"),
            (r#"{"time":1,"a":{"b.c":"inner","b":{"c":"deep"}}}"#, "inner"),
            (r#"{"time":1,"a.b.c":"exact","a":{"b":{"c":"deep"}}}"#, "exact"),
            (r#"{"time":1,"a":{"b":{"c":"deep"}},"a.b.c":"exact"}"#, "exact"),
            (r#"{"time":1,"a":{"b":7}}"#, "-"),
            (r#"{"time":1,"a":"b"}"#, "-"),
            (r#"{"time":1}"#, "-"),
        ];
        let wanted = wanted(&["a.b.c"], Cost::One);
        for (line, value) in table {
            let mut records =
                JsonRecords::open(Format::Json, table[0].0.as_bytes(), &wanted).expect("it has the field");
            let mut key = Vec::new();
            assert!(records.read(line.as_bytes(), &mut key).is_ok(), "{line}");
            assert_eq!(key, value.as_bytes(), "{line}");
            assert_eq!(records.values.writer.missing(), [u64::from(value == "-")]);
        }
    }
}
