//! The words of shared limits: leased tokens, and counts that are reported to the store.
//!
//! These are the words of `crates/tollgate-redis`, compiled for the model checker by
//! `loom-tests/shared`. There is no store: when a thread obtains the right to query the store, it
//! acts immediately, as if the store had answered.

mod model;

use loom::sync::Arc;
use model::{Atomics, Bound, Explored, Seen, explore};
use tollgate_redis_words::count::Count;
use tollgate_redis_words::pool::TokenPool;
use tollgate_redis_words::recovery::Recovery;

/// Two leases of this many tokens each, the first until tick 10, the second until tick 20.
fn two_leases(tokens: u64) -> Arc<TokenPool> {
    let pool = Arc::new(TokenPool::default());
    pool.fill(0, tokens, 10);
    pool.fill(1, tokens, 20);
    pool
}

/// Two threads take tokens from two leases. Each lease has fewer tokens than the threads request.
#[test]
fn spends_race_and_no_token_is_spent_twice() {
    let seen = Seen::default();
    let note = seen.clone();
    explore(Bound::Preemptions(2), Atomics::Touched, move |threads| {
        let pool = two_leases(3);
        let spenders = [(), ()].map(|()| {
            let pool = Arc::clone(&pool);
            threads
                .spawn(move || [2, 1].map(|cost| pool.spend(cost, 5).map_or(0, |_| cost)).iter().sum::<u64>())
        });
        let spent: u64 = spenders.into_iter().map(|spender| spender.join().unwrap()).sum();
        assert_eq!(spent + pool.held(5), 6);
        note.note(spent);
    });
    // Two of the three tokens of each lease are spent together, and the third tokens one by one.
    seen.expect(&["6"]);
}

/// A lease of one token is closed and replaced while a token is spent and given back. Each token is
/// spent, was unspent when its lease was closed, or is in the new lease, but the token of the old
/// lease is never in the new one.
fn fill_and_give_back(bound: Bound, atomics: Atomics, [ends, next]: [u64; 2]) -> Explored {
    let seen = Seen::default();
    let note = seen.clone();
    let explored = explore(bound, atomics, move |threads| {
        let pool = Arc::new(TokenPool::default());
        pool.fill(0, 1, ends);
        let spender = threads.spawn({
            let pool = Arc::clone(&pool);
            move || {
                let is_spent = pool.spend(1, 7).is_some();
                is_spent && !pool.give_back(1, 7, 7)
            }
        });
        let filler = threads.spawn({
            let pool = Arc::clone(&pool);
            move || {
                assert!(pool.ask());
                // The thread read the clock before the token was spent, and closed the lease
                // afterwards.
                let times = [5, 8].map(std::cell::Cell::new);
                let clock = || times[0].replace(times[1].get());
                let [closed, _] = pool.close(true, clock);
                pool.fill(0, 1, next);
                pool.asked();
                closed.unwrap().unspent
            }
        });
        let is_spent = spender.join().unwrap();
        let unspent = filler.join().unwrap();
        let held = pool.held(8);
        assert_eq!(u64::from(is_spent) + unspent + held, 2, "a token is lost or counted twice");
        assert!(held <= 1, "a token is given back to another lease");
        note.note((is_spent, unspent, held));
    });
    // The token was given back before its lease was closed, or it was spent from either lease.
    seen.expect(&["(false, 1, 1)", "(true, 0, 1)", "(true, 1, 0)"]);
    explored
}

#[test]
fn fill_races_give_back_and_no_token_outlives_its_lease() {
    // The next lease ends later, or both end at the same time.
    for ends in [[10, 20], [20, 20]] {
        fill_and_give_back(Bound::Exhaustive, Atomics::Plain, ends);
        fill_and_give_back(Bound::Preemptions(3), Atomics::Touched, ends);
    }
}

/// The first lease has one token and ends before the second one. It is closed, and not replaced,
/// while its token is spent and given back. The token is never in the second lease.
#[test]
fn close_races_give_back_and_no_token_moves_to_the_other_lease() {
    for (bound, atomics) in [(Bound::Exhaustive, Atomics::Plain), (Bound::Preemptions(3), Atomics::Touched)] {
        let seen = Seen::default();
        let note = seen.clone();
        explore(bound, atomics, move |threads| {
            let pool = two_leases(1);
            let spender = threads.spawn({
                let pool = Arc::clone(&pool);
                move || {
                    assert!(pool.spend(1, 7).is_some());
                    pool.give_back(1, 7, 7)
                }
            });
            let closer = threads.spawn({
                let pool = Arc::clone(&pool);
                move || {
                    assert!(pool.ask());
                    // The thread reads the clock before the token is spent, and closes the lease
                    // afterwards. It closes a lease only if the lease has no tokens.
                    let times = [5, 8].map(std::cell::Cell::new);
                    let [closed, other] = pool.close(false, || times[0].replace(times[1].get()));
                    pool.asked();
                    assert!(other.is_none());
                    closed.is_some()
                }
            });
            let is_back = spender.join().unwrap();
            let is_closed = closer.join().unwrap();
            assert!(!(is_back && is_closed), "the store was told that this token is spent");
            assert_eq!((pool.held(8), pool.held(15)), (1 + u64::from(is_back), 1));
            note.note((is_back, is_closed));
        });
        // The token was given back before the time of the closing, or it stayed spent.
        seen.expect(&["(false, false)", "(false, true)", "(true, false)"]);
    }
}

/// Two threads have the right to query the store one after the other, or only one of them has it.
#[test]
fn askers_race_and_one_at_a_time_asks() {
    let seen = Seen::default();
    let note = seen.clone();
    explore(Bound::Exhaustive, Atomics::Plain, move |threads| {
        let pool = Arc::new(TokenPool::default());
        let askers = [10, 20].map(|until| {
            let pool = Arc::clone(&pool);
            threads.spawn(move || {
                let may = pool.ask();
                if may {
                    let place = pool.close(false, || 1).iter().position(Option::is_some).unwrap();
                    pool.fill(place, 3, until);
                    pool.asked();
                }
                u64::from(may)
            })
        });
        let asked: u64 = askers.into_iter().map(|asker| asker.join().unwrap()).sum();
        assert_eq!(pool.held(1), 3 * asked);
        note.note(asked);
    });
    seen.expect(&["1", "2"]);
}

/// A task with the right to report to the store. It checks once more after giving back the right.
/// Returns the last reported number.
fn tell(count: &Count) -> u64 {
    let mut told = 0;
    while count.push() {
        told = count.send();
        count.confirm(told, 0);
        count.pushed();
        if count.fields().unsynced() == 0 {
            break;
        }
    }
    told
}

/// Two threads admit a request, and each ensures that the store receives a report, from itself or
/// from the other thread.
fn admit_and_tell(bound: Bound, atomics: Atomics) -> Explored {
    let seen = Seen::default();
    let note = seen.clone();
    let explored = explore(bound, atomics, move |threads| {
        let count = Arc::new(Count::default());
        let tellers = [(), ()].map(|()| {
            let count = Arc::clone(&count);
            threads.spawn(move || {
                assert!(count.admit(1, 10, 10).is_ok());
                tell(&count)
            })
        });
        let told = tellers.map(|teller| teller.join().unwrap());
        let fields = count.fields();
        assert_eq!((fields.unsynced(), fields.total, count.confirmed()), (0, 2, 2), "{told:?}");
        assert_eq!(told.iter().max(), Some(&2));
        note.note(told.iter().min());
    });
    // The other thread reported nothing, its own token earlier, or the same number once more.
    seen.expect(&["Some(0)", "Some(1)", "Some(2)"]);
    explored
}

#[test]
fn tellers_race_and_the_store_is_told_all() {
    admit_and_tell(Bound::Preemptions(3), Atomics::Plain);
    admit_and_tell(Bound::Preemptions(2), Atomics::Touched);
}

/// Under a limit of two, one of three threads is too late, no matter which thread reports to the
/// store meanwhile.
#[test]
fn admissions_race_and_none_is_beyond_the_limit() {
    explore(Bound::Preemptions(2), Atomics::Touched, |threads| {
        let count = Arc::new(Count::default());
        // An admission of another machine.
        count.note_others(1);
        let admitters = [(), ()].map(|()| {
            let count = Arc::clone(&count);
            threads.spawn(move || u64::from(count.admit(1, 2, 10).is_ok()))
        });
        assert!(count.push());
        let told = count.send();
        count.confirm(told, 1);
        count.pushed();
        let admitted: u64 = admitters.into_iter().map(|admitter| admitter.join().unwrap()).sum();
        let fields = count.fields();
        assert_eq!((admitted, fields.present()), (1, 2));
    });
}

/// Tokens of other machines are received twice at the same time: in an answer, and separately from
/// it. Their tokens and ours count once.
#[test]
fn learning_races_confirming_and_counts_no_token_twice() {
    explore(Bound::Preemptions(3), Atomics::Touched, |threads| {
        let count = Arc::new(Count::default());
        assert!(count.admit(2, 10, 10).is_ok());
        let learner = threads.spawn({
            let count = Arc::clone(&count);
            move || count.note_others(3)
        });
        assert!(count.push());
        let told = count.send();
        count.confirm(told, 3);
        count.pushed();
        learner.join().unwrap();
        assert_eq!(count.fields().present(), 5);
    });
}

/// Two threads receive a reply over a new connection. Neither treats the reply as a confirmation,
/// whichever thread notices the connection first.
#[test]
fn connections_are_noticed_with_the_time_to_recover() {
    let seen = Seen::default();
    let note = seen.clone();
    explore(Bound::Exhaustive, Atomics::Plain, move |threads| {
        let recovery = Arc::new(Recovery::default());
        assert!(!recovery.notice(1, 5));
        let hearers = [(), ()].map(|()| {
            let recovery = Arc::clone(&recovery);
            threads.spawn(move || {
                let is_another = recovery.notice(2, 10);
                assert!(recovery.is_on(11));
                u64::from(is_another)
            })
        });
        let noticed: u64 = hearers.into_iter().map(|hearer| hearer.join().unwrap()).sum();
        note.note(noticed);
    });
    // Both threads may check before either has recorded the connection.
    seen.expect(&["1", "2"]);
}
