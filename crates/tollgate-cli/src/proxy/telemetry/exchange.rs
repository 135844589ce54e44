//! Defines [`Exchange`], a request and its response. An exchange is counted and logged when hyper
//! has taken the last byte of the response, which may still wait to be sent.

use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Instant;

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body::{Body, Frame, SizeHint};
use tollgate_http::program::{self, FieldWatch};
use tollgate_http::{KeyBy, PeerAddr, RequestHead};

use super::access_log::AccessLog;
use super::entry::LoggedRequest;
use super::metrics::Metrics;
use crate::proxy::log_line::warn;

/// The metrics and the log in which exchanges are recorded.
pub(crate) struct Observer {
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) log: Option<AccessLog>,
    /// Finds the client behind trusted proxies. If this is `None`, no proxy is trusted.
    pub(crate) client: Option<KeyBy>,
    /// Notices that a trusted proxy does not report its clients.
    pub(crate) field: Option<FieldWatch>,
}

impl Observer {
    fn client<B>(&self, request: &Request<B>) -> String {
        let whole = |ip: IpAddr| ip.to_canonical().to_string();
        let client = match &self.client {
            None => request.extensions().get().map(|&PeerAddr(peer)| whole(peer.ip())),
            Some(by) => program::address(by, RequestHead::of(request)).map(whole),
        };
        client.unwrap_or_else(|| "-".to_owned())
    }
}

/// A request in progress. The exchange ends when this value is dropped, together with either the
/// response's body or a cancelled future.
pub(crate) struct Exchange {
    observer: Arc<Observer>,
    begun: Instant,
    logged: Option<LoggedRequest>,
    status: Option<StatusCode>,
    bytes: u64,
}

impl Exchange {
    /// Starts an exchange, and adds the peer's address to the request.
    pub(crate) fn begin<B>(observer: &Arc<Observer>, request: &mut Request<B>, peer: SocketAddr) -> Self {
        request.extensions_mut().insert(PeerAddr(peer));
        if let Some(warning) = observer.field.as_ref().and_then(|it| it.look(RequestHead::of(request))) {
            warn(format_args!("{warning} (--forwarded-field)"));
        }
        observer.metrics.in_flight.inc();
        let logged = observer.log.as_ref().map(|log| {
            let client = observer.client(request);
            LoggedRequest::new(request, client, log.format)
        });
        Self { observer: Arc::clone(observer), begun: Instant::now(), logged, status: None, bytes: 0 }
    }

    /// Attaches the exchange to the response's body.
    pub(crate) fn answered<B>(mut self, response: Response<B>) -> Response<CountedBody<B>> {
        self.status = Some(response.status());
        response.map(|body| CountedBody { body, exchange: self })
    }
}

impl Drop for Exchange {
    fn drop(&mut self) {
        let Self { observer, begun, logged, status, bytes } = self;
        observer.metrics.in_flight.dec();
        let took = begun.elapsed();
        observer.metrics.answered(*status, took);
        if let (Some(log), Some(logged)) = (&observer.log, logged) {
            log.write(logged.line(*status, *bytes, took));
        }
    }
}

/// The body of a response. Counts the bytes that pass through it.
pub(crate) struct CountedBody<B> {
    body: B,
    exchange: Exchange,
}

impl<B: Body<Data = Bytes> + Unpin> Body for CountedBody<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        let frame = ready!(Pin::new(&mut self.body).poll_frame(context));
        if let Some(Ok(frame)) = &frame {
            let length = frame.data_ref().map_or(0, |data| data.len() as u64);
            self.exchange.bytes += length;
            // A response may last for hours, and its bytes must not all be counted at its end.
            self.exchange.observer.metrics.response_bytes.inc_by(length);
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
