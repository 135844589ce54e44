//! Refunds and resets of a key.

use super::keyed::Limiter;
use super::store::{Accepts, Store};
use crate::decision::{Decision, DecisionSource};
use crate::state::AnyState;
use crate::time::Tick;
use equivalent::Equivalent;
use std::hash::Hash;

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
    /// Lock-free. No allocation.
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
    /// As [`refund`](Self::refund).
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
    pub(super) fn refund_at<Q>(&self, key: &Q, charge: &Decision, tokens: u64, now: Tick)
    where
        Q: Hash + Equivalent<K> + ?Sized,
        S: Accepts<Q>,
    {
        // Called once the state is known: a later reset is after this refund.
        let is_current = || self.resets.are_before(charge);
        let refund = |state: AnyState<'_>| state.refund(now, charge, tokens, is_current);
        match charge.source {
            DecisionSource::Key => _ = self.store.known(key, refund),
            DecisionSource::Overflow => self.visit_shared_as_is(refund),
            // These decisions took nothing from a state of this limiter.
            DecisionSource::Policy | DecisionSource::Store | DecisionSource::Lease => {}
        }
    }

    /// Makes `key` as good as new.
    ///
    /// A later [`refund`](Self::refund) gives back nothing of what any key was charged before. A
    /// key without a state of its own, because the table was full when it came, is not affected.
    ///
    /// # Progress
    ///
    /// Lock-free. No allocation.
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
    }
}
