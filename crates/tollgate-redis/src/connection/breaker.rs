//! A circuit breaker, which stops requests to a server that does not answer.
//!
//! # States
//!
//! ```text
//! STARTING -> 0             the first connection was opened
//! STARTING -> OPEN          the first attempt has failed
//! n -> n + 1                another answer in a row did not arrive in time
//! n -> 0                    an answer arrived
//! n -> OPEN                 the third answer in a row did not arrive in time, or the connection
//!                           was lost during a request, or no other connection could be opened
//!                           after it had ended while idle
//! OPEN -> 0                 a probe was answered
//! ```
//!
//! The state is one word, which is changed by compare-and-swap, so no caller waits.
//!
//! While the breaker is open or starting, one task probes the server. The pauses between its probes
//! double, and are randomized so that many machines do not return at the same moment. An answered
//! probe does not shorten the next pause; an answered request does. A server that answers probes
//! but no requests is therefore probed less and less often.
//!
//! If a stalled server resumes, it answers the PING that waits on its old connection, and this
//! answer ends the pause or the attempt to connect. Many machines may then return at the same
//! moment, but they do not send more requests than before the stall.

use crate::words::atomics::{AtomicBool, AtomicU64, Relaxed};
use std::time::Duration;

const STARTING: u64 = u64::MAX;
const OPEN: u64 = u64::MAX - 1;
/// The number of late answers in a row that opens the breaker.
const LATE: u64 = 3;

const FIRST_PAUSE: u64 = 20;
const LONGEST_PAUSE: u64 = 1_000;

#[derive(Debug)]
pub(crate) struct Breaker {
    state: AtomicU64,
    probing: AtomicBool,
    /// The next pause in milliseconds, or 0 for no pause.
    pause: AtomicU64,
    /// How often the breaker has opened.
    opened: AtomicU64,
}

/// Whether a request may be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pass {
    Closed,
    Open,
    /// No connection has been opened yet.
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
        // ORDERING: relaxed, here and below; the word is the whole state.
        match self.state.load(Relaxed) {
            STARTING => Pass::Starting,
            OPEN => Pass::Open,
            _ => Pass::Closed,
        }
    }

    /// Records an answer that arrived in time.
    pub(crate) fn answered(&self) {
        // ORDERING: relaxed, as in `pass`. Every request runs this code, so it writes the state
        // only if an earlier answer was late.
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

    /// Records that an answer did not arrive in time. Returns whether the breaker opened as a
    /// result.
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

    /// Opens the breaker, because the connection was lost or there is none. Returns true if the
    /// breaker was not open before.
    pub(crate) fn open(&self) -> bool {
        // ORDERING: relaxed, as in `pass`.
        let before = self.state.swap(OPEN, Relaxed);
        self.count(before != OPEN)
    }

    fn count(&self, opened: bool) -> bool {
        // ORDERING: relaxed; this is only a counter.
        self.opened.fetch_add(opened.into(), Relaxed);
        opened
    }

    pub(crate) fn close(&self) {
        // ORDERING: relaxed, as in `pass`.
        self.state.store(0, Relaxed);
    }

    pub(crate) fn opened(&self) -> u64 {
        // ORDERING: relaxed; this is only a counter.
        self.opened.load(Relaxed)
    }

    /// Acquires the right to probe. Returns `false` if another task owns it.
    pub(crate) fn probe(&self) -> bool {
        // ORDERING: relaxed; the flag only bounds the number of tasks.
        !self.probing.load(Relaxed) && !self.probing.swap(true, Relaxed)
    }

    pub(crate) fn probed(&self) {
        // ORDERING: relaxed, as in `probe`.
        self.probing.store(false, Relaxed);
    }

    /// Returns how long to wait before the next probe. The first probe is immediate, and so is the
    /// first probe after an answered request.
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
        // Only a probe closes the breaker. An answer to an earlier request does not.
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
