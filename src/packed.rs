//! A word and the rule it was made under, as a store hands them out.

use crate::decision::Decision;
use crate::rule::{AnyRule, Rule, Updated, Word, load, update};
use crate::sync::Atomic;
use crate::time::Tick;

/// The state of a key: its word, and the rule that the word was made under.
///
/// Each method answers `None` where the word is frozen: then the state is to be found elsewhere.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Packed<'s> {
    pub(crate) rule: &'s AnyRule,
    pub(crate) word: &'s Atomic<Word>,
}

/// A request that was judged, whatever came of it.
///
/// The answer is made of it afterwards, so that the compare-and-swap loop holds words and nothing else.
#[derive(Clone, Copy, Debug)]
pub struct Judged<'s> {
    rule: &'s AnyRule,
    updated: Updated,
}

impl Judged<'_> {
    /// Was anything charged?
    #[inline(always)]
    pub(crate) fn is_charged(&self) -> bool {
        self.updated.to != self.updated.from
    }

    /// The answer to the same request.
    #[inline(always)]
    pub(crate) fn answer(&self, now: Tick, cost: u64) -> Decision {
        self.rule.answer(self.updated.from, now, cost)
    }
}

impl<'s> Packed<'s> {
    /// Charges `cost` tokens at `now`, or denies it.
    #[inline(always)]
    pub(crate) fn charge(self, now: Tick, cost: u64) -> Option<Judged<'s>> {
        let updated = self.change(|word| self.rule.next(word, now, cost))?;
        Some(Judged { rule: self.rule, updated })
    }

    /// What a request would be answered.
    pub(crate) fn peek(self, now: Tick, cost: u64) -> Option<Decision> {
        let word = load(self.word);
        (!word.is_frozen()).then(|| self.rule.peek(word, now, cost))
    }

    /// Gives back at most `tokens` of what `charge` took.
    pub(crate) fn refund(self, now: Tick, charge: &Decision, tokens: u64) -> Option<()> {
        self.change(|word| self.rule.refund(word, now, charge, tokens)).map(drop)
    }

    /// Makes it as good as new.
    pub(crate) fn reset(self) -> Option<()> {
        self.change(|word| self.rule.reset(word)).map(drop)
    }

    #[inline(always)]
    fn change(self, to: impl Fn(Word) -> Word) -> Option<Updated> {
        let updated = update(self.word, |word| if word.is_frozen() { word } else { to(word) });
        (!updated.from.is_frozen()).then_some(updated)
    }
}
