//! The public types: queues of all keys of a limiter, and the queue of a limiter without keys.

use crate::driver::Wait;
use crate::error::WaitError;
use crate::limiter::Waitable;
use crate::lines::Lines;
use crate::settings::WaitSettings;
use crate::thread::{Alarm, block_on};
use crate::turn::Turn;
use std::fmt;
use std::future::Future;
use std::hash::{Hash, RandomState};
use std::time::Duration;

/// The function that makes tokio's sleeps.
#[cfg(feature = "tokio")]
pub type TokioSleep = fn(Duration) -> tokio::time::Sleep;

/// A limiter whose callers wait for their turn: a queue for each key that somebody waits for.
///
/// [The crate's page](crate) says what is promised. `L` is a [`Limiter`](tollgate::Limiter), a
/// shared limiter, or a reference or an `Arc` of one; two `WaitQueues` of one limiter are two
/// orders. `S` makes sleeps.
pub struct WaitQueues<L, S> {
    limiter: L,
    sleep: S,
    settings: WaitSettings,
    lines: Lines,
    hasher: RandomState,
}

#[cfg(feature = "tokio")]
impl<L> WaitQueues<L, TokioSleep> {
    /// Queues before `limiter` that sleep by tokio's timer.
    pub fn new(limiter: L) -> Self {
        Self::with_sleep(limiter, tokio::time::sleep)
    }
}

impl<L> WaitQueues<L, ()> {
    /// Queues before `limiter` for threads alone, by
    /// [`block_until_ready`](Self::block_until_ready).
    ///
    /// ```
    /// use tollgate::{Limiter, Quota};
    /// use tollgate_wait::WaitQueues;
    ///
    /// let limiter: Limiter<str> = Limiter::builder(Quota::per_second(1_000).burst(1)).build()?;
    /// let queues = WaitQueues::for_threads(limiter);
    /// for _ in 0..3 {
    ///     queues.block_until_ready("disk")?; // a millisecond apart
    /// }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn for_threads(limiter: L) -> Self {
        Self::with_sleep(limiter, ())
    }
}

impl<L, S> WaitQueues<L, S> {
    /// Queues before `limiter`. `sleep` makes a future that is ready after the time it is given,
    /// which may be as long as [`Duration::MAX`].
    ///
    /// ```
    /// # use std::time::Duration;
    /// use tollgate::{Limiter, Quota};
    /// use tollgate_wait::WaitQueues;
    ///
    /// # async fn async_io_timer(_: Duration) {}
    /// let limiter: Limiter<str> = Limiter::builder(Quota::per_second(5)).build()?;
    /// let queues = WaitQueues::with_sleep(limiter, |time| async_io_timer(time));
    /// # pollster::block_on(queues.until_ready("alice"))?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn with_sleep(limiter: L, sleep: S) -> Self {
        let (lines, hasher) = (Lines::default(), RandomState::new());
        Self { limiter, sleep, settings: WaitSettings::default(), lines, hasher }
    }

    /// Replaces the bounds and times of [`WaitSettings::default`].
    #[must_use]
    pub fn settings(self, settings: WaitSettings) -> Self {
        Self { settings, ..self }
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
    /// Takes the lock of the queues.
    pub fn waiting_keys(&self) -> usize {
        self.lines.keys()
    }

    /// Waits until `key` has a token, and takes it.
    ///
    /// # Errors
    ///
    /// [`WaitError::Full`] if too many wait, [`WaitError::NoPlace`] if the limiter has no place for
    /// the key.
    ///
    /// # Progress
    ///
    /// One check if nobody waits and the token is there. Else it takes the lock of the queues for
    /// some instructions at a time. Dropping the future at any point costs nothing.
    ///
    /// ```
    /// # use tollgate::{Limiter, Quota};
    /// # use tollgate_wait::WaitQueues;
    /// # let limiter: Limiter<str> = Limiter::builder(Quota::per_second(5)).build()?;
    /// # let queues = WaitQueues::with_sleep(limiter, |_| std::future::ready(()));
    /// # pollster::block_on(async {
    /// let turn = queues.until_ready("alice").await?;
    /// assert_eq!(turn.remaining(), 4);
    /// # Ok::<(), tollgate_wait::WaitError>(())
    /// # })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub async fn until_ready<Q, F>(&self, key: &Q) -> Result<Turn, WaitError>
    where
        L: Waitable<Q>,
        Q: Hash + ?Sized,
        S: Fn(Duration) -> F,
        F: Future<Output = ()>,
    {
        self.wait(key, 1, None, &self.sleep).await
    }

    /// Waits until `key` has `cost` tokens, and takes them.
    ///
    /// # Errors
    ///
    /// Those of [`until_ready`](Self::until_ready), and [`WaitError::Never`] if `cost` is above the
    /// capacity.
    ///
    /// # Progress
    ///
    /// As [`until_ready`](Self::until_ready).
    pub async fn until_n<Q, F>(&self, key: &Q, cost: u64) -> Result<Turn, WaitError>
    where
        L: Waitable<Q>,
        Q: Hash + ?Sized,
        S: Fn(Duration) -> F,
        F: Future<Output = ()>,
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
    /// [`WaitError::Expired`], after `max_wait`, if the turn was late or others took tokens without
    /// waiting; and those of [`until_n`](Self::until_n). A shared limit that is asked just when the
    /// time is over may take its deadline longer.
    ///
    /// # Progress
    ///
    /// As [`until_ready`](Self::until_ready).
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use tollgate::{Clock, Limiter, Quota};
    /// # use tollgate_wait::{WaitError, WaitQueues};
    /// # let builder = Limiter::builder(Quota::per_second(5)).clock(Clock::manual());
    /// # let limiter: Limiter<str> = builder.build()?;
    /// # let queues = WaitQueues::with_sleep(limiter, |_| std::future::pending());
    /// # pollster::block_on(async {
    /// queues.until_n("alice", 5).await?;
    /// let max_wait = Duration::from_millis(300);
    /// let refused = queues.until_n_within("alice", 2, max_wait).await;
    /// assert_eq!(refused, Err(WaitError::TooLong { wait: Duration::from_millis(400), max_wait }));
    /// # Ok::<(), WaitError>(())
    /// # })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub async fn until_n_within<Q, F>(
        &self,
        key: &Q,
        cost: u64,
        max_wait: Duration,
    ) -> Result<Turn, WaitError>
    where
        L: Waitable<Q>,
        Q: Hash + ?Sized,
        S: Fn(Duration) -> F,
        F: Future<Output = ()>,
    {
        self.wait(key, cost, Some(max_wait), &self.sleep).await
    }

    /// [`until_ready`](Self::until_ready), by a thread: it is parked while it waits.
    ///
    /// # Errors
    ///
    /// As [`until_ready`](Self::until_ready).
    pub fn block_until_ready<Q>(&self, key: &Q) -> Result<Turn, WaitError>
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
    pub fn block_until_n<Q>(&self, key: &Q, cost: u64) -> Result<Turn, WaitError>
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
    pub fn block_until_n_within<Q>(&self, key: &Q, cost: u64, max_wait: Duration) -> Result<Turn, WaitError>
    where
        L: Waitable<Q>,
        Q: Hash + ?Sized,
    {
        self.block(key, cost, Some(max_wait))
    }

    fn block<Q>(&self, key: &Q, cost: u64, max_wait: Option<Duration>) -> Result<Turn, WaitError>
    where
        L: Waitable<Q>,
        Q: Hash + ?Sized,
    {
        let alarm = Alarm::default();
        block_on(&alarm, self.wait(key, cost, max_wait, &|time| alarm.nap(time)))
    }

    async fn wait<Q, T, F>(
        &self,
        key: &Q,
        cost: u64,
        max_wait: Option<Duration>,
        sleep: &T,
    ) -> Result<Turn, WaitError>
    where
        L: Waitable<Q>,
        Q: Hash + ?Sized,
        T: Fn(Duration) -> F,
        F: Future<Output = ()>,
    {
        let Self { limiter, settings, lines, hasher, .. } = self;
        Wait { lines, hasher, settings, limiter, sleep, key, cost, max_wait }.run().await
    }
}

impl<L, S> fmt::Debug for WaitQueues<L, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WaitQueues")
            .field("settings", &self.settings)
            .field("waiting", &self.waiting())
            .finish_non_exhaustive()
    }
}

/// A limiter of one resource whose callers wait for their turn.
///
/// [The crate's page](crate) says what is promised, and [`WaitQueues`] what each method does. `L`
/// is a [`SingleLimiter`](tollgate::SingleLimiter), or a reference or an `Arc` of one.
///
/// ```
/// use std::time::Duration;
/// use tollgate::{Quota, SingleLimiter};
/// use tollgate_wait::WaitQueue;
///
/// let limiter = SingleLimiter::builder(Quota::per_second(500)).build()?;
/// let queue = WaitQueue::for_threads(limiter);
/// queue.block_until_ready()?;
/// queue.block_until_n_within(10, Duration::from_secs(1))?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct WaitQueue<L, S>(WaitQueues<L, S>);

#[cfg(feature = "tokio")]
impl<L> WaitQueue<L, TokioSleep> {
    /// A queue before `limiter` that sleeps by tokio's timer.
    pub fn new(limiter: L) -> Self {
        Self(WaitQueues::new(limiter))
    }
}

impl<L> WaitQueue<L, ()> {
    /// A queue before `limiter` for threads alone.
    pub fn for_threads(limiter: L) -> Self {
        Self(WaitQueues::for_threads(limiter))
    }
}

impl<L, S> WaitQueue<L, S> {
    /// A queue before `limiter`. `sleep` makes a future that is ready after the time it is given.
    pub fn with_sleep(limiter: L, sleep: S) -> Self {
        Self(WaitQueues::with_sleep(limiter, sleep))
    }

    /// Replaces the bounds and times of [`WaitSettings::default`]. The smaller one of the two
    /// bounds counts.
    #[must_use]
    pub fn settings(self, settings: WaitSettings) -> Self {
        Self(self.0.settings(settings))
    }

    /// The limiter, for checks that do not wait, and for its settings.
    pub fn limiter(&self) -> &L {
        self.0.limiter()
    }

    /// How many callers wait.
    pub fn waiting(&self) -> usize {
        self.0.waiting()
    }
}

impl<L: Waitable<()>, S> WaitQueue<L, S> {
    /// Waits for a token and takes it.
    ///
    /// # Errors
    ///
    /// As [`WaitQueues::until_ready`].
    pub async fn until_ready<F>(&self) -> Result<Turn, WaitError>
    where
        S: Fn(Duration) -> F,
        F: Future<Output = ()>,
    {
        self.0.until_ready(&()).await
    }

    /// Waits for `cost` tokens and takes them.
    ///
    /// # Errors
    ///
    /// As [`WaitQueues::until_n`].
    pub async fn until_n<F>(&self, cost: u64) -> Result<Turn, WaitError>
    where
        S: Fn(Duration) -> F,
        F: Future<Output = ()>,
    {
        self.0.until_n(&(), cost).await
    }

    /// Waits for `cost` tokens, but not longer than `max_wait`, and takes them.
    ///
    /// # Errors
    ///
    /// As [`WaitQueues::until_n_within`].
    pub async fn until_n_within<F>(&self, cost: u64, max_wait: Duration) -> Result<Turn, WaitError>
    where
        S: Fn(Duration) -> F,
        F: Future<Output = ()>,
    {
        self.0.until_n_within(&(), cost, max_wait).await
    }

    /// [`until_ready`](Self::until_ready), by a thread.
    ///
    /// # Errors
    ///
    /// As [`WaitQueues::until_ready`].
    pub fn block_until_ready(&self) -> Result<Turn, WaitError> {
        self.0.block_until_ready(&())
    }

    /// [`until_n`](Self::until_n), by a thread.
    ///
    /// # Errors
    ///
    /// As [`WaitQueues::until_n`].
    pub fn block_until_n(&self, cost: u64) -> Result<Turn, WaitError> {
        self.0.block_until_n(&(), cost)
    }

    /// [`until_n_within`](Self::until_n_within), by a thread.
    ///
    /// # Errors
    ///
    /// As [`WaitQueues::until_n_within`].
    pub fn block_until_n_within(&self, cost: u64, max_wait: Duration) -> Result<Turn, WaitError> {
        self.0.block_until_n_within(&(), cost, max_wait)
    }
}
