//! Response bodies, which are the handler's body or a refusal's body.
//!
//! `Either` from `http-body-util` is not used, because it boxes errors, so callers would see a
//! different error type than without the layer. For the same reason, a response that is cut off
//! ends without an error, unless [`FailWhenCut`](crate::FailWhenCut) wraps it.

use crate::limit::permits::Permits;
use crate::settle::running::{Cut, Running};
use bytes::Bytes;
use http_body::{Frame, SizeHint};
use pin_project_lite::pin_project;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

pin_project! {
    /// The body of a response from a [`RateLimitService`](crate::RateLimitService). It is either
    /// the handler's body, unchanged and unboxed, or a refusal's body.
    ///
    /// The body's size is known if the size of the handler's body is known. A refusal's size is
    /// always known. A body that may be [cut off](crate::ResponseCost::cut_off) can turn out
    /// shorter than its announced size.
    #[derive(Debug)]
    pub struct Body<B> {
        #[pin]
        kind: BodyKind<B>,
        // This field is declared below the body, so that the body's work ends before the permit is
        // released to another request.
        permits: Permits,
    }
}

pin_project! {
    #[derive(Debug)]
    #[project = BodyKindPinned]
    enum BodyKind<B> {
        Handler { #[pin] body: B },
        // Settles costs as the frames pass.
        Settling { #[pin] body: B, running: Box<Running> },
        // `None` if the body is empty or has been taken.
        Refusal { bytes: Option<Bytes> },
        // The end of a response that was cut off.
        Cut { limit: Arc<str> },
    }
}

impl<B> Body<B> {
    pub(crate) fn handler(body: B) -> Self {
        Self { kind: BodyKind::Handler { body }, permits: Permits::default() }
    }

    pub(crate) fn refusal(bytes: Bytes) -> Self {
        let bytes = Some(bytes).filter(|bytes| !bytes.is_empty());
        Self { kind: BodyKind::Refusal { bytes }, permits: Permits::default() }
    }

    /// Owns these permits until the body has ended or is dropped.
    pub(crate) fn holding(self, permits: Permits) -> Self {
        Self { permits, ..self }
    }

    /// Returns the name of the limit that cut the response off.
    pub(crate) fn cut_by(&self) -> Option<&str> {
        match &self.kind {
            BodyKind::Cut { limit } => Some(limit),
            BodyKind::Handler { .. } | BodyKind::Settling { .. } | BodyKind::Refusal { .. } => None,
        }
    }
}

impl<B: http_body::Body> Body<B> {
    /// Creates a body that settles costs as the frames of the handler's body pass.
    pub(crate) fn settling(body: B, mut running: Box<Running>) -> Self {
        if body.is_end_stream() {
            // No server would poll an empty body for frames.
            running.end();
            return Self::handler(body);
        }
        if body.size_hint().exact().is_some() {
            // The server announces the length, so no frame can be added.
            running.leave_out_last_words();
        }
        Self { kind: BodyKind::Settling { body, running }, permits: Permits::default() }
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
            // A server may keep a body for some time after its last frame.
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

impl<B: http_body::Body<Data = Bytes>> BodyKind<B> {
    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        let cut = match self.as_mut().project() {
            BodyKindPinned::Handler { body } => return body.poll_frame(context),
            BodyKindPinned::Refusal { bytes } => {
                return Poll::Ready(bytes.take().map(|bytes| Ok(Frame::data(bytes))));
            }
            BodyKindPinned::Cut { .. } => return Poll::Ready(None),
            BodyKindPinned::Settling { mut body, running } => match ready!(body.as_mut().poll_frame(context))
            {
                Some(Ok(frame)) => match running.pass(&frame) {
                    Ok(()) => {
                        if body.is_end_stream() {
                            running.end();
                        }
                        return Poll::Ready(Some(Ok(frame)));
                    }
                    Err(cut) => cut,
                },
                Some(Err(error)) => return Poll::Ready(Some(Err(error))),
                None => {
                    running.end();
                    return Poll::Ready(None);
                }
            },
        };
        let Cut { limit, last_words } = cut;
        // Drops the handler's body, which stops its work.
        self.set(BodyKind::Cut { limit });
        Poll::Ready(Some(last_words).filter(|words| !words.is_empty()).map(|words| Ok(Frame::data(words))))
    }

    fn is_end_stream(&self) -> bool {
        match self {
            BodyKind::Handler { body } => body.is_end_stream(),
            // If another task fills the body, the body may end between two calls. The server must
            // still poll the body to its end, because reaching the end settles the cost.
            BodyKind::Settling { body, running } => running.is_settled() && body.is_end_stream(),
            BodyKind::Refusal { bytes } => bytes.is_none(),
            BodyKind::Cut { .. } => true,
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            BodyKind::Handler { body } | BodyKind::Settling { body, .. } => body.size_hint(),
            BodyKind::Refusal { bytes } => {
                SizeHint::with_exact(bytes.as_ref().map_or(0, |it| it.len() as u64))
            }
            BodyKind::Cut { .. } => SizeHint::with_exact(0),
        }
    }
}
