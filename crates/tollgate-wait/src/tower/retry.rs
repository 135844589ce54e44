//! Copies of requests that are safe to send again.

use http::Request;

/// Copies the requests of a [`WaitLayer`](crate::WaitLayer), so that a request can be sent again if
/// the server refuses it. The trait is implemented for [`NoRetry`] and for functions such as
/// [`idempotent`]. Such a function receives a request, and returns a copy, or `None` if the request
/// is not safe to repeat.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot copy `{R}`",
    note = "pass to `WaitLayer::retries` a function from `&{R}` to `Option<{R}>`, such as `tollgate_wait::idempotent`"
)]
pub trait Repeat<R> {
    #[doc(hidden)]
    fn copy(&self, request: &R) -> Option<R>;
}

/// Copies no request, so refused requests are not sent again.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoRetry;

impl<R> Repeat<R> for NoRetry {
    fn copy(&self, _: &R) -> Option<R> {
        None
    }
}

impl<R, F: Fn(&R) -> Option<R>> Repeat<R> for F {
    fn copy(&self, request: &R) -> Option<R> {
        self(request)
    }
}

/// Copies a request if its method has the same effect when the request is sent twice. These methods
/// are `GET`, `HEAD`, `OPTIONS`, `TRACE`, `PUT` and `DELETE`. Pass this function to
/// [`WaitLayer::retries`](crate::WaitLayer::retries).
///
/// The equivalent for a request of reqwest is `request.method().is_idempotent().then(||
/// request.try_clone())?`.
///
/// ```
/// use http::{Method, Request};
/// use tollgate_wait::idempotent;
///
/// let mut request = Request::new("a body");
/// *request.method_mut() = Method::PUT;
/// assert!(idempotent(&request).is_some());
/// *request.method_mut() = Method::POST;
/// assert!(idempotent(&request).is_none());
/// ```
pub fn idempotent<B: Clone>(request: &Request<B>) -> Option<Request<B>> {
    request.method().is_idempotent().then(|| request.clone())
}
