//! Defines a request's key, which is the byte string by which the limiter counts, and the key's
//! printable form.
//!
//! The field `path` is counted in the same form as by the proxy, or by its template. The fields
//! `ip` and `forwarded` are counted in the proxy's form of addresses.
//!
//! A single field is the whole key. With several fields, the key concatenates them, each preceded
//! by its length. Keys such as `a|b` + `c` and `a` + `b|c` therefore always differ.

use std::borrow::Cow;
use std::net::IpAddr;
use std::sync::Arc;

use tollgate_http::program::PathTemplates;

use super::address::Addresses;
use super::path;
use super::request::{MISSING, Reason, Record, byte_count};
use super::request_line::Part;
use super::schema::{Cost, Wanted};
use super::timestamp::{self, TimeUnit};

use crate::printable::printable;

const SEPARATOR: &str = " + ";
const LENGTH_BYTES: usize = size_of::<u64>();

/// The layout of keys with a certain number of fields.
#[derive(Clone, Copy, Debug)]
pub(crate) struct KeyShape {
    fields: usize,
}

/// Writes keys to the caller's buffers, and counts missing values.
#[derive(Debug)]
pub(crate) struct KeyWriter {
    shape: KeyShape,
    missing: Vec<u64>,
    kinds: Vec<FieldKind>,
    addresses: Addresses,
    templates: Option<Arc<PathTemplates>>,
}

/// Reads the values of a log whose fields have names: the time, the bytes if they are needed, and
/// the key's fields.
#[derive(Debug)]
pub(crate) struct NamedValues {
    pub(crate) writer: KeyWriter,
    cost: Cost,
    unit: TimeUnit,
}

impl NamedValues {
    /// Times that are numbers are in `unit`.
    pub(crate) fn new(wanted: &Wanted, unit: TimeUnit) -> Self {
        Self { writer: KeyWriter::new(wanted), cost: wanted.cost, unit }
    }

    /// Reads the values of a line, and writes its key.
    pub(crate) fn read(
        &mut self,
        mut values: impl Iterator<Item: AsRef<[u8]>>,
        key: &mut Vec<u8>,
    ) -> Result<Record, Reason> {
        let missing = || Reason::from("it has no time");
        let at = timestamp::read(values.next().ok_or_else(missing)?.as_ref(), self.unit)?;
        let cost = match self.cost {
            Cost::One => 1,
            Cost::Bytes => values.next().map_or(Ok(0), |bytes| byte_count(bytes.as_ref()))?,
        };
        self.writer.write(key, values);
        Ok(Record { at, cost })
    }
}

/// How the value of a field is counted.
#[derive(Clone, Copy, Debug)]
enum FieldKind {
    Address,
    Path,
    Request(Part),
    /// The value is counted unchanged.
    Text,
}

impl KeyWriter {
    pub(crate) fn new(wanted: &Wanted) -> Self {
        let fields = wanted.key.len();
        let kind = |field: &String| match &**field {
            "ip" | "forwarded" => FieldKind::Address,
            "path" => FieldKind::Path,
            field => Part::named(field).map_or(FieldKind::Text, FieldKind::Request),
        };
        Self {
            shape: KeyShape::new(fields),
            missing: vec![0; fields],
            kinds: wanted.key.iter().map(kind).collect(),
            addresses: Addresses::new(wanted.ipv6_prefix, wanted.trust_hops),
            templates: wanted.templates.clone(),
        }
    }

    /// Appends the key that consists of these values, one for each field.
    #[inline]
    pub(crate) fn write(&mut self, key: &mut Vec<u8>, values: impl Iterator<Item: AsRef<[u8]>>) {
        for ((value, missing), &kind) in values.zip(&mut self.missing).zip(&self.kinds) {
            let value = value.as_ref();
            let is_missing = value.is_empty() || value == MISSING;
            let counted = match kind {
                FieldKind::Address if !is_missing => self.addresses.counted(value),
                FieldKind::Path if !is_missing => {
                    path::counted(Part::Target.of(value), self.templates.as_deref())
                }
                FieldKind::Request(part) => Cow::Borrowed(part.of(value)),
                _ => Cow::Borrowed(value),
            };
            *missing += u64::from(counted.is_empty() || *counted == *MISSING);
            self.shape.push(key, &counted);
        }
    }

    /// Returns the client's address in the last written key, if the key has an address.
    pub(crate) fn last_address(&self) -> Option<IpAddr> {
        self.addresses.last()
    }

    /// Returns, for each field, the number of keys in which the field has no value.
    pub(crate) fn missing(&self) -> &[u64] {
        &self.missing
    }
}

impl KeyShape {
    pub(crate) fn new(fields: usize) -> Self {
        Self { fields }
    }

    /// Appends the next field's value to a key.
    #[inline]
    pub(crate) fn push(self, key: &mut Vec<u8>, value: &[u8]) {
        if self.fields > 1 {
            key.extend_from_slice(&(value.len() as u64).to_le_bytes());
        }
        key.extend_from_slice(value);
    }

    /// Returns the values of a key, as they were written.
    pub(crate) fn values(self, key: &[u8]) -> impl Iterator<Item = &[u8]> {
        let mut rest = Some(key).filter(|_| self.fields > 0);
        std::iter::from_fn(move || {
            if self.fields == 1 {
                return rest.take();
            }
            let (length, after) = rest?.split_first_chunk::<LENGTH_BYTES>()?;
            let length = usize::try_from(u64::from_le_bytes(*length)).unwrap_or(usize::MAX);
            let (value, after) = after.split_at(length.min(after.len()));
            rest = Some(after);
            Some(value)
        })
    }

    /// Returns a key's printable form: the printable values of its fields, joined by ` + `.
    /// Different keys have different printable forms.
    pub(crate) fn show(self, key: &[u8]) -> String {
        if self.fields == 1 {
            return show_value(key);
        }
        let shown: Vec<String> =
            self.values(key).map(|value| escape_separators(&show_value(value))).collect();
        shown.join(SEPARATOR)
    }
}

/// Returns a value's printable form. An empty value is shown as `""`. A value that consists of two
/// quotes is shown with a backslash in front.
fn show_value(value: &[u8]) -> String {
    match value {
        b"" => "\"\"".into(),
        b"\"\"" => "\\\"\"".into(),
        value => printable(value),
    }
}

/// Puts a backslash in front of each `+` that could be mistaken for a separator.
fn escape_separators(value: &str) -> String {
    let mut escaped = String::with_capacity(value.len());
    let mut characters = value.chars().peekable();
    let mut before = None;
    while let Some(character) = characters.next() {
        let free = |beside: Option<char>| beside.is_none_or(|beside| beside == ' ');
        if character == '+' && free(before) && free(characters.peek().copied()) {
            escaped.push('\\');
        }
        escaped.push(character);
        before = Some(character);
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn key(values: &[&[u8]]) -> Vec<u8> {
        let mut key = Vec::new();
        for value in values {
            KeyShape::new(values.len()).push(&mut key, value);
        }
        key
    }

    #[test]
    fn fields_cannot_run_into_each_other() {
        assert_ne!(key(&[b"a|b", b"c"]), key(&[b"a", b"b|c"]));
        assert_ne!(key(&[b"a + b", b"c"]), key(&[b"a", b"b + c"]));
        assert_ne!(key(&[b"", b"ab"]), key(&[b"ab", b""]));
        assert_ne!(key(&[b"ab", b"", b""]), key(&[b"a", b"b", b""]));
    }

    #[test]
    fn a_single_field_is_its_own_key() {
        assert_eq!(key(&[b"192.0.2.1"]), b"192.0.2.1");
    }

    #[test]
    fn keys_are_shown_safely() {
        let one = KeyShape::new(1);
        assert_eq!(one.show(b"2001:db8::1"), "2001:db8::1");
        assert_eq!(one.show(b"a\x1b[2Jb\xff\0"), "a\\u{1b}[2Jb\\xff\\0");
        assert_eq!(one.show(b""), "\"\"");
        assert_eq!(KeyShape::new(2).show(&key(&[b"192.0.2.1", b"/a"])), "192.0.2.1 + /a");
        assert_eq!(KeyShape::new(2).show(&key(&[b"", b""])), "\"\" + \"\"");
    }

    proptest! {
        #[test]
        fn equal_keys_come_from_equal_fields_only(
            a in prop::collection::vec(prop::collection::vec(0_u8..3, 0..4), 3),
            b in prop::collection::vec(prop::collection::vec(0_u8..3, 0..4), 3),
        ) {
            let encode = |values: &[Vec<u8>]| {
                key(&values.iter().map(Vec::as_slice).collect::<Vec<_>>())
            };
            prop_assert_eq!(encode(&a) == encode(&b), a == b);
        }

        #[test]
        fn different_keys_are_shown_differently(
            a in prop::collection::vec("[a+ \"]{0,3}", 2),
            b in prop::collection::vec("[a+ \"]{0,3}", 2),
        ) {
            let show = |values: &[String]| {
                let values: Vec<_> = values.iter().map(String::as_bytes).collect();
                KeyShape::new(values.len()).show(&key(&values))
            };
            prop_assert_eq!(show(&a) == show(&b), a == b);
            prop_assert_eq!(show(&a[..1]) == show(&b[..1]), a[0] == b[0]);
        }

        #[test]
        fn any_bytes_can_be_shown(
            bytes in prop::collection::vec(any::<u8>(), 0..64),
            fields in 1_usize..4,
        ) {
            prop_assert!(!KeyShape::new(fields).show(&bytes).chars().any(char::is_control));
        }
    }
}
