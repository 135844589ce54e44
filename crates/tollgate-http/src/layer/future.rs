//! The future of a response. It waits for the verdict, calls the handler, and settles the charges.
//!
//! The future stores the inner service while the request waits for its verdict, and the response
//! while it waits for a refund. Both are boxed, so the future itself is only slightly larger than
//! the handler's future.
//!
//! # Why a response waits for refunds
//!
//! If the response does not keep a charge, the charge is refunded before the response is passed on.
//! This takes one more round trip, but lets a client rely on the refund. If the client sends its
//! next request as soon as it has received the response, that request is not refused for lack of
//! these tokens.
//!
//! The alternatives are worse. The layer has no runtime that could run a task for the refund. The
//! response body could make the refund, but servers do not poll an empty body.
//!
//! Responses without a refund do not wait, and no response waits if the limiter passes its refunds
//! to its own task.
//!
//! # Permits
//!
//! The future owns the permits for requests in flight, and passes them to the response body. A
//! permit is therefore released when the body has ended or was dropped, or when the handler has
//! failed. If the client hangs up, the server drops the future, which also releases the permit.
//!
//! # Panics
//!
//! If there are charges to settle, the future catches a panic in the handler and resumes it once
//! the charges are settled, so the runtime sees the same panic. Other panics are not caught.

use crate::check::limit_set::Verdict;
use crate::check::pending_refunds::{PendingRefunds, Refunds, Settled};
use crate::check::wait::Checking;
use crate::head::{RefusalMark, ResponseHead};
use crate::limit::permits::Permits;
use crate::response::body::Body;
use crate::response::fields::{self, Fields};
use crate::settle::running::Running;
use bytes::Bytes;
use http::{Request, Response};
use pin_project_lite::pin_project;
use std::any::Any;
use std::fmt;
use std::future::Future;
use std::mem;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use tower_service::Service;

pin_project! {
    /// The future of a [`RateLimitService`](crate::RateLimitService).
    ///
    /// If the future is dropped while it waits, the charges are kept as they are.
    ///
    /// # Panics
    ///
    /// Polling panics if the future has already returned its result, or if the inner service
    /// panics.
    pub struct ResponseFuture<S, A>
    where
        S: Service<Request<A>>,
    {
        #[pin]
        state: State<S, A>,
        // This field is declared below the state, so that the handler is dropped before its permit
        // is released to another request.
        permits: Permits,
    }
}

pin_project! {
    #[project = StatePinned]
    enum State<S, A>
    where
        S: Service<Request<A>>,
    {
        // The inner service that was ready for the request, and the request body.
        Checking { checking: Checking, next: Option<Box<(S, A)>> },
        Handling { #[pin] handler: S::Future, rest: Option<Rest> },
        Settling { refunds: Refunds, end: Option<Box<HandlerOutcome<S::Response, S::Error>>> },
        Refused { response: Option<Box<Response<Bytes>>> },
    }
}

/// The work to do once the response is known: adding the fields and settling the charges.
type Rest = (Fields, Option<Box<PendingRefunds>>);

/// The outcome of a handler.
enum HandlerOutcome<R, E> {
    Answered(R, Option<Box<Running>>),
    Failed(E),
    Panicked(Box<dyn Any + Send>),
}

impl<S, A> ResponseFuture<S, A>
where
    S: Service<Request<A>>,
{
    /// Creates the future of a request that waits for its verdict. `ready` is the service that will
    /// handle the request.
    pub(crate) fn checking(checking: Checking, ready: S, body: A) -> Self {
        let state = State::Checking { checking, next: Some(Box::new((ready, body))) };
        Self { state, permits: Permits::default() }
    }

    /// Creates the future of a request whose verdict is already known.
    pub(crate) fn checked(verdict: Verdict, handler: impl FnOnce() -> S::Future) -> Self {
        match verdict {
            Verdict::Passed(fields, pending, permits, _) => {
                Self { state: State::handled(handler, (fields, pending)), permits }
            }
            Verdict::Refused(response) => Self {
                state: State::Refused { response: Some(Box::new(response)) },
                permits: Permits::default(),
            },
        }
    }
}

impl<S, A> State<S, A>
where
    S: Service<Request<A>>,
{
    /// Calls the handler. If the handler panics, the panic is resumed after the refunds.
    fn handled(handler: impl FnOnce() -> S::Future, rest: Rest) -> Self {
        match caught(rest.1.is_some(), handler) {
            Ok(handler) => Self::Handling { handler, rest: Some(rest) },
            Err(panic) => match settle(rest.1, None).refunds {
                Some(refunds) => {
                    Self::Settling { refunds, end: Some(Box::new(HandlerOutcome::Panicked(panic))) }
                }
                None => resume_unwind(panic),
            },
        }
    }
}

impl<S, A, B> Future for ResponseFuture<S, A>
where
    S: Service<Request<A>, Response = Response<B>>,
    B: http_body::Body,
{
    type Output = Result<Response<Body<B>>, S::Error>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let end = ready!(self.as_mut().poll_end(context));
        // From here on, the body owns the permits. Without a response, the permits are dropped
        // here.
        let permits = mem::take(self.project().permits);
        Poll::Ready(end.map(|response| response.map(|body| body.holding(permits))))
    }
}

impl<S, A, B> ResponseFuture<S, A>
where
    S: Service<Request<A>, Response = Response<B>>,
    B: http_body::Body,
{
    fn poll_end(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Result<Response<Body<B>>, S::Error>> {
        loop {
            let this = self.as_mut().project();
            let mut state = this.state;
            let next = match state.as_mut().project() {
                StatePinned::Checking { checking, next } => {
                    let (request, verdict) = ready!(checking.as_mut().poll(context));
                    let (mut service, body) = *next.take().expect("it is taken once, with the verdict");
                    match verdict {
                        Verdict::Refused(response) => return Poll::Ready(Ok(response.map(Body::refusal))),
                        Verdict::Passed(fields, pending, permits, _) => {
                            *this.permits = permits;
                            let request = Request::from_parts(request, body);
                            State::handled(|| service.call(request), (fields, pending))
                        }
                    }
                }
                StatePinned::Handling { handler, rest } => {
                    let settles = rest.as_ref().is_some_and(|(_, pending)| pending.is_some());
                    let end = match caught(settles, || handler.poll(context)) {
                        Ok(Poll::Pending) => return Poll::Pending,
                        Ok(Poll::Ready(Ok(response))) => HandlerOutcome::Answered(response, None),
                        Ok(Poll::Ready(Err(error))) => HandlerOutcome::Failed(error),
                        Err(panic) => HandlerOutcome::Panicked(panic),
                    };
                    let (end, refunds) = end.settled(rest.take().unwrap_or_default());
                    match refunds {
                        Some(refunds) => State::Settling { refunds, end: Some(Box::new(end)) },
                        None => return Poll::Ready(end.output()),
                    }
                }
                StatePinned::Settling { refunds, end } => {
                    ready!(refunds.as_mut().poll(context));
                    let end = end.take().expect("a future is not polled after it was ready");
                    return Poll::Ready(end.output());
                }
                StatePinned::Refused { response } => {
                    let response = response.take().expect("a future is not polled after it was ready");
                    return Poll::Ready(Ok(response.map(Body::refusal)));
                }
            };
            state.set(next);
        }
    }
}

impl<B: http_body::Body, E> HandlerOutcome<Response<B>, E> {
    /// Adds the fields to the response and settles the charges. Returns the refunds that the
    /// response must wait for.
    fn settled(mut self, (fields, pending): Rest) -> (Self, Option<Refunds>) {
        let settled = match &mut self {
            Self::Answered(response, running) => {
                let head = ResponseHead::of(response);
                let refusal = head.refusal();
                let mut settled = settle(pending, Some(head));
                *running = settled.running.take();
                if let Some(RefusalMark { wait }) = refusal {
                    // The client's next request has to pass this layer as well.
                    fields::delay(response.headers_mut(), wait, fields.wait.max(settled.wait));
                }
                fields.write(response.headers_mut(), refusal.is_some());
                settled
            }
            Self::Failed(_) | Self::Panicked(_) => settle(pending, None),
        };
        (self, settled.refunds)
    }

    fn output(self) -> Result<Response<Body<B>>, E> {
        match self {
            Self::Answered(response, None) => Ok(response.map(Body::handler)),
            Self::Answered(response, Some(running)) => Ok(response.map(|body| Body::settling(body, running))),
            Self::Failed(error) => Err(error),
            Self::Panicked(panic) => resume_unwind(panic),
        }
    }
}

fn settle(pending: Option<Box<PendingRefunds>>, response: Option<ResponseHead<'_>>) -> Settled {
    pending.map(|pending| pending.settle(response)).unwrap_or_default()
}

/// Runs a part of the handler, and catches a panic if there are charges to settle.
fn caught<T>(settles: bool, part: impl FnOnce() -> T) -> Result<T, Box<dyn Any + Send>> {
    if settles { catch_unwind(AssertUnwindSafe(part)) } else { Ok(part()) }
}

impl<S, A> fmt::Debug for ResponseFuture<S, A>
where
    S: Service<Request<A>>,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ResponseFuture").finish_non_exhaustive()
    }
}
