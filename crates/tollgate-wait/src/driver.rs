//! The steps of one wait, from the call to the charge.
//!
//! ```text
//!            nobody waits          denied, in time               first
//!   call ------------------> ask ------------------> last place ------> ask ---> admitted: leave
//!     |  somebody waits                                ^                 |
//!     +------> would it be in time? -------------------+                 | denied
//!                                                                        v
//!                                                                 sleep, ask again
//! ```
//!
//! If a waiter has lost its place because it did not act, it returns to the same place as soon as
//! it is polled.
//!
//! If a wait fails or is dropped, the destructor of `Waiter` removes the waiter from the line and
//! calls the next waiter. After the charge, the future completes without awaiting anything, so
//! dropping the future never loses a charge (unless the limiter takes time to answer).

use crate::limiter::Waitable;
use crate::line::{First, NO_TICKET, Place, Ticket};
use crate::lines::{Joined, LineId, Lines, Waiter};
use crate::outcome::WaitError;
use crate::permit::NextWaiter;
use crate::settings::Settings;
use crate::sleep::Sleep;
use std::future::{Future, poll_fn};
use std::hash::Hash;
use std::mem::needs_drop;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tollgate::{Decision, DecisionSource, Outcome, Quota};

/// Each waiter checks on the first waiter at least once in twice this many times the patience,
/// however long the line is. Its timer does not follow the line, so it may have become the second
/// waiter.
const SPREAD: u32 = 10;

/// One wait: its limiter, key, cost and maximum duration.
pub(crate) struct Wait<'w, L, Q: ?Sized, S> {
    pub(crate) lines: &'w Arc<Lines>,
    pub(crate) settings: &'w Settings,
    pub(crate) limiter: &'w L,
    pub(crate) sleep: &'w S,
    pub(crate) key: &'w Q,
    pub(crate) cost: u64,
    pub(crate) max_wait: Option<Duration>,
}

/// Why a sleeping waiter woke up.
enum Woken {
    /// The waiter was woken by its timer, by a preceding waiter, by a returned permit, or because
    /// the queue was closed.
    Turn,
    /// The first waiter loses its place, because it has been inactive for too long.
    Overdue(First),
    /// The maximum duration of the wait has passed.
    Expired(Duration),
}

impl<L, Q, S> Wait<'_, L, Q, S>
where
    L: Waitable<Q>,
    Q: Hash + ?Sized,
    S: Sleep,
{
    /// True if turns are permits, which are returned at unknown times.
    const HOLDS: bool = needs_drop::<L::Turn>();

    pub(crate) async fn run(&self) -> Result<L::Turn, WaitError> {
        if self.lines.is_closed() {
            return Err(WaitError::Closed);
        }
        // A cost of zero takes no tokens away from other waiters, so it does not queue unless the
        // key is paused.
        if self.cost == 0 && !Self::HOLDS {
            match self.take(NO_TICKET).await {
                Ok(turn) => return Ok(turn),
                Err(decision) => self.wait_of(&decision)?,
            };
        }
        let waiter = match self.enter().await? {
            Entered::Admitted(turn) => return Ok(turn),
            Entered::Waits(waiter) => waiter,
        };
        let mut deadline = pin!(self.max_wait.map(|max_wait| self.sleep.sleep(max_wait)));
        let (mut own_turn_is_over, mut has_passed_over) = (false, false);
        loop {
            let mut timer = pin!(None);
            let woken = match self.place(&waiter).await {
                Place::First => {
                    let decision = match self.take(waiter.ticket()).await {
                        Ok(turn) => return Ok(turn),
                        Err(decision) => decision,
                    };
                    let sleeps = self.settings.sleep_for(self.wait_of(&decision)?);
                    waiter.act(sleeps);
                    timer.set(Some(self.sleep.sleep(sleeps)));
                    poll_fn(|cx| match poll_timer(timer.as_mut(), cx) {
                        Poll::Pending if !waiter.is_called(cx.waker()) => {
                            self.poll_deadline(deadline.as_mut(), cx)
                        }
                        _ => Poll::Ready(Woken::Turn),
                    })
                    .await
                }
                Place::Behind { first, ahead, cost } => {
                    let patience = self.settings.patience;
                    // Far from the front, the waiters are spread over several intervals, so that
                    // they do not all wake up at the same time.
                    let intervals = if ahead < SPREAD { ahead } else { SPREAD + ahead % SPREAD };
                    let in_turn = patience.saturating_mul(intervals);
                    let watch = if !own_turn_is_over {
                        // A waiter first checks on the first waiter when its own turn is overdue.
                        // At the end of a window or of a pause, its turn arrives much earlier than
                        // at the quota's rate.
                        own_turn_is_over = true;
                        let own_turn = time_of(&self.limiter.quota(self.key), cost).max(patience);
                        own_turn.min(first.sleeps.max(in_turn))
                    } else if has_passed_over {
                        patience
                    } else {
                        // The waiters in between also check on the first waiter, so the waiters
                        // near the front have most of the wake-ups.
                        in_turn
                    };
                    timer.set(Some(self.sleep.sleep(first.sleeps.saturating_add(watch))));
                    poll_fn(|cx| match waiter.look(cx.waker()) {
                        Place::Behind { .. } => match poll_timer(timer.as_mut(), cx) {
                            Poll::Ready(()) => Poll::Ready(Woken::Overdue(first)),
                            Poll::Pending => self.poll_deadline(deadline.as_mut(), cx),
                        },
                        Place::First | Place::Lost | Place::Closed => Poll::Ready(Woken::Turn),
                    })
                    .await
                }
                Place::Lost => {
                    waiter.come_back();
                    Woken::Turn
                }
                Place::Closed => return Err(WaitError::Closed),
            };
            match woken {
                Woken::Turn => {}
                Woken::Overdue(first) => has_passed_over = waiter.pass_over(first),
                Woken::Expired(max_wait) => {
                    // The waiter leaves the line first, so that it does not block other waiters
                    // while it counts the permits.
                    drop(waiter);
                    return Err(self.expired(max_wait).await);
                }
            }
        }
    }

    /// Takes a turn from the limiter, either as the waiter holding `ticket` or without a place in
    /// line.
    async fn take(&self, ticket: Ticket) -> Result<L::Turn, Decision> {
        // A rate requires no id, because its turns wake no waiter.
        let id = if Self::HOLDS { self.id() } else { 0 };
        let next = NextWaiter { lines: self.lines, id, taken_by: ticket };
        self.limiter.take(self.key, self.cost, next).await
    }

    async fn expired(&self, max_wait: Duration) -> WaitError {
        WaitError::Expired { max_wait, in_flight: self.limiter.in_flight(self.key).await }
    }

    /// Checks the limiter immediately if the key has no waiters. Takes the last place in the line
    /// if the key has waiters, or if the check is denied and a wait can help.
    async fn enter(&self) -> Result<Entered<'_, L::Turn>, WaitError> {
        loop {
            let seen = self.lines.cost(|| self.id(), self.settings.patience);
            let wait = match seen {
                None => match self.take(NO_TICKET).await {
                    Ok(turn) => return Ok(Entered::Admitted(turn)),
                    Err(decision) => self.wait_of(&decision)?,
                },
                Some(before) => self.wait_behind(before).await?,
            };
            if let Some(max_wait) = self.max_wait {
                match wait {
                    // A call with a wait of zero overtakes no waiter, even while the first waiter
                    // is about to leave.
                    Some(wait) if wait > max_wait || max_wait.is_zero() && seen.is_some() => {
                        return Err(WaitError::TooLong { wait, max_wait });
                    }
                    None if max_wait.is_zero() => return Err(self.expired(max_wait).await),
                    _ => {}
                }
            }
            // If another caller has joined in the meantime, the wait is longer and is computed
            // again. Each repetition means that another caller has taken a place.
            if let Joined::Waits(waiter) = self.lines.join(self.id(), self.cost, seen, self.settings)? {
                return Ok(Entered::Waits(waiter));
            }
        }
    }

    /// Returns how long a caller waits behind waiters that will take `before` tokens. The result is
    /// exact for buckets, and an estimate for paces, and for windows and logs, which free many
    /// tokens at once. Returns `None` if the time is unknown, or if the caller waits without a time
    /// limit.
    async fn wait_behind(&self, before: u64) -> Result<Option<Duration>, WaitError> {
        let mut capacity = self.limiter.quota(self.key).capacity();
        if self.cost > capacity {
            return Err(WaitError::Never { cost: self.cost, capacity });
        }
        if self.max_wait.is_none() {
            return Ok(None);
        }
        let all = before.saturating_add(self.cost);
        loop {
            // While the key has waiters, its bucket is never full, so the tokens beyond the
            // capacity become available at the bucket's rate.
            let asked = all.min(capacity);
            let at_once = self.limiter.peek_n(self.key, asked).await;
            // A limiter that replaces a store has a smaller capacity than the store. A quota may
            // also change between two answers.
            capacity = at_once.capacity();
            let asks_again = match at_once.outcome() {
                Outcome::TooCostly => (self.cost..asked).contains(&capacity),
                Outcome::Allowed => asked < all.min(capacity),
                _ => false,
            };
            if asks_again {
                continue;
            }
            // In a leaky queue, all waiters before this one start first.
            let more = if at_once.start_after().is_zero() { all - asked } else { before };
            let rest = time_of(&self.limiter.quota_of(self.key, &at_once), more);
            let wait = self.wait_of(&at_once)?.map(|wait| wait.saturating_add(rest));
            let wait = wait.max(self.limiter.pace_wait(self.key, before, self.cost));
            return Ok(wait.filter(|wait| !Self::HOLDS || !wait.is_zero()));
        }
    }

    /// Returns the id of the key's line. For a rate, a call that is admitted while no key has
    /// waiters computes no id.
    fn id(&self) -> LineId {
        self.lines.id(self.key)
    }

    /// Returns the current place of `waiter`.
    async fn place(&self, waiter: &Waiter<'_>) -> Place {
        poll_fn(|cx| Poll::Ready(waiter.look(cx.waker()))).await
    }

    /// Returns how long a denied request, or a request with a later start, must wait. Returns
    /// `None` if the time at which the request would pass is unknown.
    fn wait_of(&self, decision: &Decision) -> Result<Option<Duration>, WaitError> {
        let cost = self.cost;
        match (decision.outcome(), decision.retry_after()) {
            (Outcome::TooCostly, _) => {
                let capacity = self.limiter.quota(self.key).capacity();
                if cost > capacity {
                    Err(WaitError::Never { cost, capacity })
                } else if cost > self.limiter.quota_of(self.key, decision).capacity() {
                    // The store can admit this cost, but the limiter that replaces it never can.
                    Err(WaitError::NoRetryTime)
                } else {
                    // The quota was raised after the decision was made.
                    Ok(None)
                }
            }
            (_, Some(wait)) => Ok(Some(wait.max(decision.start_after()))),
            (_, None) if Self::HOLDS && decision.source() != DecisionSource::Policy => Ok(None),
            (_, None) => Err(WaitError::NoRetryTime),
        }
    }

    fn poll_deadline(&self, deadline: Pin<&mut Option<S::Sleeping>>, cx: &mut Context<'_>) -> Poll<Woken> {
        poll_timer(deadline, cx).map(|()| Woken::Expired(self.max_wait.unwrap_or_default()))
    }
}

enum Entered<'l, T> {
    Admitted(T),
    Waits(Waiter<'l>),
}

/// Returns how long a quota needs to refill `tokens`.
fn time_of(quota: &Quota, tokens: u64) -> Duration {
    let nanos = quota.period().as_nanos().saturating_mul(tokens.into()).div_ceil(quota.tokens().into());
    Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
}

fn poll_timer<F: Future<Output = ()>>(timer: Pin<&mut Option<F>>, cx: &mut Context<'_>) -> Poll<()> {
    timer.as_pin_mut().map_or(Poll::Pending, |timer| timer.poll(cx))
}
