//! Fail points: steps in an insertion or a turnover at which tests can stop a thread forever.
//! Outside unit tests, the fail points compile to nothing.

/// The step that a thread has just reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(not(test), allow(dead_code))]
pub(super) enum Step {
    /// The thread has a place but no slot yet.
    PlaceGiven,
    /// The thread's request for a place was refused, but the thread has not taken back the request
    /// yet.
    AskedInVain,
    /// The thread has claimed a slot but has not charged the key yet.
    Claimed,
    /// The array gives out no more places, but the next array is not linked yet.
    Closed,
    /// The next array is linked.
    Linked,
    /// A word is frozen but not moved yet.
    Frozen,
    /// The mark is raised, but the key is not evicted yet.
    Forgotten,
    /// A key is evicted but not counted yet.
    Evicted,
    /// A key has a slot in the next array, but its word is not there yet.
    Brought,
    /// The keys of a chunk are moved, but the chunk is not recorded as done yet.
    ChunkMoved,
    /// A chunk is recorded as done but not added up yet.
    ChunkNoted,
    /// All keys are moved, but their number is not stored in the next array yet.
    AllMoved,
    /// The number of moved keys is stored, but the next array is not the root yet.
    Carried,
    /// The next array is the root, and the old one is retired.
    Promoted,
}

#[cfg(not(test))]
#[inline(always)]
pub(super) const fn reach(_: Step) {}

#[cfg(test)]
pub(super) use tests::reach;

#[cfg(test)]
mod tests {
    use super::super::walk::CHUNKS_AT_CAP;
    use super::Step;
    use crate::clock::ManualClock;
    use crate::decision::Outcome;
    use crate::limiter::Limiter;
    use crate::quota::Quota;
    use crate::sync::stop::{reach as stop_if_asked, stop_at};
    use crate::time::Tick;
    use std::cell::Cell;
    use std::thread;
    use std::time::Duration;

    thread_local! {
        static CHUNKS: Cell<usize> = const { Cell::new(0) };
    }

    /// Stops the thread if a test has requested a stop at this step. Also counts how many chunks
    /// the thread closes.
    pub(in super::super) fn reach(step: Step) {
        if step == Step::ChunkMoved {
            CHUNKS.set(CHUNKS.get() + 1);
        }
        stop_if_asked(step);
    }

    const STEPS: [Step; 14] = [
        Step::PlaceGiven,
        Step::AskedInVain,
        Step::Claimed,
        Step::Closed,
        Step::Linked,
        Step::Frozen,
        Step::Forgotten,
        Step::Evicted,
        Step::Brought,
        Step::ChunkMoved,
        Step::ChunkNoted,
        Step::AllMoved,
        Step::Carried,
        Step::Promoted,
    ];

    const NOW: Tick = Tick::from_nanos(1_000_000_000_000);

    /// These keys are charged once before the thread stops, so each has exactly one token left.
    const EARLY: std::ops::Range<u64> = 0..35;

    /// These keys are idle when the thread stops, so some of them are evicted.
    const IDLE: std::ops::Range<u64> = 100..103;

    /// Stops a thread at `step` while the thread holds a guard. Other threads then charge and
    /// insert keys, and make the table grow at least twice more. No charge may be lost, no request
    /// may be wrongly admitted, and no thread may wait.
    fn all_go_on_without_a_thread_that_stopped_at(step: Step) {
        let limiter: Limiter<u64> =
            Limiter::builder(Quota::per_hour(2)).max_keys(10_000).clock(ManualClock::new()).build().unwrap();
        for key in IDLE {
            assert!(limiter.at(Tick::ZERO).check(&key).is_allowed());
        }
        let now = NOW + Duration::from_secs(7200);
        for key in EARLY {
            assert!(limiter.at(now).check(&key).is_allowed());
        }
        let race = |racer: u64| {
            let charged: u64 = EARLY.map(|key| limiter.at(now).check(&key).charged()).sum();
            for key in 20_000..21_000 {
                let first = limiter.at(now).check_n(&(key + racer * 10_000), 2);
                assert!(first.is_allowed(), "{step:?} key {key}: {first:?}");
            }
            charged
        };
        thread::scope(|scope| {
            let _stopped = stop_at(scope, step, || {
                for key in 10_000..10_400 {
                    let _ = limiter.at(now).check(&key);
                }
            });
            let charged: u64 = thread::scope(|scope| {
                let racers = [0, 1].map(|racer| scope.spawn(move || race(racer)));
                racers.map(|racer| racer.join().unwrap()).iter().sum()
            });
            assert_eq!(charged, EARLY.end, "{step:?}: each early key had one token left");
            for key in EARLY.chain(20_000..21_000).chain(30_000..31_000) {
                assert!(!limiter.at(now).check(&key).is_allowed(), "{step:?} key {key}");
            }
            let table = limiter.len();
            assert!((2_000..2_600).contains(&table), "{step:?}: {table} keys");
        });
        // The thread has resumed and has charged each of its remaining keys once.
        assert!((10_000..10_400).all(|key| limiter.at(now).check(&key).charged() == 1), "{step:?}");
        assert!((10_000..10_400).all(|key| limiter.at(now).check(&key).charged() == 0), "{step:?}");
    }

    #[test]
    fn a_thread_that_stops_for_good_at_any_step_stops_nobody_else() {
        for step in STEPS {
            all_go_on_without_a_thread_that_stopped_at(step);
        }
    }

    /// Returns the maximum number of chunks that one of these insertions closes on this thread.
    fn most_chunks(limiter: &Limiter<u64>, keys: std::ops::Range<u64>, now: impl Fn(u64) -> Tick) -> usize {
        keys.map(|key| {
            CHUNKS.set(0);
            let _ = limiter.at(now(key)).check(&key);
            CHUNKS.get()
        })
        .max()
        .unwrap()
    }

    /// Below the cap, an insertion closes one chunk of 16 slots, plus one for each other thread
    /// working on a chunk.
    #[test]
    fn an_insertion_closes_one_chunk_while_the_table_grows() {
        let builder = || Limiter::builder(Quota::per_hour(2)).max_keys(1_000_000).clock(ManualClock::new());
        let alone: Limiter<u64> = builder().build().unwrap();
        assert_eq!(most_chunks(&alone, 0..20_000, |_| NOW), 1);
        // The keys soon become idle, so the table turns over without growing.
        let trickle: Limiter<u64> = builder().grace(Duration::ZERO).build().unwrap();
        assert_eq!(most_chunks(&trickle, 0..2_000, |key| NOW + Duration::from_secs(8_000 * key)), 1);
        assert!(trickle.stats().room < 200);
        // The table becomes smaller after a flood.
        let hour = NOW + Duration::from_secs(4 * 3_600);
        assert_eq!(most_chunks(&alone, 30_000..90_000, |key| hour + Duration::from_secs(key * 10_000)), 1);
        assert!(alone.stats().room < 1_000);

        for _ in 0..10 {
            let shared: Limiter<u64> = builder().build().unwrap();
            let most = std::thread::scope(|scope| {
                let racers: Vec<_> = (0..4)
                    .map(|n| {
                        let shared = &shared;
                        scope.spawn(move || most_chunks(shared, n * 10_000..(n + 1) * 10_000, |_| NOW))
                    })
                    .collect();
                racers.into_iter().map(|racer| racer.join().unwrap()).max().unwrap()
            });
            assert!(most <= 4, "{most} chunks by one insertion, of four threads");
        }
    }

    /// At the cap, an insertion closes chunks until it finds an idle key, but at most 8 chunks.
    #[test]
    fn an_insertion_closes_a_bounded_number_of_chunks_at_the_cap() {
        let builder = Limiter::builder(Quota::per_hour(2)).max_keys(5_000).clock(ManualClock::new());
        let limiter: Limiter<u64> = builder.grace(Duration::ZERO).build().unwrap();
        assert_eq!(most_chunks(&limiter, 0..5_000, |_| NOW), 1);
        assert_eq!(most_chunks(&limiter, 5_000..20_000, |_| NOW), CHUNKS_AT_CAP);
        assert_eq!(limiter.len(), 5_000);

        // The next array has the same limit, below the cap. Its places for the keys inserted during
        // the turnover end at the cap, before the turnover is complete.
        let builder = Limiter::builder(Quota::per_hour(2)).max_keys(48_000).clock(ManualClock::new());
        let limiter: Limiter<u64> = builder.build().unwrap();
        let slow = NOW + Duration::from_secs(20);
        assert_eq!(most_chunks(&limiter, 0..40_000, |_| NOW), 1);
        assert!((44_000..48_000).contains(&limiter.stats().room));
        assert_eq!(most_chunks(&limiter, 40_000..48_000, |_| slow), 1);
        assert_eq!(limiter.len(), 48_000);
        assert_eq!(most_chunks(&limiter, 48_000..60_000, |_| slow), CHUNKS_AT_CAP);
        assert_eq!(limiter.len(), 48_000);
    }

    /// Charges of known keys complete a turnover started by an insertion.
    #[test]
    fn charges_of_known_keys_close_one_chunk_now_and_then() {
        // The keys are never idle between their charges.
        let builder = Limiter::builder(Quota::per_day(2_000)).clock(ManualClock::new());
        let limiter: Limiter<u64> = builder.build().unwrap();
        most_chunks(&limiter, 0..5_000, |_| NOW);
        let keys = limiter.stats().room as u64;
        most_chunks(&limiter, 5_000..keys, |_| NOW);
        let before = limiter.stats().turnovers;
        assert_eq!(most_chunks(&limiter, keys..keys + 1, |_| NOW), 0, "this one begins the turnover");
        let at = |round| move |key| NOW + Duration::from_millis(round * keys + key);
        let rounds = (0..1_000).take_while(|&round| {
            assert!(most_chunks(&limiter, 0..keys, at(round)) <= 1);
            limiter.stats().turnovers == before
        });
        let rounds = rounds.count();
        assert!((10..1_000).contains(&rounds), "{rounds} rounds");
        assert_eq!(limiter.len() as u64, keys + 1);
    }

    /// A denial writes nothing, so it performs no part of a turnover either.
    #[test]
    fn denials_of_known_keys_leave_a_turnover_alone() {
        let limiter: Limiter<u64> =
            Limiter::builder(Quota::per_day(1)).clock(ManualClock::new()).build().unwrap();
        most_chunks(&limiter, 0..5_000, |_| NOW);
        let keys = limiter.stats().room as u64;
        most_chunks(&limiter, 5_000..keys, |_| NOW);
        assert_eq!(most_chunks(&limiter, keys..keys + 1, |_| NOW), 0, "this one begins the turnover");
        // A charge of some of these keys would turn over a chunk.
        let at = |key| NOW + Duration::from_millis(key);
        assert_eq!(most_chunks(&limiter, 0..keys, at), 0);
        assert_eq!(limiter.len() as u64, keys + 1);
    }

    /// The quota is lowered while an insertion is working on a turnover.
    #[test]
    fn a_request_that_costs_too_much_by_the_time_it_is_inserted_takes_no_slot() {
        let limiter: Limiter<u64> =
            Limiter::builder(Quota::per_day(2)).clock(ManualClock::new()).build().unwrap();
        most_chunks(&limiter, 0..5_000, |_| NOW);
        let keys = limiter.stats().room as u64;
        most_chunks(&limiter, 5_000..keys, |_| NOW);
        assert_eq!(most_chunks(&limiter, keys..keys + 1, |_| NOW), 0, "this one begins the turnover");
        let len = thread::scope(|scope| {
            let _stopped = stop_at(scope, Step::ChunkMoved, || {
                assert_eq!(limiter.at(NOW).check_n(&u64::MAX, 2).outcome(), Outcome::TooCostly);
            });
            limiter.at(NOW).set_quota(Quota::per_day(1)).unwrap();
            limiter.len()
        });
        assert_eq!(limiter.len(), len);
    }

    /// A full table turns over in two cases: once a grace has passed since the last turnover (a key
    /// may have become idle in that time), and once enough new keys have been refused.
    #[test]
    fn a_full_table_turns_over_once_a_grace_or_for_many_refusals() {
        // The table's 50 places require 26 lines, that is, 7 chunks. A single insertion can close
        // all 7 chunks.
        let builder = Limiter::builder(Quota::per_day(1)).max_keys(50).clock(ManualClock::new());
        let limiter: Limiter<u64> = builder.grace(Duration::from_secs(10)).build().unwrap();
        let refuse = |keys: std::ops::Range<u64>, seconds| {
            let (before, now) = (limiter.stats().turnovers, NOW + Duration::from_secs(seconds));
            assert_eq!(keys.map(|key| limiter.at(now).check(&key).charged()).sum::<u64>(), 0);
            limiter.stats().turnovers - before
        };
        assert_eq!((0..50).map(|key| limiter.at(NOW).check(&key).charged()).sum::<u64>(), 50);
        // These insertions complete the last growth, which may still be under way.
        let _ = refuse(98..100, 0);
        assert_eq!(refuse(100..200, 0), 0, "time stands still");
        assert_eq!((refuse(200..203, 9), refuse(203..204, 10), refuse(204..207, 10)), (0, 1, 0), "a grace");
        assert_eq!((refuse(1_000..5_000, 11), refuse(5_000..5_100, 11)), (0, 1), "4,096 keys");
    }

    #[test]
    fn an_insertion_that_is_refused_has_turned_the_table_over_once_at_the_most() {
        let builder = Limiter::builder(Quota::per_day(1)).max_keys(10).clock(ManualClock::new());
        let limiter: Limiter<u64> = builder.grace(Duration::ZERO).build().unwrap();
        assert_eq!((0..10).map(|key| limiter.at(NOW).check(&key).charged()).sum::<u64>(), 10);
        for key in 10..20 {
            let before = limiter.stats().turnovers;
            assert!(!limiter.at(NOW).check(&key).is_allowed());
            assert!(limiter.stats().turnovers <= before + 1);
        }
    }
}
