//! The pace of one key, as a value: what the server has said of its limits, and what may be sent
//! until that is over.
//!
//! # Rules
//!
//! 1. *Pause.* Nothing is sent before `not_before`: a refusal with a time, or a backoff.
//! 2. *Horizon.* A response to request number `n` that leaves `r` until a time permits the requests
//!    up to number `n + r` until then. Requests are numbered as they are admitted, so those that
//!    left after `n`, and that the server had not counted yet, are counted here.
//! 3. *Spread.* What remains is spread over the limit's window, four times as fast as evenly. Other
//!    processes may use the same limit: each takes a share of what remains, so that the rest
//!    shrinks ever slower and is not overrun. Between a quarter and a half of the quota the pace is
//!    even, which is where a single client of a token bucket stays. The rest is taken to grow by
//!    the quota in a window, as that of a token bucket does.
//! 4. *Even.* After the time of the rest, and where a response gives a quota alone, the pace is
//!    even at the fastest: no interval as long as the window has more requests than the quota.
//! 5. *End.* What a response said is over a window after its time, or after the pause, so that a
//!    pause does not end in a burst. Each response that repeats it prolongs it. Without it, the key
//!    has its own quota.
//!
//! The newest response counts, by the number of its request. All that a response can say has an
//! end: the longest pause away, and a window that is as long at most.

use crate::answer::{Answer, MAX_LIMITS, ServerLimit};
use std::time::Duration;
use tollgate::Tick;

/// Sends that are late by up to this time are made up for: timers and busy machines are late.
const SLACK: Duration = Duration::from_millis(20);
/// How much faster than evenly the rest of a quota is sent.
const SPREAD: f64 = 4.0;
/// The first pause after a refusal without a time. Each further one in a row is twice as long.
const FIRST_BACKOFF: Duration = Duration::from_secs(1);
/// The longest pause after a refusal without a time.
const MAX_BACKOFF: Duration = Duration::from_secs(60);

/// The number of a request of a key: the costs of all that were admitted up to it.
pub(crate) type Number = u64;

#[derive(Debug, Default)]
pub(crate) struct Pace {
    admitted: Number,
    /// The costs of those that ask the limiter at this time.
    asking: u64,
    not_before: Tick,
    /// Refusals without a time, in a row.
    refusals: u32,
    /// The last request that was admitted when the last of them was counted.
    counted: Number,
    limits: Vec<Known>,
}

/// What is known of one limit of the server.
#[derive(Debug)]
struct Known {
    name: String,
    /// The request whose response said it, and when that was.
    seen: Number,
    told: Tick,
    tokens: Option<u64>,
    window: Duration,
    remaining: Option<u64>,
    /// How long the horizon holds.
    until: Tick,
    ends: Tick,
    /// The last send, or a time shortly before it that makes up for lateness, and what it cost.
    sent: Tick,
    cost: u64,
}

impl Known {
    /// The time between requests of cost 1. Less than [`SPREAD`] tokens are soon used up, so they
    /// are not sent faster than evenly either.
    fn spacing(&self, now: Tick) -> Duration {
        // A window that begins at any time has a send more than the spacing alone would give.
        let even = self.tokens.map_or(Duration::ZERO, |tokens| share(self.window + SLACK, tokens as f64));
        let Some(remaining) = self.remaining else { return even };
        let (rest, tokens) = (remaining as f64, self.tokens.map(|tokens| tokens as f64));
        let grown = now.since(self.told).as_secs_f64() / self.window.as_secs_f64();
        let rest = tokens.map_or(rest, |tokens| tokens.min(rest + tokens * grown));
        let spread = share(self.window, SPREAD * rest);
        let is_scarce = tokens.is_some_and(|tokens| rest <= tokens / 2.0 || rest < SPREAD);
        if now >= self.until || is_scarce { spread.max(even) } else { spread }
    }

    /// When the next request may be sent.
    fn next(&self, now: Tick) -> Tick {
        self.sent + times(self.spacing(now), self.cost)
    }

    /// How long the request with the number `last` has to wait, if `admitted` is the last request
    /// that was sent. While responses are missing, each may move the horizon, so it is looked at
    /// again after a spacing.
    fn wait(&self, last: Number, admitted: Number, now: Tick) -> Duration {
        if now >= self.ends {
            return Duration::ZERO;
        }
        let next = self.next(now).since(now);
        if self.remaining.is_none_or(|rest| last <= self.seen.saturating_add(rest)) {
            return next;
        }
        let rest = self.until.since(now);
        next.max(if admitted > self.seen { rest.min(self.spacing(now).max(SLACK)) } else { rest })
    }
}

impl Pace {
    /// Lets a request of this cost ask the limiter at `now`, or returns how long it has to wait.
    pub(crate) fn ask(&mut self, cost: u64, now: Tick) -> Result<(), Duration> {
        let wait = self.wait(cost, now);
        if !wait.is_zero() {
            return Err(wait);
        }
        self.asking = self.asking.saturating_add(cost);
        for known in &mut self.limits {
            let earliest = Tick::from_nanos(now.as_nanos().saturating_sub(nanos(SLACK)));
            (known.sent, known.cost) = (known.next(now).max(earliest), cost);
        }
        Ok(())
    }

    /// How long a request of this cost has to wait at `now`.
    pub(crate) fn wait(&self, cost: u64, now: Tick) -> Duration {
        let last = self.admitted.saturating_add(self.asking).saturating_add(cost);
        let waits = self.limits.iter().map(|known| known.wait(last, self.admitted, now));
        waits.fold(self.pause(now), Duration::max)
    }

    /// How long nothing at all may be sent.
    pub(crate) fn pause(&self, now: Tick) -> Duration {
        self.not_before.since(now)
    }

    /// The time between requests at `now`, if there is one.
    pub(crate) fn spacing(&self, now: Tick) -> Option<Duration> {
        let known = self.limits.iter().filter(|known| now < known.ends);
        known.map(|known| known.spacing(now)).max().filter(|spacing| !spacing.is_zero())
    }

    /// Ends what `ask` began: the limiter has admitted the request, or not.
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

    /// The number of the request that was admitted last.
    pub(crate) fn admitted(&self) -> Number {
        self.admitted
    }

    /// Learns from the response to request `number`. `random` is from 0 to 1.
    pub(crate) fn learn(
        &mut self,
        answer: &Answer,
        number: Number,
        now: Tick,
        max_pause: Duration,
        random: impl FnOnce() -> f64,
    ) {
        // The request may be older than this pace.
        let number = number.min(self.admitted);
        self.limits.retain(|known| now < known.ends);
        let mut is_timed = false;
        for limit in &answer.limits {
            is_timed |= limit.remaining == Some(0) && limit.reset.is_some_and(|reset| !reset.is_zero());
            self.know(limit, number, now, max_pause);
        }
        if let Some(wait) = answer.retry_after.filter(|wait| !wait.is_zero()) {
            self.not_before = self.not_before.max(now + wait.min(max_pause));
            is_timed = true;
        }
        if !answer.is_refusal {
            // A response to an earlier request says nothing of the time since the refusal.
            if number > self.counted {
                self.refusals = 0;
            }
        } else if !is_timed && (self.refusals == 0 || number > self.counted) {
            let longest = FIRST_BACKOFF.saturating_mul(1 << self.refusals.min(16)).min(MAX_BACKOFF);
            self.refusals += 1;
            self.counted = self.admitted.saturating_add(self.asking);
            let wait = longest.mul_f64(0.5 + random() / 2.0).min(max_pause);
            self.not_before = self.not_before.max(now + wait);
        }
        if self.not_before > now {
            for known in &mut self.limits {
                known.ends = known.ends.max(self.not_before + known.window.min(max_pause));
            }
        }
    }

    fn know(&mut self, limit: &ServerLimit, number: Number, now: Tick, max_pause: Duration) {
        let window = limit.window.or(limit.reset).unwrap_or_default();
        let reset = limit.reset.or(limit.window).unwrap_or_default();
        // A limit that counts something else than requests has no pace, but it may be used up.
        if limit.unit.is_some() {
            let is_used_up =
                limit.remaining == Some(0) && limit.unit.as_deref() != Some("concurrent-requests");
            if let (true, Some(reset)) = (is_used_up, limit.reset) {
                self.not_before = self.not_before.max(now + reset.min(max_pause));
            }
            return;
        }
        if window.is_zero() {
            return;
        }
        let at = self.limits.iter().position(|known| known.name == limit.name);
        if at.is_none() && self.limits.len() >= MAX_LIMITS
            || at.is_some_and(|at| number < self.limits[at].seen)
        {
            return;
        }
        let known = Known {
            name: limit.name.clone(),
            seen: number,
            told: now,
            // A quota of nothing is no pace, but it does not permit to call at once either.
            tokens: limit.tokens.map(|tokens| tokens.max(1)),
            window,
            remaining: limit.remaining,
            until: now + reset.min(max_pause),
            ends: now + limit.reset.unwrap_or_default().min(max_pause) + window.min(max_pause),
            sent: at.map_or(Tick::ZERO, |at| self.limits[at].sent),
            cost: at.map_or(0, |at| self.limits[at].cost),
        };
        match at {
            Some(at) => self.limits[at] = known,
            None => self.limits.push(known),
        }
    }

    /// Whether the pace is that of a key of which nothing is known.
    pub(crate) fn is_over(&self, now: Tick) -> bool {
        self.ends() <= now && self.asking == 0
    }

    /// When all that is known is over. A row of refusals is remembered for the longest backoff.
    pub(crate) fn ends(&self) -> Tick {
        let backoff = if self.refusals > 0 { self.not_before + MAX_BACKOFF } else { self.not_before };
        self.limits.iter().map(|known| known.ends).fold(backoff, Tick::max)
    }
}

/// `time` divided by `among`, or by 1 if that is less.
fn share(time: Duration, among: f64) -> Duration {
    time.div_f64(among.max(1.0))
}

fn times(spacing: Duration, cost: u64) -> Duration {
    Duration::from_nanos(nanos(spacing).saturating_mul(cost))
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}
