//! The classes of callers in the text of a limit: their quotas, and how a request's is found.

use super::error::TextError;
use super::printable::printable;
use super::quota::parse_quota;
use super::words::words;
use std::fmt;
use tollgate::Quota;

/// How the class of a request is found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClassByText {
    /// The header with this name has the name of the class, if a trusted proxy sent the request.
    Header(String),
    /// A file has the class of each value of this header.
    HeaderIn {
        /// The name of the header.
        header: String,
        /// The file: see [`ClassBy::file`](crate::ClassBy::file).
        file: String,
    },
    /// A file has the class of each value of this query parameter.
    QueryIn {
        /// The name of the parameter.
        parameter: String,
        /// The file: see [`ClassBy::file`](crate::ClassBy::file).
        file: String,
    },
}

const BY: &str = "`class by header NAME` (from trusted proxies), `class by header NAME in FILE` or `class by query \
    NAME in FILE` (with lines `key,class`)";

/// Splits the words after `by` into those of the key and those that say how a class is found.
pub(super) fn split<'w, 't>(words: &'w [&'t str]) -> (&'w [&'t str], Option<&'w [&'t str]>) {
    match words.windows(2).rposition(|pair| pair == ["class", "by"]) {
        Some(at) => (&words[..at], Some(&words[at + 2..])),
        None => (words, None),
    }
}

/// Parses the quotas before `by`: the limit's own, and those of its classes.
pub(super) fn quotas(text: &str) -> Result<(Quota, Vec<(String, Quota)>), TextError> {
    let mut pieces = pieces(text).into_iter();
    let own = parse_quota(pieces.next().unwrap_or_default())?;
    let class = |piece: &str| {
        let (name, quota) = piece.split_once(char::is_whitespace).unwrap_or((piece, ""));
        if name.is_empty() || quota.trim().is_empty() {
            return Err(TextError::new(format!(
                "missing {} after `class {}`: expected `class NAME QUOTA`, as in `class paid 1000/min`",
                if name.is_empty() { "name" } else { "quota" },
                printable(name.as_bytes())
            )));
        }
        Ok((name.to_owned(), parse_quota(quota.trim())?))
    };
    Ok((own, pieces.map(class).collect::<Result<_, _>>()?))
}

/// Returns what stands before, between and after the words `class`.
fn pieces(text: &str) -> Vec<&str> {
    let mut pieces = Vec::new();
    let mut from = 0;
    for (at, word) in words(text) {
        if word == "class" {
            pieces.push(text[from..at].trim());
            from = at + word.len();
        }
    }
    pieces.push(text[from..].trim());
    pieces
}

/// Parses how a class is found; `words` are those after `class by`.
pub(super) fn class_by(
    classes: &[(String, Quota)],
    words: Option<&[&str]>,
    has_key: bool,
) -> Result<Option<ClassByText>, String> {
    let names = || {
        let names: Vec<String> = classes.iter().map(|(name, _)| printable(name.as_bytes())).collect();
        names.join(", ")
    };
    let by = match words {
        None if classes.is_empty() => return Ok(None),
        None => {
            return Err(format!(
                "classes ({}) without `class by`, so no request would be of one: expected {BY} at the end",
                names()
            ));
        }
        Some(_) if classes.is_empty() => {
            return Err(
                "`class by` without classes: expected `class NAME QUOTA` after the limit's quota, as in \
                `10/min class paid 1000/min by ...`"
                    .to_owned(),
            );
        }
        Some(_) if !has_key => {
            return Err(format!(
                "classes ({}) with `by nothing`, which has one state for all: expected a key, such as `ip`, or a \
                 limit of its own",
                names()
            ));
        }
        Some(["header", name]) => ClassByText::Header((*name).to_owned()),
        Some(["header", name, "in", file]) => {
            ClassByText::HeaderIn { header: (*name).to_owned(), file: (*file).to_owned() }
        }
        Some(["query", name, "in", file]) => {
            ClassByText::QueryIn { parameter: (*name).to_owned(), file: (*file).to_owned() }
        }
        Some(words) => {
            let words = printable(words.join(" ").as_bytes());
            return Err(format!("invalid `class by {words}`: expected {BY}"));
        }
    };
    Ok(Some(by))
}

impl fmt::Display for ClassByText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Header(name) => write!(f, "class by header {name}"),
            Self::HeaderIn { header, file } => write!(f, "class by header {header} in {file}"),
            Self::QueryIn { parameter, file } => write!(f, "class by query {parameter} in {file}"),
        }
    }
}
