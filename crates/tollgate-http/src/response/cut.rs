//! Turns the cut of a response into an error.

use super::body::Body;
use bytes::Bytes;
use http_body::{Frame, SizeHint};
use pin_project_lite::pin_project;
use std::error::Error;
use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

/// The error with which a response ends when it has spent its budget: see [`FailWhenCut`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CutOff {
    limit: Box<str>,
}

impl CutOff {
    /// Returns the name of the limit that cut the response off.
    pub fn limit_name(&self) -> &str {
        &self.limit
    }
}

impl fmt::Display for CutOff {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the response has spent its budget of rate limit {:?}", self.limit)
    }
}

impl Error for CutOff {}

pin_project! {
    /// A body that ends with the error [`CutOff`] if the response was [cut
    /// off](crate::ResponseCost::cut_off). Clients can then tell a partial response from a complete
    /// one.
    ///
    /// With HTTP/1.1, the error makes the server close the connection before the end of the body.
    /// With HTTP/2, the server resets the stream. [Last words](crate::ResponseCost::last_words) are
    /// sent before the error.
    ///
    /// ```
    /// use http::{Request, Response};
    /// use tollgate::{Quota, SingleLimiter};
    /// use tollgate_http::{CutOff, FailWhenCut, Limit, RateLimitLayer, ResponseCost};
    /// use tower::{Layer, ServiceExt, service_fn};
    ///
    /// let limiter = SingleLimiter::builder(Quota::per_hour(1000)).build()?;
    /// let limit = Limit::new("bytes", limiter).settle(ResponseCost::bytes(1).cut_off());
    /// let layer = RateLimitLayer::builder().limit(limit).build()?;
    /// let service = layer
    ///     .layer(service_fn(|_: Request<()>| async {
    ///         Ok::<_, std::convert::Infallible>(Response::new("x".repeat(1001)))
    ///     }))
    ///     .map_response(|response: Response<_>| response.map(FailWhenCut::new));
    /// # use http_body_util::BodyExt;
    /// # pollster::block_on(async {
    /// let response = service.oneshot(Request::new(())).await.unwrap();
    /// let error = response.into_body().collect().await.unwrap_err();
    /// assert_eq!(error.downcast_ref::<CutOff>().unwrap().limit_name(), "bytes");
    /// # });
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[derive(Debug)]
    pub struct FailWhenCut<B> {
        #[pin]
        body: Body<B>,
        has_failed: bool,
    }
}

impl<B> FailWhenCut<B> {
    /// Wraps the body of a response.
    pub fn new(body: Body<B>) -> Self {
        Self { body, has_failed: false }
    }
}

impl<B> http_body::Body for FailWhenCut<B>
where
    B: http_body::Body<Data = Bytes, Error: Into<Box<dyn Error + Send + Sync>>>,
{
    type Data = Bytes;
    type Error = Box<dyn Error + Send + Sync>;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        let mut this = self.project();
        if let Some(frame) = ready!(this.body.as_mut().poll_frame(context)) {
            return Poll::Ready(Some(frame.map_err(Into::into)));
        }
        let limit = this.body.cut_by().filter(|_| !*this.has_failed);
        let Some(limit) = limit else { return Poll::Ready(None) };
        *this.has_failed = true;
        Poll::Ready(Some(Err(Box::new(CutOff { limit: limit.into() }))))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream() && (self.has_failed || self.body.cut_by().is_none())
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
