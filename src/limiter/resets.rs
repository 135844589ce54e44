//! Which charges a reset has made void: a limiter counts its resets, and each decision carries the count.
//!
//! A refund gives back what a charge still holds, and after a reset it holds nothing; but the words of most rules do not tell whether
//! they were reset. So a limiter has one number for all its keys, which each reset of any key changes before and after it, and a
//! refund whose decision has another number than the limiter gives back nothing. What is lost by one number for all keys: the
//! refund of a charge that the reset of another key came after. Why not a number for each key: it would have to be in its word, or
//! beside it. Why not a time: callers pass times of their own, which stand still or go back.
//!
//! The first number is random, so that the decisions of other limiters give back nothing either, but for one in four billion.
//!
//! # What holds
//!
//! A charge is made in three steps: the number is read, the word is changed, and the decision has the number. A reset: the number is
//! raised, words are changed, the number is raised again. A refund, again and again: the word is read, the number is compared, the
//! word is changed unless it was meanwhile.
//!
//! 1. What a reset has made void is not given back once the reset is over. The charge changed the word before the reset did, so it
//!    read the number before the second raise, and that is over.
//! 2. Nor is it given back during the reset, if it read the number before the first raise. A refund that is to give back changes the
//!    word after the reset did; it has read that word, and the number after that, so it sees the first raise.
//! 3. What is left are two races, in which a refund may give back what others have charged since, no more than it took itself:
//!    a charge and its refund that both come between the two raises of one reset, the charge before the reset comes to the key and
//!    the refund after (a reset of one key takes less than a microsecond, a `clear` as long as it takes to go over the table); and a
//!    refund that has read the word before the reset and changes it after, where others have charged meanwhile until the word was
//!    the very same again: a bucket's by as much at the same time, a window's by as much in the same window.
//!
//! A decision that is kept while its limiter is reset exactly 2^31 times is taken for a new one.
//!
//! # Orderings
//!
//! | edge | release side | acquire side | what becomes visible | loom test that fails if it is weakened |
//! |---|---|---|---|---|
//! | reset | `rule::try_update` of a word that is reset | `State::refund` | that the number was raised | `refund_races_reset_and_gives_back_nothing_that_is_void` |
//!
//! For a log, *link* does that: who sees that it begins anew sees what was done before. A key that is moved by another thread between
//! its reset and its refund is brought with a word that depends on the one that was reset, which processors keep in order. For
//! 1, a processor would have to make the second raise visible before it knows the word that the loop before it waits for; none does.

use crate::decision::{Decision, Stamp};
use crate::sync::{Atomic, Ordering::Relaxed};
use std::hash::{BuildHasher, RandomState};

/// The number of a limiter.
#[derive(Debug)]
pub struct Resets(Atomic<u64>);

impl Resets {
    pub(super) fn none_yet() -> Self {
        // A model must not be random, or loom could not run an execution again.
        let first = if cfg!(tollgate_loom) { 1 } else { RandomState::new().hash_one(0_u8) };
        Self(Atomic::new(first))
    }

    /// What a decision is to carry whose charge is made after this.
    #[inline(always)]
    pub(super) fn stamp(&self) -> Stamp {
        // ORDERING: relaxed; see "What holds": an older number makes a refund give back nothing.
        let number = self.0.load(Relaxed);
        // What a decision has room for.
        #[allow(clippy::cast_possible_truncation)]
        Stamp(number as u32)
    }

    /// Was there no reset since this was charged, as far as this thread can see?
    pub(super) fn are_before(&self, charge: &Decision) -> bool {
        self.stamp().0 == charge.stamp.0
    }

    /// Does what resets keys.
    pub(super) fn note(&self, reset: impl FnOnce()) {
        // ORDERING: relaxed, twice; published by the edge *reset*, and see "What holds".
        self.0.fetch_add(1, Relaxed);
        reset();
        self.0.fetch_add(1, Relaxed);
    }
}
