//! A bucket whose tokens may be out on lease: taken in advance, so that they can be spent without
//! the word.

use super::contract::Rule;
use super::gcra::Gcra;
use super::word::Word;
use crate::decision::{Decision, Figures};
use crate::time::Tick;

/// At most this part of the burst is out on lease.
pub(crate) const SHARE: u64 = 16;
/// The smallest lease.
pub(crate) const LEAST: u64 = 8;
/// The largest lease. A larger one would save little, because a charge of the word is already
/// shared by a thousand spendings, and its tokens would be missing elsewhere.
const MOST: u64 = 1_024;

/// The difference between a leased word and its time. Without it, the time of a bucket is at most
/// 2^62 + 1 grains, and its capacity and debt at most 2^61.
const LEASED: u64 = (3 << 61) + 2;
/// The times of leased words are below this one, which is 18 to 36 years after the origin. Beyond
/// it, a bucket grants no leases, and a request to a leased bucket is denied until the leases have
/// been returned. No bucket that takes longer to refill grants leases, because the wait of such a
/// denial would be negative.
const TIMES: u64 = 1 << 60;

/// A bucket with `lines` lines for leases, each of at most `size` tokens.
///
/// # State
///
/// A word is *home* or *leased*. A home word is a word of the bucket, and no token is out. While
/// tokens may be out, the word is leased. It then consists of [`LEASED`] and the time at which the
/// bucket is full. No home word is as large.
///
/// | step | home word, which stands for `full` | leased word, which stands for `full` |
/// |---|---|---|
/// | charge of `c`, admitted up to the capacity | `max(full, now) + c`, home | `max(full, now + reserve) + c`, leased |
/// | lease of `n`, admitted up to the capacity | `max(full, now + reserve) + n`, leased | as a charge |
/// | return of the `n` tokens that are out | none | `max(full, now + reserve) - n`, home |
///
/// The *reserve* is the most that can be out, `lines * size` tokens. A leased bucket always counts
/// at least the reserve as missing, because the bucket may have refilled past a charge whose tokens
/// are still out.
///
/// # Bound
///
/// At most `burst + d * limit / period` tokens are admitted in any interval `[a, a + d]`, as by the
/// bucket alone (see [`Gcra`]). This is the theorem of `docs/design.md` (*Why is a token charged
/// before it may be spent?*) for a bound by number. A request that is charged to the word counts at
/// its time, and a token that is spent from a lease counts when it is spent.
///
/// The proof uses four facts about the lines (see `state/leases.rs`): a line has at most `size`
/// tokens; the time of a lease is read after the line was claimed for it, and a claimed line spends
/// no tokens; no token is spent after the line was closed; and the time of a return is read after
/// all lines were closed.
///
/// *Proof.* Take the charges of the word, by requests and by leases, in the order of their
/// compare-and-swaps. Let `first` and `last` be the first and the last of those whose times are in
/// `[a, a + d]`. A lease is *old* if its time is before `a` and it precedes `first`. (If there is
/// no `first`, every lease before `a` is old, and no other tokens count.) Consider the tokens of
/// old leases that a line has at `a`, or that a thread which has claimed the line before `a` adds
/// to it later. They are at most `size`. No other tokens of old leases are spent or returned at `a`
/// or later, because every lease whose line is claimed at `a` or later has a time that is not
/// before `a`. Over all lines, at most the reserve is therefore spent from old leases, or returned
/// from them, at `a` or later.
///
/// All other tokens that count were charged to the word by `first`, by `last`, or between them. (A
/// charge after `last` that counts is a lease with a time before `a`. It was admitted up to the
/// capacity at its time, so the argument for `last` holds for it.)
///
/// - If the word is leased at `first`, it is afterwards at least `a + reserve` and the charge. The
///   same holds if the word is home, but some token of an old lease was spent at `a` or later: the
///   word became home after that, at a time that is not before `a`, so it was at least
///   `a + reserve` less what was returned.
/// - Each later charge adds its cost, and each return subtracts tokens that are not spent. No other
///   step lowers the word, apart from refunds, which [`Gcra`] discusses.
/// - `last` was admitted, so the word is at most `a + d` and the capacity.
///
/// The charges less the returned tokens are therefore at most the capacity, `d`, and minus the
/// reserve. The tokens of old leases that are spent, and those that were returned, are at most the
/// reserve. The sum is at most the capacity and `d`. If the word is home at `first`, and no token
/// of an old lease was spent at `a` or later, then no old lease matters, and the proof of [`Gcra`]
/// holds as it is. ∎
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Leased {
    bucket: Gcra,
    lines: u64,
    size: u64,
}

impl Leased {
    /// Returns the bucket with this many lines. If its burst is too small, or takes too long to
    /// refill, it grants no leases.
    pub(crate) fn new(bucket: Gcra, lines: u64) -> Self {
        let size = (bucket.burst() / SHARE / lines).min(MOST);
        let is_possible = size >= LEAST && bucket.grain().of_tokens(bucket.burst()) <= TIMES;
        Self { bucket, lines, size: if is_possible { size } else { 0 } }
    }

    /// Returns whether the bucket can grant leases.
    pub(crate) fn is_possible(&self) -> bool {
        self.size > 0
    }

    /// Returns the most tokens that a line may have.
    pub(crate) fn size(&self) -> u64 {
        self.size
    }

    /// Returns whether tokens may be out.
    #[inline(always)]
    pub(crate) fn is_leased(word: Word) -> bool {
        !word.is_frozen() && word.value() >= LEASED
    }

    /// Returns the word that the bucket alone would have, as seen at `now`.
    fn seen(&self, word: Word, now: Tick) -> Word {
        if !Self::is_leased(word) {
            return word;
        }
        let reserve = self.bucket.grain().of_tokens(self.lines * self.size);
        Word::of((word.value() - LEASED).max(self.bucket.grain().at(now) + reserve))
    }

    /// Returns the leased word that stands for `word`, or `None` if its time is too late for one.
    fn marked(word: Word) -> Option<Word> {
        (word.value() < TIMES).then(|| Word::of(LEASED + word.value()))
    }

    /// Applies a step of the bucket to a word. A leased word stays leased. If the step would leave
    /// it with a time that is too late, the word is returned unchanged.
    pub(crate) fn step(&self, word: Word, now: Tick, step: impl FnOnce(Word) -> Word) -> Word {
        if !Self::is_leased(word) {
            return step(word);
        }
        let seen = self.seen(word, now);
        let to = step(seen);
        if to == seen { word } else { Self::marked(to).unwrap_or(word) }
    }

    /// Returns the word after a request that charges tokens, or `None` for every other request.
    pub(crate) fn charged(&self, word: Word, now: Tick, cost: u64) -> Option<Word> {
        let charged = |word: Word| self.bucket.charged(word, now, cost).unwrap_or(word);
        Some(self.step(word, now, charged)).filter(|&to| to != word)
    }

    /// Returns the answer to a request that found `from`, and replaced it with `to`.
    pub(crate) fn answer(&self, from: Word, to: Option<Word>, now: Tick, cost: u64) -> Decision {
        let plain = |word: Word| if Self::is_leased(word) { Word::of(word.value() - LEASED) } else { word };
        self.bucket.answer_after(self.seen(from, now), to.map(plain), now, cost)
    }

    /// Returns a charge as it may be refunded. A charge of a leased word counts the reserve as
    /// missing before it, and so does the leased word of a later refund. Tokens that only seem to
    /// be missing must not hold the charge longer, or its refund would return tokens of later
    /// charges. The refund of a charge that found the bucket almost full, and its word home,
    /// therefore returns fewer tokens than it might, by at most the reserve.
    pub(crate) fn without_reserve(&self, charge: &Decision) -> Decision {
        let reserve = self.bucket.grain().of_tokens(self.lines * self.size);
        match charge.figures {
            Figures::Bucket { full, grain, queue } => {
                let full = full.saturating_sub(reserve);
                Decision { figures: Figures::Bucket { full, grain, queue }, ..*charge }
            }
            _ => *charge,
        }
    }

    /// Returns the word after a forced charge, and the number of tokens charged.
    pub(crate) fn force(&self, word: Word, now: Tick, tokens: u64) -> (Word, u64) {
        let to = self.step(word, now, |word| self.bucket.force(word, now, tokens).0);
        (to, if to == word { 0 } else { self.bucket.force(self.seen(word, now), now, tokens).1 })
    }

    /// Returns the answer that a request would get. If `may_lease` is true, the next check may take
    /// a lease, so the reserve counts as missing from what remains.
    pub(crate) fn peek(&self, word: Word, now: Tick, cost: u64, may_lease: bool) -> Decision {
        let answer = self.bucket.peek(self.seen(word, now), now, cost);
        match self.with_reserve(word, now) {
            Some((seen, _)) if may_lease && answer.is_allowed() => self.bucket.answer(seen, now, 0),
            _ => answer,
        }
    }

    /// Returns the number of tokens that a lease would have. Each line is offered half of its
    /// share of the remaining tokens, so that leases end before the bucket is empty.
    pub(crate) fn offered(&self, word: Word, now: Tick) -> u64 {
        if !word.is_live() || !self.is_possible() {
            return 0;
        }
        let tokens = self.with_reserve(word, now).map_or(0, |(_, room)| room / (2 * self.lines));
        if tokens < LEAST { 0 } else { tokens.min(self.size) }
    }

    /// Returns the word of a bucket from which at least the reserve is missing, and the number of
    /// tokens that remain.
    fn with_reserve(&self, word: Word, now: Tick) -> Option<(Word, u64)> {
        let leased = if Self::is_leased(word) { word } else { Self::marked(word)? };
        let seen = self.seen(leased, now);
        Some((seen, self.bucket.peek(seen, now, 0).remaining()))
    }

    /// Returns the word after a lease of at most `most` tokens, and the number of leased tokens, or
    /// `None` if no lease is offered.
    pub(crate) fn leased(&self, word: Word, now: Tick, most: u64) -> Option<(Word, u64)> {
        let tokens = Some(self.offered(word, now).min(most)).filter(|&tokens| tokens > 0)?;
        let (seen, _) = self.with_reserve(word, now)?;
        let to = Word::of(seen.value() + self.bucket.grain().of_tokens(tokens));
        Some((Self::marked(to)?, tokens))
    }

    /// Returns the home word that replaces a leased word when `tokens` tokens are returned and no
    /// token is out any more. Returns `None` if the word is not leased.
    pub(crate) fn home(&self, word: Word, now: Tick, tokens: u64) -> Option<Word> {
        let returned = self.bucket.grain().of_tokens(tokens);
        let home = || Word::of(self.seen(word, now).value().saturating_sub(returned).max(1));
        Self::is_leased(word).then(home)
    }
}

#[cfg(all(test, not(tollgate_loom)))]
mod tests {
    use super::*;
    use crate::quota::Quota;
    use crate::rule::AnyRule;
    use proptest::prelude::*;
    use std::time::Duration;

    /// Leases of a bucket with a burst of 256 and two lines.
    struct History {
        quota: Quota,
        bucket: Leased,
        word: Word,
        lines: [u64; 2],
        now: u64,
        /// The content of a leaky bucket that is filled by every spent token. A token is as many
        /// units as the period has nanoseconds.
        meter: u64,
        /// The most that the meter may contain.
        most: u64,
    }

    #[derive(Clone, Copy, Debug)]
    enum Step {
        /// Passes the time in which this many tokens refill, and some nanoseconds.
        Pass(u64, u64),
        Charge(u64),
        Lease(usize),
        Spend(usize, u64),
        Return,
        Force(u64),
    }

    const BURST: u64 = 256;
    /// Tokens per nanoseconds: a token of one grain, of 1,000 grains, and of 7 grains that are
    /// shorter than a nanosecond.
    const RATES: [(u64, u64); 3] = [(1, 1), (1, 1_000), (3, 20)];

    impl History {
        fn new((tokens, nanos): (u64, u64), debt: u64) -> Self {
            let quota = Quota::new(tokens, Duration::from_nanos(nanos)).burst(BURST);
            let gcra = Gcra::token_bucket(quota).unwrap().max_debt(debt).unwrap();
            let bucket = Leased::new(gcra, 2);
            let word = AnyRule::Gcra(gcra).idle();
            // If a grain is not a nanosecond, a bucket may be two grains early.
            let early =
                if nanos.is_multiple_of(tokens) { 0 } else { 2 * nanos / gcra.grain().of_tokens(1) + 1 };
            let most = (BURST + debt) * nanos + early;
            Self { quota, bucket, word, lines: [0; 2], now: 1_000, meter: 0, most }
        }

        fn period(&self) -> u64 {
            u64::try_from(self.quota.period().as_nanos()).unwrap()
        }

        fn spent(&mut self, tokens: u64) {
            self.meter += tokens * self.period();
            assert!(self.meter <= self.most, "{} of {} are spent, {:?}", self.meter, self.most, self.quota);
        }

        fn take(&mut self, step: Step) {
            let now = Tick::from_nanos(self.now);
            match step {
                Step::Pass(tokens, nanos) => {
                    let nanos = tokens * self.period() / self.quota.tokens() + nanos;
                    self.now += nanos;
                    self.meter = self.meter.saturating_sub(nanos * self.quota.tokens());
                }
                Step::Charge(cost) => {
                    if let Some(to) = self.bucket.charged(self.word, now, cost) {
                        self.word = to;
                        self.spent(cost);
                    }
                }
                Step::Lease(line) => {
                    let room = self.bucket.size() - self.lines[line];
                    if let Some((to, tokens)) = self.bucket.leased(self.word, now, room) {
                        self.word = to;
                        self.lines[line] += tokens;
                    }
                }
                Step::Spend(line, tokens) => {
                    let tokens = tokens.min(self.lines[line]);
                    self.lines[line] -= tokens;
                    self.spent(tokens);
                }
                Step::Return => {
                    let out = self.lines.iter().sum();
                    match self.bucket.home(self.word, now, out) {
                        Some(to) => self.word = to,
                        None => assert_eq!(out, 0, "tokens are out while the word is home"),
                    }
                    self.lines = [0; 2];
                    assert!(!Leased::is_leased(self.word));
                }
                Step::Force(tokens) => {
                    let (to, charged) = self.bucket.force(self.word, now, tokens);
                    self.word = to;
                    self.spent(charged);
                }
            }
        }
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            (prop_oneof![0..20_u64, 0..600_u64], 0..3_u64)
                .prop_map(|(tokens, nanos)| Step::Pass(tokens, nanos)),
            prop_oneof![Just(1), 0..300_u64].prop_map(Step::Charge),
            (0..2_usize).prop_map(Step::Lease),
            (0..2_usize).prop_map(Step::Lease),
            (0..2_usize, 1..10_u64).prop_map(|(line, tokens)| Step::Spend(line, tokens)),
            (0..2_usize, Just(8)).prop_map(|(line, tokens)| Step::Spend(line, tokens)),
            Just(Step::Return),
            (0..300_u64).prop_map(Step::Force),
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(20_000))]

        /// Forced charges may take the bucket into debt.
        #[test]
        fn leases_admit_in_any_interval_what_one_bucket_admits(
            steps in prop::collection::vec(step(), 1..80),
            debt in prop_oneof![Just(0), 0..300_u64],
        ) {
            for rate in RATES {
                let mut history = History::new(rate, debt);
                steps.iter().for_each(|&step| history.take(step));
            }
        }
    }

    /// Tokens are taken, the bucket refills, and the tokens are returned or spent at the end.
    #[test]
    fn a_bucket_refills_past_a_lease_and_still_counts_it() {
        for (rate, spends) in RATES.into_iter().flat_map(|rate| [(rate, true), (rate, false)]) {
            let mut history = History::new(rate, 0);
            history.take(Step::Lease(0));
            history.take(Step::Lease(1));
            assert_eq!(history.lines, [8, 8]);
            history.take(Step::Pass(10_000, 0));
            if spends {
                history.take(Step::Spend(0, 8));
                history.take(Step::Spend(1, 8));
            }
            history.take(Step::Return);
            history.take(Step::Charge(BURST - 16));
            history.take(Step::Charge(1));
            let expected = if spends { BURST } else { BURST - 15 };
            assert_eq!(history.meter, expected.min(BURST) * history.period());
        }
    }

    /// A thread that finds another thread returning leases tells when to retry.
    #[test]
    fn a_leased_bucket_denies_with_a_wait_or_grants_no_leases() {
        let most = TIMES / 1_000_000_000;
        for (burst, grants) in [(2 * most - 1, false), (most + 1, false), (most, true), (1_000_000, true)] {
            let bucket = Leased::new(Gcra::token_bucket(Quota::per_second(1).burst(burst)).unwrap(), 2);
            for now in [1, TIMES / 2].map(Tick::from_nanos) {
                let leased = bucket.leased(Word::of(1), now, 8);
                let costs = [1, burst - 3_000, burst - 1_000, burst];
                for (cost, (word, _)) in costs.into_iter().filter_map(|cost| Some((cost, leased?))) {
                    let to = bucket.charged(word, now, cost);
                    assert!(bucket.answer(word, to, now, cost).retry_after().is_some());
                }
                assert_eq!(leased.is_some(), grants, "{burst}");
            }
        }
    }

    #[test]
    fn a_leased_word_is_no_word_of_a_bucket() {
        let most = Quota::new(2, Duration::from_nanos(1)).burst(1 << 61);
        let bucket = Gcra::token_bucket(most).unwrap();
        let last = bucket.charged(Word::of(1), Tick::MAX, 1 << 61).unwrap();
        assert!(!Leased::is_leased(last) && last.value() + 1 == LEASED);
        assert!(Leased::is_leased(Leased::marked(Word::of(1)).unwrap()));
        assert!(Leased::is_leased(Leased::marked(Word::of(TIMES - 1)).unwrap()));
        assert_eq!(Leased::marked(Word::of(TIMES)), None);
        assert!(!Leased::is_leased(Word::FRESH) && !Leased::is_leased(Word::EVICTED));
    }
}
