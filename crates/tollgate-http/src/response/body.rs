//! The body of a response: the handler's, or that of a refusal.
//!
//! `Either` of `http-body-util` would do, but for its errors: it boxes them, and a service behind
//! the layer would see another type of error than without it.

use crate::limit::permits::Permits;
use bytes::Bytes;
use http_body::{Frame, SizeHint};
use pin_project_lite::pin_project;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

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
        // Below the body, so that its work ends before its place is free for another.
        permits: Permits,
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
        Self { kind: Kind::Handler { body }, permits: Permits::default() }
    }

    pub(crate) fn refusal(bytes: Bytes) -> Self {
        let bytes = Some(bytes).filter(|bytes| !bytes.is_empty());
        Self { kind: Kind::Refusal { bytes }, permits: Permits::default() }
    }

    /// Holds these permits until the body has ended or is dropped.
    pub(crate) fn holding(self, permits: Permits) -> Self {
        Self { permits, ..self }
    }
}

impl<B: http_body::Body<Data = Bytes>> http_body::Body for Body<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        let mut this = self.project();
        let frame = ready!(this.kind.as_mut().poll_frame(context));
        if !this.permits.is_empty() && (!matches!(frame, Some(Ok(_))) || this.kind.is_end_stream()) {
            // A server may keep a body for a while after its end.
            *this.permits = Permits::default();
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.kind.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.kind.size_hint()
    }
}

impl<B: http_body::Body<Data = Bytes>> Kind<B> {
    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        match self.project() {
            KindPinned::Handler { body } => body.poll_frame(context),
            KindPinned::Refusal { bytes } => Poll::Ready(bytes.take().map(|bytes| Ok(Frame::data(bytes)))),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Kind::Handler { body } => body.is_end_stream(),
            Kind::Refusal { bytes } => bytes.is_none(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Kind::Handler { body } => body.size_hint(),
            Kind::Refusal { bytes } => SizeHint::with_exact(bytes.as_ref().map_or(0, |it| it.len() as u64)),
        }
    }
}
