//! The steps of an insertion and of a turnover, named so that tests can stop a thread for good at each.
//! Outside unit tests they are nothing.

/// Where a thread has just got to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(not(test), allow(dead_code))]
pub(super) enum Step {
    /// It has a place, and no slot yet.
    PlaceGiven,
    /// It has claimed a slot, and not charged it yet.
    Claimed,
    /// The era gives out no more places, and the next one is not linked yet.
    Closed,
    /// The next era is linked.
    Linked,
    /// A word is frozen, and not moved yet.
    Frozen,
    /// A key is evicted, and not counted as such yet.
    Evicted,
    /// A key has a slot in the next era, and its word is not there yet.
    Brought,
    /// The keys of a chunk are moved, and that is not noted yet.
    ChunkMoved,
    /// All is moved, and how much is not noted in the next era yet.
    AllMoved,
    /// All is noted, and the next era is not the root yet.
    Carried,
    /// The next era is the root, and the old one is retired.
    Promoted,
}

#[cfg(not(test))]
#[inline(always)]
pub(super) const fn reach(_: Step) {}

#[cfg(test)]
pub(super) use tests::reach;

#[cfg(test)]
mod tests {
    use super::Step;
    use crate::clock::Clock;
    use crate::limiter::Limiter;
    use crate::quota::Quota;
    use crate::time::Tick;
    use std::cell::Cell;
    use std::sync::mpsc::{Sender, channel};
    use std::time::Duration;

    thread_local! {
        static STOP_AT: Cell<Option<Step>> = const { Cell::new(None) };
        static STOPPED: Cell<Option<Sender<()>>> = const { Cell::new(None) };
    }

    /// Stops the thread for good if it was asked to stop here.
    pub(in super::super) fn reach(step: Step) {
        if STOP_AT.get() != Some(step) {
            return;
        }
        STOPPED.take().expect("it stops once").send(()).unwrap();
        loop {
            std::thread::park();
        }
    }

    const STEPS: [Step; 11] = [
        Step::PlaceGiven,
        Step::Claimed,
        Step::Closed,
        Step::Linked,
        Step::Frozen,
        Step::Evicted,
        Step::Brought,
        Step::ChunkMoved,
        Step::AllMoved,
        Step::Carried,
        Step::Promoted,
    ];

    const NOW: Tick = Tick::from_nanos(1_000_000_000_000);

    /// Keys that are charged once before anything else happens, and must have exactly one more token.
    const EARLY: std::ops::Range<u64> = 0..35;

    /// Keys that are idle by now, so that some are evicted.
    const IDLE: std::ops::Range<u64> = 100..103;

    /// A thread is stopped at `step`, pinned as it is; then others charge, insert, and make the table grow
    /// at least twice more. No charge is lost, none is admitted that should not be, and nobody waits.
    fn all_go_on_without_a_thread_that_stopped_at(step: Step) {
        let limiter: Limiter<u64> =
            Limiter::builder(Quota::per_hour(2)).max_keys(10_000).clock(Clock::manual()).build().unwrap();
        // Tests can't unwind a parked thread, so what it uses lives on.
        let limiter: &'static Limiter<u64> = Box::leak(Box::new(limiter));
        for key in IDLE {
            assert!(limiter.check_at(&key, 1, Tick::ZERO).allowed());
        }
        let now = NOW + Duration::from_secs(7200);
        for key in EARLY {
            assert!(limiter.check_at(&key, 1, now).allowed());
        }
        let (stopped, has_stopped) = channel();
        std::thread::spawn(move || {
            STOPPED.set(Some(stopped));
            STOP_AT.set(Some(step));
            for key in 10_000..10_400 {
                let _ = limiter.check_at(&key, 1, now);
            }
        });
        has_stopped
            .recv_timeout(Duration::from_secs(60))
            .unwrap_or_else(|_| panic!("{step:?} was never reached"));

        let racers: Vec<_> = (0..2)
            .map(|racer| {
                std::thread::spawn(move || {
                    let charged: u64 = EARLY.map(|key| limiter.check_at(&key, 1, now).charged()).sum();
                    for key in 20_000..21_000 {
                        let first = limiter.check_at(&(key + racer * 10_000), 2, now);
                        assert!(first.allowed(), "{step:?} key {key}: {first:?}");
                    }
                    charged
                })
            })
            .collect();
        let charged: u64 = racers.into_iter().map(|racer| racer.join().unwrap()).sum();
        assert_eq!(charged, EARLY.end, "{step:?}: each early key had one token left");
        for key in EARLY.chain(20_000..21_000).chain(30_000..31_000) {
            assert!(!limiter.check_at(&key, 1, now).allowed(), "{step:?} key {key}");
        }
        let table = limiter.len();
        assert!((2_000..2_600).contains(&table), "{step:?}: {table} keys");
    }

    #[test]
    fn a_thread_that_stops_for_good_at_any_step_stops_nobody_else() {
        for step in STEPS {
            all_go_on_without_a_thread_that_stopped_at(step);
        }
    }
}
