//! Refunds, resets, forced charges and reservations of a key.

use super::limiter::Limiter;
use crate::decision::{Decision, DecisionSource, Denied};
use crate::limiter::held::reservation::Reservation;
use crate::limiter::store::interface::{Accepts, KeyOf, Store};
use crate::limiter::time_of::OwnClock;
use crate::limiter::together::chargeable::{Chargeable, KeyLimiter};
use crate::settings::WhenFull;
use crate::state::AnyState;
use crate::time::Tick;
use std::borrow::Borrow;
use std::hash::Hash;
use std::sync::Arc;

impl<K: ?Sized, S: Store> Limiter<K, S> {
    /// Refunds a charge of `key`, for an admitted request that failed or was never made. `decision`
    /// is the result of the check that made the charge.
    ///
    /// A refund returns only tokens that the charge still holds. In a bucket, these are the tokens
    /// that have not been refilled; in a window or a log, they are the tokens that still count. If
    /// the decision charged nothing, the refund has no effect. The caller must refund each charge
    /// at most once, and under the same key.
    ///
    /// A late refund takes no tokens from other requests, with one exception. In a bucket, refunds
    /// are exact if they are made in the reverse order of their charges. If earlier charges are
    /// refunded while a later charge is held, the tokens of the later charge refill sooner than the
    /// bucket can tell. The refund of the later charge may then take tokens from other requests. It
    /// takes at most as many tokens as the earlier charges have returned (through refunds, through
    /// settled reservations, or through a [`check_all`] in which a limit refused).
    ///
    /// In any interval, the tokens charged minus the tokens returned stay within the algorithm's
    /// bound.
    ///
    /// A refund has no effect in three cases. The tokens of such a charge return as time passes:
    ///
    /// - Another limiter made the charge.
    /// - The charge was made before the last change of the key's quota: a
    ///   [`set_quota`](Self::set_quota), unless the key has a quota of its own, or a
    ///   [`set_key_quota`](Self::set_key_quota) of this key. A quota that is set again is no change.
    ///   A sliding log is an exception, because it finds each charge by its time. With
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
    /// caller's turn comes.
    ///
    /// # Progress
    ///
    /// This method is lock-free and does not allocate. The exception is a sliding log, which
    /// allocates once for each of its parts.
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
    /// # Progress
    ///
    /// Same as [`refund`](Self::refund).
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
            DecisionSource::Policy | DecisionSource::Store | DecisionSource::Lease => {}
        }
    }

    /// Resets `key` to the state of a new key, and ends its [pause](Self::pause).
    ///
    /// After the reset, a [`refund`](Self::refund) of an earlier charge has no effect. This also
    /// applies to earlier charges of all other keys. A reset does not affect a key that found the
    /// table full, because such a key has no state of its own.
    ///
    /// # Progress
    ///
    /// This method is lock-free and does not allocate, except with a sliding log.
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
    /// # Progress
    ///
    /// Same as [`check`](Self::check).
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

    /// Charges a new key that found no slot for tokens that are already spent. The [`WhenFull`]
    /// policy determines the charge.
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
    /// # Progress
    ///
    /// Same as [`check`](Self::check).
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
    /// # Progress
    ///
    /// Same as [`check`](Self::check).
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
