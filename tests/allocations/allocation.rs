//! The only memory that a call to a limiter allocates is the next part of the limiter's table.

use crate::{ALLOCATIONS, alone};
use std::time::Duration;
use tollgate::{Algorithm, Charge, Clock, Limiter, ManualClock, Quota, SingleLimiter, WhenFull, check_all};

const MILLISECOND: Duration = Duration::from_millis(1);

/// Returns how many allocations this thread makes while `body` runs.
fn allocations(body: impl FnOnce()) -> u64 {
    let before = ALLOCATIONS.get();
    body();
    ALLOCATIONS.get() - before
}

#[test]
fn the_counter_counts() {
    let _alone = alone();
    assert_eq!(allocations(|| drop(std::hint::black_box(Box::new(1)))), 1);
}

#[test]
fn clocks_are_made_and_read_without_allocating() {
    let _alone = alone();
    let count = allocations(|| {
        for clock in [Clock::default(), Clock::counter(), Clock::system(), Clock::coarse(MILLISECOND)] {
            let start = clock.now();
            // This time is long enough for several anchors of the guarded counter.
            while clock.now().since(start) < 5 * MILLISECOND {}
        }
    });
    assert_eq!(count, 0);
}

#[test]
fn checks_of_known_keys_refunds_and_floods_allocate_nothing() {
    let _alone = alone();
    for algorithm in Algorithm::PACKED {
        let builder = Limiter::builder(Quota::per_hour(3)).algorithm(algorithm);
        // The time is constant, so the grace below does not end, even on a busy machine.
        let builder = builder.max_keys(100).when_full(WhenFull::Share).clock(ManualClock::new());
        let limiter: Limiter<String> = builder.build().unwrap();
        let single = SingleLimiter::builder(Quota::per_hour(3)).algorithm(algorithm).build().unwrap();
        let names: Vec<String> = (0..300).map(|n| format!("client {n}")).collect();
        let mut decisions = Vec::with_capacity(names.len());
        // New keys make the table grow to its cap. After a turnover, the table stays full for the
        // grace of a second, and the remaining keys find no place.
        let together = |name: &str| {
            let key = limiter.for_key(name);
            let _ = check_all(&mut [Charge::new(&key, 1), Charge::new(&single, 1)]);
        };
        for name in &names {
            let _ = limiter.check(name.as_str());
            single.reset();
            // The first of these calls that takes the slow path creates the thread's third guard.
            together(name);
        }
        let count = allocations(|| {
            for name in &names {
                let charge = limiter.check(name.as_str());
                let _ = limiter.check_n(name.as_str(), 3);
                limiter.refund(name.as_str(), &charge);
                let _ = limiter.peek(name.as_str());
                together(name);
                limiter.reset(name.as_str());
                single.reset();
                together(name);
                let _ = single.check();
            }
            limiter.check_many(&names, &mut decisions);
        });
        assert_eq!(count, 0, "{algorithm}");
        assert_eq!(decisions.len(), 300);
    }
}

#[test]
fn checks_of_known_exact_keys_refunds_and_denials_allocate_nothing() {
    let _alone = alone();
    for algorithm in Algorithm::PACKED {
        let builder = Limiter::<String>::builder(Quota::per_hour(3)).algorithm(algorithm).max_keys(1_000);
        let limiter = builder.exact_keys().count_denials().build().unwrap();
        let names: Vec<String> = (0..300).map(|n| format!("client {n}")).collect();
        let mut decisions = Vec::with_capacity(names.len());
        for name in &names {
            let _ = limiter.check(name.as_str());
        }
        let count = allocations(|| {
            for name in &names {
                let charge = limiter.check(name.as_str());
                let _ = limiter.check_n(name.as_str(), 3);
                limiter.refund(name.as_str(), &charge);
                let _ = limiter.peek(name.as_str());
                limiter.reset(name.as_str());
            }
            limiter.check_many(names.iter().map(String::as_str), &mut decisions);
        });
        assert_eq!(count, 0, "{algorithm}");
        assert!(decisions.iter().all(|decision| decision.is_allowed()));
    }
}
