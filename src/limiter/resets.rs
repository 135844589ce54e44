//! Voids charges when keys are reset. A limiter counts its resets, and each decision contains this
//! count.
//!
//! A refund returns the tokens that a charge still holds, but after a reset, a charge holds none.
//! However, the words of most rules do not show whether they were reset. A limiter therefore has
//! one number for all its keys. Every reset, of whichever key, raises the number twice: before and
//! after the reset itself. A refund has no effect if its decision contains a different number.
//!
//! A change of a key's quota also voids the key's earlier charges. Each rule has a stamp (see
//! `state` and `table/rules.rs`). A decision has room for one number, so it contains the sum of the
//! rule's stamp and the number of resets. A refund compares this sum.
//!
//! Why not a number for each key? The number would have to be stored in the key's word, or next to
//! the word. A single number has a price: the reset of one key also voids the refunds of other
//! keys' earlier charges. Permits in flight do have a number in each word (see `rule/permits.rs`),
//! because permits that are voided by mistake do not return as time passes.
//!
//! Why not a time? Callers pass their own times, which may stand still or go back.
//!
//! The first number is random. A refund for a decision made by another limiter therefore has no
//! effect either, except for one decision in four billion.
//!
//! # What holds
//!
//! A charge has three steps: it reads the number, changes the word, and stores the number in the
//! decision. A reset raises the number, changes words, and raises the number again. A refund
//! repeats the following steps until it succeeds: it reads the word, compares the number, and
//! changes the word unless the word has changed in the meantime.
//!
//! 1. After a reset has ended, a charge voided by the reset is not refunded. The charge changed the
//!    word before the reset changed it, so the charge read the number before the second raise, and
//!    that raise is complete.
//! 2. During a reset, a void charge is not refunded if the charge read the number before the first
//!    raise. To return such a charge, a refund would have to change the word after the reset has
//!    changed the word. Such a refund has read this later word, and then the number, so the refund
//!    sees the first raise.
//! 3. Two races remain in which a refund may return tokens that other requests have charged since.
//!    The refund returns no more of these tokens than its own charge took.
//!
//!    In the first race, a charge and its refund both happen between the two raises of one reset.
//!    The charge happens before the reset reaches the key, and the refund happens afterwards. (A
//!    reset of one key takes less than a microsecond; a `clear` takes as long as a pass over the
//!    table.)
//!
//!    In the second race, a refund reads the word before the reset and changes the word after the
//!    reset. In between, charges by other requests have restored the word's earlier value. In a
//!    bucket, these charges have the same amount and the same time as the void charges. In a
//!    window, they have the same amount in the same window.
//!
//! If a limiter is reset exactly 2^31 times after a decision, the decision counts as current again.
//!
//! # Orderings
//!
//! | edge | release side | acquire side | what becomes visible | loom test that fails if it is weakened |
//! |---|---|---|---|---|
//! | reset | `rule::try_update` of a word that is reset | `State::refund` | that the number was raised | `refund_races_reset_and_gives_back_nothing_that_is_void` |
//! | reset | `rule::try_update` of a word that is reset | `SingleLimiter::refund_at`, with leases | that the number was raised | `refund_races_reset_beside_leases_and_gives_back_nothing_that_is_void` |
//! | counted | `rule::try_update` and `rule::swap` of a charge | any reset | that the charge has read its number | none: the edge keeps a load of one thread before the store of that thread, and loom never delays a load |
//!
//! A log relies on the *link* edge instead: a thread that sees the restarted log also sees
//! everything that happened before the restart.
//!
//! Another thread may move a key between the reset and the refund of the key. The word that this
//! thread writes depends on the reset word, and processors preserve this order.
//!
//! A processor would break invariant 1 only if it changed the word before it had read the number,
//! which *counted* forbids, or if it made the second raise visible before it had loaded the word
//! for which the preceding loop waits. No processor makes a store visible so early.

use crate::decision::{Decision, Stamp};
use crate::sync::{Atomic, Ordering::Relaxed};
use std::hash::{BuildHasher, RandomState};

/// The number that counts a limiter's resets. Each reset raises it twice.
#[derive(Debug)]
pub struct Resets(Atomic<u64>);

impl Resets {
    pub(crate) fn none_yet() -> Self {
        // A model must not depend on random numbers, because loom repeats each execution.
        let first = if cfg!(tollgate_loom) { 1 } else { RandomState::new().hash_one(0_u8) };
        Self(Atomic::new(first))
    }

    /// Returns the stamp for a decision, to which the store adds the stamp of the key's rule. The
    /// charge must be made after this call.
    #[inline(always)]
    pub(crate) fn stamp(&self) -> Stamp {
        // ORDERING: relaxed, because an older number makes a refund ineffective; see "What holds".
        Stamp::of_resets(self.0.load(Relaxed))
    }

    /// Returns true if `charge` was made under the rule with the stamp `rule`, and no reset has
    /// followed the charge, as far as this thread can see. Always returns true for permits in
    /// flight, because their rule checks the key's own word instead.
    #[inline]
    pub(crate) fn are_before(&self, charge: &Decision, rule: Stamp) -> bool {
        charge.stamp.is(self.stamp().plus(rule)) || charge.in_flight().is_some()
    }

    /// Runs `reset`, and raises the number before and after it.
    pub(crate) fn note(&self, reset: impl FnOnce()) {
        // ORDERING: both raises are relaxed, because the *reset* edge publishes the number; see
        // "What holds".
        self.0.fetch_add(1, Relaxed);
        reset();
        self.0.fetch_add(1, Relaxed);
    }
}
