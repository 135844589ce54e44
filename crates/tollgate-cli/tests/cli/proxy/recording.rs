//! A server behind the proxy that does not parse requests. It records the bytes that it receives,
//! and responds with given bytes.

use super::running::within;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::AbortHandle;

/// The response for tests that ignore the response.
pub(crate) const OK: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok";

/// The fields that the proxy adds. They are the same in every request.
const OWN: [&str; 4] = ["via:", "x-forwarded-for: 127.0.0.1", "x-forwarded-host:", "x-forwarded-proto: http"];

/// A recording server. The server ends when this value is dropped.
pub(crate) struct Recorder {
    pub(crate) address: SocketAddr,
    requests: Arc<Mutex<Vec<String>>>,
    /// The number of connections that are being recorded.
    open: Arc<AtomicUsize>,
    accepting: AbortHandle,
}

impl Recorder {
    pub(crate) async fn start(answer: &'static [u8]) -> Self {
        Self::that_answers(answer, false).await
    }

    /// Starts a server that keeps its connections open after the response.
    pub(crate) async fn silent(answer: &'static [u8]) -> Self {
        Self::that_answers(answer, true).await
    }

    async fn that_answers(answer: &'static [u8], stays_open: bool) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let requests = Arc::new(Mutex::new(Vec::new()));
        let open = Arc::new(AtomicUsize::new(0));
        let (recorded, counted) = (Arc::clone(&requests), Arc::clone(&open));
        let accepting = tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                counted.fetch_add(1, SeqCst);
                let (recorded, counted) = (Arc::clone(&recorded), Arc::clone(&counted));
                tokio::spawn(async move {
                    record(stream, answer, stays_open, recorded).await;
                    counted.fetch_sub(1, SeqCst);
                });
            }
        });
        Self { address, requests, open, accepting: accepting.abort_handle() }
    }

    /// Waits until all connections have ended, and returns the requests received since the last
    /// call. Each request consists of its first line, its sorted fields, an empty line, and its
    /// body. Fields that the proxy adds are omitted.
    pub(crate) async fn take(&self) -> Vec<String> {
        let ended = async {
            // An earlier connection may still wait to be accepted.
            tokio::time::sleep(Duration::from_millis(1)).await;
            while self.open.load(SeqCst) > 0 {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        within(ended).await;
        std::mem::take(&mut self.requests.lock().unwrap())
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

/// Records a request up to its end, or up to the end of the connection. Then records all bytes that
/// follow.
async fn record(
    mut stream: TcpStream,
    answer: &'static [u8],
    stays_open: bool,
    requests: Arc<Mutex<Vec<String>>>,
) {
    let mut bytes = Vec::new();
    while !is_complete(&bytes) {
        if !matches!(stream.read_buf(&mut bytes).await, Ok(1..)) {
            break;
        }
    }
    if bytes.is_empty() {
        return;
    }
    requests.lock().unwrap().push(described(&bytes));
    let _ = stream.write_all(answer).await;
    if !stays_open {
        let _ = stream.shutdown().await;
    }
    let mut more = Vec::new();
    let _ = stream.read_to_end(&mut more).await;
    if !more.is_empty() {
        requests.lock().unwrap().push(format!("after the request: {}", String::from_utf8_lossy(&more)));
    }
}

fn is_complete(bytes: &[u8]) -> bool {
    let text = String::from_utf8_lossy(bytes);
    let Some((head, body)) = text.split_once("\r\n\r\n") else { return false };
    let field = |name: &str| head.lines().find_map(|line| line.strip_prefix(name));
    if field("transfer-encoding: ").is_some() {
        return body.starts_with("0\r\n") && body.ends_with("\r\n\r\n")
            || body.contains("\r\n0\r\n") && body.ends_with("\r\n\r\n");
    }
    let length = field("content-length: ").map_or(0, |length| length.parse().unwrap());
    body.len() >= length
}

fn described(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    let (head, body) = text.split_once("\r\n\r\n").unwrap_or((&text, "(no end of the head)"));
    let mut lines: Vec<&str> = head.split("\r\n").collect();
    let first = lines.remove(0);
    lines.retain(|line| !OWN.iter().any(|own| line.starts_with(own)));
    lines.sort_unstable();
    lines.insert(0, first);
    format!("{}\n\n{body}", lines.join("\n"))
}
