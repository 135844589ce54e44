//! Races of a turnover with charges, insertions, refunds and other turnovers. The first array has
//! two places in one line, the next array has four places in two lines, and so on: see
//! `FIRST` of `src/growth.rs` and `CHUNK`.

mod model;

use loom::sync::Arc;
use model::{Atomics, Bound, Explored, Seen, explore};
use std::time::Duration;
use tollgate::{DecisionSource, Limiter, ManualClock, Quota, Tick, WhenFull};

const NOW: Tick = Tick::from_nanos(5_000_000_000);
/// A time at which keys that were charged at `NOW` are idle.
const LATER: Tick = Tick::from_nanos(9_000_000_000);

/// With this grace, a turnover at one of these times is not followed by another at the same time.
const GRACE: Duration = Duration::from_nanos(1);

type Gate = Arc<Limiter<u64>>;

fn limiter(max_keys: usize, per_second: u64) -> Gate {
    let builder = Limiter::builder(Quota::per_second(per_second)).max_keys(max_keys);
    Arc::new(builder.grace(GRACE).when_full(WhenFull::Deny).clock(ManualClock::new()).build().unwrap())
}

/// Creates a limiter with the keys 1 to `keys`, each charged one token at `NOW`.
fn with_keys(max_keys: usize, per_second: u64, keys: u64) -> Gate {
    let gate = limiter(max_keys, per_second);
    for key in 1..=keys {
        assert!(gate.at(NOW).check(&key).is_allowed());
    }
    gate
}

/// The first of two new keys finds no place and links the next array. The second turns the first
/// array over.
fn insert(gate: &Gate, keys: [u64; 2], now: Tick) {
    for key in keys {
        assert!(gate.at(now).check(&key).is_allowed());
    }
}

/// Checks after the race that `charged` of the key's `limit` tokens are taken.
#[track_caller]
fn holds(gate: &Gate, key: u64, limit: u64, charged: u64, now: Tick) {
    assert_eq!(gate.at(now).peek(&key).remaining(), limit - charged, "key {key}");
}

/// A third key makes the array turn over, while a key that must be moved is charged.
fn turnover_and_charge(bound: Bound, atomics: Atomics) -> Explored {
    explore(bound, atomics, |threads| {
        let gate = with_keys(8, 2, 2);
        let other = threads.spawn({
            let gate = Arc::clone(&gate);
            move || insert(&gate, [3, 4], NOW)
        });
        assert!(gate.at(NOW).check(&1).is_allowed());
        other.join().unwrap();
        holds(&gate, 1, 2, 2, NOW);
        holds(&gate, 2, 2, 1, NOW);
        holds(&gate, 3, 2, 1, NOW);
        assert_eq!(gate.len(), 4);
    })
}

#[test]
fn turnover_races_charge_never_admits_twice() {
    turnover_and_charge(Bound::Preemptions(3), Atomics::Touched);
}

/// Two threads turn over the same array, and a third charges a key that is moved.
fn two_helpers(bound: Bound, atomics: Atomics) -> Explored {
    explore(bound, atomics, |threads| {
        let gate = with_keys(8, 1, 2);
        let helpers = [3, 4].map(|key| {
            let gate = Arc::clone(&gate);
            threads.spawn(move || assert!(gate.at(NOW).check(&key).is_allowed()))
        });
        assert!(!gate.at(NOW).check(&1).is_allowed());
        for helper in helpers {
            helper.join().unwrap();
        }
        for key in 1..=4 {
            holds(&gate, key, 1, 1, NOW);
        }
        assert_eq!(gate.len(), 4);
    })
}

#[test]
fn charge_races_move_with_two_helpers() {
    two_helpers(Bound::Preemptions(1), Atomics::Touched);
    two_helpers(Bound::Preemptions(2), Atomics::Plain);
}

/// Two threads insert two new keys. The second key does not find a place and begins the turnover.
fn inserts_and_seals(bound: Bound, atomics: Atomics) -> Explored {
    explore(bound, atomics, |threads| {
        let gate = with_keys(8, 1, 1);
        let other = threads.spawn({
            let gate = Arc::clone(&gate);
            move || insert(&gate, [3, 4], NOW)
        });
        assert!(gate.at(NOW).check(&2).is_allowed());
        other.join().unwrap();
        for key in 1..=4 {
            holds(&gate, key, 1, 1, NOW);
        }
    })
}

#[test]
fn insert_races_seal() {
    inserts_and_seals(Bound::Preemptions(2), Atomics::Plain);
}

#[test]
#[ignore = "deep: make loom-deep"]
fn insert_races_seal_deeply() {
    inserts_and_seals(Bound::Preemptions(2), Atomics::Touched);
}

/// A batch with a new key and a known key runs while another new key causes a turnover of the
/// array. The batch has looked up both keys in that array before it charges the first key. It may
/// turn the array over itself before it charges the second key.
#[test]
fn turnover_races_batch_and_each_key_is_charged_once() {
    explore(Bound::Preemptions(1), Atomics::Touched, |threads| {
        let gate = limiter(8, 2);
        // These checks use the time of the clock, as a batch does.
        assert!([1, 2].iter().all(|key| gate.check(key).is_allowed()));
        let other = threads.spawn({
            let gate = Arc::clone(&gate);
            move || assert!(gate.check(&3).is_allowed())
        });
        let mut decisions = Vec::new();
        gate.check_many(&[4, 1], &mut decisions);
        assert!(decisions.iter().all(|decision| decision.is_allowed()));
        other.join().unwrap();
        for (key, charged) in [(1, 2), (2, 1), (3, 1), (4, 1)] {
            holds(&gate, key, 2, charged, Tick::ZERO);
        }
        assert_eq!(gate.len(), 4);
    });
}

/// Two threads insert the same new key, while a turnover must make room for it.
fn one_key_twice(bound: Bound, atomics: Atomics) -> Explored {
    explore(bound, atomics, |threads| {
        let gate = with_keys(8, 1, 3);
        let other = threads.spawn({
            let gate = Arc::clone(&gate);
            move || gate.at(NOW).check(&4).charged()
        });
        let charged = gate.at(NOW).check(&4).charged() + other.join().unwrap();
        assert_eq!(charged, 1);
        for key in 1..=4 {
            holds(&gate, key, 1, 1, NOW);
        }
    })
}

#[test]
fn insert_races_insert_of_one_key_in_a_turnover() {
    one_key_twice(Bound::Preemptions(1), Atomics::Plain);
}

#[test]
#[ignore = "deep: make loom-deep"]
fn insert_races_insert_of_one_key_in_a_turnover_deeply() {
    one_key_twice(Bound::Preemptions(2), Atomics::Plain);
}

/// An idle key is evicted while it returns. It gets one burst, not two.
fn eviction_and_charge(bound: Bound, atomics: Atomics) -> Seen {
    let seen = Seen::default();
    let note = seen.clone();
    explore(bound, atomics, move |threads| {
        let gate = with_keys(8, 1, 2);
        let other = threads.spawn({
            let gate = Arc::clone(&gate);
            move || insert(&gate, [3, 4], LATER)
        });
        assert!(gate.at(LATER).check(&1).is_allowed());
        other.join().unwrap();
        holds(&gate, 1, 1, 1, LATER);
        holds(&gate, 2, 1, 0, LATER);
        holds(&gate, 3, 1, 1, LATER);
        note.note(gate.len());
    });
    seen
}

#[test]
fn eviction_races_charge_and_gives_one_burst() {
    eviction_and_charge(Bound::Preemptions(2), Atomics::Touched);
}

#[test]
#[ignore = "deep: make loom-deep"]
fn eviction_races_charge_and_gives_one_burst_deeply() {
    eviction_and_charge(Bound::Preemptions(3), Atomics::Touched);
}

/// The time at which a key becomes idle if all its tokens were charged at `NOW`.
const IDLE: Tick = Tick::from_nanos(6_000_000_000);

/// A late thread charges a key at `NOW`, a time at which the key is throttled.
fn comes_late(gate: &Gate, key: u64) -> bool {
    let late = gate.at(NOW).check(&key);
    assert!(!late.is_allowed() || late.at() == IDLE, "it is given a second burst: {late:?}");
    late.is_allowed()
}

/// A thread stops after reading the clock, and charges its key late. Meanwhile the key is
/// forgotten, or is about to be forgotten.
#[test]
fn eviction_races_late_charge_and_grants_nothing() {
    let seen = Seen::default();
    let note = seen.clone();
    explore(Bound::Preemptions(1), Atomics::Touched, move |threads| {
        let gate = with_keys(8, 1, 1);
        // This key is not idle, so it raises no mark.
        assert!(gate.at(LATER).check(&2).is_allowed());
        let other = threads.spawn({
            let gate = Arc::clone(&gate);
            move || insert(&gate, [3, 4], LATER)
        });
        let late = threads.spawn({
            let gate = Arc::clone(&gate);
            move || comes_late(&gate, 1)
        });
        // The main thread waits, so that it need not be preempted for the other threads to run.
        note.note(late.join().unwrap());
        other.join().unwrap();
    });
    seen.expect(&["false", "true"]);
}

/// A forgotten key returns. Its slot is claimed but not charged yet when a late thread finds the
/// key there.
#[test]
fn claim_races_late_charge_and_grants_nothing() {
    let seen = Seen::default();
    let note = seen.clone();
    explore(Bound::Preemptions(1), Atomics::Touched, move |threads| {
        let gate = with_keys(8, 1, 1);
        while gate.at(LATER).sweep(1024) {}
        assert!(gate.is_empty());
        let other = threads.spawn({
            let gate = Arc::clone(&gate);
            move || gate.at(LATER).check(&1).is_allowed()
        });
        let late = threads.spawn({
            let gate = Arc::clone(&gate);
            move || comes_late(&gate, 1)
        });
        // The main thread also waits here.
        note.note(late.join().unwrap());
        assert!(other.join().unwrap());
    });
    seen.expect(&["false", "true"]);
}

/// A thread evicts a key and stalls. Another thread redoes the chunk, makes the next array the
/// root, and charges the key there at an earlier time.
#[test]
fn late_charge_after_a_stalled_eviction_is_granted_nothing() {
    explore(Bound::Preemptions(1), Atomics::Plain, |threads| {
        let gate = with_keys(8, 1, 2);
        assert!(gate.at(LATER).check(&3).is_allowed());
        let owner = threads.spawn({
            let gate = Arc::clone(&gate);
            move || step(&gate, LATER)
        });
        let late = threads.spawn({
            let gate = Arc::clone(&gate);
            move || {
                while gate.at(LATER).sweep(4) {}
                assert!(comes_late(&gate, 1));
            }
        });
        late.join().unwrap();
        owner.join().unwrap();
    });
}

#[test]
fn turnover_races_refund_and_both_count() {
    explore(Bound::Preemptions(3), Atomics::Touched, |threads| {
        let gate = limiter(8, 2);
        let charge = gate.at(NOW).check_n(&1, 2);
        assert!(gate.at(NOW).check(&2).is_allowed());
        let other = threads.spawn({
            let gate = Arc::clone(&gate);
            move || insert(&gate, [3, 4], NOW)
        });
        gate.at(NOW).refund_n(&1, &charge, 1);
        other.join().unwrap();
        holds(&gate, 1, 2, 1, NOW);
    });
}

#[test]
fn turnover_races_reset_and_both_count() {
    explore(Bound::Preemptions(3), Atomics::Touched, |threads| {
        let gate = with_keys(8, 1, 2);
        let other = threads.spawn({
            let gate = Arc::clone(&gate);
            move || insert(&gate, [3, 4], NOW)
        });
        gate.reset(&1);
        other.join().unwrap();
        holds(&gate, 1, 1, 0, NOW);
        holds(&gate, 2, 1, 1, NOW);
    });
}

/// Two threads close the same array and link the next one.
fn two_close(bound: Bound, atomics: Atomics) -> Explored {
    explore(bound, atomics, |threads| {
        let gate = with_keys(8, 1, 2);
        let other = threads.spawn({
            let gate = Arc::clone(&gate);
            move || assert!(gate.at(NOW).check(&4).is_allowed())
        });
        assert!(gate.at(NOW).check(&3).is_allowed());
        other.join().unwrap();
        for key in 1..=4 {
            holds(&gate, key, 1, 1, NOW);
        }
        assert_eq!(gate.len(), 4);
    })
}

#[test]
fn close_races_close() {
    two_close(Bound::Preemptions(1), Atomics::Touched);
    two_close(Bound::Preemptions(3), Atomics::Plain);
}

#[test]
#[ignore = "deep: make loom-deep"]
fn close_races_close_deeply() {
    two_close(Bound::Preemptions(2), Atomics::Touched);
}

/// The table grows twice while a key that must be moved twice is charged.
#[test]
fn nested_growth_races_charge() {
    explore(Bound::Preemptions(2), Atomics::Touched, |threads| {
        let gate = with_keys(16, 2, 2);
        let other = threads.spawn({
            let gate = Arc::clone(&gate);
            move || {
                for key in 3..=5 {
                    assert!(gate.at(NOW).check(&key).is_allowed());
                }
            }
        });
        assert!(gate.at(NOW).check(&1).is_allowed());
        other.join().unwrap();
        holds(&gate, 1, 2, 2, NOW);
        for key in 2..=5 {
            holds(&gate, key, 2, 1, NOW);
        }
        assert_eq!(gate.len(), 5);
    });
}

/// Two threads turn over an array of two chunks, and a third thread, which has moved nothing, finds
/// the next array as the root.
#[test]
fn promotion_races_charge_of_a_moved_key() {
    explore(Bound::Preemptions(2), Atomics::Plain, |threads| {
        // Four places in two lines; the turnover of the first array is complete.
        let gate = with_keys(16, 1, 4);
        let other = threads.spawn({
            let gate = Arc::clone(&gate);
            move || assert!(gate.at(NOW).check(&5).is_allowed())
        });
        let third = threads.spawn({
            let gate = Arc::clone(&gate);
            move || assert!(gate.at(NOW).check(&6).is_allowed())
        });
        for key in 1..=4 {
            assert!(!gate.at(NOW).check(&key).is_allowed());
        }
        other.join().unwrap();
        third.join().unwrap();
        for key in 1..=6 {
            holds(&gate, key, 1, 1, NOW);
        }
    });
}

/// At the cap, idle keys make room for new keys. If there is no room, the full policy applies to
/// new keys. The cap is never exceeded.
fn two_inserts_at_the_cap(bound: Bound, atomics: Atomics) -> Explored {
    explore(bound, atomics, |threads| {
        let gate = with_keys(2, 1, 2);
        let other = threads.spawn({
            let gate = Arc::clone(&gate);
            move || gate.at(LATER).check(&3)
        });
        let (mine, other) = (gate.at(LATER).check(&4), other.join().unwrap());
        for (key, decision) in [(4, mine), (3, other)] {
            assert!(decision.is_allowed() || decision.source() == DecisionSource::Policy);
            holds(&gate, key, 1, decision.charged(), LATER);
        }
        assert!(mine.is_allowed() || other.is_allowed());
        assert!(gate.len() <= 2);
    })
}

// This model takes more than a quarter of an hour. With one more preemption, or with touched
// atomics, it takes several times as long.
#[test]
#[ignore = "deep: make loom-deep"]
fn inserts_at_the_cap_race_for_the_places_of_idle_keys() {
    two_inserts_at_the_cap(Bound::Preemptions(1), Atomics::Plain);
}

/// Creates a limiter whose array is being turned over, with none of its chunks done. The array has
/// one chunk if two keys fill it, and two chunks if four keys fill it. The last key began the
/// turnover.
fn turning_over(per_second: u64, keys: u64) -> Gate {
    let gate = with_keys(16, per_second, keys + 1);
    assert_eq!(gate.len() as u64, keys + 1);
    gate
}

/// Performs a step of the current turnover, or begins another turnover and performs its first step.
fn step(gate: &Gate, now: Tick) {
    let _ = gate.at(now).sweep(4);
}

/// One thread does the first of two chunks. Another thread does the second, makes the next array
/// the root, and looks up the keys, including the keys that it has not moved itself. (A charge
/// would repair a stale read, so only a lookup shows it.)
fn promotion_and_peek(bound: Bound, atomics: Atomics) -> Explored {
    explore(bound, atomics, |threads| {
        let gate = turning_over(2, 4);
        let racers = [(); 2].map(|()| {
            let gate = Arc::clone(&gate);
            threads.spawn(move || {
                step(&gate, NOW);
                for key in 1..=4 {
                    holds(&gate, key, 2, 1, NOW);
                }
            })
        });
        // The main thread waits, so that it need not be preempted for the other threads to run.
        for racer in racers {
            racer.join().unwrap();
        }
    })
}

#[test]
fn promotion_races_peek() {
    promotion_and_peek(Bound::Preemptions(1), Atomics::Plain);
}

#[test]
#[ignore = "deep: make loom-deep"]
fn promotion_races_peek_deeply() {
    promotion_and_peek(Bound::Preemptions(1), Atomics::Touched);
}

/// Two threads do the last chunk of an array and make the next array the root, which happens once.
fn two_promote(bound: Bound, atomics: Atomics) -> Explored {
    explore(bound, atomics, |threads| {
        let gate = turning_over(1, 4);
        step(&gate, NOW);
        let before = gate.stats().turnovers;
        let other = threads.spawn({
            let gate = Arc::clone(&gate);
            move || step(&gate, NOW)
        });
        step(&gate, NOW);
        other.join().unwrap();
        for key in 1..=5 {
            holds(&gate, key, 1, 1, NOW);
        }
        let stats = gate.stats();
        assert_eq!((stats.keys, stats.evicted, stats.turnovers), (5, 0, before + 1));
    })
}

#[test]
fn promotion_races_promotion() {
    two_promote(Bound::Preemptions(2), Atomics::Plain);
    two_promote(Bound::Preemptions(1), Atomics::Touched);
}

#[test]
#[ignore = "deep: make loom-deep"]
fn promotion_races_promotion_deeply() {
    two_promote(Bound::Preemptions(3), Atomics::Plain);
    two_promote(Bound::Preemptions(2), Atomics::Touched);
}

/// A thread takes the first of two chunks and stalls anywhere in it. Another thread takes the
/// second chunk, redoes the first, makes the next array the root, and charges a key of the first
/// chunk there.
fn stalled_owner(bound: Bound, atomics: Atomics) -> Explored {
    explore(bound, atomics, |threads| {
        let gate = turning_over(2, 4);
        let owner = threads.spawn({
            let gate = Arc::clone(&gate);
            move || step(&gate, NOW)
        });
        // This loop ends when the turnover has ended, wherever the owner is.
        while gate.at(NOW).sweep(4) {}
        assert!(gate.at(NOW).check(&1).is_allowed());
        owner.join().unwrap();
        holds(&gate, 1, 2, 2, NOW);
        for key in 2..=5 {
            holds(&gate, key, 2, 1, NOW);
        }
        assert_eq!(gate.len(), 5);
    })
}

#[test]
fn stalled_chunk_owner_stops_nobody_and_comes_back_late() {
    stalled_owner(Bound::Preemptions(1), Atomics::Plain);
}

#[test]
#[ignore = "deep: make loom-deep"]
fn stalled_chunk_owner_comes_back_late_deeply() {
    stalled_owner(Bound::Preemptions(1), Atomics::Touched);
}

/// A helper stalls with the frozen word of a key. Meanwhile another thread moves the key, which is
/// then charged in the next array. Then the key is evicted from that array, and returns in the
/// array after it.
fn late_helper(bound: Bound, atomics: Atomics) -> Explored {
    explore(bound, atomics, |threads| {
        let gate = turning_over(2, 2);
        let late = threads.spawn({
            let gate = Arc::clone(&gate);
            move || step(&gate, NOW)
        });
        // Another thread does this, because the late helper would otherwise have to preempt the
        // main thread to begin.
        let other = threads.spawn({
            let gate = Arc::clone(&gate);
            move || {
                while gate.at(NOW).sweep(1024) {}
                assert!(gate.at(NOW).check(&1).is_allowed());
            }
        });
        late.join().unwrap();
        other.join().unwrap();
        holds(&gate, 1, 2, 2, NOW);
        while gate.at(LATER).sweep(1024) {}
        assert!(gate.at(LATER).check_n(&1, 2).is_allowed());
        holds(&gate, 1, 2, 2, LATER);
        holds(&gate, 2, 2, 0, LATER);
    })
}

#[test]
fn late_helper_meets_a_reused_key() {
    late_helper(Bound::Preemptions(1), Atomics::Plain);
}

#[test]
#[ignore = "deep: make loom-deep"]
fn late_helper_meets_a_reused_key_deeply() {
    late_helper(Bound::Preemptions(2), Atomics::Plain);
}

/// Clearing resets a key to a new key's state, even while the key is moved to the next array.
fn clear_and_step(bound: Bound, atomics: Atomics) -> Explored {
    explore(bound, atomics, |threads| {
        let gate = turning_over(1, 2);
        let other = threads.spawn({
            let gate = Arc::clone(&gate);
            move || step(&gate, NOW)
        });
        gate.at(NOW).clear();
        for key in 1..=3 {
            holds(&gate, key, 1, 0, NOW);
        }
        other.join().unwrap();
        for key in 1..=3 {
            holds(&gate, key, 1, 0, NOW);
        }
        // The keys are also forgotten, unless the other thread has postponed that to the next
        // turnover.
        assert!(gate.len() <= 3);
    })
}

#[test]
fn clear_races_turnover_and_every_key_is_as_good_as_new() {
    clear_and_step(Bound::Preemptions(1), Atomics::Plain);
}

#[test]
#[ignore = "deep: make loom-deep"]
fn clear_races_turnover_deeply() {
    clear_and_step(Bound::Preemptions(2), Atomics::Plain);
}
