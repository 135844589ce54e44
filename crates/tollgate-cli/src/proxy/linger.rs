//! Defines [`Lingering`], a request body. After a refusal, the proxy still reads a bounded part of
//! the remaining body.
//!
//! A client that is refused during an upload may not have read the response yet. If the proxy
//! stopped reading, it would close the connection (HTTP/1) or reset the stream (HTTP/2), and the
//! client could lose the response. The proxy therefore reads and discards the remaining body, up to
//! a maximum time and size. nginx does the same with `lingering_close`.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http::header::EXPECT;
use http::{HeaderMap, Request};
use http_body::{Body, Frame, SizeHint};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use tokio::runtime::Handle;
use tokio::time::timeout;

use crate::proxy::activity::Activity;

/// How long a client may pause while the proxy discards the request's body.
const SILENCE: Duration = Duration::from_secs(2);
/// The maximum total time that the proxy spends discarding a body.
const LONGEST: Duration = Duration::from_secs(10);
/// The maximum number of bytes that the proxy discards per body.
const MOST: usize = 16 << 20;

/// A request body. If it is dropped before it has been read to its end, a task reads a bounded part
/// of the remaining bytes.
pub(crate) struct Lingering {
    body: Option<Incoming>,
    activity: Arc<Activity>,
    /// Whether the client waits for `100 Continue`. hyper sends this response when the body is
    /// first read.
    waits_to_be_asked: bool,
}

impl Lingering {
    /// Wraps the body of a request that has arrived on a connection.
    pub(crate) fn of(request: Request<Incoming>, activity: Arc<Activity>) -> Request<Self> {
        let waits_to_be_asked = expects_continue(request.headers());
        request.map(|body| Self { body: Some(body), activity, waits_to_be_asked })
    }
}

fn expects_continue(headers: &HeaderMap) -> bool {
    headers.get(EXPECT).is_some_and(|value| value.as_bytes().eq_ignore_ascii_case(b"100-continue"))
}

impl Body for Lingering {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        self.waits_to_be_asked = false;
        let Some(body) = &mut self.body else { return Poll::Ready(None) };
        let frame = ready!(Pin::new(body).poll_frame(context));
        self.activity.touch();
        if !matches!(frame, Some(Ok(_))) {
            self.body = None;
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.as_ref().is_none_or(Body::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        self.body.as_ref().map_or_else(|| SizeHint::with_exact(0), Body::size_hint)
    }
}

impl Drop for Lingering {
    fn drop(&mut self) {
        if self.is_end_stream() || self.waits_to_be_asked {
            return;
        }
        // If no runtime is left, the connection has also ended.
        if let (Some(body), Ok(runtime)) = (self.body.take(), Handle::try_current()) {
            runtime.spawn(timeout(LONGEST, discard(body)));
        }
    }
}

async fn discard(mut body: Incoming) {
    let mut read = 0;
    while read < MOST
        && let Ok(Some(Ok(frame))) = timeout(SILENCE, body.frame()).await
    {
        read += frame.data_ref().map_or(0, Bytes::len);
    }
}
