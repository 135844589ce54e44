//! Finds the heads of requests among the frames of an HTTP/2 connection.

/// The bytes that begin an HTTP/2 connection.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
const HEADER: usize = 9;
const HEADERS: u8 = 1;
const CONTINUATION: u8 = 9;
const END_HEADERS: u8 = 4;

/// The reader's position in the frames of a connection.
#[derive(Clone, Copy, Debug)]
pub(super) enum Frames {
    /// In the preface, after this many bytes.
    Preface(usize),
    /// The connection does not use HTTP/2.
    None,
    /// In the header of a frame, after this many bytes. `in_head` is true within a head.
    Header { bytes: [u8; HEADER], read: usize, in_head: bool },
    /// In the payload of a frame with this many bytes left. `in_head` is true within a head, and
    /// `ends` is true if the head then ends with the payload.
    Payload { left: usize, in_head: bool, ends: bool },
}

impl Frames {
    pub(super) fn new() -> Self {
        Self::Preface(0)
    }

    /// Moves past bytes that have arrived.
    pub(super) fn read(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let (length, next) = self.after(bytes);
            *self = next;
            bytes = &bytes[length..];
        }
    }

    /// Returns whether a head has begun and not ended, or `None` if the connection does not use
    /// HTTP/2.
    pub(super) fn is_in_head(&self) -> Option<bool> {
        match *self {
            Self::Preface(_) | Self::None => None,
            // A frame begins a head from the byte on that contains its type. A client that is idle
            // may send the other frames in as many pieces as it likes.
            Self::Header { bytes, read, in_head } => Some(in_head || read > 3 && is_of_head(bytes[3])),
            Self::Payload { in_head, .. } => Some(in_head),
        }
    }

    fn header(in_head: bool) -> Self {
        Self::Header { bytes: [0; HEADER], read: 0, in_head }
    }

    fn payload(left: usize, in_head: bool, ends: bool) -> Self {
        if left == 0 { Self::header(in_head && !ends) } else { Self::Payload { left, in_head, ends } }
    }

    /// Returns how many of `bytes` belong to this position, and the next position. `bytes` must not
    /// be empty.
    fn after(self, bytes: &[u8]) -> (usize, Self) {
        match self {
            Self::None => (bytes.len(), self),
            Self::Preface(read) => {
                let length = bytes.len().min(PREFACE.len() - read);
                let next = match read + length {
                    _ if bytes[..length] != PREFACE[read..read + length] => return (bytes.len(), Self::None),
                    read if read == PREFACE.len() => Self::header(false),
                    read => Self::Preface(read),
                };
                (length, next)
            }
            Self::Header { bytes: mut found, read, in_head } => {
                let length = bytes.len().min(HEADER - read);
                found[read..read + length].copy_from_slice(&bytes[..length]);
                let read = read + length;
                if read < HEADER {
                    return (length, Self::Header { bytes: found, read, in_head });
                }
                let [high, middle, low, kind, flags, ..] = found;
                let left = usize::from(high) << 16 | usize::from(middle) << 8 | usize::from(low);
                let is_of_head = is_of_head(kind);
                let ends = is_of_head && flags & END_HEADERS != 0;
                (length, Self::payload(left, is_of_head || in_head, ends))
            }
            Self::Payload { left, in_head, ends } => {
                let length = bytes.len().min(left);
                (length, Self::payload(left - length, in_head, ends))
            }
        }
    }
}

/// Returns whether a frame of this type is part of a head.
fn is_of_head(kind: u8) -> bool {
    kind == HEADERS || kind == CONTINUATION
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_head_is_found_wherever_the_bytes_are_cut() {
        let frame = |kind: u8, flags: u8, payload: &[u8]| {
            let length = u8::try_from(payload.len()).expect("a short payload");
            [&[0, 0, length, kind, flags, 0, 0, 0, 1], payload].concat()
        };
        let parts = [
            (PREFACE.to_vec(), false),
            (frame(4, 0, b""), false),
            (frame(HEADERS, 0, b"abc"), true),
            (frame(CONTINUATION, 0, b""), true),
            (frame(CONTINUATION, END_HEADERS, b"def"), false),
            // In a frame of another kind, this flag means nothing.
            (frame(0, END_HEADERS, b"a body"), false),
            (frame(HEADERS, END_HEADERS | 1, b"ghi"), false),
        ];
        for size in 1..60 {
            let mut frames = Frames::new();
            for (part, in_head) in &parts {
                part.chunks(size).for_each(|bytes| frames.read(bytes));
                assert_eq!(frames.is_in_head(), Some(*in_head), "{size}");
            }
            frames.read(&frame(HEADERS, END_HEADERS, b"jkl")[..11]);
            assert_eq!(frames.is_in_head(), Some(true));
        }
        // The header of a frame that belongs to no head is no part of a head either.
        const PING: u8 = 6;
        let mut frames = Frames::new();
        frames.read(PREFACE);
        for (kind, begins) in [(PING, false), (HEADERS, true), (CONTINUATION, true)] {
            for read in 1..=HEADER {
                let mut frames = frames;
                frames.read(&frame(kind, 0, b"12345678")[..read]);
                assert_eq!(frames.is_in_head(), Some(begins && read > 3), "{kind} {read}");
            }
        }
        let mut frames = Frames::new();
        frames.read(b"PRI * HT");
        assert_eq!(frames.is_in_head(), None);
        frames.read(b"\r\n");
        assert!(matches!(frames, Frames::None));
    }
}
