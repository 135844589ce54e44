//! Unwraps lines that another program has wrapped: in Docker's JSON log, in the log of a Kubernetes
//! container (CRI), or behind a syslog header.
//!
//! Docker and CRI split long lines into parts. This module joins the parts, because otherwise
//! clients with long requests would be missing.

use std::borrow::Cow;

use memchr::{memchr, memmem};
use serde::Deserialize;

use super::lines::MAX_LINE;
use super::request::Reason;

/// A kind of wrapping: the function that removes the wrapping, and the reason for refusing a line
/// without it.
type Wrapping = (fn(&[u8]) -> Option<Unwrapped<'_>>, &'static str);

const WRAPPINGS: [Wrapping; 3] = [
    (docker, "it is not in an object of Docker's JSON log, as the lines before it are"),
    (cri, "it does not begin with a time, a stream and a tag of CRI, as the lines before it do"),
    (syslog, "it does not begin with the header of syslog, as the lines before it do"),
];

/// A line without its wrapping.
struct Unwrapped<'l> {
    text: Cow<'l, [u8]>,
    /// Whether the line is from standard error.
    is_error: bool,
    /// Whether the line continues in the next line from the same stream.
    is_part: bool,
}

/// Unwraps the lines of one log.
pub(crate) struct Unwrapper {
    wrapping: &'static Wrapping,
    /// The incomplete lines from standard output and from standard error.
    parts: [Vec<u8>; 2],
    whole: Vec<u8>,
}

impl Unwrapper {
    /// Recognizes a line's wrapping. Returns `None` if the line is not wrapped.
    pub(crate) fn of(line: &[u8]) -> Option<Self> {
        let wrapping = WRAPPINGS.iter().find(|(unwrap, _)| unwrap(line).is_some())?;
        Some(Self { wrapping, parts: Default::default(), whole: Vec::new() })
    }

    /// Returns the number of incomplete lines.
    pub(crate) fn incomplete(&self) -> usize {
        self.parts.iter().filter(|parts| !parts.is_empty()).count()
    }

    /// Returns the line inside the wrapping, or `None` if `line` is not the last part of that line.
    ///
    /// # Errors
    ///
    /// Returns an error if the line does not have this wrapping. Also returns an error if the line
    /// follows an incomplete line although it begins a record, which `is_record` decides: the rest
    /// of the incomplete line is then missing.
    fn unwrap(
        &mut self,
        line: &[u8],
        is_record: impl FnOnce(&[u8]) -> bool,
    ) -> Result<Option<&[u8]>, Reason> {
        let (unwrap, lacking) = *self.wrapping;
        let found = unwrap(line).ok_or(lacking)?;
        let parts = &mut self.parts[usize::from(found.is_error)];
        if !parts.is_empty() && is_record(&found.text) {
            parts.clear();
            if found.is_part {
                parts.extend_from_slice(&found.text);
            }
            return Err("it begins a record, but the rest of the split line before it is missing".into());
        }
        if parts.len() + found.text.len() > MAX_LINE {
            parts.clear();
            return Err(format!("its parts are together longer than {MAX_LINE} bytes").into());
        }
        parts.extend_from_slice(&found.text);
        if found.is_part {
            return Ok(None);
        }
        std::mem::swap(parts, &mut self.whole);
        parts.clear();
        Ok(Some(&self.whole))
    }
}

/// Returns the line inside the wrapping of a log, or the line itself if the log has no unwrapper.
/// Returns `None` if `line` is not the last part of a wrapped line. `is_record` returns whether a
/// text begins a record.
///
/// # Errors
///
/// Returns an error if the log has an unwrapper and the line does not have its wrapping, or if the
/// line begins a record although an earlier line is incomplete.
#[inline]
pub(crate) fn whole<'l>(
    unwrapper: &'l mut Option<Unwrapper>,
    line: &'l [u8],
    is_record: impl FnOnce(&[u8]) -> bool,
) -> Result<Option<&'l [u8]>, Reason> {
    match unwrapper {
        None => Ok(Some(line)),
        Some(unwrapper) => unwrapper.unwrap(line, is_record),
    }
}

/// `{"log":"...\n","stream":"stdout","time":"..."}`
fn docker(line: &[u8]) -> Option<Unwrapped<'_>> {
    #[derive(Deserialize)]
    struct DockerEntry<'l> {
        #[serde(borrow)]
        log: Cow<'l, str>,
        #[serde(borrow)]
        stream: Cow<'l, str>,
    }
    if !line.starts_with(b"{\"log\":") {
        return None;
    }
    let DockerEntry { log, stream } = serde_json::from_slice(line).ok()?;
    let is_part = !log.ends_with('\n');
    let text = match log {
        Cow::Borrowed(text) => Cow::Borrowed(text.trim_end_matches(['\r', '\n']).as_bytes()),
        Cow::Owned(text) => Cow::Owned(text.trim_end_matches(['\r', '\n']).as_bytes().to_vec()),
    };
    Some(Unwrapped { text, is_error: stream == "stderr", is_part })
}

/// `2016-10-06T00:17:09.669794202Z stdout F ...`; the tag of a part is `P`.
fn cri(line: &[u8]) -> Option<Unwrapped<'_>> {
    let (time, rest) = word(line)?;
    let (stream, rest) = word(rest)?;
    let (tags, text) = word(rest).unwrap_or((rest, b""));
    let is_error = match stream {
        b"stdout" => false,
        b"stderr" => true,
        _ => return None,
    };
    let is_part = match tags.split(|&byte| byte == b':').next() {
        Some(b"P") => true,
        Some(b"F") => false,
        _ => return None,
    };
    is_iso(time).then_some(Unwrapped { text: Cow::Borrowed(text), is_error, is_part })
}

/// Removes a syslog header. The header follows RFC 3164 or RFC 5424, or has a form in which syslog
/// servers write files: `<190>Feb  6 12:14:14 host nginx: ...`, the same without the priority or
/// the host, or with a time such as `2009-02-06T12:14:14.003+00:00`.
fn syslog(line: &[u8]) -> Option<Unwrapped<'_>> {
    let text = Cow::Borrowed(without_header(line)?);
    Some(Unwrapped { text, is_error: false, is_part: false })
}

fn without_header(line: &[u8]) -> Option<&[u8]> {
    let rest = match line.strip_prefix(b"<") {
        Some(rest) => {
            let close = memchr(b'>', rest).filter(|close| (1..=3).contains(close))?;
            rest[..close].iter().all(u8::is_ascii_digit).then_some(())?;
            &rest[close + 1..]
        }
        None => line,
    };
    if let Some(rest) = rest.strip_prefix(b"1 ") {
        return rfc_5424(rest);
    }
    let rest = match word(rest)? {
        (time, rest) if is_iso(time) => rest,
        _ => {
            // `Feb  6 12:14:14 `
            let stamp = rest.get(..16)?;
            let is_stamp = stamp[..3].iter().all(u8::is_ascii_alphabetic)
                && [stamp[3], stamp[9], stamp[12], stamp[6], stamp[15]] == [b' ', b':', b':', b' ', b' '];
            is_stamp.then_some(&rest[16..])?
        }
    };
    let (first, after) = word(rest)?;
    if first.ends_with(b":") {
        return Some(after);
    }
    let (second, after) = word(after)?;
    second.ends_with(b":").then_some(after)
}

/// `time host app procid msgid [data] ...`
fn rfc_5424(rest: &[u8]) -> Option<&[u8]> {
    let (time, mut rest) = word(rest)?;
    is_iso(time).then_some(())?;
    for _ in 0..4 {
        rest = word(rest)?.1;
    }
    let text = match rest.strip_prefix(b"[") {
        Some(data) => {
            let end = memmem::find(data, b"] ")?;
            &data[end + 2..]
        }
        None => rest.strip_prefix(b"- ")?,
    };
    Some(text.strip_prefix(b"\xef\xbb\xbf").unwrap_or(text))
}

/// Returns whether a word has the form of a time such as `2016-10-06T00:17:09`.
fn is_iso(word: &[u8]) -> bool {
    word.len() >= 19
        && word[..4].iter().all(u8::is_ascii_digit)
        && [word[4], word[7], word[10], word[13], word[16]] == [b'-', b'-', b'T', b':', b':']
}

/// Splits at the first space.
fn word(text: &[u8]) -> Option<(&[u8], &[u8])> {
    let space = memchr(b' ', text)?;
    Some((&text[..space], &text[space + 1..]))
}
