//! [`Paced`]: a limiter that keeps to what servers say.

mod pace;
mod paces;

use crate::answer::Answer;
use crate::limiter::Waitable;
use crate::permit::NextWaiter;
use pace::Pace;
use paces::{PaceId, Paces};
use std::fmt;
use std::hash::Hash;
use std::time::Duration;
use tollgate::{Clock, Decision, DecisionParts, DecisionSource, Outcome, Quota};

/// A limiter for requests to servers that have limits of their own: it admits what the limiter
/// inside admits, and no more than the responses of the server permit.
///
/// Put it before a [`WaitQueue`](crate::WaitQueue), and let it [`learn`](Self::learn) from each
/// response, as [`WaitLayer`](crate::WaitLayer) does by itself. For each key it then keeps to this:
///
/// - A refusal, which is a response with the status 429 or 503, pauses the key for the time in
///   `Retry-After`. Without a time it pauses for half a second to a second, and for twice as long
///   after each further refusal in a row, up to a minute, each time at random.
/// - Where a response says what remains of a limit, at most that many requests follow until the
///   limit's time is over, and they are spread over it. Processes that use the same limit without
///   knowing of each other share what remains. Of several limits the slowest counts.
/// - When the server's time and a window after it are over, and no response has repeated what was
///   said, the key has the quota of the limiter inside again.
///
/// A limiter for each host with a generous quota is a good one to put inside: it is in force until
/// the first response.
///
/// ```
/// use http::{HeaderMap, StatusCode};
/// use std::time::{Duration, SystemTime};
/// use tollgate::{Limiter, Quota};
/// use tollgate_wait::{Answer, Paced, WaitError, WaitQueue};
///
/// let limiter: Limiter<str> = Limiter::builder(Quota::per_second(100)).build()?;
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
/// # Limits
///
/// - *One request costs 1 for the server*, or what it costs here. Limits that count something else,
///   such as bytes or tokens, count only when nothing remains of them.
/// - *The time in [`WaitError::TooLong`](crate::WaitError::TooLong) is an estimate*, as the pace
///   changes with each response. While the server's pace holds a key back, it does not include the
///   time for which the limiter inside would do so.
/// - *A pace belongs to one process.* Others learn from the responses that they get.
/// - *The memory is bounded*: of at most [`max_keys`](Self::max_keys) keys something is known.
pub struct Paced<L> {
    limiter: L,
    paces: Paces,
    clock: Clock,
    max_pause: Duration,
    max_keys: usize,
}

impl<L> Paced<L> {
    /// A limiter that keeps to what `limiter` and servers permit.
    pub fn new(limiter: L) -> Self {
        Self {
            limiter,
            paces: Paces::default(),
            clock: Clock::default(),
            max_pause: Duration::from_secs(3600),
            max_keys: 65_536,
        }
    }

    /// The longest pause, and the longest time and window of a limit: an hour by default. A server
    /// that asks for a longer time is called again after this one.
    #[must_use]
    pub fn max_pause(mut self, max_pause: Duration) -> Self {
        self.max_pause = max_pause;
        self
    }

    /// The most keys of which something is known at a time, rounded up to a multiple of 16: 65,536
    /// by default. For one more, that which ends first is forgotten. A key takes some 200 bytes.
    #[must_use]
    pub fn max_keys(mut self, max_keys: usize) -> Self {
        self.max_keys = max_keys;
        self
    }

    /// The clock by which times end, such as a [`ManualClock`](tollgate::ManualClock) in tests.
    #[must_use]
    pub fn clock(mut self, clock: impl Into<Clock>) -> Self {
        self.clock = clock.into();
        self
    }

    /// The limiter inside.
    pub fn limiter(&self) -> &L {
        &self.limiter
    }

    /// Of how many keys something is known, or was until lately.
    ///
    /// # Progress
    ///
    /// Takes the locks of the paces, one after another.
    pub fn known_keys(&self) -> usize {
        self.paces.len()
    }

    /// The number of the last request of `key` that was admitted. Read it when a request is sent,
    /// for [`learn`](Self::learn). It is 0 while nothing is known of the key.
    ///
    /// # Progress
    ///
    /// Takes the lock of a 16th of the keys, for some instructions.
    pub fn number<Q>(&self, key: &Q) -> u64
    where
        L: Waitable<Q>,
        Q: Hash + ?Sized,
    {
        self.paces.known(self.paces.id(key), self.clock.now(), |pace| pace.admitted()).unwrap_or_default()
    }

    /// Learns from the response to the request of `key` with this [`number`](Self::number): the
    /// server has not counted later ones in what remains.
    ///
    /// # Progress
    ///
    /// Takes the lock of a 16th of the keys, for some instructions; when the room for keys is used
    /// up, for a visit of these keys.
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
        } else {
            self.paces.learn(id, self.max_keys, now, learn);
        }
    }

    /// How long `key` is paused: the rest of the time of a refusal. Zero if it is not.
    ///
    /// # Progress
    ///
    /// Takes the lock of a 16th of the keys, for some instructions.
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

    /// The slower one of the quota of the limiter inside and of what the server permits. Permits
    /// have no rate, so their number stays.
    fn slower<Q: Hash + ?Sized>(&self, key: &Q, own: Quota) -> Quota {
        let now = self.clock.now();
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

    /// The answer for a request that the server's pace holds back.
    fn held_back(&self, cost: u64, capacity: u64, wait: Duration) -> Decision {
        Decision::from(DecisionParts {
            outcome: Outcome::Denied,
            cost,
            capacity,
            remaining: 0,
            wait: Some(wait),
            reset_after: wait,
            refill_after: wait,
            at: self.clock.now(),
            source: DecisionSource::Policy,
        })
    }
}

/// A request that has passed the pace and asks the limiter. It ends as not admitted if its future
/// is dropped.
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
        // The server may have refused another request while a shared limiter was asked. The caller
        // keeps its place in the queue, and the tokens are lost.
        let pause = self.paused_for(key);
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
        let wait = self.paces.known(self.paces.id(key), now, |pace| pace.wait(cost, now)).unwrap_or_default();
        if wait.is_zero() {
            return self.limiter.peek_n(key, cost).await;
        }
        self.held_back(cost, self.limiter.quota(key).capacity(), wait)
    }

    fn quota(&self, key: &Q) -> Quota {
        self.slower(key, self.limiter.quota(key))
    }

    fn quota_of(&self, key: &Q, answer: &Decision) -> Quota {
        self.slower(key, self.limiter.quota_of(key, answer))
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
