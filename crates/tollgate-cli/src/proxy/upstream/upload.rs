//! The body of a request to the upstream, and whether it moves.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use prometheus_client::metrics::counter::Counter;

use super::hop;
use crate::proxy::linger::Lingering;

/// The progress of an upload, for the task that waits for the response.
#[derive(Debug)]
pub(crate) struct Motion {
    begun: Instant,
    // The fields are independent, and a read that is slightly late does no harm.
    /// When it last moved, in milliseconds from the beginning.
    moved: AtomicU64,
    waits_for_client: AtomicBool,
}

impl Motion {
    pub(crate) fn new() -> Arc<Self> {
        let (moved, waits_for_client) = (AtomicU64::new(0), AtomicBool::new(false));
        Arc::new(Self { begun: Instant::now(), moved, waits_for_client })
    }

    /// Returns when a frame last came from the client, or else the request itself.
    pub(crate) fn last(&self) -> Instant {
        // ORDERING: relaxed; a time, which publishes nothing.
        self.begun + Duration::from_millis(self.moved.load(Relaxed))
    }

    /// Returns whether the upload is waiting for the client.
    pub(crate) fn waits_for_client(&self) -> bool {
        // ORDERING: relaxed; it only chooses between two refusals.
        self.waits_for_client.load(Relaxed)
    }
}

/// The client's body, passed on frame by frame as the upstream takes it.
pub(crate) struct Upload {
    pub(crate) body: Lingering,
    pub(crate) motion: Arc<Motion>,
    pub(crate) bytes: Counter,
}

impl Body for Upload {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        // ORDERING: relaxed here and below, as where they are read.
        self.motion.waits_for_client.store(true, Relaxed);
        let frame = ready!(Pin::new(&mut self.body).poll_frame(context));
        // ORDERING: relaxed, as above.
        self.motion.waits_for_client.store(false, Relaxed);
        let elapsed = self.motion.begun.elapsed().as_millis();
        // ORDERING: relaxed, as above.
        self.motion.moved.store(u64::try_from(elapsed).unwrap_or(u64::MAX), Relaxed);
        if let Some(Ok(frame)) = &frame {
            self.bytes.inc_by(frame.data_ref().map_or(0, |data| data.len() as u64));
        }
        Poll::Ready(frame.map(|frame| frame.map(hop::clean_trailers)))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
