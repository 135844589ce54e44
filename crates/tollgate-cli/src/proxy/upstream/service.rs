//! Defines [`Upstream`]: the server behind the proxy, with its connections and their failures.

use std::error::Error;
use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use http::uri::{Authority, PathAndQuery, Scheme};
use http::{Method, Request, Response, StatusCode, Uri};
use hyper::body::Incoming;
use hyper_util::client::legacy::connect::{HttpConnector, capture_connection};
use hyper_util::client::legacy::{self, Client};
use hyper_util::rt::{TokioExecutor, TokioTimer};
use prometheus_client::metrics::counter::Counter;
use tokio::time::sleep_until;

use super::link::{Connector, History};
use super::upload::{Motion, Upload};
use crate::failure::Failure;
use crate::printable::printable;
use crate::proxy::log_line::{self, RareLine};

/// How long an idle connection remains open.
const IDLE: Duration = Duration::from_secs(30);

/// A response head of up to this many bytes is always accepted. hyper refuses a much larger head.
const MAX_HEAD: u32 = 64 << 10;

/// The maximum number of unread bytes of a response that the proxy buffers on an HTTP/2 stream.
const STREAM_WINDOW: u32 = 256 << 10;

/// The window of an HTTP/2 connection. All requests share one connection, so the window has room
/// for a thousand responses that their clients do not read. A larger window would weaken h2's
/// defence against small frames: h2 buffers about one small frame for each 512 bytes of the window.
const CONNECTION_WINDOW: u32 = 1_000 * STREAM_WINDOW;

/// The settings of the upstream.
#[derive(Clone, Debug)]
pub(crate) struct UpstreamSettings {
    pub(crate) authority: Authority,
    pub(crate) http2: bool,
    pub(crate) connect_timeout: Duration,
    pub(crate) request_timeout: Duration,
    /// How long a response body may stall.
    pub(crate) idle_timeout: Duration,
}

/// Parses the URL of an upstream, and returns its `HOST[:PORT]`.
///
/// # Errors
///
/// Returns an error if the URL has a scheme other than http, or if it contains parts other than a
/// host and a port.
pub(crate) fn parse_upstream(text: &str) -> Result<Authority, Failure> {
    let refused = |why: &str| {
        let text = printable(text.as_bytes());
        Failure::refused(format!(
            "invalid --upstream `{text}`, which {why}: expected http://HOST[:PORT], as in http://127.0.0.1:3000"
        ))
    };
    let url: Uri = text.parse().map_err(|error| refused(&format!("is not a URL ({error})")))?;
    match url.scheme_str() {
        Some("http") => {}
        Some("https") => {
            return Err(refused(
                "asks for TLS, which this proxy does not speak; run one that does between the two (haproxy, nginx, \
                 stunnel) on this machine and name that",
            ));
        }
        Some(_) => return Err(refused("has another scheme than http")),
        None => return Err(refused("has no scheme")),
    }
    if !matches!(url.path(), "" | "/") || url.query().is_some() {
        return Err(refused("has a path, which the proxy does not support"));
    }
    let authority = url.into_parts().authority.ok_or_else(|| refused("has no host"))?;
    if authority.as_str().contains('@') {
        return Err(refused("has a user's name, which the proxy does not use"));
    }
    if authority.host().is_empty()
        || (authority.port_u16().is_none() && authority.as_str() != authority.host())
    {
        return Err(refused("has no host, or a port outside of 1 to 65535"));
    }
    Ok(authority)
}

/// Why a request has no response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// The upstream refused the connection.
    Connect,
    /// The connection was not established in time.
    ConnectTimeout,
    /// The connection broke before the response head arrived, or the response was not HTTP.
    Broken,
    /// The head of the response did not arrive in time.
    Timeout,
    /// The length of the response could be interpreted in two ways.
    Ambiguous,
    /// The client stopped sending its request.
    ClientStalled,
    /// The client aborted its request.
    ClientLeft,
}

impl Fault {
    pub(crate) const ALL: [Self; 7] = [
        Self::Connect,
        Self::ConnectTimeout,
        Self::Broken,
        Self::Timeout,
        Self::Ambiguous,
        Self::ClientStalled,
        Self::ClientLeft,
    ];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Connect => "connect",
            Self::ConnectTimeout => "connect-timeout",
            Self::Broken => "broken",
            Self::Timeout => "timeout",
            Self::Ambiguous => "ambiguous",
            Self::ClientStalled => "client-stalled",
            Self::ClientLeft => "client-left",
        }
    }

    pub(crate) fn status(self) -> StatusCode {
        match self {
            Self::Connect | Self::Broken | Self::Ambiguous => StatusCode::BAD_GATEWAY,
            Self::ConnectTimeout | Self::Timeout => StatusCode::GATEWAY_TIMEOUT,
            Self::ClientStalled => StatusCode::REQUEST_TIMEOUT,
            Self::ClientLeft => StatusCode::BAD_REQUEST,
        }
    }

    /// Returns the message for the client. The message omits the upstream's address.
    pub(crate) fn detail(self) -> &'static str {
        match self {
            Self::Connect => "The server behind this proxy can't be reached.",
            Self::ConnectTimeout => "The server behind this proxy could not be reached in time.",
            Self::Broken => "The server behind this proxy broke off before it answered.",
            Self::Timeout => "The server behind this proxy did not answer in time.",
            Self::Ambiguous => "The length of the server's response can be read in two ways.",
            Self::ClientStalled => "The rest of the request did not arrive in time.",
            Self::ClientLeft => "The request is not complete.",
        }
    }

    fn of(error: &(dyn Error + 'static), at_connect: bool) -> Self {
        let mut causes = causes(error);
        let timed_out = |error: &(dyn Error + 'static)| {
            error.downcast_ref::<io::Error>().is_some_and(|error| error.kind() == io::ErrorKind::TimedOut)
        };
        if at_connect {
            return if causes.any(timed_out) { Self::ConnectTimeout } else { Self::Connect };
        }
        match causes.any(|error| error.downcast_ref().is_some_and(is_of_client)) {
            true => Self::ClientLeft,
            false => Self::Broken,
        }
    }
}

/// Returns whether the client's body caused the error. Such an error is a user error whose source
/// is another hyper error. hyper also reports a user error if a connection's task has ended, but
/// without a hyper error as the source.
fn is_of_client(error: &hyper::Error) -> bool {
    error.is_user() && error.source().is_some_and(|cause| cause.is::<hyper::Error>())
}

/// The server behind the proxy.
pub(crate) struct Upstream {
    settings: UpstreamSettings,
    client: Client<Connector, Upload>,
    /// A client that opens a new connection for each request.
    unpooled: Client<Connector, Upload>,
    repeated: Counter,
    /// Warns that the upstream cannot be reached.
    notice: RareLine,
    /// Whether the warning has been logged and the upstream has not responded since.
    down: AtomicBool,
}

impl Upstream {
    /// Creates an upstream. `repeated` counts the requests that are sent again.
    pub(crate) fn new(settings: UpstreamSettings, repeated: Counter) -> Self {
        let mut tcp = HttpConnector::new();
        tcp.set_connect_timeout(Some(settings.connect_timeout));
        tcp.set_nodelay(true);
        let connector = Connector { tcp, reads_after_failed_writes: !settings.http2 };
        let mut builder = Client::builder(TokioExecutor::new());
        builder
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(IDLE)
            .http2_only(settings.http2)
            .http1_max_buf_size(MAX_HEAD as usize)
            .http2_initial_stream_window_size(STREAM_WINDOW)
            .http2_initial_connection_window_size(CONNECTION_WINDOW)
            .http2_max_header_list_size(MAX_HEAD);
        let client = builder.build(connector.clone());
        let unpooled = builder.pool_max_idle_per_host(0).build(connector);
        Self { settings, client, unpooled, repeated, notice: RareLine::new(), down: AtomicBool::new(false) }
    }

    pub(crate) fn idle_timeout(&self) -> Duration {
        self.settings.idle_timeout
    }

    /// Returns the target of a request to the upstream, or `None` if no target can contain the
    /// path.
    pub(crate) fn target(&self, path: PathAndQuery) -> Option<Uri> {
        let uri = Uri::builder().scheme(Scheme::HTTP).authority(self.settings.authority.clone());
        uri.path_and_query(path).build().ok()
    }

    /// Sends a request and waits for the head of the response. The timeout restarts whenever the
    /// upload moves.
    ///
    /// Dropping the future cancels the request by closing the connection or resetting the stream.
    /// After a timeout, later requests use a new HTTP/2 connection, because the old one may hang.
    /// Pings could also find a connection that hangs, but gRPC servers end a connection on which
    /// several pings arrive within five minutes.
    pub(crate) async fn send(
        &self,
        mut request: Request<Upload>,
        motion: &Motion,
    ) -> Result<Response<Incoming>, Fault> {
        let connection = self.settings.http2.then(|| capture_connection(&mut request));
        let mut response = pin!(self.respond(request, motion));
        loop {
            let deadline = motion.last() + self.settings.request_timeout;
            tokio::select! {
                // A response that has already arrived is never late.
                biased;
                response = &mut response => return match response {
                    Ok(response) => {
                        self.is_there();
                        Ok(response)
                    }
                    Err(error) => {
                        if error.is_connect() {
                            self.is_away(&error);
                        }
                        Err(Fault::of(&error, error.is_connect()))
                    }
                },
                () = sleep_until(deadline.into()) => {
                    if motion.last() + self.settings.request_timeout <= deadline {
                        if motion.waits_for_client() {
                            return Err(Fault::ClientStalled);
                        }
                        if let Some(connection) = &connection
                            && let Some(connected) = &*connection.connection_metadata()
                        {
                            connected.poison();
                        }
                        return Err(Fault::Timeout);
                    }
                }
            }
        }
    }

    /// Sends a request. If the request fails and a second attempt can do no harm, sends the request
    /// again on a new connection.
    async fn respond(
        &self,
        mut request: Request<Upload>,
        motion: &Motion,
    ) -> Result<Response<Incoming>, legacy::Error> {
        if !request.method().is_idempotent() && !self.settings.http2 {
            return self.client.request(request).await;
        }
        let mut again = Request::new(());
        again.method_mut().clone_from(request.method());
        again.uri_mut().clone_from(request.uri());
        again.headers_mut().clone_from(request.headers());
        let unread = request.body_mut().back();
        let error = match self.client.request(request).await {
            Ok(response) => return Ok(response),
            Err(error) => error,
        };
        if !self.may_repeat(&error, again.method(), motion) {
            return Err(error);
        }
        // The body is returned only if none of it has been read.
        let Ok(body) = unread.await else { return Err(error) };
        self.repeated.inc();
        self.unpooled.request(again.map(|()| body)).await
    }

    /// Returns whether a failed request may be sent again, provided that its body is unread.
    ///
    /// Any request may be repeated if the upstream reports that it has not begun to process the
    /// request. An idempotent request may also be repeated if its connection is older than the
    /// request and ended without a byte of a response, because the upstream may have closed an idle
    /// connection. On a new connection, the request itself may have caused the failure.
    fn may_repeat(&self, error: &legacy::Error, method: &Method, motion: &Motion) -> bool {
        let http2 = causes(error).find_map(|error| error.downcast_ref::<h2::Error>());
        let is_repeatable = method.is_idempotent();
        match http2 {
            Some(error) if error.is_remote() && error.is_reset() => {
                return error.reason() == Some(h2::Reason::REFUSED_STREAM);
            }
            // Normally, the stream is later than the last stream in the GOAWAY, so the upstream has
            // not begun the request. However, if the GOAWAY arrives while hyper hands over the
            // request, hyper reports the GOAWAY for any stream, and has not polled the body.
            Some(error) if error.is_remote() && error.is_go_away() => {
                return is_repeatable || motion.waits_for_client();
            }
            _ => {}
        }
        let is_lost = |error: &(dyn Error + 'static)| {
            let ended = |error: &hyper::Error| {
                error.is_incomplete_message() || (error.is_user() && !is_of_client(error))
            };
            error.is::<io::Error>() || error.downcast_ref().is_some_and(ended)
        };
        let is_lost = http2.is_some_and(h2::Error::is_io) || causes(error).any(is_lost);
        // On an HTTP/2 connection, the bytes that have been read may belong to other requests.
        let is_lost_before = |history: Arc<History>| {
            history.is_kept_from_before(motion.begun()) && (self.settings.http2 || !history.is_answered())
        };
        is_repeatable && is_lost && History::of(error).is_some_and(is_lost_before)
    }

    fn is_away(&self, error: &legacy::Error) {
        let authority = &self.settings.authority;
        let why = causes(error).last().map(ToString::to_string).unwrap_or_default();
        // ORDERING: relaxed here and below; the flag publishes no other data.
        if !self.down.load(Relaxed)
            && self.notice.log(format_args!("the upstream http://{authority} can't be reached: {why}"))
        {
            // ORDERING: relaxed, as above.
            self.down.store(true, Relaxed);
        }
    }

    fn is_there(&self) {
        // ORDERING: relaxed, as in `is_away`.
        if self.down.load(Relaxed) && self.down.swap(false, Relaxed) {
            log_line::info(format_args!("the upstream http://{} answers again", self.settings.authority));
        }
    }
}

/// Iterates over an error and the chain of its causes.
fn causes<'e>(error: &'e (dyn Error + 'static)) -> impl Iterator<Item = &'e (dyn Error + 'static)> {
    let mut next = Some(error);
    std::iter::from_fn(move || {
        let error: &'e (dyn Error + 'static) = next?;
        next = error.source();
        Some(error)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_upstream_is_a_host_and_a_port() {
        for (text, authority) in [
            ("http://127.0.0.1:3000", "127.0.0.1:3000"),
            ("http://localhost/", "localhost"),
            ("HTTP://[::1]:80", "[::1]:80"),
        ] {
            assert_eq!(parse_upstream(text).expect(text), authority);
        }
        for (text, part) in [
            ("", "is not a URL"),
            ("127.0.0.1:3000", "has no scheme"),
            ("localhost", "has no scheme"),
            ("ftp://localhost", "another scheme"),
            ("https://example.org", "TLS"),
            ("http://localhost/api", "has a path"),
            ("http://localhost?x", "has a path"),
            ("http://me@localhost", "user's name"),
            ("http://localhost:99999", "port"),
            ("http://:80", "host"),
        ] {
            let Err(Failure::Refused(message)) = parse_upstream(text) else { panic!("{text}") };
            assert!(message.contains(part) && message.contains("expected http://"), "{text}: {message}");
        }
    }
}
