//! Refunds and resets of a key.

use super::limiter::Limiter;
use crate::decision::{Decision, DecisionSource, Denied};
use crate::limiter::held::reservation::Reservation;
use crate::limiter::store::interface::{Accepts, Store};
use crate::limiter::time_of::OwnClock;
use crate::limiter::together::chargeable::{Chargeable, KeyLimiter};
use crate::settings::WhenFull;
use crate::state::AnyState;
use crate::time::Tick;
use equivalent::Equivalent;
use std::borrow::Borrow;
use std::hash::Hash;
use std::sync::Arc;

impl<K: ?Sized, S: Store> Limiter<K, S> {
    /// Gives back what `charge` took from `key`, for a request that was admitted and then failed or
    /// was not made.
    ///
    /// Only what the charge still holds is given back: what the bucket has not refilled, or what
    /// the window or the log still counts. A decision that charged nothing gives back nothing. The
    /// caller refunds each charge once, under the same key.
    ///
    /// A late refund takes nothing from others, with two exceptions:
    ///
    /// - In a bucket, refunds are exact in the reverse order of their charges. If charges from
    ///   before this one are given back while it is held, its tokens refill sooner than the bucket
    ///   can tell. Its refund may then take tokens of others: at most as many as were given back of
    ///   those charges, by refunds, by reservations that settle, and by [`check_all`] where a limit
    ///   refuses.
    /// - After a change of quota that lowers the capacity, it may take as many tokens of others as
    ///   [`set_quota`](Self::set_quota) has forgotten.
    ///
    /// In any interval, the tokens charged minus those given back stay within the bound of the
    /// algorithm.
    ///
    /// A charge that was made before the last [`clear`](Self::clear), or before the last
    /// [`reset`](Self::reset) of this or any other key, gives back nothing; neither does a charge
    /// of another limiter. A limiter has one number for all its resets, and each decision carries
    /// it. So a reset of one key also voids the outstanding refunds of others; their tokens come
    /// back as time passes. The removal of a [key's quota](Self::set_key_quota) does the same.
    ///
    /// [`check_all`]: crate::check_all
    ///
    /// A refund that races with a reset or a clear may give back tokens of others, at most as many
    /// as its charge took. This happens if the charge was made during the same clear and wiped by
    /// it, or if others have meanwhile charged exactly what was wiped.
    ///
    /// A refund wakes nobody and hands no turn on. Callers that wait and may give up take the
    /// queues of [`tollgate-wait`](https://docs.rs/tollgate-wait): they charge a caller when it
    /// goes.
    ///
    /// # Progress
    ///
    /// This method is lock-free and does not allocate.
    ///
    /// ```
    /// # use tollgate::{Limiter, ManualClock, Quota};
    /// let limiter: Limiter<str> =
    ///     Limiter::builder(Quota::per_hour(1)).clock(ManualClock::new()).build()?;
    /// let charge = limiter.check("alice");
    /// limiter.refund("alice", &charge);
    /// assert!(limiter.check("alice").is_allowed());
    /// # Ok::<(), tollgate::ConfigError>(())
    /// ```
    pub fn refund<Q>(&self, key: &Q, decision: &Decision)
    where
        Q: Hash + Equivalent<K> + ?Sized,
        S: Accepts<Q>,
    {
        self.refund_n(key, decision, u64::MAX);
    }

    /// Gives back at most `tokens` of what `charge` took, for a request that cost less than was
    /// charged.
    ///
    /// It follows the rules of [`refund`](Self::refund), which gives back all of the charge.
    ///
    /// # Progress
    ///
    /// Same as [`refund`](Self::refund).
    ///
    /// ```
    /// # use tollgate::{Limiter, ManualClock, Quota};
    /// let limiter: Limiter<str> =
    ///     Limiter::builder(Quota::per_hour(100)).clock(ManualClock::new()).build()?;
    /// let estimate = limiter.check_n("alice", 80);
    /// assert!(!limiter.peek_n("alice", 50).is_allowed());
    /// limiter.refund_n("alice", &estimate, 30); // it took 50
    /// assert!(limiter.peek_n("alice", 50).is_allowed());
    /// # Ok::<(), tollgate::ConfigError>(())
    /// ```
    pub fn refund_n<Q>(&self, key: &Q, decision: &Decision, tokens: u64)
    where
        Q: Hash + Equivalent<K> + ?Sized,
        S: Accepts<Q>,
    {
        self.refund_at(key, decision, tokens, self.clock.now());
    }

    /// [`refund_n`](Self::refund_n) at a time.
    pub(crate) fn refund_at<Q: ?Sized>(&self, key: &Q, charge: &Decision, tokens: u64, now: Tick)
    where
        S: Accepts<Q>,
    {
        // Called once the state is known: a later reset is after this refund.
        let is_current = || self.resets.are_before(charge);
        let refund = |state: AnyState<'_>| state.refund(now, charge, tokens, is_current);
        match charge.source {
            DecisionSource::Key => _ = self.store.known(key, refund),
            DecisionSource::Overflow => self.beyond.overflow.visit_as_is(refund),
            // These decisions took nothing from a state of this limiter.
            DecisionSource::Policy | DecisionSource::Store | DecisionSource::Lease => {}
        }
    }

    /// Makes `key` as good as new, and ends its [pause](Self::pause).
    ///
    /// A later [`refund`](Self::refund) gives back nothing of what any key was charged before. A
    /// key without a state of its own, because the table was full when it came, is not affected.
    ///
    /// # Progress
    ///
    /// This method is lock-free and does not allocate.
    ///
    /// ```
    /// # use tollgate::{Limiter, Quota};
    /// let limiter: Limiter<str> = Limiter::builder(Quota::per_hour(1)).build()?;
    /// let _ = limiter.check("alice");
    /// limiter.reset("alice");
    /// assert!(limiter.check("alice").is_allowed());
    /// # Ok::<(), tollgate::ConfigError>(())
    /// ```
    pub fn reset<Q>(&self, key: &Q)
    where
        Q: Hash + Equivalent<K> + ?Sized,
        S: Accepts<Q>,
    {
        self.resets.note(|| _ = self.store.known(key, |state| state.reset()));
        self.pauses.end(key);
    }

    /// Charges `key` for `tokens` that are spent already, and returns how many were charged.
    ///
    /// That is as many as there is room for, and beyond that up to
    /// [`max_debt`](crate::Builder::max_debt). While a key is in debt nothing remains, and its
    /// requests are denied, with the time at which they pass. What is returned can't be given back
    /// by a refund; a [`Reservation`](crate::Reservation) settles more exactly.
    ///
    /// A new key that finds the table full is charged as [`WhenFull`](crate::WhenFull) says: only
    /// the state of `Share` can be.
    ///
    /// # Progress
    ///
    /// Same as [`check`](Self::check).
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use tollgate::{Limiter, ManualClock, Quota};
    /// let limiter: Limiter<str> =
    ///     Limiter::builder(Quota::per_second(10)).clock(ManualClock::new()).max_debt(20).build()?;
    /// assert_eq!(limiter.force("alice", 25), 25);
    /// assert_eq!(limiter.peek("alice").retry_after(), Some(Duration::from_millis(1_600)));
    /// assert_eq!(limiter.force("alice", 25), 5);
    /// # Ok::<(), tollgate::ConfigError>(())
    /// ```
    pub fn force<Q>(&self, key: &Q, tokens: u64) -> u64
    where
        Q: Hash + Equivalent<K> + ?Sized,
        S: Accepts<Q>,
    {
        self.force_at(key, tokens, self.clock.now())
    }

    /// [`force`](Self::force) at a time.
    pub(crate) fn force_at<Q: ?Sized>(&self, key: &Q, tokens: u64, now: Tick) -> u64
    where
        S: Accepts<Q>,
    {
        // Nothing to charge, so no reason to insert the key.
        if tokens == 0 {
            return 0;
        }
        let forced = self.store.force(key, now, tokens);
        forced.unwrap_or_else(|left| tokens - left + self.refuse_forced(left, now))
    }

    /// Charges the spent tokens of a new key that finds no slot, as the [`WhenFull`] policy says.
    #[cold]
    fn refuse_forced(&self, tokens: u64, now: Tick) -> u64 {
        self.beyond.refused.add(1);
        match self.when_full {
            WhenFull::Share => self.visit_shared(|state| state.force(now, tokens)),
            WhenFull::Deny | WhenFull::Allow => 0,
        }
    }

    /// Charges `key` an estimate for work whose cost is known later: see [`Reservation`].
    ///
    /// # Errors
    ///
    /// [`Denied`] if the tokens are not there. Then nothing is charged.
    ///
    /// # Progress
    ///
    /// Same as [`check`](Self::check).
    ///
    /// ```
    /// # use tollgate::{Limiter, ManualClock, Quota};
    /// let limiter: Limiter<str> =
    ///     Limiter::builder(Quota::per_hour(100)).clock(ManualClock::new()).build()?;
    /// let held = limiter.reserve("alice", 80).unwrap();
    /// assert!(limiter.reserve("alice", 80).is_err());
    /// held.commit(30);
    /// assert_eq!(limiter.peek("alice").remaining(), 70);
    /// # Ok::<(), tollgate::ConfigError>(())
    /// ```
    // Always inlined: to return a reservation copies it, and a copy waits for the stores of the
    // check.
    #[inline(always)]
    pub fn reserve<'l, Q>(
        &'l self,
        key: &'l Q,
        estimate: u64,
    ) -> Result<Reservation<impl Chargeable + use<'l, K, S, Q>>, Denied>
    where
        Q: Hash + Equivalent<K> + ?Sized,
        S: Accepts<Q>,
    {
        let charge = self.check_at(key, estimate, || self.clock.now());
        Reservation::from_charge(KeyLimiter::new(self, key, OwnClock), estimate, charge)
    }

    /// [`reserve`](Self::reserve) for work that outlives the caller: the reservation owns the key
    /// and a share of the limiter. This allocates once, so that its type has no parameters.
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
    /// let builder = Limiter::<str>::builder(Quota::per_hour(100)).clock(ManualClock::new());
    /// let limiter = builder.build()?;
    /// let limiter = Arc::new(limiter);
    /// let held = limiter.reserve_owned("alice".to_owned(), 80).unwrap();
    /// std::thread::spawn(move || held.commit(30)).join().unwrap();
    /// assert_eq!(limiter.peek("alice").remaining(), 70);
    /// # Ok::<(), tollgate::ConfigError>(())
    /// ```
    // Always inlined, as `reserve`.
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
