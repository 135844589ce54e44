//! When a server is not asked: a circuit breaker.
//!
//! # States
//!
//! ```text
//! STARTING -> 0             the first connection stands
//! STARTING -> OPEN          the first attempt has failed
//! n -> n + 1                an answer did not come in time; n of them in a row
//! n -> 0                    an answer came
//! n -> OPEN                 the n-th, or the connection is gone
//! OPEN -> 0                 a probe was answered
//! ```
//!
//! One word, changed by compare-and-swap; nobody waits. While it is open or starting one task probes, with pauses that
//! double and are drawn at random, so that many machines do not come back at once. How long the next pause is stays
//! until a request was answered: a server that answers probes and nothing else is asked less and less.

use crate::words::atomics::{AtomicBool, AtomicU64, Relaxed};
use std::time::Duration;

const STARTING: u64 = u64::MAX;
const OPEN: u64 = u64::MAX - 1;
/// So many late answers in a row open it.
const LATE: u64 = 3;

const FIRST_PAUSE: u64 = 20;
const LONGEST_PAUSE: u64 = 1_000;

#[derive(Debug)]
pub(crate) struct Breaker {
    state: AtomicU64,
    probing: AtomicBool,
    /// In milliseconds; 0 for none.
    pause: AtomicU64,
    /// How often it has opened.
    opened: AtomicU64,
}

/// Whether to ask.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pass {
    Closed,
    Open,
    /// There was no connection yet.
    Starting,
}

impl Breaker {
    pub(crate) fn new() -> Self {
        Self {
            state: AtomicU64::new(STARTING),
            probing: AtomicBool::new(false),
            pause: AtomicU64::new(0),
            opened: AtomicU64::new(0),
        }
    }

    pub(crate) fn pass(&self) -> Pass {
        // ORDERING: relaxed; the word is the whole state, here and below.
        match self.state.load(Relaxed) {
            STARTING => Pass::Starting,
            OPEN => Pass::Open,
            _ => Pass::Closed,
        }
    }

    /// An answer came in time.
    pub(crate) fn answered(&self) {
        // ORDERING: relaxed, as in `pass`. Written only after something was late: all requests come by here.
        let late = self.state.load(Relaxed);
        if late != 0 && late < OPEN {
            // ORDERING: relaxed, as in `pass`.
            let _ = self.state.compare_exchange(late, 0, Relaxed, Relaxed);
        }
        // ORDERING: relaxed; a pause more or less.
        if self.pause.load(Relaxed) != 0 {
            // ORDERING: relaxed, as above.
            self.pause.store(0, Relaxed);
        }
    }

    /// An answer did not come in time. Is it open now, and was not before?
    pub(crate) fn late(&self) -> bool {
        let next = |late| match late {
            STARTING | OPEN => None,
            late if late + 1 >= LATE => Some(OPEN),
            late => Some(late + 1),
        };
        // ORDERING: relaxed, as in `pass`.
        let before = self.state.fetch_update(Relaxed, Relaxed, next);
        self.count(before.is_ok_and(|late| late + 1 >= LATE))
    }

    /// The connection is gone, or there is none. Is it open now, and was not before?
    pub(crate) fn open(&self) -> bool {
        // ORDERING: relaxed, as in `pass`.
        let before = self.state.swap(OPEN, Relaxed);
        self.count(before != OPEN)
    }

    fn count(&self, opened: bool) -> bool {
        // ORDERING: relaxed; a counter.
        self.opened.fetch_add(opened.into(), Relaxed);
        opened
    }

    pub(crate) fn close(&self) {
        // ORDERING: relaxed, as in `pass`.
        self.state.store(0, Relaxed);
    }

    pub(crate) fn opened(&self) -> u64 {
        // ORDERING: relaxed; a counter.
        self.opened.load(Relaxed)
    }

    /// The right to probe, if nobody has it.
    pub(crate) fn probe(&self) -> bool {
        // ORDERING: relaxed; it protects nothing but the number of tasks.
        !self.probing.load(Relaxed) && !self.probing.swap(true, Relaxed)
    }

    pub(crate) fn probed(&self) {
        // ORDERING: relaxed, as in `probe`.
        self.probing.store(false, Relaxed);
    }

    /// How long to wait before the next probe. The first one after a time without trouble is made at once.
    pub(crate) fn next_pause(&self) -> Duration {
        // ORDERING: relaxed; a pause more or less.
        let pause = self.pause.load(Relaxed);
        // ORDERING: relaxed, as above.
        self.pause.store((pause * 2).clamp(FIRST_PAUSE, LONGEST_PAUSE), Relaxed);
        match pause {
            0 => Duration::ZERO,
            pause => Duration::from_micros(fastrand::u64(pause * 500..=pause * 1500)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn closed() -> Breaker {
        let breaker = Breaker::new();
        assert_eq!(breaker.pass(), Pass::Starting);
        breaker.close();
        breaker
    }

    #[test]
    fn it_opens_when_answers_are_late_in_a_row() {
        let breaker = closed();
        for _ in 0..10 {
            assert!(!breaker.late() && !breaker.late());
            breaker.answered();
        }
        assert_eq!(breaker.pass(), Pass::Closed);
        assert!(!breaker.late() && !breaker.late() && breaker.late() && !breaker.late());
        assert_eq!((breaker.pass(), breaker.opened()), (Pass::Open, 1));
        // An answer that comes after all does not close it, a probe does.
        breaker.answered();
        assert_eq!(breaker.pass(), Pass::Open);
        breaker.close();
        assert_eq!(breaker.pass(), Pass::Closed);
    }

    #[test]
    fn it_opens_once_when_the_connection_is_gone() {
        let breaker = closed();
        assert!(breaker.open() && !breaker.open());
        assert_eq!(breaker.opened(), 1);
    }

    #[test]
    fn pauses_grow_until_a_request_is_answered() {
        let breaker = closed();
        assert_eq!(breaker.next_pause(), Duration::ZERO);
        let mut longest = Duration::ZERO;
        for _ in 0..20 {
            longest = longest.max(breaker.next_pause());
        }
        assert!(
            longest > Duration::from_millis(300) && longest <= Duration::from_millis(1500),
            "{longest:?}"
        );
        breaker.answered();
        assert_eq!(breaker.next_pause(), Duration::ZERO);
    }

    #[test]
    fn one_probes_at_a_time() {
        let breaker = Breaker::new();
        assert!(breaker.probe() && !breaker.probe());
        breaker.probed();
        assert!(breaker.probe());
    }
}
