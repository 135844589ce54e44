//! [`Paced`]: a limiter that obeys the limits of servers.

mod pace;
mod paces;
mod pause;

use crate::answer::Answer;
use crate::limiter::Waitable;
use crate::permit::NextWaiter;
use http::response::Parts;
use pace::Pace;
use paces::{PaceId, Paces};
use pause::Pause;
use std::fmt;
use std::hash::Hash;
use std::time::{Duration, SystemTime};
use tollgate::{Clock, Decision, DecisionParts, DecisionSource, Outcome, Quota};

/// A limiter for requests to servers that enforce their own limits. A request is admitted if the
/// inner limiter admits it and the server's responses permit it.
///
/// Put this limiter into a [`WaitQueue`](crate::WaitQueue), and call [`learn`](Self::learn) with
/// each response. ([`WaitLayer`](crate::WaitLayer) does this automatically.) The limiter applies
/// these rules to each key:
///
/// - A response with the status 429, 503 or 529 is a refusal. It pauses the key for the time in
///   `Retry-After`, or else until the last reset time of the limits that are used up. Without such
///   a time, the key is paused for a random time from half a second to a second. Each further
///   refusal in a row doubles this time, up to a minute. A function that is passed to
///   [`read_with`](Self::read_with) recognizes other refusals.
/// - If a response contains the remaining amount of a limit, at most this many requests follow
///   until the limit's time ends, and they are spread over this time. Processes that use the same
///   limit share the remaining amount without any communication. While more than half of the quota
///   remains, requests are never more than a second apart, however long the limit's window is. (A
///   response usually arrives within a second, so each process notices in time when half of the
///   quota is left.) If a response contains several limits, the slowest one counts.
/// - The key returns to the inner limiter's quota one window after the limit's time, unless a
///   response has repeated the limit.
///
/// As the inner limiter, choose a limiter with a generous quota for each host: it is the only limit
/// until the first response arrives.
///
/// ```
/// use http::{HeaderMap, StatusCode};
/// use std::time::{Duration, SystemTime};
/// use tollgate::{Limiter, Quota};
/// use tollgate_wait::{Answer, Paced, WaitError, WaitQueue};
///
/// let limiter: Limiter<String> = Limiter::builder(Quota::per_second(100)).build()?;
/// let queue = WaitQueue::new(Paced::new(limiter));
/// queue.block_until_ready("api.example.com")?;
/// let number = queue.limiter().number("api.example.com");
/// // Send the request. The server refuses it:
/// let mut headers = HeaderMap::new();
/// headers.insert("retry-after", "20".parse()?);
/// let answer = Answer::read(StatusCode::TOO_MANY_REQUESTS, &headers, SystemTime::now());
/// queue.limiter().learn("api.example.com", &answer, number);
///
/// let max_wait = Duration::from_secs(5);
/// let refused = queue.block_until_ready_within("api.example.com", max_wait);
/// assert!(matches!(refused, Err(WaitError::TooLong { .. })));
/// queue.block_until_ready("other.example.com")?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Long waits
///
/// A server may state a wait of hours. A caller with a maximum wait, such as
/// [`WaitLayer::max_wait`](crate::WaitLayer::max_wait), then fails at once, and
/// [`WaitError::TooLong`](crate::WaitError::TooLong) contains the server's time. A caller accepts
/// the wait by a maximum that is long enough, or by having none. No key is paused for more than
/// [`max_pause`](Self::max_pause), a day by default.
///
/// Some servers state a short time although the quota of the whole day is used up. If the body
/// reports this, a function that is passed to [`read_with`](Self::read_with) sets
/// [`retry_after`](Answer::retry_after) to the time until the next day. A caller with a maximum
/// wait then receives the refusal, and later callers fail at once.
///
/// # Limits
///
/// - *A request has the same cost at the server as here*, usually 1. Limits that count another
///   unit, such as bytes or tokens, have an effect only when nothing remains.
/// - *A limit without a window and a reset time has no effect*, because no rate follows from it.
///   `X-Shopify-Shop-Api-Call-Limit: 39/40` is such a limit.
/// - *A limit without a window is taken to renew its whole quota at its reset time.* From the reset
///   to the next response, requests may be faster than the quota's average rate.
/// - *The time in [`WaitError::TooLong`](crate::WaitError::TooLong) is an estimate*, because the
///   pace changes with each response. While the server's pace delays a key, this time does not
///   include the delay caused by the inner limiter.
/// - *A pace belongs to one process.* Other processes learn from the responses that they receive.
/// - *The memory is bounded.* At most [`max_keys`](Self::max_keys) keys have a pace.
pub struct Paced<L> {
    limiter: L,
    paces: Paces,
    clock: Clock,
    read: Option<Box<Read>>,
    max_pause: Duration,
    max_keys: usize,
}

/// A function that completes the answer that was read from the head of a response.
type Read = dyn Fn(&Parts, &mut Answer) + Send + Sync;

impl<L> Paced<L> {
    /// Creates a limiter that obeys both `limiter` and the limits of servers.
    pub fn new(limiter: L) -> Self {
        Self {
            limiter,
            paces: Paces::default(),
            clock: Clock::default(),
            read: None,
            max_pause: Duration::from_secs(24 * 3600),
            max_keys: 65_536,
        }
    }

    /// Sets a function that completes or corrects each [`Answer`] that [`read`](Self::read)
    /// returns. A [`WaitLayer`](crate::WaitLayer) reads all responses in this way, before it
    /// decides whether a request is sent again. The function receives the head of the response, and
    /// the answer according to the fields of the head. It can set these values:
    ///
    /// - [`is_refusal`](Answer::is_refusal), for a refusal with a status such as 400, 403 or 418,
    ///   or for a 503 that is none.
    /// - [`retry_after`](Answer::retry_after), for a time that is not in the known fields. This
    ///   time replaces the backoff. With zero or `None`, a refusal causes a backoff.
    /// - [`is_global`](Answer::is_global), for a refusal that applies to all keys. If keys are
    ///   routes, other routes of the server are then also paused. All keys of this limiter are
    ///   paused, so use a `Paced` for each server that refuses in this way.
    ///
    /// The function does not receive the body, which may be a stream. If the body of an error
    /// matters, the code that reads the body adds its content to the extensions of the head. In a
    /// client with layers, this is the service below the `WaitLayer`, as in the example. For an
    /// error that arrives later, in the stream of a success, see [`learn`](Self::learn).
    ///
    /// This client recognizes a secondary limit of GitHub, the delay in the body of a Google API, a
    /// ban with the status 418, and a global limit of Discord:
    ///
    /// ```
    /// # #[cfg(feature = "tower")] mod client {
    /// use bytes::Bytes;
    /// use http::{Request, Response, StatusCode};
    /// use http_body_util::{BodyExt, Full};
    /// use std::{error::Error, io, sync::Arc, time::Duration};
    /// use tollgate::{Limiter, Quota};
    /// use tollgate_wait::{Paced, WaitLayer, WaitQueue, idempotent};
    /// use tower::{BoxError, ServiceBuilder, ServiceExt};
    ///
    /// /// The body of an error.
    /// #[derive(Clone)]
    /// struct ErrorBody(Bytes);
    ///
    /// /// Reads the whole body of a response. That of an error is added to the extensions.
    /// async fn read_error<B>(response: Response<B>) -> Result<Response<Full<Bytes>>, io::Error>
    /// where
    ///     B: http_body::Body<Data = Bytes, Error: Into<BoxError>>,
    /// {
    ///     let (mut head, body) = response.into_parts();
    ///     let body = body.collect().await.map_err(io::Error::other)?.to_bytes();
    ///     if head.status.is_client_error() || head.status.is_server_error() {
    ///         head.extensions.insert(ErrorBody(body.clone()));
    ///     }
    ///     Ok(Response::from_parts(head, Full::new(body)))
    /// }
    ///
    /// /// Returns the delay in `{"error": {"details": [{"retryDelay": "45.837906927s"}]}}`.
    /// # pub
    /// fn retry_delay(body: &[u8]) -> Option<Duration> {
    ///     let body: serde_json::Value = serde_json::from_slice(body).ok()?;
    ///     let details = body["error"]["details"].as_array()?;
    ///     let delay = details.iter().find_map(|detail| detail["retryDelay"].as_str())?;
    ///     Duration::try_from_secs_f64(delay.strip_suffix('s')?.parse().ok()?).ok()
    /// }
    ///
    /// # pub
    /// async fn call(request: Request<Full<Bytes>>) -> Result<Response<Full<Bytes>>, Box<dyn Error>> {
    ///     let limiter: Limiter<String> = Limiter::builder(Quota::per_second(50)).build()?;
    ///     let paced = Paced::new(limiter).read_with(|head, answer| {
    ///         let body = head.extensions.get::<ErrorBody>().map(|ErrorBody(body)| &body[..]);
    ///         let text = String::from_utf8_lossy(body.unwrap_or_default());
    ///         answer.is_refusal |= head.status == StatusCode::IM_A_TEAPOT;
    ///         answer.is_global = head.headers.contains_key("x-ratelimit-global");
    ///         if let Some(delay) = body.and_then(retry_delay) {
    ///             answer.retry_after = Some(delay);
    ///         }
    ///         if head.status == StatusCode::FORBIDDEN && text.contains("secondary rate limit") {
    ///             answer.is_refusal = true;
    ///             // GitHub asks for at least a minute, unless it states a time.
    ///             answer.retry_after.get_or_insert(Duration::from_secs(60));
    ///         }
    ///     });
    ///     let queue = Arc::new(WaitQueue::with_sleep(paced, tokio::time::sleep));
    ///     let host = |it: &Request<Full<Bytes>>| (it.uri().host().unwrap_or_default().to_owned(), 1);
    ///     let client = ServiceBuilder::new()
    ///         .layer(WaitLayer::new(queue, host).retries(3, idempotent))
    ///         .and_then(read_error)
    ///         .service_fn(send);
    ///     Ok(client.oneshot(request).await?)
    /// }
    /// # async fn send(_: Request<Full<Bytes>>) -> Result<Response<Full<Bytes>>, io::Error> {
    /// #     Ok(Response::new(Full::default()))
    /// # }
    /// # }
    /// # #[cfg(feature = "tower")]
    /// # tokio::runtime::Runtime::new()?.block_on(async {
    /// #     let body = br#"{"error": {"details": [{}, {"retryDelay": "45.837906927s"}]}}"#;
    /// #     let delay = std::time::Duration::new(45, 837_906_927);
    /// #     assert_eq!(client::retry_delay(body), Some(delay));
    /// #     client::call(http::Request::default()).await.unwrap();
    /// # });
    /// # Ok::<(), std::io::Error>(())
    /// ```
    #[must_use]
    pub fn read_with(mut self, read: impl Fn(&Parts, &mut Answer) + Send + Sync + 'static) -> Self {
        self.read = Some(Box::new(read));
        self
    }

    /// Sets the maximum duration of a pause, and the maximum reset time and window of a limit. The
    /// default is a day. If a server states a longer time, it is called again after this maximum.
    /// Until then, the error of a caller that does not wait contains the server's time.
    #[must_use]
    pub fn max_pause(mut self, max_pause: Duration) -> Self {
        self.max_pause = max_pause;
        self
    }

    /// Sets the maximum number of keys that have a pace at the same time, rounded up to a multiple
    /// of 16. The default is 65,536. Beyond this number, each new key replaces the key whose pace
    /// ends first. A key occupies about 200 bytes.
    #[must_use]
    pub fn max_keys(mut self, max_keys: usize) -> Self {
        self.max_keys = max_keys;
        self
    }

    /// Sets the clock that measures the times of limits and pauses, such as a
    /// [`ManualClock`](tollgate::ManualClock) in tests.
    #[must_use]
    pub fn clock(mut self, clock: impl Into<Clock>) -> Self {
        self.clock = clock.into();
        self
    }

    /// Returns the inner limiter.
    pub fn limiter(&self) -> &L {
        &self.limiter
    }

    /// Returns the number of keys that have a pace. This number may include paces that have ended
    /// recently.
    ///
    /// # Progress
    ///
    /// This method takes all locks of the paces, one after another.
    pub fn known_keys(&self) -> usize {
        self.paces.len()
    }

    /// Returns the number of the last admitted request of `key`, or 0 while the key has no pace.
    /// Read the number when you send a request, and pass it to [`learn`](Self::learn).
    ///
    /// # Progress
    ///
    /// This method takes a lock, shared by a 16th of the keys, for a few instructions.
    pub fn number<Q>(&self, key: &Q) -> u64
    where
        L: Waitable<Q>,
        Q: Hash + ?Sized,
    {
        self.paces.known(self.paces.id(key), self.clock.now(), |pace| pace.admitted()).unwrap_or_default()
    }

    /// Reads the head of a response that has just been received: first with [`Answer::read`], and
    /// then with the function that was passed to [`read_with`](Self::read_with).
    ///
    /// ```
    /// # use http::Response;
    /// # use tollgate::{Quota, SingleLimiter};
    /// # use tollgate_wait::Paced;
    /// let paced = Paced::new(SingleLimiter::builder(Quota::per_second(50)).build()?)
    ///     .read_with(|head, answer| answer.is_refusal |= head.status == 418);
    /// let number = paced.number(&());
    /// # let (status, body) = (418, ());
    /// let (head, body) = Response::builder().status(status).body(body)?.into_parts();
    /// paced.learn(&(), &paced.read(&head), number);
    /// assert!(!paced.paused_for(&()).is_zero());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn read(&self, head: &Parts) -> Answer {
        let mut answer = Answer::read(head.status, &head.headers, SystemTime::now());
        if let Some(read) = &self.read {
            read(head, &mut answer);
        }
        answer
    }

    /// Updates the pace of `key` from the response to the request with this
    /// [`number`](Self::number). The response's remaining amount does not account for later
    /// requests.
    ///
    /// Some servers refuse a request in the stream of a success. Call this method again with a
    /// refusal and the same number, and the backoff grows as if the head had been the refusal. A
    /// [`WaitLayer`](crate::WaitLayer) learns from each head by itself, and adds the number to the
    /// extensions of the response, as a [`RequestNumber`](crate::RequestNumber). It does not resend
    /// such a request, because its caller already has the response.
    ///
    /// ```
    /// # use http::Response;
    /// # use std::time::Duration;
    /// # use tollgate::{Quota, SingleLimiter};
    /// # use tollgate_wait::{Answer, Paced};
    /// # let paced = Paced::new(SingleLimiter::builder(Quota::per_second(50)).build()?);
    /// # let (head, number) = (Response::new(()).into_parts().0, paced.number(&()));
    /// paced.learn(&(), &paced.read(&head), number);
    /// // Later, the stream contains `{"type": "overloaded_error"}`.
    /// let mut answer = Answer::default();
    /// answer.is_refusal = true;
    /// paced.learn(&(), &answer, number);
    /// assert!(!paced.paused_for(&()).is_zero());
    ///
    /// // Or it contains `"retryDelay": "45s"`.
    /// answer.retry_after = Some(Duration::from_secs(45));
    /// paced.learn(&(), &answer, number);
    /// assert!(paced.paused_for(&()) > Duration::from_secs(44));
    /// # Ok::<(), tollgate::ConfigError>(())
    /// ```
    ///
    /// # Progress
    ///
    /// This method takes a lock, shared by a 16th of the keys, for a few instructions. If there is
    /// no space for another key, the method holds the lock while it visits all keys in that 16th. A
    /// response that pauses all keys takes all locks, one after another.
    pub fn learn<Q>(&self, key: &Q, answer: &Answer, number: u64)
    where
        L: Waitable<Q>,
        Q: Hash + ?Sized,
    {
        let says_nothing = answer.limits.is_empty() && answer.retry_after.is_none() && !answer.is_refusal;
        let (id, now) = (self.paces.id(key), self.clock.now());
        let learn = |pace: &mut Pace| pace.learn(answer, number, now, self.max_pause, fastrand::f64);
        if says_nothing {
            self.paces.known(id, now, learn);
            return;
        }
        let paused = self.paces.learn(id, self.max_keys, now, learn);
        if answer.is_global && !paused.is_zero() {
            self.paces.pause_all(Pause::new(paused, now, self.max_pause), now);
        }
    }

    /// Returns how long `key` is still paused after a refusal, or zero if it is not paused. This is
    /// at most [`max_pause`](Self::max_pause), even if the server has stated a longer time.
    ///
    /// # Progress
    ///
    /// This method takes a lock, shared by a 16th of the keys, for a few instructions.
    pub fn paused_for<Q>(&self, key: &Q) -> Duration
    where
        L: Waitable<Q>,
        Q: Hash + ?Sized,
    {
        let now = self.clock.now();
        self.paces.known(self.paces.id(key), now, |pace| pace.pause(now)).unwrap_or_default()
    }

    #[cfg(feature = "tower")]
    pub(crate) fn now(&self) -> tollgate::Tick {
        self.clock.now()
    }

    /// Returns a request of `key` whose turn has come.
    #[cfg(feature = "tower")]
    pub(crate) fn unsent<Q>(&self, key: &Q, cost: u64) -> Unsent<'_, L>
    where
        L: Waitable<Q>,
        Q: Hash + ?Sized,
    {
        Unsent { paced: self, id: self.paces.id(key), cost, number: self.number(key) }
    }

    /// Creates the answer to a request that the server's pace delays. A cost above the capacity can
    /// never be admitted, so its answer has no wait.
    fn held_back(&self, cost: u64, capacity: u64, wait: Duration) -> Decision {
        let fits = cost <= capacity;
        Decision::from(DecisionParts {
            outcome: if fits { Outcome::Denied } else { Outcome::TooCostly },
            cost,
            capacity,
            remaining: 0,
            wait: fits.then_some(wait),
            reset_after: wait,
            refill_after: wait,
            at: self.clock.now(),
            source: DecisionSource::Policy,
        })
    }
}

/// A request that has passed the pace and is now being checked by the inner limiter. If its future
/// is dropped, the request counts as not admitted.
struct Asking<'p, L> {
    paced: &'p Paced<L>,
    id: PaceId,
    cost: u64,
    is_admitted: bool,
}

impl<L> Drop for Asking<'_, L> {
    fn drop(&mut self) {
        self.paced
            .paces
            .known(self.id, self.paced.clock.now(), |pace| pace.asked(self.cost, self.is_admitted));
    }
}

/// A request that was admitted and is not sent yet. If this value is dropped, the request uses none
/// of the server's remaining amount.
#[cfg(feature = "tower")]
pub(crate) struct Unsent<'p, L> {
    paced: &'p Paced<L>,
    id: PaceId,
    cost: u64,
    /// The number of the request, or 0 if the key had no pace or the request has been sent.
    number: u64,
}

#[cfg(feature = "tower")]
impl<L> Unsent<'_, L> {
    /// Returns the number of the request, which is sent now.
    pub(crate) fn send(mut self) -> u64 {
        std::mem::take(&mut self.number)
    }
}

#[cfg(feature = "tower")]
impl<L> Drop for Unsent<'_, L> {
    fn drop(&mut self) {
        if self.number > 0 {
            let now = self.paced.clock.now();
            self.paced.paces.known(self.id, now, |pace| pace.take_back(self.number, self.cost));
        }
    }
}

impl<L, Q> Waitable<Q> for Paced<L>
where
    L: Waitable<Q> + Sync,
    Q: Hash + Sync + ?Sized,
{
    type Turn = L::Turn;

    async fn take(&self, key: &Q, cost: u64, next: NextWaiter<'_>) -> Result<L::Turn, Decision> {
        let (id, now) = (self.paces.id(key), self.clock.now());
        let asked = self.paces.known(id, now, |pace| pace.ask(cost, now));
        let mut asking = match asked {
            Some(Err(wait)) => return Err(self.held_back(cost, self.limiter.quota(key).capacity(), wait)),
            Some(Ok(())) => Some(Asking { paced: self, id, cost, is_admitted: false }),
            None => None,
        };
        let turn = self.limiter.take(key, cost, next).await;
        // The server may have refused another request while the inner limiter was checking this
        // one, because a shared limiter takes time to check. In this case, the caller keeps its
        // place in the queue, and the tokens are lost.
        let now = self.clock.now();
        let pause = self.paces.known(id, now, |pace| pace.stated_pause(now)).unwrap_or_default();
        if turn.is_ok() && !pause.is_zero() {
            return Err(self.held_back(cost, self.limiter.quota(key).capacity(), pause));
        }
        if let Some(asking) = &mut asking {
            asking.is_admitted = turn.is_ok();
        }
        turn
    }

    async fn peek_n(&self, key: &Q, cost: u64) -> Decision {
        let now = self.clock.now();
        let wait =
            self.paces.known(self.paces.id(key), now, |pace| pace.wait(0, cost, now)).unwrap_or_default();
        if wait.is_zero() {
            return self.limiter.peek_n(key, cost).await;
        }
        self.held_back(cost, self.limiter.quota(key).capacity(), wait)
    }

    /// Returns the slower of the inner limiter's quota and the server's pace. Permits have no rate,
    /// so their quota is returned unchanged.
    fn quota(&self, key: &Q) -> Quota {
        let (own, now) = (self.limiter.quota(key), self.clock.now());
        let spacing = self.paces.known(self.paces.id(key), now, |pace| pace.spacing(now)).flatten();
        match spacing {
            Some(spacing)
                if !own.period().is_zero()
                    && spacing.as_nanos() * u128::from(own.tokens()) > own.period().as_nanos() =>
            {
                Quota::new(1, spacing).burst(own.capacity())
            }
            _ => own,
        }
    }

    fn quota_of(&self, key: &Q, answer: &Decision) -> Quota {
        self.limiter.quota_of(key, answer)
    }

    fn pace_wait(&self, key: &Q, before: u64, cost: u64) -> Option<Duration> {
        let now = self.clock.now();
        let own = self.limiter.pace_wait(key, before, cost);
        own.max(self.paces.known(self.paces.id(key), now, |pace| pace.wait(before, cost, now)))
    }

    async fn in_flight(&self, key: &Q) -> Option<u64> {
        self.limiter.in_flight(key).await
    }
}

impl<L: fmt::Debug> fmt::Debug for Paced<L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Paced")
            .field("limiter", &self.limiter)
            .field("max_pause", &self.max_pause)
            .field("max_keys", &self.max_keys)
            .field("known_keys", &self.known_keys())
            .finish_non_exhaustive()
    }
}
