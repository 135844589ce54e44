//! Servers behind the proxy. Each server has its own handler.

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body::Frame;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use std::convert::Infallible;
use std::fmt::Write;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::task::{Context, Poll};
use tokio::net::TcpListener;
use tokio::sync::mpsc::{Receiver, Sender, UnboundedReceiver, channel, unbounded_channel};
use tokio::task::AbortHandle;

pub(crate) type Body = UnsyncBoxBody<Bytes, Infallible>;

/// A body whose frames are sent by a task. It replaces the body in `http_body_util`, which may lose
/// its last frame if the frame is sent during a poll and the sender is dropped immediately
/// afterwards.
pub(crate) struct Sent(Receiver<Frame<Bytes>>);

impl Sent {
    /// Returns a body and its sender. The sender can send at most `ahead` frames before the first
    /// one is received.
    pub(crate) fn new(ahead: usize) -> (Sender<Frame<Bytes>>, Self) {
        let (sender, frames) = channel(ahead);
        (sender, Self(frames))
    }
}

impl http_body::Body for Sent {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        self.0.poll_recv(context).map(|frame| frame.map(Ok))
    }
}

/// A server for HTTP/1.1 and HTTP/2. It ends when this value is dropped.
pub(crate) struct Upstream {
    pub(crate) address: SocketAddr,
    requests: Arc<AtomicUsize>,
    accepting: AbortHandle,
}

impl Upstream {
    pub(crate) async fn start<F, R>(handler: F) -> Self
    where
        F: Fn(Request<Incoming>) -> R + Clone + Send + Sync + 'static,
        R: Future<Output = Response<Body>> + Send + 'static,
    {
        Self::on(([127, 0, 0, 1], 0).into(), handler).await
    }

    pub(crate) async fn on<F, R>(address: SocketAddr, handler: F) -> Self
    where
        F: Fn(Request<Incoming>) -> R + Clone + Send + Sync + 'static,
        R: Future<Output = Response<Body>> + Send + 'static,
    {
        let listener = TcpListener::bind(address).await.expect("a free port");
        let address = listener.local_addr().unwrap();
        let requests = Arc::new(AtomicUsize::new(0));
        let counter = Arc::clone(&requests);
        let accepting = tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                stream.set_nodelay(true).unwrap();
                let (handler, counter) = (handler.clone(), Arc::clone(&counter));
                let service = service_fn(move |request| {
                    counter.fetch_add(1, SeqCst);
                    let response = handler(request);
                    async { Ok::<_, Infallible>(response.await) }
                });
                tokio::spawn(async move {
                    let server = auto::Builder::new(TokioExecutor::new());
                    drop(server.serve_connection_with_upgrades(TokioIo::new(stream), service).await);
                });
            }
        });
        Self { address, requests, accepting: accepting.abort_handle() }
    }

    /// Starts a server that answers with bodies without an end. The channel delivers the sender of
    /// each body.
    pub(crate) async fn handing_over() -> (Self, UnboundedReceiver<Sender<Frame<Bytes>>>) {
        let (hand_over, handed) = unbounded_channel();
        let upstream = Self::start(move |_| {
            let (sender, body) = Sent::new(1);
            hand_over.send(sender).unwrap();
            std::future::ready(Response::new(body.boxed_unsync()))
        })
        .await;
        (upstream, handed)
    }

    /// Starts a server that answers with the request that it received.
    pub(crate) async fn echo() -> Self {
        Self::start(echo).await
    }

    /// Returns the number of requests that the server has received.
    pub(crate) fn requests(&self) -> usize {
        self.requests.load(SeqCst)
    }
}

impl Drop for Upstream {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

/// Returns an address that no server listens on, and that no other test receives.
pub(crate) fn nobody() -> SocketAddr {
    ([127, 0, 0, 1], tollgate_testing::store::ports::free()).into()
}

pub(crate) fn full(text: impl Into<Bytes>) -> Body {
    Full::new(text.into()).boxed_unsync()
}

pub(crate) async fn hello(_: Request<Incoming>) -> Response<Body> {
    Response::new(full("hello"))
}

/// Answers with the status in the last segment of the path, as in `/login/401`.
pub(crate) async fn as_asked(request: Request<Incoming>) -> Response<Body> {
    let asked = request.uri().path().rsplit('/').next().unwrap_or_default();
    status(asked.parse().unwrap())
}

/// Answers with `METHOD TARGET VERSION`, followed by one line per field.
pub(crate) async fn echo(request: Request<Incoming>) -> Response<Body> {
    let mut text = format!("{} {} {:?}\n", request.method(), request.uri(), request.version());
    for (name, value) in request.headers() {
        writeln!(text, "{name}: {}", value.to_str().unwrap()).unwrap();
    }
    let body = request.into_body().collect().await.unwrap().to_bytes();
    write!(text, "\n{}", String::from_utf8_lossy(&body)).unwrap();
    Response::new(full(text))
}

pub(crate) fn status(status: StatusCode) -> Response<Body> {
    let mut response = Response::new(full(""));
    *response.status_mut() = status;
    response
}
