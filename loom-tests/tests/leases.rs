//! Races of leases between cores: see `src/state/leases.rs`.

mod model;

use loom::sync::Arc;
use model::{Atomics, Bound, Seen, explore};
use std::time::Duration;
use tollgate::sync::{ModelSwitch, number_thread};
use tollgate::{Decision, ManualClock, Quota, SingleLimiter, Tick};

/// The smallest burst that two cores can lease from. A lease has 8 tokens, and the reserve 16.
const BURST: u64 = 256;

fn quota(burst: u64) -> Quota {
    Quota::new(1, Duration::from_nanos(1)).burst(burst)
}

fn limiter() -> (Arc<SingleLimiter>, ManualClock) {
    let clock = ManualClock::new();
    clock.set(Tick::from_nanos(5_000));
    let builder = SingleLimiter::builder(quota(BURST)).clock(&clock).core_leases();
    (Arc::new(builder.build().unwrap()), clock)
}

fn take(limiter: &SingleLimiter, cost: u64) -> u64 {
    limiter.check_n(cost).charged()
}

/// Charges the word. The trait is not imported, because its methods of an `Arc` would hide those of
/// the limiter, which spend leases.
fn charge_word(limiter: &SingleLimiter, now: Tick, cost: u64) -> Decision {
    tollgate::Chargeable::check_n(&limiter.at(now), cost)
}

/// Takes every token that the limiter still admits at this time.
fn drain(limiter: &SingleLimiter) -> u64 {
    [128, 64, 32, 16, 8, 4, 2, 1].into_iter().map(|cost| take(limiter, cost)).sum()
}

/// A thread takes a lease while another thread is denied and returns all leases.
#[test]
fn lease_races_return_and_no_token_is_returned_twice() {
    let seen = Seen::default();
    let note = seen.clone();
    explore(Bound::Preemptions(3), Atomics::Touched, move |threads| {
        let (limiter, _) = limiter();
        let mut admitted = take(&limiter, 1);
        let other = threads.spawn({
            let limiter = Arc::clone(&limiter);
            move || {
                number_thread(1);
                take(&limiter, 1)
            }
        });
        // More than the places leave, so this is denied and returns the leases.
        admitted += take(&limiter, 254);
        admitted += other.join().unwrap();
        admitted += drain(&limiter);
        assert!(admitted + limiter.lost() <= BURST, "{admitted} tokens");
        note.note((admitted, limiter.lost()));
    });
    // The lost tokens were charged for a lease whose line was closed before it was filled.
    seen.expect(&["(232, 8)", "(240, 0)"]);
}

/// A thread takes a lease for a line that still has tokens, while another thread returns all
/// leases.
#[test]
fn second_lease_races_return_and_the_rest_of_the_first_counts_once() {
    let seen = Seen::default();
    let note = seen.clone();
    explore(Bound::Preemptions(3), Atomics::Touched, move |threads| {
        let (limiter, _) = limiter();
        let mut admitted = take(&limiter, 5);
        assert_eq!(limiter.leased(), 3);
        let other = threads.spawn({
            let limiter = Arc::clone(&limiter);
            move || take(&limiter, 5)
        });
        number_thread(1);
        admitted += take(&limiter, 254) + other.join().unwrap();
        assert_eq!((take(&limiter, 254), limiter.leased()), (0, 0));
        admitted += drain(&limiter);
        note.note((admitted, limiter.lost()));
    });
    // The second lease has 5 tokens, which are lost if its line is closed before it is filled.
    seen.expect(&["(235, 5)", "(240, 0)"]);
}

/// Two threads share a place. One of them takes a lease, and the other spends it.
#[test]
fn lease_races_spend_and_its_figures_are_visible() {
    explore(Bound::Preemptions(3), Atomics::Touched, move |threads| {
        let (limiter, _) = limiter();
        let other = threads.spawn({
            let limiter = Arc::clone(&limiter);
            move || limiter.check()
        });
        let decisions = [limiter.check(), other.join().unwrap()];
        for decision in decisions {
            assert!(decision.is_allowed());
            assert_eq!((decision.at(), decision.capacity()), (Tick::from_nanos(5_000), BURST));
        }
        assert!((240..=241).contains(&(2 + drain(&limiter))));
    });
}

/// Two threads spend the same lease while one of them returns it.
#[test]
fn spend_races_return_and_each_token_counts_once() {
    let seen = Seen::default();
    let note = seen.clone();
    explore(Bound::Preemptions(3), Atomics::Touched, move |threads| {
        let (limiter, _) = limiter();
        let mut admitted = take(&limiter, 1);
        let other = threads.spawn({
            let limiter = Arc::clone(&limiter);
            move || {
                let charge = limiter.check_n(3);
                limiter.refund_n(&charge, 1);
                charge.charged()
            }
        });
        admitted += take(&limiter, 255);
        admitted += other.join().unwrap();
        admitted += drain(&limiter);
        assert_eq!(limiter.lost(), 0);
        note.note(admitted);
    });
    // The first charge counts among the reserve if no lease preceded it.
    seen.expect(&["240", "241"]);
}

/// Two denials return leases at the same time.
#[test]
fn returns_race_and_each_token_is_returned_once() {
    explore(Bound::Preemptions(2), Atomics::Touched, move |threads| {
        let (limiter, _) = limiter();
        let mut admitted = take(&limiter, 1);
        let other = threads.spawn({
            let limiter = Arc::clone(&limiter);
            move || {
                number_thread(1);
                take(&limiter, 255)
            }
        });
        admitted += take(&limiter, 255);
        admitted += other.join().unwrap();
        admitted += drain(&limiter);
        assert_eq!((admitted, limiter.lost()), (BURST - 16, 0));
    });
}

/// The bucket refills while a thread takes a lease. Everything that is spent afterwards is spent at
/// one time, so it must not be more than the burst.
#[test]
fn lease_races_time_and_both_spend_one_burst() {
    let seen = Seen::default();
    let note = seen.clone();
    explore(Bound::Preemptions(2), Atomics::Touched, move |threads| {
        let (limiter, clock) = limiter();
        let other = threads.spawn({
            let limiter = Arc::clone(&limiter);
            move || {
                number_thread(1);
                limiter.check()
            }
        });
        assert!(limiter.check().is_allowed());
        let later = Tick::from_nanos(50_000);
        clock.set(later);
        // The rest of the own lease, and all that the word may admit beside leases.
        let mut admitted = take(&limiter, 7) + take(&limiter, 240);
        let other = other.join().unwrap();
        number_thread(1);
        admitted += take(&limiter, 7) + take(&limiter, 1) + take(&limiter, 1);
        // The other thread's own token may have been spent before the time was set.
        admitted += other.charged() * u64::from(other.at() == later);
        assert!(admitted <= BURST, "{admitted} tokens");
        note.note(admitted);
    });
    // In the most dangerous order, the other thread takes its lease before the time is set.
    seen.expect_among(&["254"]);
}

/// The quota changes while a thread takes a lease.
#[test]
fn change_of_quota_races_lease_and_owes_it() {
    let seen = Seen::default();
    let note = seen.clone();
    explore(Bound::Preemptions(2), Atomics::Touched, move |threads| {
        let (limiter, _) = limiter();
        let other = threads.spawn({
            let limiter = Arc::clone(&limiter);
            move || {
                number_thread(1);
                take(&limiter, 1) + take(&limiter, 1)
            }
        });
        limiter.set_quota(quota(300)).unwrap();
        let mut admitted = other.join().unwrap();
        admitted += drain(&limiter) + drain(&limiter);
        assert!(admitted <= 300, "{admitted} tokens");
        note.note(admitted);
    });
    seen.expect(&["276", "277", "278", "282"]);
}

/// A thread returns the leases and takes another one, while a denied thread is about to return
/// leases too. Whatever that thread still sees of the first return, it misses no token.
#[test]
fn lease_follows_return_and_the_next_return_finds_it() {
    explore(Bound::Preemptions(2), Atomics::Touched, move |threads| {
        let (limiter, _) = limiter();
        let mut admitted = take(&limiter, 1);
        let other = threads.spawn({
            let limiter = Arc::clone(&limiter);
            move || {
                number_thread(1);
                take(&limiter, 255)
            }
        });
        admitted += take(&limiter, 255) + take(&limiter, 1);
        let lost = limiter.lost();
        admitted += other.join().unwrap();
        assert_eq!((admitted, limiter.lost()), (2, lost), "a return has lost tokens");
        assert_eq!((take(&limiter, 255), limiter.leased()), (0, 0), "a return has missed a lease");
    });
}

/// The quota changes while a thread takes a lease on a line that it has closed and opened before.
#[test]
fn change_of_quota_follows_return_and_voids_the_next_lease() {
    explore(Bound::Preemptions(2), Atomics::Touched, move |threads| {
        let (limiter, _) = limiter();
        let other = threads.spawn({
            let limiter = Arc::clone(&limiter);
            move || {
                number_thread(1);
                take(&limiter, 1) + take(&limiter, 256) + take(&limiter, 1)
            }
        });
        limiter.set_quota(quota(300)).unwrap();
        other.join().unwrap();
        assert_eq!((take(&limiter, 300), limiter.leased()), (0, 0), "a lease of the earlier quota is left");
    });
}

/// A thread reads what remains while another thread moves tokens from the word to its line.
#[test]
fn peek_races_lease_and_tells_no_token_twice() {
    explore(Bound::Exhaustive, Atomics::Touched, move |threads| {
        let (limiter, _) = limiter();
        let other = threads.spawn({
            let limiter = Arc::clone(&limiter);
            move || {
                number_thread(1);
                take(&limiter, 1)
            }
        });
        let told = limiter.peek().remaining();
        let admitted = other.join().unwrap() + drain(&limiter);
        assert!(told <= admitted, "{told} remained, and {admitted} were admitted");
    });
}

/// As `refund_races_reset_and_gives_back_nothing_that_is_void`, for charges of the word.
#[test]
fn refund_races_reset_beside_leases_and_gives_back_nothing_that_is_void() {
    explore(Bound::Preemptions(2), Atomics::Touched, move |threads| {
        let (limiter, clock) = limiter();
        let now = clock.now();
        // The bucket lacks more than the reserve, which a refund subtracts from its charge.
        let first = charge_word(&limiter, now, 100);
        let resetter = threads.spawn({
            let limiter = Arc::clone(&limiter);
            move || {
                limiter.reset();
                assert!(charge_word(&limiter, now, 200).is_allowed());
            }
        });
        limiter.refund_n(&first, 50);
        resetter.join().unwrap();
        assert!(!charge_word(&limiter, now, BURST - 199).is_allowed());
        assert!(charge_word(&limiter, now, BURST - 200).is_allowed());
    });
}

/// A thread resets the limiter while another thread returns the leases. Whatever the return has
/// done so far, the lease of an earlier charge is void after the reset.
#[test]
fn reset_races_return_and_voids_every_earlier_lease() {
    explore(Bound::Preemptions(1), Atomics::Touched, move |threads| {
        let (limiter, _) = limiter();
        let charge = limiter.check_n(3);
        let other = threads.spawn({
            let limiter = Arc::clone(&limiter);
            move || {
                limiter.reset();
                limiter.refund(&charge);
                assert_eq!(limiter.leased(), 0, "a refund has returned tokens to a void lease");
            }
        });
        let _ = take(&limiter, 256);
        other.join().unwrap();
    });
}

/// The bucket refills while a thread is denied and returns the leases. The return counts the
/// reserve as missing at the time that it reads, and a denial has a time at which this is known.
#[test]
fn return_races_time_and_a_denial_misses_at_most_the_reserve() {
    let seen = Seen::default();
    let note = seen.clone();
    explore(Bound::Preemptions(3), Atomics::Touched, move |threads| {
        let (limiter, clock) = limiter();
        assert!(limiter.check().is_allowed());
        let later = Tick::from_nanos(50_000);
        let other = threads.spawn(move || clock.set(later));
        let charge = limiter.check_n(BURST - 9);
        other.join().unwrap();
        // Without refill, 17 tokens are missing. Otherwise, the reserve is, but for the seven
        // tokens that came home.
        assert!(charge.is_allowed() || charge.at() < later);
        if !charge.is_allowed() {
            assert!(charge_word(&limiter, later, BURST).is_allowed(), "the denial knew of no refill");
        }
        note.note(charge.is_allowed());
    });
    seen.expect(&["false", "true"]);
}

/// Each exchange in turn fails spuriously, where two threads spend and charge.
#[test]
fn spurious_failures_of_the_exchanges_spend_and_charge_once() {
    for cost in [1, 20] {
        explore(Bound::Preemptions(2), Atomics::Touched, move |threads| {
            let (limiter, _) = limiter();
            assert_eq!((take(&limiter, 1), limiter.leased()), (1, 7));
            let other = threads.spawn({
                let limiter = Arc::clone(&limiter);
                move || {
                    // This thread shares the line.
                    ModelSwitch::FailWeakOnce.set(true);
                    take(&limiter, cost)
                }
            });
            let mut admitted = 1 + take(&limiter, 1) + other.join().unwrap();
            ModelSwitch::FailWeakOnce.set(false);
            assert_eq!(admitted, 2 + cost);
            assert_eq!(limiter.leased(), if cost == 1 { 5 } else { 6 });
            admitted += drain(&limiter);
            assert_eq!((admitted, limiter.lost()), (BURST - 16, 0));
        });
    }
}

/// Calls that return leases race with a thread that takes one.
#[test]
fn lease_races_the_other_calls_that_return_leases() {
    let calls: [fn(&SingleLimiter); 3] = [
        |limiter| _ = limiter.is_idle(),
        |limiter| assert!(!limiter.peek_n(BURST).is_allowed()),
        |limiter| assert!(limiter.save(Vec::new()).is_ok()),
    ];
    for call in calls {
        explore(Bound::Preemptions(2), Atomics::Touched, move |threads| {
            let (limiter, _) = limiter();
            let mut admitted = take(&limiter, 1);
            let other = threads.spawn({
                let limiter = Arc::clone(&limiter);
                move || {
                    number_thread(1);
                    take(&limiter, 1)
                }
            });
            call(&limiter);
            admitted += other.join().unwrap();
            assert_eq!(admitted, 2, "the calls charge nothing, and a bucket with tokens denies nothing");
            admitted += drain(&limiter);
            assert_eq!(limiter.leased(), 0);
            let accounted = admitted + limiter.lost();
            assert!((BURST - 16..=BURST).contains(&accounted), "{admitted} tokens");
        });
    }
}

/// Threads follow hints while one of them takes a lease and the other is denied. Whatever the hints
/// are afterwards, the next denial finds every lease.
#[test]
fn hints_race_leases_and_returns_and_decide_nothing() {
    explore(Bound::Preemptions(2), Atomics::Touched, move |threads| {
        ModelSwitch::LeaseHints.set(true);
        let (limiter, _) = limiter();
        let mut admitted = take(&limiter, 1);
        let other = threads.spawn({
            let limiter = Arc::clone(&limiter);
            move || {
                number_thread(1);
                take(&limiter, 1)
            }
        });
        admitted += take(&limiter, 254);
        admitted += other.join().unwrap();
        assert_eq!(admitted, 2);
        admitted += drain(&limiter);
        assert_eq!((take(&limiter, BURST), limiter.leased()), (0, 0), "a denial has missed a lease");
        assert!((BURST - 16..=BURST).contains(&(admitted + limiter.lost())), "{admitted} tokens");
    });
}
