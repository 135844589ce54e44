//! Reads JSON lines: one object a line, fields by name.
//!
//! Numbers are taken as they are written, so that a time keeps all its digits. A field of the key
//! that is missing or `null` in a record is `-`, as in the other formats.

use std::borrow::Cow;
use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, Visitor};
use serde_json::value::RawValue;

use super::key::KeyShape;
use super::printable::printable;
use super::record::{Cost, Format, MISSING, Reason, Request, Unopened, Wanted, byte_count, unknown_field};
use super::stamp::{self, TimeUnit};

/// Reads the records of one log of JSON lines.
pub(crate) struct JsonRecords {
    /// [`Wanted::columns`]: the time, the bytes if they matter, the key's fields.
    columns: Vec<String>,
    shape: KeyShape,
    cost: Cost,
    unit: TimeUnit,
}

impl JsonRecords {
    /// # Errors
    ///
    /// The first line is no record, or has not all the fields.
    pub(crate) fn open(first: &[u8], wanted: &Wanted) -> Result<Self, Unopened> {
        let record: serde_json::Map<String, serde_json::Value> =
            serde_json::from_slice(first).map_err(|error| Unopened::NotARecord(reason(&error)))?;
        let columns = wanted.columns();
        for column in &columns {
            if !record.contains_key(column) {
                return Err(unknown_field(column, Format::Json, record.keys().map(String::as_bytes)));
            }
        }
        let shape = KeyShape::new(wanted.key.len());
        Ok(Self { columns, shape, cost: wanted.cost, unit: wanted.unit })
    }

    pub(crate) fn read(&mut self, line: &[u8], key: &mut Vec<u8>) -> Result<Request, Reason> {
        let mut json = serde_json::Deserializer::from_slice(line);
        let values = Columns(&self.columns)
            .deserialize(&mut json)
            .and_then(|values| json.end().map(|()| values))
            .map_err(|error| reason(&error))?;
        let mut values = values.into_iter().map(|value| value.map_or(Cow::Borrowed(MISSING), text));
        let mut next = || values.next().unwrap_or(Cow::Borrowed(MISSING));
        let time = next();
        if *time == *MISSING {
            return Err(format!("it has no field '{}'", printable(self.columns[0].as_bytes())).into());
        }
        let at = stamp::read(&time, self.unit)?;
        let cost = match self.cost {
            Cost::One => 1,
            Cost::Bytes => byte_count(&next())?,
        };
        for value in values {
            self.shape.push(key, &value);
        }
        Ok(Request { at, cost })
    }
}

fn reason(error: &serde_json::Error) -> Reason {
    // serde_json counts lines within what it was given, which is one line.
    let what = error.to_string();
    let what = what.split(" at line ").next().unwrap_or_default();
    let what = printable(what.as_bytes());
    format!("it is not a JSON object: {what} at column {}", error.column()).into()
}

/// A value as text: strings without their quotes, everything else as it is written.
fn text(value: &RawValue) -> Cow<'_, [u8]> {
    let raw = value.get();
    match raw.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')) {
        Some(plain) if !plain.contains('\\') => Cow::Borrowed(plain.as_bytes()),
        Some(_) => match serde_json::from_str::<String>(raw) {
            Ok(text) => Cow::Owned(text.into_bytes()),
            // Half of a surrogate pair is legal JSON and no text: it stays escaped.
            Err(_) => Cow::Borrowed(raw.as_bytes()),
        },
        None if raw == "null" => Cow::Borrowed(MISSING),
        None => Cow::Borrowed(raw.as_bytes()),
    }
}

/// Picks the named fields out of an object and passes over the others.
struct Columns<'c>(&'c [String]);

impl<'de> DeserializeSeed<'de> for Columns<'_> {
    type Value = Vec<Option<&'de RawValue>>;

    fn deserialize<D: Deserializer<'de>>(self, json: D) -> Result<Self::Value, D::Error> {
        json.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Columns<'_> {
    type Value = Vec<Option<&'de RawValue>>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut values = vec![None; self.0.len()];
        while let Some(name) = map.next_key_seed(Name(self.0))? {
            let Some(first) = name else {
                map.next_value::<IgnoredAny>()?;
                continue;
            };
            let value = map.next_value::<&'de RawValue>()?;
            // One field may be wanted twice: as the bytes that are the cost and as part of the key.
            for (column, slot) in self.0.iter().zip(&mut values) {
                if *column == self.0[first] {
                    *slot = Some(value);
                }
            }
        }
        Ok(values)
    }
}

/// The place of a field's name among the columns, if it is there.
struct Name<'c>(&'c [String]);

impl<'de> DeserializeSeed<'de> for Name<'_> {
    type Value = Option<usize>;

    fn deserialize<D: Deserializer<'de>>(self, json: D) -> Result<Self::Value, D::Error> {
        json.deserialize_str(self)
    }
}

impl Visitor<'_> for Name<'_> {
    type Value = Option<usize>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the name of a field")
    }

    fn visit_str<E>(self, name: &str) -> Result<Self::Value, E> {
        Ok(self.0.iter().position(|column| column == name))
    }
}

#[cfg(test)]
mod tests {
    use super::super::record::tests::wanted;
    use super::*;

    const FIRST: &[u8] = br#"{"time": 7, "ip": "h", "bytes": 1, "path": "/"}"#;

    fn read(key: &[&str], line: &str) -> Result<(u64, u64, String), Reason> {
        let wanted = wanted(key, Cost::Bytes);
        let mut records = JsonRecords::open(FIRST, &wanted).expect("it has these fields");
        let mut bytes = Vec::new();
        let request = records.read(line.as_bytes(), &mut bytes)?;
        Ok((request.at.as_nanos(), request.cost, KeyShape::new(key.len()).show(&bytes)))
    }

    /// The fields of the key, the line, and its time, cost and key as shown.
    type Row = (&'static [&'static str], &'static str, (u64, u64, &'static str));

    #[test]
    fn records_are_read() {
        let table: &[Row] = &[
            (
                &["ip"],
                r#"{"ip":"192.0.2.1","time":1431857103.123456789,"bytes":9}"#,
                (1_431_857_103_123_456_789, 9, "192.0.2.1"),
            ),
            (&["ip"], r#" { "time" : "1970-01-01T00:00:01Z" } "#, (1_000_000_000, 0, "-")),
            (&["ip"], r#"{"time":"1","ip":null,"bytes":null}"#, (1_000_000_000, 0, "-")),
            (&["ip"], r#"{"time":1,"ip":"\u0061\"","bytes":"5"}"#, (1_000_000_000, 5, "a\"")),
            (&["ip"], r#"{"time":1,"ip":"\ud800"}"#, (1_000_000_000, 0, "\"\\\\ud800\"")),
            (&["ip"], r#"{"time":1,"ip":[1, {}],"x":{"ip":2}}"#, (1_000_000_000, 0, "[1, {}]")),
            (&["bytes", "ip"], r#"{"time":1,"ip":true,"bytes":3}"#, (1_000_000_000, 3, "3 + true")),
            (&["ip"], r#"{"time":1,"ip":1,"ip":2}"#, (1_000_000_000, 0, "2")),
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
            (r#"{"time":1} x"#, "trailing"),
            (r#"{"ip":"h"}"#, "no field 'time'"),
            (r#"{"time":null}"#, "no field 'time'"),
            (r#"{"time":true}"#, "RFC 3339"),
            (r#"{"time":1,"bytes":1.5}"#, "bytes"),
            (r#"{"time":1,"bytes":-1}"#, "bytes"),
            (r#"{"time":1e30}"#, "1970"),
        ];
        for (line, part) in table {
            let reason = read(&["ip"], line).expect_err(line);
            assert!(reason.contains(part), "{line}: {reason}");
        }
    }

    #[test]
    fn an_unknown_field_is_answered_with_those_of_the_first_record() {
        let refused = JsonRecords::open(FIRST, &wanted(&["host"], Cost::One)).err();
        let Some(Unopened::Refused(message)) = refused else { panic!("'host' is known") };
        assert!(message.contains("'host'") && message.contains("bytes, ip, path, time"));
    }

    #[test]
    fn names_are_mapped() {
        let mut wanted = wanted(&["ip"], Cost::One);
        wanted.names = vec![("time".into(), "ts".into()), ("ip".into(), "remote".into())];
        let line = br#"{"ts":1,"remote":"h"}"#;
        let mut records = JsonRecords::open(line, &wanted).expect("the names are mapped");
        let mut key = Vec::new();
        assert!(records.read(line, &mut key).is_ok());
        assert_eq!(key, b"h");
    }
}
