//! Reads server-sent events as they pass. The reader counts the events and passes on each event's
//! data.
//!
//! The HTML standard defines the format. Lines end in CR, LF or both, a field's name precedes a
//! colon, and an empty line ends each event. The stream may begin with a byte order mark. A comment
//! is not an event, and neither is `[DONE]`, which many services send at the end of a stream.

/// The mark that may precede the first line.
const BYTE_ORDER_MARK: &[u8] = "\u{feff}".as_bytes();
/// The field that contains an event's data.
const DATA: &[u8] = b"data";
/// The data of the event that ends a stream.
const DONE: &[u8] = b"[DONE]";

/// Reads one stream of events.
#[derive(Debug)]
pub(crate) struct Events {
    /// The maximum number of bytes buffered for a line, and for an event's data.
    most: usize,
    /// The last line, which may be incomplete.
    line: Kept,
    is_first_line: bool,
    /// The data of the last event, if it has any.
    data: Option<Kept>,
    /// Whether the last byte was a CR. A following LF then belongs to the same end of line.
    after_cr: bool,
    count: u64,
}

impl Events {
    pub(crate) fn new(most: usize) -> Self {
        Self {
            most: most.max(BYTE_ORDER_MARK.len() + DATA.len() + 2 + DONE.len() + 1),
            line: Kept::default(),
            is_first_line: true,
            data: None,
            after_cr: false,
            count: 0,
        }
    }

    /// Returns the number of events that have ended.
    pub(crate) fn count(&self) -> u64 {
        self.count
    }

    /// Reads the next bytes. Calls `look` with the data of each event that ends in these bytes, or
    /// with `None` if the data is too large to be buffered.
    pub(crate) fn read(&mut self, mut bytes: &[u8], mut look: impl FnMut(Option<&[u8]>)) {
        if self.after_cr && !bytes.is_empty() {
            self.after_cr = false;
            bytes = bytes.strip_prefix(b"\n").unwrap_or(bytes);
        }
        while let Some(end) = bytes.iter().position(|byte| matches!(byte, b'\r' | b'\n')) {
            self.line.push(&bytes[..end], self.most);
            self.end_line(&mut look);
            let is_cr = bytes[end] == b'\r';
            bytes = &bytes[end + 1..];
            self.after_cr = is_cr && bytes.is_empty();
            if is_cr {
                bytes = bytes.strip_prefix(b"\n").unwrap_or(bytes);
            }
        }
        self.line.push(bytes, self.most);
    }

    /// Ends the stream. If no empty line has ended the last event, this method ends the event as
    /// well.
    pub(crate) fn end(&mut self, mut look: impl FnMut(Option<&[u8]>)) {
        self.end_line(&mut look);
        self.end_event(&mut look);
    }

    fn end_line(&mut self, look: &mut impl FnMut(Option<&[u8]>)) {
        let is_first = std::mem::replace(&mut self.is_first_line, false);
        if self.line.is_empty() {
            self.end_event(look);
            return;
        }
        let Kept { bytes, is_cut } = &self.line;
        let mark = if is_first { BYTE_ORDER_MARK } else { b"" };
        let bytes = bytes.strip_prefix(mark).unwrap_or(bytes);
        if let Some(value) = bytes.strip_prefix(DATA)
            && (value.is_empty() && !is_cut || value.starts_with(b":"))
        {
            let value = value.strip_prefix(b":").unwrap_or(value);
            let value = value.strip_prefix(b" ").unwrap_or(value);
            let mut data = self.data.take().unwrap_or_default();
            if !data.is_empty() {
                data.push(b"\n", self.most);
            }
            data.push(value, self.most);
            data.is_cut |= is_cut;
            self.data = Some(data);
        }
        self.line.clear();
    }

    fn end_event(&mut self, look: &mut impl FnMut(Option<&[u8]>)) {
        let Some(data) = self.data.take() else { return };
        if data.whole() == Some(DONE) {
            return;
        }
        self.count += 1;
        look(data.whole());
    }
}

/// The first bytes of some text.
#[derive(Debug, Default)]
pub(crate) struct Kept {
    bytes: Vec<u8>,
    /// Whether some bytes of the text were not buffered.
    is_cut: bool,
}

impl Kept {
    /// Appends bytes, up to a total length of `most`. The buffer never allocates more than that.
    pub(crate) fn push(&mut self, more: &[u8], most: usize) {
        let room = most.saturating_sub(self.bytes.len());
        let fits = more.len().min(room);
        let needed = self.bytes.len() + fits;
        if needed > self.bytes.capacity() {
            let grown = needed.max(2 * self.bytes.capacity()).min(most);
            self.bytes.reserve_exact(grown - self.bytes.len());
        }
        self.bytes.extend_from_slice(&more[..fits]);
        self.is_cut |= fits < more.len();
    }

    /// Returns the text, if all of it was buffered.
    pub(crate) fn whole(&self) -> Option<&[u8]> {
        if self.is_cut { None } else { Some(&self.bytes) }
    }

    fn is_empty(&self) -> bool {
        self.bytes.is_empty() && !self.is_cut
    }

    pub(crate) fn clear(&mut self) {
        self.bytes.clear();
        self.is_cut = false;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Reads a stream in these pieces. Returns the number of events and the data of each event.
    fn read<'p>(most: usize, pieces: impl IntoIterator<Item = &'p [u8]>) -> (u64, Vec<String>) {
        let mut events = Events::new(most);
        let mut seen = Vec::new();
        let mut look =
            |data: Option<&[u8]>| seen.extend(data.map(|data| String::from_utf8(data.to_vec()).unwrap()));
        pieces.into_iter().for_each(|piece| events.read(piece, &mut look));
        events.end(&mut look);
        (events.count(), seen)
    }

    fn data(of: &[&str]) -> Vec<String> {
        of.iter().map(|&data| data.to_owned()).collect()
    }

    #[test]
    fn events_with_data_are_counted_and_looked_at() {
        let stream = ": a comment\n\nevent: delta\nid: 7\ndata: {\"a\":1}\n\ndata:b\r\rdata\n\ndatax: no\n\n\
                      data: two\r\ndata: lines\r\n\r\nretry: 5\n\ndata: [DONE]\n\ndata: no end";
        let seen = read(100, [stream.as_bytes()]);
        assert_eq!(seen, (5, data(&["{\"a\":1}", "b", "", "two\nlines", "no end"])));
    }

    #[test]
    fn a_byte_order_mark_at_the_beginning_of_a_stream_is_no_part_of_a_name() {
        for cut in 0..6 {
            let (first, rest) = b"\xef\xbb\xbfdata: a\n\ndata: b\n\n".split_at(cut);
            assert_eq!(read(100, [first, rest]), (2, data(&["a", "b"])), "{cut}");
        }
        assert_eq!(read(100, [&b"\xef\xbb\xbf\n\xef\xbb\xbfdata: a\n\n"[..]]), (0, vec![]));
        assert_eq!(read(100, [&b"\xef\xbb\xbf\xef\xbb\xbfdata: a\n\n"[..]]), (0, vec![]));
    }

    #[test]
    fn an_event_larger_than_what_is_kept_is_counted_and_not_looked_at() {
        let long = format!("data: {}\n\ndata: short\n\n", "x".repeat(50));
        assert_eq!(read(40, [long.as_bytes()]), (2, data(&["short"])));
        let lines = "data: aaaaaaaaaaaaaaaaaaaa\ndata: bbbbbbbbbbbbbbbbbbbb\n\n";
        assert_eq!(read(40, [lines.as_bytes()]), (1, vec![]));
        // Only the field's name is buffered; the rest of the line is unknown.
        assert_eq!(read(0, [&b"datadatadatadatadatadatadata: x\n\n"[..]]), (0, vec![]));
    }

    proptest! {
        /// A stream contains the same events, wherever its frames divide it.
        #[test]
        fn the_frames_of_a_stream_do_not_matter(
            lines in prop::collection::vec((0..9_usize, 0..3_usize), 0..30),
            cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..10),
        ) {
            let texts = ["", "", "data: a", "data:b", "data", ": c", "data: [DONE]", "event: x", "data: \u{e4}{}"];
            let ends = ["\n", "\r", "\r\n"];
            let stream: String = lines.iter().map(|&(text, end)| format!("{}{}", texts[text], ends[end])).collect();
            // A CR followed by an LF is a single end of line, even if they arrive in separate
            // pieces.
            let whole = read(100, [stream.as_bytes()]);
            let mut at: Vec<usize> = cuts.iter().map(|cut| cut.index(stream.len() + 1)).collect();
            at.extend([0, stream.len()]);
            at.sort_unstable();
            let pieces = at.windows(2).map(|pair| &stream.as_bytes()[pair[0]..pair[1]]);
            prop_assert_eq!(read(100, pieces), whole.clone());
            // The test finds the expected events by the standard's grammar, in whole lines.
            let mut expected = Vec::new();
            let mut event: Option<Vec<&str>> = None;
            let text = stream.replace("\r\n", "\n").replace('\r', "\n");
            for line in text.split('\n').chain([""]) {
                let value = line.strip_prefix("data").map(|rest| rest.strip_prefix(':').unwrap_or(rest));
                match (line, value) {
                    ("", _) => {
                        // Empty lines at the beginning of the data are omitted.
                        let data = event.take().map(|lines| lines.join("\n"));
                        let data = data.map(|data| data.trim_start_matches('\n').to_owned());
                        expected.extend(data.filter(|data| data != "[DONE]"));
                    }
                    (_, Some(value)) => event.get_or_insert_default().push(value.strip_prefix(' ').unwrap_or(value)),
                    _ => {}
                }
            }
            prop_assert_eq!(whole, (expected.len() as u64, expected));
        }
    }
}
