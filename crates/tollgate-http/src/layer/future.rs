//! The future of a response, for layers without shared limits.

use crate::check::ticket::Ticket;
use crate::head::ResponseHead;
use crate::response::body::Body;
use crate::response::fields::Fields;
use bytes::Bytes;
use http::Response;
use pin_project_lite::pin_project;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

pin_project! {
    /// The future of a [`RateLimit`](crate::RateLimit).
    ///
    /// # Panics
    ///
    /// If it is polled again after it was ready.
    pub struct ResponseFuture<F> {
        #[pin]
        state: State<F>,
    }
}

/// What is left to do when the response is known: add the headers, and settle the charges.
type Rest = (Fields, Option<Box<Ticket>>);

pin_project! {
    #[project = StatePinned]
    enum State<F> {
        Passed { #[pin] handler: F, rest: Option<Rest> },
        Refused { response: Option<Box<Response<Bytes>>> },
    }
}

impl<F> ResponseFuture<F> {
    /// Calls the handler of a request that passed.
    pub(crate) fn passed(handler: impl FnOnce() -> F, fields: Fields, ticket: Option<Box<Ticket>>) -> Self {
        let mut rest = Some((fields, ticket));
        let handler = watched(&mut rest, handler);
        Self { state: State::Passed { handler, rest } }
    }

    pub(crate) fn refused(response: Response<Bytes>) -> Self {
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
                let response = ready!(watched(rest, || handler.poll(context)));
                let (fields, ticket) = rest.take().unwrap_or_default();
                if let Some(ticket) = ticket {
                    at_once(*ticket, response.as_ref().ok().map(ResponseHead::of));
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

/// Settles the charges of a ticket whose limiters are all of this process.
fn at_once(ticket: Ticket, response: Option<ResponseHead<'_>>) {
    let refunds = ticket.settle(response);
    debug_assert!(refunds.is_none(), "a layer with shared limits has another future");
}

/// Runs the handler. If it panics, the charges are settled as for a failure without a response.
fn watched<T>(rest: &mut Option<Rest>, handler: impl FnOnce() -> T) -> T {
    let mut panics = Panics(Some(rest));
    let done = handler();
    panics.0 = None;
    done
}

/// Settles the charges when it is dropped while a handler unwinds; disarmed otherwise.
struct Panics<'r>(Option<&'r mut Option<Rest>>);

impl Drop for Panics<'_> {
    fn drop(&mut self) {
        if let Some((_, Some(ticket))) = self.0.take().and_then(Option::take) {
            at_once(*ticket, None);
        }
    }
}

impl<F> fmt::Debug for ResponseFuture<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ResponseFuture").finish_non_exhaustive()
    }
}
