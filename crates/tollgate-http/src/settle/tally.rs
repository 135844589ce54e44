//! A tally of costs by their size.
//!
//! # State
//!
//! Costs are counted in buckets. Each cost below 16 has its own bucket. Each larger power of two
//! has eight buckets, so that the costs in a bucket differ by less than an eighth. The 496 counts
//! occupy 4 KB.
//!
//! HdrHistogram uses the same buckets. A quantile computed from such buckets has a bounded relative
//! error, as Masson, Rim and Lee show in "DDSketch" (VLDB 2019).
//!
//! The P-square algorithm (Jain and Chlamtac, 1985) needs only five markers, but is not used here.
//! Each cost moves all of its markers, so threads would have to take turns, and the algorithm never
//! forgets old costs. With buckets, threads count independently, and halving the counts forgets old
//! costs.
//!
//! # Forgetting
//!
//! When [`MOST`] costs have been counted, each count is halved. A cost therefore loses half of its
//! weight with every 2048 costs that follow.
//!
//! # Orderings
//!
//! All operations are relaxed, because a count publishes no other data. A quantile that is read
//! while other threads count or halve the counts is based on costs counted at about that time. All
//! changes of a count are read-modify-writes, so no change is lost and no count falls below 0.
//!
//! # Progress
//!
//! Counting and reading are wait-free, except for the one call in 2048 that halves the counts. That
//! call runs a lock-free compare-and-swap loop for each bucket.

use crate::atomics::{AtomicU64, Relaxed};

/// Each cost below this constant has its own bucket.
const EXACT: u64 = 16;
/// The number of bits after the leading bit that select the bucket of a larger cost.
const BITS: u32 = 3;
/// The number of buckets for each power of two.
const EACH: usize = 1 << BITS;
const BUCKETS: usize = 16 + (64 - 4) * EACH;
/// The number of costs after which the counts are halved.
pub(crate) const MOST: u64 = 4096;

/// The counts of costs, by size.
#[derive(Debug)]
pub(crate) struct Tally {
    counts: Box<[AtomicU64]>,
    /// The number of counted costs, which is halved together with the counts.
    total: AtomicU64,
}

impl Default for Tally {
    fn default() -> Self {
        Self { counts: (0..BUCKETS).map(|_| AtomicU64::new(0)).collect(), total: AtomicU64::new(0) }
    }
}

impl Tally {
    pub(crate) fn count(&self, cost: u64) {
        // ORDERING: relaxed, because the count publishes no other data.
        self.counts[bucket(cost)].fetch_add(1, Relaxed);
        // ORDERING: relaxed, because the total only decides which thread halves the counts.
        let total = self.total.fetch_add(1, Relaxed) + 1;
        // Only the thread that halves the total also halves the counts.
        // ORDERING: relaxed, for the same reason.
        if total >= MOST && self.total.compare_exchange(total, total / 2, Relaxed, Relaxed).is_ok() {
            for count in &self.counts {
                // ORDERING: relaxed, because each count is halved independently.
                let _ = count.fetch_update(Relaxed, Relaxed, |count| Some(count / 2));
            }
        }
    }

    /// Returns the number of costs in the counts.
    pub(crate) fn total(&self) -> u64 {
        // ORDERING: relaxed, because the counts only have to be approximately current.
        self.counts.iter().map(|count| count.load(Relaxed)).sum()
    }

    /// Returns a quantile: the smallest cost that is at least as large as `thousandths` of all
    /// costs, or a value up to an eighth larger. Returns `None` if there are too few costs, that
    /// is, if the remaining thousandths contain less than one cost.
    pub(crate) fn quantile(&self, thousandths: u64) -> Option<u64> {
        let total = self.total();
        if total.saturating_mul(1000 - thousandths) < 1000 {
            return None;
        }
        let rank = (total * thousandths).div_ceil(1000);
        let mut counted = 0;
        let reaches = |count: &AtomicU64| {
            // ORDERING: relaxed, as in `total`.
            counted += count.load(Relaxed);
            counted >= rank
        };
        // If the counts are halved concurrently, they may not reach the rank.
        Some(largest(self.counts.iter().position(reaches)?))
    }
}

/// Returns the bucket of a cost.
fn bucket(cost: u64) -> usize {
    if cost < EXACT {
        return usize::try_from(cost).unwrap_or_default();
    }
    let power = cost.ilog2();
    let within = usize::try_from(cost >> (power - BITS)).unwrap_or_default() % EACH;
    16 + (power as usize - 4) * EACH + within
}

/// Returns the largest cost of a bucket.
fn largest(bucket: usize) -> u64 {
    let Some(above) = bucket.checked_sub(16) else { return bucket as u64 };
    let (power, within) = (above / EACH + 4, (above % EACH) as u128);
    let next = (EACH as u128 + within + 1) << (power - BITS as usize);
    u64::try_from(next - 1).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Returns the smallest cost that is at least as large as `thousandths` of all costs.
    fn exact(costs: &[u64], thousandths: u64) -> u64 {
        let mut sorted = costs.to_vec();
        sorted.sort_unstable();
        let rank = (sorted.len() as u64 * thousandths).div_ceil(1000).max(1);
        sorted[usize::try_from(rank).unwrap() - 1]
    }

    #[test]
    fn every_cost_is_in_the_bucket_that_ends_with_it_or_above_it() {
        let near = (0..64).flat_map(|power| [-1_i128, 0, 1].map(|off| (1_i128 << power) + off));
        for cost in
            near.chain([0, 9, 17, 100, 999]).map(|cost| u64::try_from(cost).unwrap_or(0)).chain([u64::MAX])
        {
            let (bucket, largest) = (bucket(cost), largest(bucket(cost)));
            assert!(bucket < BUCKETS && largest >= cost, "{cost}");
            assert!(u128::from(largest - cost) * 8 <= u128::from(cost), "{cost} {largest}");
            assert_eq!(super::bucket(largest), bucket);
            assert!(largest == u64::MAX || super::bucket(largest + 1) == bucket + 1);
        }
    }

    proptest! {
        #[test]
        fn a_quantile_is_the_exact_one_or_up_to_an_eighth_more(
            costs in prop::collection::vec((0..64_u32, any::<u64>()).prop_map(|(bits, cost)| cost >> bits), 1..300),
            thousandths in 1..=999_u64,
        ) {
            let tally = Tally::default();
            costs.iter().for_each(|&cost| tally.count(cost));
            let enough = costs.len() as u64 * (1000 - thousandths) >= 1000;
            let found = tally.quantile(thousandths);
            prop_assert_eq!(found.is_some(), enough);
            if let Some(found) = found {
                let exact = exact(&costs, thousandths);
                prop_assert!(found >= exact && found - exact <= exact / 8, "{} for {}", found, exact);
            }
        }
    }

    #[test]
    fn what_was_long_ago_is_forgotten_and_the_counts_stay_small() {
        let tally = Tally::default();
        (0..100_000).for_each(|_| tally.count(1_000_000));
        assert!(tally.total() < MOST, "{}", tally.total());
        // Once there are as many new costs as remembered old ones, half of all costs have the new
        // size.
        (0..MOST).for_each(|_| tally.count(100));
        let median = tally.quantile(500).unwrap();
        assert!((100..=112).contains(&median), "{median}");
        (0..20 * MOST).for_each(|_| tally.count(100));
        assert!(tally.quantile(999).unwrap() <= 112);
    }

    #[test]
    fn no_count_is_lost_or_goes_below_zero_while_threads_count_and_halve() {
        let tally = Tally::default();
        std::thread::scope(|scope| {
            for cost in [5, 500, 50_000, 5_000_000] {
                let tally = &tally;
                scope.spawn(move || (0..20_000).for_each(|_| tally.count(cost)));
            }
        });
        // Each thread may lag behind by one halving. A count below 0 would wrap around to almost
        // 2^64.
        assert!(tally.total() <= 2 * MOST, "{}", tally.total());
        let few = Tally::default();
        std::thread::scope(|scope| {
            (0..4).for_each(|_| _ = scope.spawn(|| (0..1000).for_each(|cost| few.count(cost))));
        });
        assert_eq!(few.total(), 4000);
    }
}
