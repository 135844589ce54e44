//! The generic cell rate algorithm (GCRA), which the token bucket and the leaky bucket share.

use super::contract::{Rule, Sealed, outcome};
use super::word::Word;
use crate::decision::{Decision, Figures, Outcome, Source, Stamp};
use crate::error::ConfigError;
use crate::grain::Grain;
use crate::quota::Quota;
use crate::time::Tick;

/// A bucket kept as one number, its theoretical arrival time. See
/// [`TokenBucket`](super::TokenBucket).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Gcra {
    grain: Grain,
    burst: u64,
    /// The burst in grains.
    capacity: u64,
    /// How far beyond the capacity a forced charge may go, in grains.
    debt: u64,
    /// Does an allowed request wait for its turn ([`Decision::start_after`]) instead of starting
    /// immediately?
    queue: bool,
}

/// A grain below this begins before [`Tick::MAX`]: there are one or two to a nanosecond.
const LAST: u64 = Tick::MAX.as_nanos();

impl Gcra {
    pub(super) fn new(quota: Quota, queue: bool) -> Result<Self, ConfigError> {
        let grain = Grain::new(quota)?;
        let burst = quota.capacity();
        let capacity = grain.capacity(burst)?;
        Ok(Self { grain, burst, capacity, debt: 0, queue })
    }

    /// Implements [`AnyRule::max_debt`](super::AnyRule::max_debt).
    pub(super) fn max_debt(self, tokens: u64) -> Result<Self, ConfigError> {
        Ok(Self { debt: self.grain.debt(tokens, self.capacity)?, ..self })
    }

    /// When the bucket is full again, as of `present`, and how many grains it can still give.
    #[inline(always)]
    fn level(&self, word: Word, present: u64) -> (u64, u64) {
        let full = word.value().max(present);
        (full, (present + self.capacity).saturating_sub(full))
    }

    /// The next word of a request that charges something, or else `None`. A frozen word also gives
    /// `None`, because its highest bit makes the bucket full later than any time. So does a fresh
    /// word, because the code subtracts one from it, which wraps to an even later time;
    /// [`first`](Self::first) charges that.
    #[inline(always)]
    pub(crate) fn charged(&self, word: Word, now: Tick, cost: u64) -> Option<Word> {
        if cost == 0 || self.is_too_costly(cost) {
            return None;
        }
        let (present, charge) = (self.grain.at(now), self.grain.of_tokens(cost));
        // Both less one, so that a fresh word needs no comparison of its own.
        let full = word.value().wrapping_sub(1).max(present - 1);
        // The latest value that still fits. A cost that is not too high is at most the capacity.
        let latest = present - 1 + (self.capacity - charge);
        (full <= latest).then(|| Word::of(full + 1 + charge))
    }

    /// The word that a request makes of a fresh one, or `None` if it charges nothing. A fresh
    /// bucket is full, and has room for any cost that is not too high.
    #[inline(always)]
    pub(crate) fn first(&self, now: Tick, cost: u64) -> Option<Word> {
        let charges = cost > 0 && !self.is_too_costly(cost);
        charges.then(|| Word::of(self.grain.at(now) + self.grain.of_tokens(cost)))
    }

    /// The answer to a request that found the word `from` and replaced it by `charged`, or left it.
    /// A charge alone shows that the request was allowed and when the bucket will be full.
    #[inline(always)]
    pub(crate) fn answer_after(&self, from: Word, charged: Option<Word>, now: Tick, cost: u64) -> Decision {
        if let Some(to) = charged {
            return self.decision(to.value(), Outcome::Allowed, now, cost);
        }
        if cost == 0 || self.is_too_costly(cost) {
            return self.answer(from, now, cost);
        }
        // A charge of a token changes the word, so this was denied: the bucket was not full.
        self.decision(from.value(), Outcome::Denied, now, cost)
    }

    #[inline(always)]
    fn decision(&self, full: u64, outcome: Outcome, now: Tick, cost: u64) -> Decision {
        let figures = Figures::Bucket { full, grain: self.grain, queue: self.queue };
        let (source, stamp) = (Source::Key, Stamp::NONE);
        Decision { cost, limit: self.burst, at: now, figures, outcome, source, stamp }
    }

    /// Is the cost more than the bucket ever holds? It always holds one token; testing that first
    /// saves a comparison.
    #[inline(always)]
    fn is_too_costly(&self, cost: u64) -> bool {
        cost > 1 && cost > self.burst
    }

    /// Implements [`AnyRule::idle_from`](super::AnyRule).
    pub(super) fn idle_from(&self, word: Word) -> Option<Tick> {
        self.grain.first_tick(word.value())
    }

    /// Implements [`AnyRule::adopt`](super::AnyRule). The missing tokens stay missing, up to the
    /// capacity of the bucket and its debt.
    ///
    /// A word that is further than the capacity after `now` is one of two things, which it does not
    /// tell apart: it is in debt, or `now` is stale. It becomes the later of the two words. So a
    /// stale time grants nothing, and a debt lasts as long as under the slower of the two quotas.
    pub(super) fn adopt(&self, before: &Self, word: Word, now: Tick) -> Word {
        let stale = self.adopt_beyond(before, word, now, 0);
        match before.debt {
            0 => stale,
            debt => Word::of(stale.value().max(self.adopt_beyond(before, word, now, debt).value())),
        }
    }

    /// Translates a word whose last charge has gone at most `debt` grains beyond the capacity.
    fn adopt_beyond(&self, before: &Self, word: Word, now: Tick, debt: u64) -> Word {
        let most = before.capacity + debt;
        // The key has seen at least the time at which its last charge found room. A stale `now` is
        // raised to that time, or the refill since then would be counted twice.
        let seen = before.grain.first_tick(word.value().saturating_sub(most));
        let present = now.max(seen.unwrap_or(Tick::MAX));
        let missing = word.value().saturating_sub(before.grain.at(present)).min(most);
        let own_most = self.capacity + if debt == 0 { 0 } else { self.debt };
        Word::of(self.grain.at(present) + self.grain.convert(missing, before.grain).min(own_most))
    }
}

impl Sealed for Gcra {}

impl Rule for Gcra {
    #[inline(always)]
    fn next(&self, word: Word, now: Tick, cost: u64) -> Word {
        let next = if word.is_fresh() { self.first(now, cost) } else { self.charged(word, now, cost) };
        next.unwrap_or(word)
    }

    #[inline(always)]
    fn answer(&self, word: Word, now: Tick, cost: u64) -> Decision {
        let (full, room) = self.level(word, self.grain.at(now));
        // The first test keeps the product in range.
        let fits = !self.is_too_costly(cost) && self.grain.of_tokens(cost) <= room;
        let outcome = outcome(cost, self.burst, fits);
        let charge = if outcome == Outcome::Allowed { self.grain.of_tokens(cost) } else { 0 };
        self.decision(full + charge, outcome, now, cost)
    }

    #[inline]
    fn force(&self, word: Word, now: Tick, tokens: u64) -> (Word, u64) {
        let present = self.grain.at(now);
        let full = word.value().max(present);
        let room = (present + self.capacity + self.debt).saturating_sub(full);
        match tokens.min(self.grain.tokens_in(room)) {
            0 => (word, 0),
            charged => (Word::of(full + self.grain.of_tokens(charged)), charged),
        }
    }

    #[inline(always)]
    fn refund(&self, word: Word, now: Tick, charge: &Decision, tokens: u64) -> Word {
        // The charge may have been made under a larger quota.
        let tokens = tokens.min(charge.charged()).min(self.burst);
        let is_of_a_bucket = matches!(charge.figures, Figures::Bucket { .. } | Figures::LateBucket { .. });
        if word.is_fresh() || tokens == 0 || !is_of_a_bucket {
            return word;
        }
        // The charge was the last one in the bucket when it was made, so nothing of it is left once
        // the bucket has refilled that far. The tokens missing then belong to other charges, and
        // giving any back would erase theirs. (A charge held beyond the end of time counts until
        // then.)
        let held_until = match charge.figures {
            // The usual case, without a division.
            Figures::Bucket { full, grain, .. } if grain == self.grain && full < LAST => full,
            _ => self.grain.at(charge.asked() + charge.reset_after()),
        };
        // A stale `now` must not revive the charge. The last charge was made when the bucket had
        // room for it, or went into debt by no more than it may. So the key has seen at least this
        // time:
        let seen = word.value().saturating_sub(self.capacity + self.debt);
        let present = self.grain.at(now).max(seen);
        let held = held_until.saturating_sub(present);
        let back = self.grain.of_tokens(tokens).min(held);
        Word::of(word.value().saturating_sub(back).max(1))
    }

    #[inline]
    fn reset(&self, word: Word) -> Word {
        if word.is_fresh() { word } else { Word::of(1) }
    }

    #[inline]
    fn is_idle(&self, word: Word, now: Tick) -> bool {
        word.value() <= self.grain.at(now)
    }
}

/// Implements [`Rule`] for a bucket that is a [`Gcra`] under another name.
macro_rules! decide_as_gcra {
    ($bucket:ident) => {
        impl Sealed for $bucket {}

        impl Rule for $bucket {
            #[inline(always)]
            fn next(&self, word: Word, now: Tick, cost: u64) -> Word {
                self.0.next(word, now, cost)
            }

            #[inline(always)]
            fn answer(&self, word: Word, now: Tick, cost: u64) -> Decision {
                self.0.answer(word, now, cost)
            }

            #[inline]
            fn force(&self, word: Word, now: Tick, tokens: u64) -> (Word, u64) {
                self.0.force(word, now, tokens)
            }

            #[inline]
            fn refund(&self, word: Word, now: Tick, charge: &Decision, tokens: u64) -> Word {
                self.0.refund(word, now, charge, tokens)
            }

            #[inline]
            fn reset(&self, word: Word) -> Word {
                self.0.reset(word)
            }

            #[inline]
            fn is_idle(&self, word: Word, now: Tick) -> bool {
                self.0.is_idle(word, now)
            }
        }
    };
}

pub(super) use decide_as_gcra;

#[cfg(all(test, not(tollgate_loom)))]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::time::Duration;

    fn any_time() -> impl Strategy<Value = Tick> {
        let last = Tick::MAX.as_nanos();
        prop_oneof![0..=1_000_000_u64, last - 2_000_000..=last].prop_map(Tick::from_nanos)
    }

    proptest! {
        /// Where a refund takes the time at which the charge has refilled from the grains of the
        /// answer, it gives back what the durations of the answer say; or a grain less, where a
        /// nanosecond is not a grain.
        #[test]
        fn a_refund_by_grains_gives_back_what_the_durations_say(
            limit in 1..=40_u64,
            period in prop_oneof![Just(1_000_000_u64), 40..=1_000_000_u64],
            (before, cost) in (0..40_u64, 0..40_u64),
            at in any_time(),
            later in 0..=2_000_000_u64,
        ) {
            let gcra = Gcra::new(Quota::new(limit, Duration::from_nanos(period)), false).unwrap();
            let before = before % limit;
            let (word, _) = gcra.decide(Word::FRESH, at, before);
            let (word, charge) = gcra.decide(word, at, 1 + cost % (limit - before));
            let now = at + Duration::from_nanos(later);
            let held_until = gcra.grain.at(charge.asked() + charge.reset_after());
            let present = gcra.grain.at(now).max(word.value().saturating_sub(gcra.capacity));
            let held = held_until.saturating_sub(present);
            let back = gcra.grain.of_tokens(charge.charged()).min(held);
            let by_durations = word.value() - back;
            let less = gcra.refund(word, now, &charge, u64::MAX).value() - by_durations;
            let is_exact = gcra.grain.at(Tick::MAX) == Tick::MAX.as_nanos() + 1;
            prop_assert!(less <= u64::from(!is_exact), "{} grains less", less);
        }
    }
}
