//! The body of a response from the upstream, which must not stand still.

use std::error::Error;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use tokio::time::{Instant, Sleep, sleep};

use super::hop;

/// The upstream's body, passed on frame by frame as the client takes it.
pub(crate) struct Download {
    body: Incoming,
    idle_timeout: Duration,
    timer: Option<Pin<Box<Sleep>>>,
    waits: bool,
}

impl Download {
    /// The body ends with an error if nothing of it comes for `idle_timeout`.
    pub(crate) fn new(body: Incoming, idle_timeout: Duration) -> Self {
        Self { body, idle_timeout, timer: None, waits: false }
    }

    /// Is ready when the upstream has been silent for too long.
    fn poll_stalled(&mut self, context: &mut Context<'_>) -> Poll<()> {
        let idle_timeout = self.idle_timeout;
        let timer = self.timer.get_or_insert_with(|| Box::pin(sleep(idle_timeout)));
        if !self.waits {
            self.waits = true;
            timer.as_mut().reset(Instant::now() + idle_timeout);
        }
        timer.as_mut().poll(context)
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
