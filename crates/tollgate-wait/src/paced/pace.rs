//! The pace of one key as a plain value. It contains the limits reported by the server, and the
//! times at which requests may be sent while these limits last.
//!
//! # Rules
//!
//! 1. *Pause.* No request is sent during a pause. A pause is set by a refusal with a time, which
//!    may be the reset time of a limit that is used up, or by a backoff, of this key or of all
//!    keys.
//! 2. *Horizon.* If a response to request number `n` reports `r` remaining requests until some
//!    time, requests up to number `n + r` are permitted until this time. Requests are numbered as
//!    they are admitted, so this bound also covers requests after `n` that the server had not
//!    counted yet.
//! 3. *Spread.* Requests are sent at four times the rate at which the remaining amount would last
//!    for the limit's whole window. If other processes use the same limit, each process takes a
//!    share of the remaining amount, so the amount shrinks ever more slowly and is not exceeded.
//!    While a quarter to a half of the quota remains, the pace is the quota's average rate. A
//!    single client of a token bucket stays in this range. The remaining amount is assumed to grow
//!    by one quota per window, as in a token bucket. While more than half of the quota remains,
//!    requests are never more than a second ([`AMPLE`]) apart, however long the window is: with 76
//!    of 100 left in six hours, ten requests take ten seconds, and not twelve minutes. Within a
//!    second, the response to one request usually arrives before the next request is sent, so each
//!    process notices when half of the quota is left, and then returns to the average rate. The
//!    processes overdraw this half only if there are more processes than tokens in it.
//! 4. *Even.* Requests are sent no faster than the quota's average rate once the time of the
//!    remaining amount has passed, or if a response contains a quota but no remaining amount. Any
//!    interval as long as the window then contains at most as many requests as the quota. If a
//!    response states no window, the time until the reset takes its place. This time shrinks
//!    towards the reset, when the server renews its whole quota. From the reset to the next
//!    response, requests may therefore be faster than the quota's average rate.
//! 5. *End.* A limit in a response ends one window after its reset time. It also lasts for at least
//!    one window after a pause, so that no burst follows the pause. Each response that repeats the
//!    limit prolongs it. After the limit has ended, the key's own quota alone applies.
//!
//! Pauses and resets that are longer than the longest pause are cut short, but a caller that is
//! refused receives the time that the server stated.
//!
//! For each limit, the response to the highest-numbered request counts. Without further responses,
//! every limit ends after at most the longest pause plus one window. In this sum, a window is never
//! longer than the longest pause.

use super::pause::Pause;
use crate::answer::{Answer, MAX_LIMITS, ServerLimit};
use std::mem;
use std::time::Duration;
use tollgate::Tick;

/// The maximum lateness of a request for which the pace compensates. Timers and busy machines cause
/// such delays.
const SLACK: Duration = Duration::from_millis(20);
/// The rate at which the remaining amount is spent, divided by the rate at which the amount would
/// last for the limit's whole window.
const SPREAD: f64 = 4.0;
/// The maximum time between requests of cost 1 while more than half of the quota remains.
const AMPLE: Duration = Duration::from_secs(1);
/// How many times the search for the next time halves its interval. An interval of a minute shrinks
/// to less than a millisecond.
const HALVINGS: u32 = 16;
/// The first pause after a refusal without a time. Each further refusal in a row doubles the pause.
const FIRST_BACKOFF: Duration = Duration::from_secs(1);
/// The maximum pause after a refusal without a time.
const MAX_BACKOFF: Duration = Duration::from_secs(60);
/// The maximum window of a limit, which is the time from the first to the last [`Tick`]. Servers
/// can report any time, but calculations with a window of at most this maximum do not overflow.
const MAX_WINDOW: Duration = Duration::from_nanos(Tick::MAX.as_nanos());

/// The number of a request for a key: the total cost of all requests admitted up to and including
/// that request.
pub(crate) type Number = u64;

#[derive(Debug, Default)]
pub(crate) struct Pace {
    admitted: Number,
    /// The total cost of the requests that the inner limiter is checking.
    asking: u64,
    pause: Pause,
    /// The number of consecutive refusals without a time.
    refusals: u32,
    /// `admitted + asking` at the time when the latest refusal was counted. Responses to requests
    /// up to this number neither end nor extend the series of refusals, because these requests were
    /// made before the client backed off.
    counted: Number,
    /// The number of the request whose success has ended the last series of refusals, and the
    /// length of this series. The body of this success may still turn out to be a refusal.
    ended: (Number, u32),
    limits: Vec<Known>,
}

/// A limit of the server, as described by the newest response.
#[derive(Debug)]
struct Known {
    name: String,
    /// The number of the request whose response described the limit, and the time of this response.
    seen: Number,
    told: Tick,
    tokens: Option<u64>,
    window: Duration,
    /// How long the limit lasts after its reset or after a pause: its window, but at most the
    /// longest pause.
    lasts: Duration,
    remaining: Option<u64>,
    /// The time until which the horizon holds, and the same according to the server, which may be
    /// later.
    until: Tick,
    stated: Tick,
    ends: Tick,
    /// The time of the last request, and its cost. The time may be slightly earlier than the actual
    /// time, to compensate for lateness.
    sent: Tick,
    cost: u64,
}

impl Known {
    /// Returns the time between requests of cost 1 that are sent at the quota's average rate.
    /// Without a quota, this time is zero.
    fn even(&self) -> Duration {
        // A window that starts at an arbitrary time can contain one request more than the spacing
        // alone permits.
        self.tokens.map_or(Duration::ZERO, |tokens| share(self.window + SLACK, tokens as f64))
    }

    /// Returns the remaining amount at `now`, if no request was sent since the response.
    fn rest(&self, now: Tick) -> Option<f64> {
        let rest = self.remaining? as f64;
        let grown = now.since(self.told).as_secs_f64() / self.window.as_secs_f64();
        Some(self.tokens.map_or(rest, |tokens| (rest + tokens as f64 * grown).min(tokens as f64)))
    }

    /// Returns the time between requests of cost 1. If fewer than [`SPREAD`] tokens remain, they
    /// are spent no faster than at the quota's average rate, because they would soon be exhausted.
    fn spacing(&self, now: Tick) -> Duration {
        let even = self.even();
        let Some(rest) = self.rest(now) else { return even };
        let spread = share(self.window, SPREAD * rest);
        let Some(tokens) = self.tokens.filter(|_| now < self.until) else { return spread.max(even) };
        let is_scarce = rest <= tokens as f64 / 2.0 || rest < SPREAD;
        if is_scarce { spread.max(even) } else { spread.min(AMPLE) }
    }

    /// Returns how many whole tokens can be spent until half of the quota remains.
    #[allow(clippy::cast_possible_truncation)]
    fn above_half(&self, now: Tick) -> u64 {
        let half = self.tokens.map_or(0.0, |tokens| tokens as f64 / 2.0);
        self.rest(now).map_or(0, |rest| (rest - half) as u64)
    }

    /// Returns the time at which the next request may be sent.
    fn next(&self, spacing: Duration) -> Tick {
        self.sent + times(spacing, self.cost)
    }

    /// Returns the time from `now` at which the next request may be sent if no further response
    /// arrives. The spacing shrinks as the remaining amount grows, so this time is found by halving
    /// the interval up to the time that the spacing at `now` would require.
    fn earliest(&self, now: Tick) -> Tick {
        let (mut early, mut late) = (now, self.next(self.spacing(now)));
        if late <= now {
            return now;
        }
        for _ in 0..HALVINGS {
            let middle = early + late.since(early) / 2;
            match self.next(self.spacing(middle)) <= middle {
                true => late = middle,
                false => early = middle,
            }
        }
        late
    }

    /// Returns how long a request with this cost must wait if requests with a total cost of
    /// `before` precede it. Each outstanding response may move the horizon, so while responses are
    /// outstanding, the horizon is rechecked after one spacing.
    fn wait(&self, pace: &Pace, before: u64, cost: u64, now: Tick) -> Duration {
        let pause = pace.pause.stated(now);
        if now >= self.ends {
            return pause;
        }
        let spacing = self.spacing(now);
        // As the remaining amount grows, the spacing shrinks to the even spacing. As it is spent,
        // the spacing grows to the even spacing when half of the quota remains.
        let even = if self.tokens.is_some() { self.even() } else { spacing };
        let ample = if spacing < even { before.min(self.above_half(now)) } else { 0 };
        let queued = times(spacing, ample).saturating_add(times(even, before - ample));
        let next = self.earliest(now).since(now).max(pause).saturating_add(queued);
        let preceding = pace.admitted.saturating_add(pace.asking).saturating_add(before);
        let horizon = self.remaining.map_or(u64::MAX, |rest| self.seen.saturating_add(rest));
        if preceding.saturating_add(cost) <= horizon {
            return next;
        }
        let rest = if now < self.until { self.stated.since(now) } else { Duration::ZERO };
        let hold = if pace.admitted > self.seen { rest.min(spacing.max(SLACK)) } else { rest };
        let beyond = before.min(preceding.saturating_sub(horizon));
        next.max(hold.max(pause).saturating_add(times(even, beyond)))
    }
}

impl Pace {
    /// Lets a request with this cost proceed to the inner limiter at `now`, or returns how long it
    /// must wait.
    pub(crate) fn ask(&mut self, cost: u64, now: Tick) -> Result<(), Duration> {
        let wait = self.wait(0, cost, now);
        if !wait.is_zero() {
            return Err(wait);
        }
        if cost == 0 {
            return Ok(());
        }
        self.asking = self.asking.saturating_add(cost);
        for known in &mut self.limits {
            let earliest = Tick::from_nanos(now.as_nanos().saturating_sub(nanos(SLACK)));
            (known.sent, known.cost) = (known.next(known.spacing(now)).max(earliest), cost);
        }
        Ok(())
    }

    /// Returns how long a request with this cost must wait at `now`, if requests with a total cost
    /// of `before` precede it. A request of cost zero waits for the pause and for preceding
    /// requests, but not for a limit.
    pub(crate) fn wait(&self, before: u64, cost: u64, now: Tick) -> Duration {
        if before == 0 && cost == 0 {
            return self.pause.stated(now);
        }
        let waits = self.limits.iter().map(|known| known.wait(self, before, cost, now));
        waits.fold(self.pause.stated(now), Duration::max)
    }

    /// Returns how long all requests are paused. The server may have stated a longer time.
    pub(crate) fn pause(&self, now: Tick) -> Duration {
        self.pause.rest(now)
    }

    /// Returns how long a request must wait if only the pause delays it.
    pub(crate) fn stated_pause(&self, now: Tick) -> Duration {
        self.pause.stated(now)
    }

    /// Prolongs the pause to the end of `pause`.
    pub(super) fn pause_until(&mut self, pause: Pause, now: Tick) {
        self.pause.extend(pause, now);
        self.outlast_pause(now);
    }

    /// Lets each limit that had not ended before the pause last for at least one window after it.
    fn outlast_pause(&mut self, now: Tick) {
        if !self.pause.is_over(now) {
            for known in self.limits.iter_mut().filter(|known| known.ends > self.pause.began()) {
                known.ends = known.ends.max(self.pause.until() + known.lasts);
            }
        }
    }

    /// Returns the time between requests at `now`, if a limit determines this time.
    pub(crate) fn spacing(&self, now: Tick) -> Option<Duration> {
        let known = self.limits.iter().filter(|known| now < known.ends);
        known.map(|known| known.spacing(now)).max().filter(|spacing| !spacing.is_zero())
    }

    /// Completes a request that `ask` allowed to proceed, whether or not the inner limiter has
    /// admitted it.
    pub(crate) fn asked(&mut self, cost: u64, is_admitted: bool) {
        self.asking = self.asking.saturating_sub(cost);
        if is_admitted {
            self.admitted = self.admitted.saturating_add(cost);
            return;
        }
        for known in &mut self.limits {
            known.cost = known.cost.saturating_sub(cost);
        }
    }

    /// Takes back request `number`, which was admitted but is never sent. All higher numbers shrink
    /// by its cost. Requests that are already sent keep their numbers, so until their responses
    /// arrive, the horizon may be too high by this cost.
    #[cfg(feature = "tower")]
    pub(crate) fn take_back(&mut self, number: Number, cost: u64) {
        let number = number.min(self.admitted);
        let seen = self.limits.iter_mut().map(|known| &mut known.seen);
        for last in seen.chain([&mut self.counted, &mut self.admitted]) {
            if *last >= number {
                *last = last.saturating_sub(cost);
            }
        }
    }

    /// Returns the number of the last admitted request.
    pub(crate) fn admitted(&self) -> Number {
        self.admitted
    }

    /// Updates the pace from the response to request `number`. `random` returns a number between 0
    /// and 1. Returns how long this response pauses the key, which is zero if it does not.
    pub(crate) fn learn(
        &mut self,
        answer: &Answer,
        number: Number,
        now: Tick,
        max_pause: Duration,
        random: impl FnOnce() -> f64,
    ) -> Duration {
        let sent = number;
        // The request may be older than this pace.
        let number = number.min(self.admitted);
        self.limits.retain(|known| now < known.ends);
        // The time until which the server admits nothing.
        let retry_after = answer.retry_after.unwrap_or_default();
        let (mut wait, mut pause) = (retry_after, retry_after);
        for limit in &answer.limits {
            let used_up =
                if limit.remaining == Some(0) { limit.reset.unwrap_or_default() } else { Duration::ZERO };
            if self.know(limit, number, now, max_pause) {
                wait = wait.max(used_up);
                // A limit that counts another unit has no horizon that would delay requests.
                pause = pause.max(if limit.unit.is_some() { used_up } else { Duration::ZERO });
            }
        }
        if !answer.is_refusal {
            // A response to an earlier request is no evidence about the server's state since the
            // refusal.
            if number > self.counted && self.refusals > 0 {
                self.ended = (sent, mem::take(&mut self.refusals));
            }
        } else if sent == self.ended.0 {
            // The body of a success is a refusal, so the success has not ended the series.
            self.refusals = self.refusals.max(mem::take(&mut self.ended.1));
        }
        if answer.is_refusal && !wait.is_zero() {
            // The reset time of a limit that is used up also concerns requests that were admitted
            // earlier and are not sent yet. Such a request has already passed the horizon. If the
            // response has a `Retry-After`, the server says when a retry may succeed.
            if retry_after.is_zero() {
                pause = wait;
            }
        } else if answer.is_refusal {
            if self.refusals == 0 || number > self.counted {
                let longest = FIRST_BACKOFF.saturating_mul(1 << self.refusals.min(16)).min(MAX_BACKOFF);
                self.refusals += 1;
                self.counted = self.admitted.saturating_add(self.asking);
                pause = longest.mul_f64(0.5 + random() / 2.0).min(max_pause);
            } else {
                // An earlier refusal of the same series has already paused the key.
                pause = self.pause.rest(now);
            }
        }
        if !pause.is_zero() {
            self.pause.extend(Pause::new(pause, now, max_pause), now);
        }
        self.outlast_pause(now);
        if answer.is_refusal { pause } else { wait.max(pause) }
    }

    /// Updates the pace from a limit in the response to request `number`. Returns false if the
    /// limit has no effect on the pace.
    fn know(&mut self, limit: &ServerLimit, number: Number, now: Tick, max_pause: Duration) -> bool {
        let window = limit.window.or(limit.reset).unwrap_or_default().min(MAX_WINDOW);
        let reset = limit.reset.or(limit.window).unwrap_or_default();
        // A limit that counts a unit other than requests has no pace, but it may be exhausted.
        if let Some(unit) = &limit.unit {
            return limit.remaining == Some(0) && unit != "concurrent-requests";
        }
        if window.is_zero() {
            return false;
        }
        let at = self.limits.iter().position(|known| known.name == limit.name);
        if at.is_none() && self.limits.len() >= MAX_LIMITS
            || at.is_some_and(|at| number < self.limits[at].seen)
        {
            return false;
        }
        let lasts = window.min(max_pause);
        let known = Known {
            name: limit.name.clone(),
            seen: number,
            told: now,
            // Without this minimum, a quota of 0 tokens would have no pace, although it permits no
            // immediate request.
            tokens: limit.tokens.map(|tokens| tokens.max(1)),
            window,
            lasts,
            remaining: limit.remaining,
            until: now + reset.min(max_pause),
            stated: now + reset,
            ends: now + limit.reset.unwrap_or_default().min(max_pause) + lasts,
            sent: at.map_or(Tick::ZERO, |at| self.limits[at].sent),
            cost: at.map_or(0, |at| self.limits[at].cost),
        };
        match at {
            Some(at) => self.limits[at] = known,
            None => self.limits.push(known),
        }
        true
    }

    /// Returns true if the pace has ended, which means that it has the same effect as no pace.
    pub(crate) fn is_over(&self, now: Tick) -> bool {
        self.ends() <= now && self.asking == 0
    }

    /// Returns the time at which the whole pace ends. A series of refusals is remembered for as
    /// long as the longest backoff, even if a success has ended it.
    pub(crate) fn ends(&self) -> Tick {
        let until = self.pause.until();
        let backoff = if self.refusals.max(self.ended.1) > 0 { until + MAX_BACKOFF } else { until };
        self.limits.iter().map(|known| known.ends).fold(backoff, Tick::max)
    }
}

/// Divides `time` by `among`, or by 1 if `among` is less than 1.
fn share(time: Duration, among: f64) -> Duration {
    time.div_f64(among.max(1.0))
}

fn times(spacing: Duration, cost: u64) -> Duration {
    Duration::from_nanos(nanos(spacing).saturating_mul(cost))
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}
