//! Reads a response on its way to the client. A reader counts bytes and events, and finds figures
//! in JSON. It inspects frames, but never holds them back.
//!
//! Each buffered text has at most [`MOST_KEPT`] bytes. If a body is compressed or has a different
//! type, only its bytes are counted.
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

/// The maximum number of bytes buffered for a JSON text, a line, or an event's data.
pub(crate) const MOST_KEPT: usize = 128 * 1024;

/// The types of newline-delimited JSON, without `x-` before them.
const OF_LINES: [&[u8]; 4] = [b"ndjson", b"jsonl", b"jsonlines", b"stream+json"];

/// Reads the body of one response.
#[derive(Debug)]
pub(crate) struct Reader {
    bytes: u64,
    /// The value of `Content-Length`.
    length: Option<u64>,
    text: BufferedText,
    sought: Vec<Sought>,
}

/// A figure to be found in JSON.
#[derive(Debug)]
struct Sought {
    path: JsonPath,
    /// The last figure that was found.
    found: Option<u64>,
    /// Whether a later event or line, which may have contained a later figure, was too large to be
    /// read.
    is_outdated: bool,
}

/// The part of the body that is buffered until it can be read.
#[derive(Debug)]
enum BufferedText {
    Json(Kept),
    /// The last line of newline-delimited JSON, which may be incomplete.
    Lines(Kept),
    Events(Events),
    Other,
}

impl Reader {
    /// Creates a reader for the response with this head. The reader looks for the figures at these
    /// paths.
    pub(crate) fn new(head: ResponseHead<'_>, paths: impl IntoIterator<Item = JsonPath>) -> Self {
        let mut sought: Vec<Sought> = Vec::new();
        for path in paths {
            if !sought.iter().any(|known| known.path == path) {
                sought.push(Sought { path, found: None, is_outdated: false });
            }
        }
        let length = number(head.headers(), &CONTENT_LENGTH);
        Self { bytes: 0, length, text: BufferedText::of(head.headers(), !sought.is_empty()), sought }
    }

    /// Returns the number of bytes that were read.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Returns the number of events read so far, or `None` if the body is not a stream of events.
    pub(crate) fn events(&self) -> Option<u64> {
        match &self.text {
            BufferedText::Events(events) => Some(events.count()),
            BufferedText::Json(_) | BufferedText::Lines(_) | BufferedText::Other => None,
        }
    }

    /// Returns the last figure that was found.
    pub(crate) fn figure(&self, path: &JsonPath) -> Option<u64> {
        self.sought.iter().find(|sought| sought.path == *path)?.found
    }

    /// Returns the last figure found, or `None` if a later figure may have been missed.
    pub(crate) fn last_figure(&self, path: &JsonPath) -> Option<u64> {
        self.sought.iter().find(|sought| sought.path == *path && !sought.is_outdated)?.found
    }

    /// Returns whether all bytes announced by `Content-Length` have been read.
    pub(crate) fn is_whole(&self) -> bool {
        self.length.is_some_and(|length| self.bytes >= length)
    }

    pub(crate) fn read(&mut self, data: &[u8]) {
        self.bytes = self.bytes.saturating_add(data.len() as u64);
        match &mut self.text {
            BufferedText::Json(kept) => kept.push(data, MOST_KEPT),
            BufferedText::Lines(line) => {
                for (number, part) in data.split(|&byte| byte == b'\n').enumerate() {
                    if number > 0 {
                        look(line.whole(), &mut self.sought);
                        line.clear();
                    }
                    line.push(part, MOST_KEPT);
                }
            }
            BufferedText::Events(events) => events.read(data, |event| look(event, &mut self.sought)),
            BufferedText::Other => {}
        }
    }

    /// Reads the rest of the text, which is complete only at the end of the body.
    pub(crate) fn end(&mut self) {
        match &mut self.text {
            BufferedText::Json(kept) | BufferedText::Lines(kept) => look(kept.whole(), &mut self.sought),
            BufferedText::Events(events) => events.end(|event| look(event, &mut self.sought)),
            BufferedText::Other => {}
        }
    }
}

impl BufferedText {
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

/// Returns whether any line of the header `Content-Encoding` names a coding other than `identity`.
fn is_coded(headers: &HeaderMap) -> bool {
    let lines = headers.get_all(CONTENT_ENCODING).iter();
    let mut codings =
        lines.flat_map(|line| line.as_bytes().split(|&byte| byte == b',')).map(<[u8]>::trim_ascii);
    codings.any(|coding| !coding.is_empty() && !coding.eq_ignore_ascii_case(b"identity"))
}

/// Looks for figures in JSON text. `None` stands for text that was too large to be buffered. If the
/// text does not contain a figure, the figure found earlier is kept.
fn look(text: Option<&[u8]>, sought: &mut [Sought]) {
    for sought in sought {
        match text.map(|text| sought.path.find(text)) {
            Some(Some(found)) => (sought.found, sought.is_outdated) = (Some(found), false),
            Some(None) => {}
            None => sought.is_outdated = true,
        }
    }
}
