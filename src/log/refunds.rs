//! The refunds of the admissions of one chunk.
//!
//! A check needs the sum over any run of admissions. That sum must never exceed the tokens that
//! were given back: a sum that is too small admits too little, but a sum that is too large admits
//! too much. Therefore the refunds are a tree of sums, in which a node covers its two children. A
//! refund is added to its leaf first, and then to the nodes above. A run is read as the few nodes
//! that cover it without overlap, so a concurrent refund is read once or not at all.
//!
//! A thread that stops for good on its way up leaves a refund that some readers see and others do
//! not. This delays requests, but never admits too much.

use super::step::{Step, reach};
use crate::sync::{Atomic, Ordering::Relaxed};
use std::ops::Range;

/// Tokens given back, by admission.
#[derive(Debug)]
pub(super) struct Refunds {
    /// The leaves are in the second half; node `n` covers the nodes `2n` and `2n + 1`.
    sums: Box<[Atomic<u64>]>,
    leaves: usize,
}

impl Refunds {
    /// Makes the refunds of a chunk with `slots` slots.
    pub(super) fn of(slots: usize) -> Self {
        let leaves = slots.next_power_of_two();
        Self { sums: (0..2 * leaves).map(|_| Atomic::new(0)).collect(), leaves }
    }

    pub(super) fn bytes(&self) -> usize {
        size_of::<Self>() + size_of_val(&*self.sums)
    }

    /// Records that `tokens` of an admission of `admitted` tokens are given back, or the tokens
    /// that are left if they are fewer. Returns the number of tokens that this call gave back.
    pub(super) fn add(&self, slot: usize, admitted: u64, tokens: u64) -> u64 {
        let leaf = self.leaves + slot;
        let more = |sum: u64| Some(sum.saturating_add(tokens).min(admitted)).filter(|&next| next != sum);
        // ORDERING: relaxed twice; a count. A reader that misses it only sees the refund later.
        let Ok(before) = self.sums[leaf].fetch_update(Relaxed, Relaxed, more) else { return 0 };
        let given = tokens.min(admitted - before);
        reach(Step::Given);
        let mut node = leaf / 2;
        while node > 0 {
            // ORDERING: relaxed; a count, like the leaf.
            self.sums[node].fetch_add(given, Relaxed);
            node /= 2;
        }
        given
    }

    /// Returns the end of a run of admissions after all trailing admissions that are given back in
    /// full are cut off. (Admissions that are being given back right now may stay.) `admitted`
    /// returns the number of tokens that a run took.
    ///
    /// A node that equals the sum of its admissions is exact, because a node is never ahead of its
    /// leaves. Therefore whole nodes are cut off, from the largest down, in at most as many steps
    /// as the square of the tree's height.
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

    /// Returns the number of tokens given back of a run of admissions, or fewer during concurrent
    /// refunds.
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
            // Each admission has 3 tokens; some are given back in part.
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
