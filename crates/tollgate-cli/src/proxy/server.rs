//! The server side: accepts connections from clients, serves them, and ends them gracefully.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use http::{Request, Response};
use http_body_util::Either;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use hyper_util::server::graceful::{GracefulShutdown, Watcher};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tollgate_http::SharedRateLimit;
use tower_service::Service;

use crate::proxy::observe::exchange::{Exchange, Observer, Watched};
use crate::proxy::observe::metrics::Metrics;
use crate::proxy::upstream::forward::{Answer, Forward};

/// How long a client may take to send the head of a request.
const HEAD_TIMEOUT: Duration = Duration::from_secs(30);
/// How often a silent HTTP/2 client is pinged.
const PING: Duration = Duration::from_secs(30);

/// The parts that all connections share.
#[derive(Clone)]
pub(crate) struct Served {
    pub(crate) forward: Forward,
    pub(crate) limited: Option<SharedRateLimit<Forward>>,
    pub(crate) observer: Arc<Observer>,
}

type Body = Watched<Either<tollgate_http::Body<Answer>, Answer>>;

impl Served {
    async fn answer(&self, mut request: Request<Incoming>, peer: SocketAddr) -> Response<Body> {
        let exchange = Exchange::begin(&self.observer, &mut request, peer);
        // Both services are always ready.
        let response = match &self.limited {
            Some(limited) => limited.clone().call(request).await.map(|response| response.map(Either::Left)),
            None => self.forward.clone().call(request).await.map(|response| response.map(Either::Right)),
        };
        let Ok(response) = response;
        exchange.answered(response)
    }
}

/// Serves until `stop` is ready, then tells the open connections to end and waits for them.
pub(crate) async fn serve(
    listener: TcpListener,
    service: Served,
    max_connections: usize,
    stop: impl Future<Output = ()>,
) -> GracefulShutdown {
    let graceful = GracefulShutdown::new();
    let room = Arc::new(Semaphore::new(max_connections.min(Semaphore::MAX_PERMITS)));
    let mut server = auto::Builder::new(TokioExecutor::new());
    server.http1().timer(TokioTimer::new()).header_read_timeout(HEAD_TIMEOUT);
    server.http2().timer(TokioTimer::new()).keep_alive_interval(PING).keep_alive_timeout(PING);
    let server = Arc::new(server);
    let mut stop = std::pin::pin!(stop);
    loop {
        let next = async {
            // A client without a permit waits in the queue of the listener.
            let room = Arc::clone(&room).acquire_owned().await;
            (room, listener.accept().await)
        };
        let (room, accepted) = tokio::select! {
            () = &mut stop => return graceful,
            next = next => next,
        };
        let Ok((stream, peer)) = accepted else {
            // Out of files, or the client has already gone.
            tokio::time::sleep(Duration::from_millis(10)).await;
            continue;
        };
        let (server, service, watcher) = (Arc::clone(&server), service.clone(), graceful.watcher());
        tokio::spawn(async move {
            let metrics = Arc::clone(&service.observer.metrics);
            metrics.connections.inc();
            metrics.open_connections.inc();
            let _open = Open(metrics);
            serve_connection(&server, stream, peer, service, watcher).await;
            drop(room);
        });
    }
}

async fn serve_connection(
    server: &auto::Builder<TokioExecutor>,
    stream: TcpStream,
    peer: SocketAddr,
    service: Served,
    watcher: Watcher,
) {
    // It matters only for latency, and a socket that refuses it is about to fail anyway.
    let _ = stream.set_nodelay(true);
    let asked = Arc::new(AtomicBool::new(false));
    let has_asked = Arc::clone(&asked);
    let service = service_fn(move |request| {
        // ORDERING: relaxed; it publishes nothing else, and the task that reads it is the one that
        // polls this.
        asked.store(true, Relaxed);
        let service = service.clone();
        async move { Ok::<_, Infallible>(service.answer(request, peer).await) }
    });
    let connection = server.serve_connection_with_upgrades(TokioIo::new(stream), service);
    let mut connection = std::pin::pin!(watcher.watch(connection));
    // The version is unknown before the first request, so hyper's timeouts, which depend on it, do
    // not apply yet. A broken connection is not an error of the proxy.
    tokio::select! {
        _ = &mut connection => {}
        () = tokio::time::sleep(HEAD_TIMEOUT) => {
            // ORDERING: relaxed, as above.
            if has_asked.load(Relaxed) {
                drop(connection.await);
            }
        }
    }
}

/// Counts a connection in the metrics as long as it is open.
struct Open(Arc<Metrics>);

impl Drop for Open {
    fn drop(&mut self) {
        self.0.open_connections.dec();
    }
}
