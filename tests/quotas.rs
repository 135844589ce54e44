//! Quotas that are changed while the limiter is in use.

#[path = "stores/quotas.rs"]
mod cases;
#[path = "stores/fingerprints.rs"]
mod store;

use std::time::Duration;
use tollgate::rule::{AnyRule, Rule, Word};
use tollgate::{Algorithm, Quota, Tick};

#[test]
fn a_charge_of_another_quota_gives_nothing_back_to_a_fresh_word() {
    for algorithm in Algorithm::PACKED {
        let rule = |period| AnyRule::new(algorithm, Quota::new(1, period), Duration::ZERO).unwrap();
        // It ends in the first window of the other.
        let (_, charge) = rule(Duration::from_nanos(10)).decide(Word::FRESH, Tick::ZERO, 1);
        let refunded = rule(Duration::from_secs(1)).refund(Word::FRESH, Tick::ZERO, &charge, 1);
        assert_eq!(refunded, Word::FRESH, "{algorithm}");
    }
}
