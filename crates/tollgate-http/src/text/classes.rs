//! Parses the classes of callers in a limit's text, with their allowances and the way to find a
//! request's class.

use super::allowance::Allowances;
use super::error::TextError;
use super::printable::printable;
use super::words::Words;
use std::fmt;

/// The name of the default class.
pub(crate) const DEFAULT: &str = "default";

/// The maximum length of a class name in bytes, which is the same as in the core's limiters.
const MAX_NAME: usize = 128;

/// How a request's class is found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ClassByText {
    /// The header with this name contains the class. The header counts only if a trusted proxy sent
    /// the request.
    Header(String),
    /// A file contains the class: see the [form of such a
    /// file](crate::settings#form-of-a-file-of-classes).
    In {
        /// The value to look up in the file.
        what: ListedText,
        /// The file.
        file: String,
    },
}

/// The value to look up in a file of classes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ListedText {
    /// The key of the limit.
    Key,
    /// The address of the client.
    Ip,
    /// The value of this header.
    Header(String),
    /// The value of this query parameter.
    Query(String),
}

const BY: &str = "`class by key in FILE`, `class by ip in FILE`, `class by header NAME in FILE`, `class by query NAME \
    in FILE` (each with lines `key,class`) or `class by header NAME` (from trusted proxies)";

/// The name of a class, and its allowances.
pub(super) type ClassText = (String, Allowances);

/// Parses the classes before `by`.
pub(super) fn take_classes(words: &mut Words<'_>) -> Result<Vec<ClassText>, TextError> {
    let mut classes: Vec<ClassText> = Vec::new();
    while words.take("class") {
        let name = words.peek().filter(|&word| word != "by").unwrap_or_default().to_owned();
        words.take(&name);
        let ends = words.peek().is_none_or(|word| word == "class" || word == "by");
        if name.is_empty() || ends {
            return Err(TextError::new(format!(
                "missing {} after `class {}`: expected `class NAME QUOTA`, as in `class paid 1000/min`",
                if name.is_empty() { "name" } else { "quota" },
                printable(name.as_bytes())
            )));
        }
        classes.push((name, Allowances::take(words)?));
    }
    Ok(classes)
}

/// Parses the words that specify how a class is found, if there are any.
pub(super) fn take_class_by(words: &mut Words<'_>) -> Result<Option<ClassByText>, TextError> {
    let mut ahead = words.clone();
    if !(ahead.take("class") && ahead.take("by")) {
        return Ok(None);
    }
    *words = ahead;
    let text = words.take_until(|words| words.start_with(&["then", "pause"]));
    class_by(text).map(Some)
}

/// Parses the text after `class by`, which specifies how a class is found.
pub(super) fn class_by(text: &str) -> Result<ClassByText, TextError> {
    let parts: Vec<&str> = text.split_whitespace().collect();
    let (what, file) = match parts[..] {
        ["header", name] => return Ok(ClassByText::Header(name.to_owned())),
        ["key", "in", file] => (ListedText::Key, file),
        ["ip", "in", file] => (ListedText::Ip, file),
        ["header", name, "in", file] => (ListedText::Header(name.to_owned()), file),
        ["query", name, "in", file] => (ListedText::Query(name.to_owned()), file),
        _ => {
            let words = printable(text.as_bytes());
            return Err(TextError::new(format!("invalid `class by {words}`: expected {BY}")));
        }
    };
    Ok(ClassByText::In { what, file: file.to_owned() })
}

/// Checks that a limit's classes agree with the way to find them.
pub(super) fn check(classes: &[ClassText], by: Option<&ClassByText>, has_key: bool) -> Result<(), TextError> {
    let names = || {
        let names: Vec<String> = classes.iter().map(|(name, _)| printable(name.as_bytes())).collect();
        names.join(", ")
    };
    if let Some((name, _)) = classes.iter().find(|(name, _)| name == DEFAULT) {
        return Err(TextError::new(format!(
            "class `{name}` has the name of the default class, which has the limit's own quota: expected another \
             name, or no class for it"
        )));
    }
    let names_of = |end: usize| classes[..end].iter().map(|(name, _)| name);
    let twice = classes.iter().enumerate().find(|(place, (name, _))| names_of(*place).any(|it| it == name));
    if let Some((_, (name, _))) = twice {
        return Err(TextError::new(format!(
            "class `{}` is there twice: expected one quota for each class; rename one, or leave it out",
            printable(name.as_bytes())
        )));
    }
    if let Some((name, _)) = classes.iter().find(|(name, _)| name.len() > MAX_NAME) {
        return Err(TextError::new(format!(
            "the name of a class has {} bytes: expected at most {MAX_NAME}",
            name.len()
        )));
    }
    match by {
        None if classes.is_empty() => Ok(()),
        None => Err(TextError::new(format!(
            "classes ({}) without `class by`, so no request would be of one: expected {BY} at the end",
            names()
        ))),
        Some(ClassByText::Header(_)) if classes.is_empty() => Err(TextError::new(
            "`class by header` without classes: expected `class NAME QUOTA` after the limit's quota, as in \
             `10/min class paid 1000/min by ...`",
        )),
        Some(_) if !has_key => Err(TextError::new(format!(
            "`class by` with `by nothing`, which has one state for all: expected a key, such as `ip`, or a limit of \
             its own{}",
            if classes.is_empty() { String::new() } else { format!(" for each class ({})", names()) }
        ))),
        Some(_) => Ok(()),
    }
}

impl fmt::Display for ClassByText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Header(name) => write!(f, "class by header {name}"),
            Self::In { what, file } => write!(f, "class by {what} in {file}"),
        }
    }
}

impl fmt::Display for ListedText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Key => f.write_str("key"),
            Self::Ip => f.write_str("ip"),
            Self::Header(name) => write!(f, "header {name}"),
            Self::Query(name) => write!(f, "query {name}"),
        }
    }
}
