//! A request to a log, and the function that answers it.

use super::view::LogView;
use super::window::SlidingLog;
use crate::decision::{Decision, Figures, NEVER, Outcome};
use crate::time::Tick;

/// A request to a log.
pub(super) struct LogRequest {
    pub(super) now: Tick,
    pub(super) cost: u64,
    pub(super) is_peek: bool,
}

impl LogRequest {
    pub(super) fn answer(&self, rule: &SlidingLog, view: Option<&LogView<'_>>) -> Decision {
        let held = view.map_or(0, |view| view.held);
        let free = rule.limit.saturating_sub(held);
        let reset = || view.map_or(0, |view| view.reset(rule, self.now));
        let (outcome, wait) = if self.cost > rule.limit {
            (Outcome::TooCostly, NEVER)
        } else if self.cost <= free {
            (Outcome::Allowed, 0)
        } else {
            // The key may hold more tokens than the limit if the limit was lowered.
            let excess = held + self.cost - rule.limit;
            let last = view.map_or(0, |view| view.admission_of(excess));
            (Outcome::Denied, rule.until_out(last, self.now))
        };
        let cost = if outcome == Outcome::Allowed && self.is_peek { 0 } else { self.cost };
        let charged = if outcome == Outcome::Allowed { cost } else { 0 };
        let figures = match charged {
            0 => Figures::Known { remaining: free, wait, reset: reset() },
            _ => Figures::Held {
                remaining: free - charged,
                until: view.map_or(self.now.as_nanos(), |view| view.time) + rule.period,
                period: rule.period,
            },
        };
        Decision::of_key(outcome, cost, rule.limit, self.now, figures)
    }
}
