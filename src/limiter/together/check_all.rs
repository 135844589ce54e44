//! Charges one request to several limits: to all of them, or to none.
//!
//! # How
//!
//! One instruction can't change two atomics. [`check_all`] therefore charges the limits one after
//! the other, and refunds its charges if one of the limits refuses. To make such refunds rare,
//! `check_all` looks at all limits before it charges any of them (`look.rs`). A client that is
//! denied repeatedly causes no writes, whichever limit denies it.
//!
//! If a look at a limit is not possible, `check_all` peeks at the limit. The first limit needs no
//! peek, because it is charged before all others, and a denial of this charge writes nothing.
//!
//! Only an insertion can find out whether a full limiter has room for a new key, because only an
//! insertion records the evidence for a time far ahead (see `forgetting`). If a peek answers that
//! the limiter is full, `check_all` therefore calls the limiter's check at once. Such a check is
//! usually denied, and then no other limit has been charged.
//!
//! # What holds, whatever other threads do
//!
//! 1. An allowed request has been charged to each limit in the same way as by the limit's own
//!    check. No limit therefore admits more than it would alone: its bound holds for the tokens
//!    that were charged and not refunded.
//! 2. When the call returns, a refused request has charged nothing, because the call has refunded
//!    its charges.
//! 3. Each step is a look, a check, a peek or a refund of one limit, so the whole call is as
//!    lock-free as these steps. If the word of a limit has changed since the look, `check_all`
//!    calls the limit's check once. If a thread stops between a charge and its refund, the charged
//!    tokens are withheld from other requests, but no other harm is done.
//!
//! # What concurrency makes conservative
//!
//! Two requests that would each pass alone may both be refused if each of them runs while the other
//! holds tokens that it is about to return. Two requests are never both allowed if only one of them
//! fits. As with every refund, a bucket returns only tokens that have not been refilled in the
//! meantime.
//!
//! Why not mark the limits first, and charge them once all are marked? If a thread were killed,
//! other threads would have to find its mark and undo it. That would require more than one word of
//! state for each key.

use super::chargeable::Chargeable;
use super::look::{Look, Moment};
use crate::decision::{Decision, DecisionSource, Denied};
use std::fmt;

/// A request to one limiter in [`check_all`], and the limiter's answer.
pub struct Charge<'l> {
    limiter: &'l dyn Chargeable,
    cost: u64,
    is_shadow: bool,
    /// Whether the limiter has been charged and no part of the charge has been refunded.
    is_charged: bool,
    answer: Option<Decision>,
}

impl<'l> Charge<'l> {
    /// Creates a request for `cost` tokens from `limiter`. This function does not call the limiter.
    ///
    /// ```
    /// # use tollgate::{Charge, Quota, SingleLimiter};
    /// let limiter = SingleLimiter::builder(Quota::per_hour(1)).build()?;
    /// assert!(Charge::new(&limiter, 1).decision().is_none());
    /// # Ok::<(), tollgate::ConfigError>(())
    /// ```
    #[must_use]
    pub fn new(limiter: &'l dyn Chargeable, cost: u64) -> Self {
        Self { limiter, cost, is_shadow: false, is_charged: false, answer: None }
    }

    /// Puts the limiter on trial: it never denies the request, but is still charged if the other
    /// limiters allow the request.
    ///
    /// ```
    /// # use tollgate::{check_all, Charge, Quota, SingleLimiter};
    /// let tried = SingleLimiter::builder(Quota::per_hour(1)).build()?;
    /// for allowed in [true, false] {
    ///     let mut charges = [Charge::new(&tried, 1).shadow()];
    ///     assert!(check_all(&mut charges).is_ok());
    ///     assert_eq!(charges[0].decision().unwrap().is_allowed(), allowed);
    /// }
    /// # Ok::<(), tollgate::ConfigError>(())
    /// ```
    #[must_use]
    pub fn shadow(self) -> Self {
        Self { is_shadow: true, ..self }
    }

    /// Returns the limiter's answer, or `None` before a call of [`check_all`].
    ///
    /// If the request was denied, the figures describe the state without this charge.
    ///
    /// ```
    /// # use tollgate::{check_all, Charge, Quota, SingleLimiter};
    /// let limiter = SingleLimiter::builder(Quota::per_hour(9)).build()?;
    /// let mut charges = [Charge::new(&limiter, 2)];
    /// assert!(check_all(&mut charges).is_ok());
    /// assert_eq!(charges[0].decision().unwrap().remaining(), 7);
    /// # Ok::<(), tollgate::ConfigError>(())
    /// ```
    #[must_use]
    pub fn decision(&self) -> Option<&Decision> {
        self.answer.as_ref()
    }

    /// Refunds the charged tokens, for a request that failed after it was allowed.
    ///
    /// A second call has no effect. The decision remains available.
    ///
    /// ```
    /// # use tollgate::{Charge, ManualClock, Quota, SingleLimiter, check_all};
    /// let limiter = SingleLimiter::builder(Quota::per_hour(9)).clock(ManualClock::new()).build()?;
    /// let mut charges = [Charge::new(&limiter, 2)];
    /// assert!(check_all(&mut charges).is_ok());
    /// charges[0].refund();
    /// charges[0].refund();
    /// assert_eq!(limiter.peek().remaining(), 9);
    /// # Ok::<(), tollgate::ConfigError>(())
    /// ```
    pub fn refund(&mut self) {
        self.refund_n(u64::MAX);
    }

    /// Refunds at most `tokens` of the charged tokens, for a request whose actual cost was lower
    /// than the charge.
    ///
    /// The rest of the charge can't be refunded later.
    ///
    /// ```
    /// # use tollgate::{Charge, ManualClock, Quota, SingleLimiter, check_all};
    /// let limiter = SingleLimiter::builder(Quota::per_hour(9)).clock(ManualClock::new()).build()?;
    /// let mut charges = [Charge::new(&limiter, 5)];
    /// assert!(check_all(&mut charges).is_ok());
    /// charges[0].refund_n(3); // it took 2
    /// assert_eq!(limiter.peek().remaining(), 7);
    /// # Ok::<(), tollgate::ConfigError>(())
    /// ```
    pub fn refund_n(&mut self, tokens: u64) {
        if let Some(charge) = self.answer.filter(|_| self.is_charged) {
            self.is_charged = false;
            self.limiter.refund_n(&charge, tokens);
        }
    }

    /// Charges the limiter. Returns true if the limiter allows the request.
    #[inline(never)]
    fn check(&mut self) -> bool {
        self.is_charged = self.answer.insert(self.limiter.check_n(self.cost)).is_allowed();
        self.is_charged
    }

    /// Returns whether the limiter allows the request. Peeks at the limiter, and charges it only if
    /// the peek found the limiter full.
    #[inline(never)]
    fn peek_or_insert(&mut self) -> bool {
        let peeked = self.limiter.peek_n(self.cost);
        let is_full = matches!(peeked.source(), DecisionSource::Policy | DecisionSource::Overflow);
        if is_full && !peeked.is_allowed() { self.check() } else { self.take_answer(peeked) }
    }

    /// Peeks at the limiter, without a charge.
    #[inline(never)]
    fn peek(&mut self) {
        self.take_answer(self.limiter.peek_n(self.cost));
    }

    /// Stores the answer of a peek. Returns true if the limiter allows the request.
    ///
    /// A denial by a peek is final, so the limiter counts the denial.
    fn take_answer(&mut self, peeked: Decision) -> bool {
        self.answer = Some(peeked);
        let denial = self.denial();
        if let Some(denied) = denial {
            self.limiter.note_denial(denied);
        }
        denial.is_none()
    }

    /// Returns the decision if it is a denial.
    fn denial(&self) -> Option<&Decision> {
        self.decision().filter(|decision| !self.is_shadow && !decision.is_allowed())
    }
}

impl fmt::Debug for Charge<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { cost, is_shadow, .. } = self;
        let mut debug = f.debug_struct("Charge");
        debug.field("cost", cost).field("shadow", is_shadow).field("decision", &self.decision());
        debug.finish_non_exhaustive()
    }
}

/// Checks one request against several limiters. The request is allowed only if all of them allow
/// it. It is charged either to all of the limiters or to none.
///
/// This function looks at all limiters before it charges any of them. A denied request therefore
/// writes nothing, unless another thread charges one of the limiters at the same time, or one of
/// the limiters is full and the request is for a new key.
///
/// The order of the charges does not change the answer. Include each state only once, because two
/// charges of one state may deny each other. The same `charges` can be passed to several calls.
/// Each call computes new answers, and tokens charged by earlier calls remain charged.
///
/// If a limiter panics, for example in the `Eq` of an exact key, this function does not refund the
/// charges of the other limiters, because the refund could also panic. Call [`Charge::refund`] to
/// refund these charges.
///
/// A limiter never admits more than it would alone. If requests race, one request may be denied
/// because another request holds tokens that it is about to return. If the quota of a limiter
/// changes, or the limiter is reset, just before such tokens return, they return as time passes.
///
/// # Errors
///
/// Returns [`Denied`] and charges nothing if the request is denied. The error identifies the
/// binding limit.
///
/// ```
/// use tollgate::{Charge, Limiter, Quota, SingleLimiter, check_all};
///
/// let each: Limiter<String> = Limiter::builder(Quota::per_hour(2)).build()?;
/// let all = SingleLimiter::builder(Quota::per_hour(3)).build()?;
/// let ask = |user: &str| {
///     let key = each.for_key(user);
///     check_all(&mut [Charge::new(&key, 1), Charge::new(&all, 1)])
/// };
///
/// assert!(ask("alice").is_ok() && ask("alice").is_ok());
/// assert_eq!(ask("alice").unwrap_err().index(), Some(0));
/// assert!(ask("bob").is_ok());
/// assert_eq!(ask("bob").unwrap_err().index(), Some(1));
/// // Bob's own limit was not charged for the refused request.
/// assert_eq!(each.peek("bob").remaining(), 1);
/// # Ok::<(), tollgate::ConfigError>(())
/// ```
pub fn check_all(charges: &mut [Charge<'_>]) -> Result<(), Denied> {
    // An earlier call may have charged the same limits. This call must not refund those charges,
    // even if a look denies or panics before all limits have been looked at.
    charges.iter_mut().for_each(|charge| (charge.answer, charge.is_charged) = (None, false));
    let moment = Moment::new();
    let mut looks = [Look::at(&moment); LOOKS];
    if look_at_each(charges, &mut looks) && commit_each(charges, &looks) {
        charges.iter_mut().filter(|charge| charge.is_shadow).for_each(|charge| _ = charge.check());
        return Ok(());
    }
    refuse(charges, &mut looks)
}

/// The maximum number of looks in one call, which is more than most requests need. In a larger
/// request, the remaining limits are peeked at instead.
const LOOKS: usize = 8;

/// Looks or peeks at all limits except the shadows, until one of them denies the request. Returns
/// true if all of them allow it. Charges only limits that a peek found full.
#[inline(always)]
fn look_at_each<'l: 'm, 'm>(charges: &mut [Charge<'l>], looks: &mut [Look<'m>]) -> bool {
    let mut is_first = true;
    for (index, charge) in charges.iter_mut().enumerate() {
        if charge.is_shadow {
            continue;
        }
        let fits = looks.get_mut(index).and_then(|look| {
            charge.limiter.look(charge.cost, look);
            look.fits()
        });
        // If the look has seen nothing, the first charge still needs no peek, because it is made
        // before all others.
        let is_first = std::mem::take(&mut is_first);
        if !fits.unwrap_or_else(|| is_first || charge.peek_or_insert()) {
            return false;
        }
    }
    true
}

/// Charges all limits except the shadows in order, until one denies. Returns true if none denies.
#[inline(always)]
fn commit_each(charges: &mut [Charge<'_>], looks: &[Look<'_>]) -> bool {
    for (index, charge) in charges.iter_mut().enumerate() {
        if charge.is_shadow {
            continue;
        }
        if let Some(look) = looks.get(index)
            && let Some(stamp) = look.commit()
        {
            look.answer(stamp, &mut charge.answer);
            charge.is_charged = true;
        } else if !charge.is_charged && !charge.check() {
            return false;
        }
    }
    true
}

/// Refunds the charges, and computes the answers of limits that have none yet.
#[inline(never)]
fn refuse<'l: 'm, 'm>(charges: &mut [Charge<'l>], looks: &mut [Look<'m>]) -> Result<(), Denied> {
    for (index, charge) in charges.iter_mut().enumerate() {
        if charge.is_charged {
            charge.refund();
            charge.answer = None;
        }
        if charge.answer.is_none()
            && let Some(look) = looks.get_mut(index)
        {
            if look.fits().is_none() {
                charge.limiter.look(charge.cost, look);
            }
            charge.answer = look.peek();
        }
        if charge.answer.is_none() {
            charge.peek();
        }
    }
    let denials = charges.iter().enumerate();
    let denials = denials.filter_map(|(index, charge)| Some((index, *charge.denial()?)));
    Denied::among(denials).map_or(Ok(()), Err)
}
