//! The limiters that callers can wait for.

use crate::outcome::Turn;
use crate::permit::{Held, NextWaiter};
use std::borrow::Borrow;
use std::future::{Future, ready};
use std::hash::Hash;
use std::mem::needs_drop;
use std::sync::Arc;
use std::time::Duration;
use tollgate::store::{Accepts, Equivalent, Store};
use tollgate::{Algorithm, Chargeable, Decision, InFlight, Limiter, Permit, Quota, SingleLimiter};

/// A limiter that callers can wait for. This trait is implemented for [`Limiter`],
/// [`SingleLimiter`] (whose key is `()`) and [`InFlight`], and for references to these limiters and
/// `Arc`s of them. `SharedLimiter` and `SharedInFlight` implement it if the feature `wait` of
/// `tollgate-redis` is on.
///
/// A pair of a rate and a limit on the requests in flight is also a limiter. The first member is
/// charged the request's cost, and the second member provides one permit. A request takes from both
/// members or from neither.
///
/// # Two quotas
///
/// A pair of two rates does not compile, because a charge is not returned as a permit is. To wait
/// for two quotas of a key, implement this trait with [`check_all`](tollgate::check_all). A queue
/// accepts this type, and so does `Paced`.
///
/// ```
/// use std::future::{Future, ready};
/// use std::time::Duration;
/// use tollgate::{Charge, Decision, Denied, Limiter, Quota, check_all};
/// use tollgate_wait::{NextWaiter, Turn, WaitError, WaitQueue, Waitable};
///
/// struct TwoQuotas {
///     second: Limiter<String>,
///     day: Limiter<String>,
/// }
///
/// impl Waitable<str> for TwoQuotas {
///     type Turn = Turn;
///
///     fn take(
///         &self,
///         key: &str,
///         cost: u64,
///         _: NextWaiter<'_>,
///     ) -> impl Future<Output = Result<Turn, Decision>> + Send {
///         let (second, day) = (self.second.for_key(key), self.day.for_key(key));
///         let mut charges = [Charge::new(&second, cost), Charge::new(&day, cost)];
///         // The decision of a refusal is that of the quota with the longest wait.
///         let refused = check_all(&mut charges).err().map(|denied| denied.decision());
///         ready(refused.or(charges[0].decision().copied()).expect("checked").try_into())
///     }
///
///     fn peek_n(&self, key: &str, cost: u64) -> impl Future<Output = Decision> + Send {
///         let answers = [self.second.peek_n(key, cost), self.day.peek_n(key, cost)];
///         let denied = Denied::among(answers.into_iter().enumerate());
///         ready(denied.map_or(answers[0], |denied| denied.decision()))
///     }
///
///     // The rate at which the waiters of a key proceed, for estimates of a wait.
///     fn quota(&self, _: &str) -> Quota {
///         self.second.quota()
///     }
/// }
///
/// let second = Limiter::builder(Quota::per_second(10)).build()?;
/// let day = Limiter::builder(Quota::per_day(3)).build()?;
/// let queue = WaitQueue::new(TwoQuotas { second, day }).max_waiters_per_key(100);
/// for _ in 0..3 {
///     queue.block_until_ready("alice")?;
/// }
/// // The next token of the day is eight hours away.
/// let late = queue.block_until_ready_within("alice", Duration::from_secs(5));
/// assert!(matches!(late, Err(WaitError::TooLong { wait, .. }) if wait.as_secs() > 28_000));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub trait Waitable<Q: ?Sized> {
    /// The value that a caller receives when its turn arrives: a [`Turn`] for a rate, or a permit.
    /// A permit is returned when it is dropped.
    type Turn;

    /// Takes all of `cost` from `key`, or nothing. A permit wakes `next` once the permit has been
    /// returned.
    ///
    /// An error may be a decision that admits the request for a [later
    /// start](Decision::start_after), if nothing was charged for it. The caller then waits until
    /// this start.
    fn take(
        &self,
        key: &Q,
        cost: u64,
        next: NextWaiter<'_>,
    ) -> impl Future<Output = Result<Self::Turn, Decision>> + Send;

    /// Returns the answer that [`take`](Self::take) would return, without taking anything. If
    /// requests have a later start, this is the start of the next request, whatever it costs.
    fn peek_n(&self, key: &Q, cost: u64) -> impl Future<Output = Decision> + Send;

    /// Returns the quota of `key`. The quota's capacity is the maximum that one request can take.
    /// The quota of permits has a period of zero, because permits do not refill at a rate.
    fn quota(&self, key: &Q) -> Quota;

    /// Returns the quota that applied to `answer`. The result differs from [`quota`](Self::quota)
    /// if a limiter with a share of the quota replaces a store.
    fn quota_of(&self, key: &Q, answer: &Decision) -> Quota {
        let _ = answer;
        self.quota(key)
    }

    /// Returns the least time that a request with this cost waits behind waiters that will take
    /// `before` tokens, according to a pace that applies in addition to the quota. Returns `None`
    /// if no pace applies.
    #[doc(hidden)]
    fn pace_wait(&self, key: &Q, before: u64, cost: u64) -> Option<Duration> {
        let _ = (key, before, cost);
        None
    }

    /// Returns how many permits of `key` are in use, or `None` for a rate.
    fn in_flight(&self, key: &Q) -> impl Future<Output = Option<u64>> + Send {
        let _ = key;
        ready(None)
    }
}

/// Returns true if the limiter admits requests before they may start. A cost of zero has no start.
fn turns_begin_later(algorithm: Algorithm, cost: u64) -> bool {
    algorithm == Algorithm::LeakyQueue && cost > 0
}

/// Checks a limiter, but takes nothing from a leaky queue whose answer has a later start. A charge
/// for a later start would leave a gap if the caller gave up. `peeked` is the answer of a leaky
/// queue to the same request.
fn at_its_start(
    peeked: Option<Decision>,
    check: impl FnOnce() -> Decision,
    refund: impl FnOnce(&Decision),
) -> Result<Turn, Decision> {
    if let Some(later) = peeked.filter(|answer| !answer.start_after().is_zero()) {
        return Err(later);
    }
    let answer = check();
    if answer.start_after().is_zero() {
        return answer.try_into();
    }
    // Another caller has taken this start since the queue was peeked.
    refund(&answer);
    Err(answer)
}

/// Returns the cost for which a limiter is peeked to find out when the next of several requests
/// starts. In a leaky queue, a request starts when those before it have leaked, whatever it costs.
fn first_of(algorithm: Algorithm, cost: u64) -> u64 {
    if turns_begin_later(algorithm, cost) { 1 } else { cost }
}

impl<K, S, Q> Waitable<Q> for Limiter<K, S>
where
    K: ?Sized,
    S: Store + Accepts<Q>,
    Q: Hash + Equivalent<K> + ?Sized,
{
    type Turn = Turn;

    fn take(
        &self,
        key: &Q,
        cost: u64,
        _: NextWaiter<'_>,
    ) -> impl Future<Output = Result<Turn, Decision>> + Send {
        let later = turns_begin_later(self.algorithm(), cost).then(|| self.peek_n(key, cost));
        let check = || self.check_n(key, cost);
        ready(at_its_start(later, check, |answer| self.refund(key, answer)))
    }

    fn peek_n(&self, key: &Q, cost: u64) -> impl Future<Output = Decision> + Send {
        ready(self.peek_n(key, first_of(self.algorithm(), cost)))
    }

    fn quota(&self, key: &Q) -> Quota {
        self.key_quota(key).unwrap_or_else(|| self.quota())
    }
}

impl Waitable<()> for SingleLimiter {
    type Turn = Turn;

    fn take(
        &self,
        _: &(),
        cost: u64,
        _: NextWaiter<'_>,
    ) -> impl Future<Output = Result<Turn, Decision>> + Send {
        let later = turns_begin_later(self.algorithm(), cost).then(|| self.peek_n(cost));
        ready(at_its_start(later, || self.check_n(cost), |answer| self.refund(answer)))
    }

    fn peek_n(&self, _: &(), cost: u64) -> impl Future<Output = Decision> + Send {
        ready(self.peek_n(first_of(self.algorithm(), cost)))
    }

    fn quota(&self, _: &()) -> Quota {
        self.quota()
    }
}

/// The cost of a request is the number of permits that it takes.
impl<K, S, Q> Waitable<Q> for InFlight<K, S>
where
    K: Hash + Eq + ?Sized + 'static,
    S: Store + Accepts<K> + Accepts<Q>,
    Q: Hash + Equivalent<K> + ToOwned<Owned: Borrow<K> + Send + Sync + 'static> + ?Sized,
{
    type Turn = Held<Permit>;

    fn take(
        &self,
        key: &Q,
        permits: u64,
        next: NextWaiter<'_>,
    ) -> impl Future<Output = Result<Held<Permit>, Decision>> + Send {
        let permit = self.empty_permit_owned(key.to_owned());
        let answer = permit.check_n(permits);
        ready(if answer.is_allowed() { Ok(next.wake_after(permit)) } else { Err(answer) })
    }

    fn peek_n(&self, key: &Q, permits: u64) -> impl Future<Output = Decision> + Send {
        ready(self.empty_permit(key).peek_n(permits))
    }

    /// Returns a quota of all permits. Its period is zero, because permits do not refill at a rate.
    fn quota(&self, _: &Q) -> Quota {
        Quota::new(self.limit(), Duration::ZERO)
    }

    fn in_flight(&self, key: &Q) -> impl Future<Output = Option<u64>> + Send {
        ready(Some(self.in_flight(key)))
    }
}

/// The second member is checked first, because returning a permit leaves no trace.
impl<L, P, Q> Waitable<Q> for (L, P)
where
    L: Waitable<Q> + Sync,
    P: Waitable<Q, Turn: Send> + Sync,
    Q: Sync + ?Sized,
{
    type Turn = (L::Turn, P::Turn);

    async fn take(&self, key: &Q, cost: u64, next: NextWaiter<'_>) -> Result<(L::Turn, P::Turn), Decision> {
        const { assert!(needs_drop::<P::Turn>(), "the second of a pair limits the requests in flight") };
        let permit = self.1.take(key, 1, next).await?;
        Ok((self.0.take(key, cost, next).await?, permit))
    }

    async fn peek_n(&self, key: &Q, cost: u64) -> Decision {
        let rate = self.0.peek_n(key, cost).await;
        if !rate.is_allowed() {
            return rate;
        }
        let permit = self.1.peek_n(key, 1).await;
        if permit.is_allowed() { rate } else { permit }
    }

    fn quota(&self, key: &Q) -> Quota {
        self.0.quota(key)
    }

    fn quota_of(&self, key: &Q, answer: &Decision) -> Quota {
        self.0.quota_of(key, answer)
    }

    fn pace_wait(&self, key: &Q, before: u64, cost: u64) -> Option<Duration> {
        self.0.pace_wait(key, before, cost)
    }

    fn in_flight(&self, key: &Q) -> impl Future<Output = Option<u64>> + Send {
        self.1.in_flight(key)
    }
}

/// Forwards all calls to the target of a pointer.
macro_rules! wait_by_pointer {
    ($($pointer:ty),*) => {$(
        impl<L: Waitable<Q> + ?Sized, Q: ?Sized> Waitable<Q> for $pointer {
            type Turn = L::Turn;

            fn take(
                &self,
                key: &Q,
                cost: u64,
                next: NextWaiter<'_>,
            ) -> impl Future<Output = Result<L::Turn, Decision>> + Send {
                (**self).take(key, cost, next)
            }

            fn peek_n(&self, key: &Q, cost: u64) -> impl Future<Output = Decision> + Send {
                (**self).peek_n(key, cost)
            }

            fn quota(&self, key: &Q) -> Quota {
                (**self).quota(key)
            }

            fn quota_of(&self, key: &Q, answer: &Decision) -> Quota {
                (**self).quota_of(key, answer)
            }

            fn pace_wait(&self, key: &Q, before: u64, cost: u64) -> Option<Duration> {
                (**self).pace_wait(key, before, cost)
            }

            fn in_flight(&self, key: &Q) -> impl Future<Output = Option<u64>> + Send {
                (**self).in_flight(key)
            }
        }
    )*};
}

wait_by_pointer!(&L, Arc<L>);

#[cfg(test)]
mod tests {
    use super::*;
    use tollgate::{ManualClock, Tick};

    /// The limiter is charged at an earlier time than it was peeked at, as if another caller had
    /// taken the start in between.
    #[test]
    fn a_charge_for_a_later_start_is_given_back() {
        let clock = ManualClock::new();
        let builder = SingleLimiter::builder(Quota::per_second(1).burst(2)).algorithm(Algorithm::LeakyQueue);
        let queue = builder.clock(&clock).build().unwrap();
        assert!(queue.check().is_allowed());
        let start = Tick::from(Duration::from_secs(1));
        let peeked = queue.at(start).peek();
        let turn = at_its_start(Some(peeked), || queue.check(), |answer| queue.refund(answer));
        assert_eq!(turn.map_err(|later| later.start_after()), Err(Duration::from_secs(1)));
        clock.set(start);
        let turn = at_its_start(Some(queue.peek()), || queue.check(), |_| panic!("a refund"));
        assert_eq!(turn.map(|turn| turn.at()), Ok(start));
    }
}
