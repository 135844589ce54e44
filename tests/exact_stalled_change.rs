//! Changes of the quotas of exact keys while a thread is stopped in a check. In a program of its own, because the
//! epoch is the process's.

use tollgate::{Algorithm, Clock, ConfigError, Limiter, Quota, Source};

/// What a change replaces is kept while a thread is stopped in a check of any limiter: changes are refused before
/// memory grows without a bound, nothing has changed, and it passes.
#[test]
fn a_thread_that_stalls_in_a_check_lets_changes_of_exact_keys_be_refused() {
    let other: Limiter<u64> = Limiter::builder(Quota::per_hour(1)).build().unwrap();
    let builder = Limiter::<u64>::builder(Quota::per_hour(10_000)).algorithm(Algorithm::SlidingLog);
    let limiter = builder.clock(Clock::manual()).exact_keys().build().unwrap();
    for _ in 0..5_000 {
        assert!(limiter.check(&7).allowed());
    }
    let stalled = other.pin();
    let mut changes = 0;
    let refused = loop {
        match limiter.set_quota(Quota::per_hour(10_001 + changes)) {
            Ok(()) => changes += 1,
            Err(refused) => break refused,
        }
        assert!(changes < 200, "else this test shows nothing");
    };
    assert!(matches!(refused, ConfigError::NotNow { .. }), "{refused}");
    assert!(changes > 10, "{changes}");
    assert_eq!(limiter.peek(&7).limit(), 10_000 + changes);
    assert_eq!(limiter.peek(&7).remaining(), 5_000 + changes);
    assert_eq!(limiter.check(&8).source(), Source::Key);
    drop(stalled);
    limiter.set_quota(Quota::per_hour(20_000)).unwrap();
    assert_eq!(limiter.peek(&7).remaining(), 15_000);
}
