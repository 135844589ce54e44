//! A tower layer for HTTP clients. Requests wait for their turn, and obey the limits in the
//! server's responses.
//!
//! All clones share the queue through an `Arc`, and each request waits in the future that `call`
//! returns. If the service waited in `poll_ready` instead, one request would block all other
//! requests of its connection, and each clone would have its own limit.

mod hold;
mod retry;

use crate::limiter::Waitable;
use crate::outcome::WaitError;
use crate::paced::Paced;
use crate::queue::WaitQueue;
use crate::sleep::{Sleep, TokioSleep};
pub use hold::{HeldBody, Hold, UntilEnd, UntilHead};
use http::Response;
pub use retry::{NoRetry, Repeat, idempotent};
use std::error::Error;
use std::fmt;
use std::future::{Future, poll_fn};
use std::hash::Hash;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tollgate::Tick;
use tower_layer::Layer;
use tower_service::Service;

/// A layer for HTTP clients. Each request waits for its turn, and each response updates its key's
/// pace before the next request with this key is sent.
///
/// The layer contains a queue in front of a [`Paced`] limiter, whose documentation describes the
/// pace's rules. The layer can also [resend](Self::retries) refused requests. If a server refuses
/// with other statuses than 429, 503 and 529, states a wait in the body, or refuses all keys at
/// once, pass a function to [`Paced::read_with`], which has an example of such a client.
///
/// ```
/// use http::{Request, Response};
/// use std::sync::Arc;
/// use std::time::Duration;
/// use tollgate::{Limiter, Quota};
/// use tollgate_wait::{Paced, WaitLayer, WaitQueue, idempotent};
/// use tower::{Layer, ServiceExt, service_fn};
///
/// # async fn send(_: Request<String>) -> Result<Response<String>, std::io::Error> {
/// #     Ok(Response::default())
/// # }
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let sleep = tokio::time::sleep;
/// // At most 50 requests a second to each host, and no more than the host permits.
/// let limiter: Limiter<String> = Limiter::builder(Quota::per_second(50)).build()?;
/// let queue = Arc::new(WaitQueue::with_sleep(Paced::new(limiter), sleep));
/// let host = |request: &Request<String>| (request.uri().host().unwrap_or_default().to_owned(), 1);
/// let layer = WaitLayer::new(queue, host).max_wait(Duration::from_secs(30)).retries(3, idempotent);
/// let client = layer.layer(service_fn(send));
/// let request = Request::get("https://api.example.com/").body(String::new())?;
/// assert!(client.oneshot(request).await?.status().is_success());
/// # Ok(())
/// # }
/// ```
///
/// The inner service accepts any request type and returns an [`http::Response`], as hyper's client
/// does.
///
/// # reqwest
///
/// reqwest has its own response type, so insert tower's `map_response` between the layer and
/// reqwest's client.
///
/// ```
/// # use std::sync::Arc;
/// # use tollgate::{Limiter, Quota};
/// # use tollgate_wait::{Paced, WaitLayer, WaitQueue};
/// # use tower::{ServiceBuilder, ServiceExt};
/// # async fn call() -> Result<(), Box<dyn std::error::Error>> {
/// # let limiter: Limiter<String> = Limiter::builder(Quota::per_second(50)).build()?;
/// # let queue = Arc::new(WaitQueue::with_sleep(Paced::new(limiter), tokio::time::sleep));
/// let host = |request: &reqwest::Request| (request.url().authority().to_owned(), 1);
/// let copy = |it: &reqwest::Request| it.method().is_idempotent().then(|| it.try_clone())?;
/// let client = ServiceBuilder::new()
///     .layer(WaitLayer::new(queue, host).retries(3, copy))
///     .map_response(http::Response::<reqwest::Body>::from)
///     .service(reqwest::Client::new());
///
/// let request = reqwest::Request::new(http::Method::GET, "http://api.example.com/".parse()?);
/// let response = reqwest::Response::from(client.clone().oneshot(request).await?);
/// println!("{}", response.text().await?);
/// # Ok(())
/// # }
/// ```
///
/// In a middleware, such as one of the crate reqwest-middleware, use the queue without the layer:
/// call [`until_ready`](WaitQueue::until_ready) before the request and [`Paced::learn`] after the
/// response, as the example of [`Paced`] does.
pub struct WaitLayer<L, K, S = TokioSleep, C = NoRetry, H = UntilHead> {
    queue: Arc<WaitQueue<Paced<L>, S>>,
    key: K,
    max_wait: Option<Duration>,
    retries: u32,
    copy: C,
    hold: H,
}

/// The number of a request at its [`Paced`] limiter. A [`WaitLayer`] adds it to the extensions of
/// the response.
///
/// The layer learns from the head of a response. If the stream of a success contains a refusal,
/// pass this number to [`Paced::learn`], as its documentation shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestNumber(pub u64);

impl<L, K, S> WaitLayer<L, K, S> {
    /// Creates a layer whose requests wait in `queue`. The function `key` returns a request's key,
    /// such as its host, and its cost.
    pub fn new(queue: Arc<WaitQueue<Paced<L>, S>>, key: K) -> Self {
        Self { queue, key, max_wait: None, retries: 0, copy: NoRetry, hold: UntilHead }
    }
}

impl<L, K, S, C, H> WaitLayer<L, K, S, C, H> {
    /// Sets the maximum time from a call until its request has its last turn. If the request's turn
    /// cannot arrive within this time, the call fails immediately. If a refused request cannot get
    /// its next turn within this time, it is not sent again, and the caller receives the refusal.
    /// The time after a turn until the inner service is ready has no maximum.
    #[must_use]
    pub fn max_wait(self, max_wait: Duration) -> Self {
        Self { max_wait: Some(max_wait), ..self }
    }

    /// Resends a request up to `retries` times if the server refuses it, that is, with status 429,
    /// 503 or 529, or according to the function in [`Paced::read_with`]. The request waits for a
    /// new turn each time. The function `copy` copies a request, or returns `None` if the request
    /// is not safe to repeat. For requests whose body can be cloned, use [`idempotent`].
    ///
    /// The call keeps the refusal, with its unread body, while the request waits for its new turn,
    /// because the caller receives the refusal if the turn does not arrive. The refusal is dropped
    /// before the request is sent again, and before the call waits for the inner service.
    ///
    /// Errors of the inner service are not retried. By default, no request is sent again.
    ///
    /// ```
    /// # use http::{Method, Request};
    /// # use std::sync::Arc;
    /// # use tollgate::{Quota, SingleLimiter};
    /// # use tollgate_wait::{Paced, WaitLayer, WaitQueue};
    /// # let limiter = SingleLimiter::builder(Quota::per_second(50)).build()?;
    /// # let queue = Arc::new(WaitQueue::new(Paced::new(limiter)));
    /// # let layer = WaitLayer::new(queue, |_: &Request<&str>| ((), 1));
    /// // This server forgets what it has refused, so that any request is safe to repeat.
    /// let layer = layer.retries(3, |request: &Request<&'static str>| Some(request.clone()));
    /// # Ok::<(), tollgate::ConfigError>(())
    /// ```
    #[must_use]
    pub fn retries<F>(self, retries: u32, copy: F) -> WaitLayer<L, K, S, F, H> {
        let Self { queue, key, max_wait, hold, .. } = self;
        WaitLayer { queue, key, max_wait, retries, copy, hold }
    }

    /// Holds the permit of a request until the body of its response ends, fails or is dropped, so
    /// that at most as many bodies as permits are read at once. By default, a permit is returned
    /// when the head of the response arrives. The bodies of the responses become [`HeldBody`]s.
    ///
    /// A task that keeps a response and waits for another request with the same key may wait for
    /// itself, because nobody returns the permit that it holds. Read or drop the first body before
    /// the next call. Such a call fails with [`WaitError::Expired`] if there is a
    /// [`max_wait`](Self::max_wait), and never ends otherwise.
    ///
    /// ```
    /// # use http::{Request, Response};
    /// # use std::sync::Arc;
    /// # use std::time::Duration;
    /// # use tollgate::{InFlight, Limiter, Quota};
    /// # use tollgate_wait::{Paced, WaitLayer, WaitQueue};
    /// # use tower::{Layer, ServiceExt, service_fn};
    /// # async fn send(_: Request<()>) -> Result<Response<String>, std::convert::Infallible> {
    /// #     Ok(Response::new("body".to_owned()))
    /// # }
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let rate: Limiter<&str> = Limiter::builder(Quota::per_second(50)).build()?;
    /// let downloads: InFlight<&str> = InFlight::builder(1).build()?;
    /// let queue = Arc::new(WaitQueue::new(Paced::new((rate, downloads))));
    /// let layer = WaitLayer::new(queue, |_: &Request<()>| ("host", 1)).hold_until_end();
    /// let client = layer.max_wait(Duration::from_millis(5)).layer(service_fn(send));
    /// let first = client.clone().oneshot(Request::new(())).await?;
    /// assert!(client.clone().oneshot(Request::new(())).await.is_err());
    /// drop(first);
    /// assert!(client.oneshot(Request::new(())).await.is_ok());
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn hold_until_end(self) -> WaitLayer<L, K, S, C, UntilEnd> {
        let Self { queue, key, max_wait, retries, copy, .. } = self;
        WaitLayer { queue, key, max_wait, retries, copy, hold: UntilEnd }
    }
}

impl<L, K: Clone, S, C: Clone, H: Clone> Clone for WaitLayer<L, K, S, C, H> {
    fn clone(&self) -> Self {
        let Self { queue, key, max_wait, retries, copy, hold } = self;
        Self {
            queue: Arc::clone(queue),
            key: key.clone(),
            max_wait: *max_wait,
            retries: *retries,
            copy: copy.clone(),
            hold: hold.clone(),
        }
    }
}

impl<L, K, S, C, H> fmt::Debug for WaitLayer<L, K, S, C, H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WaitLayer")
            .field("queue", &self.queue)
            .field("max_wait", &self.max_wait)
            .field("retries", &self.retries)
            .finish_non_exhaustive()
    }
}

impl<I, L, K: Clone, S, C: Clone, H: Clone> Layer<I> for WaitLayer<L, K, S, C, H> {
    type Service = WaitService<I, L, K, S, C, H>;

    fn layer(&self, inner: I) -> Self::Service {
        WaitService { inner, layer: self.clone() }
    }
}

/// The service of a [`WaitLayer`]. It is always ready, and its clones share the queue.
pub struct WaitService<I, L, K, S = TokioSleep, C = NoRetry, H = UntilHead> {
    inner: I,
    layer: WaitLayer<L, K, S, C, H>,
}

impl<I: Clone, L, K: Clone, S, C: Clone, H: Clone> Clone for WaitService<I, L, K, S, C, H> {
    fn clone(&self) -> Self {
        Self { inner: self.inner.clone(), layer: self.layer.clone() }
    }
}

impl<I: fmt::Debug, L, K, S, C, H> fmt::Debug for WaitService<I, L, K, S, C, H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WaitService").field("inner", &self.inner).field("layer", &self.layer).finish()
    }
}

/// Why a call through a [`WaitService`] failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WaitServiceError<E> {
    /// The request's turn never arrived. The inner service was not called, or it has refused the
    /// request, and the refusal was dropped because the service was not ready for the retry.
    Wait(WaitError),
    /// The inner service returned an error.
    Service(E),
}

impl<E: fmt::Display> fmt::Display for WaitServiceError<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Wait(error) => error.fmt(f),
            Self::Service(error) => error.fmt(f),
        }
    }
}

impl<E: Error + 'static> Error for WaitServiceError<E> {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Wait(error) => error.source(),
            Self::Service(error) => error.source(),
        }
    }
}

impl<I, L, K, S, C, H, R, B, Q> Service<R> for WaitService<I, L, K, S, C, H>
where
    I: Service<R, Response = Response<B>> + Clone + Send + 'static,
    I::Future: Send,
    I::Error: Send,
    R: Send + 'static,
    B: Send + 'static,
    K: Fn(&R) -> (Q, u64),
    L: Waitable<Q, Turn: Send> + Send + Sync + 'static,
    Q: Hash + Send + Sync + 'static,
    S: Sleep<Sleeping: Send> + Send + Sync + 'static,
    C: Repeat<R> + Clone + Send + 'static,
    H: Hold<B, L::Turn> + Clone + Send + 'static,
{
    type Response = Response<H::Body>;
    type Error = WaitServiceError<I::Error>;
    type Future = Pin<Box<dyn Future<Output = Result<Response<H::Body>, Self::Error>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: R) -> Self::Future {
        let (key, cost) = (self.layer.key)(&request);
        let WaitLayer { retries, max_wait, copy, hold, queue, .. } = &self.layer;
        let begin = queue.limiter().now();
        let call = Call { queue: Arc::clone(queue), key, cost, begin, max_wait: *max_wait };
        Box::pin(call.run(self.inner.clone(), request, *retries, copy.clone(), hold.clone()))
    }
}

/// A call, which may send its request several times.
struct Call<L, S, Q> {
    queue: Arc<WaitQueue<Paced<L>, S>>,
    key: Q,
    cost: u64,
    begin: Tick,
    max_wait: Option<Duration>,
}

impl<L, S, Q> Call<L, S, Q>
where
    L: Waitable<Q> + Sync,
    Q: Hash + Sync,
    S: Sleep,
{
    async fn run<I, R, B, H>(
        self,
        inner: I,
        mut request: R,
        mut retries: u32,
        copy: impl Repeat<R>,
        hold: H,
    ) -> Result<Response<H::Body>, WaitServiceError<I::Error>>
    where
        I: Service<R, Response = Response<B>> + Clone,
        H: Hold<B, L::Turn>,
    {
        let paced = self.queue.limiter();
        let (mut refusal, mut rest): (Option<Response<B>>, _) = (None, self.max_wait);
        loop {
            // The turn is held at least until the response arrives, because it may be a permit.
            let turn = match self.turn(rest).await {
                Ok(turn) => turn,
                Err(error) => {
                    let refusal = refusal.ok_or(WaitServiceError::Wait(error))?;
                    return Ok(refusal.map(|body| hold.hold(body, None)));
                }
            };
            let unsent = paced.unsent(&self.key, self.cost);
            // A service that is ready may have reserved something, such as a permit. A call that
            // waits again drops this clone, and with it the reservation.
            let mut ready = inner.clone();
            let polled = poll_fn(|cx| {
                let polled = ready.poll_ready(cx);
                // The body of the refusal may hold what the service waits for, such as a permit.
                if polled.is_pending() {
                    refusal = None;
                }
                polled
            });
            polled.await.map_err(WaitServiceError::Service)?;
            // Another request may have been refused while the inner service was not ready.
            if !paced.paused_for(&self.key).is_zero() {
                rest = self.rest();
                continue;
            }
            let copied = if retries > 0 { copy.copy(&request) } else { None };
            let number = unsent.send();
            // The call may also wait for what the body of the refusal holds.
            drop(refusal.take());
            let response = ready.call(request).await.map_err(WaitServiceError::Service)?;
            let (mut head, body) = response.into_parts();
            let answer = paced.read(&head);
            paced.learn(&self.key, &answer, number);
            head.extensions.insert(RequestNumber(number));
            let response = Response::from_parts(head, body);
            match copied.filter(|_| answer.is_refusal) {
                None => return Ok(response.map(|body| hold.hold(body, Some(turn)))),
                Some(copied) => request = copied,
            }
            retries -= 1;
            (refusal, rest) = (Some(response), self.rest());
        }
    }

    /// Waits for a turn, but at most for `rest`.
    async fn turn(&self, rest: Option<Duration>) -> Result<L::Turn, WaitError> {
        match rest {
            None => self.queue.until_n(&self.key, self.cost).await,
            Some(rest) => self.queue.until_n_within(&self.key, self.cost, rest).await,
        }
    }

    /// Returns the part of the maximum wait that is left.
    fn rest(&self) -> Option<Duration> {
        let elapsed = self.queue.limiter().now().since(self.begin);
        self.max_wait.map(|max_wait| max_wait.saturating_sub(elapsed))
    }
}
