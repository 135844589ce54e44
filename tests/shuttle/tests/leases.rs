//! Under random schedules, four threads share a limiter with leases: they spend, refund and force
//! charges, change the quota, and end. While the time is constant, every token is accounted for in
//! the end. While the time passes, the tokens of every interval are. `tests/schedules.rs` describes
//! what shuttle can show.

mod runner;

use loom as shuttle;
use shuttle::rand::{Rng, thread_rng};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;
use tollgate::sync::{ModelSwitch, number_thread};
use tollgate::{ManualClock, Quota, SingleLimiter, Tick};

const BURST: u64 = 512;
/// The burst after a change of quota.
const LATER: u64 = 1_024;

fn quota(burst: u64) -> Quota {
    Quota::new(1, Duration::from_nanos(1)).burst(burst)
}

fn limiter() -> SingleLimiter {
    let clock = ManualClock::new();
    clock.set(Tick::from_nanos(77_000));
    SingleLimiter::builder(quota(BURST)).clock(clock).core_leases().build().unwrap()
}

fn drain(limiter: &SingleLimiter) -> u64 {
    let costs = (0..10).rev().map(|power| 1 << power);
    costs.map(|cost| (0..).take_while(|_| limiter.check_n(cost).is_allowed()).count() as u64 * cost).sum()
}

/// What happened, over all schedules.
static LEASED: AtomicU64 = AtomicU64::new(0);
static DENIED: AtomicU64 = AtomicU64::new(0);
static LOST: AtomicU64 = AtomicU64::new(0);

#[test]
fn leases_at_random_schedules_account_for_all_tokens() {
    runner::run("leases", 0, || {
        let limiter = Arc::new(limiter());
        // Half of the schedules refund charges, and a refund may be void.
        let refunds = thread_rng().gen_range(0..2) == 0;
        let changes = thread_rng().gen_range(0..3) == 0;
        let burst = if changes { LATER } else { BURST };
        let threads = (0..4_usize).map(|number| {
            let limiter = Arc::clone(&limiter);
            shuttle::thread::spawn(move || {
                // Four threads share two lines.
                number_thread(number);
                let (mut admitted, mut refunded) = (0, 0);
                if number == 0 && changes {
                    limiter.set_quota(quota(LATER)).unwrap();
                }
                for _ in 0..thread_rng().gen_range(0..20) {
                    let cost = [1, 1, 1, 2, 5, 60][thread_rng().gen_range(0..6)];
                    if cost == 5 {
                        admitted += limiter.force(cost);
                        continue;
                    }
                    let charge = limiter.check_n(cost);
                    admitted += charge.charged();
                    DENIED.fetch_add(u64::from(!charge.is_allowed()), Relaxed);
                    LEASED.fetch_max(limiter.leased(), Relaxed);
                    if refunds && thread_rng().gen_range(0..4) == 0 {
                        limiter.refund(&charge);
                        refunded += charge.charged();
                    }
                }
                (admitted, refunded)
            })
        });
        let threads: Vec<_> = threads.collect();
        let accounts: Vec<(u64, u64)> = threads.into_iter().map(|thread| thread.join().unwrap()).collect();
        let admitted: u64 = accounts.iter().map(|(admitted, _)| admitted).sum();
        let refunded: u64 = accounts.iter().map(|(_, refunded)| refunded).sum();
        let admitted = admitted + drain(&limiter);
        LOST.fetch_add(limiter.lost(), Relaxed);
        assert_eq!(limiter.leased(), 0, "tokens are out after a denial");
        assert!(admitted <= burst + refunded, "{admitted} tokens of {burst}, {refunded} refunded");
        // The reserve is a sixteenth of the burst. A change of quota also counts the reserve under
        // the earlier quota as spent.
        let reserve = burst / 16 + if changes { BURST / 16 } else { 0 };
        let accounted = admitted + limiter.lost() + reserve;
        assert!(accounted >= burst, "{admitted} tokens of {burst}, {} lost", limiter.lost());
    });
    println!("leased {LEASED:?}, denied {DENIED:?}, lost {LOST:?}");
    let is_tested = [&LEASED, &DENIED, &LOST].into_iter().all(|count| count.load(Relaxed) > 0);
    assert!(runner::repeated().is_some() || is_tested, "nothing was leased, denied or lost");
}

/// Two equal threads ask for as many tokens as they can get, while time passes.
#[test]
fn equal_threads_get_equal_shares_of_the_tokens() {
    static ADMITTED: [AtomicU64; 2] = [const { AtomicU64::new(0) }; 2];
    runner::run("shares", 1, || {
        let clock = ManualClock::new();
        let builder = SingleLimiter::builder(quota(BURST)).clock(&clock).core_leases();
        let limiter = Arc::new(builder.build().unwrap());
        let threads = (0..2_usize).map(|number| {
            let (limiter, clock) = (Arc::clone(&limiter), clock.clone());
            shuttle::thread::spawn(move || {
                number_thread(number);
                for _ in 0..200 {
                    clock.advance(Duration::from_nanos(thread_rng().gen_range(0..3)));
                    let cost = thread_rng().gen_range(1..4);
                    ADMITTED[number].fetch_add(limiter.check_n(cost).charged(), Relaxed);
                }
            })
        });
        let threads: Vec<_> = threads.collect();
        threads.into_iter().for_each(|thread| thread.join().unwrap());
    });
    let [first, second] = [&ADMITTED[0], &ADMITTED[1]].map(|count| count.load(Relaxed));
    println!("{first} and {second} tokens");
    assert!(first * 10 <= second * 11 && second * 10 <= first * 11, "{first} and {second} tokens");
}

/// What a call has done between two readings of the clock.
#[derive(Clone, Copy)]
struct Call {
    begin: u64,
    end: u64,
    admitted: u64,
    /// The tokens that the call has made available, at most: a refund, or a burst for a reset.
    returned: u64,
}

/// Checks that in no interval more tokens were admitted, less those that were returned, than one
/// bucket admits.
fn judge(mut calls: Vec<Call>) {
    calls.sort_by_key(|call| call.end);
    let returns: Vec<Call> = calls.iter().copied().filter(|call| call.returned > 0).collect();
    for start in calls.iter().map(|call| call.begin) {
        let mut sum = 0;
        for &Call { end, admitted, .. } in calls.iter().filter(|call| call.begin >= start) {
            sum += admitted;
            let overlapping = returns.iter().filter(|call| call.end >= start && call.begin <= end);
            let returned = overlapping.map(|call| call.returned).sum::<u64>();
            let most = BURST + end - start + returned;
            assert!(sum <= most, "{sum} of {most} tokens from {start} to {end}, {returned} returned");
        }
    }
}

/// The bucket refills while threads spend leases, which may be older than the refill.
#[test]
fn leases_at_random_schedules_and_times_admit_in_any_interval_what_one_bucket_admits() {
    static LEASED: AtomicU64 = AtomicU64::new(0);
    runner::run("times", 2, || {
        ModelSwitch::LeaseHints.set(thread_rng().gen_range(0..2) == 0);
        let clock = ManualClock::new();
        clock.set(Tick::from_nanos(77_000));
        let builder = SingleLimiter::builder(quota(BURST)).clock(&clock).core_leases();
        let limiter = Arc::new(builder.build().unwrap());
        // A refund during a reset may return tokens that were charged after it.
        let (refunds, resets) = [(false, false), (true, false), (false, true)][thread_rng().gen_range(0..3)];
        let threads = (0..4_usize).map(|number| {
            let (limiter, clock) = (Arc::clone(&limiter), clock.clone());
            shuttle::thread::spawn(move || {
                number_thread(number);
                let mut calls = Vec::new();
                for _ in 0..thread_rng().gen_range(0..20) {
                    let passed = [0, 0, 0, 1, 5, 40, 600][thread_rng().gen_range(0..7)];
                    clock.advance(Duration::from_nanos(passed));
                    let cost = [1, 1, 1, 2, 5, 60, 400][thread_rng().gen_range(0..7)];
                    let begin = clock.now().as_nanos();
                    let (mut admitted, mut returned) = (0, 0);
                    match thread_rng().gen_range(0..16) {
                        0 if resets => {
                            limiter.reset();
                            returned = BURST;
                        }
                        1 => admitted = limiter.force(cost),
                        2 => {
                            let view = limiter.at(clock.now());
                            admitted = tollgate::Chargeable::check_n(&view, cost).charged();
                        }
                        3 => _ = limiter.peek_n(cost),
                        4 => limiter.save(Vec::new()).unwrap(),
                        5 => _ = limiter.is_idle(),
                        6 if refunds => {
                            if let Ok(held) = limiter.reserve(cost) {
                                (admitted, returned) = (cost, cost - cost / 2);
                                held.commit(cost / 2);
                            }
                        }
                        _ => {
                            let charge = limiter.check_n(cost);
                            admitted = charge.charged();
                            LEASED.fetch_max(limiter.leased(), Relaxed);
                            if refunds && thread_rng().gen_range(0..4) == 0 {
                                limiter.refund(&charge);
                                returned = admitted;
                            }
                        }
                    }
                    calls.push(Call { begin, end: clock.now().as_nanos(), admitted, returned });
                }
                calls
            })
        });
        let threads: Vec<_> = threads.collect();
        let mut calls: Vec<Call> = threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect();
        clock.advance(Duration::from_nanos([0, 40, 2 * BURST][thread_rng().gen_range(0..3)]));
        let now = clock.now().as_nanos();
        calls.push(Call { begin: now, end: now, admitted: drain(&limiter), returned: 0 });
        judge(calls);
        clock.advance(Duration::from_nanos(2 * BURST));
        let drained = drain(&limiter);
        assert!((BURST - BURST / 16..=BURST).contains(&drained), "{drained} tokens of a full bucket");
        assert_eq!(limiter.leased(), 0, "tokens are out after a denial");
        ModelSwitch::LeaseHints.set(false);
    });
    assert!(runner::repeated().is_some() || LEASED.load(Relaxed) > 0, "nothing was leased");
}
