//! Whether the store may have lost reported counts, and how long all machines have to report them
//! again.
//!
//! # Orderings
//!
//! | edge | release side | acquire side | what becomes visible | loom test that fails if it is weakened |
//! |---|---|---|---|---|
//! | *noticed* | `notice`, on the connection | the same | the end of the recovery: a thread that finds the connection known also finds that end; otherwise an answer of a store that has lost everything would be treated as a confirmation | `connections_are_noticed_with_the_time_to_recover` |

use super::atomics::{Acquire, AtomicU64, Relaxed, Release};

/// How long other machines may take to report again what the store has lost, in microseconds.
const TIME: u64 = 2_000_000;

/// The state of a recovery. All times are in microseconds since the same moment.
#[derive(Debug, Default)]
pub struct Recovery {
    /// The connection of the last answer; 0 before the first.
    connection: AtomicU64,
    /// Until this time an answer confirms nothing.
    until: AtomicU64,
}

impl Recovery {
    /// Records an answer over `connection`. If the connection is new, the store behind it may have
    /// lost everything, and a recovery begins. Returns whether one begins.
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
        // ORDERING: release side of *noticed*, so it is stored last.
        self.connection.store(connection, Release);
        is_another
    }

    /// Begins a recovery, because the store has lost something.
    pub fn begin(&self, now: u64) {
        // ORDERING: relaxed; one number.
        self.until.store(now + TIME, Relaxed);
    }

    /// Returns whether answers must not be treated as confirmations.
    pub fn is_on(&self, now: u64) -> bool {
        // ORDERING: relaxed, as in `begin`.
        now < self.until.load(Relaxed)
    }

    /// Returns whether the recovery is so recent that another report of a loss means the same loss.
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
