//! How many instructions a check takes, counted by valgrind: the same on a loaded machine as on a quiet one.
//!
//! Without an argument each path below is run twice under callgrind, once for twice as long, in a process of
//! its own; the difference is the path's alone. It fails where a path takes more than is written beside it: a
//! change that costs instructions should be made on purpose. The figures are of x86-64 and rustc 1.95, with a
//! margin of a tenth for the next one; on other processors the counts are printed and not compared.
//!
//! Not with gungraun (once iai-callgrind), which is made for this: it wants a program of its own version installed beside it,
//! one thing more that may be missing where `make test` runs, and needed here are one difference and one comparison.

use std::env;
use std::hint::black_box;
use std::process::{Command, ExitCode};
use std::time::Duration;
use tollgate::{Algorithm, Clock, Limiter, ManualClock, Quota, SingleLimiter};

/// Checks in the short run, and again as many in the long one.
const CHECKS: u64 = 10_000;

struct Path {
    name: &'static str,
    /// Instructions for each check that are still accepted.
    most: u64,
    run: fn(u64),
}

const PATHS: [Path; 10] = [
    Path { name: "one resource, admitted", most: 60, run: |n| single(Algorithm::TokenBucket, n, n) },
    Path { name: "one resource, denied", most: 59, run: |n| single(Algorithm::TokenBucket, 1, n) },
    Path { name: "key, admitted", most: 124, run: |n| keyed(n, n) },
    Path { name: "key, denied", most: 118, run: |n| keyed(1, n) },
    Path { name: "key, admitted, inlined", most: 104, run: inlined },
    Path { name: "key through a pinned handle, admitted", most: 117, run: pinned },
    Path { name: "key in a batch of 32, admitted", most: 141, run: batches },
    Path { name: "key under a sliding window, admitted", most: 358, run: windowed },
    Path { name: "fresh key, growth included", most: 401, run: fresh },
    Path { name: "sliding window, admitted", most: 283, run: |n| single(Algorithm::SlidingWindow, n, n) },
];

fn quota(burst: u64) -> Quota {
    Quota::new(1, Duration::from_secs(3_600)).burst(burst)
}

fn limiter(burst: u64, keys: u64) -> (Limiter<u64>, ManualClock) {
    let clock = Clock::manual();
    let builder = Limiter::builder(quota(burst)).max_keys(100_000).clock(&clock);
    let limiter: Limiter<u64> = builder.build().unwrap();
    for key in 0..keys {
        assert!(limiter.check_n(&key, 1).allowed());
    }
    (limiter, clock)
}

/// `admitted` of `checks` pass.
fn single(algorithm: Algorithm, admitted: u64, checks: u64) {
    let quota = match algorithm {
        Algorithm::SlidingWindow => Quota::new(2 * CHECKS, Duration::from_secs(3_600)),
        _ => quota(admitted),
    };
    let builder = SingleLimiter::builder(quota).algorithm(algorithm).clock(Clock::manual());
    let gate = builder.build().unwrap();
    let passed = (0..checks).filter(|_| black_box(&gate).check().allowed()).count() as u64;
    assert_eq!(passed, admitted);
}

/// One key, `admitted` of `checks` pass.
fn keyed(admitted: u64, checks: u64) {
    let (limiter, _clock) = limiter(admitted + 1, 1);
    let passed = (0..checks).filter(|_| black_box(&limiter).check(&0).allowed()).count() as u64;
    assert_eq!(passed, admitted);
}

/// One key, where the check is part of the caller, which asks for nothing but `allowed`. Then no answer is written at all, as
/// long as no other way through a check writes one to where this would be.
fn inlined(checks: u64) {
    let (limiter, clock) = limiter(checks + 1, 1);
    let now = clock.now();
    // Nobody else calls it here, so it is inlined.
    assert!((0..checks).all(|_| black_box(&limiter).check_at(&0, 1, black_box(now)).allowed()));
}

/// A rule that is no bucket takes another way through a check.
fn windowed(checks: u64) {
    let quota = Quota::new(2 * CHECKS + 1, Duration::from_secs(3_600));
    let builder = Limiter::builder(quota).algorithm(Algorithm::SlidingWindow).clock(Clock::manual());
    let limiter: Limiter<u64> = builder.build().unwrap();
    assert!((0..checks).all(|_| black_box(&limiter).check(&0).allowed()));
}

fn pinned(checks: u64) {
    let (limiter, _clock) = limiter(checks + 1, 1);
    let mut gate = limiter.pin();
    assert!((0..checks).all(|_| black_box(&mut gate).check(&0).allowed()));
}

fn batches(checks: u64) {
    // Where keys lie is chance: with few of them, one run in ten counted a tenth more.
    const KEYS: u64 = 512;
    let (limiter, _clock) = limiter(checks + 1, KEYS);
    let keys: Vec<u64> = (0..KEYS).collect();
    let mut decisions = Vec::with_capacity(32);
    for batch in keys.chunks(32).cycle().take((checks / 32) as usize) {
        decisions.clear();
        black_box(&limiter).check_many(batch, &mut decisions);
        assert!(decisions.iter().all(|decision| decision.allowed()));
    }
}

fn fresh(checks: u64) {
    let (limiter, _clock) = limiter(1, 0);
    assert!((0..checks).all(|key| black_box(&limiter).check(&key).allowed()));
}

/// The instructions of this program when it runs `path` for so many checks.
fn count(path: &str, checks: u64) -> Result<u64, String> {
    let own = env::current_exe().map_err(|error| error.to_string())?;
    let mut valgrind = Command::new("valgrind");
    valgrind.args(["--tool=callgrind", "--callgrind-out-file=/dev/null"]).arg(own);
    let output = valgrind.args(["--run", path, &checks.to_string()]).output();
    let output = output.map_err(|error| format!("valgrind did not start ({error}); install it"))?;
    let text = String::from_utf8_lossy(&output.stderr);
    let line = text.lines().find_map(|line| line.split_once("Collected : "));
    let counted = line.and_then(|(_, figure)| figure.trim().parse().ok());
    counted.filter(|_| output.status.success()).ok_or_else(|| format!("valgrind failed:\n{text}"))
}

fn compare() -> Result<bool, String> {
    println!("{:<40} {:>12} {:>9}", "instructions for each check", "counted", "at most");
    let mut within = true;
    for Path { name, most, .. } in PATHS {
        let count =
            || Ok::<_, String>(count(name, 2 * CHECKS)?.saturating_sub(count(name, CHECKS)?) / CHECKS);
        let mut each = count()?;
        if each > most {
            // How keys hash is chance, and the time stands still here: one key in 2048 does a step of upkeep with each check.
            each = each.min(count()?);
        }
        let verdict = if each > most { "  TOO MANY" } else { "" };
        println!("{name:<40} {each:>12} {most:>9}{verdict}");
        within &= each <= most || !cfg!(target_arch = "x86_64");
    }
    Ok(within)
}

fn main() -> ExitCode {
    let arguments: Vec<String> = env::args().collect();
    if let [_, run, name, checks] = arguments.as_slice()
        && run == "--run"
    {
        let path = PATHS.iter().find(|path| path.name == name).expect("a path of this program");
        (path.run)(checks.parse().expect("a number"));
        return ExitCode::SUCCESS;
    }
    match compare() {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => {
            eprintln!("A path takes more instructions than it may: see benches/instructions/src/main.rs.");
            ExitCode::FAILURE
        }
        Err(why) => {
            eprintln!("{why}");
            ExitCode::FAILURE
        }
    }
}
