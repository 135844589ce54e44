//! How long a call holds its turn, which may be a permit.

use http_body::{Body, Frame, SizeHint};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

/// How long a [`WaitLayer`](crate::WaitLayer) holds the turn of a request: [`UntilHead`] or
/// [`UntilEnd`].
pub trait Hold<B, T> {
    /// The body of the responses.
    type Body;

    #[doc(hidden)]
    fn hold(&self, body: B, turn: Option<T>) -> Self::Body;
}

/// Holds the turn until the head of the response arrives. This is the default.
#[derive(Clone, Copy, Debug, Default)]
pub struct UntilHead;

/// Holds the turn until the body of the response ends. See
/// [`WaitLayer::hold_until_end`](crate::WaitLayer::hold_until_end).
#[derive(Clone, Copy, Debug, Default)]
pub struct UntilEnd;

impl<B, T> Hold<B, T> for UntilHead {
    type Body = B;

    fn hold(&self, body: B, _: Option<T>) -> B {
        body
    }
}

impl<B: Body, T> Hold<B, T> for UntilEnd {
    type Body = HeldBody<B, T>;

    fn hold(&self, body: B, turn: Option<T>) -> HeldBody<B, T> {
        let turn = turn.filter(|_| !body.is_end_stream());
        HeldBody { body, turn }
    }
}

/// The body of a response that holds the turn of its request, until the body ends, fails or is
/// dropped.
#[derive(Debug)]
pub struct HeldBody<B, T> {
    body: B,
    turn: Option<T>,
}

impl<B: Body + Unpin, T: Unpin> Body for HeldBody<B, T> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<B::Data>, B::Error>>> {
        let frame = ready!(Pin::new(&mut self.body).poll_frame(context));
        // If a body reports that it has ended, its caller may not poll it for another frame.
        if !matches!(frame, Some(Ok(_))) || self.body.is_end_stream() {
            self.turn = None;
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
