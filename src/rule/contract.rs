//! The contract of every rule, and two helpers that give every rule's answers the same meaning.

use super::word::Word;
use crate::decision::{Decision, NEVER, Outcome};
use crate::time::Tick;

/// A rule, as a pure function on a packed word. The algorithms in this module implement this sealed
/// trait.
///
/// ```
/// use tollgate::rule::{Gcra, Rule, Word};
/// use tollgate::{Quota, Tick};
///
/// let rule = Gcra::token_bucket(Quota::per_second(1))?;
/// let (word, first) = rule.decide(Word::FRESH, Tick::ZERO, 1);
/// assert!(first.is_allowed());
///
/// // A denial leaves the word alone.
/// let (same, second) = rule.decide(word, Tick::ZERO, 1);
/// assert!(!second.is_allowed());
/// assert_eq!(same, word);
/// # Ok::<(), tollgate::ConfigError>(())
/// ```
pub trait Rule: Sealed {
    /// Returns the word after a request of `cost` tokens at `now`. The word changes if the request
    /// is charged, and stays the same if the request is denied or costs 0.
    fn next(&self, word: Word, now: Tick, cost: u64) -> Word;

    /// Returns the answer to a request of `cost` tokens at `now`, given the `word` before the
    /// request. A cost of 0 is always allowed, whatever was charged before.
    fn answer(&self, word: Word, now: Tick, cost: u64) -> Decision;

    /// Decides a request of `cost` tokens at `now`. Returns the next word and the answer. Code that
    /// shares a word between threads calls [`next`](Self::next) in its compare-and-swap loop, and
    /// [`answer`](Self::answer) after the loop.
    #[inline]
    fn decide(&self, word: Word, now: Tick, cost: u64) -> (Word, Decision) {
        (self.next(word, now, cost), self.answer(word, now, cost))
    }

    /// Charges `tokens` that the caller has already spent, so a denial would be too late. This
    /// method first charges as many tokens as remain, and then as many as the rule's maximum debt
    /// allows. Returns the next word and the number of tokens charged. The word changes if at least
    /// one token is charged.
    ///
    /// A debt is the number of tokens that a key has taken beyond its capacity. While a key is in
    /// debt, no tokens remain, and a denial reports when a retry would succeed.
    /// [`AnyRule::max_debt`] describes how a debt ends under each algorithm.
    ///
    /// [`AnyRule::max_debt`]: crate::rule::AnyRule::max_debt
    fn force(&self, word: Word, now: Tick, tokens: u64) -> (Word, u64);

    /// Returns the word after giving back `tokens` of the tokens taken by `charge`. If the charge
    /// took fewer tokens, all of its tokens are given back.
    ///
    /// Only tokens that the charge still holds are given back. A charge no longer holds any tokens
    /// once the bucket has refilled past the charge, or once its window has ended. Each refunded
    /// token makes room for at most one other token. The caller must not give back a token twice.
    ///
    /// After a refund, the limit admits no more than if the refunded tokens had never been charged.
    /// There is one exception. If earlier charges of a bucket are given back while a later charge
    /// is held, the tokens of the later charge refill sooner than its decision states. The refund
    /// of the later charge may then give back tokens of other charges. It gives back at most as
    /// many of them as the refunds of the earlier charges gave back. The same exception applies to
    /// the second of two refunds of one charge. Refunds in the reverse order of their charges are
    /// exact. [`Gcra`] contains the proof.
    ///
    /// This bound holds if the key was neither reset nor given another rule since the charge, if
    /// its charges happened in the order of their times, and if `now` is not before these times. (A
    /// limiter gives nothing back after a reset or a change of the rule.)
    ///
    /// [`Gcra`]: crate::rule::Gcra
    ///
    /// Three kinds of charges cannot be given back: a charge that a window holds until after
    /// [`Tick::MAX`], a decision converted from [`DecisionParts`](crate::DecisionParts), and a
    /// charge made by another kind of rule, if the charge's figures reveal this.
    fn refund(&self, word: Word, now: Tick, charge: &Decision, tokens: u64) -> Word;

    /// Returns the idle word that replaces `word`. A fresh word stays fresh.
    fn reset(&self, word: Word) -> Word;

    /// Returns true if `word` behaves like a fresh word at `now` and later.
    fn is_idle(&self, word: Word, now: Tick) -> bool;

    /// Returns the answer that a request of `cost` tokens would receive. Nothing is charged, so the
    /// figures describe the state before a charge.
    #[inline]
    fn peek(&self, word: Word, now: Tick, cost: u64) -> Decision {
        let answer = self.answer(word, now, cost);
        if answer.is_allowed() { self.answer(word, now, 0) } else { answer }
    }
}

/// Returns the outcome of a request for `cost` tokens. `fits` is true if that many tokens remain
/// now. All rules use this function, so "never" and "not now" mean the same everywhere.
#[inline]
pub(super) fn outcome(cost: u64, capacity: u64, fits: bool) -> Outcome {
    if cost > capacity {
        Outcome::TooCostly
    } else if fits {
        Outcome::Allowed
    } else {
        Outcome::Denied
    }
}

/// Returns the nanoseconds from `now` until `then`, or [`NEVER`] if `then` is `None`.
#[inline]
pub(super) fn nanos_until(then: Option<Tick>, now: Tick) -> u64 {
    match then {
        Some(then) => then.as_nanos().saturating_sub(now.as_nanos()),
        None => NEVER,
    }
}

/// Seals [`Rule`], because a table relies on its rule to maintain the invariants listed in the
/// documentation of `rule`.
pub trait Sealed {}
