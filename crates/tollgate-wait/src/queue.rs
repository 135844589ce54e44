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

/// A limiter whose callers wait for their turn: a queue for each key that somebody waits for.
///
/// [The crate's page](crate) lists the guarantees. `L` is a [`Limiter`](tollgate::Limiter), a
/// [`SingleLimiter`](tollgate::SingleLimiter), whose only key is `()`, an
/// [`InFlight`](tollgate::InFlight), a shared limiter, a pair of a rate and a limit on the requests
/// in flight, or a reference or an `Arc` of one; two `WaitQueue`s of one limiter are two orders.
/// `S` makes the sleeps of the async methods.
///
/// A wait returns the [`Waitable::Turn`] of the limiter: a [`Turn`](crate::Turn) of a rate, or a
/// permit, such as [`Held<Permit>`](crate::Held) of an `InFlight`.
///
/// ```
/// use std::time::Duration;
/// use tollgate::{Limiter, Quota, SingleLimiter};
/// use tollgate_wait::{WaitError, WaitQueue};
///
/// fn write(disks: &WaitQueue<Limiter<str>>) -> Result<(), WaitError> {
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
    /// A queue before `limiter`, for threads, and for async code that sleeps by tokio's timer.
    ///
    /// The async methods need the feature `tokio`.
    pub fn new(limiter: L) -> Self {
        Self::with_sleep(limiter, TokioSleep)
    }
}

impl<L, S> WaitQueue<L, S> {
    /// A queue before `limiter` whose async methods sleep by `sleep`: a function that makes a
    /// future which is ready after the time it is given, which may be as long as [`Duration::MAX`].
    ///
    /// ```
    /// # use std::time::Duration;
    /// use tollgate::{Limiter, Quota};
    /// use tollgate_wait::WaitQueue;
    ///
    /// # async fn async_io_timer(_: Duration) {}
    /// let limiter: Limiter<str> = Limiter::builder(Quota::per_second(5)).build()?;
    /// let queue = WaitQueue::with_sleep(limiter, |time| async_io_timer(time));
    /// # pollster::block_on(queue.until_ready("alice"))?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn with_sleep(limiter: L, sleep: S) -> Self {
        Self { limiter, sleep, settings: Settings::default(), lines: Arc::default() }
    }

    /// The most callers that wait at a time, for all keys together: 65,536 by default. One more is
    /// refused with [`WaitError::Full`](crate::WaitError::Full). With 0 nobody waits.
    #[must_use]
    pub fn max_waiters(mut self, max_waiters: usize) -> Self {
        self.settings.max_waiters = max_waiters;
        self
    }

    /// The most callers that wait at a time for one key: 1,024 by default. One more is refused with
    /// [`WaitError::Full`](crate::WaitError::Full). With 0 nobody waits.
    #[must_use]
    pub fn max_waiters_per_key(mut self, max_waiters_per_key: usize) -> Self {
        self.settings.max_waiters_per_key = max_waiters_per_key;
        self
    }

    /// How long a waiter whose turn has come may take to act before it loses its place: one second
    /// by default. It delays those behind it by no more than that.
    ///
    /// A time that is shorter than the delays of a busy runtime, or than a check of a shared limit
    /// takes, costs waiters their places; nothing is admitted in excess by it. A container that has
    /// used up its processor quota stands still for up to a period of the quota, usually 100 ms,
    /// and for several periods if it has many threads.
    #[must_use]
    pub fn patience(mut self, patience: Duration) -> Self {
        self.settings.patience = patience;
        self
    }

    /// Adds a random time from zero to `jitter` to each sleep of the first waiter, so that many
    /// processes with one limit do not call at the same instant. Zero by default. A wait that is
    /// accepted as just in time may expire by it.
    #[must_use]
    pub fn jitter(mut self, jitter: Duration) -> Self {
        self.settings.jitter = jitter;
        self
    }

    /// The longest sleep of the first waiter of a key before it asks the limiter again: one second
    /// by default, at least a millisecond.
    ///
    /// By then a waiter knows of changes that wake nobody: a refund, a reset, a larger quota, a
    /// permit that was taken without the queue and given back, and for a shared limit whatever
    /// happens on another machine. Each key that somebody waits for costs a check in each interval.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use tollgate::{Limiter, Quota};
    /// # use tollgate_wait::WaitQueue;
    /// let limiter: Limiter<str> = Limiter::builder(Quota::per_hour(5)).build()?;
    /// let queue = WaitQueue::new(limiter).recheck(Duration::from_millis(200));
    /// # Ok::<(), tollgate::ConfigError>(())
    /// ```
    #[must_use]
    pub fn recheck(mut self, recheck: Duration) -> Self {
        self.settings.recheck = recheck.max(Duration::from_millis(1));
        self
    }

    /// The limiter, for checks that do not wait, and for its settings.
    pub fn limiter(&self) -> &L {
        &self.limiter
    }

    /// How many callers wait, for all keys together.
    ///
    /// # Progress
    ///
    /// Wait-free.
    pub fn waiting(&self) -> usize {
        self.lines.waiting()
    }

    /// How many keys have waiters.
    ///
    /// # Progress
    ///
    /// Takes the locks of the queue, one after another.
    pub fn waiting_keys(&self) -> usize {
        self.lines.keys()
    }

    /// Waits until `key` has a token or a permit, and takes it.
    ///
    /// # Errors
    ///
    /// [`WaitError::Full`] if too many wait, [`WaitError::NoRetryTime`] if the limiter has no room
    /// for the key or stands in for a store that is away.
    ///
    /// # Progress
    ///
    /// One check if nobody waits and the token is there. Else it takes a lock, which the queue has
    /// for a 64th of its keys, for some instructions at a time. Dropping the future at any point
    /// costs nothing.
    ///
    /// ```
    /// # use tollgate::{Limiter, Quota};
    /// # use tollgate_wait::WaitQueue;
    /// # let limiter: Limiter<str> = Limiter::builder(Quota::per_second(5)).build()?;
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

    /// Waits until `key` has `cost` tokens or permits, and takes them. With a pair of a rate and
    /// permits they are tokens.
    ///
    /// # Errors
    ///
    /// Those of [`until_ready`](Self::until_ready), and [`WaitError::Never`] if `cost` is above the
    /// capacity.
    ///
    /// # Progress
    ///
    /// As [`until_ready`](Self::until_ready).
    pub async fn until_n<Q>(&self, key: &Q, cost: u64) -> Result<L::Turn, WaitError>
    where
        L: Waitable<Q>,
        Q: Hash + ?Sized,
        S: Sleep,
    {
        self.wait(key, cost, None, &self.sleep).await
    }

    /// Waits until `key` has `cost` tokens, but not longer than `max_wait`, and takes them.
    ///
    /// With a `max_wait` of zero nobody waits: the answer is that of a check which passes no
    /// waiter.
    ///
    /// # Errors
    ///
    /// [`WaitError::TooLong`], at once, if it would take longer than `max_wait`;
    /// [`WaitError::Expired`], after `max_wait`, if no permit came back, the turn was late or
    /// others took tokens without waiting; and those of [`until_n`](Self::until_n). A shared
    /// limit that is asked just when the time is over may take its deadline longer.
    ///
    /// # Progress
    ///
    /// As [`until_ready`](Self::until_ready).
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use tollgate::{Limiter, ManualClock, Quota};
    /// # use tollgate_wait::{WaitError, WaitQueue};
    /// # let builder = Limiter::builder(Quota::per_second(5)).clock(ManualClock::new());
    /// # let limiter: Limiter<str> = builder.build()?;
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

    /// Waits until `key` has a token, but not longer than `max_wait`, and takes it. As
    /// [`until_n_within`](Self::until_n_within) with a cost of 1.
    ///
    /// # Errors
    ///
    /// As [`until_n_within`](Self::until_n_within).
    ///
    /// # Progress
    ///
    /// As [`until_ready`](Self::until_ready).
    pub async fn until_ready_within<Q>(&self, key: &Q, max_wait: Duration) -> Result<L::Turn, WaitError>
    where
        L: Waitable<Q>,
        Q: Hash + ?Sized,
        S: Sleep,
    {
        self.wait(key, 1, Some(max_wait), &self.sleep).await
    }

    /// [`until_ready`](Self::until_ready), by a thread: it is parked while it waits.
    ///
    /// # Errors
    ///
    /// As [`until_ready`](Self::until_ready).
    pub fn block_until_ready<Q>(&self, key: &Q) -> Result<L::Turn, WaitError>
    where
        L: Waitable<Q>,
        Q: Hash + ?Sized,
    {
        self.block(key, 1, None)
    }

    /// [`until_n`](Self::until_n), by a thread: it is parked while it waits.
    ///
    /// # Errors
    ///
    /// As [`until_n`](Self::until_n).
    pub fn block_until_n<Q>(&self, key: &Q, cost: u64) -> Result<L::Turn, WaitError>
    where
        L: Waitable<Q>,
        Q: Hash + ?Sized,
    {
        self.block(key, cost, None)
    }

    /// [`until_n_within`](Self::until_n_within), by a thread: it is parked while it waits.
    ///
    /// # Errors
    ///
    /// As [`until_n_within`](Self::until_n_within).
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

    /// [`until_ready_within`](Self::until_ready_within), by a thread: it is parked while it waits.
    ///
    /// # Errors
    ///
    /// As [`until_n_within`](Self::until_n_within).
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
