//! The response of a service behind the layer, under way.

use super::body::Body;
use super::fields::Fields;
use super::head::ResponseHead;
use super::ticket::Ticket;
use bytes::Bytes;
use http::Response;
use pin_project_lite::pin_project;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

pin_project! {
    /// The future of a [`RateLimit`](super::RateLimit).
    ///
    /// # Panics
    ///
    /// If it is polled again after it was ready, as futures may.
    pub struct ResponseFuture<F> {
        #[pin]
        state: State<F>,
    }
}

/// What is done with the response.
type Rest = (Fields, Option<Box<Ticket>>);

pin_project! {
    #[project = StatePinned]
    enum State<F> {
        Passed { #[pin] handler: F, rest: Option<Rest> },
        Refused { response: Option<Box<Response<Bytes>>> },
    }
}

impl<F> ResponseFuture<F> {
    pub(super) fn passed(handler: F, fields: Fields, ticket: Option<Box<Ticket>>) -> Self {
        Self { state: State::Passed { handler, rest: Some((fields, ticket)) } }
    }

    pub(super) fn refused(response: Response<Bytes>) -> Self {
        Self { state: State::Refused { response: Some(Box::new(response)) } }
    }
}

impl<F, B, E> Future for ResponseFuture<F>
where
    F: Future<Output = Result<Response<B>, E>>,
{
    type Output = Result<Response<Body<B>>, E>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        match self.project().state.project() {
            StatePinned::Passed { handler, rest } => {
                let mut panics = Panics(Some(&mut *rest));
                let polled = handler.poll(context);
                panics.0 = None;
                drop(panics);
                let response = ready!(polled);
                let (fields, ticket) = rest.take().unwrap_or_default();
                if let Some(ticket) = ticket {
                    ticket.settle(response.as_ref().ok().map(ResponseHead::of));
                }
                Poll::Ready(response.map(|mut response| {
                    fields.write(response.headers_mut());
                    response.map(Body::handler)
                }))
            }
            StatePinned::Refused { response } => {
                let response = response.take().expect("a future is not polled after it was ready");
                Poll::Ready(Ok(response.map(Body::refusal)))
            }
        }
    }
}

/// Dropped armed, while a handler unwinds: it has failed without a response.
struct Panics<'r>(Option<&'r mut Option<Rest>>);

impl Drop for Panics<'_> {
    fn drop(&mut self) {
        if let Some((_, Some(ticket))) = self.0.take().and_then(Option::take) {
            ticket.settle(None);
        }
    }
}

impl<F> fmt::Debug for ResponseFuture<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ResponseFuture").finish_non_exhaustive()
    }
}
