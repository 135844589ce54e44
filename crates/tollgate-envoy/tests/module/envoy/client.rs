//! Clients that connect to Envoy, and the upstream behind Envoy.

use std::convert::Infallible;
use std::future::pending;
use std::io::{self, Read, Write};
use std::net::{self, Ipv4Addr};
use std::time::Duration;

use http::{HeaderMap, Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::{http1, http2};
use hyper::server;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::{TcpListener, TcpStream};

use crate::host::{Answer, Asked};

/// Runs a test on two threads.
pub(super) fn run(test: impl Future<Output = ()>) {
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    runtime.worker_threads(2).enable_all().build().unwrap().block_on(test);
}

/// Starts an upstream and returns its port. The upstream responds with the status in the header
/// `x-upstream`, and with the body of the request. It never responds to a request with the header
/// `x-hold`.
pub(super) async fn upstream() -> u16 {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            let serve =
                server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service_fn(serve));
            tokio::spawn(serve);
        }
    });
    port
}

async fn serve(request: Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
    let status =
        request.headers().get("x-upstream").and_then(|it| StatusCode::from_bytes(it.as_bytes()).ok());
    if request.headers().contains_key("x-hold") {
        pending::<()>().await;
    }
    let body = request.into_body().collect().await.map(http_body_util::Collected::to_bytes);
    let mut response = Response::new(Full::new(body.unwrap_or_default()));
    *response.status_mut() = status.unwrap_or(StatusCode::OK);
    Ok(response)
}

/// A connection to Envoy with HTTP/1.1 that blocks its thread. In a test build, it costs a fraction
/// of what hyper's client costs.
pub(super) struct BlockingClient {
    stream: net::TcpStream,
    unread: Vec<u8>,
}

impl BlockingClient {
    pub(super) fn connect(port: u16) -> Self {
        let stream = net::TcpStream::connect((Ipv4Addr::LOCALHOST, port)).unwrap();
        stream.set_nodelay(true).unwrap();
        // Only a request that hangs takes this long.
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        Self { stream, unread: Vec::new() }
    }

    /// Sends a request with these header lines, and returns the status of the response.
    ///
    /// # Errors
    ///
    /// Returns an error if the connection ends or no response arrives.
    pub(super) fn send(&mut self, headers: &str) -> io::Result<u16> {
        let request = format!("GET / HTTP/1.1\r\nhost: example.com\r\n{headers}\r\n");
        self.stream.write_all(request.as_bytes())?;
        self.unread.clear();
        let mut read = [0; 1 << 12];
        while !is_whole(&self.unread) {
            match self.stream.read(&mut read)? {
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                count => self.unread.extend_from_slice(&read[..count]),
            }
        }
        let status = self.unread.get(9..12).and_then(|status| str::from_utf8(status).ok()?.parse().ok());
        status.ok_or_else(|| io::ErrorKind::InvalidData.into())
    }
}

/// Returns whether a response is complete.
fn is_whole(bytes: &[u8]) -> bool {
    let Some(head) = bytes.windows(4).position(|it| it == b"\r\n\r\n") else { return false };
    let text = str::from_utf8(&bytes[..head]).unwrap();
    let length = text.lines().find_map(|line| line.strip_prefix("content-length: ")).unwrap();
    bytes.len() >= head + 4 + length.parse::<usize>().unwrap()
}

/// A connection to Envoy.
pub(super) enum Client {
    One(http1::SendRequest<Full<Bytes>>),
    Two(http2::SendRequest<Full<Bytes>>),
}

impl Client {
    /// Connects with HTTP/1.1 or HTTP/2.
    pub(super) async fn connect(port: u16, is_two: bool) -> Self {
        let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await.unwrap();
        stream.set_nodelay(true).unwrap();
        let stream = TokioIo::new(stream);
        if is_two {
            let mut two = http2::Builder::new(TokioExecutor::new());
            two.initial_stream_window_size(1 << 20).initial_connection_window_size(1 << 20);
            let (sender, connection) = two.handshake(stream).await.unwrap();
            tokio::spawn(connection);
            Self::Two(sender)
        } else {
            let (sender, connection) = http1::handshake(stream).await.unwrap();
            tokio::spawn(connection);
            Self::One(sender)
        }
    }

    /// Sends a request and returns the whole response.
    ///
    /// # Errors
    ///
    /// Returns an error if the connection or the stream has ended.
    pub(super) async fn send(&mut self, request: Request<Full<Bytes>>) -> hyper::Result<Response<Bytes>> {
        let response = match self {
            Self::One(sender) => {
                sender.ready().await?;
                sender.send_request(request).await?
            }
            Self::Two(sender) => {
                sender.ready().await?;
                sender.send_request(request).await?
            }
        };
        let (head, body) = response.into_parts();
        Ok(Response::from_parts(head, body.collect().await?.to_bytes()))
    }

    /// Sends a case's request.
    pub(super) async fn ask(&mut self, asked: &Asked, port: u16) -> Answer {
        let path = std::str::from_utf8(&asked.path).unwrap();
        // In HTTP/2, the target must include a host.
        let uri = match self {
            Self::One(_) => path.to_owned(),
            Self::Two(_) => format!("http://example.com{path}"),
        };
        let mut request = Request::new(Full::new(Bytes::new()));
        *request.uri_mut() = uri.parse().unwrap_or_else(|error| panic!("{uri} at {port}: {error}"));
        *request.method_mut() = asked.method.parse().unwrap();
        let headers = request.headers_mut();
        if let Self::One(_) = self {
            headers.insert("host", "example.com".parse().unwrap());
        }
        let client: std::net::SocketAddr = asked.client.parse().unwrap();
        headers.insert("x-forwarded-for", client.ip().to_string().parse().unwrap());
        headers.insert("x-upstream", asked.upstream.into());
        for (name, value) in &asked.headers {
            headers.append(*name, value.as_slice().try_into().unwrap());
        }
        let response = self.send(request).await.unwrap();
        let (head, body) = response.into_parts();
        Answer { status: head.status.as_u16(), headers: listed(&head.headers), body: body.to_vec() }
    }
}

fn listed(headers: &HeaderMap) -> Vec<(String, Vec<u8>)> {
    headers.iter().map(|(name, value)| (name.to_string(), value.as_bytes().to_vec())).collect()
}

/// Returns a request that Envoy attributes to this address.
pub(super) fn from(client: &str) -> Request<Full<Bytes>> {
    let request = Request::get("http://example.com/").header("host", "example.com");
    request.header("x-forwarded-for", client).body(Full::default()).unwrap()
}
