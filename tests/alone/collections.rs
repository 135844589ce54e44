//! The cost of a collection for the check that runs it. A collection compares each guard with each
//! examined value, and frees a part of the retired memory at a time.

use crate::guards::Stopped;
use rustix::time::{ClockId, clock_gettime};
use std::sync::Barrier;
use std::thread;
use std::time::Duration;
use tollgate::{Algorithm, Chargeable, Limiter, ManualClock, Quota, SingleLimiter, Tick};

/// Returns a log of eight admissions. Every eighth admission begins a new chunk and retires
/// another.
fn log() -> SingleLimiter {
    let builder = SingleLimiter::builder(Quota::new(8, Duration::from_nanos(8_000)));
    builder.algorithm(Algorithm::SlidingLog).clock(ManualClock::new()).build().unwrap()
}

fn other() -> Limiter<u64> {
    Limiter::builder(Quota::per_second(1)).clock(ManualClock::new()).build().unwrap()
}

/// Returns the processor time that this thread has used, in nanoseconds.
fn taken() -> i64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec * 1_000_000_000 + time.tv_nsec
}

/// The shortest processor time of a turn, and the shortest time of work without collections.
#[derive(Clone, Copy)]
struct Least {
    turn: i64,
    work: i64,
}

impl Least {
    /// Measures ten turns.
    fn of(log: &SingleLimiter, from: &mut u64) -> Self {
        Self { turn: (0..10).map(|_| turn(log, from)).min().unwrap(), work: work() }
    }

    /// Measures up to three hundred turns, because other work on the machine may slow ten turns in
    /// a row. Returns the time at the machine's speed of `before`, because the machine may be
    /// slower for all of them. Stops at the first turn that takes less than 1.5 times as long as
    /// `before`.
    fn beside(log: &SingleLimiter, from: &mut u64, before: Self) -> i64 {
        let mut least = i64::MAX;
        for _ in 0..300 {
            least = least.min(turn(log, from));
            if 2 * least < 3 * before.turn {
                return least;
            }
        }
        least * before.work / work().max(before.work)
    }
}

/// Returns the shortest time of ten runs that allocate and free 50,000 blocks.
fn work() -> i64 {
    let run = |_| {
        let before = taken();
        let mut blocks: [Box<[u64]>; 64] = std::array::from_fn(|_| Box::default());
        (0..50_000).for_each(|n| blocks[n % 64] = vec![n as u64; 32].into());
        std::hint::black_box(blocks);
        taken() - before
    };
    (0..10).map(run).min().unwrap()
}

/// Returns the nanoseconds that 50,000 admissions take, including about fifty collections.
fn turn(log: &SingleLimiter, from: &mut u64) -> i64 {
    let before = taken();
    for _ in 0..50_000 {
        *from += 1_000;
        assert!(log.at(Tick::from_nanos(*from)).check().is_allowed());
    }
    taken() - before
}

#[test]
fn guards_of_others_hardly_slow_a_log() {
    let _alone = crate::alone();
    let (log, mut from) = (log(), 1_000_000);
    let alone = Least::of(&log, &mut from);
    // Another thread holds all the guards, because creating a thread's fifth guard takes longer.
    let stopped = Stopped::under_guards(other(), 32);
    let beside = Least::beside(&log, &mut from, alone);
    drop(stopped);
    let alone = alone.turn;
    println!("{alone} ns alone, {beside} ns beside 32 guards");
    assert!(2 * beside < 3 * alone, "{beside} ns beside 32 guards, {alone} ns alone");
}

#[test]
fn threads_that_have_ended_hardly_slow_a_log() {
    let _alone = crate::alone();
    const THREADS: u64 = 2_000;
    let (other, log, mut from) = (other(), log(), 1_000_000);
    let alone = Least::of(&log, &mut from);
    let all = Barrier::new(usize::try_from(THREADS).unwrap());
    thread::scope(|scope| {
        for key in 0..THREADS {
            let (other, all) = (&other, &all);
            let run = move || {
                let _ = other.check(&key);
                all.wait();
            };
            thread::Builder::new().stack_size(64 << 10).spawn_scoped(scope, run).unwrap();
        }
    });
    let after = Least::beside(&log, &mut from, alone);
    let alone = alone.turn;
    println!("{alone} ns before, {after} ns after {THREADS} threads");
    assert!(2 * after < 3 * alone, "{after} ns after {THREADS} threads, {alone} ns before");
}

/// A burst of a million admissions has left the window, and the next check retires all of it. This
/// check does not free all of it: the following checks do, a part at a time.
#[test]
fn a_check_frees_a_part_of_what_went_idle() {
    let _alone = crate::alone();
    const BURST: u64 = 1_000_000;
    // A chunk has up to 16,384 slots of 8 bytes. A collection examines 64 KiB, plus one chunk.
    const PART: usize = (64 << 10) + (128 << 10) + 4_096;
    let builder = SingleLimiter::builder(Quota::new(BURST, Duration::from_secs(1)));
    let log = builder.algorithm(Algorithm::SlidingLog).clock(ManualClock::new()).build().unwrap();
    assert!((0..BURST).all(|_| log.at(Tick::ZERO).check().is_allowed()));
    let mut held = log.bytes();
    assert!(held > 8_000_000, "{held} bytes");
    let mut checks = 0;
    while held > 1_000_000 {
        checks += 1;
        let now = Tick::ZERO + Duration::from_secs(2) + Duration::from_nanos(checks);
        assert!(log.at(now).check().is_allowed());
        let bytes = log.bytes();
        assert!(held.saturating_sub(bytes) <= PART, "check {checks} has freed {} bytes", held - bytes);
        held = bytes;
        assert!(checks < 10_000, "{held} bytes are left");
    }
}
