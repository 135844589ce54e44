//! Under random schedules, four threads share a limiter with leases: they spend, refund and force
//! charges, change the quota, and end. The time is constant, so every token is accounted for in the
//! end. `tests/schedules.rs` describes what shuttle can show.

mod runner;

use loom as shuttle;
use shuttle::rand::{Rng, thread_rng};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;
use tollgate::sync::number_thread;
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
