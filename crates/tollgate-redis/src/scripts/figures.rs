//! The figures of a decision, computed from the state in a script's answer. This computation uses
//! 128-bit integers, which the server does not have.

use std::time::Duration;
use tollgate::Outcome;

/// A time longer than any wait, but small enough for sums.
pub(super) const NEVER: u128 = 1 << 62;

/// Converts microseconds to a duration.
pub(super) fn duration(micros: u128) -> Duration {
    if micros >= NEVER {
        Duration::MAX
    } else {
        Duration::from_micros(u64::try_from(micros).unwrap_or(u64::MAX))
    }
}

/// The figures of a decision, in tokens and microseconds.
pub(super) struct Figures {
    pub(super) remaining: u128,
    pub(super) wait: Option<u128>,
    pub(super) reset: u128,
    pub(super) refill: u128,
    pub(super) at: u128,
    /// The time until a lease ends that is granted now.
    pub(super) ends: u128,
}

impl Figures {
    /// Adjusts the figures of a denial to a key that is paused for another `left` microseconds.
    pub(super) fn hold_back(&mut self, left: u128) {
        self.remaining = 0;
        self.wait = self.wait.map(|wait| wait.max(left));
        self.reset = self.reset.max(left);
        self.refill = self.reset;
    }
}

pub(super) struct Bucket {
    pub(super) unit: u128,
    pub(super) leak: u128,
    pub(super) capacity: u128,
    /// The part of the debt that is leased, and the time until these tokens refill at the latest.
    pub(super) leased: u128,
    pub(super) ends: u128,
}

impl Bucket {
    /// Computes the figures. `behind` is how far the request's time is behind the key's time.
    pub(super) fn figures(
        &self,
        outcome: Outcome,
        cost: u128,
        debt: u128,
        queue: bool,
        behind: u128,
        asked: u128,
    ) -> Figures {
        // Leased tokens refill only after their lease has ended.
        let until = |units: u128| match units.saturating_sub(debt.saturating_sub(self.leased)) {
            _ if units == 0 => 0,
            0 => units.div_ceil(self.leak) + behind,
            leased => units.div_ceil(self.leak).max(self.ends + leased.div_ceil(self.leak)) + behind,
        };
        let charges = outcome == Outcome::Allowed && cost > 0;
        let free = self.capacity.saturating_sub(debt);
        let remaining = free / self.unit;
        let next = ((remaining + 1) * self.unit).min(self.capacity);
        Figures {
            remaining,
            wait: match outcome {
                Outcome::Denied => Some(until((debt + cost * self.unit).saturating_sub(self.capacity))),
                // A queue grants no leases, so those of another algorithm do not delay its turns.
                Outcome::Allowed if queue => Some(match debt.saturating_sub(cost * self.unit) {
                    0 => 0,
                    units => units.div_ceil(self.leak) + behind,
                }),
                Outcome::Allowed => Some(0),
                _ => None,
            },
            // A refund must know until when the bucket holds the charge, and leased tokens are no
            // part of the charge.
            reset: until(if charges { debt.saturating_sub(self.leased) } else { debt }),
            refill: until((debt + next).saturating_sub(self.capacity)),
            at: asked,
            ends: self.ends,
        }
    }
}

pub(super) struct Windows {
    pub(super) period: u128,
    pub(super) limit: u128,
    pub(super) sliding: bool,
}

#[derive(Clone, Copy)]
pub(super) struct Pair {
    pub(super) number: u128,
    pub(super) previous: u128,
    pub(super) present: u128,
}

impl Windows {
    pub(super) fn figures(&self, outcome: Outcome, cost: u128, pair: Pair, asked: u128) -> Figures {
        let elapsed = asked.saturating_sub(pair.number * self.period).min(self.period);
        let weighted = match self.sliding {
            true => (pair.previous * (self.period - elapsed)).div_ceil(self.period),
            false => 0,
        };
        let idle = match (pair.previous, pair.present) {
            (_, 0) if !self.sliding => asked,
            (0, 0) => asked,
            (_, 0) => (pair.number + 1) * self.period,
            _ if !self.sliding => (pair.number + 1) * self.period,
            _ => (pair.number + 2) * self.period,
        };
        let reset = idle.saturating_sub(asked);
        Figures {
            remaining: self.limit.saturating_sub(pair.present + weighted),
            wait: match outcome {
                Outcome::Denied => Some(self.retry_at(pair, cost).saturating_sub(asked)),
                Outcome::Allowed => Some(0),
                _ => None,
            },
            reset,
            refill: reset,
            at: asked,
            ends: ((pair.number + 1) * self.period).saturating_sub(asked),
        }
    }

    /// Returns the first moment in the pair's window at which `cost` fits, in microseconds after
    /// the window's start. Returns `None` if the cost does not fit before the window ends.
    fn fits_after(&self, pair: Pair, cost: u128) -> Option<u128> {
        let free = self.limit.checked_sub(pair.present)?.checked_sub(cost)?;
        if pair.previous <= free || !self.sliding {
            return Some(0);
        }
        let elapsed = self.period - free * self.period / pair.previous;
        (elapsed < self.period).then_some(elapsed)
    }

    fn retry_at(&self, pair: Pair, cost: u128) -> u128 {
        let next = Pair {
            number: pair.number + 1,
            previous: if self.sliding { pair.present } else { 0 },
            present: 0,
        };
        let fits = |pair: Pair| Some(pair.number * self.period + self.fits_after(pair, cost)?);
        fits(pair).or_else(|| fits(next)).unwrap_or((pair.number + 2) * self.period)
    }
}
