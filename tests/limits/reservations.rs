//! `ReservationSet` and debts of limiters: reserving, recording, settling and dropping.

use proptest::prelude::*;
use std::sync::Arc;
use std::time::Duration;
use tollgate::rule::Refused;
use tollgate::{
    Algorithm, Builder, Charge, Chargeable, Limiter, ManualClock, Outcome, Quota, Reservation, Settlement,
    SingleLimiter, Tick, WhenFull, check_all, reserve_all,
};

const NOON: Tick = Tick::from_nanos(43_200_000_000_000);

type Shared = Arc<dyn Chargeable + Send + Sync>;

/// Returns limiters of every algorithm with every kind of state. Each has 100 tokens an hour, and a
/// debt if the algorithm allows one.
fn limits(debt: u64) -> Vec<(String, Algorithm, ManualClock, Shared)> {
    let mut limits: Vec<(String, Algorithm, ManualClock, Shared)> = Vec::new();
    for algorithm in Algorithm::ALL {
        let quota = Quota::per_hour(100);
        let max_debt = if algorithm == Algorithm::SlidingLog { 0 } else { debt };
        let clock = || {
            let clock = ManualClock::new();
            clock.set(NOON);
            clock
        };
        let its = clock();
        let builder = SingleLimiter::builder(quota).algorithm(algorithm).clock(&its).max_debt(max_debt);
        let single = Arc::new(builder.build().unwrap());
        limits.push((format!("{algorithm}, single"), algorithm, its, single));
        let keyed = |its: &ManualClock| -> Builder<Limiter<u64>> {
            Limiter::builder(quota).algorithm(algorithm).clock(its).max_debt(max_debt).max_keys(8)
        };
        let its = clock();
        let exact = Arc::new(keyed(&its).exact_keys().build().unwrap());
        limits.push((format!("{algorithm}, exact"), algorithm, its, Arc::new(exact.for_key_owned(7))));
        if algorithm != Algorithm::SlidingLog {
            let its = clock();
            let table = Arc::new(keyed(&its).build().unwrap());
            limits.push((format!("{algorithm}, table"), algorithm, its, Arc::new(table.for_key_owned(7))));
        }
    }
    limits
}

fn remaining(limit: &dyn Chargeable) -> u64 {
    limit.peek_n(1).remaining()
}

fn single(tokens: u64, debt: u64) -> (ManualClock, SingleLimiter) {
    let clock = ManualClock::new();
    let limiter = SingleLimiter::builder(Quota::per_hour(tokens)).clock(&clock).max_debt(debt);
    let limiter = limiter.build().unwrap();
    (clock, limiter)
}

#[test]
fn a_commit_gives_back_the_rest_or_charges_what_is_missing() {
    for (name, _, _, limit) in limits(0) {
        let settled = Reservation::new(&limit, 80).unwrap().commit(30);
        assert_eq!(settled, Settlement { charged: 30, unpaid: 0 }, "{name}");
        assert_eq!(remaining(&limit), 70, "{name}");
        let settled = Reservation::new(&limit, 20).unwrap().commit(50);
        assert_eq!(settled, Settlement { charged: 50, unpaid: 0 }, "{name}");
        assert_eq!(remaining(&limit), 20, "{name}");
        let settled = Reservation::new(&limit, 20).unwrap().commit(20);
        assert_eq!((settled.charged, remaining(&limit)), (20, 0), "{name}");
    }
}

#[test]
fn a_commit_goes_into_debt_up_to_the_bound_and_tells_the_rest() {
    for (name, algorithm, _, limit) in limits(30) {
        let debt = if algorithm == Algorithm::SlidingLog { 0 } else { 30 };
        let settled = Reservation::new(&limit, 90).unwrap().commit(150);
        assert_eq!(settled, Settlement { charged: 100 + debt, unpaid: 50 - debt }, "{name}");
        let denied = limit.check_n(1);
        assert_eq!((denied.outcome(), denied.remaining()), (Outcome::Denied, 0), "{name}");
        assert_eq!(limit.force(1), 0, "{name}");
    }
}

/// This is promise 6 for a key in debt.
#[test]
fn a_key_in_debt_is_told_when_it_may_come_again() {
    for (name, algorithm, clock, limit) in limits(30) {
        let _ = limit.force(130);
        let wait = limit.check_n(1).retry_after().unwrap();
        if algorithm.has_burst() {
            assert_eq!(wait, Duration::from_secs(31 * 36), "{name}");
        }
        clock.advance(wait - Duration::from_nanos(1));
        assert!(!limit.check_n(1).is_allowed(), "{name}: early");
        clock.advance(Duration::from_nanos(1));
        assert!(limit.check_n(1).is_allowed(), "{name}");
    }
}

/// In another project's proxy, requests drained their bucket although they were then refused.
#[test]
fn a_refused_reservation_drains_nothing() {
    for (name, _, _, limit) in limits(30) {
        let held = Reservation::new(&limit, 60).unwrap();
        for _ in 0..1_000 {
            assert!(Reservation::new(&limit, 60).is_err(), "{name}");
        }
        assert_eq!(remaining(&limit), 40, "{name}");
        held.release();
        assert_eq!(remaining(&limit), 100, "{name}");
    }
}

/// In another project, a client that hung up early received all tokens back, and therefore paid
/// nothing.
#[test]
fn a_disconnect_keeps_what_was_reserved_or_recorded() {
    for (name, _, _, limit) in limits(0) {
        drop(Reservation::new(&limit, 30).unwrap());
        assert_eq!(remaining(&limit), 70, "{name}");
        let mut held = Reservation::new(&limit, 30).unwrap();
        assert!(held.record(4).is_ok() && held.record(6).is_ok());
        drop(held);
        assert_eq!(remaining(&limit), 60, "{name}");
        drop(Reservation::new(&limit, 30).unwrap().release_on_drop());
        assert_eq!(remaining(&limit), 60, "{name}");
        let mut held = Reservation::new(&limit, 30).unwrap().release_on_drop();
        assert!(held.record(10).is_ok());
        drop(held);
        assert_eq!(remaining(&limit), 50, "{name}: what was recorded is spent");
    }
}

#[test]
fn a_record_of_no_tokens_gives_nothing_back_on_a_disconnect() {
    for (name, _, _, limit) in limits(0) {
        let mut held = Reservation::new(&limit, 30).unwrap();
        assert!(held.record(0).is_ok());
        drop(held);
        assert_eq!(remaining(&limit), 70, "{name}");
        let (_, requests) = single(10, 0);
        let mut held = reserve_all([(&limit as &dyn Chargeable, 40), (&requests, 1)]).unwrap();
        assert!(held.record(|limit| [20, 0][limit]).is_ok());
        drop(held);
        assert_eq!((remaining(&limit), remaining(&requests)), (50, 9), "{name}");
    }
}

/// A stream is cut exactly when its budget is spent, neither a record too late nor a record too
/// early.
#[test]
fn a_record_is_refused_at_the_limit_and_changes_nothing() {
    for (name, _, _, limit) in limits(30) {
        let mut held = Reservation::new(&limit, 30).unwrap();
        let sent = (0..1_000).take_while(|_| held.record(8).is_ok()).count();
        assert_eq!((sent, held.recorded(), held.unspent()), (12, 96, 0), "{name}");
        let denied = held.record(8).unwrap_err().decision();
        assert_eq!((denied.outcome(), denied.remaining()), (Outcome::Denied, 4), "{name}");
        assert_eq!(held.record(u64::MAX).unwrap_err().decision().outcome(), Outcome::TooCostly);
        assert!(held.record(4).is_ok(), "{name}: a smaller one fits");
        assert_eq!(held.commit(100), Settlement { charged: 100, unpaid: 0 }, "{name}");
        assert_eq!(remaining(&limit), 0, "{name}");
    }
}

#[test]
fn what_growth_has_charged_is_not_given_back() {
    for (name, _, _, limit) in limits(0) {
        let mut held = Reservation::new(&limit, 30).unwrap();
        assert!(held.record(50).is_ok());
        assert_eq!(held.commit(5), Settlement { charged: 20, unpaid: 0 }, "{name}");
        assert_eq!(remaining(&limit), 80, "{name}");
        let mut held = Reservation::new(&limit, 30).unwrap();
        assert!(held.record(50).is_ok());
        held.release();
        assert_eq!(remaining(&limit), 60, "{name}");
    }
}

/// In other projects, a late refund was taken from the next window or from charges made by others.
#[test]
fn a_settlement_after_its_window_gives_nothing_of_others_back() {
    for (name, algorithm, clock, limit) in limits(0) {
        let held = Reservation::new(&limit, 60).unwrap();
        clock.advance(Duration::from_secs(2 * 3_600));
        // Other callers charge more than the reservation held, so a wrong refund would find enough
        // tokens.
        assert!(limit.check_n(70).is_allowed(), "{name}");
        held.release();
        assert_eq!(remaining(&limit), 30, "{name}");
        if algorithm.has_burst() {
            // Half of the reserved tokens have refilled, and only the other half is given back.
            clock.advance(Duration::from_secs(2 * 3_600));
            let held = Reservation::new(&limit, 60).unwrap();
            clock.advance(Duration::from_secs(30 * 36));
            assert!(limit.check_n(40).is_allowed());
            held.release();
            assert_eq!(remaining(&limit), 60, "{name}");
        }
    }
}

/// Two reservations fill a bucket, and other callers take the refill before the last reservation is
/// released. If the first reservation is released early, the other reservation's tokens refill
/// sooner than its charge states. That many tokens may be admitted twice, and no more.
#[test]
fn reservations_released_out_of_order_exceed_a_burst_by_what_the_first_held_at_most() {
    for (first, excess) in [(true, 5), (false, 0)] {
        let clock = ManualClock::new();
        let limiter = SingleLimiter::builder(Quota::per_second(1).burst(10)).clock(&clock).build().unwrap();
        let mut held = Vec::from([5, 5].map(|estimate| limiter.reserve(estimate).unwrap()));
        held.remove(usize::from(!first)).release();
        clock.advance(Duration::from_secs(5));
        assert!(limiter.check_n(10).is_allowed(), "the bucket is full");
        held.remove(0).release();
        assert_eq!(limiter.peek().remaining(), excess);
    }
}

#[test]
fn a_debt_of_others_takes_nothing_from_what_is_released() {
    for (name, algorithm, _, limit) in limits(30) {
        let held = Reservation::new(&limit, 50).unwrap();
        let owed = limit.force(80);
        assert_eq!(owed, if algorithm == Algorithm::SlidingLog { 50 } else { 80 }, "{name}");
        held.release();
        assert_eq!(remaining(&limit), 100 - owed, "{name}");
    }
}

#[test]
fn a_reset_voids_what_is_held() {
    let (_, limiter) = single(100, 0);
    let held = limiter.reserve(60).unwrap();
    limiter.reset();
    assert!(limiter.check_n(70).is_allowed());
    held.release();
    assert_eq!(limiter.peek().remaining(), 30);
}

#[test]
fn a_key_in_debt_is_not_forgotten_before_it_is_paid() {
    for algorithm in Algorithm::PACKED {
        let clock = ManualClock::new();
        let builder = Limiter::<u64>::builder(Quota::per_second(10)).algorithm(algorithm).clock(&clock);
        let limiter = builder.max_debt(50).grace(Duration::from_nanos(1)).build().unwrap();
        assert_eq!(limiter.force(&7, 99), 60, "{algorithm}");
        let idle = limiter.peek(&7).reset_after();
        if algorithm.has_burst() {
            assert_eq!(idle, Duration::from_secs(6), "{algorithm}");
        }
        clock.advance(idle - Duration::from_nanos(1));
        while limiter.sweep(4_096) {}
        assert_eq!(limiter.len(), 1, "{algorithm}: forgotten early");
        clock.advance(Duration::from_secs(5));
        while limiter.sweep(4_096) {}
        assert!(limiter.is_empty(), "{algorithm}");
    }
}

/// A quota change translates a word that is in debt.
#[test]
fn a_debt_stays_when_the_quota_changes() {
    for algorithm in Algorithm::PACKED {
        let clock = ManualClock::new();
        let build = |limit| {
            let builder = Limiter::<u64>::builder(Quota::per_second(limit)).algorithm(algorithm);
            builder.clock(&clock).max_debt(50).build().unwrap()
        };
        // Under a smaller quota, the debt remains.
        let limiter = build(10);
        assert_eq!(limiter.force(&7, 99), 60);
        limiter.set_quota(Quota::per_second(5)).unwrap();
        let wait = limiter.peek(&7).retry_after().unwrap();
        if algorithm.has_burst() {
            // Of the 60 missing tokens, 5 are the smaller capacity, and 50 are the debt.
            assert_eq!(wait, Duration::from_millis(51 * 200), "{algorithm}");
        }
        assert_eq!(limiter.force(&7, 1), 0, "{algorithm}");
        // Under a larger quota, a debt ends neither sooner nor later than under the old quota.
        let limiter = build(10);
        let _ = limiter.force(&7, 60);
        let before = limiter.peek(&7).retry_after().unwrap();
        limiter.set_quota(Quota::per_second(20)).unwrap();
        let wait = limiter.peek(&7).retry_after().unwrap();
        assert!(wait > Duration::ZERO && wait <= before, "{algorithm}: {wait:?}, before {before:?}");
        if algorithm.has_burst() {
            // The debt ends after 5 s, as before. Then 10 of 20 tokens are available.
            assert_eq!(wait, Duration::from_millis(4_550), "{algorithm}");
        }
    }
}

/// This is promise 7: a change of quota with a stale time grants nothing, for any allowed debt.
#[test]
fn a_change_of_quota_with_a_stale_time_grants_no_refill_twice() {
    let second = |n| Tick::ZERO + Duration::from_secs(n);
    let builder = SingleLimiter::builder(Quota::per_second(1).burst(10));
    let limiter = builder.max_debt(1_000).build().unwrap();
    assert!(limiter.at(second(500)).check_n(10).is_allowed());
    limiter.at(second(1)).set_quota(Quota::per_second(100).burst(10)).unwrap();
    assert!(!limiter.at(second(500)).check().is_allowed());
}

#[test]
fn a_debt_that_does_not_fit_is_refused_with_the_most_that_does() {
    for algorithm in Algorithm::PACKED {
        let build =
            |debt| SingleLimiter::builder(Quota::per_second(100)).algorithm(algorithm).max_debt(debt).build();
        let refused = build(u64::MAX).unwrap_err();
        let Refused::DebtTooLarge { debt: u64::MAX, most } = *refused.refused() else { panic!("{refused}") };
        assert!(build(most).is_ok() && build(most + 1).is_err(), "{algorithm}");
        let limiter = build(most).unwrap();
        for now in [Tick::ZERO, Tick::MAX] {
            // The word has room for the whole debt at any time.
            assert_eq!(
                limiter.at(now).force(u64::MAX),
                if now == Tick::ZERO {
                    100 + most
                } else {
                    limiter.reset();
                    limiter.at(now).force(u64::MAX)
                }
            );
            assert!(!limiter.at(now).check().is_allowed(), "{algorithm}");
        }
    }
    let log = SingleLimiter::builder(Quota::per_second(100)).algorithm(Algorithm::SlidingLog);
    let refused = log.max_debt(7).build().unwrap_err();
    assert_eq!(refused.setting(), "max_debt");
    assert!(refused.to_string().starts_with("max_debt 7 has no meaning for a sliding-log"));
}

#[test]
fn a_full_table_tells_what_it_could_not_charge() {
    for (when_full, charged) in [(WhenFull::Deny, 0), (WhenFull::Allow, 0), (WhenFull::Share, 15)] {
        let builder = Limiter::<u64>::builder(Quota::per_hour(10)).clock(ManualClock::new()).max_debt(5);
        let limiter = builder.max_keys(1).when_full(when_full).build().unwrap();
        assert!(limiter.check(&1).is_allowed());
        assert_eq!(limiter.force(&2, 99), charged, "{when_full:?}");
        assert_eq!(limiter.force(&1, 99), 14);
    }
    let builder = Limiter::<u64>::builder(Quota::per_hour(10)).clock(ManualClock::new());
    let limiter = builder.max_keys(1).when_full(WhenFull::Allow).build().unwrap();
    assert!(limiter.check(&1).is_allowed());
    let mut held = limiter.reserve(&2, 4).unwrap();
    assert!(held.record(6).is_ok(), "the policy admits whatever comes");
    assert_eq!(held.commit(6), Settlement { charged: 0, unpaid: 6 });
}

#[test]
fn several_limits_are_reserved_and_grow_all_or_none() {
    let (_, narrow) = single(50, 0);
    let (_, wide) = single(100, 20);
    assert_eq!(reserve_all([(&wide, 60), (&narrow, 51)]).unwrap_err().index(), Some(1));
    assert_eq!((wide.peek().remaining(), narrow.peek().remaining()), (100, 50));
    let mut held = reserve_all([(&wide, 60), (&narrow, 20)]).unwrap();
    assert_eq!(held.record(|_| 55).unwrap_err().index(), Some(1));
    assert_eq!((wide.peek().remaining(), narrow.peek().remaining()), (40, 30));
    assert!(held.record(|_| 45).is_ok());
    assert_eq!((wide.peek().remaining(), narrow.peek().remaining()), (40, 5));
    let settled = held.commit(|limit| [130, 40][limit]);
    assert_eq!(settled[0], Settlement { charged: 120, unpaid: 10 });
    assert_eq!(settled[1], Settlement { charged: 40, unpaid: 0 });
    assert_eq!((wide.peek().remaining(), narrow.peek().remaining()), (0, 10));
}

#[test]
fn an_owned_reservation_of_several_limits_may_go_to_another_thread() {
    let (clock, each) = (ManualClock::new(), Quota::per_hour(100));
    let users: Arc<Limiter<str>> = Arc::new(Limiter::builder(each).clock(&clock).build().unwrap());
    let all = Arc::new(SingleLimiter::builder(each).clock(&clock).build().unwrap());
    let user = users.for_key_owned("alice".to_owned());
    let limits: [(Shared, u64); 2] = [(Arc::new(user), 70), (Arc::<SingleLimiter>::clone(&all), 70)];
    let held = reserve_all(limits).unwrap();
    std::thread::spawn(move || drop(held.commit(|_| 10))).join().unwrap();
    assert_eq!((users.peek("alice").remaining(), all.peek().remaining()), (90, 90));
}

/// Reservations that are open at one time hold no more than the limit.
#[test]
fn open_reservations_together_never_hold_more_than_the_bound() {
    for (name, _, _, limit) in limits(40) {
        std::thread::scope(|scope| {
            let ask =
                || (0..50).filter_map(|_| Reservation::new(Arc::clone(&limit), 3).ok()).collect::<Vec<_>>();
            let threads: Vec<_> = (0..4).map(|_| scope.spawn(ask)).collect();
            let held: Vec<_> = threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect();
            assert_eq!(held.len(), 33, "{name}");
            assert_eq!(remaining(&limit), 1, "{name}");
            held.into_iter().for_each(Reservation::release);
        });
        assert_eq!(remaining(&limit), 100, "{name}");
    }
}

/// Makes random reservations on four threads at a single time. In the end, the number of missing
/// tokens is exactly the sum of the settlements.
fn sum_is_exact(rounds: u64) {
    let quota = Quota::per_day(100_000_000).burst(100_000_000);
    let limiter =
        Limiter::<u64>::builder(quota).clock(ManualClock::new()).max_debt(1_000_000).build().unwrap();
    let limiter = Arc::new(limiter);
    let spent = |seed: u64| {
        let mut state = seed;
        let mut next = |below: u64| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state % below
        };
        let mut spent = [0_u64; 3];
        for _ in 0..rounds {
            let key = next(3);
            let kept = &mut spent[usize::try_from(key).unwrap()];
            let estimate = next(9);
            let Ok(mut held) = limiter.reserve_owned(key, estimate) else { continue };
            for _ in 0..next(3) {
                let _ = held.record(next(5));
            }
            let (recorded, growth) = (held.recorded(), held.recorded().saturating_sub(estimate));
            *kept += match next(5) {
                0 => held.commit(next(20)).charged,
                1 => held.commit(recorded).charged,
                2 => {
                    held.release();
                    growth
                }
                3 => {
                    drop(held.release_on_drop());
                    recorded
                }
                _ => {
                    drop(held);
                    if recorded > 0 { recorded } else { estimate }
                }
            };
        }
        spent
    };
    let sums = std::thread::scope(|scope| {
        let spent = &spent;
        let threads = [3, 5, 7, 11].map(|seed| scope.spawn(move || spent(seed * 0x9e37_79b9_7f4a)));
        let each = threads.map(|thread| thread.join().unwrap());
        [0, 1, 2].map(|key| each.iter().map(|spent| spent[key]).sum::<u64>())
    });
    for (key, sum) in (0..3).zip(sums) {
        assert!(sum > rounds / 10, "key {key} was hardly used");
        assert_eq!(limiter.peek(&key).remaining(), 100_000_000 - sum, "key {key}");
    }
}

#[test]
fn a_million_random_reservations_on_four_threads_leave_the_exact_sum() {
    sum_is_exact(250_000);
}

/// This takes a few seconds in a release build: `cargo test --release --test limits -- --ignored`.
#[test]
#[ignore = "ten times as many, for release builds"]
fn ten_million_random_reservations_on_four_threads_leave_the_exact_sum() {
    sum_is_exact(2_500_000);
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// A reservation equals its charges. However it ends, the limit is in the same state as if
    /// exactly the settled amount had been charged.
    #[test]
    fn a_settled_reservation_is_the_charge_of_what_it_says(
        taken in 0..=100_u64, estimate in 0..=100_u64, records in prop::collection::vec(0..60_u64, 0..4),
        actual in 0..300_u64,
    ) {
        for ((name, _, _, limit), (_, _, _, plain)) in limits(40).into_iter().zip(limits(40)) {
            let mut parts = [Charge::new(&limit, taken)];
            prop_assert!(check_all(&mut parts).is_ok());
            let Ok(mut held) = Reservation::new(&limit, estimate) else {
                prop_assert_eq!(remaining(&limit), 100 - taken, "{}", name);
                continue;
            };
            for &tokens in &records {
                let before = (held.recorded(), remaining(&limit));
                if held.record(tokens).is_err() {
                    prop_assert_eq!((held.recorded(), remaining(&limit)), before, "{}", name);
                }
            }
            let growth = held.recorded().saturating_sub(estimate);
            let settled = held.commit(actual);
            prop_assert_eq!(settled.charged + settled.unpaid, actual.max(growth), "{}", name);
            prop_assert_eq!(plain.force(taken + settled.charged), taken + settled.charged);
            prop_assert_eq!(limit.peek_n(1), plain.peek_n(1), "{}", name);
            prop_assert_eq!(limit.force(u64::MAX), plain.force(u64::MAX), "{}", name);
        }
    }
}

#[test]
fn charges_that_were_made_together_become_one_reservation() {
    let ((_, tokens), (_, bytes)) = (single(100, 0), single(50, 0));
    let mut charges = [Charge::new(&tokens, 20), Charge::new(&bytes, 30)];
    assert!(check_all(&mut charges).is_ok());
    let charges = charges.map(|charge| *charge.decision().unwrap());
    let limits = [(&tokens, 20, charges[0]), (&bytes, 30, charges[1])];
    let held =
        limits.map(|(limit, estimate, charge)| Reservation::from_charge(limit, estimate, charge).unwrap());
    let mut held: tollgate::ReservationSet<_> = held.into_iter().collect();
    // The cost is first within the reservation, and then beyond it in one limit. The last cost is
    // refused by one limit, so it is recorded in neither.
    assert!(held.record(|limit| [20, 25][limit]).is_ok());
    assert_eq!((remaining(&tokens), remaining(&bytes)), (80, 20));
    assert!(held.record(|limit| [7, 5][limit]).is_ok());
    assert_eq!((remaining(&tokens), remaining(&bytes)), (73, 20));
    assert_eq!(held.record(|limit| [7, 21][limit]).unwrap_err().index(), Some(1));
    assert_eq!(held.iter().map(Reservation::recorded).collect::<Vec<_>>(), [27, 30]);
    held.commit(|limit| [17, 32][limit]);
    assert_eq!((remaining(&tokens), remaining(&bytes)), (83, 18));

    let denied = tokens.check_n(84);
    assert!(Reservation::from_charge(&tokens, 84, denied).is_err());
    assert_eq!(remaining(&tokens), 83);
}
