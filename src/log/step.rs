//! Fail points: the steps of a log at which tests can stop a thread forever. Outside unit tests,
//! fail points compile to nothing.

/// The step that a thread has just completed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(not(test), allow(dead_code))]
pub(super) enum LogStep {
    /// The thread has reached a chunk behind the root, but has not checked whether another chunk
    /// follows.
    Followed,
    /// The thread has decided, but has not written anything yet.
    Decided,
    /// The thread has written its admission, but has not stored the number of filled slots.
    Appended,
    /// The thread has closed a chunk, but has not linked the next chunk.
    Closed,
    /// The thread has linked a chunk that contains its admission or a reset, but has not retired
    /// the old chunks.
    Linked,
    /// The thread has retired a chunk.
    Retired,
    /// The thread has added a refund to its leaf, but not to the sums above.
    Given,
}

#[cfg(not(test))]
#[inline(always)]
pub(super) const fn reach(_: LogStep) {}

#[cfg(test)]
pub(super) use crate::sync::stop::reach;

#[cfg(test)]
mod tests {
    use super::super::{Log, SlidingLog};
    use super::LogStep;
    use crate::quota::Quota;
    use crate::reclaim::Bag;
    use crate::sync::stop::stop_at;
    use crate::time::Tick;
    use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
    use std::thread;
    use std::time::Duration;

    /// The steps of a charge or a refund. Each step is listed with the minimum and maximum number
    /// of tokens that a thread has charged if it stops there.
    const STEPS: [(LogStep, u64, u64); 6] = [
        (LogStep::Decided, 0, 0),
        (LogStep::Closed, 0, 0),
        (LogStep::Linked, 1, 1),
        (LogStep::Retired, 1, 1),
        (LogStep::Appended, 2, 2),
        // Other threads may or may not see the refund.
        (LogStep::Given, 20, 21),
    ];

    const LIMIT: u64 = 1_000;
    const PERIOD: Duration = Duration::from_secs(1);

    /// Stops a thread, with its guard, at `step`. Other threads then charge the remaining tokens,
    /// refund, reset, and continue for some periods. The stopped thread's charges count until the
    /// end of their window, and no other thread waits.
    fn all_go_on_without_a_thread_that_stopped_at((step, least, most): (LogStep, u64, u64)) {
        let rule = SlidingLog::new(Quota::new(LIMIT, PERIOD)).unwrap();
        let (log, retired) = (Log::new(), Bag::new());
        let charge = |cost, now| log.check(|| Tick::ZERO, &rule, now, cost, &retired, || true).unwrap();
        for _ in 0..100 {
            assert!(charge(1, Tick::ZERO).is_allowed());
        }
        let race = |now| {
            thread::scope(|scope| {
                let charges = || (0..2 * LIMIT).map(|_| charge(1, now).charged()).sum::<u64>();
                let racers = [(); 2].map(|()| scope.spawn(charges));
                racers.map(|racer| racer.join().unwrap()).iter().sum::<u64>()
            })
        };
        let now = Tick::ZERO + 2 * PERIOD;
        thread::scope(|scope| {
            let _stopped = stop_at(scope, step, || {
                // The first of these charges finds the burst expired: it closes the row and retires
                // the burst's chunks.
                let charges = [(); 21].map(|()| charge(1, now));
                let _ = log.refund(&charges[20], 1);
            });
            let admitted = race(now);
            assert!((LIMIT - most..=LIMIT - least).contains(&admitted), "{step:?}: {admitted}");
            // No more tokens are admitted until the last nanosecond of the window.
            let out = now + PERIOD;
            let last_of_it = Tick::from_nanos(out.as_nanos() - 1);
            assert!(!charge(1 + most - least, last_of_it).is_allowed(), "{step:?}");
            for round in 0..20 {
                assert_eq!(race(out + round * PERIOD), LIMIT, "{step:?}");
            }
            let last = out + 20 * PERIOD;
            let given = charge(LIMIT, last);
            log.refund(&given, 300).unwrap();
            assert_eq!(charge(300, last).remaining(), 0, "{step:?}");
            log.reset(&rule, &retired).unwrap();
            assert_eq!(charge(LIMIT, last).remaining(), 0, "{step:?}");
            assert!(log.is_idle(&rule, last + PERIOD), "{step:?}");
        });
    }

    #[test]
    fn a_thread_that_stops_for_good_at_any_step_stops_nobody_else() {
        for step in STEPS {
            all_go_on_without_a_thread_that_stopped_at(step);
        }
    }

    /// Creates a log whose burst has left the window.
    fn idle(rule: &SlidingLog, retired: &Bag) -> Log {
        let log = Log::new();
        for _ in 0..100 {
            assert!(log.check(|| Tick::ZERO, rule, Tick::ZERO, 1, retired, || true).unwrap().is_allowed());
        }
        log
    }

    #[test]
    fn a_thread_that_stops_while_it_evicts_stops_neither_charges_nor_evictions() {
        let rule = SlidingLog::new(Quota::new(LIMIT, PERIOD)).unwrap();
        let later = Tick::ZERO + PERIOD;
        for step in [LogStep::Closed, LogStep::Linked] {
            let retired = Bag::new();
            let log = idle(&rule, &retired);
            let seal = |now| log.seal_if_idle(&rule, now, &retired, |_| (), || true).unwrap();
            let check = || log.check(|| Tick::ZERO, &rule, later, 1, &retired, || true);
            thread::scope(|scope| {
                // When the thread resumes, this or another thread has sealed the log.
                let _stopped = stop_at(scope, step, || assert!(seal(later)));
                if step == LogStep::Closed {
                    assert_eq!(check().unwrap().remaining(), LIMIT - 1);
                    assert!(!seal(later));
                }
                assert!(seal(later + PERIOD));
                assert_eq!(check(), None);
            });
        }
    }

    /// An era ends while a thread walks along the chunks. The thread restarts at the root, which
    /// may have moved past the chunk that it had reached.
    #[test]
    fn a_thread_that_stops_on_its_way_finds_the_end_of_the_log() {
        let rule = SlidingLog::new(Quota::new(LIMIT, PERIOD)).unwrap();
        for (now, remaining) in [(Tick::ZERO, LIMIT - 101), (Tick::ZERO + 2 * PERIOD, LIMIT - 1)] {
            let retired = Bag::new();
            let (log, other) = (idle(&rule, &retired), idle(&rule, &retired));
            thread::scope(|scope| {
                let _stopped = stop_at(scope, LogStep::Followed, || {
                    let peek = log.peek(&rule, Tick::ZERO, 1, || true).unwrap();
                    assert_eq!(peek.remaining(), remaining);
                });
                assert!(log.check(|| Tick::ZERO, &rule, now, 1, &retired, || true).unwrap().is_allowed());
                other.reset(&rule, &retired).unwrap();
                retired.collect();
            });
        }
    }

    #[test]
    fn a_thread_that_stops_in_a_change_of_quota_stops_no_other() {
        let rule = SlidingLog::new(Quota::new(LIMIT, PERIOD)).unwrap();
        let new = SlidingLog::new(Quota::new(2 * LIMIT, PERIOD)).unwrap();
        let retired = Bag::new();
        let log = idle(&rule, &retired);
        let is_due = AtomicBool::new(true);
        let change = || log.change(|| is_due.load(SeqCst));
        let charge = || log.check(|| Tick::ZERO, &new, Tick::ZERO, 1, &retired, || true).unwrap();
        thread::scope(|scope| {
            let _stopped = stop_at(scope, LogStep::Decided, change);
            change();
            is_due.store(false, SeqCst);
            assert_eq!(charge().remaining(), 2 * LIMIT - 101);
        });
        assert_eq!(charge().remaining(), 2 * LIMIT - 102, "what came late changes nothing");
    }
}
