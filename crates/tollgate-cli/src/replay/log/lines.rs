//! Splits a log, either plain or compressed with gzip, into lines. Memory is bounded.
//!
//! A line ends with a line feed. If a log has no line feed where its first line could end, its
//! lines end with carriage returns.
//!
//! A log may have holes, which are read as NUL bytes. Two causes are common:
//!
//! - logrotate's `copytruncate` truncates a log that the server does not open for appending. The
//!   log then starts with a hole as long as the earlier log.
//! - After a crash, the file may have grown although its last bytes did not reach the disk. The
//!   missing bytes are a hole. The line before the hole is cut off, and the next line follows the
//!   hole without a line end.
//!
//! NUL bytes at the start or the end of a line are skipped. A run of at least [`HOLE`] NUL bytes
//! ends the line before the run. A shorter run inside a line is part of the line, because some
//! servers log a client's bytes unchanged.

use std::io::{self, Read};

use flate2::read::MultiGzDecoder;
use memchr::{memchr, memmem};

/// The maximum length of a parsed line. A longer line is skipped without being stored.
pub(crate) const MAX_LINE: usize = 1 << 20;

const FIRST_BUFFER: usize = 128 << 10;
const GZIP_MAGIC: [u8; 2] = [0x1f, 0x8b];
/// The minimum number of adjacent NUL bytes that form a hole, even inside a line.
const HOLE: usize = 16;
const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// One line of a log, without its line end.
#[derive(Debug, PartialEq, Eq)]
pub enum Line<'a> {
    Text(&'a [u8]),
    TooLong,
}

/// Reads the lines of one log. The buffer grows with the longest line, up to a little more than
/// [`MAX_LINE`].
pub struct Lines<R> {
    from: R,
    buffer: Vec<u8>,
    start: usize,
    end: usize,
    ended: bool,
    /// The number of the last returned line.
    number: u64,
    /// The counts for the bytes before `start`.
    counts: LineCounts,
    /// Whether there may be NUL bytes in the buffer after `start`.
    has_nuls: bool,
    /// The byte that ends lines. A line feed is assumed until a line has ended.
    line_end: Option<u8>,
}

/// The counts for the part of a log that has been read so far.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct LineCounts {
    pub(crate) line_ends: u64,
    /// The number of NUL bytes in holes.
    pub(crate) skipped: u64,
    /// Whether the last line of the log has no line end.
    pub(crate) is_open: bool,
}

impl LineCounts {
    /// Adds the counts for the next part of the log.
    pub(crate) fn add(&mut self, next: Self) {
        self.line_ends += next.line_ends;
        self.skipped += next.skipped;
        self.is_open |= next.is_open;
    }
}

impl Lines<io::Empty> {
    /// Creates a reader for the first `length` bytes of `text`.
    pub(crate) fn of(text: Vec<u8>, length: usize, line_end: u8) -> Self {
        let has_nuls = memchr(0, &text[..length]).is_some();
        let line_end = Some(line_end);
        Self { end: length, buffer: text, ended: true, has_nuls, line_end, ..Self::empty(io::empty()) }
    }

    /// Returns the text.
    pub(crate) fn into_text(self) -> Vec<u8> {
        self.buffer
    }
}

impl<R: Read> Lines<R> {
    pub fn new(from: R) -> Self {
        Self { buffer: vec![0; FIRST_BUFFER], ..Self::empty(from) }
    }

    /// Creates a reader for the rest of a log. The reader continues from these counts.
    pub(crate) fn continued(from: R, counts: LineCounts, line_end: u8) -> Self {
        Self { counts, line_end: Some(line_end), ..Self::new(from) }
    }

    fn empty(from: R) -> Self {
        Self {
            from,
            buffer: Vec::new(),
            start: 0,
            end: 0,
            ended: false,
            number: 0,
            counts: LineCounts::default(),
            has_nuls: false,
            line_end: None,
        }
    }

    /// Returns the byte that ends lines.
    pub(crate) fn line_end(&self) -> u8 {
        self.line_end.unwrap_or(b'\n')
    }

    pub(crate) fn counts(&self) -> LineCounts {
        self.counts
    }

    /// Returns the bytes that have been read but not returned as lines, and the source of all
    /// further bytes.
    pub(crate) fn into_rest(self) -> (Vec<u8>, R) {
        (self.buffer[self.start..self.end].to_vec(), self.from)
    }

    /// Returns the number of the last returned line, counted from 1. Two lines separated only by a
    /// hole have the same number, because other programs count line ends.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// Returns the next line, or `None` after the last line, which need not have a line end.
    pub fn next_line(&mut self) -> io::Result<Option<Line<'_>>> {
        self.skip_nuls()?;
        let mut searched = 0;
        loop {
            let unread = &self.buffer[self.start..self.end];
            let line_end = memchr(self.line_end(), &unread[searched..]).map(|at| searched + at);
            // A hole may start before the new bytes.
            let from = searched.saturating_sub(HOLE - 1);
            let text = &unread[from..line_end.unwrap_or(unread.len())];
            if self.has_nuls
                && let Some(at) = memmem::find(text, &[0; HOLE])
            {
                return Ok(Some(self.take(from + at, from + at)));
            }
            if let Some(length) = line_end {
                self.counts.line_ends += 1;
                self.line_end = Some(self.line_end());
                return Ok(Some(self.take(length, length + 1)));
            }
            searched = unread.len();
            if self.line_end.is_none()
                && (searched > MAX_LINE + 1 || self.ended)
                && memchr(b'\r', unread).is_some()
            {
                self.line_end = Some(b'\r');
                searched = 0;
                continue;
            }
            if searched > MAX_LINE + 1 {
                self.number = self.counts.line_ends + 1;
                self.skip_line()?;
                return Ok(Some(Line::TooLong));
            }
            if self.ended {
                self.counts.is_open |= searched > 0;
                return Ok((searched > 0).then(|| self.take(searched, searched)));
            }
            self.fill()?;
        }
    }

    /// Skips the NUL bytes at the beginning of a line.
    #[inline]
    fn skip_nuls(&mut self) -> io::Result<()> {
        if self.start < self.end && self.buffer[self.start] != 0 {
            return Ok(());
        }
        loop {
            let unread = &self.buffer[self.start..self.end];
            let text = unread.iter().position(|&byte| byte != 0);
            let nuls = text.unwrap_or(unread.len());
            self.start += nuls;
            self.counts.skipped += nuls as u64;
            if text.is_some() || self.ended {
                return Ok(());
            }
            self.fill()?;
        }
    }

    fn take(&mut self, length: usize, consumed: usize) -> Line<'_> {
        let from = self.start;
        self.start += consumed;
        // `line_ends` already counts the end of this line, if there is one.
        self.number = self.counts.line_ends + u64::from(consumed == length);
        let line = &self.buffer[from..from + length];
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        let nuls = line.iter().rev().take_while(|&&byte| byte == 0).count();
        self.counts.skipped += nuls as u64;
        let line = &line[..line.len() - nuls];
        // If the log was joined from several logs, each of them may start with a byte order mark.
        let line = line.strip_prefix(BYTE_ORDER_MARK).unwrap_or(line);
        if line.len() > MAX_LINE { Line::TooLong } else { Line::Text(line) }
    }

    fn fill(&mut self) -> io::Result<()> {
        self.buffer.copy_within(self.start..self.end, 0);
        self.end -= self.start;
        self.start = 0;
        if self.end == self.buffer.len() {
            let larger = (self.buffer.len() * 2).min(MAX_LINE + FIRST_BUFFER);
            self.buffer.resize(larger, 0);
        }
        match self.from.read(&mut self.buffer[self.end..]) {
            Ok(0) => self.ended = true,
            Ok(count) => {
                let new = &self.buffer[self.end..self.end + count];
                self.has_nuls = (self.has_nuls && self.end > 0) || memchr(0, new).is_some();
                self.end += count;
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
        Ok(())
    }

    /// Skips all bytes up to the next line end.
    fn skip_line(&mut self) -> io::Result<()> {
        loop {
            if let Some(at) = memchr(self.line_end(), &self.buffer[self.start..self.end]) {
                self.start += at + 1;
                self.counts.line_ends += 1;
                return Ok(());
            }
            self.start = self.end;
            if self.ended {
                return Ok(());
            }
            self.fill()?;
        }
    }
}

/// The magic bytes at the start of compressed files, and the programs that decompress such files.
const PACKED: [(&[u8], &str); 5] = [
    (b"\x28\xb5\x2f\xfd", "zstd"),
    (b"\xfd7zXZ", "xz"),
    (b"BZh", "bzip2"),
    (b"\x04\x22\x4d\x18", "lz4"),
    (b"PK\x03\x04", "funzip"),
];

/// Decompresses input that starts with the magic bytes of gzip. All other input is returned
/// unchanged.
///
/// # Errors
///
/// Returns an error if the input cannot be read, or if only another program can decompress it.
pub(crate) fn unpacked<'r>(mut from: impl Read + 'r) -> io::Result<Box<dyn Read + 'r>> {
    let longest = PACKED.iter().map(|(magic, _)| magic.len()).max().unwrap_or(0) as u64;
    let mut head = Vec::new();
    from.by_ref().take(longest).read_to_end(&mut head)?;
    if let Some((_, program)) = PACKED.iter().find(|(magic, _)| head.starts_with(magic)) {
        let unpack = if *program == "funzip" { "funzip".to_owned() } else { format!("{program} -dc") };
        let message =
            format!("it is packed: pipe it through {program}, as in {unpack} < FILE | tollgate replay -");
        return Err(io::Error::new(io::ErrorKind::InvalidData, message));
    }
    let gzip = head.starts_with(&GZIP_MAGIC);
    let whole = io::Cursor::new(head).chain(from);
    Ok(if gzip { Box::new(MultiGzDecoder::new(whole)) } else { Box::new(whole) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    /// A reader that returns one byte at a time, which is the hardest case for finding line ends.
    struct Drip<'a>(&'a [u8]);

    impl Read for Drip<'_> {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            let count = self.0.len().min(buffer.len()).min(1);
            buffer[..count].copy_from_slice(&self.0[..count]);
            self.0 = &self.0[count..];
            Ok(count)
        }
    }

    fn all(from: impl Read) -> Vec<Option<Vec<u8>>> {
        let mut lines = Lines::new(from);
        let mut found = Vec::new();
        while let Some(line) = lines.next_line().expect("memory can be read") {
            found.push(match line {
                Line::Text(text) => Some(text.to_vec()),
                Line::TooLong => None,
            });
        }
        found
    }

    fn texts(lines: &[&[u8]]) -> Vec<Option<Vec<u8>>> {
        lines.iter().map(|line| Some(line.to_vec())).collect()
    }

    #[test]
    fn line_ends_of_both_kinds_and_none_at_the_end_are_understood() {
        for (log, lines) in [
            (&b""[..], &[][..]),
            (b"\n", &[&b""[..]][..]),
            (b"a\r\nb\n\nc", &[b"a", b"b", b"", b"c"]),
            (b"\xef\xbb\xbfa\n\xef\xbb\xbfb\r\n", &[b"a", b"b"]),
            (b"\xff\0\xff\n", &[b"\xff\0\xff"]),
            (b"a\rb\r\rc", &[b"a", b"b", b"", b"c"]),
            (b"a\rb\nc\rd", &[b"a\rb", b"c\rd"]),
        ] {
            assert_eq!(all(log), texts(lines));
            assert_eq!(all(Drip(log)), texts(lines));
        }
    }

    /// Returns the lines with their numbers.
    fn numbered(from: impl Read) -> (Vec<(u64, String)>, u64) {
        let mut lines = Lines::new(from);
        let mut found = Vec::new();
        while let Some(line) = lines.next_line().expect("memory can be read") {
            let Line::Text(text) = line else { panic!("no line is too long") };
            let text = String::from_utf8_lossy(text).into_owned();
            found.push((lines.number(), text));
        }
        (found, lines.counts().skipped)
    }

    #[test]
    fn nul_bytes_of_holes_are_no_part_of_a_line() {
        let (short, long) = ("\0".repeat(HOLE - 1), "\0".repeat(HOLE));
        for (log, lines, skipped) in [
            ("\0a\n\0\0b\n".to_owned(), vec![(1, "a"), (2, "b")], 3),
            (format!("{long}\u{feff}a\r\n\n"), vec![(1, "a"), (2, "")], 16),
            (format!("a\ncu{long}\0b\nc\n"), vec![(1, "a"), (2, "cu"), (2, "b"), (3, "c")], 17),
            (format!("a{short}b\n"), vec![(1, &*format!("a{short}b"))], 0),
            (format!("a\ncu{short}"), vec![(1, "a"), (2, "cu")], 15),
            (format!("a\n{long}"), vec![(1, "a")], 16),
            (format!("a{long}\r\nb\n"), vec![(1, "a"), (1, ""), (2, "b")], 16),
            (long.clone(), vec![], 16),
        ] {
            let lines: Vec<_> = lines.into_iter().map(|(number, text)| (number, text.to_owned())).collect();
            assert_eq!(numbered(log.as_bytes()), (lines.clone(), skipped), "{log:?}");
            assert_eq!(numbered(Drip(log.as_bytes())), (lines, skipped), "{log:?}");
        }
    }

    #[test]
    fn a_hole_that_is_larger_than_any_line_is_skipped_in_bounded_memory() {
        for (before, found) in [("", vec![(1, "b")]), ("cut", vec![(1, "cut"), (1, "b")])] {
            let hole = io::repeat(0).take(64 << 20);
            let mut lines = Lines::new(before.as_bytes().chain(hole).chain(&b"b\n"[..]));
            for (number, text) in found {
                assert_eq!(lines.next_line().expect("memory can be read"), Some(Line::Text(text.as_bytes())));
                assert_eq!(lines.number(), number);
            }
            assert_eq!(lines.next_line().expect("memory can be read"), None);
            assert!(lines.buffer.capacity() < 3 * MAX_LINE);
        }
    }

    #[test]
    fn a_line_of_the_largest_length_is_kept_and_a_longer_one_is_skipped_whole() {
        for (length, end) in [
            (MAX_LINE, "\n"),
            (MAX_LINE, "\r\n"),
            (MAX_LINE, ""),
            (MAX_LINE + 1, "\n"),
            (MAX_LINE + 1, ""),
            (5 * MAX_LINE, "\n"),
            (5 * MAX_LINE, ""),
        ] {
            let mut log = b"before\n".to_vec();
            log.extend(std::iter::repeat_n(b'x', length));
            log.extend(end.bytes());
            let after = end.ends_with('\n');
            if after {
                log.extend(b"after");
            }
            let found = all(&log[..]);
            assert_eq!(found[0].as_deref(), Some(&b"before"[..]));
            assert_eq!(found[1].as_ref().map(Vec::len), (length <= MAX_LINE).then_some(length));
            assert_eq!(found.len(), if after { 3 } else { 2 });
        }
    }

    #[test]
    fn memory_stays_bounded_on_an_endless_line() {
        let mut lines = Lines::new(io::repeat(b'x').take(64 << 20));
        assert_eq!(lines.next_line().expect("memory can be read"), Some(Line::TooLong));
        assert!(lines.buffer.capacity() < 3 * MAX_LINE);
    }

    #[test]
    fn gzip_is_recognized_by_its_magic_bytes_and_all_its_members_are_read() {
        let mut packed = Vec::new();
        for part in ["one\ntw", "o\n"] {
            let mut encoder = flate2::write::GzEncoder::new(&mut packed, flate2::Compression::fast());
            encoder.write_all(part.as_bytes()).expect("a vector can be written");
            encoder.finish().expect("a vector can be written");
        }
        for log in [&packed[..], b"one\ntwo\n"] {
            let from = unpacked(log).expect("memory can be read");
            assert_eq!(all(from), texts(&[b"one", b"two"]));
        }
        for short in [&b""[..], b"\x1f"] {
            let from = unpacked(short).expect("memory can be read");
            assert_eq!(all(from).len(), short.len());
        }
    }
}
