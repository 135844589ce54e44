//! Defines [`LoggedRequest`], a request in the access log, in Combined Log Format or as JSON.
//!
//! While a request is in progress, the limits record their answers in its [`Noted`]. A caller's key
//! may be a secret, so the log contains only a hash of the key. Without the [`LogKey`], nobody can
//! reverse the hash or test guesses against it.

use std::fmt;
use std::io::Write;
use std::net::IpAddr;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use http::header::{HeaderMap, HeaderName, REFERER, USER_AGENT};
use http::{Method, StatusCode, Uri, Version};
use jiff::Timestamp;
use serde::Serialize;
use siphasher::sip128::SipHasher24;
use tollgate_http::{DecisionEvent, Key, RequestHead};

use crate::bounded_file;
use crate::failure::Failure;
use crate::printable::printable_path;

/// The status that nginx logs when a client disconnects before receiving a response.
const CLIENT_LEFT: u16 = 499;

/// The maximum size of the file of a [`LogKey`], in bytes.
const MOST_KEY: u64 = 4_096;

/// The format of the access log.
#[derive(Clone, Copy)]
pub(crate) enum LogFormat {
    Combined,
    Json(LogKey),
}

/// The secret for hashing callers' keys. The hash function is SipHash-2-4 with a 128-bit result.
#[derive(Clone, Copy)]
pub(crate) struct LogKey([u8; 16]);

impl LogKey {
    /// Returns a random key that no other process uses.
    ///
    /// # Errors
    ///
    /// Returns an error if the system cannot provide random numbers.
    pub(crate) fn random() -> Result<Self, Failure> {
        let mut key = [0; 16];
        getrandom::fill(&mut key).map_err(|error| {
            Failure::refused(format!("no random numbers for the access log ({error}); give a --log-key FILE"))
        })?;
        Ok(Self(key))
    }

    /// Reads a key from a file.
    ///
    /// # Errors
    ///
    /// Returns an error if the file cannot be read, or if it contains anything but 32 hexadecimal
    /// digits.
    pub(crate) fn read(path: &Path) -> Result<Self, Failure> {
        let name = printable_path(path);
        let text = bounded_file::read(
            path,
            MOST_KEY,
            format_args!("--log-key '{name}'"),
            format_args!("the file of --log-key '{name}'"),
        )?;
        let digits = String::from_utf8_lossy(&text);
        let digits = digits.trim();
        // `from_str_radix` would also accept a sign.
        let is_hex = digits.len() == 32 && digits.bytes().all(|byte| byte.is_ascii_hexdigit());
        let key = u128::from_str_radix(digits, 16).ok().filter(|_| is_hex);
        key.map(|key| Self(key.to_be_bytes())).ok_or_else(|| {
            Failure::refused(format!(
                "--log-key '{name}': expected 32 hexadecimal digits and nothing else; `openssl rand -hex 16` \
                 writes them"
            ))
        })
    }

    /// Returns the hash of a caller's key for a limit, as 32 hexadecimal digits.
    fn hash(&self, key: &Key) -> String {
        let mut bytes = Vec::new();
        key.write_to(&mut bytes);
        let hash = SipHasher24::new_with_key(&self.0).hash(&bytes).as_bytes();
        format!("{:032x}", u128::from_be_bytes(hash))
    }
}

impl fmt::Debug for LogKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The output must not contain the key.
        f.write_str("LogKey")
    }
}

/// The limits' answers to a request. This value is an extension of the request.
pub(crate) struct Noted {
    format: LogFormat,
    said: Mutex<Said>,
}

#[derive(Default)]
struct Said {
    refused_by: Option<String>,
    limits: Vec<LimitSaid>,
}

/// A limit's answer, as JSON.
#[derive(Serialize)]
struct LimitSaid {
    limit: String,
    class: Option<String>,
    key: Option<String>,
    outcome: Option<&'static str>,
}

impl Noted {
    pub(crate) fn new(format: LogFormat) -> Arc<Self> {
        Arc::new(Self { format, said: Mutex::default() })
    }

    /// Records a limit's answer to a request, unless the request is not logged.
    pub(crate) fn note(event: &DecisionEvent<'_>) {
        let Some(noted) = event.request.extensions().get::<Arc<Self>>() else { return };
        let mut said = noted.said.lock().unwrap_or_else(PoisonError::into_inner);
        if event.is_binding {
            said.refused_by = Some(event.limit_name.to_owned());
        }
        if let LogFormat::Json(log_key) = noted.format {
            let key = |parts: &[_]| log_key.hash(&Key::new(event.limit_name, parts.iter().cloned()));
            said.limits.push(LimitSaid {
                limit: event.limit_name.to_owned(),
                class: event.class.map(str::to_owned),
                key: event.key.map(key),
                outcome: event.outcome(),
            });
        }
    }
}

/// The parts of a request that appear in the log.
pub(crate) struct LoggedRequest {
    at: Timestamp,
    /// The client's address, or '-' if it is unknown.
    client: String,
    method: Method,
    uri: Uri,
    version: Version,
    /// The host, or `None` if the request has no host or the format omits it.
    host: Option<String>,
    referer: Vec<u8>,
    agent: Vec<u8>,
    noted: Arc<Noted>,
}

/// A JSON line of the log.
#[derive(Default, Serialize)]
struct JsonLine<'l> {
    time_ns: i64,
    duration_ns: u64,
    ip: Option<&'l str>,
    method: Option<&'l str>,
    host: Option<&'l str>,
    path: Option<&'l str>,
    status: u16,
    bytes: u64,
    refused_by: Option<&'l str>,
    limits: &'l [LimitSaid],
}

impl JsonLine<'_> {
    fn written(&self) -> Vec<u8> {
        // Serializing strings and numbers never fails.
        let mut line = serde_json::to_vec(self).unwrap_or_default();
        line.push(b'\n');
        line
    }
}

/// Converts a time to nanoseconds since 1970. The result fits into 64 bits until 2262.
fn nanos(at: Timestamp) -> i64 {
    i64::try_from(at.as_nanosecond()).unwrap_or(i64::MAX)
}

/// Returns the log line for a request that could not be read. Only the sender of such a request is
/// known.
pub(crate) fn unread_line(format: LogFormat, client: IpAddr, status: StatusCode) -> Vec<u8> {
    let (at, client, status) = (Timestamp::now(), client.to_canonical(), status.as_u16());
    match format {
        LogFormat::Combined => {
            let at = at.strftime("%d/%b/%Y:%H:%M:%S +0000");
            format!("{client} - - [{at}] \"-\" {status} - \"-\" \"-\"\n").into_bytes()
        }
        LogFormat::Json(_) => {
            let ip = client.to_string();
            JsonLine { time_ns: nanos(at), ip: Some(&ip), status, ..JsonLine::default() }.written()
        }
    }
}

impl LoggedRequest {
    /// Copies the parts of a request that are needed after the response has ended. Also adds a
    /// [`Noted`] to the request, in which the limits record their answers. The `client` is '-' if
    /// the client is unknown.
    pub(crate) fn new<B>(request: &mut http::Request<B>, client: String, format: LogFormat) -> Self {
        let noted = Noted::new(format);
        request.extensions_mut().insert(Arc::clone(&noted));
        let host = match format {
            LogFormat::Combined => None,
            LogFormat::Json(_) => RequestHead::of(request).header("host"),
        };
        Self {
            at: Timestamp::now(),
            client,
            method: request.method().clone(),
            uri: request.uri().clone(),
            version: request.version(),
            host: host.map(|host| String::from_utf8_lossy(&host).into_owned()),
            referer: first(request.headers(), &REFERER),
            agent: first(request.headers(), &USER_AGENT),
            noted,
        }
    }

    /// Returns the log line of a request. `status` is `None` if the request received no response.
    pub(crate) fn line(&self, status: Option<StatusCode>, bytes: u64, took: Duration) -> Vec<u8> {
        let status = status.map_or(CLIENT_LEFT, |status| status.as_u16());
        let said = self.noted.said.lock().unwrap_or_else(PoisonError::into_inner);
        match self.noted.format {
            LogFormat::Combined => self.combined(status, bytes, said.refused_by.as_deref()),
            LogFormat::Json(_) => JsonLine {
                time_ns: nanos(self.at),
                duration_ns: u64::try_from(took.as_nanos()).unwrap_or(u64::MAX),
                ip: Some(&*self.client).filter(|client| *client != "-"),
                method: Some(self.method.as_str()),
                host: self.host.as_deref(),
                path: Some(self.uri.path()),
                status,
                bytes,
                refused_by: said.refused_by.as_deref(),
                limits: &said.limits,
            }
            .written(),
        }
    }

    /// Returns the line in Combined Log Format. If a limit refused the request, the line ends with
    /// an additional column that contains the limit's name.
    fn combined(&self, status: u16, bytes: u64, refused_by: Option<&str>) -> Vec<u8> {
        let mut line = Vec::with_capacity(256);
        let at = self.at.strftime("%d/%b/%Y:%H:%M:%S +0000");
        let path = self.uri.path_and_query().map_or_else(|| self.uri.to_string(), ToString::to_string);
        // The HTTP/1.1 target `http://host?query` lacks a slash. HTTP/2 includes the slash.
        let path = if path.starts_with('?') { format!("/{path}") } else { path };
        // Writing to memory cannot fail.
        let _ = write!(line, "{} - - [{at}] \"{} ", self.client, self.method);
        escape(path.as_bytes(), &mut line);
        let _ = write!(line, " {:?}\" {status} ", self.version);
        let _ = if bytes == 0 { write!(line, "-") } else { write!(line, "{bytes}") };
        for (before, field) in [(" \"", &*self.referer), ("\" \"", &*self.agent)] {
            line.extend_from_slice(before.as_bytes());
            escape(field, &mut line);
        }
        if let Some(limit) = refused_by {
            line.extend_from_slice(b"\" limit=\"");
            escape(limit.as_bytes(), &mut line);
        }
        line.extend_from_slice(b"\"\n");
        line
    }
}

fn first(headers: &HeaderMap, name: &HeaderName) -> Vec<u8> {
    headers.get(name).map_or_else(|| b"-".to_vec(), |value| value.as_bytes().to_vec())
}

/// Escapes text as Apache does: escapes every byte that would end a field or a line, or control a
/// terminal.
fn escape(text: &[u8], line: &mut Vec<u8>) {
    for &byte in text {
        match byte {
            b'"' | b'\\' => line.extend([b'\\', byte]),
            b' '..=b'~' => line.push(byte),
            _ => {
                let _ = write!(line, "\\x{byte:02x}");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

    fn logged(request: http::Request<()>, format: LogFormat) -> LoggedRequest {
        let mut request = request;
        let mut logged = LoggedRequest::new(&mut request, "192.0.2.1".to_owned(), format);
        logged.at = Timestamp::from_nanosecond(1_431_857_103_000_000_007).expect("a time");
        logged
    }

    #[test]
    fn a_line_is_combined_log_format_and_nothing_breaks_out_of_it() {
        let request = http::Request::post("/a?b=c")
            .header("referer", "https://example.org/\"x")
            .header("user-agent", &b"\\evil\xff\t"[..])
            .body(())
            .expect("a request");
        let asked = logged(request, LogFormat::Combined);
        let line = |status, bytes| {
            String::from_utf8_lossy(&asked.line(status, bytes, Duration::from_millis(2))).into_owned()
        };
        let start = "192.0.2.1 - - [17/May/2015:10:05:03 +0000] \"POST /a?b=c HTTP/1.1\" ";
        let end = "\"https://example.org/\\\"x\" \"\\\\evil\\xff\\x09\"";
        assert_eq!(line(Some(StatusCode::OK), 123), format!("{start}200 123 {end}\n"));
        assert!(line(None, 0).contains("\" 499 - \""));
        asked.noted.said.lock().expect("no thread has panicked").refused_by = Some("a\"b".to_owned());
        let refused = line(Some(StatusCode::TOO_MANY_REQUESTS), 9);
        assert_eq!(refused, format!("{start}429 9 {end} limit=\"a\\\"b\"\n"));
    }

    #[test]
    fn a_line_has_the_same_target_whichever_version_asks() {
        for (target, line) in [
            ("/?b=c", "GET /?b=c HTTP"),
            ("http://example.org?b=c", "GET /?b=c HTTP"),
            ("http://example.org", "GET / HTTP"),
            ("http://example.org/a", "GET /a HTTP"),
        ] {
            let request = http::Request::get(target).body(()).expect("a request");
            let logged = logged(request, LogFormat::Combined).line(None, 0, Duration::ZERO);
            assert!(String::from_utf8_lossy(&logged).contains(line), "{target}");
        }
    }

    #[test]
    fn a_line_of_json_has_nanoseconds_and_no_query() {
        let format = LogFormat::Json(LogKey([7; 16]));
        let request = http::Request::get("http://Example.org:80/a?secret=1").body(()).expect("a request");
        let line = logged(request, format).line(Some(StatusCode::OK), 5, Duration::from_micros(3));
        assert_eq!(
            String::from_utf8_lossy(&line),
            "{\"time_ns\":1431857103000000007,\"duration_ns\":3000,\"ip\":\"192.0.2.1\",\"method\":\"GET\",\
             \"host\":\"example.org\",\"path\":\"/a\",\"status\":200,\"bytes\":5,\"refused_by\":null,\"limits\":[]}\n"
        );
        let unread = unread_line(format, Ipv4Addr::LOCALHOST.into(), StatusCode::BAD_REQUEST);
        let unread: serde_json::Value = serde_json::from_slice(&unread).expect("JSON");
        assert_eq!((&unread["ip"], &unread["path"]), (&"127.0.0.1".into(), &serde_json::Value::Null));
    }

    #[test]
    fn the_hash_of_a_key_depends_on_the_log_key_the_limit_and_each_part() {
        let (one, other) = (LogKey([1; 16]), LogKey([2; 16]));
        let key = Key::new("a", ["secret"]);
        let hash = one.hash(&key);
        assert_eq!((hash.len(), &one.hash(&key)), (32, &hash));
        for hashed in
            [other.hash(&key), one.hash(&Key::new("b", ["secret"])), one.hash(&Key::new("a", ["secret", ""]))]
        {
            assert_ne!(hashed, hash);
        }
        assert_eq!(format!("{one:?}"), "LogKey");
    }
}
