//! The rules. Each algorithm is a pure function on one packed word, and one compare-and-swap loop
//! applies all of them.
//!
//! A rule reads no clock, performs no atomic operations and allocates nothing. A rule computes the
//! next word and a [`Decision`] from a word, a time and a cost. A rule can therefore be tested
//! against a slow oracle, and one loop (`try_update`) serves every type that contains a word.
//!
//! # State
//!
//! The state is one [`Word`]. A word of all zeros is *fresh*, which means that the key was never
//! seen. The rule defines the meaning of all other values.
//!
//! # Invariants
//!
//! 1. A denial returns the word unchanged (or no word, inside this crate), so nothing is written.
//! 2. A charge of at least one token returns a different word, so two callers cannot both succeed
//!    with a compare-and-swap from the same value.
//! 3. A rule returns the fresh word only for a fresh word.
//!
//! # What a word may hold in the future, and what belongs elsewhere
//!
//! A slot is 16 bytes, and must remain so: 64 bits for the fingerprint, 63 bits for the rule's
//! value, and the table's *frozen* mark. A word contains neither its rule nor its quota, because
//! its store contains both. A new fact therefore belongs in the value only if the rule's decisions
//! depend on it, it changes in the same compare-and-swap as a charge, and it ends when the word
//! becomes idle. All other facts belong elsewhere.
//!
//! | fact | where it is, or would be | why |
//! |---|---|---|
//! | the class of a caller | not in the word: each class is a limiter (`limiter/keyed/classes.rs`) | the class selects the rule, so it has to be known before the word is read |
//! | debt below empty | in the value, in an existing field | the rule's decisions depend on it, it is paid back as time passes, and it ends when the word becomes idle |
//! | permits in flight | their own rule (`rule/permits.rs`), whose word is a count; combined with a rate by `check_all` | a permit is returned by an event: no time makes its word idle, so it must not share a word that becomes idle with time |
//! | the end of a key's pause | not in the word: a word of a second store (`limiter/pauses.rs`) | refunds, forced charges and changes of quotas continue during a pause, and after the pause the key has the state that it would have had without it |
//! | the permits that a reset has made void | in the word of the permits, as its generation | the reset number of the limiter would void the permits of all keys, which would not recover with time |
//! | leases between cores | the leased tokens: a line for each core, beside the word (`state/leases.rs`). In the word: that tokens may be out, as a value that no bucket makes otherwise (`rule/leased.rs`) | a lease is charged in full when it is taken, so the word stays correct; but a charge must use a burst that is smaller by the tokens that may be leased |
//! | the mark of `clear` and `reset` | not in the word: one number for each limiter, and in each decision (`limiter/resets.rs`) | most words have no room for it: a number of 32 bits would leave a window only 31 bits for its count and time |
//!
//! *Debt.* A bucket's value is the time at which the bucket is full, and a debt moves that time
//! further ahead than a full burst would. A time is at most 2^62 + 1 grains and a burst at most
//! 2^61. Nearly 2^61 grains are therefore left for debt, as many as for the largest burst. A
//! window's count has only as many bits as the limit requires. A debt must therefore stay within
//! the unused range of these bits, or the rule must be created with more bits.
//!
//! *The mark of leases.* No bit of a value is always 0, so there is no bit for a mark. A bucket,
//! however, never uses the largest quarter of its values, and a leased word is one of these, with a
//! time of at most 18 years. A window uses all values, and grants no leases.
//!
//! *Reset of one key.* Exact keys have space beside the word. In a table, the reset number of the
//! whole limiter identifies the charges that a reset has voided. As a consequence, resetting one
//! key voids the refunds of other keys.
//!
//! # Progress
//!
//! `try_update` is lock-free. If its compare-and-swap fails, another thread's compare-and-swap has
//! succeeded (or the failure was spurious). A denial requires one load and is wait-free.
//!
//! # Orderings
//!
//! | edge | release side | acquire side | what becomes visible | loom test that fails if it is weakened |
//! |---|---|---|---|---|
//! | (none) | | | | |
//!
//! A word is the whole state of its key and points to nothing. Rules rely only on the modification
//! order of that one location, which relaxed operations preserve. (The stronger orderings in this
//! file are for threads that freeze, reset or count.) The test
//! `charge_races_charge_never_admits_twice` shows what would break if the compare-and-swap were a
//! load and a store.

// Public only with the feature `unstable-rule`, for oracles and fuzz targets.
#![cfg_attr(not(feature = "unstable-rule"), allow(dead_code, unreachable_pub))]

mod contract;
mod fixed_window;
mod gcra;
pub(crate) mod leased;
mod permits;
mod sliding_window;
mod windows;
mod word;

#[cfg(feature = "unstable-rule")]
pub use crate::error::Refused;
pub use contract::Rule;
pub use fixed_window::FixedWindow;
pub use gcra::Gcra;
pub(crate) use leased::Leased;
pub use permits::Permits;
pub use sliding_window::SlidingWindow;
pub use word::Word;

use crate::algorithm::Algorithm;
use crate::decision::Decision;
#[cfg(not(feature = "unstable-rule"))]
use crate::error::Refused;
use crate::quota::Quota;
use crate::sync::{
    Atomic,
    Ordering::{Relaxed, Release},
};
use crate::time::Tick;
use contract::Sealed;
use std::time::Duration;

/// The result of [`try_update`]: the words before and after the update.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Updated {
    pub(crate) from: Word,
    pub(crate) to: Word,
    /// True if `from` and `to` differ. The loop sets this flag when it ends, so callers need not
    /// compare the words.
    pub(crate) is_new: bool,
}

/// Applies `step` to the word in `cell`, and retries if another thread has changed the word in the
/// meantime. The crate contains no other loop of this kind.
///
/// `step` returns the next word, which must differ from its argument, or `None` to write nothing.
/// The loop returns words rather than an answer, so it works in registers and computes nothing for
/// the answer between the load and the compare-and-swap. The caller can compute the answer from the
/// words afterwards, without an atomic operation. A failed compare-and-swap is retried without a
/// pause, because a pause would make two threads slower. This function is lock-free.
#[inline(always)]
pub(crate) fn try_update(cell: &Atomic<Word>, step: impl Fn(Word) -> Option<Word>) -> Updated {
    // ORDERING: relaxed; the word is the whole state. See the module's ledger.
    let mut from = cell.load(Relaxed);
    loop {
        let Some(to) = step(from) else {
            return Updated { from, to: from, is_new: false };
        };
        // ORDERING: for a frozen word, this is the release side of *closed* (see `table`): the
        // freezing thread has seen the next array linked. For a reset word, it is the release side
        // of *reset*, because the reset is counted before, and for a charge, of *counted* (see
        // `limiter`). For a lease, it is that of *claimed* and *contended* (see `state/leases.rs`).
        match cell.compare_exchange_weak(from, to, Release, Relaxed) {
            Ok(_) => return Updated { from, to, is_new: true },
            Err(found) => from = found,
        }
    }
}

/// Applies `step` to the word in `cell`, like [`try_update`]. If `step` returns the word unchanged,
/// nothing is written.
#[inline(always)]
pub(crate) fn update(cell: &Atomic<Word>, step: impl Fn(Word) -> Word) -> Updated {
    try_update(cell, |word| Some(step(word)).filter(|&to| to != word))
}

/// Takes `cost` tokens from the bucket in `cell`, or denies the request. The returned flag is true
/// if any tokens were taken. Returns `None` if the word is frozen or fresh.
///
/// The answer is computed from the two words, outside the loop. Only those parts of the answer that
/// the caller reads are computed.
#[inline(always)]
pub(crate) fn take(bucket: Gcra, cell: &Atomic<Word>, now: Tick, cost: u64) -> Option<(Decision, bool)> {
    let Updated { from, to, is_new } = try_update(cell, |word| bucket.charged(word, now, cost));
    let taken = is_new.then_some(to);
    (is_new || from.is_live()).then(|| (bucket.answer_after(from, taken, now, cost), is_new))
}

/// Replaces `from`, the word loaded earlier, with `to`, the word after a charge. Returns false if
/// another thread has changed the word in the meantime. This function is wait-free.
#[inline(always)]
pub(crate) fn swap(cell: &Atomic<Word>, from: Word, to: Word) -> bool {
    // ORDERING: for a charge, this is the release side of *counted* (see `limiter/resets.rs`). A
    // moved word needs no ordering here: see `table`. A failed exchange publishes nothing.
    cell.compare_exchange(from, to, Release, Relaxed).is_ok()
}

/// Replaces a fresh word with `first`. Returns false if the word is no longer fresh. This function
/// is wait-free.
#[inline(always)]
pub(crate) fn begin(cell: &Atomic<Word>, first: Word) -> bool {
    swap(cell, Word::FRESH, first)
}

/// Reads the word in `cell`. This function is wait-free.
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
// The representation has an explicit tag, because a turnover matches on the rule for each key.
// Without the tag, the turnover would have to compute the tag from invalid values of `Gcra::queue`.
#[repr(u8)]
pub enum AnyRule {
    /// The rule of [`Algorithm::TokenBucket`], [`Algorithm::LeakyBucket`] and
    /// [`Algorithm::LeakyQueue`].
    Gcra(Gcra),
    /// The rule of [`Algorithm::FixedWindow`].
    FixedWindow(FixedWindow),
    /// The rule of [`Algorithm::SlidingWindow`].
    SlidingWindow(SlidingWindow),
    /// The rule of [`InFlight`](crate::InFlight), which counts the permits in use and limits no
    /// rate.
    Permits(Permits),
}

/// Calls a method on the rule inside an `AnyRule`.
macro_rules! dispatch {
    ($any:expr, $rule:ident => $call:expr) => {
        match $any {
            AnyRule::Gcra($rule) => $call,
            AnyRule::FixedWindow($rule) => $call,
            AnyRule::SlidingWindow($rule) => $call,
            AnyRule::Permits($rule) => $call,
        }
    };
}

impl AnyRule {
    /// Creates the rule that enforces `quota` with `algorithm`. For windows, tick 0 lies `phase`
    /// after a boundary.
    ///
    /// # Errors
    ///
    /// Returns an error if the algorithm cannot enforce the quota, or is not one of
    /// [`Algorithm::PACKED`].
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use tollgate::{Algorithm, Quota, rule::AnyRule};
    /// let daily = |limit| {
    ///     AnyRule::new(Algorithm::FixedWindow, Quota::per_day(limit), Duration::ZERO)
    /// };
    /// assert!(daily(5).is_ok());
    /// assert!(daily(0).is_err());
    /// ```
    pub fn new(algorithm: Algorithm, quota: Quota, phase: Duration) -> Result<Self, Refused> {
        Ok(match algorithm {
            Algorithm::TokenBucket => Self::Gcra(Gcra::token_bucket(quota)?),
            Algorithm::LeakyBucket => Self::Gcra(Gcra::leaky_bucket(quota)?),
            Algorithm::LeakyQueue => Self::Gcra(Gcra::leaky_queue(quota)?),
            Algorithm::FixedWindow => Self::FixedWindow(FixedWindow::new(quota, phase)?),
            Algorithm::SlidingWindow => Self::SlidingWindow(SlidingWindow::new(quota, phase)?),
            Algorithm::SlidingLog => return Err(Refused::AlgorithmUnsupported { algorithm }),
        })
    }

    /// Allows [forced charges](Rule::force) to exceed the capacity by up to `tokens`. By default,
    /// they cannot exceed the capacity.
    ///
    /// | algorithm | effect of a debt |
    /// |---|---|
    /// | token bucket, leaky bucket, leaky queue | refills like all missing tokens, before other tokens |
    /// | fixed window | ends with its window: the next window starts with its full limit |
    /// | sliding window | weighs less and less until the end of the next window |
    /// | sliding log, permits in flight | none: a debt above 0 is refused |
    ///
    /// The tokens charged in an interval may then exceed the rule's bound. For a bucket, the excess
    /// is at most `tokens`. For windows, it is at most `tokens` for each window that the interval
    /// touches.
    ///
    /// # Errors
    ///
    /// Returns an error if the debt and the capacity together do not fit into the word.
    ///
    /// ```
    /// # use std::time::Duration;
    /// use tollgate::rule::{AnyRule, Rule, Word};
    /// use tollgate::{Algorithm, Quota, Tick};
    ///
    /// let rule = AnyRule::new(Algorithm::TokenBucket, Quota::per_second(10), Duration::ZERO)?;
    /// let rule = rule.max_debt(5)?;
    /// let (word, charged) = rule.force(Word::FRESH, Tick::ZERO, 20);
    /// assert_eq!(charged, 15);
    /// let denied = rule.decide(word, Tick::ZERO, 1).1;
    /// assert_eq!(denied.remaining(), 0);
    /// assert_eq!(denied.retry_after(), Some(Duration::from_millis(600)));
    /// assert!(rule.max_debt(u64::MAX).is_err());
    /// # Ok::<(), tollgate::ConfigError>(())
    /// ```
    pub fn max_debt(self, tokens: u64) -> Result<Self, Refused> {
        Ok(match self {
            Self::Gcra(rule) => Self::Gcra(rule.max_debt(tokens)?),
            Self::FixedWindow(rule) => Self::FixedWindow(rule.max_debt(tokens)?),
            Self::SlidingWindow(rule) => Self::SlidingWindow(rule.max_debt(tokens)?),
            Self::Permits(rule) if tokens == 0 => Self::Permits(rule),
            Self::Permits(_) => return Err(Refused::DebtTooLarge { debt: tokens, most: 0 }),
        })
    }
}

impl AnyRule {
    /// Implements [`Rule::refund`] for all rules except buckets.
    #[inline(never)]
    fn refund_otherwise(&self, word: Word, now: Tick, charge: &Decision, tokens: u64) -> Word {
        dispatch!(self, rule => rule.refund(word, now, charge, tokens))
    }

    /// Returns the rule of a token bucket or a leaky bucket, or `None` for other rules.
    #[inline(always)]
    pub(crate) fn as_gcra(&self) -> Option<Gcra> {
        match self {
            Self::Gcra(gcra) => Some(*gcra),
            Self::FixedWindow(_) | Self::SlidingWindow(_) | Self::Permits(_) => None,
        }
    }

    /// Returns the time to which a store raises its mark before it forgets a key with this word.
    /// This is the first time at which the word is idle, or [`Tick::ZERO`] under
    /// [`Gcra::unmarked`]. Returns `None` if the time is after [`Tick::MAX`]. The word must not be
    /// frozen.
    pub(crate) fn idle_from(&self, word: Word) -> Option<Tick> {
        match self {
            Self::Gcra(rule) => rule.idle_from(word),
            Self::FixedWindow(rule) => rule.idle_from(word),
            Self::SlidingWindow(rule) => rule.idle_from(word),
            Self::Permits(_) => Permits::idle_from(word),
        }
    }

    /// Returns whether this rule can have made the word. Such a word is safe to use, even if it was
    /// read from a file.
    pub(crate) fn is_possible(&self, word: Word) -> bool {
        word.is_live()
            && match self {
                Self::Gcra(rule) => rule.is_possible(word),
                Self::FixedWindow(rule) => rule.is_possible(word),
                Self::SlidingWindow(rule) => rule.is_possible(word),
                // A permit belongs to a process, so no word of permits is saved.
                Self::Permits(_) => false,
            }
    }

    /// Returns the longest time for which a charge holds its tokens.
    pub(crate) fn longest_hold(&self) -> Duration {
        match self {
            Self::Gcra(rule) => rule.longest_hold(),
            Self::FixedWindow(rule) => rule.longest_hold(),
            Self::SlidingWindow(rule) => rule.longest_hold(),
            // No time returns a permit.
            Self::Permits(_) => Duration::MAX,
        }
    }

    /// Returns the answer to a request for a key that was never seen or has been forgotten. The
    /// request is decided at `now` or at `mark`, whichever is later.
    pub(crate) fn fresh(&self, now: Tick, mark: Tick, cost: u64) -> Decision {
        let at = now.max(mark);
        self.answer(Word::FRESH, at, cost).late_by(at.as_nanos() - now.as_nanos())
    }

    /// Returns a word that is not fresh, but idle at all times.
    #[cfg(all(test, not(tollgate_loom)))]
    pub(crate) fn idle(&self) -> Word {
        self.adopt(self, Word::FRESH, Tick::ZERO)
    }

    /// Translates a word of the rule `before` into a word of this rule, for a quota that was
    /// changed at `now`. The result is never fresh. Both rules use the limiter's algorithm.
    ///
    /// A rule needs no translation for an equal rule: the word stays as it is, whatever `now` is.
    ///
    /// Charged tokens stay charged, and the remaining tokens are computed from the new quota.
    /// Therefore a larger quota never denies a request that the old quota would have admitted. A
    /// key never receives more than the larger of the two capacities.
    pub(crate) fn adopt(&self, before: &Self, word: Word, now: Tick) -> Word {
        match (self, before) {
            _ if self == before && !word.is_fresh() => word,
            (Self::Gcra(rule), Self::Gcra(before)) => rule.adopt(before, word, now),
            (Self::FixedWindow(rule), Self::FixedWindow(before)) => rule.adopt(before, word, now),
            (Self::SlidingWindow(rule), Self::SlidingWindow(before)) => rule.adopt(before, word, now),
            (Self::Permits(_), Self::Permits(_)) => Permits::adopt(word, now),
            // The variants are listed, so that the compiler reports a new one without an arm.
            (Self::Gcra(_) | Self::FixedWindow(_) | Self::SlidingWindow(_) | Self::Permits(_), _) => {
                unreachable!("all rules of a limiter are of one algorithm")
            }
        }
    }
}

impl Sealed for AnyRule {}

// Bucket answers are always inlined. They take only a few instructions, and a caller that only
// needs to know whether a request is allowed skips the rest of the answer. Window answers are never
// inlined, because they would make every caller large.
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
    fn force(&self, word: Word, now: Tick, tokens: u64) -> (Word, u64) {
        dispatch!(self, rule => rule.force(word, now, tokens))
    }

    // Refunds are inlined only for buckets, like answers.
    #[inline(always)]
    fn refund(&self, word: Word, now: Tick, charge: &Decision, tokens: u64) -> Word {
        match self.as_gcra() {
            Some(gcra) => gcra.refund(word, now, charge, tokens),
            None => self.refund_otherwise(word, now, charge, tokens),
        }
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
