//! A limit's charges for one response. They determine how many tokens the settlement gives back or
//! still charges.
//!
//! The arithmetic is the same as in [`tollgate::Reservation`], and serves both process-local and
//! shared limits. There is one difference: charges added during the response are also recorded, so
//! that they can be given back if the response ends with a smaller figure.

use std::collections::VecDeque;
use tollgate::{Decision, Settlement};

/// The maximum number of recorded charges besides the charge for the estimate. These charges occupy
/// 64 KiB. If a response adds more charges, the oldest charges become final, because the bucket
/// refills them first anyway.
const MOST: usize = 1024;

/// The charges of one response to one limit.
#[derive(Debug)]
pub(crate) struct Charges {
    estimate: Decision,
    /// The charges added during the response, the oldest first.
    added: VecDeque<Decision>,
    /// The number of tokens that may be spent, which is the sum of the estimate and the added
    /// tokens.
    allowance: u64,
    /// The total number of tokens charged. It is less than the allowance if a policy admitted the
    /// request.
    charged: u64,
}

impl Charges {
    /// Creates the charges for an estimate of this many tokens.
    pub(crate) fn of(estimate: u64, charge: Decision) -> Self {
        let charged = charge.charged();
        Self { estimate: charge, added: VecDeque::new(), allowance: estimate, charged }
    }

    /// Adds `tokens` to the allowance, and records the charge that paid for them.
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

    /// Returns the tokens that may be spent without another charge.
    pub(crate) fn allowance(&self) -> u64 {
        self.allowance
    }

    /// Returns the charge for the estimate.
    pub(crate) fn estimate(&self) -> u64 {
        self.estimate.charged()
    }

    /// Returns how many tokens to give back from each charge if the response has cost `cost`
    /// tokens. The newest charge is given back first, because a bucket refills the newest charge
    /// last.
    pub(crate) fn back(&self, cost: u64) -> impl Iterator<Item = (&Decision, u64)> {
        let mut left = self.charged.saturating_sub(cost);
        let newest_first = self.added.iter().rev().chain([&self.estimate]);
        newest_first.map_while(move |charge| {
            let tokens = charge.charged().min(left);
            left -= tokens;
            (tokens > 0).then_some((charge, tokens))
        })
    }

    /// Returns the missing tokens if the response has cost `cost` tokens.
    pub(crate) fn owed(&self, cost: u64) -> u64 {
        cost.saturating_sub(self.charged)
    }

    /// Returns the result of a settlement if the limit has charged `paid` of the owed tokens.
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
        // The first three charges are kept.
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
