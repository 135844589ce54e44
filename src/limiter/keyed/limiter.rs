//! The limiter for many keys: checks, peeks, refunds, resets, forced charges and reservations.

use crate::algorithm::Algorithm;
use crate::clock::Clock;
use crate::decision::{Decision, DecisionSource, Denied, Figures, NEVER, Outcome, SlowDecision};
use crate::limiter::build::builder::Builder;
use crate::limiter::build::kind::{BUDGET, Kind, Sweepable};
use crate::limiter::build::method::Method;
use crate::limiter::held::reservation::Reservation;
use crate::limiter::pauses::Pauses;
use crate::limiter::resets::Resets;
use crate::limiter::store::fingerprints::Fingerprints;
use crate::limiter::store::interface::{Accepts, BATCH, Cost, KeyOf, OneToken, Request, Store, in_batches};
use crate::limiter::time_of::{At, OwnClock, Time};
use crate::limiter::together::chargeable::{Chargeable, KeyLimiter};
use crate::limiter::together::look::Look;
use crate::quota::Quota;
use crate::settings::WhenFull;
use crate::state::{AnyState, Standalone};
use crate::sync::Counter;
use crate::time::Tick;
use std::borrow::Borrow;
use std::fmt;
use std::hash::Hash;
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

/// A rate limiter with one state per key.
///
/// A key is any value that implements [`Hash`]. As in a map, a key can be looked up in borrowed
/// form: a `Limiter<String>` accepts `check("alice")`, and a limiter of `(IpAddr, &str)` accepts
/// `check(&(ip, path))`.
///
/// Instead of the key, the limiter stores a fingerprint: a 64-bit hash with this limiter's random
/// seed. If the fingerprints of two keys collide, the keys share one state. The probability that
/// any two of ten million keys collide is 2.7e-6. [`Fingerprints`] describes the hash, and its
/// limits if an attacker chooses the keys.
///
/// All methods take `&self`; share a limiter by reference or in an `Arc`. A check does not lock or
/// wait, and a denied check writes nothing. Only checks of new keys and of sliding logs allocate,
/// and a check of a known key that starts a turnover to shrink the table.
///
/// A panic in a key's `Hash` or `Eq`, in [`ToKey`](crate::store::ToKey) or in an iterator of keys
/// propagates to the caller. After such a panic, the request has charged nothing and occupies no
/// slot, and the limiter still works.
///
/// # Memory
///
/// The table starts small and grows with the number of keys, up to `max_keys`. A key is *idle* if
/// the limiter would give it the same decisions as a key that it has never seen. When the table
/// turns over, it forgets the keys that have been idle for the [`grace`](Builder::grace). This
/// makes room for other keys and changes no decision.
///
/// If `max_keys` keys are in use and none of them is idle, [`WhenFull`] determines the answer for
/// *new* keys. Known keys are not affected.
///
/// If some key in a full table has been idle for the grace, the table makes room for new keys. Each
/// new key looks for idle keys in at most 128 slots, so the first new keys may be refused. If at
/// least one grace has passed since the last turnover, at most `max_keys / 64 + 8` new keys are
/// refused. (If the limiter does not accept the time of the requests yet, it refuses up to three
/// more; see [Time](Limiter#time).) Otherwise, at most
/// `max(max_keys / 6, 4096 + max_keys / 64) + 8` new keys are refused.
///
/// If the table contains `max_keys` keys, each key requires 24.1 bytes: 3/2 slots of 16 bytes, and
/// 3/32 bytes of bookkeeping. If `max_keys` is at most 8,192, the table has two slots for each key
/// to make lookups faster, and a key requires about 32 bytes.
///
/// During a turnover, both the old and the new array exist. A retired array is freed once no thread
/// can access it any more. In total, the table requires at most four times the memory of `max_keys`
/// keys, or 1 MiB if that is more.
///
/// On Linux, tables of 64 KiB or more (about 2,000 keys) bypass the allocator. Such a table
/// requests memory from the system and returns it in small parts, so that no single check has to
/// wait for all of the memory. Tables of 128 MiB or more use huge pages if the system provides
/// them.
///
/// An insertion moves at most 16 slots, or 128 when the table has reached `max_keys`, and may
/// allocate 64 KiB. One in 2048 charges of known keys also moves 16 slots.
///
/// # Time
///
/// The decision for a key depends on the times of that key's own requests. A full limiter uses the
/// time of the current request to find out which keys are idle. The limiter accepts a time more
/// than 30 days ahead only if several recent operations have reached that time: the last four
/// insertions, or the last four refusals of new keys and [sweeps](Self::sweep). A single request
/// with a time in the far future therefore causes no key to be forgotten.
///
/// The limiter remembers a time at which all forgotten keys are idle. It charges a new or forgotten
/// key at that time or later; [`Decision::at`] returns the time of the charge. Therefore no key
/// receives its burst twice, even if a thread is stopped after it has read the clock, or a clock is
/// set back.
///
/// If a clock jumps ahead and back, new keys are delayed by at most the time that a key charged
/// before the jump needs to become idle. (If the clock stays ahead for so long that keys charged at
/// its times become idle and are forgotten, new keys are charged at that clock's times until the
/// other clocks catch up.)
///
/// # Progress
///
/// The [table of all methods](crate#progress) states which of them are lock-free or wait-free, and
/// which allocate.
///
/// # What a denial rests on
///
/// Charges and refunds of a key take effect one after the other. A denial results from a plain load
/// of the key's state. The denial may miss a refund or a reset that another thread has just made,
/// but nothing else. The figures of a denial describe the loaded state, which may also lack a
/// recent charge.
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
    /// Makes the limiter covariant in `K` without owning a `K`. A limiter of `&'static str`
    /// therefore accepts any `&str`.
    key: PhantomData<fn() -> *const K>,
}

/// The state for new keys that find the table full. It occupies separate cache lines, because it is
/// written while the rest of a limiter is only read.
#[repr(align(128))]
pub(crate) struct Beyond {
    /// The one state shared by keys without a slot under [`WhenFull::Share`].
    pub(crate) overflow: Standalone,
    /// How often a new key found no slot.
    pub(crate) refused: Counter,
}

impl<K: ?Sized> Limiter<K> {
    /// Returns a builder for a limiter that enforces `quota` for each key.
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
    /// Returns a limiter with an empty store.
    pub(crate) fn new(
        method: Method,
        clock: Clock,
        store: S,
        when_full: WhenFull,
        pauses: Pauses<S>,
    ) -> Self {
        let overflow = Standalone::idle(store.default_rule());
        let beyond = Beyond { overflow, refused: Counter::new() };
        let resets = Resets::none_yet();
        Self { method, clock, store, resets, pauses, when_full, beyond, key: PhantomData }
    }

    /// Checks whether `key` may proceed now, and charges one token if so.
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
        Q: KeyOf<K> + ?Sized,
        S: Accepts<Q>,
    {
        self.check_at(key, 1, || self.clock.now())
    }

    /// Checks whether `key` may make a request that costs `cost` tokens now. Charges all of the
    /// tokens or none.
    ///
    /// A cost of 0 is always allowed and charges nothing. A cost above [`Decision::capacity`] is
    /// never allowed; its outcome is [`Outcome::TooCostly`].
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
        Q: KeyOf<K> + ?Sized,
        S: Accepts<Q>,
    {
        self.check_at(key, cost, || self.clock.now())
    }

    /// Calls [`check`](Self::check) for many keys, and appends one decision for each key to
    /// `decisions`, in the order of the keys.
    ///
    /// This method reads 32 keys at a time from `keys`, and then checks these keys. With
    /// [`Fingerprints`](crate::store::Fingerprints), it first prefetches the memory of the keys. A
    /// batch is therefore faster than single checks if the keys do not fit into the processor's
    /// caches.
    ///
    /// The clock is read once for each batch of 32 keys. If any key has ever been
    /// [paused](Self::pause), the clock is read for each key. If `keys` or a key panics,
    /// `decisions` contains the decisions of all completed charges.
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
        Q: KeyOf<K> + ?Sized + 'k,
        S: Accepts<Q>,
    {
        self.check_many_at(keys.into_iter().map(|key| (key, OneToken)), || self.clock.now(), decisions);
    }

    /// Calls [`check_n`](Self::check_n) for many keys with their costs, like
    /// [`check_many`](Self::check_many).
    ///
    /// ```
    /// # use tollgate::{Limiter, Quota};
    /// let limiter: Limiter<u64> = Limiter::builder(Quota::per_second(1000)).build()?;
    /// let mut decisions = Vec::new();
    /// limiter.check_many_n([(&7, 600), (&8, 600), (&7, 600)], &mut decisions);
    /// let allowed: Vec<bool> = decisions.iter().map(|decision| decision.is_allowed()).collect();
    /// assert_eq!(allowed, [true, true, false]);
    /// # Ok::<(), tollgate::ConfigError>(())
    /// ```
    pub fn check_many_n<'k, Q>(
        &self,
        requests: impl IntoIterator<Item = (&'k Q, u64)>,
        decisions: &mut Vec<Decision>,
    ) where
        Q: KeyOf<K> + ?Sized + 'k,
        S: Accepts<Q>,
    {
        self.check_many_at(requests, || self.clock.now(), decisions);
    }

    /// Returns the answer that [`check`](Self::check) would give now. Does not charge or insert the
    /// key.
    ///
    /// The figures describe the state before a charge.
    ///
    /// ```
    /// # use tollgate::{Limiter, Quota};
    /// let limiter: Limiter<String> = Limiter::builder(Quota::per_hour(5)).build()?;
    /// assert_eq!(limiter.peek("alice").remaining(), 5);
    /// assert!(limiter.is_empty());
    /// # Ok::<(), tollgate::ConfigError>(())
    /// ```
    #[inline]
    pub fn peek<Q>(&self, key: &Q) -> Decision
    where
        Q: KeyOf<K> + ?Sized,
        S: Accepts<Q>,
    {
        self.peek_n(key, 1)
    }

    /// Returns the answer that [`check_n`](Self::check_n) would give now. Does not charge or insert
    /// the key.
    ///
    /// The figures describe the state before a charge. If the table is full, the answer for a new
    /// key is a guess, because only an insertion can find out whether some key is idle.
    ///
    /// ```
    /// # use tollgate::{Limiter, Outcome, Quota};
    /// let limiter: Limiter<String> = Limiter::builder(Quota::per_hour(5)).build()?;
    /// assert_eq!(limiter.check_n("alice", 2).remaining(), 3);
    /// assert_eq!(limiter.peek_n("alice", 3).outcome(), Outcome::Allowed);
    /// assert_eq!(limiter.peek_n("alice", 4).outcome(), Outcome::Denied);
    /// assert_eq!(limiter.peek_n("alice", 6).outcome(), Outcome::TooCostly);
    /// # Ok::<(), tollgate::ConfigError>(())
    /// ```
    #[inline]
    pub fn peek_n<Q>(&self, key: &Q, cost: u64) -> Decision
    where
        Q: KeyOf<K> + ?Sized,
        S: Accepts<Q>,
    {
        self.peek_at(key, cost, self.clock.now())
    }

    /// Peeks like [`peek_n`](Self::peek_n), at the time `now`.
    pub(crate) fn peek_at<Q: ?Sized>(&self, key: &Q, cost: u64, now: Tick) -> Decision
    where
        S: Accepts<Q>,
    {
        if !self.pauses.are_used() {
            return self.peek_unpaused(key, cost, now);
        }
        self.held_back(key, cost, now).unwrap_or_else(|| {
            let decision = self.peek_unpaused(key, cost, now);
            self.with_penalty(key, decision, self.pauses.penalty_of(&decision))
        })
    }

    /// Returns the answer that a check would give if the key were not paused.
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

    /// Looks at `key` before it is charged, for types that implement
    /// [`Chargeable::look`](crate::Chargeable::look) with a key of this limiter.
    #[inline]
    pub fn look<'m, Q>(&'m self, key: &Q, cost: u64, look: &mut Look<'m>)
    where
        Q: ?Sized,
        S: Accepts<Q>,
    {
        self.look_at(key, cost, OwnClock, look);
    }

    /// Like [`look`](Self::look), but at the time `time`.
    #[inline]
    pub(crate) fn look_at<'m, Q: ?Sized>(&'m self, key: &Q, cost: u64, time: impl Time, look: &mut Look<'m>)
    where
        S: Accepts<Q>,
    {
        // Once any key has been paused, no look is recorded. `check_all` then uses a peek and a
        // check, which respect pauses.
        if !self.pauses.are_used() {
            self.store.look(key, cost, |look| time.of_look(&self.clock, look), &self.resets, look);
        }
    }

    /// Counts a denial that a peek at `key` has returned, and applies the limiter's
    /// [penalty](Builder::penalty). For types that implement
    /// [`Chargeable::note_denial`](crate::Chargeable::note_denial) with a key of this limiter.
    pub fn note_denial<Q>(&self, key: &Q, denied: &Decision)
    where
        Q: ?Sized,
        S: Accepts<Q>,
    {
        match denied.source() {
            DecisionSource::Policy | DecisionSource::Overflow => self.beyond.refused.add(1),
            _ => self.store.note_denial(key, denied.cost),
        }
        let _ = self.penalize(key, denied);
    }

    /// Returns a view of this limiter that decides at the time `now`; see [`At`].
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use tollgate::{Limiter, Quota, Tick};
    /// let limiter: Limiter<String> = Limiter::builder(Quota::per_second(1)).build()?;
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

    /// Returns a view of this limiter for one key. Use it to make several calls for the key, or to
    /// charge the key together with other limits in [`check_all`](crate::check_all).
    ///
    /// ```
    /// # use tollgate::{Chargeable, Limiter, Quota};
    /// let limiter: Limiter<String> = Limiter::builder(Quota::per_hour(1)).build()?;
    /// let alice = limiter.for_key("alice");
    /// assert!(alice.check().is_allowed());
    /// assert!(!alice.check().is_allowed());
    /// # Ok::<(), tollgate::ConfigError>(())
    /// ```
    pub fn for_key<'l, Q>(&'l self, key: &'l Q) -> impl Chargeable + use<'l, K, S, Q>
    where
        Q: KeyOf<K> + ?Sized,
        S: Accepts<Q>,
    {
        KeyLimiter::new(self, key, OwnClock)
    }

    /// Returns a view for one key, like [`for_key`](Self::for_key). This view owns the key and
    /// shares ownership of the limiter, so it may outlive the caller's references to both.
    ///
    /// A `Limiter<String>` accepts a `String` or an `Arc<str>`, and a `Limiter<u64>` accepts a
    /// `u64`.
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use tollgate::{Chargeable, Limiter, Quota};
    /// let limiter = Arc::new(Limiter::<String>::builder(Quota::per_hour(1)).build()?);
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

    /// Returns the [penalty](Builder::penalty): how long a denial pauses its key. Returns `None` if
    /// denials pause no key.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use tollgate::{Limiter, Quota};
    /// let penalty = Duration::from_secs(600);
    /// let limiter = Limiter::<String>::builder(Quota::per_second(1)).penalty(penalty).build()?;
    /// assert_eq!(limiter.penalty(), Some(penalty));
    /// # Ok::<(), tollgate::ConfigError>(())
    /// ```
    pub fn penalty(&self) -> Option<Duration> {
        self.pauses.penalty()
    }

    /// Returns the algorithm that the limiter was built with.
    ///
    /// ```
    /// # use tollgate::{Algorithm, Limiter, Quota};
    /// let limiter: Limiter<String> = Limiter::builder(Quota::per_hour(1)).build()?;
    /// assert_eq!(limiter.algorithm(), Algorithm::TokenBucket);
    /// # Ok::<(), tollgate::ConfigError>(())
    /// ```
    pub fn algorithm(&self) -> Algorithm {
        self.method.algorithm()
    }

    /// Returns the clock that [`check`](Self::check) reads.
    ///
    /// ```
    /// # use tollgate::{Limiter, Quota};
    /// let limiter: Limiter<String> = Limiter::builder(Quota::per_hour(1)).build()?;
    /// let decision = limiter.at(limiter.clock().now()).check("alice");
    /// assert!(decision.at() <= limiter.clock().now());
    /// # Ok::<(), tollgate::ConfigError>(())
    /// ```
    pub fn clock(&self) -> &Clock {
        &self.clock
    }

    /// Checks like [`check_many`](Self::check_many), at the times returned by `now`.
    pub(crate) fn check_many_at<'k, Q: ?Sized + 'k, C: Cost>(
        &self,
        keys: impl IntoIterator<Item = (&'k Q, C)>,
        now: impl Fn() -> Tick,
        decisions: &mut Vec<Decision>,
    ) where
        S: Accepts<Q>,
    {
        let keys = keys.into_iter();
        // The lower bound is a hint from the caller's iterator and may be wrong, so it is capped.
        decisions.reserve(keys.size_hint().0.min(BATCH * BATCH));
        let refuse = |cost, now, fresh| self.refuse(cost, now, fresh);
        let request = Request { cost: 0, resets: &self.resets, refuse };
        in_batches(keys, |batch| {
            // While the iterator filled the batch, the first key may have been paused.
            if self.pauses.are_used() {
                return decisions.extend(
                    batch.iter().map(|&(key, cost)| self.check_beside_pauses(key, cost.tokens(), now()).0),
                );
            }
            self.store.check_batch(batch, &now, request, decisions);
        });
    }

    /// Checks like [`check_n`](Self::check_n), at the time returned by `now`.
    #[inline(always)]
    pub(crate) fn check_at<Q: ?Sized>(&self, key: &Q, cost: u64, now: impl FnOnce() -> Tick) -> Decision
    where
        S: Accepts<Q>,
    {
        if self.pauses.are_used() {
            return self.check_beside_pauses(key, cost, now()).0;
        }
        self.check_unpaused(key, cost, now)
    }

    /// Checks a key of a limiter that has paused at least one key.
    #[cold]
    #[inline(never)]
    fn check_beside_pauses<Q: ?Sized>(&self, key: &Q, cost: u64, now: Tick) -> SlowDecision
    where
        S: Accepts<Q>,
    {
        match self.held_back(key, cost, now) {
            Some(denied) => {
                self.note_denial(key, &denied);
                denied.into()
            }
            None => {
                let decision = self.check_unpaused(key, cost, || now);
                let penalty = self.penalize(key, &decision);
                self.with_penalty(key, decision, penalty).into()
            }
        }
    }

    /// Pauses a key whose own state has denied a request, if the limiter has a
    /// [penalty](Builder::penalty). Returns the duration of the pause; `None` if the key was not
    /// paused.
    fn penalize<Q: ?Sized>(&self, key: &Q, denied: &Decision) -> Option<Duration>
    where
        S: Accepts<Q>,
    {
        let penalty = self.pauses.penalty_of(denied)?;
        // If there is no room for another pause, the denial remains an ordinary denial.
        self.pause_at(key, penalty, denied.at).ok().map(|()| penalty)
    }

    /// Returns a denial with the figures that it has if it pauses the key for `penalty`. Without a
    /// penalty, returns the decision unchanged.
    fn with_penalty<Q: ?Sized>(&self, key: &Q, decision: Decision, penalty: Option<Duration>) -> Decision
    where
        S: Accepts<Q>,
    {
        let Some(penalty) = penalty else { return decision };
        let Decision { cost, at, source, .. } = decision;
        Decision { source, ..self.behind_pause(key, cost, at, at + penalty) }
    }

    #[inline(always)]
    fn check_unpaused<Q: ?Sized>(&self, key: &Q, cost: u64, now: impl FnOnce() -> Tick) -> Decision
    where
        S: Accepts<Q>,
    {
        let refuse = |cost, now, fresh| self.refuse(cost, now, fresh);
        self.store.check(key, now, Request { cost, resets: &self.resets, refuse })
    }

    /// Answers a request whose key is new and for which there is no free slot. `fresh` is the
    /// answer for a fresh key.
    #[cold]
    fn refuse(&self, cost: u64, now: Tick, fresh: Decision) -> Decision {
        self.beyond.refused.add(1);
        match self.when_full {
            WhenFull::Share => self.shared(|state| Some(state.charge(now, cost)?.0)),
            WhenFull::Deny | WhenFull::Allow => self.policy(fresh, now),
        }
    }

    /// Returns an answer from the shared state of keys without a slot. That state is never sealed.
    fn shared(&self, visit: impl Fn(AnyState<'_>) -> Option<Decision>) -> Decision {
        Decision { source: DecisionSource::Overflow, ..self.visit_shared(visit) }
    }

    /// Passes the shared state of keys without a slot to `visit`, under the current default quota.
    pub(crate) fn visit_shared<T>(&self, visit: impl Fn(AnyState<'_>) -> Option<T>) -> T {
        let (changes, wanted) = (self.store.changes(), || self.store.default_rule());
        self.beyond.overflow.visit(changes, wanted, visit)
    }

    /// Answers according to the [`WhenFull`] policy, without a charge. `fresh` is the answer for a
    /// fresh key.
    fn policy(&self, fresh: Decision, now: Tick) -> Decision {
        let (outcome, wait) = match self.when_full {
            WhenFull::Allow => (Outcome::Allowed, 0),
            WhenFull::Deny | WhenFull::Share => (Outcome::Denied, NEVER),
        };
        let figures = Figures::Known { remaining: 0, wait, reset: 0 };
        Decision { outcome, cost: 0, figures, at: now, source: DecisionSource::Policy, ..fresh }
    }
}

impl<K: ?Sized, S: Store> Limiter<K, S> {
    /// Refunds a charge of `key`, for an admitted request that failed or was never made. `decision`
    /// is the result of the check that made the charge.
    ///
    /// A refund returns only tokens that the charge still holds. In a bucket, these are the tokens
    /// that have not been refilled; in a window or a log, they are the tokens that still count. If
    /// the decision charged nothing, the refund has no effect. The caller must refund each charge
    /// at most once, and under the same key.
    ///
    /// A late refund takes no tokens from other requests, with two exceptions. In a bucket, refunds
    /// are exact if they are made in the reverse order of their charges. If earlier charges are
    /// refunded while a later charge is held, the tokens of the later charge refill sooner than the
    /// bucket can tell. The refund of the later charge may then take tokens from other requests. It
    /// takes at most as many tokens as the earlier charges have returned (through refunds, through
    /// settled reservations, or through a [`check_all`] in which a limit refused). A refund at a
    /// stale time, as by a thread that was stopped after it read the clock, may take from a bucket
    /// what has refilled since that time.
    ///
    /// In any interval, the tokens charged minus the tokens returned stay within the algorithm's
    /// bound.
    ///
    /// A refund has no effect in three cases. The tokens of such a charge return as time passes:
    ///
    /// - Another limiter made the charge.
    /// - The charge was made before the last change of the key's quota: a
    ///   [`set_quota`](Self::set_quota), unless the key has a quota of its own, or a
    ///   [`set_key_quota`](Self::set_key_quota) of this key. Setting the same quota again is not a
    ///   change. A sliding log is an exception, because it finds each charge by its time. With
    ///   [`Fingerprints`](crate::store::Fingerprints), a key that has lost its own quota has a
    ///   separate state for a while; charges from that time may lose their refunds when it ends.
    /// - The charge was made before the last [`clear`](Self::clear) or the last
    ///   [`reset`](Self::reset) of any key. The limiter counts all its resets with a single number,
    ///   and each decision contains that number. A reset of one key therefore also voids the
    ///   outstanding refunds of other keys.
    ///
    /// [`check_all`]: crate::check_all
    ///
    /// A refund that races with a reset or a clear may return tokens that other requests have
    /// charged, but no more tokens than its own charge took. This happens if the reset or the clear
    /// wiped a charge made while it was running, or if other requests have since charged exactly
    /// the wiped tokens.
    ///
    /// A refund does not wake waiting callers. If callers wait and may give up, use the queues of
    /// [`tollgate-wait`](https://docs.rs/tollgate-wait), which charge a caller only when that
    /// caller's turn arrives.
    ///
    /// ```
    /// # use tollgate::{Limiter, ManualClock, Quota};
    /// let limiter: Limiter<String> =
    ///     Limiter::builder(Quota::per_hour(1)).clock(ManualClock::new()).build()?;
    /// let charge = limiter.check("alice");
    /// limiter.refund("alice", &charge);
    /// assert!(limiter.check("alice").is_allowed());
    /// # Ok::<(), tollgate::ConfigError>(())
    /// ```
    pub fn refund<Q>(&self, key: &Q, decision: &Decision)
    where
        Q: KeyOf<K> + ?Sized,
        S: Accepts<Q>,
    {
        self.refund_n(key, decision, u64::MAX);
    }

    /// Refunds at most `tokens` of a charge, for a request whose actual cost was lower than the
    /// charge. `decision` is the result of the check that made the charge.
    ///
    /// The rules of [`refund`](Self::refund), which refunds the whole charge, also apply here.
    ///
    /// ```
    /// # use tollgate::{Limiter, ManualClock, Quota};
    /// let limiter: Limiter<String> =
    ///     Limiter::builder(Quota::per_hour(100)).clock(ManualClock::new()).build()?;
    /// let estimate = limiter.check_n("alice", 80);
    /// assert!(!limiter.peek_n("alice", 50).is_allowed());
    /// limiter.refund_n("alice", &estimate, 30); // it took 50
    /// assert!(limiter.peek_n("alice", 50).is_allowed());
    /// # Ok::<(), tollgate::ConfigError>(())
    /// ```
    pub fn refund_n<Q>(&self, key: &Q, decision: &Decision, tokens: u64)
    where
        Q: KeyOf<K> + ?Sized,
        S: Accepts<Q>,
    {
        self.refund_at(key, decision, tokens, self.clock.now());
    }

    /// Refunds like [`refund_n`](Self::refund_n), at the time `now`.
    pub(crate) fn refund_at<Q: ?Sized>(&self, key: &Q, charge: &Decision, tokens: u64, now: Tick)
    where
        S: Accepts<Q>,
    {
        // The store calls this closure once the state is known. Any later reset takes effect after
        // this refund.
        let is_current = |rule| self.resets.are_before(charge, rule);
        let refund = |state: AnyState<'_>| state.refund(now, charge, tokens, is_current);
        match charge.source {
            DecisionSource::Key => _ = self.store.known(key, refund),
            DecisionSource::Overflow => self.beyond.overflow.visit_as_is(refund),
            // These decisions charged no state of this limiter.
            DecisionSource::Policy
            | DecisionSource::Store
            | DecisionSource::Lease
            | DecisionSource::Pause => {}
        }
    }

    /// Resets `key` to the state of a new key, and ends its [pause](Self::pause).
    ///
    /// After the reset, a [`refund`](Self::refund) of an earlier charge has no effect. This also
    /// applies to earlier charges of all other keys. A reset does not affect a key that found the
    /// table full, because such a key has no state of its own.
    ///
    /// ```
    /// # use tollgate::{Limiter, Quota};
    /// let limiter: Limiter<String> = Limiter::builder(Quota::per_hour(1)).build()?;
    /// let _ = limiter.check("alice");
    /// limiter.reset("alice");
    /// assert!(limiter.check("alice").is_allowed());
    /// # Ok::<(), tollgate::ConfigError>(())
    /// ```
    pub fn reset<Q>(&self, key: &Q)
    where
        Q: KeyOf<K> + ?Sized,
        S: Accepts<Q>,
    {
        self.resets.note(|| _ = self.store.known(key, |state| state.reset()));
        self.pauses.end(key);
    }

    /// Charges `key` for `tokens` that are already spent, and returns how many were charged.
    ///
    /// The charge is at most the remaining tokens plus [`max_debt`](crate::Builder::max_debt).
    /// While a key is in debt, no tokens remain, and its requests are denied; each denial contains
    /// the time at which the request would be allowed. A forced charge can't be refunded. To settle
    /// a cost more precisely, use a [`Reservation`](crate::Reservation).
    ///
    /// [`WhenFull`](crate::WhenFull) determines how a new key is charged if the table is full.
    /// `Share` charges the shared state, and the other policies charge nothing.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use tollgate::{Limiter, ManualClock, Quota};
    /// let limiter: Limiter<String> =
    ///     Limiter::builder(Quota::per_second(10)).clock(ManualClock::new()).max_debt(20).build()?;
    /// assert_eq!(limiter.force("alice", 25), 25);
    /// assert_eq!(limiter.peek("alice").retry_after(), Some(Duration::from_millis(1_600)));
    /// assert_eq!(limiter.force("alice", 25), 5);
    /// # Ok::<(), tollgate::ConfigError>(())
    /// ```
    pub fn force<Q>(&self, key: &Q, tokens: u64) -> u64
    where
        Q: KeyOf<K> + ?Sized,
        S: Accepts<Q>,
    {
        self.force_at(key, tokens, self.clock.now())
    }

    /// Charges like [`force`](Self::force), at the time `now`.
    pub(crate) fn force_at<Q: ?Sized>(&self, key: &Q, tokens: u64, now: Tick) -> u64
    where
        S: Accepts<Q>,
    {
        // A charge of 0 tokens is no reason to insert the key.
        if tokens == 0 {
            return 0;
        }
        let forced = self.store.force(key, now, tokens);
        forced.unwrap_or_else(|left| tokens - left + self.refuse_forced(left, now))
    }

    /// Charges a new key that found no slot. The `tokens` are already spent, and the [`WhenFull`]
    /// policy determines how many of them are charged.
    #[cold]
    fn refuse_forced(&self, tokens: u64, now: Tick) -> u64 {
        self.beyond.refused.add(1);
        match self.when_full {
            WhenFull::Share => self.visit_shared(|state| state.force(now, tokens)),
            WhenFull::Deny | WhenFull::Allow => 0,
        }
    }

    /// Charges `key` the estimated cost of work whose actual cost is known later; see
    /// [`Reservation`].
    ///
    /// # Errors
    ///
    /// Returns [`Denied`] and charges nothing if the tokens are not available.
    ///
    /// ```
    /// # use tollgate::{Limiter, ManualClock, Quota};
    /// let limiter: Limiter<String> =
    ///     Limiter::builder(Quota::per_hour(100)).clock(ManualClock::new()).build()?;
    /// let held = limiter.reserve("alice", 80).unwrap();
    /// assert!(limiter.reserve("alice", 80).is_err());
    /// held.commit(30);
    /// assert_eq!(limiter.peek("alice").remaining(), 70);
    /// # Ok::<(), tollgate::ConfigError>(())
    /// ```
    // Always inlined. Otherwise, the returned reservation would be copied, and the copy would wait
    // for the stores of the check.
    #[inline(always)]
    pub fn reserve<'l, Q>(
        &'l self,
        key: &'l Q,
        estimate: u64,
    ) -> Result<Reservation<impl Chargeable + use<'l, K, S, Q>>, Denied>
    where
        Q: KeyOf<K> + ?Sized,
        S: Accepts<Q>,
    {
        let charge = self.check_at(key, estimate, || self.clock.now());
        Reservation::from_charge(KeyLimiter::new(self, key, OwnClock), estimate, charge)
    }

    /// Like [`reserve`](Self::reserve), but for work that outlives the caller. The reservation owns
    /// the key and shares ownership of the limiter. This method allocates once, so that the type of
    /// the reservation needs no parameters.
    ///
    /// # Errors
    ///
    /// Same as [`reserve`](Self::reserve).
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use tollgate::{Limiter, ManualClock, Quota};
    /// let builder = Limiter::<String>::builder(Quota::per_hour(100)).clock(ManualClock::new());
    /// let limiter = builder.build()?;
    /// let limiter = Arc::new(limiter);
    /// let held = limiter.reserve_owned("alice".to_owned(), 80).unwrap();
    /// std::thread::spawn(move || held.commit(30)).join().unwrap();
    /// assert_eq!(limiter.peek("alice").remaining(), 70);
    /// # Ok::<(), tollgate::ConfigError>(())
    /// ```
    // Always inlined, like `reserve`.
    #[inline(always)]
    pub fn reserve_owned<B>(self: &Arc<Self>, key: B, estimate: u64) -> Result<Reservation, Denied>
    where
        B: Borrow<K> + Send + Sync + 'static,
        K: Hash + Eq + 'static,
        S: Accepts<K>,
    {
        let charge = self.check_at(key.borrow(), estimate, || self.clock.now());
        charge.ok()?;
        let limit = KeyLimiter::new(Arc::clone(self), key, OwnClock);
        Reservation::from_charge(Box::new(limit), estimate, charge)
    }
}

impl<K: ?Sized, S: Store> Kind for Limiter<K, S> {
    type Limit = Quota;
    type Hash = S::Hash;
}

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

/// Implements [`Chargeable`] for a key whose limiter is borrowed or stored in an [`Arc`]. (One
/// generic implementation for every pointer type could not guarantee that the limiter outlives a
/// look.)
macro_rules! charge_a_key {
    ($(<$($lifetime:lifetime)?> $limiter:ty),*) => {$(
        impl<$($lifetime,)? B, Q, K, S, T> Chargeable for KeyLimiter<$limiter, B, Q, T>
        where
            B: Borrow<Q>,
            Q: KeyOf<K> + ?Sized,
            K: ?Sized,
            S: Store + Accepts<Q>,
            T: Time,
        {
            fn check_n(&self, cost: u64) -> Decision {
                let now = || self.time.now(self.limiter.clock());
                self.limiter.check_at(self.key.borrow(), cost, now)
            }

            fn peek_n(&self, cost: u64) -> Decision {
                self.limiter.peek_at(self.key.borrow(), cost, self.time.now(self.limiter.clock()))
            }

            fn refund_n(&self, decision: &Decision, tokens: u64) {
                let now = self.time.now(self.limiter.clock());
                self.limiter.refund_at(self.key.borrow(), decision, tokens, now);
            }

            fn force(&self, tokens: u64) -> u64 {
                self.limiter.force_at(self.key.borrow(), tokens, self.time.now(self.limiter.clock()))
            }

            fn look<'m>(&'m self, cost: u64, look: &mut Look<'m>) {
                self.limiter.look_at(self.key.borrow(), cost, self.time, look);
            }

            fn note_denial(&self, denied: &Decision) {
                self.limiter.note_denial(self.key.borrow(), denied);
            }
        }
    )*};
}

charge_a_key!(<'l> &'l Limiter<K, S>, <> Arc<Limiter<K, S>>);
