//! Key pauses. See `limiter/pauses.rs` for how they are stored.

use super::limiter::Limiter;
use crate::decision::{Decision, DecisionSource, Figures, NEVER, Outcome};
use crate::error::PauseError;
use crate::limiter::store::interface::{Accepts, KeyOf, Store};
use crate::time::Tick;
use std::time::Duration;

impl<K: ?Sized, S: Store> Limiter<K, S> {
    /// Denies all requests for `key` for the duration `time`, regardless of its quota. For example,
    /// a pause can serve as a penalty, or can last as long as a server's "retry after" answer
    /// requires.
    ///
    /// During the pause, checks and peeks of the key are denied, and no tokens
    /// [remain](Decision::remaining). The [`retry_after`](Decision::retry_after) of a denial is the
    /// time until the same request is allowed. The request is allowed at the end of the pause, or
    /// later if the quota would still deny it then. Callers in the queues of
    /// [`tollgate-wait`](https://docs.rs/tollgate-wait) also wait for the end of the pause.
    ///
    /// The pause ends automatically. After the pause, the key is in the same state as if it had not
    /// been paused, because tokens refill during the pause, and refunds, [forced
    /// charges](Self::force) and quota changes take effect. A request that costs nothing is allowed
    /// even during a pause.
    ///
    /// A second pause can extend the first, but never shortens it. A pause that would end after
    /// [`Tick::MAX`] ends at [`Tick::MAX`]. Only [`reset`](Self::reset) and [`clear`](Self::clear)
    /// end a pause early. (The limiter forgets a pause one [`grace`](crate::Builder::grace) after
    /// its end or later. If the clock is then set back to a time before the end, the pause may be
    /// gone.) Each class has a separate limiter, so pause a key in each of its classes.
    ///
    /// Pauses work with all algorithms. [`SingleLimiter`](crate::SingleLimiter) and
    /// [`InFlight`](crate::InFlight) do not support pauses. Even a key without a state, such as a
    /// new key or a key that has found the table full, can be paused.
    ///
    /// # Memory
    ///
    /// A pause requires as much memory as a key, until the pause has ended and been forgotten. Up
    /// to [`max_keys`](crate::Builder::max_keys) keys can be paused at the same time, so pauses can
    /// double the memory of a limiter.
    ///
    /// # Errors
    ///
    /// Returns a [`PauseError`] if `max_keys` keys are paused or were paused until recently, or if
    /// the system refuses the memory. After either error, the key is not paused.
    ///
    /// The limiter forgets pauses as it forgets idle keys. A pause keeps its place for at least one
    /// [grace](crate::Builder::grace) after its end. From two graces after its end, the place is
    /// freed by the calls that need it. The first few of these calls may fail, like the first
    /// checks of new keys in a [full table](crate::Limiter#memory).
    ///
    /// # Progress
    ///
    /// Same as a [`check`](Self::check) of a new key. Before the first pause, a check loads one
    /// additional pointer. After the first pause, a check reads the clock before it prefetches.
    /// While any key is paused, a check also looks up its key among the paused keys.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use tollgate::{Limiter, ManualClock, Quota};
    /// let clock = ManualClock::new();
    /// let limiter: Limiter<String> =
    ///     Limiter::builder(Quota::per_second(10)).clock(&clock).build()?;
    /// limiter.pause("alice", Duration::from_secs(30))?;
    /// clock.advance(Duration::from_secs(10));
    /// let denied = limiter.check("alice");
    /// assert_eq!(denied.retry_after(), Some(Duration::from_secs(20)));
    /// assert!(limiter.check("bob").is_allowed());
    /// clock.advance(Duration::from_secs(20));
    /// assert!(limiter.check("alice").is_allowed());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn pause<Q>(&self, key: &Q, time: Duration) -> Result<(), PauseError>
    where
        Q: KeyOf<K> + ?Sized,
        S: Accepts<Q>,
    {
        self.pause_at(key, time, self.clock.now())
    }

    /// Pauses a key like [`pause`](Self::pause), starting at the time `now`.
    pub(crate) fn pause_at<Q: ?Sized>(&self, key: &Q, time: Duration, now: Tick) -> Result<(), PauseError>
    where
        S: Accepts<Q>,
    {
        let end = now + time;
        if end > now { Ok(self.pauses.set(key, now, end, &self.store)?) } else { Ok(()) }
    }

    /// Returns the answer to a request for a paused key. Returns `None` if the key is not paused or
    /// the request costs nothing.
    pub(crate) fn held_back<Q: ?Sized>(&self, key: &Q, cost: u64, now: Tick) -> Option<Decision>
    where
        S: Accepts<Q>,
    {
        let left = self.pauses.left(key, now);
        if left == 0 || cost == 0 {
            return None;
        }
        // The answer that the request would receive at the end of the pause, if no other request
        // arrived earlier.
        let end = now + Duration::from_nanos(left);
        let then = self.peek_unpaused(key, cost, end);
        let from_now = |time: Option<Duration>| match time.map(|time| u64::try_from(time.as_nanos())) {
            Some(Ok(nanos)) => left.saturating_add(nanos),
            _ => NEVER,
        };
        let outcome = if then.outcome == Outcome::TooCostly { then.outcome } else { Outcome::Denied };
        let figures = Figures::Known {
            remaining: 0,
            wait: from_now(then.retry_after()),
            reset: from_now(Some(then.reset_after())),
        };
        // The pause is a state of the key, even if the key has no place in the store.
        Some(Decision { outcome, cost, at: now, figures, source: DecisionSource::Key, ..then })
    }
}
