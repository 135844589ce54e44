//! Reads a response on its way to the client: counts its bytes and its events, and finds figures in
//! its JSON. Frames are inspected, but never held back.
//!
//! The size of the text that is kept of a body is bounded: see [`MOST_KEPT`]. A text that is
//! compressed or of another type is counted in bytes only.
//!
//! | text | is read | is kept |
//! |---|---|---|
//! | JSON | as a whole at its end | the text |
//! | newline-delimited JSON | line by line | a line |
//! | server-sent events | event by event | a line, and the data of an event |

use super::events::{Events, Kept};
use super::figure::JsonPath;
use crate::head::{ResponseHead, number};
use http::header::{CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, HeaderMap};

/// The maximum number of bytes that are kept of a JSON text, of a line, or of the data of an event.
pub(crate) const MOST_KEPT: usize = 128 * 1024;

/// The types of newline-delimited JSON, without `x-` before them.
const OF_LINES: [&[u8]; 4] = [b"ndjson", b"jsonl", b"jsonlines", b"stream+json"];

/// Reads the body of one response.
#[derive(Debug)]
pub(crate) struct Reader {
    bytes: u64,
    /// The value of `Content-Length`.
    length: Option<u64>,
    text: Text,
    sought: Vec<Sought>,
}

/// A figure to be found in JSON.
#[derive(Debug)]
struct Sought {
    path: JsonPath,
    /// The figure that was found last.
    found: Option<u64>,
    /// Whether a later event or line was too large to be read. It may have had a later figure.
    is_outdated: bool,
}

/// The part of the body that is kept until it can be read.
#[derive(Debug)]
enum Text {
    Json(Kept),
    /// The last line of newline-delimited JSON, which may be incomplete.
    Lines(Kept),
    Events(Events),
    Other,
}

impl Reader {
    /// Makes a reader of the response with this head, which looks for these figures.
    pub(crate) fn new(head: ResponseHead<'_>, paths: impl IntoIterator<Item = JsonPath>) -> Self {
        let mut sought: Vec<Sought> = Vec::new();
        for path in paths {
            if !sought.iter().any(|known| known.path == path) {
                sought.push(Sought { path, found: None, is_outdated: false });
            }
        }
        let length = number(head.headers(), &CONTENT_LENGTH);
        Self { bytes: 0, length, text: Text::of(head.headers(), !sought.is_empty()), sought }
    }

    /// Returns the number of bytes that were read.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Returns the number of events that were read; `None` if the body is not a stream of events.
    pub(crate) fn events(&self) -> Option<u64> {
        match &self.text {
            Text::Events(events) => Some(events.count()),
            Text::Json(_) | Text::Lines(_) | Text::Other => None,
        }
    }

    /// Returns the figure that was found last.
    pub(crate) fn figure(&self, path: &JsonPath) -> Option<u64> {
        self.sought.iter().find(|sought| sought.path == *path)?.found
    }

    /// Returns the last figure in all that was read; `None` if a later one may have been missed.
    pub(crate) fn last_figure(&self, path: &JsonPath) -> Option<u64> {
        self.sought.iter().find(|sought| sought.path == *path && !sought.is_outdated)?.found
    }

    /// Returns whether all bytes that `Content-Length` announces were read.
    pub(crate) fn is_whole(&self) -> bool {
        self.length.is_some_and(|length| self.bytes >= length)
    }

    pub(crate) fn read(&mut self, data: &[u8]) {
        self.bytes = self.bytes.saturating_add(data.len() as u64);
        match &mut self.text {
            Text::Json(kept) => kept.push(data, MOST_KEPT),
            Text::Lines(line) => {
                for (number, part) in data.split(|&byte| byte == b'\n').enumerate() {
                    if number > 0 {
                        look(line.whole(), &mut self.sought);
                        line.clear();
                    }
                    line.push(part, MOST_KEPT);
                }
            }
            Text::Events(events) => events.read(data, |event| look(event, &mut self.sought)),
            Text::Other => {}
        }
    }

    /// Reads the text that is complete only at the end of the body.
    pub(crate) fn end(&mut self) {
        match &mut self.text {
            Text::Json(kept) | Text::Lines(kept) => look(kept.whole(), &mut self.sought),
            Text::Events(events) => events.end(|event| look(event, &mut self.sought)),
            Text::Other => {}
        }
    }
}

impl Text {
    fn of(headers: &HeaderMap, looks: bool) -> Self {
        if is_coded(headers) {
            return Self::Other;
        }
        let kind = headers.get(CONTENT_TYPE).map_or(&b""[..], |value| value.as_bytes());
        let kind = kind.split(|&byte| byte == b';').next().unwrap_or_default();
        let kind = kind.trim_ascii().to_ascii_lowercase();
        if kind == b"text/event-stream" {
            return Self::Events(Events::new(if looks { MOST_KEPT } else { 0 }));
        }
        let subtype = kind.split(|&byte| byte == b'/').next_back().unwrap_or_default();
        let is_of_lines = OF_LINES.contains(&subtype.strip_prefix(b"x-").unwrap_or(subtype));
        let is_json = kind == b"application/json" || kind.ends_with(b"+json");
        match looks {
            true if is_of_lines => Self::Lines(Kept::default()),
            true if is_json => Self::Json(Kept::default()),
            _ => Self::Other,
        }
    }
}

/// Returns whether a body has a coding other than `identity`, in any line of the header.
fn is_coded(headers: &HeaderMap) -> bool {
    let lines = headers.get_all(CONTENT_ENCODING).iter();
    let mut codings =
        lines.flat_map(|line| line.as_bytes().split(|&byte| byte == b',')).map(<[u8]>::trim_ascii);
    codings.any(|coding| !coding.is_empty() && !coding.eq_ignore_ascii_case(b"identity"))
}

/// Looks for figures in a JSON text; `None` stands for a text that was too large to be kept. If a
/// figure is missing in the text, the figure that was found before stays.
fn look(text: Option<&[u8]>, sought: &mut [Sought]) {
    for sought in sought {
        match text.map(|text| sought.path.find(text)) {
            Some(Some(found)) => (sought.found, sought.is_outdated) = (Some(found), false),
            Some(None) => {}
            None => sought.is_outdated = true,
        }
    }
}
