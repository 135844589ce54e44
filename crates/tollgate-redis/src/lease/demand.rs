//! [`Demand`]: how fast a key spends tokens on this machine, and the lease that it therefore needs.

/// A lease is at most this many times as large as the one before it, so a few requests in a row do
/// not take many tokens.
const GROWTH: u64 = 4;

/// The tokens that a key has spent on this machine in some time, in ticks.
#[derive(Clone, Copy, Debug)]
pub(super) struct Demand {
    pub(super) spent: u64,
    /// At least one tick.
    pub(super) time: u64,
}

impl Demand {
    /// Returns how many tokens are spent in `time` at this rate, rounded down.
    pub(super) fn within(self, time: u64) -> u64 {
        self.spent.saturating_mul(time) / self.time
    }

    /// Returns the tokens of the next lease after one of `size` tokens: as many as the key spends
    /// in the time for which a lease can be `kept`, but at most `most`.
    pub(super) fn next(self, size: u64, most: u64, kept: u64) -> u64 {
        let due = self.within(kept);
        let tokens = match due > size {
            true => due.min((size * GROWTH).max(1)),
            // A lease shrinks slowly, because random requests are sometimes slow.
            false => (size + due) / 2,
        };
        tokens.min(most)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEPT: u64 = 5_000;

    /// Returns the leases of a key that spends `spent` tokens in `time`, from the first request on.
    fn sizes(spent: u64, time: u64) -> Vec<u64> {
        let mut size = 0;
        let next = |_| {
            size = Demand { spent, time }.next(size, 100, KEPT);
            size
        };
        (0..8).map(next).collect()
    }

    #[test]
    fn leases_grow_to_what_is_spent_while_they_last() {
        // 1,000 and 20 tokens a second, 2.5 tokens a second, and one in three seconds.
        assert_eq!(sizes(1, 1), [1, 4, 16, 64, 100, 100, 100, 100]);
        assert_eq!(sizes(20, 1_000), [1, 4, 16, 64, 100, 100, 100, 100]);
        assert_eq!(sizes(5, 2_000), [1, 4, 12, 12, 12, 12, 12, 12]);
        assert_eq!(sizes(1, 3_000), [1; 8]);
        // A key that comes back after more than this time leases nothing.
        assert_eq!(sizes(1, 5_001), [0; 8]);
    }

    #[test]
    fn a_lease_shrinks_when_less_is_spent() {
        let slow = Demand { spent: 2, time: 5_000 };
        assert_eq!(slow.next(100, 100, KEPT), 51);
        assert_eq!(slow.next(4, 100, KEPT), 3);
        assert_eq!(Demand { spent: 0, time: 1 }.next(1, 100, KEPT), 0);
    }

    #[test]
    fn no_number_overflows() {
        for (spent, time) in [(u64::MAX, 1), (1, u64::MAX / 2), (u64::MAX, u64::MAX / 2)] {
            let tokens = Demand { spent, time }.next(1 << 24, (1 << 24) - 1, 10_000);
            assert!(tokens < 1 << 24, "{tokens:?}");
        }
    }
}
