//! Reservations against a shared limit, for work whose cost is known only at the end.
//!
//! A reservation consists of a charge in the store and a guard in this process. The store keeps no
//! list of reservations. Reserved tokens are charged like any other cost, and the guard contains
//! the decision that a refund needs. [`tollgate::Reservation`] is the counterpart in memory and
//! settles with the same arithmetic. Here, each step that asks the store is `async`.
//!
//! # An owner that dies
//!
//! Tokens reserved by a dead process remain spent, as if the reservation had been dropped without a
//! record. No cleanup is necessary, because the charge ends like every charge: the bucket refills,
//! the window ends, or the log forgets it. A reservation therefore needs no lifetime, clock or
//! heartbeat.
//!
//! # Invariants
//!
//! 1. `recorded <= allowance`. A refused record changes nothing.
//! 2. A reservation is settled only once, because settling consumes the guard. A request to the
//!    store is never sent twice.
//! 3. A settlement gives back at most the tokens that were charged for the estimate, and only once.
//!    It uses the limit's own refund, which judges by the time of the charge. A late settlement
//!    therefore gives back as many tokens as a late refund.
//! 4. Until a reservation is settled, all of its `charged` tokens have been admitted by ordinary
//!    checks. Open reservations therefore never exceed the limit's bound, whatever their number and
//!    the number of machines. Only `commit` may go into debt.
//!
//! Tokens charged for growth are not given back: they were spent when they were charged, and one
//! guard stores only one decision.

use crate::limiter::SharedLimiter;
use crate::name::StoreKey;
use futures_util::future::join_all;
use std::fmt;
use std::future::Future;
use std::ops::Deref;
use tokio::runtime::Handle;
use tollgate::{Decision, Denied, Settlement};

/// Tokens charged to a shared limit for work whose cost is known later.
///
/// Created by [`SharedLimiter::reserve`]. A reservation owns all its data, so a task or a response
/// body can own the reservation.
///
/// - [`record`](Self::record) spends reserved tokens during the work, and reports when to stop.
/// - [`commit`](Self::commit) settles the reservation with the actual cost.
/// - [`release`](Self::release) gives all tokens back if the work was not done.
/// - Dropping the reservation keeps the recorded tokens charged, or all reserved tokens if nothing
///   was recorded. A client that disconnects early therefore gains nothing.
///   [`release_on_drop`](Self::release_on_drop) changes this.
///
/// # Refunds on drop
///
/// A drop can't wait for the store, so a task returns any tokens within the limit's deadline. The
/// task runs in the runtime in which the tokens were reserved. If that runtime ends earlier or the
/// process dies, all reserved tokens remain spent, even with `release_on_drop`. Like the tokens of
/// every charge, they become available again when the bucket refills or the window ends.
///
/// # What each algorithm and mode can do
///
/// | | gives back | into debt |
/// |---|---|---|
/// | token bucket, leaky bucket, leaky queue | tokens that have not refilled since they were reserved; if reservations are settled [out of order](tollgate::Reservation#late-settlements), perhaps tokens of other requests | up to `max_debt`; the debt refills before other charges |
/// | fixed window, sliding window | all tokens, until the window no longer counts | up to `max_debt`, for each window |
/// | sliding log | all tokens, until the period is over | never: the builder refuses a `max_debt` |
/// | [`lease`](crate::SharedBuilder::lease) | as the algorithm; payments with leased tokens return to the lease, until it ends or a later lease is requested | as the algorithm |
/// | [`max_unsynced`](crate::SharedBuilder::max_unsynced) | only tokens that were not yet reported to the store, which are next to none after 20 ms; other machines never lower the counts that they have received | never: the builder refuses a `max_debt` |
/// | the store does not answer | nothing that the store has charged | the debt of the local limiter of [`WhenUnavailable`](crate::WhenUnavailable), if there is one |
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
    /// The limit for one key.
    limiter: SharedLimiter<()>,
    charge: Decision,
    /// The number of tokens that `record` may spend without asking the store: the estimate and all
    /// growth.
    allowance: u64,
    /// The total number of tokens that the limit has charged. It is less than the allowance if a
    /// policy has admitted tokens.
    charged: u64,
    /// The number of tokens recorded so far.
    recorded: u64,
    release_on_drop: bool,
    is_settled: bool,
    /// The runtime in which a drop gives tokens back.
    runtime: Option<Handle>,
}

impl<K: StoreKey + ?Sized> SharedLimiter<K> {
    /// Charges `key` an estimate for work whose cost is known later. See [`SharedReservation`].
    ///
    /// If the future is dropped while it waits, the store may already have charged the tokens, and
    /// they then remain charged.
    ///
    /// # Errors
    ///
    /// Returns [`Denied`] if the tokens are not available. Nothing is charged in this case. If the
    /// store does not answer, [`WhenUnavailable`](crate::WhenUnavailable) decides.
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
        let runtime = limiter.client().runtime().current();
        Ok(Self {
            limiter,
            charge,
            allowance: estimate,
            charged: charge.charged(),
            recorded: 0,
            release_on_drop: false,
            is_settled: false,
            runtime,
        })
    }

    /// Makes the reservation give back all unrecorded tokens when it is dropped.
    ///
    /// Call this method only if the work costs nothing before its tokens are recorded. Otherwise, a
    /// caller could gain by giving up early. A process that dies gives nothing back.
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

    /// Returns the answer to the estimate. The answer's figures do not change later.
    pub const fn decision(&self) -> &Decision {
        &self.charge
    }

    /// Returns the number of tokens recorded so far.
    pub fn recorded(&self) -> u64 {
        self.recorded
    }

    /// Returns the number of tokens that can be recorded without another charge.
    pub fn unspent(&self) -> u64 {
        self.allowance - self.recorded
    }

    /// Spends `tokens`. Reserved tokens are spent first, in this process and without waiting.
    /// Missing tokens are then charged to the limit. A call with 0 tokens records nothing.
    ///
    /// If the future is dropped while it waits for the store, it records nothing, but the store may
    /// have charged the tokens, which then remain charged.
    ///
    /// # Errors
    ///
    /// Returns [`Denied`] if the tokens are not available; in that case, stop the work. The failed
    /// call records and charges nothing, and earlier records are kept.
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

    /// Returns how many tokens have to be charged before `tokens` can be spent.
    fn missing(&self, tokens: u64) -> u64 {
        tokens.saturating_sub(self.unspent())
    }

    fn grow(&mut self, tokens: u64, growth: &Decision) {
        self.allowance = self.allowance.saturating_add(tokens);
        self.charged = self.charged.saturating_add(growth.charged());
    }

    /// Records tokens that are within the allowance.
    fn spend(&mut self, tokens: u64) {
        self.recorded = self.recorded.saturating_add(tokens).min(self.allowance);
    }

    /// Returns how many tokens are given back if the work has cost `actual` tokens.
    fn rest(&self, actual: u64) -> u64 {
        self.charged.saturating_sub(actual).min(self.charge.charged())
    }

    /// Settles the reservation with the actual cost of the work. The future completes by the
    /// limit's deadline.
    ///
    /// If the cost is below the charge, this method gives back the difference, with the limitations
    /// of a [refund](SharedLimiter::refund). The tokens return to the window or the bucket that was
    /// charged, and are never more than the estimate. (Tokens that [`record`](Self::record) charged
    /// in addition remain charged.)
    ///
    /// If the cost is above the charge, the difference is charged now. This charge may create a
    /// debt of up to [`max_debt`](crate::SharedBuilder::max_debt). The result reports any tokens
    /// beyond that.
    ///
    /// If the store does not answer, nothing is given back. A missing difference is then charged to
    /// the local limiter, if there is one. Neither step is repeated, because the store may have
    /// executed it.
    ///
    /// The future does nothing until it is polled. If it is dropped before that, the reservation is
    /// dropped as well.
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
        // This flag is set first, so that the reservation is not settled again if the future is
        // dropped.
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

    /// Gives back all reserved tokens because the work was not done. The future completes by the
    /// limit's deadline.
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
        if self.is_settled || self.recorded == 0 && !self.release_on_drop {
            return;
        }
        let (back, charge) = (self.rest(self.recorded), self.charge);
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

/// Reservations against several shared limits, which are made, recorded and settled together.
///
/// Each limit counts in its own unit, so a cost is a function of the limit's index. Dropping the
/// set drops the [`SharedReservation`] of each limit.
#[must_use = "a reservation that is dropped at once keeps what it reserved"]
#[derive(Debug)]
pub struct SharedReservationSet(Vec<SharedReservation>);

impl SharedReservationSet {
    /// Reserves an estimate from each of several shared limits, either from all or from none.
    /// [`SharedLimiter::for_key`] returns the limit for one key.
    ///
    /// The limits are charged one after the other, in the given order, and may be on different
    /// servers. If one limit denies, the charges to the others are given back before this method
    /// returns. Until then, other callers can't use these tokens, so put the limit that denies most
    /// often first.
    ///
    /// If a limit's store does not answer, the limit gives nothing back. If the future is dropped
    /// while it waits, charged tokens remain charged.
    ///
    /// # Errors
    ///
    /// Returns [`Denied`], which names the limit that denied.
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

    /// Calls [`SharedReservation::release_on_drop`] for all limits.
    pub fn release_on_drop(mut self) -> Self {
        self.0.iter_mut().for_each(|held| held.release_on_drop = true);
        self
    }

    /// Records tokens in all limits or in none, as [`SharedReservation::record`] does in one.
    /// `tokens` returns the number of tokens for the limit at a given index. Limits whose
    /// reservation is too small are charged one after the other, as in [`reserve`](Self::reserve).
    ///
    /// # Errors
    ///
    /// Returns [`Denied`], which names the limit that denied; stop the work then.
    ///
    /// ```no_run
    /// # use tollgate_redis::SharedReservationSet;
    /// # async fn ask(mut held: SharedReservationSet) -> Result<(), tollgate::Denied> {
    /// // Nine tokens, for a request that was counted before.
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

    /// Settles all limits concurrently, as [`SharedReservation::commit`] settles one. `actual`
    /// returns the cost for the limit at a given index.
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

    /// Releases all limits concurrently, as [`SharedReservation::release`] does.
    pub async fn release(self) {
        join_all(self.0.into_iter().map(SharedReservation::release)).await;
    }
}

impl Deref for SharedReservationSet {
    type Target = [SharedReservation];

    /// Returns the reservation of each limit.
    fn deref(&self) -> &Self::Target {
        &self.0
    }
}
