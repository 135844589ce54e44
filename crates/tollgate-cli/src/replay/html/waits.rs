//! Counts denied requests in a few classes, according to their retry-after.

use std::time::Duration;

/// The upper bounds of the classes, in milliseconds. The last class has no upper bound.
const ENDS: [u64; 9] = [100, 500, 1_000, 2_000, 5_000, 15_000, 60_000, 300_000, 3_600_000];

/// The numbers of denied requests by retry-after.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Waits {
    counts: [u64; ENDS.len() + 1],
    /// Requests whose responses contain no retry-after, such as the denials of a limit on requests
    /// in flight.
    pub(crate) not_told: u64,
    /// Requests that can never pass.
    pub(crate) never: u64,
}

impl Waits {
    /// Counts a denied request that may pass later. `None` means that the response contains no
    /// retry-after.
    pub(crate) fn add(&mut self, wait: Option<Duration>) {
        match wait {
            Some(wait) => {
                let class = ENDS.iter().position(|&end| wait <= Duration::from_millis(end));
                self.counts[class.unwrap_or(ENDS.len())] += 1;
            }
            None => self.not_told += 1,
        }
    }

    /// Returns the number of requests that were counted.
    pub(crate) fn total(&self) -> u64 {
        self.counts.iter().sum::<u64>() + self.not_told + self.never
    }

    /// Iterates over the classes, from the shortest waits to the longest. Each item contains a
    /// class's upper bound and its count.
    pub(crate) fn classes(&self) -> impl Iterator<Item = (Option<Duration>, u64)> + '_ {
        ENDS.into_iter().map(Duration::from_millis).map(Some).chain([None]).zip(self.counts)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_class_has_its_end() {
        let mut waits = Waits::default();
        for millis in [1, 1000, 1001, 60_000, 3_600_000, 3_600_001] {
            waits.add(Some(Duration::from_millis(millis)));
        }
        waits.add(None);
        let counts: Vec<u64> = waits.classes().map(|(_, count)| count).collect();
        assert_eq!((counts, waits.not_told), (vec![1, 0, 1, 1, 0, 0, 1, 0, 1, 1], 1));
    }
}
