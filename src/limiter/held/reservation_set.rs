//! A reservation against several limits. It is made, extended and settled in all of the limits or
//! in none.

use super::reservation::{Reservation, Settlement};
use crate::decision::{Decision, Denied};
use crate::limiter::together::chargeable::Chargeable;
use crate::limiter::together::check_all::{Charge, check_all};
use std::ops::Deref;

/// A reservation against several limits, settled in all of them together.
///
/// Returned by [`reserve_all`], or collected from the reservations of single limits.
///
/// Each limit counts in its own unit, so the methods accept costs as a function of the limit's
/// index. The set dereferences to a slice of [`Reservation`]s, one for each limit. Dropping the set
/// drops these reservations.
#[must_use = "a reservation that is dropped at once keeps what it reserved"]
#[derive(Debug)]
pub struct ReservationSet<L: Chargeable>(Vec<Reservation<L>>);

/// Reserves an estimate against each of several limits, or against none of them, like
/// [`check_all`].
///
/// # Errors
///
/// Returns [`Denied`] and charges nothing if a limit denies its estimate. The error identifies the
/// binding limit.
///
/// ```
/// use tollgate::{Chargeable, Limiter, ManualClock, Quota, SingleLimiter, reserve_all};
///
/// let clock = ManualClock::new();
/// let user: Limiter<String> = Limiter::builder(Quota::per_hour(500)).clock(&clock).build()?;
/// let all = SingleLimiter::builder(Quota::per_hour(900)).clock(&clock).build()?;
/// let requests = SingleLimiter::builder(Quota::per_hour(10)).clock(&clock).build()?;
/// let reserve = |name: &str, tokens| {
///     let user = user.for_key(name);
///     let limits: [(&dyn Chargeable, u64); 3] = [(&user, tokens), (&all, tokens), (&requests, 1)];
///     let mut held = reserve_all(limits)?;
///     // The costs of a chunk of 450 tokens. The request counts once, regardless of its tokens.
///     held.record(|limit| [450, 450, 0][limit])?;
///     held.commit(|limit| [450, 450, 1][limit]);
///     Ok::<(), tollgate::Denied>(())
/// };
/// assert!(reserve("alice", 400).is_ok());
/// assert_eq!(reserve("alice", 400).unwrap_err().index(), Some(0));
/// assert!(reserve("bob", 400).is_ok());
/// assert_eq!(reserve("carol", 400).unwrap_err().index(), Some(1));
/// assert_eq!(requests.peek().remaining(), 8);
/// # Ok::<(), tollgate::ConfigError>(())
/// ```
pub fn reserve_all<L: Chargeable>(
    estimates: impl IntoIterator<Item = (L, u64)>,
) -> Result<ReservationSet<L>, Denied> {
    let estimates: Vec<(L, u64)> = estimates.into_iter().collect();
    let charged = all_or_none(estimates.iter().map(|(limit, estimate)| (limit, *estimate)))?;
    let each = estimates.into_iter().zip(charged);
    Ok(ReservationSet(
        each.map(|((limit, estimate), charge)| Reservation::of(limit, estimate, charge)).collect(),
    ))
}

/// Charges either all of several limits or none of them.
fn all_or_none<'l, L: Chargeable + 'l>(
    costs: impl Iterator<Item = (&'l L, u64)>,
) -> Result<Vec<Decision>, Denied> {
    let mut charges: Vec<Charge<'_>> = costs.map(|(limit, cost)| Charge::new(limit, cost)).collect();
    check_all(&mut charges)?;
    Ok(charges.iter().filter_map(|charge| charge.decision().copied()).collect())
}

impl<L: Chargeable> FromIterator<Reservation<L>> for ReservationSet<L> {
    fn from_iter<I: IntoIterator<Item = Reservation<L>>>(each: I) -> Self {
        Self(each.into_iter().collect())
    }
}

impl<L: Chargeable> ReservationSet<L> {
    /// Calls [`Reservation::release_on_drop`] for all limits.
    ///
    /// ```
    /// # use tollgate::{ManualClock, Quota, SingleLimiter, reserve_all};
    /// let limiter = SingleLimiter::builder(Quota::per_hour(9)).clock(ManualClock::new()).build()?;
    /// drop(reserve_all([(&limiter, 4)]).unwrap().release_on_drop());
    /// assert_eq!(limiter.peek().remaining(), 9);
    /// # Ok::<(), tollgate::ConfigError>(())
    /// ```
    pub fn release_on_drop(mut self) -> Self {
        self.0.iter_mut().for_each(|held| held.release_on_drop = true);
        self
    }

    /// Calls [`Reservation::record`] for all limits, or for none of them. `tokens` maps the index
    /// of a limit to its tokens.
    ///
    /// `tokens` may be called several times for a limit, and must return the same value each time.
    ///
    /// # Errors
    ///
    /// Returns [`Denied`] if the tokens are not available. The error identifies the binding limit.
    /// The caller should then stop the work.
    ///
    /// ```
    /// # use tollgate::{Quota, SingleLimiter, reserve_all};
    /// let limiter = SingleLimiter::builder(Quota::per_hour(10)).build()?;
    /// let mut held = reserve_all([(&limiter, 4)]).unwrap();
    /// assert!(held.record(|_| 9).is_ok());
    /// assert!(held.record(|_| 2).is_err());
    /// # Ok::<(), tollgate::ConfigError>(())
    /// ```
    pub fn record(&mut self, tokens: impl Fn(usize) -> u64) -> Result<(), Denied> {
        let missing = |(limit, held): (usize, &Reservation<L>)| tokens(limit).saturating_sub(held.unspent());
        if self.0.iter().enumerate().any(|held| missing(held) > 0) {
            let missing: Vec<u64> = self.0.iter().enumerate().map(missing).collect();
            // A limit that lacks no tokens is checked with a cost of 0, which is always allowed.
            // The costs therefore keep the indices of their limits.
            let costs = self.0.iter().map(|held| &held.limit).zip(missing.iter().copied());
            let growth = all_or_none(costs)?;
            for ((held, &missing), growth) in self.0.iter_mut().zip(&missing).zip(&growth) {
                held.grow(missing, growth);
            }
        }
        self.0.iter_mut().enumerate().for_each(|(limit, held)| held.spend(tokens(limit)));
        Ok(())
    }

    /// Calls [`Reservation::commit`] for all limits. `actual` maps the index of a limit to its
    /// cost.
    ///
    /// ```
    /// # use tollgate::{ManualClock, Quota, SingleLimiter, reserve_all};
    /// let limiter = SingleLimiter::builder(Quota::per_hour(9)).clock(ManualClock::new()).build()?;
    /// let settled = reserve_all([(&limiter, 4)]).unwrap().commit(|_| 12);
    /// assert_eq!((settled[0].charged, settled[0].unpaid), (9, 3));
    /// # Ok::<(), tollgate::ConfigError>(())
    /// ```
    pub fn commit(self, actual: impl Fn(usize) -> u64) -> Vec<Settlement> {
        self.0.into_iter().enumerate().map(|(index, held)| held.commit(actual(index))).collect()
    }

    /// Calls [`Reservation::release`] for all limits.
    ///
    /// ```
    /// # use tollgate::{ManualClock, Quota, SingleLimiter, reserve_all};
    /// let limiter = SingleLimiter::builder(Quota::per_hour(9)).clock(ManualClock::new()).build()?;
    /// reserve_all([(&limiter, 4)]).unwrap().release();
    /// assert_eq!(limiter.peek().remaining(), 9);
    /// # Ok::<(), tollgate::ConfigError>(())
    /// ```
    pub fn release(self) {
        self.0.into_iter().for_each(Reservation::release);
    }
}

impl<L: Chargeable> Deref for ReservationSet<L> {
    type Target = [Reservation<L>];

    /// Returns the reservation of each limit.
    ///
    /// ```
    /// # use tollgate::{Quota, SingleLimiter, reserve_all};
    /// let limiter = SingleLimiter::builder(Quota::per_hour(9)).build()?;
    /// let held = reserve_all([(&limiter, 4)]).unwrap();
    /// assert_eq!(held[0].unspent(), 4);
    /// # Ok::<(), tollgate::ConfigError>(())
    /// ```
    fn deref(&self) -> &Self::Target {
        &self.0
    }
}
