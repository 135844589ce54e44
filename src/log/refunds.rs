//! The refunds of one chunk's admissions.
//!
//! A check needs the sum of the refunds over any run of admissions. That sum must never exceed the
//! tokens that were given back, because a larger sum would admit too much. A smaller sum only
//! admits too little.
//!
//! Therefore the refunds are stored as a tree of sums, in which each node covers its two children.
//! A refund is added to its leaf first, and then to the nodes above. A run is read as the few nodes
//! that cover it without overlap, so a concurrent refund is read at most once.
//!
//! If a thread stops forever on its way up the tree, some readers see its refund and others do not.
//! This delays requests, but never admits too much.

use super::step::{LogStep, reach};
use crate::sync::{Atomic, Ordering::Relaxed};
use std::ops::Range;

/// The tokens given back, for each admission.
#[derive(Debug)]
pub(super) struct Refunds {
    /// The leaves are in the second half. Node `n` covers the nodes `2n` and `2n + 1`.
    sums: Box<[Atomic<u64>]>,
    leaves: usize,
}

impl Refunds {
    /// Creates the refunds of a chunk with `slots` slots.
    pub(super) fn of(slots: usize) -> Self {
        let leaves = slots.next_power_of_two();
        Self { sums: (0..2 * leaves).map(|_| Atomic::new(0)).collect(), leaves }
    }

    pub(super) fn bytes(&self) -> usize {
        size_of::<Self>() + size_of_val(&*self.sums)
    }

    /// Gives back up to `tokens` tokens of an admission that had `admitted` tokens in total.
    /// Returns the number of tokens that this call gave back, which is less than `tokens` if the
    /// admission has fewer tokens left.
    pub(super) fn add(&self, slot: usize, admitted: u64, tokens: u64) -> u64 {
        let leaf = self.leaves + slot;
        let more = |sum: u64| Some(sum.saturating_add(tokens).min(admitted)).filter(|&next| next != sum);
        // ORDERING: both accesses are relaxed, because this is a count. A reader that misses the
        // refund sees it later.
        let Ok(before) = self.sums[leaf].fetch_update(Relaxed, Relaxed, more) else { return 0 };
        let given = tokens.min(admitted - before);
        reach(LogStep::Given);
        let mut node = leaf / 2;
        while node > 0 {
            // ORDERING: relaxed; this is a count, like the leaf.
            self.sums[node].fetch_add(given, Relaxed);
            node /= 2;
        }
        given
    }

    /// Returns the end of a run after cutting off all trailing admissions that were given back in
    /// full. (Admissions that are being given back concurrently may remain.) `admitted` returns the
    /// number of tokens admitted in a run.
    ///
    /// A node's sum never exceeds the sum of its leaves. Therefore a node whose sum equals the
    /// number of tokens admitted below it is exact, and can be cut off as a whole. The largest
    /// nodes are cut off first. The number of steps is at most the square of the tree's height.
    pub(super) fn end_of_the_unspent(
        &self,
        slots: Range<usize>,
        admitted: impl Fn(Range<usize>) -> u64,
    ) -> usize {
        let mut end = slots.end;
        'shorter: while end > slots.start {
            // The largest run that ends here and has its own node.
            let mut slot_bits = end.trailing_zeros().min((end - slots.start).ilog2());
            loop {
                let from = end - (1 << slot_bits);
                // ORDERING: relaxed; see the module documentation.
                let given = self.sums[(self.leaves + from) >> slot_bits].load(Relaxed);
                if given == admitted(from..end) {
                    end = from;
                    continue 'shorter;
                }
                let Some(smaller) = slot_bits.checked_sub(1) else { return end };
                slot_bits = smaller;
            }
        }
        end
    }

    /// Returns how many tokens of a run of admissions were given back. During concurrent refunds,
    /// the result may be too small.
    pub(super) fn sum(&self, slots: Range<usize>) -> u64 {
        // ORDERING: relaxed; see the module documentation.
        let read = |node: usize| self.sums[node].load(Relaxed);
        let (mut from, mut to) = (self.leaves + slots.start, self.leaves + slots.end);
        let mut sum = 0;
        while from < to {
            if from % 2 == 1 {
                sum += read(from);
                from += 1;
            }
            if to % 2 == 1 {
                to -= 1;
                sum += read(to);
            }
            (from, to) = (from / 2, to / 2);
        }
        sum
    }
}

#[cfg(all(test, not(tollgate_loom)))]
mod tests {
    use super::*;

    #[test]
    fn the_unspent_end_where_a_plain_list_says() {
        for slots in [1, 2, 7, 8, 13, 64] {
            let refunds = Refunds::of(slots);
            let mut spent = vec![false; slots];
            // Each admission has 3 tokens, and some admissions are given back only in part.
            let admitted = |run: Range<usize>| 3 * run.len() as u64;
            for n in 0..3 * slots {
                let slot = n * 5 % slots;
                let tokens = if n % 4 == 0 { 1 } else { 3 };
                refunds.add(slot, 3, tokens);
                spent[slot] = refunds.sum(slot..slot + 1) == 3;
                for from in 0..=slots {
                    for to in from..=slots {
                        let end = (from..to).rev().find(|at| !spent[*at]).map_or(from, |at| at + 1);
                        assert_eq!(refunds.end_of_the_unspent(from..to, admitted), end);
                    }
                }
            }
        }
    }

    #[test]
    fn sums_of_runs_are_those_of_a_plain_list() {
        for slots in [1, 2, 7, 8, 13] {
            let refunds = Refunds::of(slots);
            let mut list = vec![0; slots];
            for (n, tokens) in [5, 1, 0, 9, 3, 3, 3, 8, 100].into_iter().enumerate() {
                let slot = n * 5 % slots;
                let given = refunds.add(slot, 12, tokens);
                assert_eq!(given, tokens.min(12 - list[slot]));
                list[slot] += given;
                for from in 0..=slots {
                    for to in from..=slots {
                        assert_eq!(refunds.sum(from..to), list[from..to].iter().sum::<u64>());
                    }
                }
            }
        }
    }
}
