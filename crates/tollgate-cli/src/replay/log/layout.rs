//! Describes the columns of a plain text line, according to a format or to the `#Fields:` line in a
//! log.
//!
//! Clients control parts of the lines. Because a user's name may contain ` [`, the time is the text
//! in brackets before the first quote. Because a request may contain quotes, the request ends at
//! the quote that is followed by a status.

use std::borrow::Cow;
use std::ops::Range;

use memchr::{memchr, memchr2, memmem, memrchr};

use super::formats::{Escapes, Text};
use super::request::{MISSING, Reason};
use crate::printable::printable;

/// The first word of the line that names a W3C log's columns.
pub(crate) const FIELDS_DIRECTIVE: &[u8] = b"#Fields:";

/// How to find one column or several adjacent columns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    /// The text up to the next space.
    Word,
    /// A word, without the port after its last colon.
    Address,
    /// The part of a word after its last slash.
    AfterSlash,
    /// The four columns `ip ident user [time]`.
    Client,
    /// Text in brackets.
    Bracketed,
    /// Text in quotes.
    Quoted,
    /// Quoted text followed by a status.
    Request,
    /// Quoted text in the last column, with no other quote in it. If the line is cut off, the text
    /// ends with the line.
    Rest,
    /// Text in braces, or nothing, before a quote.
    Captures,
}

/// The columns of a log.
#[derive(Debug)]
pub(crate) struct Layout {
    pub(crate) names: Vec<Cow<'static, str>>,
    steps: Vec<Step>,
    escapes: Escapes,
}

impl Layout {
    pub(crate) fn of(text: &Text) -> Self {
        let mut layout = Self { names: Vec::new(), steps: Vec::new(), escapes: text.0.escapes() };
        let tokens: Vec<&'static str> = text.1.split(' ').collect();
        let mut rest = &tokens[..];
        while let [token, after @ ..] = rest {
            rest = after;
            if let ["ident", "user", "[time]", after @ ..] = after {
                layout.steps.push(Step::Client);
                layout.names.extend(["ip", "ident", "user", "time"].map(Cow::Borrowed));
                rest = after;
                continue;
            }
            let quoted = token.strip_prefix('"').and_then(|name| name.strip_suffix('"'));
            let bracketed = token.strip_prefix('[').and_then(|name| name.strip_suffix(']'));
            let (step, name) = match (quoted, bracketed) {
                (Some("request"), _) if after.is_empty() => (Step::Rest, "request"),
                (Some("request"), _) if after.first() == Some(&"status") => (Step::Request, "request"),
                (Some(name), _) => (Step::Quoted, name),
                (_, Some(name)) => (Step::Bracketed, name),
                _ if token.starts_with('{') => (Step::Captures, *token),
                _ => match (token.split_once(':'), token.split_once('/')) {
                    (Some((name, _)), _) => (Step::Address, name),
                    (_, Some((_, name))) => (Step::AfterSlash, name),
                    _ => (Step::Word, *token),
                },
            };
            layout.steps.push(step);
            layout.names.push(Cow::Borrowed(name));
        }
        layout
    }

    /// Returns the columns named by a `#Fields:` line.
    pub(crate) fn named_by(line: &[u8]) -> Result<Self, Reason> {
        let names = line.strip_prefix(FIELDS_DIRECTIVE).ok_or("no line '#Fields:' has named its columns")?;
        let names: Vec<Cow<'static, str>> = String::from_utf8_lossy(names)
            .split_ascii_whitespace()
            .map(|name| Cow::Owned(name.to_owned()))
            .collect();
        Ok(Self { steps: vec![Step::Word; names.len()], names, escapes: Escapes::None })
    }

    pub(crate) fn steps(&self) -> usize {
        self.steps.len()
    }

    /// Returns the number of steps that find this column.
    pub(crate) fn steps_to(&self, column: usize) -> usize {
        let mut columns = 0;
        let is_enough = |step: &Step| {
            columns += if *step == Step::Client { 4 } else { 1 };
            columns > column
        };
        self.steps.iter().position(is_enough).map_or(self.steps.len(), |index| index + 1)
    }

    /// Finds the columns that belong to the first `steps` steps. Returns the index at which the
    /// rest of the line starts.
    #[inline]
    pub(crate) fn split(
        &self,
        steps: usize,
        line: &[u8],
        columns: &mut Vec<Range<usize>>,
    ) -> Result<usize, Reason> {
        let mut at = 0;
        for (index, &step) in self.steps[..steps].iter().enumerate() {
            if step == Step::Captures {
                let quote =
                    memmem::find(&line[at..], b" \"").ok_or_else(|| self.lacking(columns.len() + 1))?;
                columns.push(at..at + quote);
                at += quote;
                continue;
            }
            if index > 0 {
                match line.get(at) {
                    Some(b' ' | b'\t') => at += 1,
                    _ => return Err(self.lacking(columns.len())),
                }
            }
            let rest = &line[at..];
            let (column, after) = match step {
                Step::Client => {
                    let ([ip, ident, user, time], after) = client(rest)?;
                    let moved = |column: Range<usize>| at + column.start..at + column.end;
                    columns.extend([ip, ident, user, time].map(moved));
                    at += after;
                    continue;
                }
                Step::Word | Step::Address | Step::AfterSlash => {
                    let end = memchr2(b' ', b'\t', rest).unwrap_or(rest.len());
                    let word = &rest[..end];
                    let column = match step {
                        Step::Address => 0..memrchr(b':', word).unwrap_or(end),
                        Step::AfterSlash => memrchr(b'/', word).map_or(0, |slash| slash + 1)..end,
                        _ => 0..end,
                    };
                    (column, end)
                }
                Step::Bracketed => {
                    let close = memchr(b']', rest).filter(|_| rest.starts_with(b"["));
                    let close = close.ok_or_else(|| self.not_closed(columns.len(), "brackets"))?;
                    (1..close, close + 1)
                }
                Step::Rest => {
                    let text =
                        rest.strip_prefix(b"\"").ok_or_else(|| self.not_closed(columns.len(), "quotes"))?;
                    let end = memchr(b'"', text).map_or(rest.len(), |quote| quote + 1);
                    (1..end, rest.len().min(end + 1))
                }
                Step::Quoted | Step::Request => {
                    let end = match step {
                        Step::Request => quoted(rest, self.escapes, is_before_status),
                        _ => None,
                    };
                    let end = end.or_else(|| quoted(rest, self.escapes, |_| true));
                    let end = end.ok_or_else(|| self.not_closed(columns.len(), "quotes"))?;
                    (1..end, end + 1)
                }
                Step::Captures => continue,
            };
            columns.push(at + column.start..at + column.end);
            at += after;
        }
        Ok(at)
    }

    #[cold]
    fn lacking(&self, column: usize) -> Reason {
        let name = self.names.get(column).map_or("end", |name| name);
        format!("it ends before its {}", printable(name.as_bytes())).into()
    }

    #[cold]
    fn not_closed(&self, column: usize, marks: &str) -> Reason {
        let name = self.names.get(column).map_or("end", |name| name);
        format!("its {} is not in {marks} to its end", printable(name.as_bytes())).into()
    }
}

/// `17/May/2015:10:05:03 +0000`
const STAMP: usize = 26;

/// Splits `ip ident user [time]`. Returns the four columns, and the index at which the rest of the
/// line starts.
#[inline]
fn client(line: &[u8]) -> Result<([Range<usize>; 4], usize), Reason> {
    let ip = memchr(b' ', line).ok_or("it does not begin with 'ip ident user ['")?;
    // Most lines contain neither an ident nor a user. Quotes in a user's name are always escaped.
    let time = ip + b" - - [".len();
    let close = time + STAMP;
    if line[ip..].starts_with(b" - - [") && line.get(close..close + 3) == Some(b"] \"") {
        return Ok(([0..ip, ip + 1..ip + 2, ip + 3..ip + 4, time..close], close + 1));
    }
    named_client(line)
}

#[cold]
fn named_client(line: &[u8]) -> Result<([Range<usize>; 4], usize), Reason> {
    let beginning = "it does not begin with 'ip ident user ['";
    let (open, close) = match memmem::find(line, b"] \"") {
        Some(close) => (memrchr(b'[', &line[..close]), close),
        // Either the line is cut off, or the request is not in quotes.
        None => {
            let open = memmem::find(line, b" [").map(|space| space + 1);
            let close = open.and_then(|open| memchr(b']', &line[open..]).map(|close| open + close));
            if let (Some(_), None) = (open, close) {
                return Err("the time has no ']' at its end".into());
            }
            (open, close.unwrap_or(0))
        }
    };
    let open = open.ok_or("there is no '[' that begins the time")?;
    let before = line[..open].strip_suffix(b" ").ok_or(beginning)?;
    let space = |from: usize| memchr(b' ', &before[from..]).map(|space| from + space);
    let mut ip = space(0).ok_or(beginning)?;
    // The first column may be a list of addresses, as in `X-Forwarded-For`.
    while before[..ip].ends_with(b",") {
        ip = space(ip + 1).ok_or(beginning)?;
    }
    let mut ident = space(ip + 1).ok_or(beginning)?;
    // Spaces before the time may belong to a user's name. If an ident is also present, they more
    // likely belong to the first column, because a client may send any text in `X-Forwarded-For`.
    if &before[ip + 1..ident] != MISSING && memchr(b' ', &before[ident + 1..]).is_some() {
        ip = memmem::find(before, b" - ").ok_or("the text before the time is not 'ip ident user'")?;
        ident = ip + 2;
    }
    Ok(([0..ip, ip + 1..ident, ident + 1..before.len(), open + 1..close], close + 1))
}

/// Returns the index of the quote that closes the text. `text` starts with the opening quote. The
/// closing quote is followed by a space or the end of the line, and `ends_before` returns true for
/// the rest of the line. If the server escapes quotes, `\"` is part of the text. Any other quote
/// that the server left unescaped is also part of the text.
#[inline]
fn quoted(text: &[u8], escapes: Escapes, ends_before: impl Fn(&[u8]) -> bool) -> Option<usize> {
    let mut from = 1;
    text.strip_prefix(b"\"")?;
    loop {
        let quote = from + memchr(b'"', &text[from..])?;
        let backslashes = text[1..quote].iter().rev().take_while(|&&byte| byte == b'\\').count();
        let is_escaped = escapes == Escapes::Backslash && backslashes % 2 == 1;
        let rest = &text[quote + 1..];
        if !is_escaped && matches!(rest.first(), None | Some(b' ')) && ends_before(rest) {
            return Some(quote);
        }
        from = quote + 1;
    }
}

/// Returns whether the rest of a line starts with a status.
#[inline]
fn is_before_status(rest: &[u8]) -> bool {
    match rest {
        [b' ', b'-', b' ', ..] | [b' ', b'0', b' ', ..] => true,
        [b' ', digits @ ..] => {
            digits.len() >= 4 && digits[..3].iter().all(u8::is_ascii_digit) && digits[3] == b' '
        }
        _ => false,
    }
}
