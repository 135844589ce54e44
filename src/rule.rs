//! The rules: each algorithm as a pure value on one packed word, and the one compare-and-swap loop
//! that applies them.
//!
//! A rule reads no clock, touches no atomic and allocates nothing. Given a word, a time and a cost
//! it returns the next word and a [`Decision`]. That makes it testable against a slow oracle, and
//! lets one loop (`try_update`) serve every holder of a word.
//!
//! # State
//!
//! A holder's cell is one [`Word`]. All zero is *fresh* (never seen); the rule gives all other
//! values their meaning.
//!
//! # Invariants
//!
//! 1. A denial returns the word it was given (or none, inside this crate), so nothing is written.
//! 2. A charge of at least one token returns a different word, so two callers can't both succeed on
//!    one compare-and-swap of the same value.
//! 3. No rule returns the fresh word for a word that is not fresh.
//!
//! # What a word may come to say, and what goes elsewhere
//!
//! A slot is 16 bytes and stays so: 64 bits of fingerprint, 63 bits of the rule's value, and the
//! table's *frozen* mark. A word names neither its rule nor its quota; its store knows them. So a
//! new fact goes into the value only if the rule decides by it, if it changes with a charge, in the
//! same compare-and-swap, and if it is over once the word is idle. What fails one of these goes
//! elsewhere.
//!
//! | fact | where it is, or would go | why |
//! |---|---|---|
//! | the class of a caller | not in the word: each class is a limiter (`limiter/keyed/classes.rs`) | it chooses the rule, so it has to be known before the word is read |
//! | debt below empty | in the value, in the field that is there | it is decided by, paid back as time passes, and over when the word is idle |
//! | permits in flight | a rule of their own (`rule/permits.rs`), whose word is a count; beside a rate, by `check_all` | a permit comes back by an event: no time makes its word idle, so it may not share one that time does |
//! | the end of a key's pause | not in the word: a word of a second store (`limiter/pauses.rs`) | refunds, forced charges and changes of quotas go on under a pause, and after it the key has what it would have had |
//! | the permits that a reset has made void | in that word, as its generation | the number of the limiter would void the permits of all keys, and no time brings those back |
//! | leases between cores | what is out: a line for each key and core, beside the store. In the word: one mark, that the key has leases | a lease is charged in full when it is taken, so the word stays right; but a charge has to know that the burst is smaller by what may be out |
//! | the mark of `clear` and `reset` | not in the word: one number for each limiter, and in each decision (`limiter/resets.rs`) | most words have no room for it: a number of 32 bits would leave a window 31 for its count and time |
//!
//! *Debt.* A bucket's value is the time at which it is full, and a debt puts that time further
//! ahead than the burst. A time is at most 2^62 + 1 grains and a burst at most 2^61, so nearly 2^61
//! grains are left for debt, as much as the largest burst. A window's count has as many bits as the
//! limit. So debt has to be bounded by what is left of them, or the rule is made with more.
//!
//! *The mark of leases.* It needs a bit, and no bit of a value is always 0. A bucket would give up
//! half of its times and of its largest burst, a window a bit of its counts. A rule of the key's
//! own would say it without a bit, but in a table that is a turnover.
//!
//! *Reset, for each key.* Exact keys have room beside the word. In a table, a charge that a reset
//! has made void is told by the number of the whole limiter. The price: the reset of one key voids
//! the refunds of others.
//!
//! # Progress
//!
//! `try_update` is lock-free: when its compare-and-swap fails, another thread's has succeeded (or
//! the hardware failed it spuriously). A denial needs one load and is wait-free.
//!
//! # Orderings
//!
//! | edge | release side | acquire side | what becomes visible | loom test that fails if it is weakened |
//! |---|---|---|---|---|
//! | (none) | | | | |
//!
//! A word is the whole state of its key and points to nothing. Rules rely only on the order of
//! modifications of that one location, which relaxed operations have. (The orderings in this file
//! are for those who freeze, reset or count.) The test `charge_races_charge_never_admits_twice`
//! shows what would break if the compare-and-swap were a load and a store.

// Public only with the feature `unstable-rule`, for oracles and fuzz targets.
#![cfg_attr(not(feature = "unstable-rule"), allow(dead_code, unreachable_pub))]

mod contract;
mod fixed_window;
mod gcra;
mod permits;
mod sliding_window;
mod windows;
mod word;

#[cfg(feature = "unstable-rule")]
pub use crate::error::Refused;
pub use contract::Rule;
pub use fixed_window::FixedWindow;
pub use gcra::Gcra;
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

/// The result of [`try_update`]: the word before and after.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Updated {
    pub(crate) from: Word,
    pub(crate) to: Word,
    /// Are they different? Known from where the loop ended, so that callers need not compare.
    pub(crate) is_new: bool,
}

/// Applies `step` to the word in `cell`, and retries if another thread changed it meanwhile. This
/// is the only such loop of the crate.
///
/// `step` returns the next word, which must differ from the one it is given, or `None`, and then
/// nothing is written. The loop returns words and no answer, because the caller can compute the
/// answer from them afterwards, without an atomic. So the loop works in registers, and the work of
/// an answer does not come between the load and the compare-and-swap. A failed compare-and-swap is
/// retried without a pause, which would make two threads slower. Lock-free.
#[inline(always)]
pub(crate) fn try_update(cell: &Atomic<Word>, step: impl Fn(Word) -> Option<Word>) -> Updated {
    // ORDERING: relaxed; the word is the whole state, see the module's ledger.
    let mut from = cell.load(Relaxed);
    loop {
        let Some(to) = step(from) else {
            return Updated { from, to: from, is_new: false };
        };
        // ORDERING: release side of *closed* (see `table`) for a frozen word: the thread that
        // freezes it has seen the next array linked. And of *reset* (see `limiter`) for a reset
        // word: the thread that resets it has noted that before. And of *counted* (see there) for a
        // charge. A failure publishes nothing.
        match cell.compare_exchange_weak(from, to, Release, Relaxed) {
            Ok(_) => return Updated { from, to, is_new: true },
            Err(found) => from = found,
        }
    }
}

/// Applies `step` to the word in `cell`, as [`try_update`] does. A `step` that returns the word
/// unchanged writes nothing.
#[inline(always)]
pub(crate) fn update(cell: &Atomic<Word>, step: impl Fn(Word) -> Word) -> Updated {
    try_update(cell, |word| Some(step(word)).filter(|&to| to != word))
}

/// Takes `cost` tokens out of the bucket in `cell`, or denies the request. The flag tells whether
/// anything was taken. `None` if the word is frozen or fresh.
///
/// The answer is computed from the two words, outside of the loop and only as far as the caller
/// reads it.
#[inline(always)]
pub(crate) fn take(bucket: Gcra, cell: &Atomic<Word>, now: Tick, cost: u64) -> Option<(Decision, bool)> {
    let Updated { from, to, is_new } = try_update(cell, |word| bucket.charged(word, now, cost));
    let taken = is_new.then_some(to);
    (is_new || from.is_live()).then(|| (bucket.answer_after(from, taken, now, cost), is_new))
}

/// Replaces the word `from`, which was loaded before, by the word that a charge makes of it.
/// Returns false if the word is another by now. Wait-free.
#[inline(always)]
pub(crate) fn swap(cell: &Atomic<Word>, from: Word, to: Word) -> bool {
    // ORDERING: release side of *counted* (see `limiter/resets.rs`) for a charge, as in
    // `try_update`. A word that is moved needs none here: see `table`. A failure publishes nothing.
    cell.compare_exchange(from, to, Release, Relaxed).is_ok()
}

/// Replaces a fresh word by `first`. Returns false if the word is not fresh any more. Wait-free.
#[inline(always)]
pub(crate) fn begin(cell: &Atomic<Word>, first: Word) -> bool {
    swap(cell, Word::FRESH, first)
}

/// Reads the word in `cell`. Wait-free.
#[inline]
pub(crate) fn load(cell: &Atomic<Word>) -> Word {
    // ORDERING: relaxed, as in `try_update`.
    cell.load(Relaxed)
}

/// A rule that is chosen at run time.
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
// With a tag of its own. A turnover asks the rule about each key, and would have to compute a tag
// that hides in the values which `Gcra::queue` can't have.
#[repr(u8)]
pub enum AnyRule {
    /// The rule of [`Algorithm::TokenBucket`], [`Algorithm::LeakyBucket`] and
    /// [`Algorithm::LeakyQueue`].
    Gcra(Gcra),
    /// The rule of [`Algorithm::FixedWindow`].
    FixedWindow(FixedWindow),
    /// The rule of [`Algorithm::SlidingWindow`].
    SlidingWindow(SlidingWindow),
    /// The rule of [`InFlight`](crate::InFlight), which counts what is out and limits no rate.
    Permits(Permits),
}

/// Makes a call on the rule that an `AnyRule` holds.
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
    /// Makes the rule of `algorithm` for `quota`. For windows, tick 0 lies `phase` after a
    /// boundary.
    ///
    /// # Errors
    ///
    /// Returns an error if the algorithm can't enforce the quota, or is not one of
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

    /// Lets [forced charges](Rule::force) go `tokens` beyond the capacity; without this they don't.
    ///
    /// | algorithm | what a debt does |
    /// |---|---|
    /// | token bucket, leaky bucket, leaky queue | refills like all missing tokens, before others |
    /// | fixed window | ends with its window: the next one begins with its full limit |
    /// | sliding window | weighs less and less until the end of the next window |
    /// | sliding log, permits in flight | none: a debt above 0 is refused |
    ///
    /// An interval may then hold as many tokens more than the rule's bound says: as many more for
    /// each window that it touches, or once for a bucket.
    ///
    /// # Errors
    ///
    /// Returns an error for a debt that does not fit into the word beside the capacity.
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
    /// [`Rule::refund`] of a rule other than a bucket's.
    #[inline(never)]
    fn refund_otherwise(&self, word: Word, now: Tick, charge: &Decision, tokens: u64) -> Word {
        dispatch!(self, rule => rule.refund(word, now, charge, tokens))
    }

    /// The rule of a token bucket or a leaky bucket. `None` for other rules.
    #[inline(always)]
    pub(crate) fn as_gcra(&self) -> Option<Gcra> {
        match self {
            Self::Gcra(gcra) => Some(*gcra),
            Self::FixedWindow(_) | Self::SlidingWindow(_) | Self::Permits(_) => None,
        }
    }

    /// The first time from which `word` is idle. `None` if that is after [`Tick::MAX`]. The word
    /// must not be frozen.
    pub(crate) fn idle_from(&self, word: Word) -> Option<Tick> {
        match self {
            Self::Gcra(rule) => rule.idle_from(word),
            Self::FixedWindow(rule) => rule.idle_from(word),
            Self::SlidingWindow(rule) => rule.idle_from(word),
            Self::Permits(_) => Permits::idle_from(word),
        }
    }

    /// The answer to a request for a key that was never seen, or was forgotten. It is decided at
    /// `now` or at `mark` if that is later.
    pub(crate) fn fresh(&self, now: Tick, mark: Tick, cost: u64) -> Decision {
        let at = now.max(mark);
        self.answer(Word::FRESH, at, cost).late_by(at.as_nanos() - now.as_nanos())
    }

    /// The word of a key that is idle at every time, and not fresh.
    #[cfg(all(test, not(tollgate_loom)))]
    pub(crate) fn idle(&self) -> Word {
        self.adopt(self, Word::FRESH, Tick::ZERO)
    }

    /// Returns this rule for keys of which some were under the rule `before` until `now`, and may
    /// have charges to give back which were made under `before` or an earlier rule.
    pub(crate) fn after(self, before: &Self, now: Tick) -> Self {
        match (self, before) {
            (Self::Gcra(rule), Self::Gcra(before)) => Self::Gcra(rule.after(before, now)),
            (Self::FixedWindow(rule), Self::FixedWindow(before)) => {
                Self::FixedWindow(rule.after(before, now))
            }
            (Self::SlidingWindow(rule), Self::SlidingWindow(before)) => {
                Self::SlidingWindow(rule.after(before, now))
            }
            (Self::Permits(rule), Self::Permits(_)) => Self::Permits(rule),
            _ => unreachable!("all rules of a limiter are of one algorithm"),
        }
    }

    /// Returns whether both make the same words and decisions. Their refunds may differ, because
    /// their keys may have had other rules before.
    pub(crate) fn decides_as(self, other: Self) -> bool {
        self.without_past() == other.without_past()
    }

    fn without_past(self) -> Self {
        match self {
            Self::Gcra(rule) => Self::Gcra(rule.without_past()),
            Self::FixedWindow(rule) => Self::FixedWindow(rule.without_past()),
            Self::SlidingWindow(rule) => Self::SlidingWindow(rule.without_past()),
            Self::Permits(rule) => Self::Permits(rule),
        }
    }

    /// Translates a word of the rule `before` into a word of this rule, for a quota that was
    /// changed at `now`. Charged tokens stay charged, and the tokens left follow from the new
    /// quota. So a larger quota never denies a request that the old one would have admitted, and no
    /// key gets more than the larger of the two capacities. The result is never fresh. Both rules
    /// are of one algorithm, that of the limiter.
    pub(crate) fn adopt(&self, before: &Self, word: Word, now: Tick) -> Word {
        match (self, before) {
            (Self::Gcra(rule), Self::Gcra(before)) => rule.adopt(before, word, now),
            (Self::FixedWindow(rule), Self::FixedWindow(before)) => rule.adopt(before, word, now),
            (Self::SlidingWindow(rule), Self::SlidingWindow(before)) => rule.adopt(before, word, now),
            (Self::Permits(_), Self::Permits(_)) => Permits::adopt(word, now),
            _ => unreachable!("all rules of a limiter are of one algorithm"),
        }
    }
}

impl Sealed for AnyRule {}

// Buckets are always inlined: they take a few instructions, and a caller that only asks whether a
// request is allowed skips the rest of the answer. Answers of windows are never inlined, because
// they would make every caller large.
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

    // Inlined for buckets only, as their answers are.
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
