//! Records whether the store may have lost reported counts, and how much time all machines have to
//! report them again.
//!
//! # Orderings
//!
//! | edge | release side | acquire side | what becomes visible | loom test that fails if it is weakened |
//! |---|---|---|---|---|
//! | *noticed* | `notice`, on the connection | the same | the end of the recovery: a thread that knows the connection also sees that end; otherwise the answer of a store that has lost everything would be treated as a confirmation | `connections_are_noticed_with_the_time_to_recover` |

use super::atomics::{Acquire, AtomicU64, Relaxed, Release};

/// How long other machines may take to repeat their reports of lost counts, in microseconds.
const TIME: u64 = 2_000_000;

/// The state of a recovery. All times are in microseconds since the same moment.
#[derive(Debug, Default)]
pub struct Recovery {
    /// The connection of the last answer, or 0 before the first answer.
    connection: AtomicU64,
    /// The time until which no answer is a confirmation.
    until: AtomicU64,
}

impl Recovery {
    /// Records that an answer arrived over `connection`. If the previous answer arrived over
    /// another connection, the store may have lost everything, so this method starts a recovery and
    /// returns true.
    pub fn notice(&self, connection: u64, now: u64) -> bool {
        // ORDERING: acquire side of *noticed*.
        let before = self.connection.load(Acquire);
        if before == connection {
            return false;
        }
        let is_another = before != 0;
        if is_another {
            self.begin(now);
        }
        // ORDERING: release side of *noticed*. This value is therefore stored last.
        self.connection.store(connection, Release);
        is_another
    }

    /// Starts a recovery, because the store has lost counts.
    pub fn begin(&self, now: u64) {
        // ORDERING: relaxed; the number publishes no other data.
        self.until.store(now + TIME, Relaxed);
    }

    /// Returns whether answers must not be treated as confirmations.
    pub fn is_on(&self, now: u64) -> bool {
        // ORDERING: relaxed, as in `begin`.
        now < self.until.load(Relaxed)
    }

    /// Returns true if the recovery started so recently that another report of a loss refers to the
    /// same loss.
    pub fn has_just_begun(&self, now: u64) -> bool {
        // ORDERING: relaxed, as in `begin`.
        now + TIME * 3 / 4 < self.until.load(Relaxed)
    }
}

#[cfg(all(test, not(tollgate_loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_store_recovers_after_each_new_connection_but_the_first() {
        let recovery = Recovery::default();
        assert!(!recovery.notice(1, 5) && !recovery.is_on(5));
        assert!(recovery.notice(2, 10) && !recovery.notice(2, 11));
        assert!(recovery.is_on(9 + TIME) && !recovery.is_on(10 + TIME));
        assert!(recovery.notice(3, 10 + TIME) && recovery.is_on(10 + TIME));
    }

    #[test]
    fn it_has_just_begun_for_a_quarter_of_the_time() {
        let recovery = Recovery::default();
        assert!(!recovery.has_just_begun(0));
        recovery.begin(7);
        assert!(recovery.has_just_begun(6 + TIME / 4) && !recovery.has_just_begun(7 + TIME / 4));
    }
}
