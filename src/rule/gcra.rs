//! The generic cell rate algorithm (GCRA). It implements the token bucket, and the leaky bucket as
//! a meter and as a queue.

use super::contract::{Rule, Sealed, outcome};
use super::word::Word;
use crate::decision::{Decision, DecisionSource, Figures, Outcome, Stamp};
use crate::error::Refused;
use crate::grain::Grain;
use crate::quota::Quota;
use crate::time::Tick;
use std::time::Duration;

/// A token bucket. The bucket holds `burst` tokens and refills at `limit` per `period`. A request
/// takes its cost from the bucket, or is denied. A leaky bucket is the mirror image of a token
/// bucket, so it makes the same decisions.
///
/// The bucket is implemented with the generic cell rate algorithm (ITU-T I.371, also ATM Forum TM
/// 4.0). Instead of a level and the time of that level, the word stores one number, the *time at
/// which the bucket will be full*. This number is called the theoretical arrival time. It
/// determines the level at any time, so no thread can see a level and a time that do not match.
///
/// # Leaky buckets
///
/// Requests fill a leaky bucket, which leaks at `limit` per `period`. A request that would make the
/// bucket overflow is denied. The size of the bucket is the burst. The content of a leaky bucket
/// corresponds to the missing tokens of a token bucket.
///
/// As a *meter* ([`leaky_bucket`](Self::leaky_bucket)), a leaky bucket only decides requests. As a
/// *queue* ([`leaky_queue`](Self::leaky_queue)), it also shapes traffic: an allowed request
/// receives a turn, [`Decision::start_after`], and turns are evenly spaced, at `period / limit` for
/// each token. Turner's leaky bucket ("New directions in communications", 1986) is the meter.
/// nginx's `limit_req` without `nodelay` is a queue.
///
/// # State
///
/// The word's value is the theoretical arrival time in grains, counted from 1. If the value is
/// `full`, `max(full - t, 0)` grains are missing from the bucket at grain `t`. A request of `c`
/// grains is allowed if and only if `max(full, t) + c <= t + capacity`, and then `max(full, t) + c`
/// is the next word.
///
/// # Bound
///
/// At most `burst + d * limit / period` tokens are admitted in any interval of length `d`, measured
/// by the times of the requests. (If an emission interval is not a whole number of nanoseconds, the
/// bound is larger by less than two grains, that is, two nanoseconds' worth of tokens.)
///
/// *Proof.* Take the charges with times in `[a, a + d]` in the order of their compare-and-swaps.
/// The first charge makes the word at least `at(a) + c1`, and each later charge adds its cost. The
/// last charge was allowed, so `at(a) + sum <= at(a + d) + capacity`. The proof does not use the
/// order of the times, so it also covers stale times. ∎
///
/// In a queue with requests of cost 1, at most `1 + d * limit / period` turns *start* in the
/// interval. (There may be one more turn if an emission interval is not a whole number of
/// nanoseconds and `d` is less than two nanoseconds short of a whole emission interval.)
///
/// With refunds, the bound holds for the tokens charged minus the tokens given back between the
/// compare-and-swaps of the first and the last charge.
///
/// # Refunds
///
/// Charged tokens refill in the order of their charges, the oldest first, and a refilled token
/// cannot be given back. For example, consider a limit of 1 per second with a burst of 10, and ten
/// charges at the same time. A second later, the token of the first charge has refilled, so a
/// refund of that charge gives nothing back. The missing tokens are those of the other nine
/// charges.
///
/// The word just after a charge is a time, `full`. The charge is *held* until `full`, when the
/// bucket has refilled all tokens that were missing just after the charge. A refund subtracts its
/// tokens from the word, but at most `full - now`. Let `V` be the word that would exist if the
/// refunded tokens had never been charged. Then the actual word is at least `V - x`, where `x` is
/// defined below (or both buckets are full).
///
/// The number `x` is defined as follows. For each charge, consider the refunds made between the
/// charge and its own last refund. Count the tokens of this charge and of earlier charges that
/// these refunds gave back. `x` is the largest of these counts. Therefore `x` is 0 for a single
/// refund, and also if refunds are made in the reverse order of their charges.
///
/// *Proof.* Let `t_k` be the time of charge `k`, and `now_j` the time of the last refund of charge
/// `j`. For some `k`, `V` is `t_k` plus the tokens kept by charge `k` and all later charges. The
/// word is at least `t_k` plus all tokens charged by `k` and later charges, minus the tokens
/// subtracted since `k`. `V` does not contain the tokens subtracted by refunds of `k` and of later
/// charges. If other refunds subtract something after `k`, let `j` be the first charge that they
/// refund. The word is at least `full_j` plus all tokens charged after `j`, minus the tokens
/// subtracted since `j`. The last refund of `j` subtracts at most `full_j - now_j`, and `now_j` is
/// not before `t_k`. Refunds of later charges subtract tokens that `V` does not contain. All other
/// refunds since `j` are refunds of `j` or of earlier charges, so they subtract at most `x`. ∎
///
/// A rule based on one word cannot be exact for every order of refunds. Consider a bucket of 10
/// tokens that refills one token a second, and let two charges take 5 tokens each at time 0. In one
/// history, other charges take 5 tokens at second 5. In another history, the first charge is given
/// back immediately, and other charges take 10 tokens at second 5. Both histories end with the same
/// word, but the second charge still holds 5 tokens in the first history, and none in the second.
///
/// The proof assumes one rule. After a change of the rule, `full` is measured in other grains, and
/// the bucket has refilled at several rates. The limiter therefore voids the refund of a charge
/// that was made before the last change of its key's rule: see `limiter/resets.rs`.
///
/// In a queue, a refund or a reset makes room, but does not take turns back. The next request may
/// therefore receive a turn that overlaps another turn. The number of extra starts is at most the
/// number of tokens that were given back.
///
/// # Stale and skewed times
///
/// A request with a stale `now` sees a bucket with fewer tokens. Such a request may be denied, but
/// it never exceeds the limit.
///
/// The long-run rate is exact (see `grain`). If an emission interval is not a whole number of
/// nanoseconds, a request is admitted at most two nanoseconds early and never late. Only a request
/// with a stale time can be late, by at most two nanoseconds.
///
/// ```
/// use std::time::Duration;
/// use tollgate::rule::{Gcra, Rule, Word};
/// use tollgate::{Quota, Tick};
///
/// let rule = Gcra::token_bucket(Quota::per_second(10).burst(2))?;
/// let (word, _) = rule.decide(Word::FRESH, Tick::ZERO, 2);
/// let denied = rule.decide(word, Tick::ZERO, 1).1;
/// assert_eq!(denied.retry_after(), Some(Duration::from_millis(100)));
/// # Ok::<(), tollgate::ConfigError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gcra {
    grain: Grain,
    burst: u64,
    /// The burst in grains.
    capacity: u64,
    /// The maximum number of grains by which a forced charge may exceed the capacity.
    debt: u64,
    /// True if an allowed request waits for its turn ([`Decision::start_after`]) rather than
    /// starting immediately.
    queue: bool,
    /// True if forgotten keys do not raise the store's mark.
    is_unmarked: bool,
}

/// Every grain below this number starts before [`Tick::MAX`], because a nanosecond contains one or
/// two grains.
const LAST: u64 = Tick::MAX.as_nanos();

impl Gcra {
    /// Creates a token bucket for `quota`. If the quota has no explicit burst, the capacity is the
    /// limit.
    ///
    /// # Errors
    ///
    /// Returns an error for a limit, period or burst of 0, a period above [`Quota::MAX_PERIOD`], a
    /// rate above 2 tokens per nanosecond, or a burst of more than 2^61 grains (36 to 73 years'
    /// worth).
    ///
    /// ```
    /// # use tollgate::{Quota, rule::Gcra};
    /// assert!(Gcra::token_bucket(Quota::per_second(10).burst(0)).is_err());
    /// ```
    pub fn token_bucket(quota: Quota) -> Result<Self, Refused> {
        let grain = Grain::new(quota)?;
        let burst = quota.capacity();
        let capacity = grain.capacity(burst)?;
        Ok(Self { grain, burst, capacity, debt: 0, queue: false, is_unmarked: false })
    }

    /// Creates a leaky bucket as a meter, where allowed requests start immediately. This is the
    /// token bucket under another name.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`token_bucket`](Self::token_bucket).
    ///
    /// ```
    /// # use tollgate::{Quota, rule::Gcra};
    /// let quota = Quota::per_second(10);
    /// assert_eq!(Gcra::leaky_bucket(quota), Gcra::token_bucket(quota));
    /// ```
    pub fn leaky_bucket(quota: Quota) -> Result<Self, Refused> {
        Self::token_bucket(quota)
    }

    /// Creates a leaky bucket as a queue, where allowed requests start one after the other.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`token_bucket`](Self::token_bucket).
    ///
    /// ```
    /// use std::time::Duration;
    /// use tollgate::rule::{Gcra, Rule, Word};
    /// use tollgate::{Quota, Tick};
    ///
    /// let queue = Gcra::leaky_queue(Quota::per_second(10).burst(2))?;
    /// let (word, first) = queue.decide(Word::FRESH, Tick::ZERO, 1);
    /// let (word, second) = queue.decide(word, Tick::ZERO, 1);
    /// let (_, third) = queue.decide(word, Tick::ZERO, 1);
    /// assert_eq!(first.start_after(), Duration::ZERO);
    /// assert_eq!(second.start_after(), Duration::from_millis(100));
    /// assert!(!third.is_allowed());
    /// # Ok::<(), tollgate::ConfigError>(())
    /// ```
    pub fn leaky_queue(quota: Quota) -> Result<Self, Refused> {
        Ok(Self { queue: true, ..Self::token_bucket(quota)? })
    }

    /// Creates a token bucket whose forgotten keys do not raise the store's mark.
    pub(crate) fn unmarked(quota: Quota) -> Result<Self, Refused> {
        Ok(Self { is_unmarked: true, ..Self::token_bucket(quota)? })
    }

    /// Implements [`AnyRule::max_debt`](super::AnyRule::max_debt).
    pub(super) fn max_debt(self, tokens: u64) -> Result<Self, Refused> {
        Ok(Self { debt: self.grain.debt(tokens, self.capacity)?, ..self })
    }

    /// Implements [`AnyRule::longest_hold`](super::AnyRule).
    pub(super) fn longest_hold(&self) -> Duration {
        // The first grain is number 1, and may have begun before the charge.
        let end = self.grain.first_tick(self.capacity + self.debt + 2);
        end.unwrap_or(Tick::MAX).since(Tick::ZERO)
    }

    /// Returns the burst in tokens.
    pub(super) fn burst(&self) -> u64 {
        self.burst
    }

    pub(super) fn grain(&self) -> Grain {
        self.grain
    }

    /// Returns the grain at which the bucket is full again, as seen at `present`, and the number of
    /// grains that remain in the bucket.
    #[inline(always)]
    fn level(&self, word: Word, present: u64) -> (u64, u64) {
        let full = word.value().max(present);
        (full, (present + self.capacity).saturating_sub(full))
    }

    /// Returns the next word if the request charges at least one token, otherwise `None`. A frozen
    /// word results in `None`, because its highest bit represents a time after any other. A fresh
    /// word also results in `None`, because subtracting one from this word wraps around to an even
    /// later time. [`first`](Self::first) charges a fresh word.
    #[inline(always)]
    pub(crate) fn charged(&self, word: Word, now: Tick, cost: u64) -> Option<Word> {
        if cost == 0 || self.is_too_costly(cost) {
            return None;
        }
        let (present, charge) = (self.grain.at(now), self.grain.of_tokens(cost));
        // Both values are reduced by one, so that a fresh word needs no separate comparison.
        let full = word.value().wrapping_sub(1).max(present - 1);
        // The latest value at which the cost still fits. A cost that is not too high is at most the
        // capacity, so the subtraction does not overflow.
        let latest = present - 1 + (self.capacity - charge);
        (full <= latest).then(|| Word::of(full + 1 + charge))
    }

    /// Returns the word after a request on a fresh word, or `None` if the request charges nothing.
    /// A fresh bucket is full, and contains enough for any cost that is not too high.
    #[inline(always)]
    pub(crate) fn first(&self, now: Tick, cost: u64) -> Option<Word> {
        let charges = cost > 0 && !self.is_too_costly(cost);
        charges.then(|| Word::of(self.grain.at(now) + self.grain.of_tokens(cost)))
    }

    /// Returns the answer to a request that found the word `from`, and replaced it with `charged`
    /// or left it unchanged. If `charged` is a word, it alone shows that the request was allowed
    /// and when the bucket will be full.
    #[inline(always)]
    pub(crate) fn answer_after(&self, from: Word, charged: Option<Word>, now: Tick, cost: u64) -> Decision {
        if let Some(to) = charged {
            return self.decision(to.value(), Outcome::Allowed, now, cost);
        }
        if cost == 0 || self.is_too_costly(cost) {
            return self.answer(from, now, cost);
        }
        // A charge of at least one token changes the word. Therefore this request was denied, and
        // the bucket was not full.
        self.decision(from.value(), Outcome::Denied, now, cost)
    }

    #[inline(always)]
    fn decision(&self, full: u64, outcome: Outcome, now: Tick, cost: u64) -> Decision {
        let figures = Figures::Bucket { full, grain: self.grain, queue: self.queue };
        let (limit, source, stamp) = (self.burst, DecisionSource::Key, Stamp::NONE);
        Decision { cost, limit, at: now, figures, outcome, source, stamp }
    }

    /// Returns true if the cost is more than the bucket can ever contain. A bucket can always
    /// contain one token, so testing for a cost of at most 1 first saves a comparison.
    #[inline(always)]
    fn is_too_costly(&self, cost: u64) -> bool {
        cost > 1 && cost > self.burst
    }

    /// Implements [`AnyRule::is_possible`](super::AnyRule).
    pub(super) fn is_possible(&self, word: Word) -> bool {
        word.value() <= self.grain.at(Tick::MAX) + self.capacity + self.debt
    }

    /// Implements [`AnyRule::idle_from`](super::AnyRule).
    pub(super) fn idle_from(&self, word: Word) -> Option<Tick> {
        if self.is_unmarked { Some(Tick::ZERO) } else { self.grain.first_tick(word.value()) }
    }

    /// Implements [`AnyRule::adopt`](super::AnyRule). Missing tokens stay missing, up to the
    /// capacity of the bucket plus its maximum debt.
    ///
    /// If a word lies later than `now` by more than the capacity, either the key is in debt or
    /// `now` is stale. The word does not show which, so this method computes a word for each case
    /// and returns the later one. Therefore a stale time admits nothing in excess, and a debt lasts
    /// as long as under the slower of the two quotas.
    pub(super) fn adopt(&self, before: &Self, word: Word, now: Tick) -> Word {
        let stale = self.adopt_beyond(before, word, now, 0);
        match before.debt {
            0 => stale,
            debt => Word::of(stale.value().max(self.adopt_beyond(before, word, now, debt).value())),
        }
    }

    /// Translates a word whose last charge exceeded the capacity by at most `debt` grains.
    fn adopt_beyond(&self, before: &Self, word: Word, now: Tick, debt: u64) -> Word {
        let most = before.capacity + debt;
        // The key's time is at least the time at which its last charge fitted. A stale `now` is
        // raised to that time, because otherwise the refill until that time would be counted twice.
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
        // The first test ensures that the product does not overflow.
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
        // The charge may have been made under another rule, and may be larger than this bucket.
        let tokens = tokens.min(charge.charged()).min(self.burst);
        if word.is_fresh() || tokens == 0 {
            return word;
        }
        // A stale `now` must not revive the whole charge. At the time of the last charge, the
        // bucket contained enough for the charge, or went into debt by no more than `debt`.
        // Therefore the key's time is at least the following:
        let seen = word.value().saturating_sub(self.capacity + self.debt);
        // When the charge was made, it was the last one in the bucket. Once all tokens that were
        // missing at that time have been refilled, none of the charge's tokens are missing any
        // more. Any tokens still missing belong to other charges, so this refund must not give them
        // back. (A charge that is held beyond the last tick counts until the last tick.)
        let held_until = match charge.figures {
            // This is the usual case, and requires no division.
            Figures::Bucket { full, grain, .. } if grain == self.grain && full < LAST => full,
            Figures::LateBucket { grain, .. } | Figures::Bucket { grain, .. } if grain == self.grain => {
                self.grain.at(charge.asked() + charge.reset_after())
            }
            // Another rule made the charge.
            _ => return word,
        };
        let held = held_until.saturating_sub(self.grain.at(now).max(seen));
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

#[cfg(all(test, not(tollgate_loom)))]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn any_time() -> impl Strategy<Value = Tick> {
        let last = Tick::MAX.as_nanos();
        prop_oneof![0..=1_000_000_u64, last - 2_000_000..=last].prop_map(Tick::from_nanos)
    }

    proptest! {
        /// A refund computes the refill time from the answer's grains, and gives back as many
        /// grains as the answer's durations imply. If a grain is not a nanosecond, the refund may
        /// give back one grain less.
        #[test]
        fn a_refund_by_grains_gives_back_what_the_durations_say(
            limit in 1..=40_u64,
            period in prop_oneof![Just(1_000_000_u64), 40..=1_000_000_u64],
            (before, cost) in (0..40_u64, 0..40_u64),
            at in any_time(),
            later in 0..=2_000_000_u64,
        ) {
            let gcra = Gcra::token_bucket(Quota::new(limit, Duration::from_nanos(period))).unwrap();
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
