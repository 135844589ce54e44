//! [`Rule`]: an algorithm with its quota, expressed in the numbers of its script. All numbers are
//! whole microseconds or integers below 2^53.
//!
//! A script returns its state, and [`figures`](super::figures) computes a decision from the state.
//! Computing the decision here saves work on the server.

use super::figures::{Bucket, Figures, NEVER, Pair, Windows, duration};
use super::script::{Call, Script};
use crate::error::Refused;
use smallvec::SmallVec;
use std::time::Duration;
use tollgate::{Algorithm, Decision, DecisionParts, DecisionSource, Outcome, Quota, SingleLimiter, Tick};

/// Integers below this number, and sums of two of them, are exact as doubles.
const EXACT: u64 = 1 << 52;
/// The upper bound of the divisors in the scripts' long division.
const DIVISOR: u64 = 1 << 49;
/// The maximum number of admissions in a log. A script visits all admissions that have left the
/// window, and the server answers no other client during that time.
const LOG: u64 = 100_000;

/// The bounds on how long leased tokens may be spent, in microseconds.
const SHORTEST_HOLD: u64 = 50_000;
const LONGEST_HOLD: u64 = 10_000_000;
/// The shortest time for which a bucket's denial is repeated, in microseconds: one tick of a cell.
const SHORTEST_REST: u64 = 1_000;
/// The lease of a bucket lasts for one to two steps.
const LONGEST_STEP: u64 = LONGEST_HOLD / 2;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// A token is `unit` units, and each microsecond refills `leak` units. Up to `most` tokens may
    /// be missing: the burst plus the maximum debt.
    Bucket {
        unit: u64,
        leak: u64,
        burst: u64,
        most: u64,
        queue: bool,
    },
    /// `period` is in microseconds. Up to `most` tokens may be taken: the limit plus the maximum
    /// debt.
    Window {
        period: u64,
        limit: u64,
        most: u64,
        sliding: bool,
    },
    Log {
        period: u64,
        limit: u64,
    },
}

/// A lease that a machine has closed: it spends none of these tokens any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Settlement {
    /// [`Answer::charge`] of the lease.
    pub(crate) charge: u64,
    /// The tokens of the lease.
    pub(crate) granted: u64,
    /// The tokens that were not spent, and return to the store.
    pub(crate) unspent: u64,
}

/// The leases that a request settles: at most the two leases of a machine.
pub(crate) type Settled = [Option<Settlement>; 2];

/// The operation that a script performs.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Op {
    /// Charges `cost` tokens, and up to `lease` tokens that are spent later. Settles closed leases
    /// first.
    Check { cost: u64, lease: u64, settled: Settled },
    /// Returns the decision of a check without charging.
    Peek { cost: u64 },
    /// Charges tokens that are already spent, up to the remaining tokens plus the maximum debt.
    /// Settles closed leases first.
    Force { tokens: u64, settled: Settled },
    /// Gives back `tokens` of the tokens of a charge, which [`Rule::charge`] identifies.
    Refund { charge: u64, tokens: u64 },
    /// Pauses the key for this time, in microseconds.
    Pause { time: u64 },
}

impl Op {
    /// Returns the operation of a check without a lease.
    pub(crate) fn check(cost: u64) -> Self {
        Self::Check { cost, lease: 0, settled: [None; 2] }
    }
}

/// A script's answer: the decision, the number of tokens leased with the decision, how long these
/// tokens may be spent, and the number that identifies their charge.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Answer {
    pub(crate) decision: Decision,
    pub(crate) lease: u64,
    pub(crate) hold: Duration,
    pub(crate) charge: u64,
}

#[derive(Debug)]
pub(crate) struct Rule {
    kind: Kind,
    script: Script,
    /// How long leased tokens may be spent, in microseconds: usually for one to two times this time
    /// in a bucket, and exactly this time in a log. A window's lease ends with the window, but is
    /// as large as if it ended after this time.
    hold: u64,
    /// The minimum time for which a machine with leases repeats a denial, in microseconds.
    rest: u64,
}

impl Rule {
    /// `max_debt` is the number of tokens by which a forced charge may exceed the capacity.
    pub(crate) fn new(algorithm: Algorithm, quota: Quota, max_debt: u64) -> Result<Self, Refused> {
        let kind = Kind::new(algorithm, quota)?.with_debt(algorithm, max_debt)?;
        let body = match kind {
            Kind::Bucket { .. } => include_str!("bucket.lua"),
            Kind::Window { .. } => include_str!("window.lua"),
            Kind::Log { .. } => include_str!("log.lua"),
        };
        Ok(Self { kind, script: Script::new(body), hold: 0, rest: 0 })
    }

    /// Sets how long leases of `lease` tokens last. Returns an error if such leases are not
    /// possible.
    pub(crate) fn lease(&mut self, lease: u64) -> Result<(), Refused> {
        let capacity = self.capacity();
        let refused = |most| Err(Refused::Lease { lease, most });
        let capped = |time: u128| u64::try_from(time).unwrap_or(u64::MAX).min(LONGEST_HOLD);
        let refills =
            |tokens: u64, unit, leak| capped(u128::from(tokens) * u128::from(unit) / u128::from(leak));
        let share = |period: u64, limit| {
            capped(u128::from(period) * u128::from(lease) / u128::from(limit)).max(SHORTEST_HOLD)
        };
        self.hold = match self.kind {
            // A leaky queue assigns a turn to each request, and only the store knows that turn.
            Kind::Bucket { queue: true, .. } => {
                return Err(Refused::LeaseAlgorithm { algorithm: Algorithm::LeakyQueue });
            }
            // The other half is left for machines without a lease.
            _ if lease == 0 || lease > capacity / 2 => return refused(capacity / 2),
            Kind::Window { period, .. } => period.clamp(SHORTEST_HOLD, LONGEST_HOLD),
            Kind::Log { period, limit } => {
                let hold = share(period, limit);
                if hold > period / 2 {
                    return refused(0);
                }
                hold
            }
            // In this time, half of the capacity refills.
            Kind::Bucket { unit, leak, .. } => {
                refills(capacity / 2, unit, leak).clamp(SHORTEST_HOLD, LONGEST_STEP)
            }
        };
        // After a denial, tokens may refill one by one, and this machine must not ask the store for
        // each of them. During the pause, the tokens of a lease refill. They are at most half of
        // the capacity, so the bucket is not full, and no token is lost. A longer pause would lose
        // tokens, so the minimum of a bucket's pause is the smallest that a cell can represent.
        // Only a bucket that refills in less than two milliseconds loses tokens.
        self.rest = match self.kind {
            Kind::Window { sliding: false, .. } => 0,
            Kind::Window { period, limit, .. } => share(period, limit).min(period / 20),
            // The tokens of a log return in the same order a period later, and are lost if nobody
            // takes them.
            Kind::Log { .. } => self.hold / 4,
            Kind::Bucket { unit, leak, .. } => refills(lease, unit, leak).max(SHORTEST_REST),
        };
        Ok(())
    }

    /// Returns the minimum time for which a denial is repeated.
    pub(crate) fn rest(&self) -> Duration {
        Duration::from_micros(self.rest)
    }

    /// Returns the time for which a machine can usually keep a lease.
    pub(crate) fn hold(&self) -> Duration {
        Duration::from_micros(self.hold)
    }

    /// Returns true if the tokens refill one by one, so that `refill_after` is the time until the
    /// next token.
    pub(crate) fn refills_steadily(&self) -> bool {
        matches!(self.kind, Kind::Bucket { .. })
    }

    /// Returns the maximum cost of one request.
    pub(crate) fn capacity(&self) -> u64 {
        match self.kind {
            Kind::Bucket { burst, .. } => burst,
            Kind::Window { limit, .. } | Kind::Log { limit, .. } => limit,
        }
    }

    /// Returns the period of windows in microseconds, and whether the windows slide.
    pub(crate) fn windows(&self) -> Option<(u64, bool)> {
        match self.kind {
            Kind::Window { period, sliding, .. } => Some((period, sliding)),
            _ => None,
        }
    }

    /// Returns the letter that marks this kind of state in key names.
    pub(crate) fn letter(&self) -> char {
        match self.kind {
            Kind::Bucket { .. } => 'b',
            Kind::Window { .. } => 'w',
            Kind::Log { .. } => 'l',
        }
    }

    /// Returns the script call. If there is no `now`, the script uses the server's time.
    pub(crate) fn call<'s>(&'s self, key: &'s str, op: Op, now: Option<Tick>) -> Call<'s> {
        let (name, tokens, second, settled) = match op {
            Op::Check { cost, lease, settled } => ("check", cost, lease, settled),
            Op::Peek { cost } => ("peek", cost, 0, [None; 2]),
            Op::Force { tokens, settled } => ("force", tokens, 0, settled),
            // A bucket limits how much of an older charge it gives back.
            Op::Refund { charge, tokens } if matches!(self.kind, Kind::Bucket { .. }) => {
                ("refund", tokens, charge, [None; 2])
            }
            Op::Refund { charge, tokens } => {
                let settlement = Settlement { charge, granted: tokens, unspent: tokens };
                ("refund", tokens, 0, [Some(settlement), None])
            }
            Op::Pause { time } => ("pause", time, 0, [None; 2]),
        };
        let call = Call::new(&self.script, key, now).text(name);
        let call = match self.kind {
            Kind::Bucket { unit, leak, burst, most, .. } => {
                call.numbers([unit, leak, burst, most, tokens, second, self.hold])
            }
            Kind::Window { period, limit, most, sliding } => {
                call.numbers([period, limit, most, sliding.into(), tokens, second])
            }
            Kind::Log { period, limit } => call.numbers([period, limit, tokens, second, self.hold]),
        };
        // Only a bucket must know that leased tokens were spent.
        let is_needed = |it: &Settlement| it.unspent > 0 || matches!(self.kind, Kind::Bucket { .. });
        let settled = settled.into_iter().flatten().filter(is_needed);
        settled.fold(call, |call, it| call.numbers([it.charge, it.granted, it.unspent]))
    }

    /// Returns the number that identifies a charge in the script, except for the charge of a lease.
    /// For a bucket, the number is the time until which the bucket holds the charge, if no leased
    /// token refills. For a window, it identifies the window that counted the charge. For a log, it
    /// is the time of the charge.
    pub(crate) fn charge(&self, decision: &Decision) -> u64 {
        let micros = |tick: Tick| tick.as_nanos() / 1000;
        let until = micros(decision.at() + decision.reset_after());
        match self.kind {
            Kind::Bucket { .. } => until,
            Kind::Window { period, sliding, .. } => (until / period).saturating_sub(1 + u64::from(sliding)),
            Kind::Log { .. } => micros(decision.at()),
        }
    }

    /// Interprets the numbers that a script returned as the answer to a request. Returns `None` if
    /// the numbers are malformed.
    pub(crate) fn answer(&self, reply: &[i64], op: Op, source: DecisionSource) -> Option<Answer> {
        let numbers: SmallVec<[u128; 8]> =
            reply.iter().map(|&number| u128::try_from(number).unwrap_or(NEVER)).collect();
        let (&granted, &extra, rest, &left) = match &*numbers {
            [granted, extra, rest @ .., left] => (granted, extra, rest, left),
            _ => return None,
        };
        let (cost, lease, takes) = match op {
            Op::Check { cost, .. } => (cost, extra, true),
            Op::Peek { cost } => (cost, 0, false),
            Op::Force { .. } => (u64::try_from(extra).ok()?, 0, true),
            Op::Refund { .. } | Op::Pause { .. } => (0, 0, false),
        };
        let capacity = self.capacity();
        let outcome = match granted {
            0 if cost > capacity => Outcome::TooCostly,
            0 => Outcome::Denied,
            _ => Outcome::Allowed,
        };
        // A peek reports the state before a charge.
        let cost = if outcome == Outcome::Allowed && !takes { 0 } else { cost };
        let mut figures = match (self.kind, rest) {
            (Kind::Bucket { unit, leak, queue, .. }, &[debt, now, asked, until, leased]) => {
                let bucket = Bucket {
                    unit: unit.into(),
                    leak: leak.into(),
                    capacity: u128::from(unit) * u128::from(capacity),
                    leased,
                    ends: until.saturating_sub(now),
                };
                let behind = now.saturating_sub(asked);
                bucket.figures(outcome, cost.into(), debt, queue, behind, asked)
            }
            (Kind::Window { period, limit, sliding, .. }, &[number, previous, present, asked]) => {
                let windows = Windows { period: period.into(), limit: limit.into(), sliding };
                windows.figures(outcome, cost.into(), Pair { number, previous, present }, asked)
            }
            (Kind::Log { .. }, &[held, now, wait, reset]) => Figures {
                remaining: u128::from(capacity).saturating_sub(held),
                wait: (outcome != Outcome::TooCostly).then_some(wait),
                reset,
                refill: reset,
                at: now,
                ends: self.hold.into(),
            },
            _ => return None,
        };
        let is_paused = left > 0 && outcome != Outcome::Allowed;
        if is_paused {
            figures.hold_back(left);
        }
        let decision = Decision::from(DecisionParts {
            outcome,
            cost,
            capacity,
            // The leased tokens are still available.
            remaining: u64::try_from(figures.remaining + lease).unwrap_or(u64::MAX).min(capacity),
            wait: figures.wait.map(duration),
            reset_after: duration(figures.reset),
            refill_after: duration(figures.refill),
            at: Tick::from(duration(figures.at)),
            source: if is_paused { DecisionSource::Pause } else { source },
        });
        let charge = match (self.kind, rest) {
            (Kind::Bucket { .. }, &[.., until, _]) => u64::try_from(until).unwrap_or(0),
            // A log records the tokens of a lease at the lease's end.
            (Kind::Log { .. }, _) => self.charge(&decision).saturating_add(self.hold),
            _ => self.charge(&decision),
        };
        let hold = duration(figures.ends);
        Some(Answer { decision, lease: u64::try_from(lease).unwrap_or(0), hold, charge })
    }
}

impl Kind {
    fn new(algorithm: Algorithm, quota: Quota) -> Result<Self, Refused> {
        let (limit, nanos) = (quota.tokens(), quota.period().as_nanos());
        if limit == 0
            || nanos == 0
            || quota.period() > Quota::MAX_PERIOD
            || quota.capacity() == 0
            || !algorithm.has_burst() && quota.explicit_burst().is_some()
        {
            // Limiters in memory also refuse this quota. Their error states the reason.
            SingleLimiter::builder(quota).algorithm(algorithm).build()?;
        }
        if algorithm.has_burst() {
            return Self::bucket(quota, algorithm == Algorithm::LeakyQueue);
        }
        if !nanos.is_multiple_of(1000) {
            return Err(Refused::Period { period: quota.period() });
        }
        // Ten years are less than 2^49 microseconds.
        let period = u64::try_from(nanos / 1000).unwrap_or(u64::MAX);
        match algorithm {
            Algorithm::SlidingLog if limit > LOG => Err(Refused::LogTooLarge { tokens: limit, most: LOG }),
            Algorithm::SlidingLog => Ok(Self::Log { period, limit }),
            _ if limit >= DIVISOR => {
                let period = quota.period();
                Err(Refused::TooManyTokens { algorithm, tokens: limit, period, most: DIVISOR - 1 })
            }
            _ => {
                let sliding = algorithm == Algorithm::SlidingWindow;
                Ok(Self::Window { period, limit, most: limit, sliding })
            }
        }
    }

    /// Allows a forced charge to exceed the capacity by `debt` tokens.
    fn with_debt(mut self, algorithm: Algorithm, debt: u64) -> Result<Self, Refused> {
        let (most, allowed) = match &mut self {
            Self::Bucket { unit, most, .. } => {
                let allowed = EXACT / *unit - *most;
                (most, allowed)
            }
            Self::Window { most, .. } => {
                let allowed = DIVISOR - 1 - *most;
                (most, allowed)
            }
            Self::Log { .. } => {
                // A log in memory has no debt either. Its error states the reason.
                SingleLimiter::builder(Quota::per_second(1)).algorithm(algorithm).max_debt(debt).build()?;
                return Ok(self);
            }
        };
        if debt > allowed {
            return Err(Refused::DebtTooLarge { debt, most: allowed });
        }
        *most += debt;
        Ok(self)
    }

    fn bucket(quota: Quota, queue: bool) -> Result<Self, Refused> {
        // The time per token, which is period / limit in microseconds, as a fraction.
        let (nanos, rate) = (quota.period().as_nanos(), u128::from(quota.tokens()) * 1000);
        let common = gcd(nanos, rate);
        let (unit, leak) = (nanos / common, rate / common);
        let burst = quota.capacity();
        let most = if unit < DIVISOR.into() && leak < EXACT.into() { u128::from(EXACT) / unit } else { 0 };
        if u128::from(burst) > most {
            return Err(Refused::TooFine { quota, most: u64::try_from(most).unwrap_or(u64::MAX) });
        }
        let fits = |number: u128| u64::try_from(number).unwrap_or(u64::MAX);
        Ok(Self::Bucket { unit: fits(unit), leak: fits(leak), burst, most: burst, queue })
    }
}

fn gcd(mut a: u128, mut b: u128) -> u128 {
    while b > 0 {
        (a, b) = (b, a % b);
    }
    a
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A shorter denial would not be remembered, and each request would ask the store.
    #[test]
    fn the_denial_of_a_fast_bucket_lasts_for_a_tick() {
        let rest = |rate| {
            let quota = Quota::per_second(rate).burst(400);
            let mut rule = Rule::new(Algorithm::TokenBucket, quota, 0).unwrap();
            rule.lease(100).unwrap();
            rule.rest()
        };
        assert_eq!(rest(10_000), Duration::from_millis(10));
        assert_eq!(rest(200_000), Duration::from_millis(1));
    }
}
