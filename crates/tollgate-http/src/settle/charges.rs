//! What a limit has charged for one response, and what its settlement gives back of it or still
//! owes.
//!
//! This is the arithmetic of [`tollgate::Reservation`], for limits of this process and for shared
//! ones, with one difference: the charges that were added on the way are kept, too, so that a
//! figure at the end that is smaller gives them back.

use std::collections::VecDeque;
use tollgate::{Decision, Settlement};

/// The most charges that are kept beside that of the estimate, 64 KiB. If a response adds more, the
/// oldest ones stay charged: they are also the first that the bucket refills.
const MOST: usize = 1024;

/// The charges of one response to one limit.
#[derive(Debug)]
pub(crate) struct Charges {
    estimate: Decision,
    /// What was added on the way, the oldest first.
    added: VecDeque<Decision>,
    /// What may be spent: the estimate, and what was added.
    allowance: u64,
    /// What the limit has charged in all; less than the allowance where a policy admitted.
    charged: u64,
}

impl Charges {
    /// The charge of an estimate of this many tokens.
    pub(crate) fn of(estimate: u64, charge: Decision) -> Self {
        let charged = charge.charged();
        Self { estimate: charge, added: VecDeque::new(), allowance: estimate, charged }
    }

    /// Adds `tokens` to the allowance, for which the limit has made this charge.
    pub(crate) fn add(&mut self, tokens: u64, charge: Decision) {
        self.allowance = self.allowance.saturating_add(tokens);
        self.charged = self.charged.saturating_add(charge.charged());
        if charge.charged() > 0 {
            if self.added.len() == MOST {
                self.added.pop_front();
            }
            self.added.push_back(charge);
        }
    }

    /// Returns what may be spent without another charge.
    pub(crate) fn allowance(&self) -> u64 {
        self.allowance
    }

    /// Returns what the estimate was charged.
    pub(crate) fn estimate(&self) -> u64 {
        self.estimate.charged()
    }

    /// Returns what to give back of each charge if the response has cost so many tokens, the newest
    /// charge first: of what a bucket has charged, the newest refills last.
    pub(crate) fn back(&self, cost: u64) -> impl Iterator<Item = (&Decision, u64)> {
        let mut left = self.charged.saturating_sub(cost);
        let newest_first = self.added.iter().rev().chain([&self.estimate]);
        newest_first.map_while(move |charge| {
            let tokens = charge.charged().min(left);
            left -= tokens;
            (tokens > 0).then_some((charge, tokens))
        })
    }

    /// Returns what is missing if the response has cost so many tokens.
    pub(crate) fn owed(&self, cost: u64) -> u64 {
        cost.saturating_sub(self.charged)
    }

    /// Returns the result of a settlement in which the limit has charged `paid` of what was owed.
    pub(crate) fn settlement(&self, cost: u64, paid: u64) -> Settlement {
        let (owed, back) = (self.owed(cost), self.back(cost).map(|(_, tokens)| tokens).sum::<u64>());
        let paid = paid.min(owed);
        Settlement { charged: self.charged - back + paid, unpaid: owed - paid }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tollgate::{ManualClock, Quota, SingleLimiter};

    fn limiter() -> SingleLimiter {
        SingleLimiter::builder(Quota::per_hour(1_000_000)).clock(ManualClock::new()).build().unwrap()
    }

    #[test]
    fn the_newest_charges_are_given_back_first() {
        let limiter = limiter();
        let mut charges = Charges::of(20, limiter.check_n(20));
        for tokens in [5, 7] {
            charges.add(tokens, limiter.check_n(tokens));
        }
        let back = |cost| charges.back(cost).map(|(_, tokens)| tokens).collect::<Vec<_>>();
        assert_eq!(back(32), [0; 0]);
        assert_eq!(back(30), [2]);
        assert_eq!(back(22), [7, 3]);
        assert_eq!(back(3), [7, 5, 17]);
        assert_eq!((charges.allowance(), charges.estimate(), charges.owed(40)), (32, 20, 8));
        assert_eq!(charges.settlement(40, 6), Settlement { charged: 38, unpaid: 2 });
        assert_eq!(charges.settlement(3, 0), Settlement { charged: 3, unpaid: 0 });
    }

    #[test]
    fn what_is_kept_of_the_charges_is_bounded() {
        let limiter = limiter();
        let mut charges = Charges::of(20, limiter.check_n(20));
        (0..MOST + 3).for_each(|_| charges.add(1, limiter.check_n(1)));
        assert_eq!(charges.added.len(), MOST);
        // Those of the first three stay.
        assert_eq!(charges.settlement(0, 0), Settlement { charged: 3, unpaid: 0 });
        assert_eq!(charges.allowance(), 20 + MOST as u64 + 3);
    }

    #[test]
    fn what_a_policy_let_pass_is_owed() {
        let full = Decision::from(tollgate::DecisionParts {
            outcome: tollgate::Outcome::Allowed,
            cost: 20,
            capacity: 100,
            remaining: 0,
            wait: Some(std::time::Duration::ZERO),
            reset_after: std::time::Duration::ZERO,
            refill_after: std::time::Duration::ZERO,
            at: tollgate::Tick::ZERO,
            source: tollgate::DecisionSource::Policy,
        });
        let charges = Charges::of(20, full);
        assert_eq!((charges.allowance(), charges.estimate(), charges.owed(7)), (20, 0, 7));
        assert_eq!(charges.back(0).count(), 0);
    }
}
