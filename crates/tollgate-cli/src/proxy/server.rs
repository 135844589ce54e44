//! Accepts connections from clients, serves them, and ends them gracefully.

use std::convert::Infallible;
use std::error::Error;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use http::header::{CONNECTION, COOKIE};
use http::{HeaderMap, Request, Response, Version};
use http_body_util::Either;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use tokio::net::TcpListener;
use tokio::sync::{Semaphore, watch};
use tokio::time::{sleep, timeout};
use tollgate_http::program::trusts;
use tollgate_http::{ResponseHead, TrustedProxies};
use tower_layer::Layer;
use tower_service::Service;

use crate::proxy::activity::{Activity, Sending, Speaks, Standing};
use crate::proxy::bad_requests::{BadRequest, BadRequestLimit};
use crate::proxy::connection::{AddressCounts, Connection};
use crate::proxy::limits::Limits;
use crate::proxy::linger::Lingering;
use crate::proxy::problem_details::problem_details;
use crate::proxy::telemetry::entry::unread_line;
use crate::proxy::telemetry::exchange::{CountedBody, Exchange, Observer};
use crate::proxy::upstream::forward::{Forward, ResponseBody};

/// How often the proxy pings a silent HTTP/2 client.
const PING: Duration = Duration::from_secs(30);
/// How long the proxy waits for requests that an idle client sent before it learned that its
/// connection is ending, and for the open requests of a client that it blocks.
const GRACE: Duration = Duration::from_secs(2);
/// The maximum number of requests in progress on an HTTP/2 connection.
const STREAMS: u32 = 100;
/// The maximum number of fields of a request. hyper enforces it for HTTP/1.
const FIELDS: usize = 100;
/// The maximum number of streams that a client may reset before the proxy has processed them
/// (CVE-2023-44487).
const RESETS_PENDING: usize = 20;
/// The maximum number of streams per connection that the proxy may reset because of the client's
/// errors (CVE-2025-8671).
const ERRORS: usize = 1_000;
/// The maximum number of unread bytes of an upload that the proxy buffers on an HTTP/2 stream. The
/// window of the connection has room for all its streams, so stalled uploads do not hold up others.
const STREAM_WINDOW: u32 = 256 << 10;
/// The maximum number of response bytes that an HTTP/2 stream buffers.
const SEND_BUFFER: usize = 64 << 10;

/// Limits on clients' connections and requests.
#[derive(Clone, Debug)]
pub(crate) struct ClientSettings {
    pub(crate) max_connections: usize,
    pub(crate) max_per_address: usize,
    pub(crate) ipv6_prefix: u8,
    /// The trusted proxies in front of this proxy. They may open any number of connections.
    pub(crate) trusted: Option<TrustedProxies>,
    pub(crate) max_header_size: u32,
    pub(crate) header_timeout: Duration,
    pub(crate) idle_timeout: Duration,
}

/// The state that all connections share.
#[derive(Clone)]
pub(crate) struct Served {
    pub(crate) forward: Forward,
    /// The limits in force. A reload replaces them.
    pub(crate) limits: Arc<ArcSwap<Limits>>,
    pub(crate) bad_requests: Arc<BadRequestLimit>,
    pub(crate) observer: Arc<Observer>,
}

type Body = Sending<CountedBody<Either<tollgate_http::Body<ResponseBody>, ResponseBody>>>;

impl Served {
    async fn answer(
        &self,
        mut request: Request<Incoming>,
        peer: SocketAddr,
        activity: &Arc<Activity>,
    ) -> Response<Body> {
        let progress = activity.begin(request.version() == Version::HTTP_2);
        request.extensions_mut().insert(Arc::clone(activity));
        let exchange = Exchange::begin(&self.observer, &mut request, peer);
        let is_too_large = request.version() == Version::HTTP_2 && fields(request.headers()) > FIELDS;
        let request = Lingering::of(request, Arc::clone(activity));
        let response =
            if is_too_large { self.too_large(peer, activity) } else { self.forwarded(request).await };
        exchange.answered(response).map(|body| progress.answered(body))
    }

    /// Answers a request with too many fields, and charges its sender.
    fn too_large(
        &self,
        peer: SocketAddr,
        activity: &Activity,
    ) -> Response<Either<tollgate_http::Body<ResponseBody>, ResponseBody>> {
        let kind = BadRequest::HeadTooLarge;
        self.observer.metrics.bad_request(kind);
        self.bad_requests.charge(peer.ip());
        if self.bad_requests.is_spent(peer.ip()) {
            activity.block();
        }
        let mut response =
            problem_details(kind.status(), &format!("The request has more than {FIELDS} fields."));
        // This field belongs to HTTP/1. The other requests on the connection are not affected.
        response.headers_mut().remove(CONNECTION);
        response.map(|body| Either::Right(Either::Right(body)))
    }

    /// Forwards a request if the limits admit it.
    async fn forwarded(
        &self,
        request: Request<Lingering>,
    ) -> Response<Either<tollgate_http::Body<ResponseBody>, ResponseBody>> {
        // A reload may replace the limits while this request is in progress.
        let limits = self.limits.load_full();
        let limited = limits.layer.as_ref().map(|layer| layer.layer(self.forward.clone()));
        // Both services are always ready and never fail.
        let Ok(mut response) = match limited {
            Some(mut limited) => limited.call(request).await.map(|response| response.map(Either::Left)),
            None => self.forward.clone().call(request).await.map(|response| response.map(Either::Right)),
        };
        if ResponseHead::of(&response).is_refusal() {
            limits.refusals.add_to(response.headers_mut());
        }
        response
    }

    /// Handles the error that ended a connection. If hyper answered the last request by itself,
    /// this method counts and logs the request, and charges its sender.
    fn ended(&self, error: &(dyn Error + Send + Sync + 'static), peer: SocketAddr) {
        let Some(kind) = BadRequest::of(error) else { return };
        self.observer.metrics.bad_request(kind);
        self.bad_requests.charge(peer.ip());
        if let Some(log) = &self.observer.log {
            log.write(unread_line(log.format, peer.ip(), kind.status()));
        }
    }
}

/// Returns the number of a request's fields. HTTP/2 may send each cookie in its own field, and
/// HTTP/1 sends all of them in one.
fn fields(headers: &HeaderMap) -> usize {
    let cookies = headers.get_all(COOKIE).iter().count();
    headers.len() - cookies.saturating_sub(1)
}

/// The open connections, which can be shut down together.
pub(crate) struct OpenConnections(watch::Sender<()>);

impl OpenConnections {
    /// Shuts down all connections gracefully, and waits until they have ended.
    pub(crate) async fn shutdown(self) {
        let _ = self.0.send(());
        self.0.closed().await;
    }
}

/// Serves clients until `stop` is ready, and then returns the open connections.
pub(crate) async fn serve(
    listener: TcpListener,
    service: Served,
    settings: ClientSettings,
    stop: impl Future<Output = ()>,
) -> OpenConnections {
    let open = OpenConnections(watch::channel(()).0);
    let permits = Arc::new(Semaphore::new(settings.max_connections.min(Semaphore::MAX_PERMITS)));
    let addresses = AddressCounts::new(settings.max_per_address, settings.ipv6_prefix);
    let server = Arc::new(Server { builder: builder(&settings), service, settings });
    let mut stop = pin!(stop);
    loop {
        let next = async {
            // While no permit is available, clients wait in the listener's queue.
            let permit = Arc::clone(&permits).acquire_owned().await;
            (permit, listener.accept().await)
        };
        let (permit, accepted) = tokio::select! {
            () = &mut stop => return open,
            next = next => next,
        };
        let Ok((stream, peer)) = accepted else {
            // Either the process has no free file descriptors, or the client has already
            // disconnected.
            sleep(Duration::from_millis(10)).await;
            continue;
        };
        let metrics = &server.service.observer.metrics;
        let is_trusted = server.settings.trusted.as_ref().is_some_and(|it| trusts(it, peer.ip()));
        let place = if is_trusted { None } else { addresses.enter(peer.ip()) };
        if place.is_none() && !is_trusted {
            metrics.refused_connections.inc();
            continue;
        }
        if !is_trusted && server.service.bad_requests.is_spent(peer.ip()) {
            metrics.blocked_connections.inc();
            continue;
        }
        // This option only affects latency. A socket that refuses it is about to fail anyway.
        let _ = stream.set_nodelay(true);
        let activity = Activity::new();
        let stream = Connection::new(stream, Arc::clone(&activity), place, permit.ok(), Arc::clone(metrics));
        let (server, stopped) = (Arc::clone(&server), open.0.subscribe());
        tokio::spawn(async move { server.serve(stream, peer, is_trusted, activity, stopped).await });
    }
}

fn builder(settings: &ClientSettings) -> auto::Builder<TokioExecutor> {
    let mut server = auto::Builder::new(TokioExecutor::new());
    server
        .http1()
        // `Server::serve` ends a connection whose head is late. hyper's timeout would also end a
        // connection whose client is still reading a response.
        .header_read_timeout(None)
        .max_buf_size(usize::try_from(settings.max_header_size).unwrap_or(usize::MAX));
    server
        .http2()
        .timer(TokioTimer::new())
        .keep_alive_interval(PING)
        .keep_alive_timeout(PING)
        .max_header_list_size(settings.max_header_size)
        .max_concurrent_streams(STREAMS)
        .initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(STREAMS * STREAM_WINDOW)
        .max_pending_accept_reset_streams(RESETS_PENDING)
        .max_local_error_reset_streams(ERRORS)
        .max_send_buf_size(SEND_BUFFER);
    server
}

/// The parts that serve each connection.
struct Server {
    builder: auto::Builder<TokioExecutor>,
    service: Served,
    settings: ClientSettings,
}

impl Server {
    /// Serves a connection until it ends or stalls for too long. After a shutdown has begun, serves
    /// only the remaining requests on the connection.
    async fn serve(
        &self,
        stream: Connection,
        peer: SocketAddr,
        is_trusted: bool,
        activity: Arc<Activity>,
        mut stopped: watch::Receiver<()>,
    ) {
        let body_end = stream.body_end();
        let service = service_fn(|request| {
            body_end.tell(&request);
            let (service, activity) = (self.service.clone(), Arc::clone(&activity));
            async move { Ok::<_, Infallible>(service.answer(request, peer, &activity).await) }
        });
        let connection = self.builder.serve_connection_with_upgrades(TokioIo::new(stream), service);
        let mut connection = pin!(connection);
        let (head, idle) = (self.settings.header_timeout, self.settings.idle_timeout);
        let mut is_ending = false;
        let mut left = head.min(idle);
        loop {
            tokio::select! {
                // A broken connection is not the proxy's fault.
                ended = &mut connection => {
                    return ended.map_or_else(|error| self.service.ended(&*error, peer), drop);
                }
                _ = stopped.changed(), if !is_ending => {
                    is_ending = true;
                    connection.as_mut().graceful_shutdown();
                }
                () = activity.blocked(), if !is_trusted => {
                    connection.as_mut().graceful_shutdown();
                    // A client could delay the end of the shutdown as long as it likes.
                    if let Ok(Err(error)) = timeout(GRACE, connection).await {
                        self.service.ended(&*error, peer);
                    }
                    return;
                }
                () = sleep(left) => match activity.standing(head, idle) {
                    // A response may end soon, and the connection is then idle.
                    Standing::For(time) => left = time.min(head),
                    Standing::Idle if !is_ending => {
                        is_ending = true;
                        // A client of HTTP/2 answers the shutdown after it has read the responses
                        // that are still on their way.
                        left = if activity.speaks(&[Speaks::Http2]) { head } else { head.min(GRACE) };
                        connection.as_mut().graceful_shutdown();
                    }
                    Standing::Idle | Standing::Stalled => return,
                },
            }
        }
    }
}
