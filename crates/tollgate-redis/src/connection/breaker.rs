//! A circuit breaker, which stops requests to a server that does not answer.
//!
//! # States
//!
//! ```text
//! STARTING -> 0             the first connection is made
//! STARTING -> OPEN          the first attempt has failed
//! n -> n + 1                an answer did not arrive in time; n of them in a row
//! n -> 0                    an answer arrived
//! n -> OPEN                 the n-th, or the connection is lost during a request, or no other
//!                           connection could be made after it had ended while idle
//! OPEN -> 0                 a probe was answered
//! ```
//!
//! The state is one word, changed by compare-and-swap; no caller waits. While the breaker is open
//! or starting, one task probes. The pauses between probes double and are drawn at random, so that
//! many machines do not return together. The length of the next pause is kept until a request is
//! answered, so a server that answers nothing but probes is asked less and less often. A server
//! that was silent and resumes ends a pause, because it answers the PING that waits on its old
//! connection. Many machines may then return together, with no more requests than they had before.

use crate::words::atomics::{AtomicBool, AtomicU64, Relaxed};
use std::time::Duration;

const STARTING: u64 = u64::MAX;
const OPEN: u64 = u64::MAX - 1;
/// This many late answers in a row open the breaker.
const LATE: u64 = 3;

const FIRST_PAUSE: u64 = 20;
const LONGEST_PAUSE: u64 = 1_000;

#[derive(Debug)]
pub(crate) struct Breaker {
    state: AtomicU64,
    probing: AtomicBool,
    /// The next pause in milliseconds, or 0 for none.
    pause: AtomicU64,
    /// How often the breaker has opened.
    opened: AtomicU64,
}

/// Whether a request may be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pass {
    Closed,
    Open,
    /// No connection was made yet.
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

    /// Records an answer that arrived in time.
    pub(crate) fn answered(&self) {
        // ORDERING: relaxed, as in `pass`. The state is written only after a late answer, because
        // all requests run this.
        let late = self.state.load(Relaxed);
        if late != 0 && late < OPEN {
            // ORDERING: relaxed, as in `pass`.
            let _ = self.state.compare_exchange(late, 0, Relaxed, Relaxed);
        }
        // ORDERING: relaxed; the pause is a heuristic.
        if self.pause.load(Relaxed) != 0 {
            // ORDERING: relaxed, as above.
            self.pause.store(0, Relaxed);
        }
    }

    /// Records an answer that did not arrive in time. Returns whether this opened the breaker.
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

    /// Opens the breaker, because the connection is lost or there is none. Returns whether the
    /// breaker was not open before.
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

    /// Takes the right to probe, or returns `false` if another task has it.
    pub(crate) fn probe(&self) -> bool {
        // ORDERING: relaxed; it only bounds the number of tasks.
        !self.probing.load(Relaxed) && !self.probing.swap(true, Relaxed)
    }

    pub(crate) fn probed(&self) {
        // ORDERING: relaxed, as in `probe`.
        self.probing.store(false, Relaxed);
    }

    /// Returns how long to wait before the next probe. After a time without trouble, the first
    /// probe is immediate.
    pub(crate) fn next_pause(&self) -> Duration {
        // ORDERING: relaxed; the pause is a heuristic.
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
        // Only a probe closes the breaker, not a late answer.
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
