//! Reads a response on its way to the client: counts its bytes and its events, and finds figures in
//! its JSON. Frames are looked at, never held back.
//!
//! What is kept of a body is bounded: see [`MOST_KEPT`]. A text that was compressed or is of
//! another type is counted in bytes only.

use super::events::{Events, Kept};
use super::figure::JsonPath;
use crate::head::{ResponseHead, number};
use http::header::{CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE};

/// The most bytes that are kept of a JSON text, or of the last event of a stream.
pub(crate) const MOST_KEPT: usize = 128 * 1024;

/// Reads the body of one response.
#[derive(Debug)]
pub(crate) struct Reader {
    bytes: u64,
    /// The value of `Content-Length`.
    length: Option<u64>,
    text: Text,
    /// What is looked for in JSON, and what was found last.
    found: Vec<(JsonPath, Option<u64>)>,
}

/// The part of the body that is kept until it can be read.
#[derive(Debug)]
enum Text {
    Json(Kept),
    Events(Events),
    Other,
}

impl Reader {
    /// Makes a reader of the response with this head, which looks for these figures.
    pub(crate) fn new(head: ResponseHead<'_>, paths: impl IntoIterator<Item = JsonPath>) -> Self {
        let mut found: Vec<(JsonPath, Option<u64>)> = Vec::new();
        for path in paths {
            if !found.iter().any(|(known, _)| *known == path) {
                found.push((path, None));
            }
        }
        let length = number(head.headers(), &CONTENT_LENGTH);
        Self { bytes: 0, length, text: Text::of(head, !found.is_empty()), found }
    }

    /// Returns the bytes that were read.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Returns the events that were read; `None` if the body is not a stream of events.
    pub(crate) fn events(&self) -> Option<u64> {
        match &self.text {
            Text::Events(events) => Some(events.count()),
            Text::Json(_) | Text::Other => None,
        }
    }

    /// Returns the figure that was found last.
    pub(crate) fn figure(&self, path: &JsonPath) -> Option<u64> {
        self.found.iter().find(|(known, _)| known == path)?.1
    }

    /// Returns whether all bytes that `Content-Length` announces were read.
    pub(crate) fn is_whole(&self) -> bool {
        self.length.is_some_and(|length| self.bytes >= length)
    }

    pub(crate) fn read(&mut self, data: &[u8]) {
        self.bytes = self.bytes.saturating_add(data.len() as u64);
        match &mut self.text {
            Text::Json(kept) => kept.push(data, MOST_KEPT),
            Text::Events(events) => events.read(data, |event| look(event, &mut self.found)),
            Text::Other => {}
        }
    }

    /// Reads what is known only at the end of the body.
    pub(crate) fn end(&mut self) {
        match &mut self.text {
            Text::Json(kept) if !kept.is_cut => look(&kept.bytes, &mut self.found),
            Text::Events(events) => events.end(|event| look(event, &mut self.found)),
            Text::Json(_) | Text::Other => {}
        }
    }
}

impl Text {
    fn of(head: ResponseHead<'_>, looks: bool) -> Self {
        let header = |name| head.headers().get(name).map_or(&b""[..], |value| value.as_bytes());
        let encoding = header(CONTENT_ENCODING);
        if !encoding.is_empty() && !encoding.eq_ignore_ascii_case(b"identity") {
            return Self::Other;
        }
        let kind = header(CONTENT_TYPE).split(|&byte| byte == b';').next().unwrap_or_default();
        let kind = kind.trim_ascii().to_ascii_lowercase();
        if kind == b"text/event-stream" {
            return Self::Events(Events::new(if looks { MOST_KEPT } else { 0 }));
        }
        let is_json = kind == b"application/json" || kind.ends_with(b"+json");
        if looks && is_json { Self::Json(Kept::default()) } else { Self::Other }
    }
}

/// Looks for figures in a JSON text. A figure that is missing there keeps what was found before.
fn look(text: &[u8], found: &mut [(JsonPath, Option<u64>)]) {
    for (path, figure) in found {
        *figure = path.find(text).or(*figure);
    }
}
