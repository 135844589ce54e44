//! The resident memory of the process, against the formula. In a program of its own, because the
//! system counts the memory of a process.
#![cfg(target_os = "linux")]

use std::env;
use std::process::Command;
use std::time::Duration;
use tollgate::{Clock, Limiter, Quota, Source, Tick, WhenFull};

/// The resident bytes of this process.
fn resident() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).expect("Linux says so");
    let kilobytes: usize = line.split_whitespace().nth(1).unwrap().parse().unwrap();
    kilobytes * 1024
}

/// The bytes of an era for this many keys, if they are more than 11,000, as the page of the table
/// and the docs of `Limiter` say.
fn era(max_keys: usize) -> usize {
    max_keys * 3 / 2 * 16 + max_keys * 3 / 32 + 1_024
}

/// glibc's allocator keeps a block of less than 32 megabytes that was freed, and takes later blocks
/// of up to that size from its heap: two eras here. It can be told not to only before a program
/// starts, so the test runs itself again.
fn gives_back() -> bool {
    const THRESHOLD: &str = "MALLOC_MMAP_THRESHOLD_";
    if env::var_os(THRESHOLD).is_some() {
        return true;
    }
    let mut again = Command::new(env::current_exe().unwrap());
    let status = again.args(env::args_os().skip(1)).env(THRESHOLD, "131072").status().unwrap();
    assert!(status.success(), "{status}");
    false
}

#[test]
fn the_process_takes_what_the_formula_says_and_no_more() {
    const MAX_KEYS: usize = 300_000;
    if !gives_back() {
        return;
    }
    // Memory of the test itself.
    let slack = 2 << 20;
    let builder = Limiter::builder(Quota::per_second(1)).max_keys(MAX_KEYS).when_full(WhenFull::Deny);
    let limiter: Limiter<u64> = builder.clock(Clock::manual()).build().unwrap();
    let before = resident();
    let mut most = 0;
    let mut look = |key: u64| {
        if key.is_multiple_of(1_000) {
            most = most.max(resident() - before);
            assert!(limiter.bytes() <= 4 * era(MAX_KEYS) + 1_024, "{}", limiter.bytes());
        }
    };
    // Ten times as many keys as there is room for, all in use; then as many that are soon idle, so
    // that the table turns over all the time.
    for key in 0..10 * MAX_KEYS as u64 {
        let known = limiter.check_at(&key, 1, Tick::ZERO).source() == Source::Key;
        assert_eq!(known, key < MAX_KEYS as u64);
        look(key);
    }
    for key in 0..10 * MAX_KEYS as u64 {
        let now = Tick::ZERO + Duration::from_secs(10) + Duration::from_micros(50 * key);
        let _ = limiter.check_at(&(key + (1 << 40)), 1, now);
        look(key);
    }
    println!("{most} bytes at the most, {} by the formula, {:?}", 4 * era(MAX_KEYS), limiter.stats());
    assert!(limiter.stats().evicted > MAX_KEYS as u64);
    assert!(most <= 4 * era(MAX_KEYS) + slack, "{most} bytes");
    assert!(most >= era(MAX_KEYS), "{most} bytes: does this test still look at the table?");
}
