//! The body of a response: the handler's, or that of a refusal.
//!
//! `Either` of `http-body-util` would do, but for its errors: it boxes them, and a service behind
//! the layer would see another type of error than without it.

use bytes::Bytes;
use http_body::{Frame, SizeHint};
use pin_project_lite::pin_project;
use std::pin::Pin;
use std::task::{Context, Poll};

pin_project! {
    /// The body of a response that passed through a [`RateLimit`](crate::RateLimit): the handler's,
    /// unchanged and not boxed, or that of a refusal.
    ///
    /// Its size is known if the size of the handler's body is; the size of a refusal's body is
    /// always known.
    #[derive(Debug)]
    pub struct Body<B> {
        #[pin]
        kind: Kind<B>,
    }
}

pin_project! {
    #[derive(Debug)]
    #[project = KindPinned]
    enum Kind<B> {
        Handler { #[pin] body: B },
        // `None` if it is empty or has been taken.
        Refusal { bytes: Option<Bytes> },
    }
}

impl<B> Body<B> {
    pub(crate) fn handler(body: B) -> Self {
        Self { kind: Kind::Handler { body } }
    }

    pub(crate) fn refusal(bytes: Bytes) -> Self {
        Self { kind: Kind::Refusal { bytes: Some(bytes).filter(|bytes| !bytes.is_empty()) } }
    }
}

impl<B: http_body::Body<Data = Bytes>> http_body::Body for Body<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        match self.project().kind.project() {
            KindPinned::Handler { body } => body.poll_frame(context),
            KindPinned::Refusal { bytes } => Poll::Ready(bytes.take().map(|bytes| Ok(Frame::data(bytes)))),
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.kind {
            Kind::Handler { body } => body.is_end_stream(),
            Kind::Refusal { bytes } => bytes.is_none(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.kind {
            Kind::Handler { body } => body.size_hint(),
            Kind::Refusal { bytes } => SizeHint::with_exact(bytes.as_ref().map_or(0, |it| it.len() as u64)),
        }
    }
}
