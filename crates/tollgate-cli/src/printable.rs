//! Makes text from logs, arguments and file names safe to print.

use std::borrow::Cow;
use std::path::Path;

pub(crate) use tollgate_http::program::printable;

/// The maximum number of names that a list shows.
const NAMES_SHOWN: usize = 20;

/// Returns a file's name, safe to print.
pub(crate) fn printable_path(path: &Path) -> String {
    printable(path.as_os_str().as_encoded_bytes())
}

/// Returns the text, cut to at most `width` characters.
pub(crate) fn cut(text: &str, width: usize) -> Cow<'_, str> {
    match text.char_indices().nth(width) {
        None => Cow::Borrowed(text),
        Some(_) => Cow::Owned(text.chars().take(width - 1).chain(['…']).collect()),
    }
}

/// Returns a word, quoted for a shell if necessary.
pub(crate) fn shell_word(word: &str) -> String {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_./:,+=".contains(&byte);
    if !word.is_empty() && word.bytes().all(is_plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

/// Returns the names, separated by commas. A long list is cut.
pub(crate) fn listed<'n>(names: impl IntoIterator<Item = &'n [u8]>) -> String {
    let mut names = names.into_iter();
    let shown: Vec<String> = names.by_ref().take(NAMES_SHOWN).map(printable).collect();
    match (shown.join(", "), names.count()) {
        (list, 0) => list,
        (list, more) => format!("{list} and {more} more"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_lists_are_cut_and_say_so() {
        let names: Vec<String> = (0..25).map(|n| n.to_string()).collect();
        let list = |count: usize| listed(names[..count].iter().map(String::as_bytes));
        assert_eq!((list(0).as_str(), list(2).as_str()), ("", "0, 1"));
        assert!(list(20).ends_with(", 19"), "{}", list(20));
        assert!(list(25).ends_with(", 19 and 5 more"), "{}", list(25));
    }

    #[test]
    fn words_of_a_shell_are_quoted_where_they_have_to_be() {
        for (word, quoted) in
            [("a/b.log", "a/b.log"), ("", "''"), ("5/s burst 2", "'5/s burst 2'"), ("$(x)", "'$(x)'")]
        {
            assert_eq!(shell_word(word), quoted);
        }
        assert_eq!(shell_word("it's"), r"'it'\''s'");
    }

    #[test]
    fn long_texts_are_cut_between_characters() {
        assert_eq!(cut("näïve", 5), "näïve");
        assert_eq!(cut("näïve", 4), "näï…");
        assert_eq!(cut("", 4), "");
    }
}
