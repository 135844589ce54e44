//! Passes on the body of an upstream response, and ends a body that stalls for too long.

use std::error::Error;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use tokio::time::{Instant, Sleep, sleep};

use super::hop;
use super::upload::Motion;

/// The body of an upstream response. It is passed on frame by frame, as fast as the client accepts
/// the frames.
pub(crate) struct Download {
    body: Incoming,
    idle_timeout: Duration,
    /// The upload of the same request. The upstream may be silent while this upload moves.
    upload: Arc<Motion>,
    timer: Option<Pin<Box<Sleep>>>,
    waits: bool,
}

impl Download {
    /// Wraps a body. The new body ends with an error if neither the body nor the upload moves for
    /// `idle_timeout`.
    pub(crate) fn new(body: Incoming, idle_timeout: Duration, upload: Arc<Motion>) -> Self {
        Self { body, idle_timeout, upload, timer: None, waits: false }
    }

    /// Becomes ready when the upstream has been silent for too long.
    fn poll_stalled(&mut self, context: &mut Context<'_>) -> Poll<()> {
        let idle_timeout = self.idle_timeout;
        let timer = self.timer.get_or_insert_with(|| Box::pin(sleep(idle_timeout)));
        if !self.waits {
            self.waits = true;
            timer.as_mut().reset(Instant::now() + idle_timeout);
        }
        loop {
            ready!(timer.as_mut().poll(context));
            let upload_stalls = Instant::from_std(self.upload.last()) + idle_timeout;
            if upload_stalls <= Instant::now() {
                return Poll::Ready(());
            }
            timer.as_mut().reset(upload_stalls);
        }
    }
}

impl Body for Download {
    type Data = Bytes;
    type Error = Box<dyn Error + Send + Sync>;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        match Pin::new(&mut self.body).poll_frame(context) {
            Poll::Ready(frame) => {
                self.waits = false;
                Poll::Ready(frame.map(|frame| frame.map(hop::clean_trailers).map_err(Into::into)))
            }
            Poll::Pending => self.poll_stalled(context).map(|()| {
                let why = "the upstream sent nothing of the response's body in time";
                Some(Err(io::Error::new(io::ErrorKind::TimedOut, why).into()))
            }),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
