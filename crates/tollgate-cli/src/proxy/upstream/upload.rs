//! The body of a request to the upstream. [`Motion`] records whether the body moves. An unread body
//! can be taken back.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use prometheus_client::metrics::counter::Counter;
use tokio::sync::oneshot;

use super::hop;
use crate::proxy::linger::Lingering;

/// Records the progress of an upload for the task that waits for the response.
#[derive(Debug)]
pub(crate) struct Motion {
    begun: Instant,
    // The fields are independent of each other, and reading a slightly outdated value is harmless.
    /// The time of the last progress, in milliseconds after `begun`.
    moved: AtomicU64,
    waits_for_client: AtomicBool,
}

impl Motion {
    pub(crate) fn new() -> Arc<Self> {
        let (moved, waits_for_client) = (AtomicU64::new(0), AtomicBool::new(false));
        Arc::new(Self { begun: Instant::now(), moved, waits_for_client })
    }

    /// Returns the time at which the request began.
    pub(crate) fn begun(&self) -> Instant {
        self.begun
    }

    /// Returns the time of the last frame from the client. Before the first frame, returns the time
    /// at which the request began.
    pub(crate) fn last(&self) -> Instant {
        // ORDERING: relaxed; the value is only a time and publishes no other data.
        self.begun + Duration::from_millis(self.moved.load(Relaxed))
    }

    /// Returns whether the upload is waiting for the client.
    pub(crate) fn waits_for_client(&self) -> bool {
        // ORDERING: relaxed; the flag publishes no other data and only selects one of two refusals.
        self.waits_for_client.load(Relaxed)
    }
}

/// The client's body. It is passed on frame by frame, as fast as the upstream accepts the frames.
pub(crate) struct Upload {
    /// The body. This is `None` only while the upload is dropped.
    body: Option<Lingering>,
    motion: Arc<Motion>,
    bytes: Counter,
    /// Receives the body if the upload is dropped before any of the body was read.
    unread: Option<oneshot::Sender<Self>>,
}

impl Upload {
    pub(crate) fn new(body: Lingering, motion: Arc<Motion>, bytes: Counter) -> Self {
        Self { body: Some(body), motion, bytes, unread: None }
    }

    /// Returns a receiver. If the upload is dropped before any of its body was read, the body is
    /// sent to the receiver.
    pub(crate) fn back(&mut self) -> oneshot::Receiver<Self> {
        let (unread, back) = oneshot::channel();
        self.unread = Some(unread);
        back
    }
}

impl Drop for Upload {
    fn drop(&mut self) {
        if let Some(unread) = self.unread.take() {
            let (motion, bytes) = (Arc::clone(&self.motion), self.bytes.clone());
            // This call fails if nobody needs the body any more.
            let _ = unread.send(Self { body: self.body.take(), motion, bytes, unread: None });
        }
    }
}

impl Body for Upload {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        // ORDERING: relaxed here and below; [`Motion`] explains why.
        self.motion.waits_for_client.store(true, Relaxed);
        let Some(body) = &mut self.body else { return Poll::Ready(None) };
        let frame = ready!(Pin::new(body).poll_frame(context));
        // ORDERING: relaxed, as above.
        self.motion.waits_for_client.store(false, Relaxed);
        let elapsed = self.motion.begun.elapsed().as_millis();
        // ORDERING: relaxed, as above.
        self.motion.moved.store(u64::try_from(elapsed).unwrap_or(u64::MAX), Relaxed);
        if frame.is_some() {
            self.unread = None;
        }
        if let Some(Ok(frame)) = &frame {
            self.bytes.inc_by(frame.data_ref().map_or(0, |data| data.len() as u64));
        }
        Poll::Ready(frame.map(|frame| frame.map(hop::clean_trailers)))
    }

    fn is_end_stream(&self) -> bool {
        self.body.as_ref().is_none_or(Body::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        self.body.as_ref().map_or_else(|| SizeHint::with_exact(0), Body::size_hint)
    }
}
