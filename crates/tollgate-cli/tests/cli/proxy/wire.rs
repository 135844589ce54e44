//! Sends requests as raw bytes, including those that no client library would send.

use super::running::within;
use serde_json::Value;
use std::fs;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// Returns the path of a file that does not exist yet.
pub(super) fn scratch(test: &str) -> String {
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(test);
    let _ = fs::remove_file(&path);
    path.into_os_string().into_string().unwrap()
}

/// A response: its status, its fields as received, and its body.
#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: String,
}

impl Reply {
    pub(crate) fn parse(bytes: &[u8]) -> Self {
        let text = String::from_utf8_lossy(bytes);
        let (head, body) = text.split_once("\r\n\r\n").unwrap_or_else(|| panic!("no head: {text:?}"));
        let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).expect("a status");
        Self { status, head: head.to_owned(), body: body.to_owned() }
    }

    /// Returns all values of a field, whose name is case-insensitive.
    pub(crate) fn all(&self, name: &str) -> Vec<&str> {
        let fields = self.head.lines().filter_map(|line| line.split_once(": "));
        fields.filter(|(found, _)| found.eq_ignore_ascii_case(name)).map(|(_, value)| value).collect()
    }

    pub(crate) fn field(&self, name: &str) -> Option<&str> {
        self.all(name).first().copied()
    }

    /// Returns the values of a field that an echoing upstream received.
    pub(crate) fn echoed(&self, name: &str) -> Vec<&str> {
        let fields = self.body.lines().skip(1).filter_map(|line| line.split_once(": "));
        fields.filter(|(found, _)| *found == name).map(|(_, value)| value).collect()
    }

    #[track_caller]
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {}", self.body))
    }
}

/// Sends bytes, and returns the connection.
pub(crate) async fn asking(to: SocketAddr, request: impl AsRef<[u8]>) -> TcpStream {
    let mut stream = TcpStream::connect(to).await.expect("somebody listens");
    stream.write_all(request.as_ref()).await.unwrap();
    stream
}

/// Sends bytes, and reads until the connection is closed.
pub(crate) async fn send(to: SocketAddr, request: &str) -> Reply {
    let mut stream = asking(to, request).await;
    let mut bytes = Vec::new();
    within(stream.read_to_end(&mut bytes)).await.unwrap();
    Reply::parse(&bytes)
}

/// Sends a GET request for a path. `fields` contains additional fields, as lines that end with
/// CRLF.
pub(crate) async fn get(to: SocketAddr, path: &str, fields: &str) -> Reply {
    send(to, &format!("GET {path} HTTP/1.1\r\nHost: example.org\r\nConnection: close\r\n{fields}\r\n")).await
}

/// Sends a gRPC request without a message.
pub(crate) async fn grpc(to: SocketAddr) -> Reply {
    let fields = "Connection: close\r\nContent-Type: application/grpc\r\nContent-Length: 0\r\n";
    send(to, &format!("POST / HTTP/1.1\r\nHost: example.org\r\n{fields}\r\n")).await
}

/// Reads from a stream until the text ends with `end`.
pub(crate) async fn read_until(stream: &mut TcpStream, end: &str) -> String {
    let mut bytes = Vec::new();
    while !bytes.ends_with(end.as_bytes()) {
        bytes.push(
            within(stream.read_u8())
                .await
                .unwrap_or_else(|error| panic!("{error} after {:?}", String::from_utf8_lossy(&bytes))),
        );
    }
    String::from_utf8(bytes).unwrap()
}

/// Returns the value of a metric. `name` contains the metric's name and labels, spelled as in the
/// metrics text.
pub(crate) async fn metric(metrics: SocketAddr, name: &str) -> f64 {
    let reply = get(metrics, "/metrics", "").await;
    let line = reply.body.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    let value = line.unwrap_or_else(|| panic!("no {name} in {}", reply.body));
    value.parse().unwrap()
}

/// Waits until a metric has a value.
#[track_caller]
pub(crate) fn metric_is(metrics: SocketAddr, name: &str, value: f64) -> impl Future<Output = ()> {
    within(async move {
        while metric(metrics, name).await != value {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
}
