//! Reads Common and Combined Log Format, the access logs of Apache and nginx.
//!
//! ```text
//! 192.0.2.1 - frank [17/May/2015:10:05:03 +0000] "GET /a?b HTTP/1.1" 200 123 "referer" "agent"
//! ip   ident  user  time                          request            status bytes
//! ```
//!
//! Common ends after the bytes, and Combined after the agent. What follows there is ignored,
//! because many sites append fields of their own. Bytes are never assumed to be text. The request
//! need not be an HTTP request line: browsers that speak TLS to a plain port, and scanners, send
//! anything. Unless it begins with a method and a URI, method, path, uri and protocol are all `-`.

use std::borrow::Cow;

use memchr::{memchr, memrchr};

use super::key::KeyWriter;
use super::path::unescaped;
use super::request::{MISSING, Reason, Request, byte_count};
use super::schema::{Cost, Format, Unopened, Wanted, unknown_field};
use super::timestamp::ClfStamps;

/// A field that may be part of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Field {
    Ip,
    Ident,
    User,
    Method,
    Path,
    Uri,
    Protocol,
    Status,
    Bytes,
    Referer,
    UserAgent,
}

/// The fields of Common come first.
const FIELDS: [(&str, Field); 11] = [
    ("ip", Field::Ip),
    ("ident", Field::Ident),
    ("user", Field::User),
    ("method", Field::Method),
    ("path", Field::Path),
    ("uri", Field::Uri),
    ("protocol", Field::Protocol),
    ("status", Field::Status),
    ("bytes", Field::Bytes),
    ("referer", Field::Referer),
    ("user-agent", Field::UserAgent),
];
const FIELDS_OF_COMMON: usize = 9;

/// Reads the records of one log in Common or Combined Log Format.
pub struct ClfRecords {
    combined: bool,
    key: Vec<Field>,
    pub(crate) writer: KeyWriter,
    cost: Cost,
    stamps: ClfStamps,
}

impl ClfRecords {
    /// # Errors
    ///
    /// The key has a field that the format lacks.
    pub(crate) fn open(format: Format, wanted: &Wanted) -> Result<Self, Unopened> {
        let combined = format == Format::Combined;
        let known = if combined { &FIELDS[..] } else { &FIELDS[..FIELDS_OF_COMMON] };
        let find = |name: &String| {
            let found = known.iter().find(|(known, _)| known == name);
            found
                .map(|&(_, field)| field)
                .ok_or_else(|| unknown_field(name, format, known.iter().map(|&(name, _)| name.as_bytes())))
        };
        Ok(Self {
            combined,
            key: wanted.key.iter().map(find).collect::<Result<_, _>>()?,
            writer: KeyWriter::new(wanted),
            cost: wanted.cost,
            stamps: ClfStamps::default(),
        })
    }

    #[inline]
    pub(crate) fn read(&mut self, line: &[u8], key: &mut Vec<u8>) -> Result<Request, Reason> {
        let parts = ClfLine::split(line)?;
        let (referer, agent) = if self.combined { parts.referer_and_agent()? } else { (MISSING, MISSING) };
        let at = self.stamps.read(parts.stamp)?;
        let cost = match self.cost {
            Cost::One => 1,
            Cost::Bytes => byte_count(parts.bytes)?,
        };
        let value = |field: &Field| {
            Cow::Borrowed(match field {
                Field::Path => return unescaped(RequestLine::split(parts.request).uri),
                Field::Ip => parts.ip,
                Field::Ident => parts.ident,
                Field::User => parts.user,
                Field::Method => RequestLine::split(parts.request).method,
                Field::Uri => RequestLine::split(parts.request).uri,
                Field::Protocol => RequestLine::split(parts.request).protocol,
                Field::Status => parts.status,
                Field::Bytes => parts.bytes,
                Field::Referer => referer,
                Field::UserAgent => agent,
            })
        };
        self.writer.write(key, self.key.iter().map(value));
        Ok(Request { at, cost })
    }
}

/// The parts of a line; `rest` is what follows the bytes, including the last two fields of
/// Combined.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct ClfLine<'l> {
    ip: &'l [u8],
    ident: &'l [u8],
    user: &'l [u8],
    stamp: &'l [u8],
    request: &'l [u8],
    status: &'l [u8],
    bytes: &'l [u8],
    pub(crate) rest: &'l [u8],
}

impl<'l> ClfLine<'l> {
    /// # Errors
    ///
    /// The reason why this is not a line of Common Log Format.
    #[inline]
    pub(crate) fn split(line: &'l [u8]) -> Result<Self, Reason> {
        let (ip, rest) = word(line).ok_or("it does not begin with 'ip ident user ['")?;
        let (ident, rest) = word(rest).ok_or("it does not begin with 'ip ident user ['")?;
        let bracket = memchr(b'[', rest).ok_or("there is no '[' that begins the time")?;
        let (user, rest) = (&rest[..bracket], &rest[bracket + 1..]);
        let user = user.strip_suffix(b" ").ok_or("it does not begin with 'ip ident user ['")?;
        // A user's name may contain spaces. But where ident is in use as well, the line more likely
        // begins with a field of its own (a virtual host), and another field would be taken for the
        // ip.
        if ip.is_empty() || user.is_empty() || (ident != MISSING && memchr(b' ', user).is_some()) {
            return Err("what comes before the time is not 'ip ident user'".into());
        }
        let bracket = memchr(b']', rest).ok_or("the time has no ']' at its end")?;
        let (stamp, rest) = (&rest[..bracket], &rest[bracket + 1..]);
        let (request, rest) = quoted(rest).ok_or("after the time there is no quoted request")?;
        let rest = rest.strip_prefix(b" ").ok_or("there is no status")?;
        let (status, rest) = word(rest).ok_or("there are no bytes after the status")?;
        if status != MISSING && !(status.len() == 3 && status.iter().all(u8::is_ascii_digit)) {
            return Err("the status is not three digits".into());
        }
        let bytes_end = memchr(b' ', rest).unwrap_or(rest.len());
        let (bytes, rest) = rest.split_at(bytes_end);
        if bytes.is_empty() || (bytes != MISSING && !bytes.iter().all(u8::is_ascii_digit)) {
            return Err("the bytes are neither a number nor '-'".into());
        }
        Ok(Self { ip, ident, user, stamp, request, status, bytes, rest })
    }

    /// Returns the two fields that Combined has and Common lacks.
    #[inline]
    pub(crate) fn referer_and_agent(&self) -> Result<(&'l [u8], &'l [u8]), Reason> {
        if self.rest.is_empty() {
            return Err("it ends after the bytes, as in the common format".into());
        }
        let (referer, rest) = quoted(self.rest).ok_or("the referer is not quoted to its end")?;
        let (agent, _) = quoted(rest).ok_or("the user agent is not quoted to its end")?;
        Ok((referer, agent))
    }
}

/// Splits at the first space.
#[inline]
fn word(text: &[u8]) -> Option<(&[u8], &[u8])> {
    let space = memchr(b' ', text)?;
    Some((&text[..space], &text[space + 1..]))
}

/// Splits off ` "..."`. Inside, `\"` is an escaped quote. A quote that is not followed by a space
/// or the end of the line was left unescaped by the server, and belongs to the text too.
#[inline]
fn quoted(text: &[u8]) -> Option<(&[u8], &[u8])> {
    let text = text.strip_prefix(b" \"")?;
    let mut from = 0;
    loop {
        let quote = from + memchr(b'"', &text[from..])?;
        let escapes = text[..quote].iter().rev().take_while(|&&byte| byte == b'\\').count();
        if escapes % 2 == 0 && matches!(text.get(quote + 1), None | Some(b' ')) {
            return Some((&text[..quote], &text[quote + 1..]));
        }
        from = quote + 1;
    }
}

/// `METHOD URI PROTOCOL`, or without the protocol, as in HTTP/0.9.
#[derive(Debug, PartialEq, Eq)]
struct RequestLine<'l> {
    method: &'l [u8],
    uri: &'l [u8],
    protocol: &'l [u8],
}

impl<'l> RequestLine<'l> {
    fn split(request: &'l [u8]) -> Self {
        let none = Self { method: MISSING, uri: MISSING, protocol: MISSING };
        let Some((method, rest)) = word(request) else { return none };
        // Methods consist of letters, and some of WebDAV's contain a hyphen.
        let letters = method.iter().all(|byte| byte.is_ascii_alphabetic() || *byte == b'-');
        // A URI may contain unescaped spaces, so the protocol is the last word of the line.
        let (uri, protocol) = match memrchr(b' ', rest) {
            Some(space) if rest[space + 1..].starts_with(b"HTTP/") => (&rest[..space], &rest[space + 1..]),
            _ => (rest, MISSING),
        };
        if !letters || method.is_empty() || method == MISSING || uri.is_empty() {
            return none;
        }
        Self { method, uri, protocol }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::replay::log::schema::tests::{COMBINED, wanted};

    const ALL: [&str; 11] = [
        "ip",
        "ident",
        "user",
        "method",
        "path",
        "uri",
        "protocol",
        "status",
        "bytes",
        "referer",
        "user-agent",
    ];

    fn read(format: Format, field: &str, line: &[u8]) -> Result<String, Reason> {
        let wanted = wanted(&[field], Cost::Bytes);
        let mut records = ClfRecords::open(format, &wanted).expect("the field is known");
        let mut key = Vec::new();
        records.read(line, &mut key)?;
        Ok(String::from_utf8_lossy(&key).into_owned())
    }

    #[test]
    fn every_field_of_a_combined_line_is_found() {
        let values = [
            "192.0.2.1",
            "-",
            "frank",
            "GET",
            "/a",
            "/a?b=c",
            "HTTP/1.1",
            "200",
            "123",
            "https://example.org/",
            "Agent/1.0 (\\\"x\\\")",
        ];
        for (field, value) in ALL.into_iter().zip(values) {
            for end in ["", " extra \"fields\" 0.003"] {
                let line = format!("{COMBINED}{end}");
                let found = read(Format::Combined, field, line.as_bytes());
                assert_eq!(found.as_deref(), Ok(value), "{field}");
            }
        }
    }

    #[test]
    fn time_and_cost_are_read() {
        let mut records =
            ClfRecords::open(Format::Combined, &wanted(&["ip"], Cost::Bytes)).expect("the field is known");
        let request = records.read(COMBINED.as_bytes(), &mut Vec::new()).expect("it parses");
        assert_eq!(request.at.as_nanos(), 1_431_857_103_000_000_000);
        assert_eq!(request.cost, 123);
    }

    #[test]
    fn common_has_no_referer_and_ignores_what_follows_its_fields() {
        assert_eq!(read(Format::Common, "bytes", COMBINED.as_bytes()).as_deref(), Ok("123"));
        for field in ["referer", "user-agent", "nonsense"] {
            let refused = ClfRecords::open(Format::Common, &wanted(&[field], Cost::One)).err();
            let Some(Unopened::Refused(message)) = refused else { panic!("{field} opened") };
            assert!(message.contains("ip, ident, user, method, path, uri"), "{message}");
            assert!(!message.contains("referer,"), "{message}");
        }
    }

    #[test]
    fn unusual_lines_that_real_logs_have_are_read() {
        let table: &[(&str, &str, &[u8])] = &[
            ("ip", "2001:db8::/64", b"2001:db8::1 - - [T] \"GET / HTTP/1.1\" 200 - \"-\" \"-\""),
            ("bytes", "-", b"h - - [T] \"GET / HTTP/1.1\" 304 - \"-\" \"-\""),
            ("user", "jane doe", b"h - jane doe [T] \"GET / HTTP/1.1\" 200 1 \"-\" \"-\""),
            ("method", "-", b"h - - [T] \"-\" 408 0 \"-\" \"-\""),
            ("path", "-", b"h - - [T] \"\" 400 0 \"-\" \"-\""),
            ("path", "-", b"h - - [T] \"\\x16\\x03\\x01 \\x02\" 400 0 \"-\" \"-\""),
            ("path", "-", b"h - - [T] \"\x16\x03\x01\xff\0\" 400 0 \"-\" \"-\""),
            ("path", "/", b"h - - [T] \"GET /\" 200 0 \"-\" \"-\""),
            ("protocol", "-", b"h - - [T] \"GET /\" 200 0 \"-\" \"-\""),
            ("path", "/a%20b", b"h - - [T] \"GET /a b?c d HTTP/1.0\" 200 0 \"-\" \"-\""),
            ("uri", "/\\\"q\\\"", b"h - - [T] \"GET /\\\"q\\\" HTTP/1.0\" 200 0 \"-\" \"-\""),
            ("uri", "/\"q\"x", b"h - - [T] \"GET /\"q\"x HTTP/1.0\" 200 0 \"-\" \"-\""),
            ("user-agent", "x\\\\", b"h - - [T] \"GET / HTTP/1.0\" 200 0 \"-\" \"x\\\\\""),
            ("user-agent", "\u{fffd}", b"h - - [T] \"GET / HTTP/1.0\" 200 0 \"-\" \"\xff\""),
            ("status", "-", b"h - - [T] \"GET / HTTP/1.0\" - 0 \"-\" \"-\""),
        ];
        for &(field, value, line) in table {
            let shown = String::from_utf8_lossy(line);
            let stamp = b"17/May/2015:10:05:03 +0000";
            let at = line.iter().position(|&byte| byte == b'T').expect("a place for the time");
            let line = [&line[..at], stamp, &line[at + 1..]].concat();
            assert_eq!(read(Format::Combined, field, &line).as_deref(), Ok(value), "{shown}");
        }
    }

    #[test]
    fn a_line_that_is_cut_off_or_garbled_says_why() {
        let table: &[(&str, &str)] = &[
            ("", "ip ident user"),
            ("192.0.2.1", "ip ident user"),
            ("h - -[17/May/2015:10:05:03 +0000] \"GET /\" 200 1", "ip ident user"),
            ("v:80 h - - [17/May/2015:10:05:03 +0000] \"GET /\" 200 1 \"-\" \"-\"", "before"),
            ("h - - 17/May/2015:10:05:03 \"GET /\" 200 1 \"-\" \"-\"", "'['"),
            ("h - - [17/May/2015:10:05:03 +0000 \"GET /\" 200 1 \"-\" \"-\"", "']'"),
            ("h - - [17/May/2015:10:05 +0000] \"GET /\" 200 1 \"-\" \"-\"", "the form 17/May"),
            ("h - - [17/May/1915:10:05:03 +0000] \"GET /\" 200 1 \"-\" \"-\"", "1970"),
            ("h - - [17/May/2015:10:05:03 +0000] GET / 200 1 \"-\" \"-\"", "request"),
            ("h - - [17/May/2015:10:05:03 +0000] \"GET / 200 1", "request"),
            ("h - - [17/May/2015:10:05:03 +0000] \"GET /\"", "status"),
            ("h - - [17/May/2015:10:05:03 +0000] \"GET /\" 200", "bytes"),
            ("h - - [17/May/2015:10:05:03 +0000] \"GET /\" ok 1 \"-\" \"-\"", "status"),
            ("h - - [17/May/2015:10:05:03 +0000] \"GET /\" 200 many \"-\" \"-\"", "bytes"),
            ("h - - [17/May/2015:10:05:03 +0000] \"GET /\" 200 1", "common format"),
            ("h - - [17/May/2015:10:05:03 +0000] \"GET /\" 200 1 \"-", "referer"),
            ("h - - [17/May/2015:10:05:03 +0000] \"GET /\" 200 1 \"-\"", "agent"),
            ("h - - [17/May/2015:10:05:03 +0000] \"GET /\" 200 1 \"-\" \"x\\\"", "agent"),
        ];
        for &(line, part) in table {
            let reason = read(Format::Combined, "ip", line.as_bytes()).expect_err(line);
            assert!(reason.contains(part), "{line}: {reason}");
        }
    }
}
