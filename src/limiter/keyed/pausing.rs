//! Pausing a key. How pauses are kept is on the page of `limiter/pauses.rs`.

use super::limiter::Limiter;
use crate::decision::{Decision, Figures, NEVER, Outcome};
use crate::error::PauseError;
use crate::limiter::store::interface::{Accepts, Store};
use crate::time::Tick;
use equivalent::Equivalent;
use std::hash::Hash;
use std::time::Duration;

impl<K: ?Sized, S: Store> Limiter<K, S> {
    /// Admits nothing for `key` for as long as `time`, whatever its quota allows: until a server
    /// that said "retry after" may be asked again, for example, or as a penalty.
    ///
    /// Meanwhile checks and peeks of the key are denied, and their
    /// [`retry_after`](Decision::retry_after) says when the same request passes: at the end of the
    /// pause, or later if the quota does not allow it then. Nothing
    /// [remains](Decision::remaining). Callers that wait, in the queues of
    /// [`tollgate-wait`](https://docs.rs/tollgate-wait), wait for the end too.
    ///
    /// The pause ends by itself. From then on the key has what it would have had without the pause:
    /// tokens come back, and refunds, [forced charges](Self::force) and changes of quotas count,
    /// as if it were not paused. A request that costs nothing is allowed in any case.
    ///
    /// A second pause extends the first if it ends later, and never shortens it. A pause that would
    /// end after [`Tick::MAX`] ends then. [`reset`](Self::reset) and [`clear`](Self::clear) end a
    /// pause; nothing else does. A class is a limiter of its own: pause a key in each of its
    /// classes.
    ///
    /// All algorithms have pauses; a [`SingleLimiter`](crate::SingleLimiter) and
    /// [`InFlight`](crate::InFlight) have none. A key needs no state for it: one that was never seen can be
    /// paused, and one that found the table full.
    ///
    /// # Memory
    ///
    /// A pause takes a place of its own until it is over and forgotten, as a key does, and up to
    /// [`max_keys`](crate::Builder::max_keys) keys can be paused at one time: so a limiter may take
    /// twice its memory.
    ///
    /// # Errors
    ///
    /// A [`PauseError`] if so many keys are paused already, or the system refuses the memory. Then
    /// the key is not paused.
    ///
    /// # Progress
    ///
    /// As a [`check`](Self::check) of a new key. Before the first pause, checks load one pointer
    /// for it. From then on a check reads the clock before it prefetches, and while any key is
    /// paused it also looks for its key among the paused ones.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use tollgate::{Limiter, ManualClock, Quota};
    /// let clock = ManualClock::new();
    /// let limiter: Limiter<str> =
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
        Q: Hash + Equivalent<K> + ?Sized,
        S: Accepts<Q>,
    {
        self.pause_at(key, time, self.clock.now())
    }

    /// [`pause`](Self::pause) from a time on.
    pub(crate) fn pause_at<Q: ?Sized>(&self, key: &Q, time: Duration, now: Tick) -> Result<(), PauseError>
    where
        S: Accepts<Q>,
    {
        let end = now + time;
        if end > now { Ok(self.pauses.set(key, now, end, &self.store)?) } else { Ok(()) }
    }

    /// The answer to a request for a key that is paused; `None` if it is not, or the request costs
    /// nothing.
    pub(crate) fn held_back<Q: ?Sized>(&self, key: &Q, cost: u64, now: Tick) -> Option<Decision>
    where
        S: Accepts<Q>,
    {
        let left = self.pauses.left(key, now);
        if left == 0 || cost == 0 {
            return None;
        }
        // The answer at the end of the pause, if no other request comes first.
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
        Some(Decision { outcome, cost, at: now, figures, ..then })
    }
}
