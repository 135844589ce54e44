//! The limiter of many keys: checks and peeks.

use crate::clock::Clock;
use crate::decision::{Decision, DecisionSource, Figures, NEVER, Outcome, SlowDecision};
use crate::limiter::build::builder::Builder;
use crate::limiter::build::kind::{BUDGET, Keyed, Kind, Rated, Sweepable};
use crate::limiter::build::method::Method;
use crate::limiter::pauses::Pauses;
use crate::limiter::resets::Resets;
use crate::limiter::store::fingerprints::Fingerprints;
use crate::limiter::store::interface::{Accepts, BATCH, Request, Store};
use crate::limiter::time_of::{At, OwnClock, Time};
use crate::limiter::together::chargeable::{Chargeable, KeyLimiter};
use crate::limiter::together::look::Look;
use crate::quota::Quota;
use crate::settings::WhenFull;
use crate::state::{AnyState, Standalone};
use crate::sync::Counter;
use crate::time::Tick;
use equivalent::Equivalent;
use std::borrow::Borrow;
use std::fmt;
use std::hash::Hash;
use std::marker::PhantomData;
use std::sync::Arc;

/// A rate limiter with one state per key.
///
/// A key is any value that implements [`Hash`]. Keys are looked up in borrowed form, as in a map: a
/// `Limiter<String>` answers `check("alice")`, a limiter of `(IpAddr, &str)` answers
/// `check(&(ip, path))`. The limiter keeps a key as its fingerprint, a 64-bit hash under a random
/// seed of this limiter. The probability that any two of ten million keys collide, and then share
/// one state, is 2.7e-6. [`Fingerprints`] describes the hash, and what it means if an attacker
/// picks the keys.
///
/// All methods take `&self`; share a limiter by reference or `Arc`. The check path does not lock,
/// wait or allocate, and a denied check writes nothing.
///
/// A panic in a key's `Hash` or `Eq`, in [`ToKey`](crate::store::ToKey) or in an iterator of keys
/// reaches the caller. The request has charged nothing then and holds no slot, and the limiter
/// keeps working.
///
/// # Memory
///
/// The table begins small and grows with the keys, up to `max_keys`. A key is *idle* when its state
/// is as good as new. A key that has been idle for the [`grace`](Builder::grace) is forgotten when
/// the table turns over; this makes room for others and changes no decision.
///
/// When `max_keys` keys are in use and not idle, [`WhenFull`] says what *new* keys get; known keys
/// are not affected. While some key of a full table has been idle for the grace, the table refuses
/// at most `max_keys / 6` new keys (4,096 if that is more) and 8 before it makes room. Once a grace
/// has passed since the last turnover it refuses none.
///
/// A key takes 24.1 bytes at `max_keys`: 3/2 slots of 16 bytes, and 3/32 bytes of notes. Where
/// `max_keys` is up to 8,192 a key takes about 32 bytes: a small table has 2 slots for each key, so
/// that a check finds it sooner. While the table turns over, the old and the new array both exist,
/// and a retired array is freed when no thread can see it any more. All of this takes at most four
/// times that memory, or 1 MiB if that is more.
///
/// On Linux, tables of 64 KiB and more (some 2,000 keys) bypass the allocator: the system gives
/// and takes their memory in small parts, so that no check waits for all of it. Tables of 128 MiB
/// and more use huge pages where the system gives them. An insertion moves at most 16 slots, or 128
/// at the cap, and may allocate 64 KiB; one in 2048 charges of known keys moves 16 slots too.
///
/// # Time
///
/// Each key is decided by the times of its own requests. The limiter forgets keys by the time of
/// the request that finds it full. A time that is more than 30 days ahead counts for this only when
/// the last four insertions have reached it, or the last four refused new keys (and
/// [sweeps](Self::sweep)). So one request with a time that is far ahead makes no key forgotten.
///
/// A key that was forgotten, or never seen, is charged no earlier than the time from which all
/// forgotten keys are idle; [`Decision::at`] tells the time of the charge. So a request whose
/// thread was stopped after it read the clock, or whose clock was set back, can be delayed and is
/// never given a burst twice. A clock that jumps ahead and back delays new keys by at most the time
/// that a key charged before the jump takes to become idle. (If the clock stays ahead for so long
/// that keys charged by it become idle and are forgotten, new keys are charged at its times until
/// the other clocks get there.)
///
/// # What a denial rests on
///
/// Charges and refunds of a key take effect one after the other. A denial is decided from a plain
/// load. It may miss a refund or a reset that another thread made a moment ago, and nothing else.
/// Its figures are those of the state that was loaded, which may lack a charge of that moment too.
///
/// ```
/// use tollgate::{Limiter, Quota};
///
/// let limiter: Limiter<String> = Limiter::builder(Quota::per_minute(60).burst(2)).build()?;
///
/// assert!(limiter.check("alice").is_allowed());
/// assert!(limiter.check("alice").is_allowed());
/// let third = limiter.check("alice");
/// assert!(!third.is_allowed());
/// println!("alice may come again in {:?}", third.retry_after());
///
/// // Other keys are not affected.
/// assert!(limiter.check("bob").is_allowed());
/// # Ok::<(), tollgate::ConfigError>(())
/// ```
pub struct Limiter<K: ?Sized, S = Fingerprints> {
    pub(crate) method: Method,
    pub(crate) clock: Clock,
    pub(crate) store: S,
    pub(crate) resets: Resets,
    pub(crate) pauses: Pauses<S>,
    pub(crate) when_full: WhenFull,
    pub(crate) beyond: Beyond,
    /// Covariant and without ownership: a limiter of `&'static str` accepts any `&str`.
    key: PhantomData<fn() -> *const K>,
}

/// State for the new keys that find the table full. It has cache lines of its own, because it is
/// written while the rest of a limiter is only read.
#[repr(align(128))]
pub(crate) struct Beyond {
    /// The one state that these keys share under [`WhenFull::Share`].
    pub(crate) overflow: Standalone,
    /// How often a new key found no slot.
    pub(crate) refused: Counter,
}

impl<K: ?Sized> Limiter<K> {
    /// Starts the configuration of a limiter that enforces `quota` for each key.
    ///
    /// ```
    /// use tollgate::{Algorithm, WhenFull, Limiter, Quota};
    ///
    /// let limiter: Limiter<u64> = Limiter::builder(Quota::per_second(50))
    ///     .algorithm(Algorithm::SlidingWindow)
    ///     .max_keys(10_000)
    ///     .when_full(WhenFull::Share)
    ///     .build()?;
    /// # Ok::<(), tollgate::ConfigError>(())
    /// ```
    pub fn builder(quota: Quota) -> Builder<Self> {
        Builder::new(quota)
    }
}

impl<K: ?Sized, S: Store> Limiter<K, S> {
    /// Makes a limiter of an empty store.
    pub(crate) fn new(method: Method, clock: Clock, store: S, when_full: WhenFull) -> Self {
        let overflow = Standalone::idle(store.default_rule());
        let beyond = Beyond { overflow, refused: Counter::new() };
        let (resets, pauses) = (Resets::none_yet(), Pauses::none());
        Self { method, clock, store, resets, pauses, when_full, beyond, key: PhantomData }
    }

    /// May `key` do this now? Charges one token if so.
    ///
    /// # Progress
    ///
    /// Lock-free. No allocation for a known key. A new key may begin a turnover, which allocates
    /// the next part of the table.
    ///
    /// ```
    /// # use tollgate::{Limiter, Quota};
    /// let limiter: Limiter<String> = Limiter::builder(Quota::per_hour(1)).build()?;
    /// assert!(limiter.check("alice").is_allowed());
    /// assert!(!limiter.check(&"alice".to_owned()).is_allowed());
    /// # Ok::<(), tollgate::ConfigError>(())
    /// ```
    #[inline]
    pub fn check<Q>(&self, key: &Q) -> Decision
    where
        Q: Hash + Equivalent<K> + ?Sized,
        S: Accepts<Q>,
    {
        self.check_at(key, 1, || self.clock.now())
    }

    /// May `key` do something that costs `cost` tokens now? Charges all of them or none.
    ///
    /// A cost of 0 is always allowed and charges nothing. A cost above [`Decision::capacity`] can
    /// never pass and is answered with [`Outcome::TooCostly`].
    ///
    /// # Progress
    ///
    /// As [`check`](Self::check).
    ///
    /// ```
    /// # use tollgate::{Limiter, Quota};
    /// let limiter: Limiter<u32> = Limiter::builder(Quota::per_second(1_000_000)).build()?;
    /// let bytes = 1500;
    /// assert!(limiter.check_n(&7, bytes).is_allowed());
    /// # Ok::<(), tollgate::ConfigError>(())
    /// ```
    #[inline]
    pub fn check_n<Q>(&self, key: &Q, cost: u64) -> Decision
    where
        Q: Hash + Equivalent<K> + ?Sized,
        S: Accepts<Q>,
    {
        self.check_at(key, cost, || self.clock.now())
    }

    /// [`check`](Self::check) for many keys: adds one decision for each to `decisions`, in their
    /// order.
    ///
    /// It takes 32 keys at a time from `keys`, prefetches their memory, reads the clock once for
    /// them, and decides them. This pays when the keys do not fit into the processor's caches. If
    /// `keys` or a key panics, `decisions` holds the decisions of all that was charged.
    ///
    /// # Progress
    ///
    /// As [`check`](Self::check) for each key; `decisions` may grow.
    ///
    /// ```
    /// # use tollgate::{Limiter, Quota};
    /// let limiter: Limiter<u64> = Limiter::builder(Quota::per_hour(1)).build()?;
    /// let mut decisions = Vec::new();
    /// limiter.check_many(&[7, 8, 7], &mut decisions);
    /// let allowed: Vec<bool> = decisions.iter().map(|decision| decision.is_allowed()).collect();
    /// assert_eq!(allowed, [true, true, false]);
    /// # Ok::<(), tollgate::ConfigError>(())
    /// ```
    pub fn check_many<'k, Q>(&self, keys: impl IntoIterator<Item = &'k Q>, decisions: &mut Vec<Decision>)
    where
        Q: Hash + Equivalent<K> + ?Sized + 'k,
        S: Accepts<Q>,
    {
        self.check_many_at(keys, || self.clock.now(), decisions);
    }

    /// What [`check`](Self::check) would answer now. Charges and inserts nothing.
    ///
    /// The figures are those before a charge.
    ///
    /// # Progress
    ///
    /// Lock-free. No allocation.
    ///
    /// ```
    /// # use tollgate::{Limiter, Quota};
    /// let limiter: Limiter<str> = Limiter::builder(Quota::per_hour(5)).build()?;
    /// assert_eq!(limiter.peek("alice").remaining(), 5);
    /// assert!(limiter.is_empty());
    /// # Ok::<(), tollgate::ConfigError>(())
    /// ```
    #[inline]
    pub fn peek<Q>(&self, key: &Q) -> Decision
    where
        Q: Hash + Equivalent<K> + ?Sized,
        S: Accepts<Q>,
    {
        self.peek_n(key, 1)
    }

    /// What [`check_n`](Self::check_n) would answer now. Charges and inserts nothing.
    ///
    /// The figures are those before a charge. While all places are taken, the answer for a new key
    /// is a guess: whether an idle key is found for it shows only when it is inserted.
    ///
    /// # Progress
    ///
    /// As [`peek`](Self::peek).
    ///
    /// ```
    /// # use tollgate::{Limiter, Outcome, Quota};
    /// let limiter: Limiter<str> = Limiter::builder(Quota::per_hour(5)).build()?;
    /// assert_eq!(limiter.check_n("alice", 2).remaining(), 3);
    /// assert_eq!(limiter.peek_n("alice", 3).outcome(), Outcome::Allowed);
    /// assert_eq!(limiter.peek_n("alice", 4).outcome(), Outcome::Denied);
    /// assert_eq!(limiter.peek_n("alice", 6).outcome(), Outcome::TooCostly);
    /// # Ok::<(), tollgate::ConfigError>(())
    /// ```
    #[inline]
    pub fn peek_n<Q>(&self, key: &Q, cost: u64) -> Decision
    where
        Q: Hash + Equivalent<K> + ?Sized,
        S: Accepts<Q>,
    {
        self.peek_at(key, cost, self.clock.now())
    }

    /// [`peek_n`](Self::peek_n) at a time.
    pub(crate) fn peek_at<Q: ?Sized>(&self, key: &Q, cost: u64, now: Tick) -> Decision
    where
        S: Accepts<Q>,
    {
        let held_back = if self.pauses.are_used() { self.held_back(key, cost, now) } else { None };
        held_back.unwrap_or_else(|| self.peek_unpaused(key, cost, now))
    }

    /// What a check would answer if the key were not paused.
    pub(crate) fn peek_unpaused<Q: ?Sized>(&self, key: &Q, cost: u64, now: Tick) -> Decision
    where
        S: Accepts<Q>,
    {
        if let Some(decision) = self.store.known(key, |state| state.peek(now, cost)) {
            return decision;
        }
        let (fresh, has_room) = self.store.missing(key, cost, now);
        let would_insert = fresh.is_allowed() && cost > 0;
        if !would_insert || has_room {
            return fresh;
        }
        match self.when_full {
            WhenFull::Share => self.shared(|state| state.peek(now, cost)),
            WhenFull::Deny | WhenFull::Allow => self.policy(fresh, now),
        }
    }

    /// Looks at `key` before it is charged, as [`Chargeable`](crate::Chargeable) does; for types of
    /// our other crates that implement that and charge a key of this limiter.
    #[doc(hidden)]
    #[inline]
    pub fn look<'m, Q>(&'m self, key: &Q, cost: u64, look: &mut Look<'m>)
    where
        Q: ?Sized,
        S: Accepts<Q>,
    {
        self.look_at(key, cost, OwnClock, look);
    }

    /// [`look`](Self::look) at a time.
    #[inline]
    pub(crate) fn look_at<'m, Q: ?Sized>(&'m self, key: &Q, cost: u64, time: impl Time, look: &mut Look<'m>)
    where
        S: Accepts<Q>,
    {
        // A key that may be paused is asked by a peek and a check.
        if !self.pauses.are_used() {
            self.store.look(key, cost, |look| time.of_look(&self.clock, look), &self.resets, look);
        }
    }

    /// This limiter at the time `now`: see [`At`].
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use tollgate::{Limiter, Quota, Tick};
    /// let limiter: Limiter<str> = Limiter::builder(Quota::per_second(1)).build()?;
    /// let noon = Tick::from_nanos(1_000);
    /// assert!(limiter.at(noon).check("alice").is_allowed());
    /// assert!(!limiter.at(noon).check("alice").is_allowed());
    /// assert!(limiter.at(noon + Duration::from_secs(1)).check("alice").is_allowed());
    /// # Ok::<(), tollgate::ConfigError>(())
    /// ```
    #[inline]
    pub fn at(&self, now: Tick) -> At<'_, Self> {
        At { limiter: self, now }
    }

    /// This limiter for one key, to do several things with it, or to charge it together with others
    /// in [`check_all`](crate::check_all).
    ///
    /// ```
    /// # use tollgate::{Chargeable, Limiter, Quota};
    /// let limiter: Limiter<str> = Limiter::builder(Quota::per_hour(1)).build()?;
    /// let alice = limiter.for_key("alice");
    /// assert!(alice.check().is_allowed());
    /// assert!(!alice.check().is_allowed());
    /// # Ok::<(), tollgate::ConfigError>(())
    /// ```
    pub fn for_key<'l, Q>(&'l self, key: &'l Q) -> impl Chargeable + use<'l, K, S, Q>
    where
        Q: Hash + Equivalent<K> + ?Sized,
        S: Accepts<Q>,
    {
        KeyLimiter::new(self, key, OwnClock)
    }

    /// [`for_key`](Self::for_key) for a result that owns the key and a share of the limiter, so
    /// that it may outlive both.
    ///
    /// A `Limiter<str>` takes a `String` or an `Arc<str>`, a `Limiter<u64>` a `u64`.
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use tollgate::{Chargeable, Limiter, Quota};
    /// let limiter = Arc::new(Limiter::<str>::builder(Quota::per_hour(1)).build()?);
    /// let alice = limiter.for_key_owned("alice".to_owned());
    /// drop(limiter);
    /// assert!(alice.check().is_allowed());
    /// assert!(!alice.check().is_allowed());
    /// # Ok::<(), tollgate::ConfigError>(())
    /// ```
    pub fn for_key_owned<B>(self: &Arc<Self>, key: B) -> impl Chargeable + use<K, S, B>
    where
        B: Borrow<K>,
        K: Hash + Eq,
        S: Accepts<K>,
    {
        KeyLimiter::new(Arc::clone(self), key, OwnClock)
    }

    /// The clock that [`check`](Self::check) reads.
    ///
    /// ```
    /// # use tollgate::{Limiter, Quota};
    /// let limiter: Limiter<str> = Limiter::builder(Quota::per_hour(1)).build()?;
    /// let decision = limiter.at(limiter.clock().now()).check("alice");
    /// assert!(decision.at() <= limiter.clock().now());
    /// # Ok::<(), tollgate::ConfigError>(())
    /// ```
    pub fn clock(&self) -> &Clock {
        &self.clock
    }

    /// [`check_many`](Self::check_many) at a time.
    pub(crate) fn check_many_at<'k, Q: ?Sized + 'k>(
        &self,
        keys: impl IntoIterator<Item = &'k Q>,
        now: impl Fn() -> Tick,
        decisions: &mut Vec<Decision>,
    ) where
        S: Accepts<Q>,
    {
        let keys = keys.into_iter();
        // The lower bound is a hint by the caller's iterator and may be wrong, so it is capped.
        decisions.reserve(keys.size_hint().0.min(BATCH * BATCH));
        if self.pauses.are_used() {
            return keys.for_each(|key| decisions.push(self.check_beside_pauses(key, 1, &now).0));
        }
        let refuse = |cost, now, fresh| self.refuse(cost, now, fresh);
        let request = Request { cost: 1, resets: &self.resets, refuse };
        self.store.check_many(keys, now, request, decisions);
    }

    /// [`check_n`](Self::check_n) at a time.
    #[inline(always)]
    pub(crate) fn check_at<Q: ?Sized>(&self, key: &Q, cost: u64, now: impl FnOnce() -> Tick) -> Decision
    where
        S: Accepts<Q>,
    {
        if self.pauses.are_used() {
            return self.check_beside_pauses(key, cost, now).0;
        }
        self.check_unpaused(key, cost, now)
    }

    /// Checks a key of a limiter that has paused some.
    #[cold]
    #[inline(never)]
    fn check_beside_pauses<Q: ?Sized>(&self, key: &Q, cost: u64, now: impl FnOnce() -> Tick) -> SlowDecision
    where
        S: Accepts<Q>,
    {
        let now = now();
        self.held_back(key, cost, now).unwrap_or_else(|| self.check_unpaused(key, cost, || now)).into()
    }

    #[inline(always)]
    fn check_unpaused<Q: ?Sized>(&self, key: &Q, cost: u64, now: impl FnOnce() -> Tick) -> Decision
    where
        S: Accepts<Q>,
    {
        let refuse = |cost, now, fresh| self.refuse(cost, now, fresh);
        self.store.check(key, now, Request { cost, resets: &self.resets, refuse })
    }

    /// The answer to a new key that finds no slot. `fresh` is the answer that a fresh key would
    /// get.
    #[cold]
    fn refuse(&self, cost: u64, now: Tick, fresh: Decision) -> Decision {
        self.beyond.refused.add(1);
        match self.when_full {
            WhenFull::Share => self.shared(|state| Some(state.charge(now, cost)?.0)),
            WhenFull::Deny | WhenFull::Allow => self.policy(fresh, now),
        }
    }

    /// An answer from the state that keys without a slot share, which is never sealed.
    fn shared(&self, visit: impl Fn(AnyState<'_>) -> Option<Decision>) -> Decision {
        Decision { source: DecisionSource::Overflow, ..self.visit_shared(visit) }
    }

    /// Passes the state that keys without a slot share to `visit`, under the present default quota.
    pub(crate) fn visit_shared<T>(&self, visit: impl Fn(AnyState<'_>) -> Option<T>) -> T {
        let (changes, wanted) = (self.store.changes(), || self.store.default_rule());
        self.beyond.overflow.visit(changes, wanted, visit)
    }

    /// The answer of the [`WhenFull`] policy, which charges nothing. `fresh` is the answer that a
    /// fresh key would get.
    fn policy(&self, fresh: Decision, now: Tick) -> Decision {
        let (outcome, wait) = match self.when_full {
            WhenFull::Allow => (Outcome::Allowed, 0),
            WhenFull::Deny | WhenFull::Share => (Outcome::Denied, NEVER),
        };
        let figures = Figures::Known { remaining: 0, wait, reset: 0 };
        Decision { outcome, cost: 0, figures, at: now, source: DecisionSource::Policy, ..fresh }
    }
}

impl<K: ?Sized, S: Store> Kind for Limiter<K, S> {
    type Hash = S::Hash;
}

impl<K: ?Sized, S: Store> Rated for Limiter<K, S> {}

impl<K: ?Sized, S: Store> Keyed for Limiter<K, S> {}

impl<K: ?Sized, S: Store> Sweepable for Limiter<K, S> {
    fn sweep_while(&self, goes_on: &dyn Fn() -> bool) {
        while goes_on() && self.sweep(BUDGET) {}
    }
}

impl<K: ?Sized, S: Store> fmt::Debug for Limiter<K, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Limiter")
            .field("method", &self.method)
            .field("clock", &self.clock)
            .field("when_full", &self.when_full)
            .field("keys", &self.len())
            .finish_non_exhaustive()
    }
}
