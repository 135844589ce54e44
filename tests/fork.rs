//! A process forks. The child has only the thread that forked. In the child, every clock advances,
//! and a limiter that denied a key before the fork admits the key after its `retry_after`. Limiters
//! without exact keys insert, evict and free memory in the child, whatever the parent's other
//! threads were doing.
//!
//! This test is built without the test harness, because the child would also be a copy of the
//! harness.
#![cfg_attr(not(target_os = "linux"), allow(unused))]

use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};
use tollgate::{Algorithm, Clock, Limiter, ManualClock, Quota, SingleLimiter};

/// How long the child watches its clock: longer than all resolutions below, and ten times the
/// finest resolution.
const WATCHED: Duration = Duration::from_millis(120);

/// Twice the coarsest timer tick of a kernel.
const LATE: Duration = Duration::from_millis(20);

/// How long the clock may take to advance on a machine that is busy with other programs.
const PATIENCE: Duration = Duration::from_secs(60);

/// How long a child may take in total.
const PATIENCE_IN_SECONDS: u32 = 2 * 60;

/// How often the process forks while its threads check.
const FORKS: usize = 100;

/// The first of the keys that only children check.
const OF_CHILDREN: u64 = 1 << 40;

/// The maximum number of bytes that a log of eight admissions may keep, whichever threads held a
/// guard when the process forked.
const MOST_BYTES: usize = 200_000;

/// Checks that `clock` advances in this process as the system's clock does, and that a limiter with
/// this clock admits its key again.
fn goes_on(clock: &Clock, limiter: &Limiter<u64>) -> Result<(), String> {
    let (start, first) = (Instant::now(), clock.now());
    // A coarse clock stops while the processor that advances it is not running, and is correct
    // again after that.
    loop {
        let passed = start.elapsed();
        let counted = clock.now().since(first);
        if passed >= WATCHED && counted + LATE >= passed {
            break;
        }
        if passed > PATIENCE {
            return Err(format!("{clock:?} counted {counted:?} while {passed:?} passed"));
        }
        std::hint::spin_loop();
    }
    let decision = limiter.check(&7);
    if !decision.is_allowed() {
        return Err(format!("{clock:?} still denies, for {:?} more", decision.retry_after()));
    }
    Ok(())
}

/// Returns the result of `body`, run in a child of this process.
#[cfg(target_os = "linux")]
#[allow(unsafe_code)]
fn in_a_child(find: impl FnOnce() -> Result<(), String>) -> Result<(), String> {
    // SAFETY: the child only reads clocks, checks a limiter, writes a message and exits.
    match unsafe { libc::fork() } {
        -1 => Err("this process could not be forked".to_owned()),
        0 => {
            // If a call never returns, a signal ends the child. SAFETY: the function takes a
            // number.
            unsafe { libc::alarm(PATIENCE_IN_SECONDS) };
            let found = find();
            if let Err(why) = &found {
                println!("in the child: {why}");
            }
            // SAFETY: the function takes a number, and ends the process without running
            // destructors.
            unsafe { libc::_exit(i32::from(found.is_err())) }
        }
        child => {
            let mut status = 0;
            // SAFETY: `status` outlives the call, and the process waits for its own child.
            let waited = unsafe { libc::waitpid(child, &raw mut status, 0) };
            let is_fine = waited == child && libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0;
            if is_fine { Ok(()) } else { Err(format!("the child ended with status {status:#x}")) }
        }
    }
}

/// The limiters that several threads check while the process forks.
struct Busy {
    clock: ManualClock,
    /// Keys are inserted and evicted: each key is idle when the next one is inserted.
    limiter: Limiter<u64>,
    /// The chunks of this log are constantly retired and freed.
    log: SingleLimiter,
}

impl Busy {
    fn new() -> Self {
        let clock = ManualClock::new();
        let builder = Limiter::builder(Quota::per_second(1)).clock(&clock);
        let limiter = builder.max_keys(64).grace(Duration::ZERO).build().unwrap();
        let builder = SingleLimiter::builder(Quota::per_second(8)).algorithm(Algorithm::SlidingLog);
        let log = builder.clock(&clock).build().unwrap();
        Self { clock, limiter, log }
    }

    fn check(&self, key: u64) {
        self.clock.advance(Duration::from_secs(1));
        let _ = (self.limiter.check(&key), self.log.check());
    }
}

/// Inserts and evicts keys, and frees memory, in a child.
fn works(busy: &Busy) -> Result<(), String> {
    let evicted = busy.limiter.stats().evicted;
    (OF_CHILDREN..OF_CHILDREN + 16_000).for_each(|key| busy.check(key));
    let (evicted, bytes) = (busy.limiter.stats().evicted - evicted, busy.log.bytes());
    if evicted < 15_000 {
        return Err(format!("a limiter evicted {evicted} of 16000 keys"));
    }
    if bytes > MOST_BYTES {
        return Err(format!("a log took {bytes} bytes"));
    }
    Ok(())
}

/// Forks while other threads are inside calls to the limiters that the child uses afterwards.
#[cfg(target_os = "linux")]
fn children_work_while_others_did() -> Result<(), String> {
    let (busy, is_done) = (Busy::new(), AtomicBool::new(false));
    thread::scope(|scope| {
        for thread in 0..2 {
            let (busy, is_done) = (&busy, &is_done);
            scope.spawn(move || {
                (thread..OF_CHILDREN).step_by(2).take_while(|_| !is_done.load(Relaxed)).for_each(|key| {
                    busy.check(key);
                });
            });
        }
        let found = (0..FORKS).try_for_each(|_| in_a_child(|| works(&busy)));
        is_done.store(true, Relaxed);
        found
    })
}

/// Prints the result of a check, and returns whether it is a failure.
fn is_fault(what: &str, found: &Result<(), String>) -> bool {
    let (said, why) = match found {
        Ok(()) => ("goes on", ""),
        Err(why) => ("FAILED", why.as_str()),
    };
    println!("after a fork, {what}: {said} {why}");
    found.is_err()
}

#[cfg(target_os = "linux")]
fn main() -> ExitCode {
    let mut failed = false;
    for (name, clock) in [
        ("the default clock", Clock::default()),
        ("a coarse clock of a millisecond", Clock::coarse(Duration::from_millis(1))),
        ("a coarse clock of ten milliseconds", Clock::coarse(Duration::from_millis(10))),
        ("the system's clock", Clock::system()),
    ] {
        let quota = Quota::new(1, Duration::from_millis(50));
        let limiter: Limiter<u64> = Limiter::builder(quota).clock(clock.clone()).build().unwrap();
        assert!(limiter.check(&7).is_allowed());
        failed |= is_fault(name, &in_a_child(|| goes_on(&clock, &limiter)));
    }
    failed |= is_fault("a limiter that other threads were using", &children_work_while_others_did());
    ExitCode::from(u8::from(failed))
}

#[cfg(not(target_os = "linux"))]
fn main() {}
