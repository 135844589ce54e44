//! Percent-encodes the bytes in HTTP/1 targets that `http::Uri` cannot hold.
//!
//! Clients send `"`, `<`, `>`, backquotes and Latin-1 bytes in targets, and servers accept them.
//! However, hyper parses a target as [`http::Uri`], and answers such a request with 400 before a
//! service sees the request. hyper offers no hook for this step, so [`Targets`] sits between the
//! socket and hyper. It percent-encodes exactly the bytes that a `Uri` refuses, and passes on all
//! other bytes unchanged.
//!
//! # Where a request begins
//!
//! If a byte of a body were encoded by mistake, the body would become longer than its stated
//! length. An attacker could use this for request smuggling. Therefore, hyper alone decides where a
//! message ends:
//!
//! 1. A read stops at the end of a head. Bytes after that head are held back.
//! 2. hyper parses the head and calls the service. The service then reports how hyper will find the
//!    end of the body ([`BodyEnd`]). [`Targets`] ignores `Content-Length` and `Transfer-Encoding`.
//! 3. If the body has a length, [`Targets`] counts down the body's bytes. If the body is chunked,
//!    [`Targets`] tracks the chunks using the same states as hyper's decoder. An octet that the
//!    decoder refuses ends the connection.
//! 4. The next request begins after the end of the body.
//!
//! Between steps 1 and 2, hyper reads nothing, because it already has a whole head. If hyper reads
//! anyway, or calls the service before a head has ended, hyper and [`Targets`] disagree about the
//! head. All further bytes of the connection then pass unchanged ([`Place::Beyond`]).
//!
//! Bytes that are not HTTP/1 also pass unchanged: the HTTP/2 preface, a head that hyper refuses,
//! and everything after a WebSocket request.
//!
//! # Cost
//!
//! An ordinary target is scanned once, and the rest of its head is searched for line feeds. Bytes
//! are copied only if a target needs encoding, or if bytes of a body or of the next request arrive
//! together with a head.

use std::io;
use std::pin::Pin;
use std::str;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::task::{Context, Poll, ready};

use bytes::{Buf, BytesMut};
use http::Request;
use http_body::Body;
use memchr::memchr;
use tokio::io::{AsyncRead, ReadBuf};

use crate::proxy::upstream::tunnel;

/// How the current request's body ends: its length, or one of the constants below. The current
/// request is the one whose head hyper has just parsed.
///
/// The service stores the value, and the connection's reader takes it. Both run in the task that
/// polls hyper.
pub(crate) struct BodyEnd(AtomicU64);

const UNTOLD: u64 = u64::MAX;
const CHUNKED: u64 = u64::MAX - 1;
/// After this request, the connection may no longer use HTTP.
const NEVER: u64 = u64::MAX - 2;
const LONGEST: u64 = u64::MAX - 3;

impl BodyEnd {
    /// Stores how this request's body ends.
    pub(crate) fn tell<B: Body>(&self, request: &Request<B>) {
        let end = match request.body().size_hint().exact() {
            _ if tunnel::is_wanted(request) => NEVER,
            Some(length) => length.min(LONGEST),
            None => CHUNKED,
        };
        // ORDERING: relaxed, because the same task stores and takes the value.
        self.0.store(end, Relaxed);
    }

    fn take(&self) -> Option<Place> {
        // ORDERING: relaxed, because the same task stores and takes the value.
        match self.0.swap(UNTOLD, Relaxed) {
            UNTOLD => None,
            CHUNKED => Some(Place::Chunks(Chunks::Size(0))),
            NEVER => Some(Place::Beyond),
            0 => Some(Place::EmptyLines),
            length => Some(Place::Body(length)),
        }
    }
}

/// Encodes the targets of requests while they are read from a connection.
pub(crate) struct Targets {
    place: Place,
    body_end: Arc<BodyEnd>,
    /// Bytes before `place`, ready to be returned by a read.
    ready: BytesMut,
    /// Bytes after `place`, held back for later reads.
    held: BytesMut,
}

impl Targets {
    pub(crate) fn new() -> Self {
        let body_end = Arc::new(BodyEnd(AtomicU64::new(UNTOLD)));
        Self { place: Place::EmptyLines, body_end, ready: BytesMut::new(), held: BytesMut::new() }
    }

    /// Returns the value that reports the end of each request's body. The service must set this
    /// value by calling [`tell`](BodyEnd::tell).
    pub(crate) fn body_end(&self) -> Arc<BodyEnd> {
        Arc::clone(&self.body_end)
    }

    /// Returns whether the head of a request has begun and not ended.
    pub(crate) fn is_in_head(&self) -> bool {
        matches!(self.place, Place::Method | Place::Path | Place::Query | Place::Fields(_))
    }

    /// Reads from a stream, and encodes targets.
    pub(crate) fn poll_read<S: AsyncRead + Unpin>(
        &mut self,
        stream: &mut S,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.ready.is_empty() {
            self.place = match (self.place, self.body_end.take()) {
                (Place::HeadEnd, Some(body)) => body,
                (Place::HeadEnd, None) | (_, Some(_)) => Place::Beyond,
                (place, None) => place,
            };
        }
        loop {
            if self.ready.is_empty() {
                self.make_ready();
            }
            if !self.ready.is_empty() {
                let length = self.ready.len().min(buffer.remaining());
                buffer.put_slice(&self.ready[..length]);
                self.ready.advance(length);
                if self.ready.is_empty() {
                    // An idle connection must not occupy memory for this buffer.
                    self.ready = BytesMut::new();
                }
                return Poll::Ready(Ok(()));
            }
            // At this point, `held` is either empty or contains only the start of a character.
            let filled = buffer.filled().len();
            ready!(Pin::new(&mut *stream).poll_read(context, buffer))?;
            let read = &buffer.filled()[filled..];
            if read.is_empty() {
                if self.held.is_empty() {
                    return Poll::Ready(Ok(()));
                }
                self.place = Place::Beyond;
                continue;
            }
            let passed = if self.held.is_empty() { self.place.pass(read) } else { 0 };
            self.held.extend_from_slice(&read[passed..]);
            buffer.set_filled(filled + passed);
            if passed > 0 {
                return Poll::Ready(Ok(()));
            }
        }
    }

    /// Moves the first bytes of `held` to `ready`, and encodes them if necessary. Does nothing if
    /// too few bytes have arrived to decide about the encoding.
    fn make_ready(&mut self) {
        if self.held.is_empty() {
            return;
        }
        let passed = self.place.pass(&self.held);
        if passed > 0 {
            self.ready = self.held.split_to(passed);
        } else if let Some((length, encoded)) = self.place.encoded(&self.held) {
            self.held.advance(length);
            self.place.pass(&encoded);
            self.ready = encoded;
        }
        if self.held.is_empty() {
            self.held = BytesMut::new();
        }
    }
}

/// The reader's position in the messages of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// Before a request. hyper skips empty lines here.
    EmptyLines,
    Method,
    /// In a target, before a question mark.
    Path,
    /// In a target, after a question mark.
    Query,
    /// In the rest of a head.
    Fields(LinePosition),
    /// After a head, until the service reports how the body ends.
    HeadEnd,
    /// In a body with this many bytes left.
    Body(u64),
    Chunks(Chunks),
    /// [`Targets`] has stopped looking for requests.
    Beyond,
}

/// The position in a line of a head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LinePosition {
    Within,
    /// After the line feed of the previous line.
    Begun,
    /// After a carriage return at the start of the line.
    Returned,
}

/// The position in a chunked body. Each variant is a state of hyper's decoder, named after the
/// octet expected next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Chunks {
    Size(u64),
    /// White space or an extension after the size.
    Extension(u64),
    SizeLf(u64),
    /// This many bytes of data remain.
    Data(u64),
    DataCr,
    DataLf,
    /// The start of a trailer, or of the line that ends the body.
    LineBegin,
    Trailer,
    TrailerLf,
    EndLf,
}

impl Place {
    /// Moves past the bytes that are passed on unchanged, and returns their number. Stops at the
    /// end of a head, and before a byte in a target that must be encoded.
    fn pass(&mut self, bytes: &[u8]) -> usize {
        let mut passed = 0;
        while passed < bytes.len() {
            let (length, next) = self.after(&bytes[passed..]);
            passed += length;
            *self = next;
            if length == 0 && matches!(next, Self::HeadEnd | Self::Path | Self::Query) {
                break;
            }
        }
        passed
    }

    /// Returns how many of `bytes` belong to this place, and the next place. `bytes` must not be
    /// empty.
    fn after(self, bytes: &[u8]) -> (usize, Self) {
        let all = bytes.len();
        let first_not = |is: fn(u8) -> bool| bytes.iter().position(|&byte| !is(byte)).unwrap_or(all);
        match self {
            Self::EmptyLines => {
                let length = first_not(|byte| matches!(byte, b'\r' | b'\n'));
                (length, if length == all { self } else { Self::Method })
            }
            Self::Method => match first_not(|byte| byte > b' ') {
                length if length == all => (all, self),
                length if bytes[length] == b' ' => (length + 1, Self::Path),
                _ => (all, Self::Beyond),
            },
            Self::Path | Self::Query => self.after_target(bytes),
            Self::Fields(line) => line.after(bytes),
            Self::HeadEnd => (0, self),
            Self::Body(left) => match usize::try_from(left) {
                Ok(left) if left <= all => (left, Self::EmptyLines),
                _ => (all, Self::Body(left - all as u64)),
            },
            Self::Chunks(chunks) => chunks.after(bytes),
            Self::Beyond => (all, self),
        }
    }

    fn after_target(self, bytes: &[u8]) -> (usize, Self) {
        let is_kept = if self == Self::Path { is_kept_in_path } else { is_kept_in_query };
        let end = bytes.iter().position(|&byte| !is_kept(byte)).unwrap_or(bytes.len());
        let rest = &bytes[end..];
        match rest.first() {
            Some(b'?') => (end + 1, Self::Query),
            Some(b' ') => (end + 1, Self::Fields(LinePosition::Within)),
            Some(byte) if ends_target(*byte) => (bytes.len(), Self::Beyond),
            _ => {
                let characters = rest.iter().position(u8::is_ascii).unwrap_or(rest.len());
                let valid = rest[..characters].utf8_chunks().next().map_or(0, |chunk| chunk.valid().len());
                (end + valid, self)
            }
        }
    }

    /// Encodes as many of the first bytes of a target as possible. Returns how many bytes were
    /// consumed, and their encoding, or `None` if no byte can be encoded.
    fn encoded(self, bytes: &[u8]) -> Option<(usize, BytesMut)> {
        let mut is_kept = match self {
            Self::Path => is_kept_in_path,
            Self::Query => is_kept_in_query,
            _ => return None,
        };
        let end = bytes.iter().position(|&byte| ends_target(byte)).unwrap_or(bytes.len());
        let mut encoded = BytesMut::with_capacity(end + 64);
        let mut length = 0;
        for chunk in bytes[..end].utf8_chunks() {
            for &byte in chunk.valid().as_bytes() {
                if byte == b'?' {
                    is_kept = is_kept_in_query;
                }
                if is_kept(byte) || byte == b'?' || !byte.is_ascii() {
                    encoded.extend_from_slice(&[byte]);
                } else {
                    encode(&mut encoded, byte);
                }
            }
            length += chunk.valid().len();
            let is_last = length + chunk.invalid().len() == bytes.len();
            if is_last && str::from_utf8(chunk.invalid()).is_err_and(|error| error.error_len().is_none()) {
                // The remaining bytes of the character may still arrive.
                break;
            }
            chunk.invalid().iter().for_each(|&byte| encode(&mut encoded, byte));
            length += chunk.invalid().len();
        }
        (length > 0).then_some((length, encoded))
    }
}

impl LinePosition {
    fn after(mut self, bytes: &[u8]) -> (usize, Place) {
        let mut at = 0;
        while let Some(&byte) = bytes.get(at) {
            self = match (self, byte) {
                (Self::Begun | Self::Returned, b'\n') => return (at + 1, Place::HeadEnd),
                (Self::Begun, b'\r') => Self::Returned,
                _ => match memchr(b'\n', &bytes[at..]) {
                    Some(length) => {
                        at += length;
                        Self::Begun
                    }
                    None => return (bytes.len(), Place::Fields(Self::Within)),
                },
            };
            at += 1;
        }
        (at, Place::Fields(self))
    }
}

impl Chunks {
    fn after(self, bytes: &[u8]) -> (usize, Place) {
        let next = match (self, bytes[0]) {
            (Self::Data(left), _) => {
                let length = usize::try_from(left).map_or(bytes.len(), |left| left.min(bytes.len()));
                let left = left - length as u64;
                return (length, Place::Chunks(if left == 0 { Self::DataCr } else { Self::Data(left) }));
            }
            (Self::Size(size), b'\r') | (Self::Extension(size), b'\r') => Self::SizeLf(size),
            (Self::Size(size), b'\t' | b' ' | b';') => Self::Extension(size),
            (Self::Size(size), byte) => match char::from(byte).to_digit(16) {
                Some(digit) => Self::Size(size.saturating_mul(16).saturating_add(digit.into())),
                None => return (bytes.len(), Place::Beyond),
            },
            (Self::Extension(size), _) => Self::Extension(size),
            (Self::SizeLf(0), b'\n') => Self::LineBegin,
            (Self::SizeLf(size), b'\n') => Self::Data(size),
            (Self::DataCr, b'\r') => Self::DataLf,
            (Self::DataLf, b'\n') => Self::Size(0),
            (Self::LineBegin, b'\r') => Self::EndLf,
            (Self::LineBegin | Self::Trailer, byte) if byte != b'\r' => Self::Trailer,
            (Self::Trailer, _) => Self::TrailerLf,
            (Self::TrailerLf, b'\n') => Self::LineBegin,
            (Self::EndLf, b'\n') => return (1, Place::EmptyLines),
            _ => return (bytes.len(), Place::Beyond),
        };
        (1, Place::Chunks(next))
    }
}

/// Returns whether the path of a [`Uri`](http::Uri) may contain this ASCII byte. A question mark
/// ends the path.
fn is_kept_in_path(byte: u8) -> bool {
    matches!(byte, b'!'..=b'~') && !matches!(byte, b'<' | b'>' | b'`' | b'?')
}

/// Returns whether the query of a [`Uri`](http::Uri) may contain this ASCII byte.
fn is_kept_in_query(byte: u8) -> bool {
    matches!(byte, b'!'..=b'~') && !matches!(byte, b'<' | b'>' | b'"')
}

/// Returns whether this byte ends a target. A space separates the target from the version; hyper
/// refuses all other bytes that end a target.
fn ends_target(byte: u8) -> bool {
    matches!(byte, 0..=b' ' | 0x7f)
}

fn encode(out: &mut BytesMut, byte: u8) {
    const HEX: &[u8; 16] = b"0123456789ABCDEF";
    out.extend_from_slice(&[b'%', HEX[usize::from(byte >> 4)], HEX[usize::from(byte & 15)]]);
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::{HeaderMap, Response, Uri};
    use http_body_util::{BodyExt, Empty};
    use hyper::body::{Bytes, Incoming};
    use hyper::server::conn::http1;
    use hyper::service::service_fn;
    use hyper_util::rt::TokioIo;
    use proptest::prelude::*;
    use std::cell::RefCell;
    use std::collections::VecDeque;
    use std::convert::Infallible;
    use std::pin::pin;
    use std::task::Waker;
    use tokio::io::AsyncWrite;

    /// A stream that returns the given reads and never reaches its end.
    struct Stream {
        pieces: VecDeque<Vec<u8>>,
        targets: Targets,
    }

    impl Stream {
        fn of(pieces: impl IntoIterator<Item = Vec<u8>>) -> Self {
            Self { pieces: pieces.into_iter().collect(), targets: Targets::new() }
        }
    }

    /// The socket below a [`Stream`].
    struct Socket<'s>(&'s mut VecDeque<Vec<u8>>);

    impl AsyncRead for Socket<'_> {
        fn poll_read(
            mut self: Pin<&mut Self>,
            _: &mut Context<'_>,
            buffer: &mut ReadBuf<'_>,
        ) -> Poll<io::Result<()>> {
            let Some(mut piece) = self.0.pop_front() else { return Poll::Pending };
            let rest = piece.split_off(piece.len().min(buffer.remaining()));
            buffer.put_slice(&piece);
            if !rest.is_empty() {
                self.0.push_front(rest);
            }
            Poll::Ready(Ok(()))
        }
    }

    impl AsyncRead for Stream {
        fn poll_read(
            mut self: Pin<&mut Self>,
            context: &mut Context<'_>,
            buffer: &mut ReadBuf<'_>,
        ) -> Poll<io::Result<()>> {
            let this = &mut *self;
            this.targets.poll_read(&mut Socket(&mut this.pieces), context, buffer)
        }
    }

    impl AsyncWrite for Stream {
        fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
            Poll::Ready(Ok(bytes.len()))
        }

        fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }

        fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }
    }

    /// The target, the body and the trailers of a request that hyper has passed to a service.
    type Got = (Vec<u8>, Vec<u8>, HeaderMap);

    /// Returns the requests that hyper reads from these pieces of input.
    fn read(pieces: impl IntoIterator<Item = Vec<u8>>) -> Vec<Got> {
        let stream = Stream::of(pieces);
        let body_end = stream.targets.body_end();
        let got = RefCell::new(Vec::new());
        let service = service_fn(|request: Request<Incoming>| {
            body_end.tell(&request);
            let got = &got;
            async move {
                let (head, body) = request.into_parts();
                let body = body.collect().await;
                let trailers = body.as_ref().ok().and_then(|body| body.trailers().cloned());
                let body = body.map(|body| body.to_bytes().to_vec()).unwrap_or_default();
                got.borrow_mut().push((
                    head.uri.to_string().into_bytes(),
                    body,
                    trailers.unwrap_or_default(),
                ));
                Ok::<_, Infallible>(Response::new(Empty::<Bytes>::new()))
            }
        });
        {
            let mut connection = pin!(http1::Builder::new().serve_connection(TokioIo::new(stream), service));
            let mut context = Context::from_waker(Waker::noop());
            // Each poll reads at least one piece, if any pieces are left.
            for _ in 0..3_000 {
                if connection.as_mut().poll(&mut context).is_ready() {
                    break;
                }
            }
        }
        got.into_inner()
    }

    fn holds(target: &[u8]) -> bool {
        Uri::try_from(target).is_ok()
    }

    #[test]
    fn what_is_kept_is_what_a_uri_holds() {
        for byte in 0..=0x7f {
            if !ends_target(byte) {
                let kept = (is_kept_in_path(byte) || byte == b'?', is_kept_in_query(byte));
                assert_eq!(kept, (holds(&[b'/', byte]), holds(&[b'/', b'?', byte])), "{byte:#x}");
            }
        }
    }

    /// Encodes each byte that a URI cannot contain, one character at a time.
    fn oracle(target: &[u8]) -> Vec<u8> {
        let mut encoded = Vec::new();
        let mut rest = target;
        while !rest.is_empty() {
            let start: &[u8] = if encoded.contains(&b'?') { b"/?" } else { b"/" };
            let character = (1..=4).find(|&length| {
                rest.get(..length)
                    .is_some_and(|it| str::from_utf8(it).is_ok() && holds(&[start, it].concat()))
            });
            match character {
                Some(length) => encoded.extend(&rest[..length]),
                None => encoded.extend(format!("%{:02X}", rest[0]).bytes()),
            }
            rest = &rest[character.unwrap_or(1)..];
        }
        encoded
    }

    #[derive(Clone, Debug)]
    struct Sent {
        before: &'static str,
        target: Vec<u8>,
        line_end: &'static str,
        body: Vec<u8>,
        /// The lengths of the chunks, if the body is chunked.
        chunks: Option<Vec<usize>>,
    }

    impl Sent {
        fn bytes(&self) -> Vec<u8> {
            let end = self.line_end;
            let mut bytes = self.before.as_bytes().to_vec();
            bytes.extend(b"POST ");
            bytes.extend(&self.target);
            bytes.extend(format!(" HTTP/1.1{end}Host: a{end}X-Url: http://b/?\"<>{end}").bytes());
            let Some(chunks) = &self.chunks else {
                if !self.body.is_empty() {
                    bytes.extend(format!("Content-Length: {}{end}", self.body.len()).bytes());
                }
                bytes.extend(end.bytes());
                bytes.extend(&self.body);
                return bytes;
            };
            bytes.extend(format!("Transfer-Encoding: chunked{end}{end}").bytes());
            let mut rest = self.body.as_slice();
            for &length in chunks {
                let (chunk, after) = rest.split_at(length.clamp(1, rest.len().max(1)).min(rest.len()));
                if !chunk.is_empty() {
                    bytes.extend(format!("00{:X} ;a=\"<\"\r\n", chunk.len()).bytes());
                    bytes.extend(chunk);
                    bytes.extend(b"\r\n");
                }
                rest = after;
            }
            if !rest.is_empty() {
                bytes.extend(format!("{:x}\r\n", rest.len()).bytes());
                bytes.extend(rest);
                bytes.extend(b"\r\n");
            }
            bytes.extend(b"0\r\nX-Sum: GET /< HTTP/1.1\r\n\r\n");
            bytes
        }

        fn got(&self) -> Got {
            let mut trailers = HeaderMap::new();
            if self.chunks.is_some() {
                trailers.insert("x-sum", http::HeaderValue::from_static("GET /< HTTP/1.1"));
            }
            (oracle(&self.target), self.body.clone(), trailers)
        }
    }

    fn parts(of: &'static [&'static [u8]], most: usize) -> impl Strategy<Value = Vec<u8>> {
        let part = prop_oneof![
            3 => prop::sample::select(of).prop_map(<[u8]>::to_vec),
            1 => prop::collection::vec(prop_oneof![0x21_u8..0x23, 0x24_u8..0x7f, 0x80_u8..], 0..6),
        ];
        prop::collection::vec(part, 0..most).prop_map(|parts| parts.concat())
    }

    fn requests() -> impl Strategy<Value = Sent> {
        let targets: &[&[u8]] = &[b"<", b">", b"\"", b"`", b"?", b"\xe9", b"\xe2\x82\xac", b"\xe2\x82", b"a"];
        let bodies: &[&[u8]] =
            &[b"\r\n\r\nGET /< HTTP/1.1\r\n\r\n", b"GET /\" HTTP/1.1\r\n", b"\n", b"0\r\n\r\n"];
        let chunks = prop::option::of(prop::collection::vec(1..20_usize, 0..4));
        let lines = (prop::sample::select(&["", "\r\n", "\n\r\n"]), prop::sample::select(&["\r\n", "\n"]));
        (lines, parts(targets, 8), parts(bodies, 6), chunks).prop_map(|(lines, target, body, chunks)| Sent {
            before: lines.0,
            target: [b"/", target.as_slice()].concat(),
            line_end: lines.1,
            body,
            chunks,
        })
    }

    fn cut(bytes: &[u8], lengths: &[usize]) -> Vec<Vec<u8>> {
        let mut pieces = Vec::new();
        let mut rest = bytes;
        for length in lengths.iter().cycle() {
            if rest.is_empty() {
                break;
            }
            let (piece, after) = rest.split_at(*length.min(&rest.len()));
            pieces.push(piece.to_vec());
            rest = after;
        }
        pieces
    }

    proptest! {
        #[test]
        fn hyper_reads_each_request_with_its_target_encoded_and_its_body_as_it_came(
            sent in prop::collection::vec(requests(), 1..5),
            lengths in prop::collection::vec(prop_oneof![1..9_usize, 1..300_usize], 1..6),
        ) {
            let bytes: Vec<u8> = sent.iter().flat_map(Sent::bytes).collect();
            let got: Vec<Got> = sent.iter().map(Sent::got).collect();
            prop_assert_eq!(read(cut(&bytes, &lengths)), got);
        }
    }

    /// Reads the whole stream. After each read, `tell` may store how a body ends.
    fn through(stream: &mut Stream, mut tell: impl FnMut(&Targets)) -> Vec<u8> {
        let (mut out, mut space) = (Vec::new(), [0; 64]);
        loop {
            let mut buffer = ReadBuf::new(&mut space);
            let mut context = Context::from_waker(Waker::noop());
            match Pin::new(&mut *stream).poll_read(&mut context, &mut buffer) {
                Poll::Ready(Ok(())) => out.extend(buffer.filled()),
                _ => return out,
            }
            tell(&stream.targets);
        }
    }

    #[test]
    fn where_hyper_disagrees_about_a_head_nothing_is_changed_any_more() {
        const TWO: &[u8] = b"GET /1< HTTP/1.1\r\n\r\nGET /2< HTTP/1.1\r\n\r\n";
        let request = |body: &'static str| Request::new(http_body_util::Full::<Bytes>::from(body));
        let through = |pieces: &[&[u8]], tell: &dyn Fn(&Targets)| {
            let out = through(&mut Stream::of(pieces.iter().map(|piece| piece.to_vec())), tell);
            String::from_utf8(out).unwrap()
        };
        let at_end = |targets: &Targets| {
            if targets.place == Place::HeadEnd && targets.ready.is_empty() {
                targets.body_end.tell(&request(""));
            }
        };
        assert!(through(&[TWO], &at_end).contains("GET /2%3C "));
        // In the first case, hyper continues to read after the end of a head. In the second case,
        // hyper calls the service before a head has ended.
        assert!(through(&[TWO], &|_| {}).ends_with("GET /2< HTTP/1.1\r\n\r\n"));
        assert!(through(&[b"GET", TWO], &|targets| targets.body_end.tell(&request(""))).contains("GET /1< "));
        // hyper does not call a service for the HTTP/2 preface, although the preface looks like a
        // head.
        let http2 = [b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", TWO].concat();
        assert_eq!(through(&[&http2], &|_| {}).as_bytes(), http2);
    }

    #[test]
    fn after_a_request_for_a_websocket_nothing_is_changed() {
        let request = Request::get("/")
            .header("connection", "upgrade")
            .header("upgrade", "websocket")
            .header("sec-websocket-key", "x")
            .body(Empty::<Bytes>::new())
            .unwrap();
        let frames = b"GET /1 HTTP/1.1\r\n\r\nGET /< HTTP/1.1\r\n\r\n";
        let mut stream = Stream::of([frames.to_vec()]);
        let out = through(&mut stream, |targets| {
            if targets.place == Place::HeadEnd {
                targets.body_end.tell(&request);
            }
        });
        assert_eq!(out, frames);
    }
}
