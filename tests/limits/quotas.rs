//! Quotas that are changed while the limiter is in use.

use std::time::Duration;
use tollgate::rule::{AnyRule, Rule, Word};
use tollgate::{Algorithm, Quota, Tick};

#[test]
fn a_charge_of_another_quota_gives_nothing_back_to_a_fresh_word() {
    for algorithm in Algorithm::PACKED {
        let rule = |period| AnyRule::new(algorithm, Quota::new(1, period), Duration::ZERO).unwrap();
        // The charge expires in the first window of the other quota.
        let (_, charge) = rule(Duration::from_nanos(10)).decide(Word::FRESH, Tick::ZERO, 1);
        let refunded = rule(Duration::from_secs(1)).refund(Word::FRESH, Tick::ZERO, &charge, 1);
        assert_eq!(refunded, Word::FRESH, "{algorithm}");
    }
}

/// The decision was made by another limiter, whose windows begin at other times. The decision's
/// window may therefore precede the first window.
#[test]
fn a_charge_of_windows_that_begin_at_other_times_gives_nothing_back_to_a_fresh_word() {
    let rule = |algorithm, secs, phase| {
        let quota = Quota::new(3, Duration::from_secs(secs));
        AnyRule::new(algorithm, quota, Duration::from_millis(phase)).unwrap()
    };
    for phase in [0, 300, 700, 1_000, 1_300, 1_700] {
        for secs in [1, 2] {
            let (_, charge) = rule(Algorithm::FixedWindow, secs, phase).decide(Word::FRESH, Tick::ZERO, 1);
            for algorithm in [Algorithm::FixedWindow, Algorithm::SlidingWindow] {
                let rule = rule(algorithm, 1, 0);
                let refunded = rule.refund(Word::FRESH, Tick::ZERO, &charge, 1);
                assert_eq!(refunded, Word::FRESH, "{algorithm}, {secs} s, phase {phase}");
                // A refund to another word does not give back tokens that were not charged there.
                let (word, _) = rule.decide(Word::FRESH, Tick::ZERO, 1);
                assert!(rule.peek(rule.refund(word, Tick::ZERO, &charge, 3), Tick::ZERO, 1).remaining() <= 3);
            }
        }
    }
}
