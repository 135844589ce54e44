//! The key of a request: the bytes the limiter counts by, and how people are shown them.
//!
//! A single field is its own key. Several fields are written one after the other, each behind its
//! length, so that `a|b` + `c` and `a` + `b|c` stay two keys whatever the fields contain.

use std::fmt::Write;

const SEPARATOR: &str = " + ";
const LENGTH_BYTES: usize = size_of::<u64>();

/// Writes keys of a given number of fields into a buffer that is used again and again.
#[derive(Clone, Copy, Debug)]
pub(crate) struct KeyShape {
    fields: usize,
}

impl KeyShape {
    pub(crate) fn new(fields: usize) -> Self {
        Self { fields }
    }

    /// Appends one field's value to the key in `key`, which starts out empty.
    #[inline]
    pub(crate) fn push(self, key: &mut Vec<u8>, value: &[u8]) {
        if self.fields > 1 {
            key.extend_from_slice(&(value.len() as u64).to_le_bytes());
        }
        key.extend_from_slice(value);
    }

    /// The key as shown: fields joined by ` + `, what is not UTF-8 replaced, and control characters
    /// escaped, because a log's bytes must not steer the terminal.
    pub(crate) fn show(self, key: &[u8]) -> String {
        let mut shown = String::new();
        if self.fields == 1 {
            show_value(&mut shown, key);
            return shown;
        }
        let mut rest = key;
        while let Some((length, after)) = rest.split_first_chunk::<LENGTH_BYTES>() {
            let length = usize::try_from(u64::from_le_bytes(*length)).unwrap_or(usize::MAX);
            let (value, after) = after.split_at(length.min(after.len()));
            if !shown.is_empty() {
                shown.push_str(SEPARATOR);
            }
            show_value(&mut shown, value);
            rest = after;
        }
        shown
    }
}

fn show_value(shown: &mut String, value: &[u8]) {
    if value.is_empty() {
        shown.push_str("\"\"");
    }
    shown.push_str(&printable(value));
}

/// Bytes of a log as text that is safe to print.
pub(crate) fn printable(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    for character in String::from_utf8_lossy(bytes).chars() {
        if character.is_control() {
            // Writing to a string cannot fail.
            let _ = write!(text, "{}", character.escape_default());
        } else {
            text.push(character);
        }
    }
    text
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
        assert_eq!(one.show(b"a\x1b[2Jb\xff\0"), "a\\u{1b}[2Jb\u{fffd}\\u{0}");
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
        fn any_bytes_can_be_shown(
            bytes in prop::collection::vec(any::<u8>(), 0..64),
            fields in 1_usize..4,
        ) {
            prop_assert!(!KeyShape::new(fields).show(&bytes).chars().any(char::is_control));
        }
    }
}
