//! Text from outside - logs, arguments, file names - as it is safe to print and tells all apart.
//!
//! What comes out has no character that steers a terminal or reorders a line, and different bytes never
//! look the same: the backslash that begins an escape is escaped itself, and bytes that are no UTF-8 are
//! `\xff`.

use std::borrow::Cow;
use std::fmt::Write;
use std::path::Path;

/// So many names of a list are shown.
const NAMES_SHOWN: usize = 20;

/// Bytes as text that is safe to print.
pub(crate) fn printable(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        for character in chunk.valid().chars() {
            if character == '\\' || character.is_control() || is_invisible(character) {
                text.extend(character.escape_default());
            } else {
                text.push(character);
            }
        }
        for byte in chunk.invalid() {
            // Writing to a string cannot fail.
            let _ = write!(text, "\\x{byte:02x}");
        }
    }
    text
}

/// A file's name that is safe to print.
pub(crate) fn printable_path(path: &Path) -> String {
    printable(path.as_os_str().as_encoded_bytes())
}

/// A text cut to so many characters.
pub(crate) fn cut(text: &str, width: usize) -> Cow<'_, str> {
    match text.char_indices().nth(width) {
        None => Cow::Borrowed(text),
        Some(_) => Cow::Owned(text.chars().take(width - 1).chain(['…']).collect()),
    }
}

/// Names behind commas; a long list is cut.
pub(crate) fn listed<'n>(names: impl IntoIterator<Item = &'n [u8]>) -> String {
    let mut names = names.into_iter();
    let shown: Vec<String> = names.by_ref().take(NAMES_SHOWN).map(printable).collect();
    match (shown.join(", "), names.count()) {
        (list, 0) => list,
        (list, more) => format!("{list} and {more} more"),
    }
}

/// Characters that are not drawn but change how others are: Unicode's categories Cf (bidirectional
/// marks, joiners, tags), Zl and Zp.
fn is_invisible(character: char) -> bool {
    matches!(u32::from(character),
        0xad
        | 0x600..=0x605
        | 0x61c
        | 0x6dd
        | 0x70f
        | 0x890..=0x891
        | 0x8e2
        | 0x180e
        | 0x200b..=0x200f
        | 0x2028..=0x202e
        | 0x2060..=0x206f
        | 0xfeff
        | 0xfff9..=0xfffb
        | 0x110bd
        | 0x110cd
        | 0x13430..=0x1343f
        | 0x1bca0..=0x1bca3
        | 0x1d173..=0x1d17a
        | 0xe0001
        | 0xe0020..=0xe007f)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn what_steers_a_terminal_or_a_line_is_escaped() {
        let table: &[(&[u8], &str)] = &[
            (b"plain /a?b=c", "plain /a?b=c"),
            ("n\u{e4}\u{ef}ve \u{fffd}".as_bytes(), "n\u{e4}\u{ef}ve \u{fffd}"),
            (b"\x1b[2J\0\n\x7f", "\\u{1b}[2J\\u{0}\\n\\u{7f}"),
            ("\u{9b}".as_bytes(), "\\u{9b}"),
            (b"a\\n", "a\\\\n"),
            (b"\xff\xc3", "\\xff\\xc3"),
        ];
        for &(bytes, shown) in table {
            assert_eq!(printable(bytes), shown);
        }
        for invisible in [
            0xad, 0x61c, 0x200b, 0x200e, 0x200f, 0x2028, 0x2029, 0x202a, 0x202e, 0x2060, 0x2064, 0x2066,
            0x2069, 0x206f, 0xfeff, 0xe0041,
        ] {
            let character = char::from_u32(invisible).expect("a character");
            assert_eq!(printable(character.to_string().as_bytes()), format!("\\u{{{invisible:x}}}"));
        }
    }

    #[test]
    fn long_lists_are_cut_and_say_so() {
        let names: Vec<String> = (0..25).map(|n| n.to_string()).collect();
        let list = |count: usize| listed(names[..count].iter().map(String::as_bytes));
        assert_eq!((list(0).as_str(), list(2).as_str()), ("", "0, 1"));
        assert!(list(20).ends_with(", 19"), "{}", list(20));
        assert!(list(25).ends_with(", 19 and 5 more"), "{}", list(25));
    }

    #[test]
    fn long_texts_are_cut_between_characters() {
        assert_eq!(cut("näïve", 5), "näïve");
        assert_eq!(cut("näïve", 4), "näï…");
        assert_eq!(cut("", 4), "");
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
