//! The steps of a log, named so that tests can stop a thread for good at each. Outside unit tests
//! they compile to nothing.

/// The step that a thread has just done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(not(test), allow(dead_code))]
pub(super) enum Step {
    /// The thread has decided, and has written nothing yet.
    Decided,
    /// The thread has written its admission, and has not noted the number of filled slots.
    Appended,
    /// The thread has closed a chunk, and has not linked the next one.
    Closed,
    /// The thread has linked a chunk with its admission or a reset in it, and has not retired the
    /// old ones.
    Linked,
    /// The thread has retired a chunk.
    Retired,
    /// The thread has copied the admissions to take over, and no other thread sees the copy yet.
    Carried,
    /// The thread has noted a refund in its leaf, and not in the sums above.
    Given,
}

#[cfg(not(test))]
#[inline(always)]
pub(super) const fn reach(_: Step) {}

#[cfg(test)]
pub(super) use tests::reach;

#[cfg(test)]
mod tests {
    use super::super::{Log, SlidingLog};
    use super::Step;
    use crate::quota::Quota;
    use crate::reclaim::{Bag, pin};
    use crate::time::Tick;
    use std::cell::Cell;
    use std::sync::mpsc::{Sender, channel};
    use std::time::Duration;

    static RETIRED: Bag = Bag::new();

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

    /// Starts a thread that does `work` until it stops at `step` for good.
    fn stop_at(step: Step, work: impl FnOnce() + Send + 'static) {
        let (stopped, has_stopped) = channel();
        std::thread::spawn(move || {
            STOPPED.set(Some(stopped));
            STOP_AT.set(Some(step));
            work();
        });
        has_stopped
            .recv_timeout(Duration::from_secs(60))
            .unwrap_or_else(|_| panic!("{step:?} was never reached"));
    }

    /// The steps of a charge or a refund, each with the least and the most tokens that the thread
    /// has charged when it stops there.
    const STEPS: [(Step, u64, u64); 6] = [
        (Step::Decided, 0, 0),
        (Step::Closed, 0, 0),
        (Step::Linked, 1, 1),
        (Step::Retired, 1, 1),
        (Step::Appended, 2, 2),
        // The refund may be seen or not.
        (Step::Given, 20, 21),
    ];

    const LIMIT: u64 = 1_000;
    const PERIOD: Duration = Duration::from_secs(1);

    /// Stops a thread at `step`, with its guard. Then other threads charge what is left, refund,
    /// reset, and continue for some periods. What the stopped thread had charged counts to the end
    /// of its window, and no other thread waits.
    fn all_go_on_without_a_thread_that_stopped_at((step, least, most): (Step, u64, u64)) {
        let rule = SlidingLog::new(Quota::new(LIMIT, PERIOD)).unwrap();
        // A test cannot unwind a parked thread, so its log is leaked.
        let log: &'static Log = Box::leak(Box::new(Log::new()));
        let charge = move |cost, now| log.check(&rule, now, cost, &pin(), &RETIRED).unwrap();
        for _ in 0..100 {
            assert!(charge(1, Tick::ZERO).is_allowed());
        }
        let now = Tick::ZERO + 2 * PERIOD;
        stop_at(step, move || {
            // The first of these closes the row, and retires the chunks of the burst.
            let charges = [(); 21].map(|()| charge(1, now));
            let _ = log.refund(&charges[20], 1, &pin());
        });

        let race = |now| {
            let racers: Vec<_> = (0..2)
                .map(|_| {
                    let charges = move || (0..2 * LIMIT).map(move |_| charge(1, now).charged());
                    std::thread::spawn(move || charges().sum::<u64>())
                })
                .collect();
            racers.into_iter().map(|racer| racer.join().unwrap()).sum::<u64>()
        };
        let admitted = race(now);
        assert!((LIMIT - most..=LIMIT - least).contains(&admitted), "{step:?}: {admitted}");
        // Not one more until the last nanosecond of the window.
        let out = now + PERIOD;
        assert!(!charge(1 + most - least, Tick::from_nanos(out.as_nanos() - 1)).is_allowed(), "{step:?}");
        for round in 0..20 {
            assert_eq!(race(out + round * PERIOD), LIMIT, "{step:?}");
        }
        let last = out + 20 * PERIOD;
        let given = charge(LIMIT, last);
        log.refund(&given, 300, &pin()).unwrap();
        assert_eq!(charge(300, last).remaining(), 0, "{step:?}");
        log.reset(&rule, &pin(), &RETIRED).unwrap();
        assert_eq!(charge(LIMIT, last).remaining(), 0, "{step:?}");
        assert!(log.is_idle(&rule, last + PERIOD, &pin()), "{step:?}");
    }

    #[test]
    fn a_thread_that_stops_for_good_at_any_step_stops_nobody_else() {
        for step in STEPS {
            all_go_on_without_a_thread_that_stopped_at(step);
        }
    }

    /// Makes a log of a burst that is over.
    fn idle(rule: &SlidingLog) -> &'static Log {
        let log: &'static Log = Box::leak(Box::new(Log::new()));
        for _ in 0..100 {
            assert!(log.check(rule, Tick::ZERO, 1, &pin(), &RETIRED).unwrap().is_allowed());
        }
        log
    }

    #[test]
    fn a_thread_that_stops_while_it_evicts_stops_neither_charges_nor_evictions() {
        let rule = SlidingLog::new(Quota::new(LIMIT, PERIOD)).unwrap();
        let later = Tick::ZERO + PERIOD;
        for step in [Step::Closed, Step::Linked] {
            let log = idle(&rule);
            stop_at(step, move || assert!(log.seal_if_idle(&rule, later, &pin(), &RETIRED, |_| ())));
            if step == Step::Closed {
                assert_eq!(log.check(&rule, later, 1, &pin(), &RETIRED).unwrap().remaining(), LIMIT - 1);
                assert!(!log.seal_if_idle(&rule, later, &pin(), &RETIRED, |_| ()));
            }
            assert!(log.seal_if_idle(&rule, later + PERIOD, &pin(), &RETIRED, |_| ()));
            assert_eq!(log.check(&rule, later, 1, &pin(), &RETIRED), None);
        }
    }

    #[test]
    fn a_thread_that_stops_while_it_takes_over_stops_no_change_of_quota() {
        let rule = SlidingLog::new(Quota::new(LIMIT, PERIOD)).unwrap();
        let (old, new) = (idle(&rule), &*Box::leak(Box::new(Log::new())));
        stop_at(Step::Carried, move || new.take_over(old, &rule, &rule, Tick::ZERO, &pin()));
        new.take_over(old, &rule, &rule, Tick::ZERO, &pin());
        assert_eq!(new.check(&rule, Tick::ZERO, 1, &pin(), &RETIRED).unwrap().remaining(), LIMIT - 101);
    }
}
