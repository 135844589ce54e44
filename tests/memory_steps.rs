//! Memory comes and goes in small steps. In a program of its own, because what is looked at is the process's.
#![cfg(target_os = "linux")]

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::time::Duration;
use tollgate::{Clock, Limiter, Quota, Tick};

/// Pages of this process that are in memory, read so often that the file stays open.
fn pages(statm: &File) -> i64 {
    let mut text = [0; 128];
    let length = statm.read_at(&mut text, 0).unwrap();
    let text = std::str::from_utf8(&text[..length]).unwrap();
    text.split_whitespace().nth(1).unwrap().parse().unwrap()
}

/// A table of so many keys takes 15 megabytes, which come and go while it grows, forgets and becomes small again. Nobody
/// takes or gives back so much at once: it would be a stall of milliseconds.
#[test]
fn no_call_takes_or_gives_back_a_large_table_at_once() {
    const KEYS: u64 = 300_000;
    let builder = Limiter::builder(Quota::per_second(1)).max_keys(1_200_000).clock(Clock::manual());
    let limiter: Limiter<u64> = builder.build().unwrap();
    let statm = File::open("/proc/self/statm").unwrap();
    let (mut before, mut most, mut least) = (pages(&statm), 0, 0);
    let mut look = || {
        let after = pages(&statm);
        (most, least) = (most.max(after - before), least.min(after - before));
        before = after;
    };
    let mut check = |key: u64, second: u64| {
        assert!(limiter.check_at(&key, 1, Tick::ZERO + Duration::from_secs(second)).allowed());
        look();
    };
    (0..KEYS).for_each(|key| check(key, 0));
    let full = pages(&statm);
    assert!(limiter.stats().evicted == 0 && limiter.memory() > 15_000_000, "{:?}", limiter.stats());
    // A key that is new with each step.
    let steps = (KEYS..).take_while(|_| limiter.sweep_at(64, Tick::ZERO + Duration::from_secs(10)));
    steps.for_each(|key| check(key, 10));
    assert!(limiter.stats().evicted >= KEYS, "{:?}", limiter.stats());
    // Far too large now, and not for the first minute only.
    (0..KEYS).for_each(|key| check(key, 100 + key));
    assert!(limiter.memory() < 1 << 20, "{:?}", limiter.stats());
    let left = full - pages(&statm);
    println!("{most} pages at once at the most, {} given back at once, {left} of {full} in all", -least);
    assert!(left > 2_500, "{left} of {full} pages: were they the table's?");
    // Tables of less than 512 KiB are the allocator's. (The system counts for each processor apart, and adds that up now and
    // then.)
    const FEW: i64 = 256 + 128;
    assert!(most < FEW && least > -FEW, "{most} pages taken at once, {} given back", -least);
}
