//! The cost of a reservation and its settlement, and of several limits at once, compared with a
//! check.
//!
//! The benchmark uses one thread and the default clock. All subjects take turns of about fifty
//! microseconds. A ratio compares two turns of the same round, so that a busy machine slows down
//! both. The benchmark prints the medians. The quotas never run out, except for subjects that deny
//! requests.

use std::env;
use std::hint::black_box;
use std::sync::Arc;
use std::time::Instant;
use tollgate::{Algorithm, Charge, Limiter, Quota, SingleLimiter, check_all};

const ROUNDS: usize = 501;
const CALLS: u32 = 2_000;

/// Repeats a call for one turn, and returns the nanoseconds per call.
type Subject<'l> = Box<dyn Fn() -> f64 + 'l>;

fn subject<'l, T>(call: impl Fn() -> T + 'l) -> Subject<'l> {
    Box::new(move || {
        let begin = Instant::now();
        for _ in 0..CALLS {
            black_box(call());
        }
        begin.elapsed().as_secs_f64() * 1e9 / f64::from(CALLS)
    })
}

fn ample() -> Quota {
    Quota::per_second(1_000_000_000).burst(1 << 60)
}

fn keyed(quota: Quota) -> Limiter<u64> {
    let limiter = Limiter::builder(quota).build().expect("a valid limiter");
    let _ = limiter.check(&7);
    limiter
}

/// Checks one key in three limiters.
fn ask(limiters: &[Limiter<u64>; 3]) -> bool {
    let keys = limiters.each_ref().map(|limiter| limiter.for_key(black_box(&7)));
    check_all(&mut keys.each_ref().map(|key| Charge::new(key, 1))).is_ok()
}

fn median(mut figures: Vec<f64>) -> f64 {
    figures.sort_by(f64::total_cmp);
    figures[figures.len() / 2]
}

fn main() {
    let limiter = Arc::new(keyed(ample()));
    let singles = [(); 2].map(|()| SingleLimiter::builder(ample()).build().expect("a valid limiter"));
    let three = [(); 3].map(|()| keyed(ample()));
    let denied = [keyed(ample()), keyed(ample()), keyed(Quota::per_day(1))];
    let windows = [(); 3].map(|()| {
        let quota = Quota::per_day(16_000_000);
        let builder = Limiter::<u64>::builder(quota).algorithm(Algorithm::SlidingWindow);
        builder.build().expect("a valid limiter")
    });
    // Each subject has the index of the check that it is compared with.
    let subjects: [(&str, usize, Subject<'_>); 10] = [
        ("a check", 0, subject(|| limiter.check(black_box(&7)).is_allowed())),
        (
            "reserve, commit what was reserved",
            0,
            subject(|| limiter.reserve(black_box(&7), 2).map_or(0, |held| held.commit(2).charged)),
        ),
        (
            "reserve, commit less",
            0,
            subject(|| limiter.reserve(black_box(&7), 2).map_or(0, |held| held.commit(1).charged)),
        ),
        (
            "reserve owned, commit less",
            0,
            subject(|| limiter.reserve_owned(black_box(7), 2).map_or(0, |held| held.commit(1).charged)),
        ),
        (
            "check_all of a key and two single limiters",
            0,
            subject(|| {
                let key = three[0].for_key(black_box(&7));
                let [first, second] = &singles;
                check_all(&mut [Charge::new(&key, 1), Charge::new(first, 1), Charge::new(second, 1)]).is_ok()
            }),
        ),
        ("check_all of three keys", 0, subject(|| ask(&three))),
        ("a check, sliding window", 6, subject(|| windows[0].check(black_box(&7)).is_allowed())),
        ("check_all of three keys, sliding windows", 6, subject(|| ask(&windows))),
        ("a denied check", 8, subject(|| denied[2].check(black_box(&7)).is_allowed())),
        ("check_all of three keys, the last denies", 8, subject(|| ask(&denied))),
    ];
    // Under `cargo test`, the benchmark runs only one round.
    let rounds = if env::args().any(|argument| argument == "--bench") { ROUNDS } else { 1 };
    let turns: Vec<Vec<f64>> =
        (0..rounds).map(|_| subjects.iter().map(|(_, _, turn)| turn()).collect()).collect();
    println!("{:42} {:>8} {:>7}", "", "time", "checks");
    for (row, (name, check, _)) in subjects.iter().enumerate() {
        let time = median(turns.iter().map(|round| round[row]).collect());
        let ratio = median(turns.iter().map(|round| round[row] / round[*check]).collect());
        println!("{name:42} {time:5.1} ns {ratio:7.2}");
    }
}
