//! Real axum and hyper servers with the same handler, on ports chosen by the system.

use axum::Router;
use bytes::Bytes;
use http::header::CONTENT_LENGTH;
use http::{Method, Request, Response};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use hyper_util::service::TowerToHyperService;
use std::convert::Infallible;
use std::future::Future;
use std::net::{Ipv4Addr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tollgate_http::{Body, PeerAddr, RateLimitLayer};
use tower::{Layer, Service, ServiceExt, service_fn};

/// The error type of handlers and bodies.
pub(crate) type Failure = std::io::Error;

/// The body of any request or response.
pub(crate) type Sent = UnsyncBoxBody<Bytes, Failure>;

pub(crate) type Answer = Pin<Box<dyn Future<Output = Result<Response<Sent>, Failure>> + Send>>;

/// The service behind the layer.
pub(crate) type Handler = Arc<dyn Fn(Request<Sent>) -> Answer + Send + Sync>;

pub(crate) fn handler<F>(handle: impl Fn(Request<Sent>) -> F + Send + Sync + 'static) -> Handler
where
    F: Future<Output = Result<Response<Sent>, Failure>> + Send + 'static,
{
    Arc::new(move |request| Box::pin(handle(request)))
}

pub(crate) fn text(body: impl Into<Bytes>) -> Sent {
    Full::new(body.into()).map_err(|never: Infallible| match never {}).boxed_unsync()
}

/// Returns a handler that reads the request's body and responds with `hello`, unless the path
/// requests something else: `/status/500`, `/error` or `/panic`. The handler itself omits the body
/// of a response to `HEAD`, because HTTP/2 servers do not.
pub(crate) fn site() -> Handler {
    handler(|request| async move {
        let path = request.uri().path();
        assert_ne!(path, "/panic", "a handler that panics, as it was asked to");
        if path == "/error" {
            return Err(Failure::other("a handler that fails without a response"));
        }
        let is_head = request.method() == Method::HEAD;
        let mut response = Response::new(text(if is_head { "" } else { "hello" }));
        response.headers_mut().insert(CONTENT_LENGTH, 5.into());
        if let Some(status) = path.strip_prefix("/status/") {
            *response.status_mut() = status.parse().unwrap();
        }
        request.into_body().collect().await?;
        Ok(response)
    })
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Axum,
    Hyper,
}

pub(crate) const KINDS: [Kind; 2] = [Kind::Axum, Kind::Hyper];

/// A running server, which is stopped when this is dropped.
pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    task: JoinHandle<()>,
}

impl Drop for Server {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Server {
    pub(crate) async fn start(kind: Kind, layer: RateLimitLayer, handler: Handler) -> Self {
        Self::listen((Ipv4Addr::LOCALHOST, 0).into(), kind, layer, handler).await
    }

    pub(crate) async fn listen(at: SocketAddr, kind: Kind, layer: RateLimitLayer, handler: Handler) -> Self {
        let listener = TcpListener::bind(at).await.unwrap();
        let address = listener.local_addr().unwrap();
        let task = match kind {
            Kind::Axum => tokio::spawn(axum(listener, layer, handler)),
            Kind::Hyper => tokio::spawn(hyper(listener, layer, handler)),
        };
        Self { address, task }
    }

    /// Starts an axum server, with the address from `ConnectInfo`.
    pub(crate) async fn serving(router: Router) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        Self { address, task: tokio::spawn(serve(listener, router)) }
    }

    /// Wraps another kind of server that is already running.
    pub(crate) fn of(address: SocketAddr, task: JoinHandle<()>) -> Self {
        Self { address, task }
    }
}

/// Starts an axum server as an application would, with the layer on the router and the address from
/// `ConnectInfo`. If the handler returns an error, the response has status 500.
async fn axum(listener: TcpListener, layer: RateLimitLayer, handler: Handler) {
    let handle = move |request: Request<axum::body::Body>| {
        let response = handler(request.map(|body| body.map_err(Failure::other).boxed_unsync()));
        async move {
            response
                .await
                .map(|it| it.map(axum::body::Body::new))
                .map_err(|error| (http::StatusCode::INTERNAL_SERVER_ERROR, error.to_string()))
        }
    };
    serve(listener, Router::new().fallback(handle).layer(layer)).await;
}

async fn serve(listener: TcpListener, router: Router) {
    let service = router.into_make_service_with_connect_info::<SocketAddr>();
    axum::serve(listener, service).await.unwrap();
}

/// Starts a hyper server with one layer. Each connection uses a clone of the service.
async fn hyper(listener: TcpListener, layer: RateLimitLayer, handler: Handler) {
    let handler = service_fn(move |request: Request<Incoming>| {
        handler(request.map(|body| body.map_err(Failure::other).boxed_unsync()))
    });
    connections(listener, layer.layer(handler)).await;
}

async fn connections<S>(listener: TcpListener, service: S)
where
    S: Service<Request<Incoming>, Response = Response<Body<Sent>>, Error = Failure> + Clone + Send + 'static,
    S::Future: Send,
{
    while let Ok((stream, peer)) = listener.accept().await {
        let service = service.clone().map_request(move |mut request: Request<_>| {
            request.extensions_mut().insert(PeerAddr(peer));
            request
        });
        tokio::spawn(async move {
            let service = TowerToHyperService::new(service);
            // Errors are ignored, because clients hang up and handlers fail in these tests.
            let _ = auto::Builder::new(TokioExecutor::new())
                .serve_connection(TokioIo::new(stream), service)
                .await;
        });
    }
}
