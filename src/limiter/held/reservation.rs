//! Reservations are charges for work whose cost is known only afterwards.
//!
//! A reservation consists of a charge and a guard. There is no registry of reservations, and the
//! state of a key is still one word: reserved tokens are charged like any other cost, and the guard
//! stores the decision that a refund needs. A leaked reservation therefore costs its tokens and
//! nothing else.
//!
//! # State
//!
//! | field | meaning |
//! |---|---|
//! | `charge` | the answer to the estimate, with the tokens that it charged |
//! | `allowance` | the tokens that `record` may spend without a check: the estimate and all growth |
//! | `charged` | the tokens that the limit has charged in total; less than the allowance if a policy admitted the request |
//! | `recorded` | the tokens that have been spent so far; 0 before the first `record` |
//!
//! ```text
//! refused              nothing is charged, and there is no guard
//! open -> open         record: spends the allowance, or grows it by a check of the missing tokens
//! open -> settled      commit, release or drop: one refund, or one forced charge, or neither
//! ```
//!
//! # Invariants
//!
//! 1. `recorded <= allowance`. A refused call of `record` changes nothing.
//! 2. A reservation is settled once: `commit` and `release` consume the reservation, and the
//!    subsequent drop has no effect.
//! 3. A settlement makes at most one refund, which is at most the charge for the estimate. The
//!    settlement calls the limit's own refund method, so a late settlement refunds the same tokens
//!    as a late refund.
//! 4. Before a reservation is settled, all tokens in `charged` have been admitted by ordinary
//!    checks. Open reservations together therefore stay within the limit's bound, however many
//!    there are. Only `commit` can cause a debt.
//!
//! Charges that increase the allowance are never refunded, because their tokens are spent
//! immediately and a guard stores only one decision.
//!
//! # Progress
//!
//! Each method makes at most one call to the limit (a check, a refund or a forced charge), and has
//! the same progress guarantee as that call. For a reservation against several limits, each method
//! makes such a call to each limit.

use crate::decision::{Decision, Denied};
use crate::limiter::together::chargeable::Chargeable;
use std::fmt;

/// Tokens charged in advance for work whose cost is known later.
///
/// [`Limiter::reserve`](crate::Limiter::reserve) and
/// [`SingleLimiter::reserve`](crate::SingleLimiter::reserve) return a reservation that borrows the
/// limiter. If a task or a response body outlives the caller, use the `reserve_owned` method of
/// either limiter. The type of the reservation is then `Reservation`, without a parameter. For any
/// other [`Chargeable`], use [`new`](Self::new).
///
/// - [`record`](Self::record) spends reserved tokens during the work, and returns an error when the
///   work must stop.
/// - [`commit`](Self::commit) settles the reservation with the actual cost.
/// - [`release`](Self::release) refunds the tokens if the work was not done.
/// - Dropping the reservation leaves the recorded tokens charged, or all reserved tokens if nothing
///   was recorded. A client that disconnects early therefore gains nothing.
///   [`release_on_drop`](Self::release_on_drop) changes this.
///
/// # Late settlements
///
/// A settlement returns the same tokens as a [refund](crate::Limiter::refund): those that the
/// bucket has not yet refilled, or those that the window or the log still counts.
///
/// In a bucket, reservations that are settled in the reverse order of their creation take no tokens
/// from other requests. Any other order may let other requests use some tokens twice. If an earlier
/// reservation is settled first, the tokens of a later reservation refill sooner than the bucket
/// can tell. The later reservation may then return tokens that other requests have charged, but no
/// more of them than the earlier reservations returned while the later one was open.
///
/// The tokens charged in an interval and not returned may therefore exceed the limit's bound. Only
/// reservations that were open at the start of the interval contribute to the excess, each by at
/// most the tokens that it returns.
///
/// ```
/// use tollgate::{Limiter, Quota};
///
/// /// Sends the chunks of a stream, each with its tokens, until the budget is spent.
/// fn send(limiter: &Limiter<String>, user: &str, chunks: &[u64]) -> Result<usize, tollgate::Denied> {
///     let mut budget = limiter.reserve(user, 100)?;
///     let sent = chunks.iter().take_while(|&&tokens| budget.record(tokens).is_ok()).count();
///     let spent = budget.recorded();
///     budget.commit(spent);
///     Ok(sent)
/// }
///
/// let limiter: Limiter<String> = Limiter::builder(Quota::per_hour(250)).build()?;
/// // The first 100 tokens are reserved, and 120 more are charged as the stream grows.
/// assert_eq!(send(&limiter, "alice", &[60, 60, 60, 40, 60]), Ok(4));
/// assert_eq!(limiter.peek("alice").remaining(), 30);
/// // The remaining tokens do not cover the estimate, so nothing is charged.
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
    recorded: u64,
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
    /// The number of tokens charged for the work, minus the tokens that the settlement asked the
    /// limit to refund.
    pub charged: u64,
    /// The tokens that could not be charged, because the cost exceeded the remaining tokens plus
    /// [`max_debt`](crate::Builder::max_debt).
    pub unpaid: u64,
}

impl<L: Chargeable> Reservation<L> {
    /// Charges `estimate` tokens, and keeps them reserved.
    ///
    /// # Errors
    ///
    /// Returns [`Denied`] and charges nothing if the tokens are not available.
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

    /// Creates a reservation for `estimate` tokens that are already charged. `charge` is the
    /// decision that the limit's `check_n` returned, called directly or by
    /// [`check_all`](crate::check_all).
    ///
    /// If `charge` was made by another limit or is also refunded elsewhere, the settlement is wrong
    /// by the number of charged tokens.
    ///
    /// # Errors
    ///
    /// Returns [`Denied`] if `charge` is a denial.
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

    /// Returns the reservation for a charge that the limit has already made.
    #[inline]
    pub(crate) fn of(limit: L, allowance: u64, charge: Decision) -> Self {
        let charged = charge.charged();
        Self { limit, charge, allowance, charged, recorded: 0, release_on_drop: false, is_settled: false }
    }

    /// Configures the reservation to refund all unrecorded tokens when it is dropped.
    ///
    /// Use this method only if callers can't gain from giving up early, because the work costs
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

    /// Returns the decision on the estimate. The figures of the decision do not change later.
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

    /// Returns how many tokens have been recorded so far.
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
        self.recorded
    }

    /// Returns how many tokens can be recorded without another charge.
    ///
    /// ```
    /// # use tollgate::{Quota, SingleLimiter};
    /// let limiter = SingleLimiter::builder(Quota::per_hour(10)).build()?;
    /// assert_eq!(limiter.reserve(3).unwrap().unspent(), 3);
    /// # Ok::<(), tollgate::ConfigError>(())
    /// ```
    pub fn unspent(&self) -> u64 {
        self.allowance - self.recorded
    }

    /// Spends `tokens` tokens. Reserved tokens are spent first, and the rest is charged in
    /// addition. A call with 0 tokens records nothing.
    ///
    /// # Errors
    ///
    /// Returns [`Denied`] if the tokens are not available. The caller should then stop the work. A
    /// denied call records and charges nothing, and does not affect earlier records.
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

    /// Adds `tokens` to the allowance. The decision `growth` charged these tokens.
    pub(crate) fn grow(&mut self, tokens: u64, growth: &Decision) {
        self.allowance = self.allowance.saturating_add(tokens);
        self.charged = self.charged.saturating_add(growth.charged());
    }

    /// Records tokens that do not exceed the allowance.
    pub(crate) fn spend(&mut self, tokens: u64) {
        self.recorded = self.recorded.saturating_add(tokens).min(self.allowance);
    }

    /// Settles the reservation with the actual cost of the work.
    ///
    /// If the cost is below the charged tokens, the difference is returned to the window or bucket
    /// that was charged, as with a [refund](crate::Limiter::refund). Only reserved tokens can be
    /// returned, not the tokens that [`record`](Self::record) charged in addition. [Late
    /// settlements](Self#late-settlements) describes how this may affect other requests.
    ///
    /// If the cost is above the charged tokens, the difference is charged now, and may cause a debt
    /// of up to [`max_debt`](crate::Builder::max_debt). The result contains the tokens that could
    /// not be charged.
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
    // Always inlined, like `reserve`.
    #[inline(always)]
    pub fn commit(mut self, actual: u64) -> Settlement {
        self.settle(actual)
    }

    /// Refunds the reserved tokens, for work that was not done.
    ///
    /// [Late settlements](Self#late-settlements) describes which tokens a late release refunds.
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
        // This flag is set first, so that the reservation is not settled again if the limit panics.
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
        if !self.is_settled && (self.recorded > 0 || self.release_on_drop) {
            // A policy may have admitted the request without a charge, so more tokens may be
            // recorded than charged. A drop does not charge the difference.
            self.settle(self.recorded.min(self.charged));
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
