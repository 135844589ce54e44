//! Changes of quotas while a thread is stopped in a check. In a program of its own, because the epoch is the
//! process's.

use tollgate::{Clock, ConfigError, Limiter, Quota, Source};

/// Each change retires a table, and a stopped thread keeps them all: then changes are refused before memory grows
/// without a bound, nothing has changed, and it passes.
#[test]
fn a_thread_that_stalls_in_a_check_lets_changes_be_refused_and_nothing_is_lost() {
    let builder = Limiter::builder(Quota::per_hour(1)).max_keys(10_000).clock(Clock::manual());
    let limiter: Limiter<u64> = builder.build().unwrap();
    for key in 0..9_000 {
        assert!(limiter.check(&key).allowed());
    }
    let stalled = limiter.pin();
    let mut changes = 0;
    let refused = loop {
        match limiter.set_quota(Quota::per_hour(changes + 2)) {
            Ok(()) => changes += 1,
            Err(refused) => break refused,
        }
        assert!(changes < 100, "else this test shows nothing");
        assert!(limiter.memory() < 1_100_000, "{} bytes", limiter.memory());
    };
    assert_eq!(refused, ConfigError::NotNow { bytes: limiter.memory() });
    assert!(refused.to_string().contains("try again later"), "{refused}");
    assert!(changes > 0);
    for key in 0..9_000 {
        assert_eq!((limiter.peek(&key).limit(), limiter.peek(&key).remaining()), (changes + 1, changes));
    }
    // The table is not closed: new keys find a place.
    for key in 20_000..20_100 {
        assert_eq!(limiter.check(&key).source(), Source::Key);
    }
    drop(stalled);
    limiter.set_quota(Quota::per_hour(1_000)).unwrap();
    assert_eq!(limiter.peek(&7).remaining(), 999);
}
