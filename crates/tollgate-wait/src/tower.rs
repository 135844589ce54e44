//! A tower service that waits before it calls the service inside.
//!
//! The queue are in an `Arc` that all clones share, and a request waits in the future of its call:
//! a service that waited in `poll_ready` would let one request hold up all others of its
//! connection, and each clone would have a limit of its own.

use crate::limiter::Waitable;
use crate::outcome::WaitError;
use crate::queue::WaitQueue;
use crate::sleep::{Sleep, TokioSleep};
use std::error::Error;
use std::fmt;
use std::future::{Future, poll_fn};
use std::hash::Hash;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tower_layer::Layer;
use tower_service::Service;

/// A layer whose service waits for the turn of each request.
///
/// ```
/// use std::sync::Arc;
/// use std::time::Duration;
/// use tollgate::{Limiter, Quota};
/// use tollgate_wait::{WaitLayer, WaitQueue};
/// use tower::{Layer, Service, ServiceExt, service_fn};
///
/// # async fn call(host: String) -> Result<String, std::io::Error> { Ok(host) }
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let limiter: Limiter<String> = Limiter::builder(Quota::per_second(5)).build()?;
/// # let sleep = tokio::time::sleep;
/// let queue = Arc::new(WaitQueue::with_sleep(limiter, sleep));
/// // Requests are names of hosts here; each costs a token of its host.
/// let layer = WaitLayer::new(queue, |host: &String| (host.clone(), 1));
/// let layer = layer.max_wait(Duration::from_secs(2));
/// let mut service = layer.layer(service_fn(call));
/// service.ready().await?.call("api.example.com".to_owned()).await?;
/// # Ok(())
/// # }
/// ```
pub struct WaitLayer<L, K, S = TokioSleep> {
    queue: Arc<WaitQueue<L, S>>,
    key: K,
    max_wait: Option<Duration>,
}

impl<L, K, S> WaitLayer<L, K, S> {
    /// A layer before which requests wait in `queue`. `key` says for which key, and what they
    /// cost.
    pub fn new(queue: Arc<WaitQueue<L, S>>, key: K) -> Self {
        Self { queue, key, max_wait: None }
    }

    /// The longest wait. A request whose turn cannot come by then fails at once.
    #[must_use]
    pub fn max_wait(self, max_wait: Duration) -> Self {
        Self { max_wait: Some(max_wait), ..self }
    }
}

impl<L, K: Clone, S> Clone for WaitLayer<L, K, S> {
    fn clone(&self) -> Self {
        Self { queue: Arc::clone(&self.queue), key: self.key.clone(), max_wait: self.max_wait }
    }
}

impl<L, K, S> fmt::Debug for WaitLayer<L, K, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WaitLayer").field("queue", &self.queue).finish_non_exhaustive()
    }
}

impl<I, L, K: Clone, S> Layer<I> for WaitLayer<L, K, S> {
    type Service = WaitService<I, L, K, S>;

    fn layer(&self, inner: I) -> Self::Service {
        WaitService { inner, layer: self.clone() }
    }
}

/// The service of a [`WaitLayer`]. It is always ready, and its clones share the queue.
pub struct WaitService<I, L, K, S = TokioSleep> {
    inner: I,
    layer: WaitLayer<L, K, S>,
}

impl<I: Clone, L, K: Clone, S> Clone for WaitService<I, L, K, S> {
    fn clone(&self) -> Self {
        Self { inner: self.inner.clone(), layer: self.layer.clone() }
    }
}

impl<I: fmt::Debug, L, K, S> fmt::Debug for WaitService<I, L, K, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WaitService").field("inner", &self.inner).field("layer", &self.layer).finish()
    }
}

/// Why a call through a [`WaitService`] failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WaitServiceError<E> {
    /// Its turn did not come. The service inside was not called.
    Wait(WaitError),
    /// The error of the service inside.
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

impl<I, L, K, S, R, Q> Service<R> for WaitService<I, L, K, S>
where
    I: Service<R> + Clone + Send + 'static,
    I::Future: Send,
    R: Send + 'static,
    K: Fn(&R) -> (Q, u64),
    L: Waitable<Q> + Send + Sync + 'static,
    Q: Hash + Send + Sync + 'static,
    S: Sleep<Sleeping: Send> + Send + Sync + 'static,
{
    type Response = I::Response;
    type Error = WaitServiceError<I::Error>;
    type Future = Pin<Box<dyn Future<Output = Result<I::Response, Self::Error>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: R) -> Self::Future {
        let (key, cost) = (self.layer.key)(&request);
        let queue = Arc::clone(&self.layer.queue);
        let max_wait = self.layer.max_wait;
        let mut inner = self.inner.clone();
        Box::pin(async move {
            let turn = match max_wait {
                Some(max_wait) => queue.until_n_within(&key, cost, max_wait).await,
                None => queue.until_n(&key, cost).await,
            };
            turn.map_err(WaitServiceError::Wait)?;
            poll_fn(|cx| inner.poll_ready(cx)).await.map_err(WaitServiceError::Service)?;
            inner.call(request).await.map_err(WaitServiceError::Service)
        })
    }
}
