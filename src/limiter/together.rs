//! Several limits that are charged together: all of them or none.
//!
//! # How
//!
//! Two atomics can't be changed by one instruction, so a request that several limits must allow is charged to one
//! after the other, and what was charged is given back if one refuses. To be refused should be rare there: so all
//! limits but the first are looked at before any is charged, and a client that is denied again and again, by
//! whichever limit, writes nothing.
//!
//! # What holds, whatever other threads do
//!
//! 1. A request that is allowed has been charged to each limit, by that limit's own check. So none admits more than
//!    it would alone: its bound holds for what was charged and not given back.
//! 2. A request that is refused has nothing charged when the call returns: what it charged it has given back itself.
//! 3. Each step is a check, a peek or a refund of one limit, so the whole is as lock-free as these. Nothing is
//!    tried again: a thread that stops between a charge and its refund keeps these tokens from others, and nothing
//!    else.
//!
//! # What concurrency makes conservative
//!
//! Between a charge and its refund the tokens are missing. So two requests, each of which could have been
//! allowed alone, may both be refused if each finds what the other will give back; never may both be allowed where
//! there was room for one. And as with every refund, a bucket gives back only what has not refilled meanwhile.
//!
//! Why not reserve and then commit: a reservation that its owner forgot (a thread that was killed) would have to
//! be found and undone by others, which takes more state for each key than one word.

use super::fingerprints::Fingerprints;
use super::keyed::Limiter;
use super::single::SingleLimiter;
use super::store::{Accepts, Store};
use crate::decision::Decision;
use equivalent::Equivalent;
use std::fmt;
use std::hash::Hash;
use std::time::Duration;

/// What can be charged together with others, by [`check_all`]: one state. A [`SingleLimiter`] is one, a [`Limiter`]
/// with a [key](Limiter::for_key) is one.
///
/// Others may implement it. What is promised of `check_all` follows from what they promise: `check_n` charges all of
/// the cost or nothing, `peek_n` charges nothing, `refund` gives back a charge that `check_n` made.
pub trait Gate {
    /// As [`Limiter::check_n`].
    fn check_n(&self, cost: u64) -> Decision;
    /// What [`check_n`](Self::check_n) would answer now.
    fn peek_n(&self, cost: u64) -> Decision;
    /// As [`Limiter::refund`].
    fn refund(&self, charge: &Decision);
}

impl Chargeable for SingleLimiter {
    fn check_n(&self, cost: u64) -> Decision {
        Self::check_n(self, cost)
    }

    fn peek_n(&self, cost: u64) -> Decision {
        self.peek_at(cost, self.clock().now())
    }

    fn refund(&self, charge: &Decision) {
        Self::refund(self, charge);
    }
}

/// A limiter and one of its keys, made by [`Limiter::for_key`].
pub struct KeyLimiter<'l, Q: ?Sized, K: ?Sized, S: Store = Fingerprints> {
    limiter: &'l Limiter<K, S>,
    key: &'l Q,
}

impl<K: ?Sized, S: Store> Limiter<K, S> {
    /// The limiter, for one key: to be charged together with others by [`check_all`].
    ///
    /// ```
    /// # use tollgate::{Chargeable, Limiter, Quota};
    /// let limiter: Limiter<str> = Limiter::builder(Quota::per_hour(1)).build()?;
    /// let alice = limiter.for_key("alice");
    /// assert!(alice.check_n(1).is_allowed());
    /// assert!(!alice.check_n(1).is_allowed());
    /// # Ok::<(), tollgate::ConfigError>(())
    /// ```
    pub fn limiter<'l, Q>(&'l self, key: &'l Q) -> KeyLimiter<'l, Q, K, S>
    where
        Q: Hash + Equivalent<K> + ?Sized,
        S: Accepts<Q>,
    {
        KeyLimiter { limiter: self, key }
    }
}

impl<Q, K, S> Chargeable for KeyLimiter<'_, Q, K, S>
where
    Q: Hash + Equivalent<K> + ?Sized,
    K: ?Sized,
    S: Store + Accepts<Q>,
{
    fn check_n(&self, cost: u64) -> Decision {
        self.limiter.check_n(self.key, cost)
    }

    fn peek_n(&self, cost: u64) -> Decision {
        self.limiter.peek_at(self.key, cost, self.limiter.clock().now())
    }

    fn refund(&self, charge: &Decision) {
        self.limiter.refund(self.key, charge);
    }
}

impl<Q: fmt::Debug + ?Sized, K: ?Sized, S: Store> fmt::Debug for KeyLimiter<'_, Q, K, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeyLimiter").field("limiter", &self.limiter).field("key", &self.key).finish()
    }
}

/// One limit's part in a request: what is asked of it, and what it answered.
pub struct Charge<'g> {
    limiter: &'g dyn Chargeable,
    cost: u64,
    is_shadow: bool,
    answer: Answer,
}

/// What is known of a part.
#[derive(Clone, Copy)]
enum Answer {
    Unasked,
    Looked(Decision),
    Charged(Decision),
}

impl<'g> Charge<'g> {
    /// A request of `cost` tokens from `limiter`.
    ///
    /// ```
    /// # use tollgate::{Charge, Quota, SingleLimiter};
    /// let limiter = SingleLimiter::builder(Quota::per_hour(1)).build()?;
    /// assert!(Charge::new(&limiter, 1).decision().is_none());
    /// # Ok::<(), tollgate::ConfigError>(())
    /// ```
    #[must_use]
    pub fn new(limiter: &'g dyn Chargeable, cost: u64) -> Self {
        Self { limiter, cost, is_shadow: false, answer: Answer::Unasked }
    }

    /// Of a limit that is only tried out: it never refuses, and is charged if the others allow the request.
    ///
    /// ```
    /// # use tollgate::{check_all, Charge, Quota, SingleLimiter};
    /// let tried = SingleLimiter::builder(Quota::per_hour(1)).build()?;
    /// for allowed in [true, false] {
    ///     let mut parts = [Charge::new(&tried, 1).shadow()];
    ///     assert_eq!(check_all(&mut parts), None);
    ///     assert_eq!(parts[0].decision().unwrap().is_allowed(), allowed);
    /// }
    /// # Ok::<(), tollgate::ConfigError>(())
    /// ```
    #[must_use]
    pub fn shadow(self) -> Self {
        Self { is_shadow: true, ..self }
    }

    /// What the limit answered; `None` before [`check_all`]. If the request was refused, the figures are those
    /// before a charge.
    ///
    /// ```
    /// # use tollgate::{check_all, Charge, Quota, SingleLimiter};
    /// let limiter = SingleLimiter::builder(Quota::per_hour(9)).build()?;
    /// let mut parts = [Charge::new(&limiter, 2)];
    /// check_all(&mut parts);
    /// assert_eq!(parts[0].decision().unwrap().remaining(), 7);
    /// # Ok::<(), tollgate::ConfigError>(())
    /// ```
    #[must_use]
    pub fn decision(&self) -> Option<&Decision> {
        match &self.answer {
            Answer::Unasked => None,
            Answer::Looked(decision) | Answer::Charged(decision) => Some(decision),
        }
    }

    /// Gives back what this part was charged, if it was and has not been given back: for a request that failed after
    /// it was allowed. Its decision stays.
    ///
    /// ```
    /// # use tollgate::{check_all, Clock, Charge, Quota, SingleLimiter};
    /// let limiter = SingleLimiter::builder(Quota::per_hour(9)).clock(Clock::manual()).build()?;
    /// let mut parts = [Charge::new(&limiter, 2)];
    /// check_all(&mut parts);
    /// parts[0].refund();
    /// parts[0].refund();
    /// assert_eq!(limiter.peek().remaining(), 9);
    /// # Ok::<(), tollgate::ConfigError>(())
    /// ```
    pub fn refund(&mut self) {
        if let Answer::Charged(decision) = self.answer {
            self.limiter.refund(&decision);
            self.answer = Answer::Looked(decision);
        }
    }

    fn look(&mut self) {
        self.answer = Answer::Looked(self.limiter.peek_n(self.cost));
    }

    fn charge(&mut self) {
        let decision = self.limiter.check_n(self.cost);
        self.answer =
            if decision.is_allowed() { Answer::Charged(decision) } else { Answer::Looked(decision) };
    }

    fn refuses(&self) -> bool {
        !self.is_shadow && self.decision().is_some_and(|decision| !decision.is_allowed())
    }

    /// How long until it allows the request; the longest if it never will.
    fn wait(&self) -> Duration {
        self.decision().and_then(Decision::retry_after).unwrap_or(Duration::MAX)
    }
}

impl fmt::Debug for Charge<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { cost, is_shadow, .. } = self;
        let mut debug = f.debug_struct("Part");
        debug.field("cost", cost).field("shadow", is_shadow).field("decision", &self.decision());
        debug.finish_non_exhaustive()
    }
}

/// Asks several limits for one request, which is allowed if all of them allow it, and charged to all or to none.
///
/// `None` if it is allowed. Else the index of the limit that binds: of those that refuse, the one with the longest
/// [`retry_after`](Decision::retry_after) (the first of them, if several wait as long). Nothing is charged then.
///
/// The order of the parts does not matter for the answer. Put the limit that refuses most first: it is asked once, the
/// others are looked at before any is charged. Name each state once: two parts of one state may refuse each other.
///
/// If a limit panics (in the `Eq` of an exact key, for example), what other parts were charged is not given back by itself, for that
/// could panic too: [`Part::refund`] does it.
///
/// No limit ever admits more than it would alone. Where requests race, one may be refused for want of tokens that
/// another is about to give back.
///
/// # Progress
///
/// As the limits' checks, peeks and refunds; nothing else is waited for, and nothing is tried again.
///
/// ```
/// use tollgate::{Limiter, Charge, Quota, SingleLimiter, check_all};
///
/// let each: Limiter<str> = Limiter::builder(Quota::per_hour(2)).build()?;
/// let all = SingleLimiter::builder(Quota::per_hour(3)).build()?;
/// let mut ask = |user: &str| {
///     let key = each.for_key(user);
///     check_all(&mut [Charge::new(&key, 1), Charge::new(&all, 1)])
/// };
///
/// assert_eq!((ask("alice"), ask("alice")), (None, None));
/// assert_eq!(ask("alice"), Some(0));
/// assert_eq!((ask("bob"), ask("bob")), (None, Some(1)));
/// // What bob's own limit was asked for is not charged.
/// assert_eq!(each.peek("bob").remaining(), 1);
/// # Ok::<(), tollgate::ConfigError>(())
/// ```
#[must_use = "a rate limiter only limits if its answer is obeyed"]
pub fn check_all(parts: &mut [Charge<'_>]) -> Option<usize> {
    let first = parts.iter().position(|part| !part.is_shadow);
    for (index, part) in parts.iter_mut().enumerate() {
        if !part.is_shadow && Some(index) != first {
            part.look();
        }
    }
    let charged = !parts.iter().any(Part::refuses) && charge(parts);
    for (index, part) in parts.iter_mut().enumerate() {
        match (charged, part.is_shadow) {
            (true, true) => part.charge(),
            (false, true) => part.look(),
            (false, false) if Some(index) == first && matches!(part.answer, Answer::Unasked) => part.look(),
            _ => {}
        }
    }
    let refusing = || (0..parts.len()).filter(|&index| parts[index].refuses());
    // The first of the longest: `max_by_key` would give the last.
    refusing().rev().max_by_key(|&index| parts[index].wait())
}

/// Charges all parts but the shadows, in their order; if one refuses, those before it are given back, and looked at
/// once more.
fn charge(parts: &mut [Charge<'_>]) -> bool {
    for index in 0..parts.len() {
        if parts[index].is_shadow {
            continue;
        }
        parts[index].charge();
        if parts[index].refuses() {
            for part in parts[..index].iter_mut().filter(|part| !part.is_shadow) {
                part.refund();
                part.look();
            }
            return false;
        }
    }
    true
}
