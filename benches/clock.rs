//! The cost of reading each clock, and of checking a key with it: `cargo bench --bench clock`.
//!
//! All clocks take turns, many times, and the benchmark prints medians. A busy machine therefore
//! slows down all of them, and the ratios stay valid. `bare` reads the processor's counter without
//! a guard, which tollgate does not offer. The guarded counter may take 1.15 times as long as
//! `bare`.

use std::hint::black_box;
use std::time::{Duration, Instant};
use tollgate::{Clock, Limiter, ManualClock, Quota};

const ROUNDS: usize = 101;
const READINGS: u32 = 50_000;

/// A measured operation, and its name.
type Subject = (&'static str, Box<dyn Fn() -> Duration>);

/// Returns the time of an operation, which is repeated many times.
fn repeated<T>(mut something: impl FnMut() -> T) -> Duration {
    let start = Instant::now();
    for _ in 0..READINGS {
        black_box(something());
    }
    start.elapsed()
}

/// A clock without a guard: the counter since an origin, multiplied by its rate.
#[cfg(target_arch = "x86_64")]
fn bare() -> impl Fn() -> u64 {
    #[allow(unsafe_code)]
    fn count() -> u64 {
        // SAFETY: the instruction reads a register that programs may read.
        unsafe { std::arch::x86_64::_rdtsc() }
    }
    let (start, origin) = (Instant::now(), count());
    while start.elapsed() < Duration::from_millis(20) {}
    let (nanos, counted) = (start.elapsed().as_nanos(), u128::from(count() - origin));
    let rate = (nanos << 40) / counted;
    move || {
        #[allow(clippy::cast_possible_truncation)]
        let nanos = ((u128::from(count().wrapping_sub(origin)) * rate) >> 40) as u64;
        nanos
    }
}

fn readings() -> Vec<Subject> {
    let clock = |clock: Clock| Box::new(move || repeated(|| clock.now()));
    let start = Instant::now();
    vec![
        #[cfg(target_arch = "x86_64")]
        ("bare", {
            let bare = bare();
            Box::new(move || repeated(&bare))
        }),
        ("counter", clock(Clock::counter())),
        ("system", clock(Clock::system())),
        ("std's Instant", Box::new(move || repeated(|| start.elapsed()))),
        ("coarse, 10 ms", clock(Clock::coarse(Duration::from_millis(10)))),
        ("manual", clock(ManualClock::new().into())),
    ]
}

/// Checks of one key that is always admitted.
fn checks() -> Vec<Subject> {
    let limiter = |clock: Clock| -> Limiter<u64> {
        let quota = Quota::per_second(1_000_000_000).burst(1 << 60);
        Limiter::builder(quota).clock(clock).build().expect("a quota that is fine")
    };
    let plain = |clock: Clock| {
        let limiter = limiter(clock);
        Box::new(move || repeated(|| limiter.check(black_box(&7)).is_allowed()))
    };
    let (each, turns) = (limiter(Clock::default()), limiter(Clock::default()));
    vec![
        ("check, default", plain(Clock::default())),
        ("check, system", plain(Clock::system())),
        ("check, coarse, 10 ms", plain(Clock::coarse(Duration::from_millis(10)))),
        (
            "check, a time for each",
            Box::new(move || repeated(|| each.at(each.clock().now()).check(black_box(&7)).is_allowed())),
        ),
        (
            "check, a time for 32",
            Box::new(move || {
                let mut gate = turns.at(turns.clock().now());
                let mut turn = 0;
                repeated(|| {
                    turn += 1;
                    if turn % 32 == 0 {
                        gate = turns.at(turns.clock().now());
                    }
                    gate.check(black_box(&7)).is_allowed()
                })
            }),
        ),
    ]
}

fn median(mut figures: Vec<f64>) -> f64 {
    figures.sort_by(f64::total_cmp);
    figures[figures.len() / 2]
}

/// Prints the median of each operation, and the median of its ratio to the first operation in the
/// same round.
fn compare(title: &str, subjects: &[Subject]) {
    println!("{title}, median of {ROUNDS} rounds; ratio to the first");
    let mut rounds: Vec<Vec<f64>> = Vec::new();
    for _ in 0..ROUNDS {
        rounds.push(subjects.iter().map(|(_, subject)| subject().as_secs_f64()).collect());
    }
    for (at, (name, _)) in subjects.iter().enumerate() {
        let nanos = median(rounds.iter().map(|round| round[at] * 1e9 / f64::from(READINGS)).collect());
        let ratio = median(rounds.iter().map(|round| round[at] / round[0]).collect());
        println!("  {name:32} {nanos:7.2} ns {ratio:6.2}");
    }
}

fn main() {
    println!("the default clock is {}", Clock::default().kind());
    compare("a reading", &readings());
    compare("one key, admitted", &checks());
}
