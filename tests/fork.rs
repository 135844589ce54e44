//! A process that forks. The child has only the thread that forked. In it every clock advances, and
//! a limiter that denied a key before the fork admits it after its `retry_after`. Built without the
//! test harness, because a child would be a copy of the harness, too.
#![cfg_attr(not(target_os = "linux"), allow(unused))]

use std::process::ExitCode;
use std::time::{Duration, Instant};
use tollgate::{Clock, Limiter, Quota};

/// How long the child watches its clock: more than any resolution below, ten times over for the
/// finest.
const WATCHED: Duration = Duration::from_millis(120);

/// The coarsest tick of a kernel, and as much again.
const LATE: Duration = Duration::from_millis(20);

/// How long the clock may take to be there on a machine that is busy with others.
const PATIENCE: Duration = Duration::from_secs(60);

/// Does `clock` advance in this process as the system's clock does, and does a limiter with it
/// admit its key again?
fn goes_on(clock: &Clock, limiter: &Limiter<u64>) -> Result<(), String> {
    let (start, first) = (Instant::now(), clock.now());
    // A coarse clock stands still while the processor that advances it is taken away, and is right
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

/// The result of `body` in a child of this process.
#[cfg(target_os = "linux")]
#[allow(unsafe_code)]
fn in_a_child(find: impl FnOnce() -> Result<(), String>) -> Result<(), String> {
    // SAFETY: the child only reads clocks, checks a limiter, writes a message and exits.
    match unsafe { libc::fork() } {
        -1 => Err("this process could not be forked".to_owned()),
        0 => {
            let found = find();
            if let Err(why) = &found {
                println!("in the child: {why}");
            }
            // SAFETY: it takes a number, and ends the process without its destructors.
            unsafe { libc::_exit(i32::from(found.is_err())) }
        }
        child => {
            let mut status = 0;
            // SAFETY: `status` outlives the call, and the process waits for a child of its own.
            let waited = unsafe { libc::waitpid(child, &raw mut status, 0) };
            let is_fine = waited == child && libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0;
            if is_fine { Ok(()) } else { Err(format!("the child ended with status {status:#x}")) }
        }
    }
}

#[cfg(target_os = "linux")]
fn main() -> ExitCode {
    let mut failed = false;
    for (name, clock) in [
        ("the default clock", Clock::default()),
        ("a coarse clock of a millisecond", Clock::coarse(Duration::from_millis(1))),
        ("a coarse clock of ten milliseconds", Clock::coarse(Duration::from_millis(10))),
        ("the system's clock", Clock::monotonic()),
    ] {
        let quota = Quota::new(1, Duration::from_millis(50));
        let limiter: Limiter<u64> = Limiter::builder(quota).clock(clock.clone()).build().unwrap();
        assert!(limiter.check(&7).is_allowed());
        let found = in_a_child(|| goes_on(&clock, &limiter));
        let (said, why) = match &found {
            Ok(()) => ("goes on", ""),
            Err(why) => ("FAILED", why.as_str()),
        };
        println!("after a fork, {name}: {said} {why}");
        failed |= found.is_err();
    }
    ExitCode::from(u8::from(failed))
}

#[cfg(not(target_os = "linux"))]
fn main() {}
