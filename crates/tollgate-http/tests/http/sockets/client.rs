//! A real client with a single HTTP/1.1 or HTTP/2 connection, optionally from a chosen address.

use crate::sockets::run::run;
use crate::sockets::server::{Handler, KINDS, Kind, Sent, Server, text};
use bytes::Bytes;
use http::header::{HOST, RETRY_AFTER};
use http::{HeaderMap, Request, Response, StatusCode, Uri};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use std::net::SocketAddr;
use tokio::net::TcpSocket;
use tokio::task::JoinHandle;
use tollgate_http::RateLimitLayer;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Version {
    /// HTTP/1.1
    One,
    /// HTTP/2 with prior knowledge.
    Two,
}

pub(crate) const VERSIONS: [Version; 2] = [Version::One, Version::Two];

/// Starts a server, and connects to it.
pub(crate) async fn connected(
    kind: Kind,
    layer: RateLimitLayer,
    handler: Handler,
    version: Version,
) -> (Server, Client) {
    let server = Server::start(kind, layer, handler).await;
    let client = Client::connect(&server, version).await;
    (server, client)
}

/// Runs a test with each combination of server and HTTP version in turn.
pub(crate) fn on_all(test: impl AsyncFn(Kind, Version)) {
    run(async {
        for (kind, version) in KINDS.into_iter().flat_map(|kind| VERSIONS.map(|version| (kind, version))) {
            test(kind, version).await;
        }
    });
}

enum Sender {
    One(http1::SendRequest<Sent>),
    Two(http2::SendRequest<Sent>),
}

/// A client's connection. If it is dropped, the client hangs up, even during a request.
pub(crate) struct Client {
    server: SocketAddr,
    sender: Sender,
    driver: JoinHandle<()>,
}

impl Drop for Client {
    fn drop(&mut self) {
        self.driver.abort();
    }
}

impl Client {
    pub(crate) async fn connect(server: &Server, version: Version) -> Self {
        Self::to(server.address, None, version).await
    }

    /// Connects from this local address. Every address in 127.0.0.0/8 is local.
    pub(crate) async fn connect_from(from: &str, server: &Server, version: Version) -> Self {
        Self::to(server.address, Some(SocketAddr::new(from.parse().unwrap(), 0)), version).await
    }

    pub(crate) async fn to(server: SocketAddr, from: Option<SocketAddr>, version: Version) -> Self {
        let socket = if server.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }.unwrap();
        if let Some(from) = from {
            socket.bind(from).unwrap();
        }
        let stream = TokioIo::new(socket.connect(server).await.unwrap());
        let (sender, driver) = match version {
            Version::One => {
                let (sender, connection) = http1::handshake(stream).await.unwrap();
                (Sender::One(sender), tokio::spawn(async move { drop(connection.await) }))
            }
            Version::Two => {
                let (sender, connection) = http2::handshake(TokioExecutor::new(), stream).await.unwrap();
                (Sender::Two(sender), tokio::spawn(async move { drop(connection.await) }))
            }
        };
        Self { server, sender, driver }
    }

    pub(crate) async fn get(&mut self, path: &str) -> Reply {
        self.ask(Request::get(path)).await
    }

    /// Sends a request without a body.
    pub(crate) async fn ask(&mut self, request: http::request::Builder) -> Reply {
        self.send(request.body(text(Bytes::new())).unwrap()).await.unwrap()
    }

    /// Sends a request and reads the whole response.
    pub(crate) async fn send(&mut self, request: Request<Sent>) -> hyper::Result<Reply> {
        Reply::read(self.start(request).await?).await
    }

    /// Sends a request and returns the response without reading its body.
    pub(crate) async fn start(&mut self, mut request: Request<Sent>) -> hyper::Result<Response<Incoming>> {
        let authority = self.server.to_string();
        let target = request.uri().path_and_query().unwrap().clone();
        match &mut self.sender {
            Sender::One(sender) => {
                request.headers_mut().insert(HOST, authority.parse().unwrap());
                sender.ready().await?;
                sender.send_request(request).await
            }
            Sender::Two(sender) => {
                let whole = Uri::builder().scheme("http").authority(authority).path_and_query(target);
                *request.uri_mut() = whole.build().unwrap();
                sender.ready().await?;
                sender.send_request(request).await
            }
        }
    }
}

/// A response with its whole body.
#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
    pub(crate) trailers: Option<HeaderMap>,
}

impl Reply {
    async fn read(response: Response<Incoming>) -> hyper::Result<Self> {
        let (head, body) = response.into_parts();
        let body = body.collect().await?;
        let trailers = body.trailers().cloned();
        Ok(Self { status: head.status, headers: head.headers, body: body.to_bytes(), trailers })
    }

    pub(crate) fn retry_after(&self) -> Option<u64> {
        self.number(RETRY_AFTER.as_str())
    }

    /// Returns a header that occurs once and is a number.
    pub(crate) fn number(&self, name: &str) -> Option<u64> {
        self.text(name).map(|text| text.parse().unwrap())
    }

    /// Returns a header that occurs once.
    pub(crate) fn text(&self, name: &str) -> Option<&str> {
        let mut values = self.headers.get_all(name).iter();
        let value = values.next()?;
        assert!(values.next().is_none(), "{name} is there twice");
        Some(value.to_str().unwrap())
    }
}
