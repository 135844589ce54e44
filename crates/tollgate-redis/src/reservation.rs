//! Reservations of a shared limit: a cost that is known only when the work is done.
//!
//! A reservation is a charge in the store and a guard in this process. The store keeps no list of
//! reservations: what is reserved is charged like any other cost, and the guard keeps the decision
//! that a refund needs. [`tollgate::Reservation`] is the same for limits in memory, and settles by
//! the same arithmetic; here each step that asks the store is `async`.
//!
//! # An owner that dies
//!
//! What a dead process has reserved stays spent, as if it was dropped without a record. Nobody has
//! to clean up, because the charge ends as every charge does: the bucket refills, the window ends,
//! the log forgets it. That is the lifetime of a hold, and it needs no clock or heartbeat of its
//! own.
//!
//! # Invariants
//!
//! 1. `recorded <= allowance`. A record that is refused changes nothing.
//! 2. A reservation is settled once, by its type. A request to the store is never sent twice.
//! 3. At most what the estimate was charged is given back, once, by the limit's own refund, which
//!    judges by the time of the charge. So a settlement that comes late gives back what a late
//!    refund does.
//! 4. Before it is settled, `charged` was admitted by ordinary checks. So any number of open
//!    reservations on any number of machines hold no more than the limit's bound; only `commit`
//!    goes into debt.
//!
//! What growth has charged is not given back: it was spent at that moment, and one guard keeps one
//! decision.

use crate::limiter::SharedLimiter;
use crate::name::StoreKey;
use futures_util::future::join_all;
use std::fmt;
use std::future::Future;
use std::ops::Deref;
use tokio::runtime::Handle;
use tollgate::{Decision, Denied, Settlement};

/// Tokens of a shared limit that were charged for work whose cost is known later.
///
/// Made by [`SharedLimiter::reserve`]. It owns all that it needs, so that a task or a response body
/// can carry it.
///
/// - [`record`](Self::record) spends it while the work goes on, and tells when to stop;
/// - [`commit`](Self::commit) settles it with the actual cost;
/// - [`release`](Self::release) gives it back, if the work was not done;
/// - dropping it keeps what was recorded, or all that was reserved if nothing was. So a client that
///   disconnects early gains nothing. [`release_on_drop`](Self::release_on_drop) changes this.
///
/// # Where the rest goes when it is dropped
///
/// A drop can't wait. If the store has to give something back, a task asks it, within the limit's
/// deadline, in the runtime in which the tokens were reserved. If that runtime ends before, or the
/// process dies, all that was reserved stays spent, whatever `release_on_drop` says. It comes back
/// as every charge does: the bucket refills, the window ends.
///
/// # What each algorithm and mode can do
///
/// | | gives back | into debt |
/// |---|---|---|
/// | token bucket, leaky bucket, leaky queue | what has not refilled since it was reserved; [out of order](tollgate::Reservation#late-settlements) perhaps tokens of others | up to `max_debt`; it refills before others |
/// | fixed window, sliding window | all, until the window no longer counts | up to `max_debt`, for each window |
/// | sliding log | all, until the period is over | never: the builder refuses a `max_debt` |
/// | [`lease`](crate::SharedBuilder::lease) | as the algorithm; what leased tokens paid returns to the lease, until that ends | as the algorithm |
/// | [`max_unsynced`](crate::SharedBuilder::max_unsynced) | only what the store was not told yet, next to nothing after 20 ms: others never lower what they have heard | never: the builder refuses a `max_debt` |
/// | the store does not answer | nothing that the store has charged | of the local limiter of [`WhenUnavailable`](crate::WhenUnavailable), if there is one |
///
/// ```no_run
/// # use tollgate_redis::SharedLimiter;
/// /// Sends the chunks of a stream, each with its tokens, until the budget is spent.
/// async fn send(limiter: &SharedLimiter<str>, chunks: &[u64]) -> Result<(), tollgate::Denied> {
///     let mut budget = limiter.reserve("alice", 1_000).await?;
///     for &tokens in chunks {
///         if budget.record(tokens).await.is_err() {
///             break; // Cut the stream here.
///         }
///     }
///     let spent = budget.recorded();
///     budget.commit(spent).await;
///     Ok(())
/// }
/// ```
#[must_use = "a reservation that is dropped at once keeps what it reserved"]
pub struct SharedReservation {
    /// The limit, at one key.
    limiter: SharedLimiter<()>,
    charge: Decision,
    /// What `record` may spend without asking: the estimate and all growth.
    allowance: u64,
    /// What the limit has charged in all; less than the allowance where a policy admitted.
    charged: u64,
    /// What was spent so far; `None` before the first `record`.
    recorded: Option<u64>,
    release_on_drop: bool,
    is_settled: bool,
    /// Where a drop gives back.
    runtime: Option<Handle>,
}

impl<K: StoreKey + ?Sized> SharedLimiter<K> {
    /// Charges `key` an estimate for work whose cost is known later: see [`SharedReservation`].
    ///
    /// If the future is dropped while it waits, what the store may have charged stays charged.
    ///
    /// # Errors
    ///
    /// [`Denied`] if the tokens are not there. Then nothing is charged. If the store does not
    /// answer, [`WhenUnavailable`](crate::WhenUnavailable) decides.
    ///
    /// ```no_run
    /// # use tollgate_redis::SharedLimiter;
    /// # async fn ask(limiter: SharedLimiter<str>) -> Result<(), tollgate::Denied> {
    /// let held = limiter.reserve("alice", 80).await?;
    /// assert_eq!(held.commit(30).await.charged, 30);
    /// # Ok(())
    /// # }
    /// ```
    pub fn reserve(
        &self,
        key: &K,
        estimate: u64,
    ) -> impl Future<Output = Result<SharedReservation, Denied>> + Send + use<K> {
        SharedReservation::new(self.for_key(key), estimate)
    }
}

impl SharedReservation {
    async fn new(limiter: SharedLimiter<()>, estimate: u64) -> Result<Self, Denied> {
        let charge = limiter.check_n(&(), estimate).await;
        charge.ok()?;
        Ok(Self {
            limiter,
            charge,
            allowance: estimate,
            charged: charge.charged(),
            recorded: None,
            release_on_drop: false,
            is_settled: false,
            runtime: Handle::try_current().ok(),
        })
    }

    /// Gives back what was not recorded when the reservation is dropped.
    ///
    /// Choose it only where a caller can't gain from giving up early: where the work has cost
    /// nothing before it is recorded. A process that dies gives nothing back.
    ///
    /// ```no_run
    /// # use tollgate_redis::SharedLimiter;
    /// # async fn ask(limiter: SharedLimiter<str>) -> Result<(), tollgate::Denied> {
    /// drop(limiter.reserve("alice", 3).await?.release_on_drop());
    /// # Ok(())
    /// # }
    /// ```
    pub fn release_on_drop(mut self) -> Self {
        self.release_on_drop = true;
        self
    }

    /// The answer to the estimate. Its figures do not change later.
    pub const fn decision(&self) -> &Decision {
        &self.charge
    }

    /// The tokens that were recorded so far.
    pub fn recorded(&self) -> u64 {
        self.recorded.unwrap_or(0)
    }

    /// The tokens that can be recorded without another charge.
    pub fn unspent(&self) -> u64 {
        self.allowance - self.recorded()
    }

    /// Spends `tokens`: first what is reserved, in this process and without waiting, then what can
    /// be charged in addition.
    ///
    /// If the future is dropped while it waits for the store, nothing is recorded, and what the
    /// store may have charged stays charged.
    ///
    /// # Errors
    ///
    /// [`Denied`] if they are not there: the moment to stop. This call has recorded and charged
    /// nothing then, and what was recorded before stays.
    ///
    /// ```no_run
    /// # use tollgate_redis::SharedLimiter;
    /// # async fn ask(limiter: SharedLimiter<str>) -> Result<(), tollgate::Denied> {
    /// let mut held = limiter.reserve("alice", 30).await?;
    /// held.record(30).await?; // without a round trip
    /// held.record(10).await?; // charges ten more
    /// # Ok(())
    /// # }
    /// ```
    pub async fn record(&mut self, tokens: u64) -> Result<(), Denied> {
        let missing = self.missing(tokens);
        if missing > 0 {
            let growth = self.limiter.check_n(&(), missing).await;
            growth.ok()?;
            self.grow(missing, &growth);
        }
        self.spend(tokens);
        Ok(())
    }

    /// How many tokens have to be charged before `tokens` can be spent.
    fn missing(&self, tokens: u64) -> u64 {
        tokens.saturating_sub(self.unspent())
    }

    fn grow(&mut self, tokens: u64, growth: &Decision) {
        self.allowance = self.allowance.saturating_add(tokens);
        self.charged = self.charged.saturating_add(growth.charged());
    }

    /// Records tokens that are within the allowance.
    fn spend(&mut self, tokens: u64) {
        self.recorded = Some(self.recorded().saturating_add(tokens).min(self.allowance));
    }

    /// What is given back if the work has cost `actual` tokens.
    fn rest(&self, actual: u64) -> u64 {
        self.charged.saturating_sub(actual).min(self.charge.charged())
    }

    /// Settles the reservation with the cost that the work had; ends by the limit's deadline.
    ///
    /// A cost below what was charged gives the rest back, as far as a
    /// [refund](SharedLimiter::refund) does: to the window or the bucket that was charged, and not
    /// more than was reserved. (What [`record`](Self::record) charged in addition stays.) A cost
    /// above it is charged now, and may go into debt up to
    /// [`max_debt`](crate::SharedBuilder::max_debt). The result tells what was beyond that.
    ///
    /// If the store does not answer, it gives nothing back, and what is above is charged to the
    /// local limiter, if there is one. Neither is tried again: the store may have executed it. The
    /// future does nothing until it is polled; dropping it before that drops the reservation.
    ///
    /// ```no_run
    /// # use tollgate_redis::SharedLimiter;
    /// # async fn ask(limiter: SharedLimiter<str>) -> Result<(), tollgate::Denied> {
    /// let settled = limiter.reserve("alice", 80).await?.commit(120).await;
    /// assert_eq!(settled.charged + settled.unpaid, 120);
    /// # Ok(())
    /// # }
    /// ```
    pub async fn commit(mut self, actual: u64) -> Settlement {
        // First, so that dropping this future does not settle it again.
        self.is_settled = true;
        let charged = self.charged;
        if actual < charged {
            let back = self.rest(actual);
            if back > 0 {
                self.limiter.refund_n(&(), &self.charge, back).await;
            }
            return Settlement { charged: charged - back, unpaid: 0 };
        }
        let owed = actual - charged;
        let paid = self.limiter.force(&(), owed).await.min(owed);
        Settlement { charged: charged + paid, unpaid: owed - paid }
    }

    /// Gives back what was reserved, for work that was not done; ends by the limit's deadline.
    ///
    /// ```no_run
    /// # use tollgate_redis::SharedLimiter;
    /// # async fn ask(limiter: SharedLimiter<str>) -> Result<(), tollgate::Denied> {
    /// limiter.reserve("alice", 80).await?.release().await;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn release(self) {
        self.commit(0).await;
    }
}

impl Drop for SharedReservation {
    fn drop(&mut self) {
        if self.is_settled || self.recorded.is_none() && !self.release_on_drop {
            return;
        }
        let (back, charge) = (self.rest(self.recorded()), self.charge);
        if let Some(runtime) = self.runtime.take().filter(|_| back > 0) {
            let limiter = self.limiter.clone();
            runtime.spawn(async move { limiter.refund_n(&(), &charge, back).await });
        }
    }
}

impl fmt::Debug for SharedReservation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedReservation")
            .field("decision", &self.charge)
            .field("charged", &self.charged)
            .field("recorded", &self.recorded)
            .finish_non_exhaustive()
    }
}

/// Reservations of several shared limits that are made, recorded and settled together.
///
/// Each limit counts in its own unit, so a cost is a function of the limit's index. Dropping the
/// set drops the [`SharedReservation`] of each limit.
#[must_use = "a reservation that is dropped at once keeps what it reserved"]
#[derive(Debug)]
pub struct SharedReservationSet(Vec<SharedReservation>);

impl SharedReservationSet {
    /// Reserves an estimate from each of several shared limits, or from none. A limit of one key is
    /// made by [`SharedLimiter::for_key`].
    ///
    /// The limits are charged one after the other, in the given order, and each may be on servers
    /// of its own. If one of them denies, what the others have charged is given back before this
    /// returns. Meanwhile these tokens are missing to others, so the limit that denies most often
    /// belongs at the front. A limit whose store does not answer gives nothing back. If the future
    /// is dropped while it waits, what was charged stays charged.
    ///
    /// # Errors
    ///
    /// [`Denied`], which names the limit that denied.
    ///
    /// ```no_run
    /// use tollgate_redis::{SharedLimiter, SharedReservationSet};
    ///
    /// # async fn ask(users: SharedLimiter<str>, all: SharedLimiter<()>)
    /// # -> Result<(), tollgate::Denied> {
    /// let estimates = [(users.for_key("alice"), 400), (all, 400)];
    /// let held = SharedReservationSet::reserve(estimates).await?;
    /// held.commit(|_| 350).await;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn reserve(
        estimates: impl IntoIterator<Item = (SharedLimiter<()>, u64)>,
    ) -> Result<Self, Denied> {
        let estimates: Vec<_> = estimates.into_iter().collect();
        let mut held = Vec::with_capacity(estimates.len());
        for (index, (limiter, estimate)) in estimates.into_iter().enumerate() {
            match SharedReservation::new(limiter, estimate).await {
                Ok(reservation) => held.push(reservation),
                Err(denied) => {
                    Self(held).release().await;
                    return Err(Denied::among([(index, denied.decision())]).unwrap_or(denied));
                }
            }
        }
        Ok(Self(held))
    }

    /// [`SharedReservation::release_on_drop`] for all limits.
    pub fn release_on_drop(mut self) -> Self {
        self.0.iter_mut().for_each(|held| held.release_on_drop = true);
        self
    }

    /// [`SharedReservation::record`] in all limits or in none: `tokens` of the limit with this
    /// index. Limits that have to grow are charged as [`reserve`](Self::reserve) charges them.
    ///
    /// # Errors
    ///
    /// [`Denied`], which names the limit that denied: the moment to stop.
    ///
    /// ```no_run
    /// # use tollgate_redis::SharedReservationSet;
    /// # async fn ask(mut held: SharedReservationSet) -> Result<(), tollgate::Denied> {
    /// // Nine tokens, of a request that was counted before.
    /// held.record(|limit| [9, 0][limit]).await?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn record(&mut self, tokens: impl Fn(usize) -> u64) -> Result<(), Denied> {
        let tokens: Vec<u64> = (0..self.0.len()).map(tokens).collect();
        let mut growths: Vec<(usize, Decision)> = Vec::new();
        for (index, held) in self.0.iter().enumerate() {
            let missing = held.missing(tokens[index]);
            if missing == 0 {
                continue;
            }
            let growth = held.limiter.check_n(&(), missing).await;
            if let Some(denied) = Denied::among([(index, growth)]) {
                let back = growths.iter().map(|(index, growth)| self.0[*index].limiter.refund(&(), growth));
                join_all(back).await;
                return Err(denied);
            }
            growths.push((index, growth));
        }
        for (index, growth) in growths {
            let held = &mut self.0[index];
            held.grow(held.missing(tokens[index]), &growth);
        }
        self.0.iter_mut().zip(tokens).for_each(|(held, tokens)| held.spend(tokens));
        Ok(())
    }

    /// [`SharedReservation::commit`] for all limits at a time: `actual` is the cost in the limit
    /// with this index.
    ///
    /// ```no_run
    /// # use tollgate_redis::SharedReservationSet;
    /// # async fn ask(held: SharedReservationSet) {
    /// let settled = held.commit(|limit| [70, 1][limit]).await;
    /// println!("{} tokens could not be charged", settled[0].unpaid);
    /// # }
    /// ```
    pub async fn commit(self, actual: impl Fn(usize) -> u64) -> Vec<Settlement> {
        join_all(self.0.into_iter().enumerate().map(|(index, held)| held.commit(actual(index)))).await
    }

    /// [`SharedReservation::release`] for all limits at a time.
    pub async fn release(self) {
        join_all(self.0.into_iter().map(SharedReservation::release)).await;
    }
}

impl Deref for SharedReservationSet {
    type Target = [SharedReservation];

    /// The reservation of each limit.
    fn deref(&self) -> &Self::Target {
        &self.0
    }
}
