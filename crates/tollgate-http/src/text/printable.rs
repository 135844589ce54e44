//! Makes untrusted text from arguments, logs or file names safe to print.
//!
//! The result contains no character that controls a terminal or reorders a line;
//! [`str::escape_debug`] recognizes invisible characters. Different bytes never look the same,
//! because backslashes in the text are escaped as well, and bytes that are not UTF-8 are written in
//! the form `\xff`.

use std::fmt::Write;

/// Converts bytes to text that is safe to print. Different bytes result in different text.
///
/// ```
/// use tollgate_http::program::printable;
///
/// assert_eq!(printable(b"plain"), "plain");
/// assert_eq!(printable(b"\x1b[2J \xff"), "\\u{1b}[2J \\xff");
/// ```
pub fn printable(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        // Quotes are harmless, and std would escape them.
        for part in chunk.valid().split_inclusive(['"', '\'']) {
            let plain = part.trim_end_matches(['"', '\'']);
            text.extend(plain.escape_debug());
            text.push_str(&part[plain.len()..]);
        }
        for byte in chunk.invalid() {
            // Writing to a string cannot fail.
            let _ = write!(text, "\\x{byte:02x}");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::ops::RangeInclusive;

    #[test]
    fn what_steers_a_terminal_or_a_line_is_escaped() {
        let table: &[(&[u8], &str)] = &[
            (b"plain /a?b=c", "plain /a?b=c"),
            ("n\u{e4}\u{ef}ve \u{fffd}".as_bytes(), "n\u{e4}\u{ef}ve \u{fffd}"),
            (b"\x1b[2J\0\n\x7f", "\\u{1b}[2J\\0\\n\\u{7f}"),
            (b"\"it's\"", "\"it's\""),
            ("\u{9b}".as_bytes(), "\\u{9b}"),
            (b"a\\n", "a\\\\n"),
            (b"\xff\xc3", "\\xff\\xc3"),
        ];
        for &(bytes, shown) in table {
            assert_eq!(printable(bytes), shown);
        }
    }

    #[test]
    fn what_is_not_drawn_but_changes_how_others_are_is_escaped() {
        // Unicode's categories Cf (bidirectional marks, joiners, tags), Zl and Zp.
        let invisible: [RangeInclusive<u32>; 21] = [
            0xad..=0xad,
            0x600..=0x605,
            0x61c..=0x61c,
            0x6dd..=0x6dd,
            0x70f..=0x70f,
            0x890..=0x891,
            0x8e2..=0x8e2,
            0x180e..=0x180e,
            0x200b..=0x200f,
            0x2028..=0x202e,
            0x2060..=0x206f,
            0xfeff..=0xfeff,
            0xfff9..=0xfffb,
            0x110bd..=0x110bd,
            0x110cd..=0x110cd,
            0x13430..=0x1343f,
            0x1bca0..=0x1bca3,
            0x1d173..=0x1d17a,
            0xe0001..=0xe0001,
            0xe0020..=0xe0020,
            0xe0021..=0xe007f,
        ];
        for invisible in invisible.into_iter().flatten() {
            let character = char::from_u32(invisible).expect("a character");
            let escape = format!("\\u{{{invisible:x}}}");
            assert_eq!(printable(character.to_string().as_bytes()), escape);
            assert_eq!(printable(format!("a{character}b").as_bytes()), format!("a{escape}b"));
        }
    }

    proptest! {
        #[test]
        fn different_bytes_never_look_the_same(
            a in prop::collection::vec(prop_oneof![Just(b'\\'), Just(b'x'), Just(b'f'), Just(0xff), any::<u8>()], 0..6),
            b in prop::collection::vec(prop_oneof![Just(b'\\'), Just(b'x'), Just(b'f'), Just(0xff), any::<u8>()], 0..6),
        ) {
            prop_assert_eq!(printable(&a) == printable(&b), a == b);
        }
    }
}
