//! [`WaitQueue`]: the queues of all keys of a limiter.

use crate::driver::Wait;
use crate::limiter::Waitable;
use crate::lines::Lines;
use crate::outcome::WaitError;
use crate::settings::Settings;
use crate::sleep::{Sleep, TokioSleep};
use crate::thread::{Alarm, block_on};
use std::fmt;
use std::hash::Hash;
use std::sync::Arc;
use std::time::Duration;

/// A limiter whose callers wait for their turn. Each key that has waiters has a queue.
///
/// [The crate's page](crate) lists the guarantees. `L` is a [`Limiter`](tollgate::Limiter), a
/// [`SingleLimiter`](tollgate::SingleLimiter) (whose only key is `()`), an
/// [`InFlight`](tollgate::InFlight), or a shared limiter. It may also be a pair of a rate and a
/// limit on the requests in flight. References to these limiters and `Arc`s of them also work. `S`
/// creates the async methods' sleeps.
///
/// If two `WaitQueue`s use one limiter, each queue has its own order.
///
/// A wait returns the [`Waitable::Turn`] of the limiter. That value is a [`Turn`](crate::Turn) for
/// a rate, or a permit, such as [`Held<Permit>`](crate::Held) for an `InFlight`.
///
/// ```
/// use std::time::Duration;
/// use tollgate::{Limiter, Quota, SingleLimiter};
/// use tollgate_wait::{WaitError, WaitQueue};
///
/// fn write(disks: &WaitQueue<Limiter<String>>) -> Result<(), WaitError> {
///     disks.block_until_ready("sda")?;
///     disks.block_until_n_within("sdb", 3, Duration::from_secs(2))?;
///     Ok(())
/// }
///
/// let limiter = Limiter::builder(Quota::per_second(1_000).burst(3)).build()?;
/// write(&WaitQueue::new(limiter).max_waiters_per_key(100))?;
///
/// let calls = WaitQueue::new(SingleLimiter::builder(Quota::per_second(1_000)).build()?);
/// calls.block_until_ready(&())?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct WaitQueue<L, S = TokioSleep> {
    limiter: L,
    sleep: S,
    settings: Settings,
    lines: Arc<Lines>,
}

impl<L> WaitQueue<L> {
    /// Creates a queue in front of `limiter`, for threads, and for async code that sleeps with
    /// tokio's timer.
    ///
    /// The async methods require the feature `tokio`.
    pub fn new(limiter: L) -> Self {
        Self::with_sleep(limiter, TokioSleep)
    }
}

impl<L, S> WaitQueue<L, S> {
    /// Creates a queue in front of `limiter` whose async methods sleep with `sleep`. The function
    /// `sleep` receives a duration of up to [`Duration::MAX`], and returns a future that is ready
    /// after this duration.
    ///
    /// ```
    /// # use std::time::Duration;
    /// use tollgate::{Limiter, Quota};
    /// use tollgate_wait::WaitQueue;
    ///
    /// # async fn async_io_timer(_: Duration) {}
    /// let limiter: Limiter<String> = Limiter::builder(Quota::per_second(5)).build()?;
    /// let queue = WaitQueue::with_sleep(limiter, |time| async_io_timer(time));
    /// # pollster::block_on(queue.until_ready("alice"))?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn with_sleep(limiter: L, sleep: S) -> Self {
        Self { limiter, sleep, settings: Settings::default(), lines: Arc::default() }
    }

    /// Sets the maximum number of callers that may wait at the same time for all keys together. The
    /// default is 65,536. Further callers are refused with
    /// [`WaitError::Full`](crate::WaitError::Full). With 0, no caller waits. Waiters that return to
    /// a place that they have lost (see [`patience`](Self::patience)) are not refused, so the
    /// number of waiters may exceed the maximum.
    #[must_use]
    pub fn max_waiters(mut self, max_waiters: usize) -> Self {
        self.settings.max_waiters = max_waiters;
        self
    }

    /// Sets the maximum number of callers that may wait at the same time for one key. The default
    /// is 1,024. Further callers are refused with [`WaitError::Full`](crate::WaitError::Full). With
    /// 0, no caller waits. Waiters that return to a place that they have lost (see
    /// [`patience`](Self::patience)) are not refused, so the number of waiters may exceed the
    /// maximum.
    #[must_use]
    pub fn max_waiters_per_key(mut self, max_waiters_per_key: usize) -> Self {
        self.settings.max_waiters_per_key = max_waiters_per_key;
        self
    }

    /// Sets how long a waiter may take to act once its turn has arrived. A waiter that takes longer
    /// loses its place to the waiters behind it. It delays them by about this time, or by the
    /// length of its last sleep if that is longer, and in a long line by at most twenty times this
    /// time. The default is one second.
    ///
    /// If this time is shorter than the delays of a busy runtime, or than a check of a shared
    /// limit, waiters lose their places, but the limit still holds. Note that a container that has
    /// exhausted its processor quota is stopped for up to one period of the quota, usually 100 ms,
    /// or for several periods if it has many threads.
    #[must_use]
    pub fn patience(mut self, patience: Duration) -> Self {
        self.settings.patience = patience;
        self
    }

    /// Adds a random time from zero to `jitter` to each sleep of the first waiter. Jitter prevents
    /// many processes with the same limit from calling at the same instant. The default is zero. A
    /// wait that was accepted with no time to spare may expire because of the jitter.
    #[must_use]
    pub fn jitter(mut self, jitter: Duration) -> Self {
        self.settings.jitter = jitter;
        self
    }

    /// Sets the maximum time for which the first waiter of a key sleeps before it checks the
    /// limiter again. The default is one second, and the minimum is a millisecond.
    ///
    /// These checks detect changes that do not wake the first waiter: a refund, a reset, a larger
    /// quota, a returned permit that was taken without the queue, and, for a shared limit, any
    /// change on another machine. Each key with waiters causes one check in each interval.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use tollgate::{Limiter, Quota};
    /// # use tollgate_wait::WaitQueue;
    /// let limiter: Limiter<String> = Limiter::builder(Quota::per_hour(5)).build()?;
    /// let queue = WaitQueue::new(limiter).recheck(Duration::from_millis(200));
    /// # Ok::<(), tollgate::ConfigError>(())
    /// ```
    #[must_use]
    pub fn recheck(mut self, recheck: Duration) -> Self {
        self.settings.recheck = recheck.max(Duration::from_millis(1));
        self
    }

    /// Returns the limiter, for checks without waiting and for changing its settings.
    pub fn limiter(&self) -> &L {
        &self.limiter
    }

    /// Returns the total number of waiting callers for all keys.
    ///
    /// # Progress
    ///
    /// This method is wait-free.
    pub fn waiting(&self) -> usize {
        self.lines.waiting()
    }

    /// Returns the number of keys that have waiters.
    ///
    /// # Progress
    ///
    /// This method takes all locks of the queue, one after another.
    pub fn waiting_keys(&self) -> usize {
        self.lines.keys()
    }

    /// Closes the queue for good, for example at a shutdown. All waiters are woken and receive
    /// [`WaitError::Closed`] at once, without a charge, and so does every later caller, even if its
    /// token is available. Turns and permits that were received before are not affected, and the
    /// [`limiter`](Self::limiter) still answers checks. If wakers panic, all other waiters are
    /// woken before the first panic reaches the caller.
    ///
    /// A caller whose check of a shared limit is in progress may still receive its turn.
    ///
    /// # Progress
    ///
    /// This method takes all locks of the queue, one after another.
    ///
    /// ```
    /// # use std::{sync::Arc, thread};
    /// # use tollgate::{Quota, SingleLimiter};
    /// # use tollgate_wait::{WaitError, WaitQueue};
    /// let queue = Arc::new(WaitQueue::new(SingleLimiter::builder(Quota::per_hour(1)).build()?));
    /// queue.block_until_ready(&())?;
    /// let waits = Arc::clone(&queue);
    /// let waiter = thread::spawn(move || waits.block_until_ready(&()));
    /// queue.close();
    /// assert_eq!(waiter.join().unwrap(), Err(WaitError::Closed));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn close(&self) {
        self.lines.close();
    }

    /// Waits until `key` has a token or a permit, and takes it.
    ///
    /// # Errors
    ///
    /// Returns [`WaitError::Full`] if too many callers are waiting. Returns
    /// [`WaitError::NoRetryTime`] if the limiter has no space for the key, or replaces an
    /// unreachable store. Returns [`WaitError::Closed`] if the queue is [closed](Self::close).
    ///
    /// # Progress
    ///
    /// If no caller waits and the token is available, this method performs a single check.
    /// Otherwise, it repeatedly takes a lock, shared by a 64th of the queue's keys, for a few
    /// instructions. Dropping the future at any point charges no token.
    ///
    /// ```
    /// # use tollgate::{Limiter, Quota};
    /// # use tollgate_wait::WaitQueue;
    /// # let limiter: Limiter<String> = Limiter::builder(Quota::per_second(5)).build()?;
    /// # let queue = WaitQueue::with_sleep(limiter, |_| std::future::ready(()));
    /// # pollster::block_on(async {
    /// let turn = queue.until_ready("alice").await?;
    /// assert_eq!(turn.remaining(), 4);
    /// # Ok::<(), tollgate_wait::WaitError>(())
    /// # })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub async fn until_ready<Q>(&self, key: &Q) -> Result<L::Turn, WaitError>
    where
        L: Waitable<Q>,
        Q: Hash + ?Sized,
        S: Sleep,
    {
        self.wait(key, 1, None, &self.sleep).await
    }

    /// Waits until `key` has `cost` tokens or permits, and takes them. For a pair of a rate and
    /// permits, `cost` is the number of tokens.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`until_ready`](Self::until_ready), and [`WaitError::Never`] if `cost`
    /// is above the capacity.
    ///
    /// # Progress
    ///
    /// See [`until_ready`](Self::until_ready).
    pub async fn until_n<Q>(&self, key: &Q, cost: u64) -> Result<L::Turn, WaitError>
    where
        L: Waitable<Q>,
        Q: Hash + ?Sized,
        S: Sleep,
    {
        self.wait(key, cost, None, &self.sleep).await
    }

    /// Waits until `key` has `cost` tokens, but at most for `max_wait`, and takes them.
    ///
    /// With a `max_wait` of zero, this method performs a check that overtakes no waiter, and does
    /// not wait.
    ///
    /// # Errors
    ///
    /// Returns [`WaitError::TooLong`] immediately if the wait would take longer than `max_wait`.
    /// Returns [`WaitError::Expired`] after `max_wait` if no permit was returned, if the turn was
    /// late, or if other callers took tokens without waiting. Also returns the errors of
    /// [`until_n`](Self::until_n).
    ///
    /// If a check of a shared limit is in progress when `max_wait` ends, the call may exceed
    /// `max_wait` by that check's deadline.
    ///
    /// # Repeated calls
    ///
    /// After an immediate error, the caller decides when to call again. A caller that repeats the
    /// call at once keeps a processor busy and is refused again and again. Sleep before the next
    /// call: for `max_wait`, or for the time by which `wait` exceeds it.
    ///
    /// # Progress
    ///
    /// See [`until_ready`](Self::until_ready).
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use tollgate::{Limiter, ManualClock, Quota};
    /// # use tollgate_wait::{WaitError, WaitQueue};
    /// # let builder = Limiter::builder(Quota::per_second(5)).clock(ManualClock::new());
    /// # let limiter: Limiter<String> = builder.build()?;
    /// # let queue = WaitQueue::with_sleep(limiter, |_| std::future::pending());
    /// # pollster::block_on(async {
    /// queue.until_n("alice", 5).await?;
    /// let max_wait = Duration::from_millis(300);
    /// let refused = queue.until_n_within("alice", 2, max_wait).await;
    /// assert_eq!(refused, Err(WaitError::TooLong { wait: Duration::from_millis(400), max_wait }));
    /// # Ok::<(), WaitError>(())
    /// # })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub async fn until_n_within<Q>(
        &self,
        key: &Q,
        cost: u64,
        max_wait: Duration,
    ) -> Result<L::Turn, WaitError>
    where
        L: Waitable<Q>,
        Q: Hash + ?Sized,
        S: Sleep,
    {
        self.wait(key, cost, Some(max_wait), &self.sleep).await
    }

    /// Waits until `key` has a token, but at most for `max_wait`, and takes it. This method is
    /// [`until_n_within`](Self::until_n_within) with a cost of 1.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`until_n_within`](Self::until_n_within).
    ///
    /// # Progress
    ///
    /// See [`until_ready`](Self::until_ready).
    pub async fn until_ready_within<Q>(&self, key: &Q, max_wait: Duration) -> Result<L::Turn, WaitError>
    where
        L: Waitable<Q>,
        Q: Hash + ?Sized,
        S: Sleep,
    {
        self.wait(key, 1, Some(max_wait), &self.sleep).await
    }

    /// Like [`until_ready`](Self::until_ready), but parks the current thread while it waits.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`until_ready`](Self::until_ready).
    pub fn block_until_ready<Q>(&self, key: &Q) -> Result<L::Turn, WaitError>
    where
        L: Waitable<Q>,
        Q: Hash + ?Sized,
    {
        self.block(key, 1, None)
    }

    /// Like [`until_n`](Self::until_n), but parks the current thread while it waits.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`until_n`](Self::until_n).
    pub fn block_until_n<Q>(&self, key: &Q, cost: u64) -> Result<L::Turn, WaitError>
    where
        L: Waitable<Q>,
        Q: Hash + ?Sized,
    {
        self.block(key, cost, None)
    }

    /// Like [`until_n_within`](Self::until_n_within), but parks the current thread while it waits.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`until_n_within`](Self::until_n_within).
    pub fn block_until_n_within<Q>(
        &self,
        key: &Q,
        cost: u64,
        max_wait: Duration,
    ) -> Result<L::Turn, WaitError>
    where
        L: Waitable<Q>,
        Q: Hash + ?Sized,
    {
        self.block(key, cost, Some(max_wait))
    }

    /// Like [`until_ready_within`](Self::until_ready_within), but parks the current thread while it
    /// waits.
    ///
    /// If the wait would be too long, the error is returned at once. A thread that repeats the call
    /// must therefore sleep first. Without the sleep, threads that are refused would occupy the
    /// processors:
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use tollgate::{Quota, SingleLimiter};
    /// # use tollgate_wait::{WaitError, WaitQueue};
    /// # let queue = WaitQueue::new(SingleLimiter::builder(Quota::per_second(10).burst(1)).build()?);
    /// # queue.block_until_ready(&())?;
    /// let patience = Duration::from_millis(20);
    /// loop {
    ///     match queue.block_until_ready_within(&(), patience) {
    ///         Err(WaitError::TooLong { wait, .. }) => std::thread::sleep(wait.saturating_sub(patience)),
    ///         turn => break turn.map(drop)?,
    ///     }
    /// }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Returns the errors of [`until_n_within`](Self::until_n_within).
    pub fn block_until_ready_within<Q>(&self, key: &Q, max_wait: Duration) -> Result<L::Turn, WaitError>
    where
        L: Waitable<Q>,
        Q: Hash + ?Sized,
    {
        self.block(key, 1, Some(max_wait))
    }

    fn block<Q>(&self, key: &Q, cost: u64, max_wait: Option<Duration>) -> Result<L::Turn, WaitError>
    where
        L: Waitable<Q>,
        Q: Hash + ?Sized,
    {
        let alarm = Alarm::default();
        block_on(&alarm, self.wait(key, cost, max_wait, &|time| alarm.nap(time)))
    }

    async fn wait<Q, T>(
        &self,
        key: &Q,
        cost: u64,
        max_wait: Option<Duration>,
        sleep: &T,
    ) -> Result<L::Turn, WaitError>
    where
        L: Waitable<Q>,
        Q: Hash + ?Sized,
        T: Sleep,
    {
        let Self { limiter, settings, lines, .. } = self;
        Wait { lines, settings, limiter, sleep, key, cost, max_wait }.run().await
    }
}

impl<L, S> fmt::Debug for WaitQueue<L, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WaitQueue")
            .field("settings", &self.settings)
            .field("waiting", &self.waiting())
            .finish_non_exhaustive()
    }
}
