//! Which charges a reset has made void: a limiter counts its resets, and each decision carries the
//! count.
//!
//! A refund gives back what a charge still holds, and after a reset a charge holds nothing. But the
//! words of most rules do not tell whether they were reset. So a limiter has one number for all its
//! keys. Each reset of any key changes it before and after the reset, and a refund whose decision
//! has another number gives back nothing.
//!
//! Why not a number for each key? It would have to be in the key's word, or beside it. With one
//! number, the reset of one key also voids the refunds of earlier charges of other keys. Why not a
//! time? Callers pass times of their own, which stand still or go back. Permits in flight do have a
//! number in each word (see `rule/permits.rs`): what is void by mistake comes back by no time.
//!
//! The first number is random, so the decisions of other limiters give back nothing either, except
//! one in four billion.
//!
//! # What holds
//!
//! A charge has three steps: it reads the number, changes the word, and stores the number in the
//! decision. A reset raises the number, changes words, and raises the number again. A refund
//! repeats these steps until it succeeds: it reads the word, compares the number, and changes the
//! word unless the word has changed meanwhile.
//!
//! 1. Once a reset is over, a charge that it made void is not given back. The charge changed the
//!    word before the reset did, so it read the number before the second raise, and that raise is
//!    done.
//! 2. During a reset, a void charge is not given back if it read the number before the first raise.
//!    A refund that would give it back changes the word after the reset did. It has read that word,
//!    and the number after that, so it sees the first raise.
//! 3. Two races are left, in which a refund may give back what others have charged since, at most
//!    as many tokens as it took itself. In the first, a charge and its refund both come between the
//!    two raises of one reset, the charge before the reset reaches the key and the refund after. (A
//!    reset of one key takes less than a microsecond, a `clear` as long as it takes to go over the
//!    table.) In the second, a refund has read the word before the reset and changes it after, and
//!    others have meanwhile charged until the word is the same again: a bucket's by as much at the
//!    same time, a window's by as much in the same window.
//!
//! A decision that is kept while its limiter is reset exactly 2^31 times counts as a new one.
//!
//! # Orderings
//!
//! | edge | release side | acquire side | what becomes visible | loom test that fails if it is weakened |
//! |---|---|---|---|---|
//! | reset | `rule::try_update` of a word that is reset | `State::refund` | that the number was raised | `refund_races_reset_and_gives_back_nothing_that_is_void` |
//! | counted | `rule::try_update` and `rule::swap` of a charge | any reset | that the charge has read its number | none: it keeps a load of one thread before its store, and no load of loom's comes late |
//!
//! For a log, the edge *link* does this: a thread that sees that the log begins anew sees what was
//! done before. If another thread moves a key between its reset and its refund, it writes a word
//! that depends on the word that was reset, which processors keep in order. To break 1, a processor
//! would have to change the word before it has read the number, which *counted* forbids; or make
//! the second raise visible before it knows the word that the loop before it waits for, and no
//! processor does.

use crate::decision::{Decision, Stamp};
use crate::sync::{Atomic, Ordering::Relaxed};
use std::hash::{BuildHasher, RandomState};

/// The number of a limiter, which each reset raises twice.
#[derive(Debug)]
pub struct Resets(Atomic<u64>);

impl Resets {
    pub(crate) fn none_yet() -> Self {
        // A model must not be random, because loom runs each execution again.
        let first = if cfg!(tollgate_loom) { 1 } else { RandomState::new().hash_one(0_u8) };
        Self(Atomic::new(first))
    }

    /// The stamp for a decision whose charge is made after this call.
    #[inline(always)]
    pub(crate) fn stamp(&self) -> Stamp {
        // ORDERING: relaxed; see "What holds": an older number makes a refund give back nothing.
        let number = self.0.load(Relaxed);
        // A decision has room for 32 bits.
        #[allow(clippy::cast_possible_truncation)]
        Stamp(number as u32)
    }

    /// Whether no reset came after this charge, as far as this thread can see. The rule of permits
    /// in flight tells it by the key's own word.
    #[inline]
    pub(crate) fn are_before(&self, charge: &Decision) -> bool {
        self.stamp().0 == charge.stamp.0 || charge.in_flight().is_some()
    }

    /// Runs `reset`, and raises the number before and after it.
    pub(crate) fn note(&self, reset: impl FnOnce()) {
        // ORDERING: relaxed, twice; published by the edge *reset*, and see "What holds".
        self.0.fetch_add(1, Relaxed);
        reset();
        self.0.fetch_add(1, Relaxed);
    }
}
