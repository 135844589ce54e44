//! The limiter for one resource, which has one state and no keys.

use super::resets::Resets;
use super::time_of::{At, OwnClock, Time};
use crate::algorithm::Algorithm;
use crate::clock::Clock;
use crate::decision::{Decision, Denied, Figures, Outcome, SlowDecision, Stamp};
use crate::error::QuotaError;
use crate::limiter::build::builder::Builder;
use crate::limiter::build::kind::Kind;
use crate::limiter::build::method::Method;
use crate::limiter::held::reservation::Reservation;
use crate::limiter::together::chargeable::Chargeable;
use crate::limiter::together::look::Look;
use crate::quota::{Enforced, Quota};
use crate::rule::{AnyRule, Gcra, Leased, Rule, Updated, Word, load, take, update};
use crate::state::{
    AnyState, Counts, Hint, Leases, SavedState, SharedRule, Since, Standalone, State, StateRule, Wanted,
};
use crate::sync::Ordering::Acquire;
use crate::time::Tick;
use std::cell::Cell;
use std::sync::Arc;

/// A rate limiter for a single resource. It has a single state, and neither keys nor a table.
///
/// All methods take `&self`; share a limiter by reference or in an `Arc`. No method locks or waits.
/// Checks do not allocate, except with an [`Algorithm::SlidingLog`](crate::Algorithm::SlidingLog),
/// which allocates as its log grows: see [progress](crate#progress).
///
/// ```
/// use tollgate::{Quota, SingleLimiter};
///
/// let uploads = SingleLimiter::builder(Quota::per_minute(30).burst(1)).build()?;
/// assert!(uploads.check().is_allowed());
/// assert!(!uploads.check().is_allowed());
/// # Ok::<(), tollgate::ConfigError>(())
/// ```
#[derive(Debug)]
pub struct SingleLimiter {
    /// The initial rule, if it is a bucket. A check reads this copy without following a pointer.
    /// The rule applies to the first version of the state. A quota change freezes that version. A
    /// check that finds the first version frozen continues with the last version.
    first: Option<Gcra>,
    pub(crate) state: Apart,
    /// The leases between cores, and the initial rule. With leases, `first` is `None`, so that a
    /// check without leases does not have to look here.
    leases: Option<(Gcra, Arc<Leases>)>,
    pub(crate) resets: Resets,
    pub(crate) method: Method,
    pub(crate) clock: Clock,
}

/// A state on separate cache lines. Otherwise, the word would share a line with fields that every
/// check reads, and these fields would move from core to core together with the word.
#[derive(Debug)]
#[repr(align(128))]
pub(crate) struct Apart(pub(crate) Standalone);

impl SingleLimiter {
    /// Creates a limiter whose state has never been charged.
    pub(crate) fn new(
        method: Method,
        Enforced { rule, quota }: Enforced<StateRule>,
        clock: Clock,
        leases: Option<Arc<Leases>>,
    ) -> Self {
        let bucket = if let StateRule::Packed(rule) = rule { rule.as_gcra() } else { None };
        let rule = SharedRule::with_leases(Enforced { rule, quota }, &Counts::new(), leases.clone());
        let leases = bucket.zip(leases);
        let first = bucket.filter(|_| leases.is_none());
        let state = Apart(Standalone::idle(Wanted { rule, changes: 0, since: Since::START }));
        Self { first, state, leases, resets: Resets::none_yet(), method, clock }
    }

    /// Returns a builder for a limiter that enforces `quota`.
    ///
    /// ```
    /// # use tollgate::{Algorithm, Quota, SingleLimiter};
    /// let limiter = SingleLimiter::builder(Quota::per_hour(100))
    ///     .algorithm(Algorithm::SlidingWindow)
    ///     .build()?;
    /// # Ok::<(), tollgate::ConfigError>(())
    /// ```
    pub fn builder(quota: Quota) -> Builder<Self> {
        Builder::new(quota)
    }

    /// Returns the quota that the limiter enforces.
    ///
    /// ```
    /// # use tollgate::{Quota, SingleLimiter};
    /// let limiter = SingleLimiter::builder(Quota::per_hour(100)).build()?;
    /// assert_eq!(limiter.quota().tokens(), 100);
    /// # Ok::<(), tollgate::ConfigError>(())
    /// ```
    pub fn quota(&self) -> Quota {
        self.state.0.quota()
    }

    /// Replaces the quota.
    ///
    /// A check that starts after this call has returned is decided under the new quota. The number
    /// of charged tokens does not change, as described for
    /// [`Limiter::set_quota`](crate::Limiter::set_quota). Charges from before the change can't be
    /// refunded, except with a sliding log. If the quota is the same as before, the call changes
    /// nothing.
    ///
    /// Before the first change, the ability to change the quota adds no cost to checks. After the
    /// first change, every check follows a pointer, which adds a few nanoseconds. Further changes
    /// add no cost.
    ///
    /// # Errors
    ///
    /// Returns a [`QuotaError`] if the algorithm can't enforce the quota. After an error, the old
    /// quota remains.
    ///
    /// ```
    /// # use tollgate::{ManualClock, Quota, SingleLimiter};
    /// let limiter = SingleLimiter::builder(Quota::per_hour(10))
    ///     .clock(ManualClock::new())
    ///     .build()?;
    /// assert_eq!(limiter.check_n(4).remaining(), 6);
    /// limiter.set_quota(Quota::per_hour(100))?;
    /// assert_eq!(limiter.peek().remaining(), 96);
    /// limiter.set_quota(Quota::per_hour(3))?;
    /// assert!(!limiter.check().is_allowed());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn set_quota(&self, quota: Quota) -> Result<(), QuotaError> {
        self.set_quota_since(quota, &Since::by(&self.clock))
    }

    /// Replaces the quota like [`set_quota`](Self::set_quota), at the time `now`.
    pub(crate) fn set_quota_since(&self, quota: Quota, since: &Since) -> Result<(), QuotaError> {
        self.state.0.replace(self.method.any(quota)?, since);
        Ok(())
    }

    /// Looks at the state before it is charged.
    pub(crate) fn look<'m>(&'m self, cost: u64, time: impl Time, look: &mut Look<'m>) {
        if self.leases.is_some() {
            return;
        }
        if let StateRule::Packed(rule) = self.state.0.first_rule() {
            let state = State { rule, word: self.state.0.first_word(), stamp: Stamp::NONE };
            look.see(state, time.of_look(&self.clock, look), cost, &self.resets);
        }
    }

    /// Passes the state to `visit`, which returns `None` if the state was replaced in the meantime.
    pub(crate) fn visit<T>(&self, visit: impl Fn(AnyState<'_>) -> Option<T>) -> T {
        self.state.0.visit_as_is(visit)
    }

    /// Checks whether a request may proceed now, and charges one token if so.
    ///
    /// ```
    /// # use tollgate::{Quota, SingleLimiter};
    /// let limiter = SingleLimiter::builder(Quota::per_hour(1)).build()?;
    /// assert!(limiter.check().is_allowed());
    /// assert!(!limiter.check().is_allowed());
    /// # Ok::<(), tollgate::ConfigError>(())
    /// ```
    #[inline]
    pub fn check(&self) -> Decision {
        self.check_n(1)
    }

    /// Checks whether a request that costs `cost` tokens may proceed now. Charges all of the tokens
    /// or none.
    ///
    /// A cost of 0 is always allowed and charges nothing. A cost above [`Decision::capacity`] is
    /// never allowed; its outcome is [`Outcome::TooCostly`](crate::Outcome::TooCostly).
    ///
    /// ```
    /// # use tollgate::{Quota, SingleLimiter};
    /// let limiter = SingleLimiter::builder(Quota::per_hour(5)).build()?;
    /// assert_eq!(limiter.check_n(3).remaining(), 2);
    /// # Ok::<(), tollgate::ConfigError>(())
    /// ```
    #[inline]
    pub fn check_n(&self, cost: u64) -> Decision {
        let Some(gcra) = &self.first else {
            return self.check_leased(cost);
        };
        let now = self.clock.now();
        // The rule is copied after the clock was read, so that it does not occupy registers before.
        self.check_first(*gcra, now, cost)
    }

    /// Checks like [`check_n`](Self::check_n), at the time `now`.
    #[inline]
    pub(crate) fn check_at(&self, cost: u64, now: Tick) -> Decision {
        let Some(gcra) = self.first else {
            return match &self.leases {
                Some(leases) => self.charge_beside_leases(leases, Some(now), cost).0,
                None => self.check_otherwise(Some(now), cost).0,
            };
        };
        self.check_first(gcra, now, cost)
    }

    /// Spends a lease, or denies a request at home, where no tokens are out. Both are inlined into
    /// the caller, as a check without leases is, because the caller rarely needs all figures.
    #[inline(always)]
    fn check_leased(&self, cost: u64) -> Decision {
        let Some(with_leases @ (bucket, leases)) = &self.leases else {
            return self.check_otherwise(None, cost).0;
        };
        let hint = leases.hint();
        if hint == Hint::Home {
            let now = self.clock.now();
            let stamp = self.resets.stamp();
            let word = self.state.0.first_word();
            return match leases.answer_at_home(*bucket, word, now, cost) {
                Some(answer) => answer.stamped(stamp),
                None => self.check_leases(leases, now, cost, cost > 0).0,
            };
        } else if hint == Hint::Leased
            && cost > 0
            && let Some(spent) = leases.spend(cost)
        {
            return spent;
        }
        self.charge_beside_leases(with_leases, None, cost).0
    }

    /// Charges the first version of the state, whose rule is a bucket.
    #[inline(always)]
    fn check_first(&self, gcra: Gcra, now: Tick, cost: u64) -> Decision {
        let stamp = self.resets.stamp();
        match take(gcra, self.state.0.first_word(), now, cost) {
            // The first rule has the stamp `Stamp::NONE`.
            Some((decision, _)) => decision.stamped(stamp),
            // No value has to be preserved across this call, because nothing follows it.
            None => self.check_later_state(now, cost).0,
        }
    }

    /// Charges the state under a rule other than a bucket. Without a time, the limiter's clock is
    /// read. This method is not inlined, so that the check of a bucket can be inlined into its
    /// callers.
    #[inline(never)]
    fn check_otherwise(&self, time: Option<Tick>, cost: u64) -> SlowDecision {
        let now = time.unwrap_or_else(|| self.clock.now());
        match self.state.0.first_rule() {
            StateRule::Packed(AnyRule::FixedWindow(rule)) => self.check_first_word(rule, now, cost),
            StateRule::Packed(AnyRule::SlidingWindow(rule)) => self.check_first_word(rule, now, cost),
            _ => self.check_later_state(now, cost),
        }
    }

    /// Charges the state of a limiter with leases, whose own line has too few tokens. Only a check
    /// by the limiter's own clock, which nobody moves, has no `time` and may take a lease.
    #[inline(never)]
    fn charge_beside_leases(
        &self,
        (bucket, leases): &(Gcra, Arc<Leases>),
        time: Option<Tick>,
        cost: u64,
    ) -> SlowDecision {
        let hint = if time.is_none() && cost > 0 { leases.hint() } else { Hint::NotContended };
        let may_lease = hint != Hint::NotContended;
        let now = time.unwrap_or_else(|| self.clock.now());
        let stamp = self.resets.stamp();
        let word = self.state.0.first_word();
        let Some(decision) = leases.decide_at_home(*bucket, word, now, cost, may_lease) else {
            return self.check_leases(leases, now, cost, may_lease);
        };
        if hint == Hint::Leased {
            leases.note(Hint::Leased, Hint::Home);
        }
        // The first rule has the stamp `Stamp::NONE`.
        decision.stamped(stamp).into()
    }

    /// Takes a lease, or charges the state, which may have another rule than the first.
    #[inline(never)]
    fn check_leases(&self, leases: &Leases, now: Tick, cost: u64, may_lease: bool) -> SlowDecision {
        let stamp = self.resets.stamp();
        let charge = |bucket: Leased, state: State<'_>| {
            let lease = || leases.lease(bucket, state.word, now, cost);
            let charge = || leases.charge(bucket, state.word, now, cost, may_lease);
            let leased = may_lease.then(lease).flatten();
            leased.or_else(|| Some(charge()?.stamped(state.stamp)))
        };
        self.visit_bucket(leases, charge).stamped(stamp).into()
    }

    /// Passes the bucket and its word to `visit`, which returns `None` if the word is frozen.
    fn visit_bucket<T>(&self, leases: &Leases, visit: impl Fn(Leased, State<'_>) -> Option<T>) -> T {
        self.visit(|state| {
            let state = state.as_packed().expect("a log has no leases");
            let bucket = state.rule.as_gcra().expect("only buckets have leases");
            visit(Leased::new(bucket, leases.count()), state)
        })
    }

    /// Changes the word of a bucket with leases. Returns the word before the change.
    fn change(&self, leases: &Leases, to: impl Fn(Leased, State<'_>, Word) -> Word) -> Word {
        self.visit_bucket(leases, |bucket, state| {
            let from =
                update(state.word, |word| if word.is_frozen() { word } else { to(bucket, state, word) }).from;
            (!from.is_frozen()).then_some(from)
        })
    }

    /// Returns the state as a value, with its rule. Tokens that are out count as spent.
    pub(crate) fn saved(&self) -> (StateRule, SavedState) {
        let Some((_, leases)) = &self.leases else { return self.visit(|state| state.saved()) };
        self.bring_leases_home();
        self.visit_bucket(leases, |bucket, state| {
            let word = load(state.word);
            let word = bucket.home(word, self.clock.now(), 0).unwrap_or(word);
            let saved = || (StateRule::Packed(*state.rule), SavedState::Word(word));
            (!word.is_frozen()).then(saved)
        })
    }

    /// Returns all leases to the bucket, unless another thread is doing so.
    pub(crate) fn bring_leases_home(&self) {
        if let Some((_, leases)) = &self.leases {
            self.visit_bucket(leases, |bucket, state| {
                let word = load(state.word);
                if Leased::is_leased(word) {
                    leases.bring_home(bucket, state.word);
                }
                (!word.is_frozen()).then_some(())
            });
        }
    }

    /// Charges the first version of the state. The type of the rule is known at compile time, so
    /// the compiler can write the answer directly to the place where the caller expects it.
    #[inline(always)]
    fn check_first_word(&self, rule: &impl Rule, now: Tick, cost: u64) -> SlowDecision {
        let stamp = self.resets.stamp();
        let charged = |word: Word| if word.is_frozen() { word } else { rule.next(word, now, cost) };
        let Updated { from, is_new, .. } = update(self.state.0.first_word(), charged);
        if is_new || !from.is_frozen() {
            // Assigned, because `stamped` would copy the answer. The first rule has the stamp
            // `Stamp::NONE`.
            let mut decision = rule.answer(from, now, cost);
            decision.stamp = stamp;
            return decision.into();
        }
        self.check_later_state(now, cost)
    }

    /// Charges a log, or the last version of the state after a quota change.
    #[cold]
    #[inline(never)]
    fn check_later_state(&self, now: Tick, cost: u64) -> SlowDecision {
        let stamp = self.resets.stamp();
        let decision = self.visit(|state| Some(state.charge(now, cost)?.0));
        decision.stamped(stamp).into()
    }

    /// Returns the answer that [`check`](Self::check) would give now. Charges nothing.
    ///
    /// The figures describe the state before a charge.
    ///
    /// ```
    /// # use tollgate::{Quota, SingleLimiter};
    /// let limiter = SingleLimiter::builder(Quota::per_hour(5)).build()?;
    /// assert_eq!(limiter.peek().remaining(), 5);
    /// # Ok::<(), tollgate::ConfigError>(())
    /// ```
    #[inline]
    pub fn peek(&self) -> Decision {
        self.peek_n(1)
    }

    /// Returns the answer that [`check_n`](Self::check_n) would give now. Charges nothing.
    ///
    /// The figures describe the state before a charge.
    ///
    /// ```
    /// # use tollgate::{Quota, SingleLimiter};
    /// let limiter = SingleLimiter::builder(Quota::per_hour(5)).build()?;
    /// assert!(limiter.peek_n(5).is_allowed());
    /// assert!(!limiter.peek_n(6).is_allowed());
    /// # Ok::<(), tollgate::ConfigError>(())
    /// ```
    #[inline]
    pub fn peek_n(&self, cost: u64) -> Decision {
        self.peek_at(cost, self.clock.now())
    }

    /// Peeks like [`peek_n`](Self::peek_n), at the time `now`.
    pub(crate) fn peek_at(&self, cost: u64, now: Tick) -> Decision {
        let Some((_, leases)) = &self.leases else { return self.visit(|state| state.peek(now, cost)) };
        let peek = || {
            self.visit_bucket(leases, |bucket, state| {
                let word = load(state.word);
                let answer = || bucket.peek(word, now, cost, leases.hint() != Hint::NotContended);
                word.is_live().then(|| (answer(), Leased::is_leased(word)))
            })
        };
        let (answer, is_leased) = peek();
        if is_leased && answer.outcome() == Outcome::Denied {
            // A check would return all leases before it denies the request.
            self.bring_leases_home();
            return peek().0;
        }
        answer
    }

    /// Refunds the tokens of a charge, for an admitted request that failed or was never made.
    /// `decision` is the result of the check that made the charge.
    ///
    /// [`Limiter::refund`](crate::Limiter::refund) describes which tokens are refunded.
    ///
    /// ```
    /// # use tollgate::{ManualClock, Quota, SingleLimiter};
    /// let limiter = SingleLimiter::builder(Quota::per_hour(5)).clock(ManualClock::new()).build()?;
    /// let charge = limiter.check_n(5);
    /// limiter.refund(&charge);
    /// assert_eq!(limiter.peek().remaining(), 5);
    /// # Ok::<(), tollgate::ConfigError>(())
    /// ```
    pub fn refund(&self, decision: &Decision) {
        self.refund_n(decision, u64::MAX);
    }

    /// Refunds at most `tokens` of a charge, for a request whose actual cost was lower than the
    /// charge. `decision` is the result of the check that made the charge.
    ///
    /// [`Limiter::refund_n`](crate::Limiter::refund_n) describes which tokens are refunded.
    ///
    /// ```
    /// # use tollgate::{ManualClock, Quota, SingleLimiter};
    /// let limiter = SingleLimiter::builder(Quota::per_hour(5)).clock(ManualClock::new()).build()?;
    /// let estimate = limiter.check_n(5);
    /// assert!(!limiter.peek_n(2).is_allowed());
    /// limiter.refund_n(&estimate, 2); // it took 3
    /// assert!(limiter.peek_n(2).is_allowed());
    /// # Ok::<(), tollgate::ConfigError>(())
    /// ```
    pub fn refund_n(&self, decision: &Decision, tokens: u64) {
        self.refund_at(decision, tokens, self.clock.now());
    }

    /// Refunds like [`refund_n`](Self::refund_n), at the time `now`.
    pub(crate) fn refund_at(&self, charge: &Decision, tokens: u64, now: Tick) {
        let is_current = |rule| self.resets.are_before(charge, rule);
        match (&self.leases, charge.figures) {
            (Some((_, leases)), Figures::Leased { lease, .. }) => {
                _ = leases.refund(lease, tokens.min(charge.charged()));
            }
            (Some((_, leases)), _) => {
                _ = self.change(leases, |bucket, state, word| {
                    // ORDERING: acquire side of *reset*, as in `State::refund`, and of *contended*.
                    let _ = state.word.load(Acquire);
                    let is_reduced = Leased::is_leased(word) || leases.hint() != Hint::NotContended;
                    let charge = if is_reduced { bucket.without_reserve(charge) } else { *charge };
                    let refund = |word| state.rule.refund(word, now, &charge, tokens);
                    if is_current(state.stamp) { bucket.step(word, now, refund) } else { word }
                })
            }
            (None, _) => self.visit(|state| state.refund(now, charge, tokens, is_current)),
        }
    }

    /// Resets the limiter to the state of a new limiter.
    ///
    /// After the reset, a [`refund`](Self::refund) of an earlier charge has no effect.
    ///
    /// ```
    /// # use tollgate::{Quota, SingleLimiter};
    /// let limiter = SingleLimiter::builder(Quota::per_hour(1)).build()?;
    /// let _ = limiter.check();
    /// limiter.reset();
    /// assert!(limiter.check().is_allowed());
    /// # Ok::<(), tollgate::ConfigError>(())
    /// ```
    pub fn reset(&self) {
        self.resets.note(|| match &self.leases {
            None => self.visit(|state| state.reset()),
            Some((_, leases)) => {
                self.bring_leases_home();
                self.visit_bucket(leases, |_, state| Some(leases.void(state.word)));
                self.change(leases, |bucket, state, word| {
                    bucket.step(word, Tick::ZERO, |word| state.rule.reset(word))
                });
            }
        });
    }

    /// Returns true if a new limiter would make the same decisions from now on. If so, this limiter
    /// may be dropped.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use tollgate::{ManualClock, Quota, SingleLimiter, Tick};
    /// let clock = ManualClock::new();
    /// let limiter = SingleLimiter::builder(Quota::per_minute(1)).clock(&clock).build()?;
    /// let _ = limiter.check();
    /// assert!(!limiter.is_idle());
    /// clock.set(Tick::ZERO + Duration::from_secs(60));
    /// assert!(limiter.is_idle());
    /// # Ok::<(), tollgate::ConfigError>(())
    /// ```
    pub fn is_idle(&self) -> bool {
        self.bring_leases_home();
        let now = self.clock.now();
        // A leased word is larger than any time, and therefore not idle.
        self.visit(|state| state.is_idle(now))
    }

    /// Returns how many bytes of memory the limiter uses, including parts that wait to be freed.
    ///
    /// The result stays the same until the quota is changed. With a sliding log, the result grows
    /// with the number of admissions per period.
    ///
    /// ```
    /// # use tollgate::{Algorithm, Quota, SingleLimiter};
    /// let limiter = SingleLimiter::builder(Quota::per_hour(100_000))
    ///     .algorithm(Algorithm::SlidingLog)
    ///     .build()?;
    /// let _ = limiter.check();
    /// assert!(limiter.bytes() < 1_000);
    /// # Ok::<(), tollgate::ConfigError>(())
    /// ```
    pub fn bytes(&self) -> usize {
        let leases = self.leases.as_ref().map_or(0, |(_, leases)| leases.bytes());
        size_of::<Self>() + self.state.0.version_bytes() + self.state.0.bytes() + leases
    }

    /// Returns how many tokens cores have taken in advance and not spent yet: see
    /// [`Builder::core_leases`].
    ///
    /// ```
    /// # use tollgate::{Quota, SingleLimiter};
    /// let limiter = SingleLimiter::builder(Quota::per_second(1_000_000)).core_leases().build()?;
    /// assert_eq!(limiter.leased(), 0);
    /// # Ok::<(), tollgate::ConfigError>(())
    /// ```
    pub fn leased(&self) -> u64 {
        self.leases.as_ref().map_or(0, |(_, leases)| leases.out())
    }

    /// Returns how many tokens were charged for leases and then lost, because a thread stopped, a
    /// quota changed, or a lease was returned while it was taken. They refill like spent tokens.
    ///
    /// ```
    /// # use tollgate::{Quota, SingleLimiter};
    /// let limiter = SingleLimiter::builder(Quota::per_second(1_000_000)).core_leases().build()?;
    /// assert_eq!(limiter.lost(), 0);
    /// # Ok::<(), tollgate::ConfigError>(())
    /// ```
    pub fn lost(&self) -> u64 {
        self.leases.as_ref().map_or(0, |(_, leases)| leases.lost())
    }

    /// Returns the algorithm that the limiter was built with.
    ///
    /// ```
    /// # use tollgate::{Algorithm, Quota, SingleLimiter};
    /// let builder = SingleLimiter::builder(Quota::per_hour(1)).algorithm(Algorithm::LeakyQueue);
    /// assert_eq!(builder.build()?.algorithm(), Algorithm::LeakyQueue);
    /// # Ok::<(), tollgate::ConfigError>(())
    /// ```
    pub fn algorithm(&self) -> Algorithm {
        self.method.algorithm()
    }

    /// Returns the clock that [`check`](Self::check) reads.
    ///
    /// ```
    /// # use tollgate::{Quota, SingleLimiter};
    /// let limiter = SingleLimiter::builder(Quota::per_hour(1)).build()?;
    /// assert!(limiter.check().at() <= limiter.clock().now());
    /// # Ok::<(), tollgate::ConfigError>(())
    /// ```
    pub fn clock(&self) -> &Clock {
        &self.clock
    }

    /// Charges `tokens` that are already spent, and returns how many were charged.
    ///
    /// [`Limiter::force`](crate::Limiter::force) describes how many tokens are charged.
    ///
    /// ```
    /// # use tollgate::{ManualClock, Quota, SingleLimiter};
    /// let builder = SingleLimiter::builder(Quota::per_hour(10)).clock(ManualClock::new());
    /// let limiter = builder.max_debt(5).build()?;
    /// assert_eq!(limiter.force(12), 12);
    /// assert!(!limiter.check().is_allowed());
    /// # Ok::<(), tollgate::ConfigError>(())
    /// ```
    pub fn force(&self, tokens: u64) -> u64 {
        self.force_at(tokens, self.clock.now())
    }

    /// Charges like [`force`](Self::force), at the time `now`.
    pub(crate) fn force_at(&self, tokens: u64, now: Tick) -> u64 {
        let Some((_, leases)) = &self.leases else { return self.visit(|state| state.force(now, tokens)) };
        let force = |tokens| {
            let forced = Cell::new(0);
            let from = self.change(leases, |bucket, _, word| {
                let (to, tokens) = bucket.force(word, now, tokens);
                forced.set(tokens);
                to
            });
            (forced.get(), Leased::is_leased(from))
        };
        let (forced, is_leased) = force(tokens);
        if is_leased && forced < tokens {
            // The rest may be charged to the tokens that are out and not spent.
            self.bring_leases_home();
            return forced + force(tokens - forced).0;
        }
        forced
    }

    /// Charges the estimated cost of work whose actual cost is known later; see [`Reservation`].
    ///
    /// # Errors
    ///
    /// Returns [`Denied`] and charges nothing if the tokens are not available.
    ///
    /// ```
    /// # use tollgate::{ManualClock, Quota, SingleLimiter};
    /// let limiter = SingleLimiter::builder(Quota::per_hour(9)).clock(ManualClock::new()).build()?;
    /// limiter.reserve(8).unwrap().commit(3);
    /// assert_eq!(limiter.peek().remaining(), 6);
    /// # Ok::<(), tollgate::ConfigError>(())
    /// ```
    #[inline]
    pub fn reserve(&self, estimate: u64) -> Result<Reservation<impl Chargeable + use<'_>>, Denied> {
        Reservation::new(self, estimate)
    }

    /// Like [`reserve`](Self::reserve), but for work that outlives the caller. The reservation
    /// shares ownership of the limiter. This method allocates once, so that the type of the
    /// reservation needs no parameters.
    ///
    /// # Errors
    ///
    /// Same as [`reserve`](Self::reserve).
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use tollgate::{ManualClock, Quota, SingleLimiter};
    /// let limiter = SingleLimiter::builder(Quota::per_hour(9)).clock(ManualClock::new()).build()?;
    /// let limiter = Arc::new(limiter);
    /// let held = limiter.reserve_owned(8).unwrap();
    /// std::thread::spawn(move || held.commit(3)).join().unwrap();
    /// assert_eq!(limiter.peek().remaining(), 6);
    /// # Ok::<(), tollgate::ConfigError>(())
    /// ```
    #[inline]
    pub fn reserve_owned(self: &Arc<Self>, estimate: u64) -> Result<Reservation, Denied> {
        let charge = Chargeable::check_n(&**self, estimate);
        charge.ok()?;
        Reservation::from_charge(Box::new(Arc::clone(self)), estimate, charge)
    }

    /// Returns a view of this limiter that decides at the time `now`; see [`At`]. The view
    /// implements [`Chargeable`].
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use tollgate::{Chargeable, Quota, SingleLimiter, Tick};
    /// let limiter = SingleLimiter::builder(Quota::per_second(1)).build()?;
    /// assert!(limiter.at(Tick::ZERO).check().is_allowed());
    /// assert!(!limiter.at(Tick::ZERO).check().is_allowed());
    /// assert!(limiter.at(Tick::ZERO + Duration::from_secs(1)).check().is_allowed());
    /// # Ok::<(), tollgate::ConfigError>(())
    /// ```
    #[inline]
    pub fn at(&self, now: Tick) -> At<'_, Self> {
        At { limiter: self, now }
    }
}

impl Chargeable for SingleLimiter {
    /// Charges the state that all cores share, because the caller may refund the charge later, and
    /// a refund of a lease may be void.
    fn check_n(&self, cost: u64) -> Decision {
        if self.leases.is_some() { self.check_at(cost, self.clock.now()) } else { Self::check_n(self, cost) }
    }

    fn peek_n(&self, cost: u64) -> Decision {
        Self::peek_n(self, cost)
    }

    fn refund_n(&self, decision: &Decision, tokens: u64) {
        Self::refund_n(self, decision, tokens);
    }

    fn force(&self, tokens: u64) -> u64 {
        Self::force(self, tokens)
    }

    fn look<'m>(&'m self, cost: u64, look: &mut Look<'m>) {
        Self::look(self, cost, OwnClock, look);
    }
}

impl At<'_, SingleLimiter> {
    /// Replaces the quota like [`SingleLimiter::set_quota`], at the time of this view. Tokens that
    /// are missing at this time remain missing.
    ///
    /// # Errors
    ///
    /// Same as [`SingleLimiter::set_quota`].
    ///
    /// ```
    /// # use tollgate::{Chargeable, Quota, SingleLimiter, Tick};
    /// let limiter = SingleLimiter::builder(Quota::per_second(1)).build()?;
    /// let start = limiter.at(Tick::ZERO);
    /// assert!(start.check().is_allowed());
    /// start.set_quota(Quota::per_second(1).burst(2))?;
    /// assert!(start.check().is_allowed());
    /// assert!(!start.check().is_allowed());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn set_quota(&self, quota: Quota) -> Result<(), QuotaError> {
        self.limiter.set_quota_since(quota, &Since::at(self.now))
    }
}

impl Chargeable for At<'_, SingleLimiter> {
    #[inline]
    fn check_n(&self, cost: u64) -> Decision {
        self.limiter.check_at(cost, self.now)
    }

    fn peek_n(&self, cost: u64) -> Decision {
        self.limiter.peek_at(cost, self.now)
    }

    fn look<'m>(&'m self, cost: u64, look: &mut Look<'m>) {
        self.limiter.look(cost, self.now, look);
    }

    fn refund_n(&self, decision: &Decision, tokens: u64) {
        self.limiter.refund_at(decision, tokens, self.now);
    }

    fn force(&self, tokens: u64) -> u64 {
        self.limiter.force_at(tokens, self.now)
    }
}

impl Kind for SingleLimiter {
    type Limit = Quota;
    type Hash = ();
}

#[cfg(all(test, not(tollgate_loom)))]
mod tests;
