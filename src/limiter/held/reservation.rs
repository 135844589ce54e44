//! Reservations: a cost that is known only when the work is done.
//!
//! A reservation is a charge and a guard. There is no registry of reservations, and a key is still
//! one word: what is reserved is charged like any other cost, and the guard keeps the decision that
//! a refund needs. So a reservation that its owner forgets costs its tokens and nothing else.
//!
//! # State
//!
//! | field | meaning |
//! |---|---|
//! | `charge` | the answer to the estimate, which an allowed request was charged |
//! | `allowance` | what `record` may spend without asking: the estimate and all growth |
//! | `charged` | what the limit has charged in all; less than the allowance where a policy admitted |
//! | `recorded` | what was spent so far; `None` before the first `record` |
//!
//! ```text
//! refused              nothing is charged, and there is no guard
//! open -> open         record: spends the allowance, or grows it by a check of what is missing
//! open -> settled      commit, release or drop: one refund, or one forced charge, or neither
//! ```
//!
//! # Invariants
//!
//! 1. `recorded <= allowance`. A record that is refused changes nothing.
//! 2. A reservation is settled once: `commit` and `release` consume it, and it is dropped after
//!    them without effect.
//! 3. At most what the estimate was charged is given back, once, by the limit's own refund. So a
//!    settlement that comes late gives back what a late refund does.
//! 4. Before it is settled, `charged` was admitted by ordinary checks. So any number of open
//!    reservations together hold no more than the limit's bound; only `commit` goes into debt.
//!
//! What growth has charged is not given back: it was spent at that moment, and one guard keeps one
//! decision.
//!
//! # Progress
//!
//! Each method is one check, one refund or one forced charge of the limit, and as lock-free as
//! that. For several limits it is one for each.

use crate::decision::{Decision, Denied};
use crate::limiter::together::chargeable::Chargeable;
use std::fmt;

/// Tokens that were charged for work whose cost is known later.
///
/// Made by [`Limiter::reserve`](crate::Limiter::reserve) and
/// [`SingleLimiter::reserve`](crate::SingleLimiter::reserve), which borrow the limiter, by
/// `reserve_owned` of both, for a task or a response body that outlives the caller, and by
/// [`new`](Self::new) for anything that can be [charged](Chargeable). What `reserve_owned` returns
/// is written `Reservation`, without a parameter.
///
/// - [`record`](Self::record) spends it while the work goes on, and tells when to stop;
/// - [`commit`](Self::commit) settles it with the actual cost;
/// - [`release`](Self::release) gives it back, if the work was not done;
/// - dropping it keeps what was recorded, or all that was reserved if nothing was. So a client that
///   disconnects early gains nothing. [`release_on_drop`](Self::release_on_drop) changes this.
///
/// # Late settlements
///
/// A settlement gives back what a [refund](crate::Limiter::refund) does: the tokens that the bucket
/// has not refilled since they were reserved, or that the window or the log still counts. In a
/// bucket, reservations that are settled out of order may let others have some tokens twice. If an
/// earlier reservation is given back first, the tokens of a later one refill sooner than the bucket
/// can tell. The later one then gives back tokens of others: at most as many as the earlier ones
/// gave back while it was open. Reservations that are settled in the reverse order take nothing
/// from others.
///
/// So an interval may keep more than the bound of the limit, by no more than what reservations that
/// were open at its beginning give back.
///
/// ```
/// use tollgate::{Limiter, Quota};
///
/// /// Sends the chunks of a stream, each with its tokens, until the budget is spent.
/// fn send(limiter: &Limiter<str>, user: &str, chunks: &[u64]) -> Result<usize, tollgate::Denied> {
///     let mut budget = limiter.reserve(user, 100)?;
///     let sent = chunks.iter().take_while(|&&tokens| budget.record(tokens).is_ok()).count();
///     let spent = budget.recorded();
///     budget.commit(spent);
///     Ok(sent)
/// }
///
/// let limiter: Limiter<str> = Limiter::builder(Quota::per_hour(250)).build()?;
/// // The first 100 tokens are reserved, and 120 more are there.
/// assert_eq!(send(&limiter, "alice", &[60, 60, 60, 40, 60]), Ok(4));
/// assert_eq!(limiter.peek("alice").remaining(), 30);
/// // What is left does not cover the estimate, so nothing is charged.
/// assert!(send(&limiter, "alice", &[10]).is_err());
/// assert_eq!(limiter.peek("alice").remaining(), 30);
/// # Ok::<(), tollgate::ConfigError>(())
/// ```
#[must_use = "a reservation that is dropped at once keeps what it reserved"]
pub struct Reservation<L: Chargeable = Box<dyn Chargeable + Send + Sync>> {
    pub(crate) limit: L,
    charge: Decision,
    allowance: u64,
    charged: u64,
    recorded: Option<u64>,
    pub(crate) release_on_drop: bool,
    is_settled: bool,
}

/// The result of [`Reservation::commit`].
///
/// ```
/// # use tollgate::{ManualClock, Quota, SingleLimiter};
/// let builder = SingleLimiter::builder(Quota::per_hour(10)).clock(ManualClock::new());
/// let limiter = builder.max_debt(3).build()?;
/// let settled = limiter.reserve(4).unwrap().commit(15);
/// assert_eq!((settled.charged, settled.unpaid), (13, 2));
/// # Ok::<(), tollgate::ConfigError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Settlement {
    /// The tokens that the limit has charged for the work, without what the settlement asked it to
    /// give back.
    pub charged: u64,
    /// The tokens that could not be charged: they were beyond the room and
    /// [`max_debt`](crate::Builder::max_debt).
    pub unpaid: u64,
}

impl<L: Chargeable> Reservation<L> {
    /// Charges `estimate` tokens, and holds them.
    ///
    /// # Errors
    ///
    /// [`Denied`] if they are not there. Then nothing is charged.
    ///
    /// # Progress
    ///
    /// As the limit's check.
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use tollgate::{Quota, Reservation, SingleLimiter};
    /// let limiter = Arc::new(SingleLimiter::builder(Quota::per_hour(10)).build()?);
    /// let held = Reservation::new(Arc::clone(&limiter), 8).unwrap();
    /// assert!(Reservation::new(&limiter, 8).is_err());
    /// held.release();
    /// # Ok::<(), tollgate::ConfigError>(())
    /// ```
    #[inline]
    pub fn new(limit: L, estimate: u64) -> Result<Self, Denied> {
        let charge = limit.check_n(estimate);
        Self::from_charge(limit, estimate, charge)
    }

    /// Holds `estimate` tokens that are charged already: `charge` is the answer of the limit's
    /// `check_n`, asked alone or by [`check_all`](crate::check_all).
    ///
    /// An answer of another limit, or one that is refunded elsewhere too, makes the settlement
    /// wrong by as much as it charged.
    ///
    /// # Errors
    ///
    /// [`Denied`] if the answer is one.
    ///
    /// # Progress
    ///
    /// Wait-free; it asks nobody.
    ///
    /// ```
    /// # use tollgate::{Charge, ManualClock, Quota, Reservation, SingleLimiter, check_all};
    /// let limiter = SingleLimiter::builder(Quota::per_hour(9)).clock(ManualClock::new()).build()?;
    /// let mut charges = [Charge::new(&limiter, 8)];
    /// assert!(check_all(&mut charges).is_ok());
    /// let charge = *charges[0].decision().unwrap();
    /// Reservation::from_charge(&limiter, 8, charge).unwrap().commit(3);
    /// assert_eq!(limiter.peek().remaining(), 6);
    /// # Ok::<(), tollgate::ConfigError>(())
    /// ```
    #[inline]
    pub fn from_charge(limit: L, estimate: u64, charge: Decision) -> Result<Self, Denied> {
        charge.ok()?;
        Ok(Self::of(limit, estimate, charge))
    }

    /// The reservation of a charge that the limit has made.
    #[inline]
    pub(crate) fn of(limit: L, allowance: u64, charge: Decision) -> Self {
        let charged = charge.charged();
        Self { limit, charge, allowance, charged, recorded: None, release_on_drop: false, is_settled: false }
    }

    /// Gives back what was not recorded when the reservation is dropped.
    ///
    /// Choose it only where a caller can't gain from giving up early: where the work has cost
    /// nothing before it is recorded.
    ///
    /// ```
    /// # use tollgate::{ManualClock, Quota, SingleLimiter};
    /// let builder = SingleLimiter::builder(Quota::per_hour(10)).clock(ManualClock::new());
    /// let limiter = builder.build()?;
    /// drop(limiter.reserve(3).unwrap());
    /// drop(limiter.reserve(3).unwrap().release_on_drop());
    /// assert_eq!(limiter.peek().remaining(), 7);
    /// # Ok::<(), tollgate::ConfigError>(())
    /// ```
    pub fn release_on_drop(mut self) -> Self {
        self.release_on_drop = true;
        self
    }

    /// The answer to the estimate. Its figures do not change later.
    ///
    /// ```
    /// # use tollgate::{Quota, SingleLimiter};
    /// let limiter = SingleLimiter::builder(Quota::per_hour(10)).build()?;
    /// assert_eq!(limiter.reserve(3).unwrap().decision().remaining(), 7);
    /// # Ok::<(), tollgate::ConfigError>(())
    /// ```
    pub const fn decision(&self) -> &Decision {
        &self.charge
    }

    /// The tokens that were recorded so far.
    ///
    /// ```
    /// # use tollgate::{Quota, SingleLimiter};
    /// let limiter = SingleLimiter::builder(Quota::per_hour(10)).build()?;
    /// let mut held = limiter.reserve(3).unwrap();
    /// assert!(held.record(2).is_ok());
    /// assert_eq!((held.recorded(), held.unspent()), (2, 1));
    /// # Ok::<(), tollgate::ConfigError>(())
    /// ```
    pub fn recorded(&self) -> u64 {
        self.recorded.unwrap_or(0)
    }

    /// The tokens that can be recorded without another charge.
    ///
    /// ```
    /// # use tollgate::{Quota, SingleLimiter};
    /// let limiter = SingleLimiter::builder(Quota::per_hour(10)).build()?;
    /// assert_eq!(limiter.reserve(3).unwrap().unspent(), 3);
    /// # Ok::<(), tollgate::ConfigError>(())
    /// ```
    pub fn unspent(&self) -> u64 {
        self.allowance - self.recorded()
    }

    /// Spends `tokens`: first what is reserved, then what can be charged in addition.
    ///
    /// # Errors
    ///
    /// [`Denied`] if they are not there: the moment to stop. This call has recorded and charged
    /// nothing then, and what was recorded before stays.
    ///
    /// # Progress
    ///
    /// Wait-free while the reservation lasts, then as the limit's check.
    ///
    /// ```
    /// # use tollgate::{Quota, SingleLimiter};
    /// let limiter = SingleLimiter::builder(Quota::per_hour(10)).build()?;
    /// let mut held = limiter.reserve(3).unwrap();
    /// assert!(held.record(8).is_ok());
    /// assert!(held.record(3).is_err());
    /// assert!(held.record(2).is_ok());
    /// # Ok::<(), tollgate::ConfigError>(())
    /// ```
    pub fn record(&mut self, tokens: u64) -> Result<(), Denied> {
        let missing = tokens.saturating_sub(self.unspent());
        if missing > 0 {
            let growth = self.limit.check_n(missing);
            growth.ok()?;
            self.grow(missing, &growth);
        }
        self.spend(tokens);
        Ok(())
    }

    /// Adds `tokens` to the allowance, for which the limit has made the charge `growth`.
    pub(crate) fn grow(&mut self, tokens: u64, growth: &Decision) {
        self.allowance = self.allowance.saturating_add(tokens);
        self.charged = self.charged.saturating_add(growth.charged());
    }

    /// Records tokens that are within the allowance.
    pub(crate) fn spend(&mut self, tokens: u64) {
        self.recorded = Some(self.recorded().saturating_add(tokens).min(self.allowance));
    }

    /// Settles the reservation with the cost that the work had.
    ///
    /// A cost below what was charged gives the rest back, as far as a
    /// [refund](crate::Limiter::refund) does: to the window or the bucket that was charged, and not
    /// more than was reserved. [Late settlements](Self#late-settlements) states what this may take
    /// from others. (What [`record`](Self::record) charged in addition stays.) A cost
    /// above it is charged now, and may go into debt up to
    /// [`max_debt`](crate::Builder::max_debt). The result tells what was beyond that.
    ///
    /// # Progress
    ///
    /// Lock-free, as the limit's refund or check.
    ///
    /// ```
    /// # use tollgate::{ManualClock, Quota, SingleLimiter};
    /// let builder = SingleLimiter::builder(Quota::per_hour(10)).clock(ManualClock::new());
    /// let limiter = builder.build()?;
    /// limiter.reserve(8).unwrap().commit(3);
    /// assert_eq!(limiter.peek().remaining(), 7);
    /// limiter.reserve(2).unwrap().commit(4);
    /// assert_eq!(limiter.peek().remaining(), 3);
    /// # Ok::<(), tollgate::ConfigError>(())
    /// ```
    // Always inlined, as `reserve`.
    #[inline(always)]
    pub fn commit(mut self, actual: u64) -> Settlement {
        self.settle(actual)
    }

    /// Gives back what was reserved, for work that was not done.
    ///
    /// [Late settlements](Self#late-settlements) states what a late release gives back.
    ///
    /// # Progress
    ///
    /// Lock-free, as the limit's refund.
    ///
    /// ```
    /// # use tollgate::{ManualClock, Quota, SingleLimiter};
    /// let builder = SingleLimiter::builder(Quota::per_hour(10)).clock(ManualClock::new());
    /// let limiter = builder.build()?;
    /// limiter.reserve(8).unwrap().release();
    /// assert_eq!(limiter.peek().remaining(), 10);
    /// # Ok::<(), tollgate::ConfigError>(())
    /// ```
    pub fn release(mut self) {
        self.settle(0);
    }

    #[inline(always)]
    fn settle(&mut self, actual: u64) -> Settlement {
        // First, so that a panic of the limit does not settle it again.
        self.is_settled = true;
        let charged = self.charged;
        if actual < charged {
            let back = (charged - actual).min(self.charge.charged());
            self.limit.refund_n(&self.charge, back);
            return Settlement { charged: charged - back, unpaid: 0 };
        }
        let owed = actual - charged;
        let paid = if owed > 0 { self.limit.force(owed).min(owed) } else { 0 };
        Settlement { charged: charged + paid, unpaid: owed - paid }
    }
}

impl<L: Chargeable> Drop for Reservation<L> {
    #[inline]
    fn drop(&mut self) {
        if !self.is_settled && (self.recorded.is_some() || self.release_on_drop) {
            // Where a policy admitted and charged nothing, there is nothing to keep.
            self.settle(self.recorded().min(self.charged));
        }
    }
}

impl<L: Chargeable> fmt::Debug for Reservation<L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reservation")
            .field("decision", &self.charge)
            .field("charged", &self.charged)
            .field("recorded", &self.recorded)
            .finish_non_exhaustive()
    }
}
