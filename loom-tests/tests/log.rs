//! Races on a sliding log: charges, the growth of the log, refunds, resets, evictions and quota
//! changes. Chunks have four or eight slots here (see `src/log/chunk.rs`).

mod model;

use loom::sync::Arc;
use model::{Atomics, Bound, Seen, explore};
use std::time::Duration;
use tollgate::{Algorithm, Chargeable, Decision, ManualClock, ModelLog, Quota, SingleLimiter, Tick};

const NOW: Tick = Tick::from_nanos(5_000_000_000);
const PERIOD: Duration = Duration::from_secs(1);

/// Creates a log with this many charges of one token.
fn log(limit: u64, charges: u64) -> Arc<SingleLimiter> {
    let builder = SingleLimiter::builder(Quota::new(limit, PERIOD));
    let log = builder.algorithm(Algorithm::SlidingLog).clock(ManualClock::new()).build().unwrap();
    for _ in 0..charges {
        assert!(log.at(NOW).check().is_allowed());
    }
    Arc::new(log)
}

/// Two threads charge a token each, while only one token is left.
fn last_token(charges: u64) {
    explore(Bound::Preemptions(3), Atomics::Touched, move |threads| {
        let log = log(charges + 1, charges);
        let other = threads.spawn({
            let log = Arc::clone(&log);
            move || log.at(NOW).check()
        });
        let mine = log.at(NOW).check();
        let other = other.join().unwrap();
        assert_ne!(mine.is_allowed(), other.is_allowed());
        for decision in [mine, other] {
            assert_eq!(decision.remaining(), 0);
            assert_eq!(decision.reset_after(), PERIOD);
        }
        assert!(!log.at(NOW).check().is_allowed());
        assert!(log.at(NOW + PERIOD).check_n(charges + 1).is_allowed());
    });
}

#[test]
fn first_charge_races_charge_for_the_last_token() {
    last_token(0);
}

#[test]
fn charge_races_charge_for_the_last_token() {
    last_token(1);
}

#[test]
fn growth_races_charge_for_the_last_token() {
    last_token(4);
}

#[test]
fn two_charges_at_one_instant_both_count() {
    for before in [0, 2, 3, 4] {
        explore(Bound::Preemptions(3), Atomics::Touched, move |threads| {
            let log = log(10, before);
            let other = threads.spawn({
                let log = Arc::clone(&log);
                move || log.at(NOW).check_n(2)
            });
            let mine = log.at(NOW).check_n(3);
            let other = other.join().unwrap();
            assert!(mine.is_allowed() && other.is_allowed());
            let mut remaining = [mine.remaining(), other.remaining()];
            remaining.sort_unstable();
            assert_eq!(remaining[0], 5 - before);
            assert!([7 - before, 8 - before].contains(&remaining[1]));
            assert_eq!(log.at(NOW).peek().remaining(), 5 - before);
        });
    }
}

/// A thread checks the log while another thread charges and may be stopped anywhere. The check
/// finds all of the charge or none of it.
#[test]
fn a_check_races_a_writer_and_finds_the_charge_whole_or_not_at_all() {
    for before in [1, 4] {
        let seen = Seen::default();
        let note = seen.clone();
        explore(Bound::Preemptions(3), Atomics::Touched, move |threads| {
            let log = log(before + 3, before);
            let writer = threads.spawn({
                let log = Arc::clone(&log);
                move || assert!(log.at(NOW + PERIOD / 2).check_n(2).is_allowed())
            });
            // The cost is too high whether the writer has charged or not, but the writer's charge
            // decides the time of the next admission.
            let denied = log.at(NOW + PERIOD / 2).check_n(before + 3);
            assert!(!denied.is_allowed());
            assert!([1, 3].contains(&denied.remaining()));
            assert_eq!(denied.retry_after(), Some(if denied.remaining() == 1 { PERIOD } else { PERIOD / 2 }));
            assert_eq!(denied.reset_after(), if denied.remaining() == 1 { PERIOD } else { PERIOD / 2 });
            note.note(denied.remaining());
            writer.join().unwrap();
            // The charge still counts at the last tick of the window.
            let last = Tick::from_nanos((NOW + PERIOD * 3 / 2).as_nanos() - 1);
            assert_eq!(log.at(last).peek().remaining(), before + 1);
        });
        seen.expect(&["1", "3"]);
    }
}

/// A thread reads the clock, stalls, and charges late. Its charge counts at the time that the key
/// has reached.
#[test]
fn stale_charge_races_charge_and_is_counted_late() {
    explore(Bound::Preemptions(3), Atomics::Touched, move |threads| {
        let log = log(2, 1);
        let stale = threads.spawn({
            let log = Arc::clone(&log);
            move || log.at(NOW).check()
        });
        let later = NOW + PERIOD;
        let mine = log.at(later).check();
        let stale = stale.join().unwrap();
        // The first charge has left the window for threads that charge after mine.
        assert!(mine.is_allowed() && stale.is_allowed());
        let counted = stale.at() + stale.reset_after();
        let remaining = log.at(later).peek().remaining();
        assert_eq!(remaining, if counted > later { 0 } else { 1 });
    });
}

/// The charges are in a new window, so they retire the old chunks.
#[test]
fn retirement_races_charge_and_loses_no_token() {
    explore(Bound::Preemptions(2), Atomics::Touched, move |threads| {
        let log = log(12, 12);
        let later = NOW + PERIOD;
        let other = threads.spawn({
            let log = Arc::clone(&log);
            move || log.at(later).check_n(7).charged()
        });
        let charged = log.at(later).check_n(7).charged() + other.join().unwrap();
        assert_eq!(charged, 7);
        assert_eq!(log.at(later).peek().remaining(), 5);
    });
}

#[test]
fn refund_races_charge_and_both_count() {
    for before in [1, 3, 4] {
        let seen = Seen::default();
        let note = seen.clone();
        explore(Bound::Preemptions(3), Atomics::Touched, move |threads| {
            let log = log(before + 2, before);
            let first: Decision = log.at(NOW).check_n(2);
            let refunder = threads.spawn({
                let log = Arc::clone(&log);
                move || log.at(NOW).refund_n(&first, 1)
            });
            let mine = log.at(NOW).check().charged();
            refunder.join().unwrap();
            note.note(mine);
            assert_eq!(log.at(NOW).peek().remaining(), 1 - mine);
            assert_eq!(log.at(NOW).check().charged(), 1 - mine);
        });
        seen.expect(&["0", "1"]);
    }
}

/// Two charges with the same time are given back concurrently, and one of them twice. No more
/// tokens are given back in total than were taken.
#[test]
fn refund_races_refund_and_gives_back_no_more_than_was_taken() {
    explore(Bound::Preemptions(2), Atomics::Touched, move |threads| {
        let log = log(4, 0);
        let (first, second) = (log.at(NOW).check(), log.at(NOW).check());
        let other = NOW + Duration::from_nanos(1);
        assert!(log.at(other).check_n(2).is_allowed());
        let refunder = threads.spawn({
            let log = Arc::clone(&log);
            move || {
                log.at(NOW).refund_n(&first, 1);
                log.at(NOW).refund_n(&first, 1);
            }
        });
        log.at(NOW).refund_n(&second, 1);
        refunder.join().unwrap();
        assert_eq!(log.at(other).peek().remaining(), 2);
    });
}

/// A reader that runs concurrently with a refund never sees more room than there is.
#[test]
fn refund_races_a_check_that_never_sees_more_room_than_there_is() {
    explore(Bound::Preemptions(2), Atomics::Touched, move |threads| {
        let log = log(8, 1);
        let half = NOW + PERIOD / 2;
        let charge = log.at(half).check_n(4);
        assert!(log.at(half + Duration::from_nanos(1)).check_n(3).is_allowed());
        let refunder = threads.spawn({
            let log = Arc::clone(&log);
            move || log.at(half).refund_n(&charge, 3)
        });
        // The first charge has left the window. Three tokens are given back meanwhile.
        let check = log.at(NOW + PERIOD).check_n(4);
        assert!([0, 1, 4].contains(&check.remaining()), "{check:?}");
        refunder.join().unwrap();
        assert_eq!(log.at(NOW + PERIOD).peek().remaining(), 4 - check.charged());
    });
}

#[test]
fn reset_races_charge_and_comes_before_or_after_it() {
    for before in [1, 3, 4] {
        let seen = Seen::default();
        let note = seen.clone();
        explore(Bound::Preemptions(3), Atomics::Touched, move |threads| {
            let log = log(before + 1, before);
            let resetter = threads.spawn({
                let log = Arc::clone(&log);
                move || log.reset()
            });
            assert!(log.at(NOW).check().is_allowed());
            resetter.join().unwrap();
            let remaining = log.at(NOW).peek().remaining();
            assert_eq!(log.at(NOW).check_n(remaining).remaining(), 0);
            assert!(!log.at(NOW).check().is_allowed());
            note.note(before + 1 - remaining);
        });
        seen.expect(&["0", "1"]);
    }
}

#[test]
fn reset_races_reset_and_charges_after_them_count() {
    explore(Bound::Preemptions(3), Atomics::Touched, move |threads| {
        let log = log(2, 2);
        let resetter = threads.spawn({
            let log = Arc::clone(&log);
            move || log.reset()
        });
        log.reset();
        resetter.join().unwrap();
        assert_eq!(log.at(NOW).check().remaining(), 1);
    });
}

#[test]
fn three_charges_race_for_two_tokens_of_a_growing_log() {
    explore(Bound::Preemptions(2), Atomics::Plain, move |threads| {
        let log = log(5, 3);
        let others: Vec<_> = (0..2)
            .map(|_| {
                let log = Arc::clone(&log);
                threads.spawn(move || log.at(NOW).check().charged())
            })
            .collect();
        let mut admitted = log.at(NOW).check().charged();
        admitted += others.into_iter().map(|other| other.join().unwrap()).sum::<u64>();
        assert_eq!(admitted, 2);
    });
}

/// A thread that sees an admission sees all admissions before it, made by any thread. The first two
/// threads are not joined.
#[test]
fn an_admission_shows_all_before_it() {
    let seen = Seen::default();
    let note = seen.clone();
    explore(Bound::Preemptions(1), Atomics::Plain, move |threads| {
        let log = log(10, 1);
        let after = |n| NOW + Duration::from_nanos(n);
        let charge = |n| {
            let log = Arc::clone(&log);
            threads.spawn(move || log.at(after(n)).check().remaining())
        };
        let (first, second, third) = (charge(1), charge(2), charge(3));
        let third = third.join().unwrap();
        // The third thread has not read the first thread's slot, but the search of this peek reads
        // it.
        let shown = log.at(after(1) + PERIOD).peek().remaining();
        if [first.join().unwrap(), second.join().unwrap(), third] == [8, 7, 6] {
            // Two of the four admissions have left the window.
            note.note(shown);
        }
    });
    seen.expect(&["8"]);
}

/// One charge fits the row. The other is too late for the row's time field and closes the row. The
/// two charges see each other.
#[test]
fn close_races_charge_and_never_admits_twice() {
    let seen = Seen::default();
    let note = seen.clone();
    explore(Bound::Preemptions(3), Atomics::Touched, move |threads| {
        const HOUR: Duration = Duration::from_secs(3_600);
        let builder = SingleLimiter::builder(Quota::per_day(1_000_000));
        let log = builder.algorithm(Algorithm::SlidingLog).clock(ManualClock::new()).build().unwrap();
        let log = Arc::new(log);
        assert!(log.at(Tick::ZERO).check().is_allowed());
        let other = threads.spawn({
            let log = Arc::clone(&log);
            move || log.at(Tick::ZERO + 2 * HOUR).check_n(600_000).is_allowed()
        });
        let mine = log.at(Tick::ZERO + 3 * HOUR).check_n(600_000).is_allowed();
        assert_ne!(mine, other.join().unwrap());
        assert_eq!(log.at(Tick::ZERO + 3 * HOUR).peek().remaining(), 399_999);
        note.note(mine);
    });
    seen.expect(&["false", "true"]);
}

/// Charges with the same time are interchangeable, so a refund may take tokens from the other
/// charge. Both charges are still given back.
#[test]
fn charge_and_refund_race_the_same_and_lose_no_token() {
    explore(Bound::Preemptions(2), Atomics::Touched, move |threads| {
        let log = log(4, 0);
        let there_and_back = |log: Arc<SingleLimiter>| {
            let charge = log.at(NOW).check();
            assert!(charge.is_allowed());
            log.at(NOW).refund_n(&charge, 1);
        };
        let other = threads.spawn({
            let log = Arc::clone(&log);
            move || there_and_back(log)
        });
        there_and_back(Arc::clone(&log));
        other.join().unwrap();
        assert_eq!(log.at(NOW).peek().remaining(), 4);
    });
}

/// The exploration bounds for races with a quota change, which have many accesses.
const OF_CHANGES: [(Bound, Atomics); 2] =
    [(Bound::Preemptions(1), Atomics::Touched), (Bound::Preemptions(2), Atomics::Plain)];

/// Creates a log that can be sealed, and charges it this many times, one token each.
fn sealable(limit: u64, charges: u64) -> Arc<ModelLog> {
    let log = ModelLog::new(Quota::new(limit, PERIOD)).unwrap();
    for _ in 0..charges {
        assert!(log.check_at(1, NOW).unwrap().is_allowed());
    }
    Arc::new(log)
}

/// A charge happens before the change, or is decided under the new quota.
#[test]
fn change_races_charge_and_loses_none() {
    // The next slot is empty, or the row is full, so that both threads make the log grow.
    for (before, (bound, atomics)) in [1, 3, 4].into_iter().flat_map(|n| OF_CHANGES.map(|by| (n, by))) {
        let seen = Seen::default();
        let note = seen.clone();
        explore(bound, atomics, move |threads| {
            let log = sealable(9, before);
            let changer = threads.spawn({
                let log = Arc::clone(&log);
                move || log.replace(Quota::new(8, PERIOD), NOW).unwrap()
            });
            let charge = log.check_at(2, NOW).unwrap();
            changer.join().unwrap();
            assert_eq!(charge.charged(), 2);
            assert_eq!(log.peek_at(1, NOW).unwrap().remaining(), 8 - before - 2);
            note.note(charge.capacity());
        });
        seen.expect(&["8", "9"]);
    }
}

/// A change seals an empty log, unless the first charge begins the log before the change.
#[test]
fn change_races_the_first_charge_and_one_is_refused() {
    let seen = Seen::default();
    let note = seen.clone();
    explore(Bound::Preemptions(3), Atomics::Plain, move |threads| {
        let log = sealable(4, 0);
        let changer = threads.spawn({
            let log = Arc::clone(&log);
            move || log.replace(Quota::new(3, PERIOD), NOW).unwrap()
        });
        let charged = log.check_at(2, NOW).map(|decision| decision.charged());
        changer.join().unwrap();
        assert_eq!(log.is_sealed(), charged.is_none());
        assert_eq!(log.peek_at(1, NOW).map(|peek| peek.remaining()), charged.map(|charged| 3 - charged));
        note.note(charged);
    });
    seen.expect(&["None", "Some(2)"]);
}

/// A log is either evicted before its first charge, or keeps that charge. The evicting thread may
/// have found the log empty before the charge.
#[test]
fn eviction_races_the_first_charge_and_one_is_refused() {
    let seen = Seen::default();
    let note = seen.clone();
    explore(Bound::Exhaustive, Atomics::Touched, move |threads| {
        let log = sealable(4, 0);
        let evictor = threads.spawn({
            let log = Arc::clone(&log);
            move || log.seal_if_idle(NOW)
        });
        let charged = log.check_at(2, NOW).is_some_and(|decision| decision.is_allowed());
        let sealed = evictor.join().unwrap();
        assert_ne!(sealed, charged, "a charge is lost, or a log that is idle stays");
        assert_eq!(log.is_sealed(), sealed);
        note.note(sealed);
    });
    seen.expect(&["false", "true"]);
}

/// The row of four slots is full when both threads begin, or one charge fills it.
#[test]
fn change_races_growth_and_each_charge_counts_once() {
    for before in [3, 4, 7] {
        let seen = Seen::default();
        let note = seen.clone();
        explore(Bound::Preemptions(2), Atomics::Plain, move |threads| {
            let log = sealable(12, before);
            let changer = threads.spawn({
                let log = Arc::clone(&log);
                move || log.replace(Quota::new(11, PERIOD), NOW).unwrap()
            });
            let [first, second] = [(); 2].map(|()| log.check_at(1, NOW).unwrap());
            changer.join().unwrap();
            // Once a charge was decided under the new quota, no charge is decided under the old
            // one.
            assert!(first.capacity() >= second.capacity());
            assert_eq!(first.charged() + second.charged(), 2);
            assert_eq!(log.peek_at(1, NOW).unwrap().remaining(), 11 - before - 2);
            note.note(first.capacity() + second.capacity());
        });
        seen.expect(&["22", "23", "24"]);
    }
}

#[test]
fn change_races_change_and_what_is_taken_stays_taken() {
    for before in [1, 4] {
        let seen = Seen::default();
        let note = seen.clone();
        explore(Bound::Preemptions(2), Atomics::Plain, move |threads| {
            let log = sealable(5, before);
            let changer = threads.spawn({
                let log = Arc::clone(&log);
                move || log.replace(Quota::new(6, 2 * PERIOD), NOW).unwrap()
            });
            log.replace(Quota::new(7, PERIOD / 2), NOW).unwrap();
            changer.join().unwrap();
            let peek = log.peek_at(1, NOW).unwrap();
            assert_eq!(peek.remaining(), peek.capacity() - before);
            note.note(peek.capacity());
        });
        seen.expect(&["6", "7"]);
    }
}

#[test]
fn change_races_reset_and_the_reset_counts() {
    for (before, (bound, atomics)) in [1, 4].into_iter().flat_map(|n| OF_CHANGES.map(|by| (n, by))) {
        explore(bound, atomics, move |threads| {
            let log = sealable(before, before);
            let changer = threads.spawn({
                let log = Arc::clone(&log);
                move || log.replace(Quota::new(before, 2 * PERIOD), NOW).unwrap()
            });
            log.reset().unwrap();
            changer.join().unwrap();
            assert_eq!(log.check_at(before, NOW).unwrap().remaining(), 0);
            assert!(!log.check_at(1, NOW + PERIOD).unwrap().is_allowed());
        });
    }
}

/// The charges have left the old window, but not the new one. An eviction under the old quota
/// happens before the change, and nothing is decided under the new quota based on evicted charges.
#[test]
fn change_races_eviction_and_one_of_them_comes_first() {
    for before in [1, 5] {
        let seen = Seen::default();
        let note = seen.clone();
        explore(Bound::Preemptions(2), Atomics::Plain, move |threads| {
            let log = sealable(5, before);
            let evictor = threads.spawn({
                let log = Arc::clone(&log);
                move || log.seal_if_idle(NOW + PERIOD)
            });
            log.replace(Quota::new(5, 10 * PERIOD), NOW).unwrap();
            let decision = log.check_at(5, NOW + PERIOD);
            let is_sealed = evictor.join().unwrap();
            assert_eq!(is_sealed, decision.is_none());
            assert!(decision.is_none_or(|decision| !decision.is_allowed()));
            note.note(is_sealed);
        });
        seen.expect(&["false", "true"]);
    }
}

/// The charges have left the old window, but not the new one. A charge under the old quota retires
/// them, and happens before all decisions under the new quota.
#[test]
fn change_to_a_longer_period_races_charge_and_one_of_them_comes_first() {
    let seen = Seen::default();
    let note = seen.clone();
    explore(Bound::Preemptions(2), Atomics::Plain, move |threads| {
        let log = sealable(5, 4);
        let charger = threads.spawn({
            let log = Arc::clone(&log);
            move || log.check_at(4, NOW + PERIOD).unwrap()
        });
        log.replace(Quota::new(5, 10 * PERIOD), NOW).unwrap();
        let mine = log.check_at(1, NOW + PERIOD).unwrap().charged();
        let other = charger.join().unwrap();
        // A charge under the old quota does not find charges under the new quota.
        assert!(if other.is_allowed() { other.remaining() == 1 } else { mine == 1 });
        // If my check has found the charges that the other was about to retire, it may be denied
        // although there is room.
        assert_eq!(log.peek_at(1, NOW + PERIOD).unwrap().remaining(), 1 - mine);
        note.note(other.charged());
    });
    seen.expect(&["0", "4"]);
}

/// Eviction: a key is forgotten only if it is idle, and no admitted charge is forgotten with the
/// key.
#[test]
fn seal_of_an_idle_log_races_charge_and_loses_none() {
    // With five or more charges, the sealed log keeps one small chunk.
    for before in [1, 4, 5] {
        let seen = Seen::default();
        let note = seen.clone();
        explore(Bound::Preemptions(2), Atomics::Touched, move |threads| {
            let log = sealable(5, before);
            let later = NOW + PERIOD;
            let evictor = threads.spawn({
                let log = Arc::clone(&log);
                move || log.seal_if_idle(later)
            });
            let charged = log.check_at(5, later).map(|decision| decision.charged());
            let is_sealed = evictor.join().unwrap();
            assert_eq!(is_sealed, log.is_sealed());
            assert_eq!(is_sealed, charged.is_none());
            assert_ne!(charged, Some(0));
            if !is_sealed {
                assert!(!log.check_at(1, later).unwrap().is_allowed());
            }
            note.note(is_sealed);
        });
        seen.expect(&["false", "true"]);
    }
}

/// One thread raises the limit while another charges under the old one.
#[test]
fn change_of_quota_races_charge_and_never_grants_more_than_the_larger() {
    for before in [1, 2, 4] {
        let seen = Seen::default();
        let note = seen.clone();
        explore(Bound::Preemptions(2), Atomics::Plain, move |threads| {
            let log = sealable(before + 1, before);
            let changer = threads.spawn({
                let log = Arc::clone(&log);
                move || {
                    log.replace(Quota::new(before + 2, PERIOD), NOW).unwrap();
                    log.check_at(1, NOW).unwrap().charged()
                }
            });
            let mine = log.check_at(1, NOW).unwrap();
            note.note(mine.capacity() - before);
            assert_eq!(mine.charged() + changer.join().unwrap(), 2);
            assert!(!log.check_at(1, NOW).unwrap().is_allowed());
        });
        seen.expect(&["1", "2"]);
    }
}

/// A refund during a quota change is never lost, and never counted twice.
#[test]
fn refund_races_a_change_of_quota_and_counts_once() {
    for (bound, atomics) in OF_CHANGES {
        explore(bound, atomics, move |threads| {
            let log = sealable(4, 1);
            let charge = log.check_at(3, NOW).unwrap();
            let refunder = threads.spawn({
                let log = Arc::clone(&log);
                move || log.refund(&charge, 2).unwrap()
            });
            log.replace(Quota::new(4, 2 * PERIOD), NOW).unwrap();
            refunder.join().unwrap();
            assert_eq!(log.peek_at(1, NOW).unwrap().remaining(), 2);
        });
    }
}
