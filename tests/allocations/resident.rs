//! The resident memory of the process, compared with the formula.

use crate::alone;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::thread;
use std::time::Duration;
use tollgate::{DecisionSource, Limiter, ManualClock, Quota, Tick, WhenFull};

/// The resident bytes of this process.
fn resident() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).expect("Linux reports it");
    let kilobytes: usize = line.split_whitespace().nth(1).unwrap().parse().unwrap();
    kilobytes * 1024
}

/// The bytes of an array for this number of keys, as documented in `table` and `Limiter`: a small
/// table has two slots for each key, and a larger table has three slots for every two keys.
fn array(max_keys: usize) -> usize {
    let slots = if max_keys > 11_000 { max_keys * 3 / 2 } else { max_keys * 2 };
    slots * 16 + max_keys * 3 / 32 + 1_024
}

#[test]
fn the_process_takes_what_the_formula_says_and_no_more() {
    const MAX_KEYS: usize = 300_000;
    let _alone = alone();
    // The slack is for the memory of the test itself.
    let slack = 2 << 20;
    let builder = Limiter::builder(Quota::per_second(1)).max_keys(MAX_KEYS).when_full(WhenFull::Deny);
    let limiter: Limiter<u64> = builder.clock(ManualClock::new()).build().unwrap();
    let before = resident();
    let mut most = 0;
    let mut look = |key: u64| {
        if key.is_multiple_of(1_000) {
            most = most.max(resident().saturating_sub(before));
            assert!(limiter.stats().bytes <= 4 * array(MAX_KEYS) + 2_048, "{}", limiter.stats().bytes);
        }
    };
    // First inserts ten times as many keys as there is room for, all in use. Then inserts the same
    // number of keys that soon become idle, so that the table turns over all the time.
    for key in 0..10 * MAX_KEYS as u64 {
        let known = limiter.at(Tick::ZERO).check(&key).source() == DecisionSource::Key;
        assert_eq!(known, key < MAX_KEYS as u64);
        look(key);
    }
    for key in 0..10 * MAX_KEYS as u64 {
        let now = Tick::ZERO + Duration::from_secs(10) + Duration::from_micros(50 * key);
        let _ = limiter.at(now).check(&(key + (1 << 40)));
        look(key);
    }
    println!("{most} bytes at the most, {} by the formula, {:?}", 4 * array(MAX_KEYS), limiter.stats());
    assert!(limiter.stats().evicted > MAX_KEYS as u64);
    assert!(most <= 4 * array(MAX_KEYS) + slack, "{most} bytes");
    assert!(most >= array(MAX_KEYS), "{most} bytes: does this test still look at the table?");
}

/// One thread allocates an array, and another thread frees it. If an allocator kept freed memory
/// for the thread that allocated it, it would hold several times the memory in use.
#[test]
fn limiters_that_threads_churn_stay_near_the_formula() {
    const LIMITERS: usize = 16;
    const ROUNDS: u64 = 20;
    const THREADS: u64 = 8;
    let _alone = alone();
    for max_keys in [4_000, 9_000, 20_000] {
        let clock = ManualClock::new();
        let limiter = |_| {
            let builder = Limiter::builder(Quota::per_second(1)).max_keys(max_keys);
            builder.grace(Duration::ZERO).clock(&clock).build().unwrap()
        };
        let limiters: Vec<Limiter<u64>> = (0..LIMITERS).map(limiter).collect();
        let (before, most) = (resident(), AtomicUsize::new(0));
        let work = |thread: u64| {
            for round in 0..ROUNDS {
                for (nth, limiter) in (0..).zip(&limiters) {
                    let many = max_keys as u64 * (1 + (round + nth) % 3) / THREADS;
                    let first = thread << 48 | round << 24;
                    (first..first + many).for_each(|key| _ = limiter.check(&key));
                }
                clock.advance(Duration::from_secs(1));
                most.fetch_max(resident().saturating_sub(before), Relaxed);
            }
        };
        thread::scope(|scope| {
            for thread in 0..THREADS {
                let work = &work;
                scope.spawn(move || work(thread));
            }
        });
        let (most, formula) = (most.into_inner(), LIMITERS * (4 * array(max_keys)).max(1 << 20));
        let turnovers: u64 = limiters.iter().map(|limiter| limiter.stats().turnovers).sum();
        println!("{max_keys} keys: {most} bytes, {formula} by the formula, {turnovers} turnovers");
        assert!(turnovers > 5 * LIMITERS as u64, "{turnovers} turnovers: is there any churn?");
        // The allocator keeps blocks that are smaller than an array.
        assert!(most <= formula + (4 << 20), "{most} bytes for {max_keys} keys");
    }
}
