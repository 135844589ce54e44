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

use crate::classes::Class;
use crate::core::Request;
use crate::limiter::SharedLimiter;
use crate::limiter::tier::Tier;
use crate::name::{Name, StoreKey};
use futures_util::future::join_all;
use std::fmt;
use std::future::Future;
use std::sync::Arc;
use tokio::runtime::Handle;
use tollgate::{Decision, Denied, DeniedBy, Settlement};

/// One key of a [`SharedLimiter`], made by [`SharedLimiter::for_key`]: to reserve several limits
/// with [`reserve_all`].
#[derive(Clone)]
pub struct SharedKey {
    tier: Arc<Tier>,
    name: Name,
    /// The key's name in the store.
    text: Arc<str>,
}

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
    key: SharedKey,
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
        self.for_key(key).into_reservation(estimate)
    }

    /// Charges `key` an estimate under the quota of a class, as [`reserve`](Self::reserve) does.
    ///
    /// # Errors
    ///
    /// As [`reserve`](Self::reserve).
    pub fn reserve_as(
        &self,
        class: Class,
        key: &K,
        estimate: u64,
    ) -> impl Future<Output = Result<SharedReservation, Denied>> + Send + use<K> {
        self.for_key_as(class, key).into_reservation(estimate)
    }

    /// Binds this limiter to one key, to reserve it together with others in [`reserve_all`]. The
    /// result owns all that it needs.
    ///
    /// ```
    /// # use tollgate::Quota;
    /// # use tollgate_redis::{Client, SharedLimiter};
    /// # let client = Client::open("redis://127.0.0.1:6379")?;
    /// let limiter = SharedLimiter::<str>::builder(&client, "api", Quota::per_second(9)).build()?;
    /// let alice = limiter.for_key("alice");
    /// # Ok::<(), tollgate_redis::BuildError>(())
    /// ```
    pub fn for_key(&self, key: &K) -> SharedKey {
        self.for_key_as(Class::default(), key)
    }

    /// Binds this limiter to one key in a class, as [`for_key`](Self::for_key) does.
    pub fn for_key_as(&self, class: Class, key: &K) -> SharedKey {
        let tier = self.tier_of(class);
        let (name, text) = tier.naming.name(key);
        SharedKey { tier: Arc::clone(tier), name, text: text.into() }
    }
}

impl SharedKey {
    fn request(&self, cost: u64) -> Request<'_> {
        Request { name: self.name, text: &self.text, cost }
    }

    async fn check(&self, cost: u64) -> Decision {
        self.tier.check_named(self.request(cost)).await
    }

    async fn refund(&self, charge: &Decision, tokens: u64) {
        self.tier.refund_named(self.name, &self.text, charge, tokens, None).await;
    }

    async fn into_reservation(self, estimate: u64) -> Result<SharedReservation, Denied> {
        let charge = self.check(estimate).await.into_result()?;
        Ok(SharedReservation {
            key: self,
            charge,
            allowance: estimate,
            charged: charge.charged(),
            recorded: None,
            release_on_drop: false,
            is_settled: false,
            runtime: Handle::try_current().ok(),
        })
    }
}

impl SharedReservation {
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
            let growth = self.key.check(missing).await.into_result()?;
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
                self.key.refund(&self.charge, back).await;
            }
            return Settlement { charged: charged - back, unpaid: 0 };
        }
        let owed = actual - charged;
        let paid = self.key.tier.force_named(self.key.request(owed), None).await.min(owed);
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
            let key = self.key.clone();
            runtime.spawn(async move { key.refund(&charge, back).await });
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

impl fmt::Debug for SharedKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Without the key, which the name does not reveal either, unless it is readable.
        f.debug_struct("SharedKey").field("limit", &self.tier.core.trial.limit).finish_non_exhaustive()
    }
}

/// One reservation of several shared limits, made by [`reserve_all`], which settles all of them.
///
/// Each limit counts in its own unit, so a cost is a function of the limit's index. Dropping it
/// drops the [`SharedReservation`] of each limit.
#[must_use = "a reservation that is dropped at once keeps what it reserved"]
#[derive(Debug)]
pub struct SharedReservations(Vec<SharedReservation>);

/// Reserves an estimate from each of several shared limits, or from none.
///
/// The limits are charged one after the other, in the given order, and each may be on servers of
/// its own. If one of them refuses, what the others have charged is given back, before this
/// returns. Meanwhile these tokens are missing to others, so the limit that refuses most often
/// belongs at the front. A limit whose store does not answer gives nothing back. If the future is
/// dropped while it waits, what was charged stays charged.
///
/// # Errors
///
/// [`DeniedBy`], which names the limit that refused.
///
/// ```no_run
/// use tollgate_redis::{SharedLimiter, reserve_all};
///
/// # async fn ask(users: SharedLimiter<str>, all: SharedLimiter<()>)
/// # -> Result<(), tollgate::DeniedBy> {
/// let limits = [(users.for_key("alice"), 400), (all.for_key(&()), 400)];
/// let held = reserve_all(limits).await?;
/// held.commit(|_| 350).await;
/// # Ok(())
/// # }
/// ```
pub async fn reserve_all(
    estimates: impl IntoIterator<Item = (SharedKey, u64)>,
) -> Result<SharedReservations, DeniedBy> {
    let estimates: Vec<_> = estimates.into_iter().collect();
    let mut held = Vec::with_capacity(estimates.len());
    for (index, (key, estimate)) in estimates.into_iter().enumerate() {
        match key.into_reservation(estimate).await {
            Ok(reservation) => held.push(reservation),
            Err(denied) => {
                SharedReservations(held).release().await;
                return Err(denied_by(index, denied));
            }
        }
    }
    Ok(SharedReservations(held))
}

fn denied_by(index: usize, denied: Denied) -> DeniedBy {
    DeniedBy::among([(index, denied.decision())]).expect("a denial")
}

impl SharedReservations {
    /// The reservation of each limit, in their order.
    pub fn each(&self) -> &[SharedReservation] {
        &self.0
    }

    /// [`SharedReservation::release_on_drop`] for all limits.
    pub fn release_on_drop(mut self) -> Self {
        self.0.iter_mut().for_each(|held| held.release_on_drop = true);
        self
    }

    /// [`SharedReservation::record`] in all limits or in none: `tokens` of the limit with this
    /// index. Limits that have to grow are charged as [`reserve_all`] charges them.
    ///
    /// # Errors
    ///
    /// [`DeniedBy`], which names the limit that refused: the moment to stop.
    ///
    /// ```no_run
    /// # use tollgate_redis::SharedReservations;
    /// # async fn ask(mut held: SharedReservations) -> Result<(), tollgate::DeniedBy> {
    /// // Nine tokens, of a request that was counted before.
    /// held.record(|limit| [9, 0][limit]).await?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn record(&mut self, tokens: impl Fn(usize) -> u64) -> Result<(), DeniedBy> {
        let tokens: Vec<u64> = (0..self.0.len()).map(tokens).collect();
        let mut growths: Vec<(usize, Decision)> = Vec::new();
        for (index, held) in self.0.iter().enumerate() {
            let missing = held.missing(tokens[index]);
            if missing == 0 {
                continue;
            }
            match held.key.check(missing).await.into_result() {
                Ok(growth) => growths.push((index, growth)),
                Err(denied) => {
                    let back = growths
                        .iter()
                        .map(|(index, growth)| self.0[*index].key.refund(growth, growth.charged()));
                    join_all(back).await;
                    return Err(denied_by(index, denied));
                }
            }
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
    /// # use tollgate_redis::SharedReservations;
    /// # async fn ask(held: SharedReservations) {
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
