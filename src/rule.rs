//! The rules: what each algorithm decides, as pure values on one packed word, and the one
//! compare-and-swap loop that applies them.
//!
//! A rule reads no clock, touches no atomic and allocates nothing: given a word, a time and a cost it
//! answers with the next word and a [`Decision`]. That makes it testable against a slow oracle, and
//! it lets one loop (`try_update`) serve every holder of a word.
//!
//! # State
//!
//! A holder's cell is one [`Word`]. All zero is *fresh* (never seen); what else it means is the rule's.
//!
//! # Invariants
//!
//! 1. A denial returns the word it was given (or none, inside this crate), so nothing is written.
//! 2. A charge of at least one token returns a different word, so two callers can't both succeed on
//!    one compare-and-swap of the same value.
//! 3. No rule returns the fresh word for a word that is not fresh.
//!
//! # Progress
//!
//! `try_update` is lock-free: when its compare-and-swap fails, another thread's has succeeded (or the
//! hardware failed it spuriously). A denial needs one load and is wait-free.
//!
//! # Orderings
//!
//! | edge | release side | acquire side | what becomes visible | loom test that fails if it is weakened |
//! |---|---|---|---|---|
//! | (none) | | | | |
//!
//! A word is the whole state of its key and points to nothing. All that is asked of the memory is the
//! order of modifications of that one location, which relaxed operations have. What would break if the
//! compare-and-swap were a load and a store is shown by `charge_races_charge_never_admits_twice`.

mod contract;
mod fixed_window;
mod gcra;
mod leaky_bucket;
mod sliding_window;
mod token_bucket;
mod windows;
mod word;

pub use contract::Rule;
pub use fixed_window::FixedWindow;
pub(crate) use gcra::Gcra;
pub use leaky_bucket::LeakyBucket;
pub use sliding_window::SlidingWindow;
pub use token_bucket::TokenBucket;
pub use word::Word;

use crate::algorithm::Algorithm;
use crate::decision::Decision;
use crate::error::ConfigError;
use crate::quota::Quota;
use crate::sync::{
    Atomic,
    Ordering::{Relaxed, Release},
};
use crate::time::Tick;
use contract::Sealed;
use std::time::Duration;

/// What [`try_update`] has done: nothing, if the word stayed the same.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Updated {
    pub(crate) from: Word,
    pub(crate) to: Word,
    /// Are they different? Known from where the loop ended, so that nobody has to compare them again.
    pub(crate) is_new: bool,
}

/// Applies `step` to the word in `cell` until nobody comes between: the one such loop of the crate.
///
/// `step` gives the next word, which is another one, or `None` if it is not to change; then nothing
/// is written. Why words and no answer: who knows on which word it was decided can answer
/// afterwards, without an atomic. So registers leave the loop, and what an answer takes to compute
/// does not come between the load and the compare-and-swap. A failed compare-and-swap is tried
/// again at once: a pause makes two threads slower. Lock-free.
#[inline(always)]
pub(crate) fn try_update(cell: &Atomic<Word>, step: impl Fn(Word) -> Option<Word>) -> Updated {
    // ORDERING: relaxed; the word is the whole state, see the module's ledger.
    let mut from = cell.load(Relaxed);
    loop {
        let Some(to) = step(from) else {
            return Updated { from, to: from, is_new: false };
        };
        // ORDERING: release side of *closed* (see `table`), for a word that is frozen: who freezes it has
        // seen the next era linked. And of *reset* (see `limiter`), for a word that is reset: who resets it has
        // noted that before. A charge publishes nothing but the word itself, and a failure nothing at all.
        match cell.compare_exchange_weak(from, to, Release, Relaxed) {
            Ok(_) => return Updated { from, to, is_new: true },
            Err(found) => from = found,
        }
    }
}

/// The same with a `step` that returns a word that is not to change as it is.
#[inline(always)]
pub(crate) fn update(cell: &Atomic<Word>, step: impl Fn(Word) -> Word) -> Updated {
    try_update(cell, |word| Some(step(word)).filter(|&to| to != word))
}

/// Makes a fresh word the `first`; false if it is not fresh any more. Wait-free.
#[inline(always)]
pub(crate) fn begin(cell: &Atomic<Word>, first: Word) -> bool {
    // ORDERING: relaxed twice; a charge, as in `try_update`, or a word that is moved, of which others learn by the edge *moved* (see
    // `table`).
    cell.compare_exchange(Word::FRESH, first, Relaxed, Relaxed).is_ok()
}

/// The word in `cell`, for those who only look. Wait-free.
#[inline]
pub(crate) fn load(cell: &Atomic<Word>) -> Word {
    // ORDERING: relaxed, as in `try_update`.
    cell.load(Relaxed)
}

/// A rule chosen at run time.
///
/// ```
/// use std::time::Duration;
/// use tollgate::rule::{AnyRule, Rule, Word};
/// use tollgate::{Algorithm, Quota, Tick};
///
/// for algorithm in Algorithm::PACKED {
///     let rule = AnyRule::new(algorithm, Quota::per_minute(3), Duration::ZERO)?;
///     assert_eq!(rule.decide(Word::FRESH, Tick::ZERO, 1).1.remaining(), 2);
/// }
/// # Ok::<(), tollgate::ConfigError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum AnyRule {
    /// See [`TokenBucket`].
    TokenBucket(TokenBucket),
    /// See [`LeakyBucket`].
    LeakyBucket(LeakyBucket),
    /// See [`FixedWindow`].
    FixedWindow(FixedWindow),
    /// See [`SlidingWindow`].
    SlidingWindow(SlidingWindow),
}

/// The same call on whichever rule it is.
macro_rules! dispatch {
    ($any:expr, $rule:ident => $call:expr) => {
        match $any {
            AnyRule::TokenBucket($rule) => $call,
            AnyRule::LeakyBucket($rule) => $call,
            AnyRule::FixedWindow($rule) => $call,
            AnyRule::SlidingWindow($rule) => $call,
        }
    };
}

impl AnyRule {
    /// The rule of `algorithm` for `quota`; for windows, tick 0 lies `phase` after a boundary.
    ///
    /// # Errors
    ///
    /// A [`ConfigError`] if the algorithm can't enforce the quota, or is not one of [`Algorithm::PACKED`].
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use tollgate::{Algorithm, Quota, rule::AnyRule};
    /// let daily = |limit| AnyRule::new(Algorithm::FixedWindow, Quota::per_day(limit), Duration::ZERO);
    /// assert!(daily(5).is_ok());
    /// assert!(daily(0).is_err());
    /// ```
    pub fn new(algorithm: Algorithm, quota: Quota, phase: Duration) -> Result<Self, ConfigError> {
        Ok(match algorithm {
            Algorithm::TokenBucket => Self::TokenBucket(TokenBucket::new(quota)?),
            Algorithm::LeakyBucket => Self::LeakyBucket(LeakyBucket::meter(quota)?),
            Algorithm::LeakyQueue => Self::LeakyBucket(LeakyBucket::queue(quota)?),
            Algorithm::FixedWindow => Self::FixedWindow(FixedWindow::new(quota, phase)?),
            Algorithm::SlidingWindow => Self::SlidingWindow(SlidingWindow::new(quota, phase)?),
            Algorithm::SlidingLog => return Err(ConfigError::AlgorithmUnsupported { algorithm }),
        })
    }
}

impl AnyRule {
    /// The algorithm of a bucket, whichever of the two it is.
    #[inline(always)]
    pub(crate) fn as_gcra(&self) -> Option<Gcra> {
        match self {
            Self::TokenBucket(TokenBucket(gcra)) | Self::LeakyBucket(LeakyBucket(gcra)) => Some(*gcra),
            Self::FixedWindow(_) | Self::SlidingWindow(_) => None,
        }
    }

    /// The first time from which on `word`, which is not frozen, is idle; `None` if time ends
    /// before.
    pub(crate) fn idle_from(&self, word: Word) -> Option<Tick> {
        match self {
            Self::TokenBucket(TokenBucket(gcra)) | Self::LeakyBucket(LeakyBucket(gcra)) => {
                gcra.idle_from(word)
            }
            Self::FixedWindow(rule) => rule.idle_from(word),
            Self::SlidingWindow(rule) => rule.idle_from(word),
        }
    }

    /// The answer to a request for a key that was never seen, or was forgotten: no earlier than
    /// `mark`.
    pub(crate) fn fresh(&self, now: Tick, mark: Tick, cost: u64) -> Decision {
        let at = now.max(mark);
        self.answer(Word::FRESH, at, cost).late_by(at.as_nanos() - now.as_nanos())
    }

    /// The word of a key that is idle at every time, and not fresh.
    #[cfg(all(test, not(tollgate_loom)))]
    pub(crate) fn idle(&self) -> Word {
        self.adopt(self, Word::FRESH, Tick::ZERO)
    }

    /// The word under this rule of a key whose word under the rule `before` was `word`, if the quota was changed
    /// at `now`. What was taken stays taken, as tokens; what is left follows from the new quota. So a larger
    /// quota never denies what the one before would have admitted, and none gives more than the larger of the
    /// two capacities. Never fresh. Both rules are of one algorithm: a limiter's.
    pub(crate) fn adopt(&self, before: &Self, word: Word, now: Tick) -> Word {
        match (self, before) {
            (Self::TokenBucket(rule), Self::TokenBucket(before)) => rule.0.adopt(&before.0, word, now),
            (Self::LeakyBucket(rule), Self::LeakyBucket(before)) => rule.0.adopt(&before.0, word, now),
            (Self::FixedWindow(rule), Self::FixedWindow(before)) => rule.adopt(before, word, now),
            (Self::SlidingWindow(rule), Self::SlidingWindow(before)) => rule.adopt(before, word, now),
            _ => unreachable!("all rules of a limiter are of one algorithm"),
        }
    }
}

impl Sealed for AnyRule {}

// Always inlined down to the buckets: a bucket is a few instructions, and a caller that only asks
// whether a request is allowed computes nothing else of the answer. The answers of windows are
// never inlined: they make every caller large.
impl Rule for AnyRule {
    #[inline(always)]
    fn next(&self, word: Word, now: Tick, cost: u64) -> Word {
        dispatch!(self, rule => rule.next(word, now, cost))
    }

    #[inline(always)]
    fn answer(&self, word: Word, now: Tick, cost: u64) -> Decision {
        dispatch!(self, rule => rule.answer(word, now, cost))
    }

    #[inline]
    fn refund(&self, word: Word, now: Tick, charge: &Decision, tokens: u64) -> Word {
        dispatch!(self, rule => rule.refund(word, now, charge, tokens))
    }

    #[inline]
    fn reset(&self, word: Word) -> Word {
        dispatch!(self, rule => rule.reset(word))
    }

    #[inline]
    fn is_idle(&self, word: Word, now: Tick) -> bool {
        dispatch!(self, rule => rule.is_idle(word, now))
    }
}
