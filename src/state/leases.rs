//! Leases between cores: tokens that a thread takes from a bucket in advance and spends on a cache
//! line of its own.
//!
//! A word that all cores write moves from core to core with each check. A lease charges the word
//! once for many tokens. Each token is then spent by one compare-and-swap on a *line*, a word that
//! few threads write, and without a reading of the clock.
//!
//! # State
//!
//! There are as many lines as cores. The thread with number `n` uses line `n`, modulo the number of
//! lines. `line_word.rs` describes the word of a line, and `rule/leased.rs` the word of the bucket:
//! it is *leased* while tokens may be out, and *home* otherwise. The *reserve* is the most that can
//! be out: the number of lines times the size of a lease.
//!
//! # Protocol
//!
//! ```text
//! lease:   claim a line that has too few tokens; read the clock; charge the word, which is then
//!          leased; fill the line
//! spend:   lower the tokens of the line
//! return:  become the only thread that returns leases; close all lines and add up their tokens;
//!          read the clock; lower the word, which is then home; open the lines
//! void:    freeze the word (a change of quota); empty all lines that are not closed; read the
//!          clock; translate the word as if no token had been returned
//! ```
//!
//! A denial by a leased bucket first returns all leases. Once the word is home, a denial reads only
//! the word, as without leases. A [`Hint`] predicts whether the line of a check has tokens. Only the
//! words decide: a wrong hint costs a reading of the line in vain, or a charge of the word.
//!
//! # Invariants
//!
//! 1. A line never has more tokens than a lease, and no token of a claimed line is spent. A line
//!    accepts a refund only while it has the lease that paid for the request.
//! 2. The time of a lease is read after its line was claimed.
//! 3. If a line has tokens, the word of the bucket is leased or frozen. Only a return makes the
//!    word home, while all lines are closed, and only the thread that closed the lines opens
//!    them.
//! 4. Every spent token was spent before its line was closed or emptied, and therefore before the
//!    time that a return or a change of quota reads.
//!
//! A processor may read its counter a few nanoseconds before it has completed the exchange that
//! precedes the reading (see `clock/counter.rs`). Invariants 2 and 4 then fail for these
//! nanoseconds, with the same effect as clocks that differ as much: what refills in them may be
//! admitted in addition.
//!
//! `Leased` derives the bound from these invariants. A token counts at the time at which it is
//! spent.
//!
//! # What is lost
//!
//! If a thread stops between the charge of the word and the filling of its line, or if its line
//! is closed in between, the tokens of the lease remain charged and are never spent. They refill
//! like all charged tokens. A change of quota drops the tokens that are out. So does a thread that
//! returns or voids leases under an earlier quota, and was stopped in the meantime. `lost` counts
//! all of these, except for the tokens of threads that never run again.
//!
//! `lost` does not count void refunds: a refund has no effect if its lease was replaced, or while
//! its line is claimed or closed.
//!
//! A thread that continues after its line was closed may still set the figures of its lost lease.
//! Decisions that spend the next lease of the line may then report some of these figures.
//!
//! If the thread that returns leases stops for good, no leases are returned any more, and the lines
//! that it has closed get none. Checks continue at the word, with a burst that is smaller by the
//! reserve, and the limiter is never idle.
//!
//! # Progress
//!
//! Spending, refunding and charging the word are lock-free. No thread waits for another: a thread
//! whose line is claimed or closed charges the word, and a thread that finds another thread
//! returning leases denies its request.
//!
//! # Orderings
//!
//! | edge | release side | acquire side | what becomes visible | loom test that fails if it is weakened |
//! |---|---|---|---|---|
//! | granted | `Leases::lease` fills a line | `Leases::spend` | the figures of the lease | `lease_races_spend_and_its_figures_are_visible` |
//! | leased | `Leases::lease` fills a line | `CoreLine::change` closes it | the charge of the word, so that no token is lost because the word seems to be home | `lease_follows_return_and_the_next_return_finds_it` |
//! | opened | `Leases::bring_home` ends | `Leases::bring_home` begins | that the earlier return has opened the lines, so that none of them seems to be closed still | `lease_follows_return_and_the_next_return_finds_it` |
//! | claimed | `rule::try_update` of a lease | `Leases::void` | that the line was claimed, so that it does not seem to be closed | `change_of_quota_follows_return_and_voids_the_next_lease` |
//! | contended | `rule::try_update` of a lease | `SingleLimiter::refund_at` | that the limiter grants leases, so that a refund subtracts the reserve from its charge | none: models begin with the hint that leases are granted |
//! | vacated | `CoreLine::vacate` | `CoreLine::change` claims a line, at the site of *leased* | that the word was made home or frozen before, so that no later charge of the word precedes that | none: the edge keeps an exchange of one thread before a later one, and loom runs the accesses of a thread in their order |
//! | figures | `CoreLine::set` | `CoreLine::figures` | that the line was claimed for another lease, so that the exchange of a spending fails | none: the edge keeps a load of one thread before a later exchange, and loom runs the accesses of a thread in their order |

mod line_word;

use crate::clock::Clock;
use crate::decision::{Decision, Figures, LeaseId, Outcome};
use crate::rule::{Gcra, Leased, Updated, Word, load, swap, try_update};
use crate::sync::{
    Atomic, Counter,
    Ordering::{Acquire, Relaxed, Release},
    cores, thread_number,
};
use crate::time::Tick;
use line_word::LineWord;
use std::cell::Cell;
use std::hash::{BuildHasher, RandomState};

/// The lines for leases of one limiter.
#[derive(Debug)]
pub(crate) struct Leases {
    lines: Box<[CoreLine]>,
    clock: Clock,
    /// False if the owner of the clock moves it. No leases are granted then.
    is_own: bool,
    /// A [`Hint`] of what a check finds, so that it reads neither a line without tokens nor the
    /// clock before a line with tokens.
    hint: Atomic<u32>,
    returns: Returns,
}

/// What changes while leases are granted, apart from the fields that every check reads.
#[derive(Debug)]
#[repr(align(128))]
struct Returns {
    /// 1 while a thread returns leases.
    is_running: Atomic<u32>,
    lost: Counter,
}

/// A line, and the figures of its lease. Each line is on cache lines of its own.
#[derive(Debug)]
#[repr(align(128))]
struct CoreLine {
    word: Atomic<u64>,
    /// The time of the lease, in ticks.
    at: Atomic<u64>,
    /// The burst, in tokens.
    limit: Atomic<u64>,
    /// The nanoseconds from the time of the lease until the bucket is full again.
    reset: Atomic<u64>,
}

impl CoreLine {
    fn new(generation: u64) -> Self {
        let [at, limit, reset] = [const { 0 }; 3].map(Atomic::new);
        Self { word: Atomic::new(LineWord::vacant(generation).bits()), at, limit, reset }
    }

    /// Returns the figures of the lease. If a later lease has replaced any of them, the line has
    /// changed as well.
    fn figures(&self) -> Lease {
        // ORDERING: acquire side of *figures*.
        let [at, limit, reset] = [&self.at, &self.limit, &self.reset].map(|figure| figure.load(Acquire));
        Lease { at, limit, reset }
    }

    fn set(&self, Lease { at, limit, reset }: Lease) {
        for (figure, value) in [(&self.at, at), (&self.limit, limit), (&self.reset, reset)] {
            // ORDERING: release side of *figures*.
            figure.store(value, Release);
        }
    }

    /// Changes the line's word. Returns the word before the change, or `None` if nothing was
    /// changed.
    fn change(&self, to: impl Fn(LineWord) -> Option<LineWord>) -> Option<LineWord> {
        let to = |bits| to(LineWord::of_bits(bits)).map(LineWord::bits);
        // ORDERING: acquire side of *leased*, for a line that is closed, and of *vacated*, for a
        // line that is claimed. Other changes need no ordering.
        self.word.fetch_update(Relaxed, Acquire, to).ok().map(LineWord::of_bits)
    }

    /// Changes the line's word so that the line is open and without tokens. Returns the word before
    /// the change, or `None` if nothing was changed.
    fn vacate(&self, to: impl Fn(LineWord) -> Option<LineWord>) -> Option<LineWord> {
        let to = |bits| to(LineWord::of_bits(bits)).map(LineWord::bits);
        // ORDERING: release side of *vacated*.
        self.word.fetch_update(Release, Relaxed, to).ok().map(LineWord::of_bits)
    }
}

/// What is known of a limiter's leases. It may be wrong for a while. For a check, this costs time
/// only, because the words decide. A peek may report tokens that the first lease then takes. A
/// refund must not be wrong about the first lease: see *contended*.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Hint {
    /// No two threads have charged the word at the same time, so no leases are granted.
    NotContended,
    /// No tokens are out.
    Home,
    /// Tokens may be out.
    Leased,
}

/// The figures of a lease.
#[derive(Clone, Copy)]
struct Lease {
    at: u64,
    limit: u64,
    reset: u64,
}

impl Lease {
    fn decision(self, cost: u64, line: usize, word: LineWord) -> Decision {
        let Self { at, limit, reset } = self;
        let figures = Figures::Leased { remaining: word.tokens(), reset, lease: word.lease(line) };
        Decision::of_key(Outcome::Allowed, cost, limit, Tick::from_nanos(at), figures)
    }
}

impl Leases {
    /// The number of lines that a limiter on this machine has.
    pub(crate) fn lines() -> u64 {
        cores() as u64
    }

    /// Creates vacant lines. The clock is the limiter's own.
    pub(crate) fn new(lines: u64, clock: Clock) -> Self {
        // A random start, so that a lease of another limiter is not taken for one of this limiter.
        let first = if cfg!(tollgate_loom) { 0 } else { RandomState::new().hash_one(0_u8) };
        Self {
            lines: (0..lines).map(|_| CoreLine::new(first)).collect(),
            is_own: clock.is_real() || cfg!(any(test, tollgate_loom)),
            clock,
            // A model that explores hints begins where leases are granted.
            hint: Atomic::new(if cfg!(tollgate_loom) { Hint::Home } else { Hint::NotContended } as u32),
            returns: Returns { is_running: Atomic::new(0), lost: Counter::new() },
        }
    }

    pub(crate) fn count(&self) -> u64 {
        self.lines.len() as u64
    }

    /// Returns the size in bytes of the allocated memory.
    pub(crate) fn bytes(&self) -> usize {
        // An `Arc` stores two counts before its value.
        align_of::<Self>() + size_of::<Self>() + size_of_val(&*self.lines)
    }

    /// Returns the number of tokens that are out.
    pub(crate) fn out(&self) -> u64 {
        // ORDERING: relaxed; a figure.
        self.lines.iter().map(|line| LineWord::of_bits(line.word.load(Relaxed)).tokens()).sum()
    }

    /// Returns how many tokens were charged for leases and then lost.
    pub(crate) fn lost(&self) -> u64 {
        self.returns.lost.get()
    }

    /// Returns whether checks follow hints. In most models they do not, because a model does not
    /// spend executions on hints.
    #[inline(always)]
    fn has_hints() -> bool {
        #[cfg(tollgate_loom)]
        return crate::sync::ModelSwitch::LeaseHints.is_on();
        #[cfg(not(tollgate_loom))]
        true
    }

    /// Returns what is known of the leases. Without hints, it is always that tokens may be out.
    #[inline]
    pub(crate) fn hint(&self) -> Hint {
        if !Self::has_hints() {
            return Hint::Leased;
        }
        // ORDERING: relaxed; a hint.
        match self.hint.load(Relaxed) {
            0 => Hint::NotContended,
            1 => Hint::Home,
            _ => Hint::Leased,
        }
    }

    /// Replaces a hint. Without a clock of the limiter's own, there are no leases.
    pub(crate) fn note(&self, from: Hint, to: Hint) {
        if Self::has_hints() && self.is_own && self.hint() == from {
            // ORDERING: relaxed; a hint.
            self.hint.store(to as u32, Relaxed);
        }
    }

    /// Returns the number of the thread's line.
    #[inline(always)]
    fn own(&self) -> usize {
        let number = thread_number();
        // A division takes longer than all other steps, and most programs have few threads.
        if number < self.lines.len() { number } else { number % self.lines.len() }
    }

    /// Spends tokens, at least one, of the thread's own line. Returns `None` if the line has fewer
    /// tokens.
    #[inline(always)]
    pub(crate) fn spend(&self, cost: u64) -> Option<Decision> {
        let own = self.own();
        let line = &self.lines[own];
        loop {
            // ORDERING: acquire side of *granted*: the figures of the lease are visible.
            let bits = line.word.load(Acquire);
            let spent = LineWord::of_bits(bits).spent(cost)?;
            let figures = line.figures();
            // ORDERING: relaxed; the tokens publish nothing.
            if line.word.compare_exchange_weak(bits, spent.bits(), Relaxed, Relaxed).is_ok() {
                return Some(figures.decision(cost, own, spent));
            }
        }
    }

    /// Charges the word for a lease, fills the thread's own line, and spends `cost` tokens of it.
    /// Returns `None` if the line cannot be claimed, if too few tokens are offered at `now`, or if
    /// the lease was lost.
    pub(crate) fn lease(
        &self,
        bucket: Leased,
        word: &Atomic<Word>,
        now: Tick,
        cost: u64,
    ) -> Option<Decision> {
        let own = self.own();
        let line = &self.lines[own];
        let (size, offered) = (bucket.size(), bucket.offered(load(word), now));
        let claim = |word: LineWord| word.claimed(cost, size.min(word.tokens() + offered));
        let before = line.change(claim)?;
        let claimed = claim(before)?;
        // The clock is read after the line was claimed: invariant 2.
        let now = self.clock.now();
        let rest = before.tokens();
        let leased = Cell::new(0);
        let Updated { to, is_new, .. } = try_update(word, |word| {
            let (to, tokens) = bucket.leased(word, now, size - rest)?;
            leased.set(tokens);
            (rest + tokens >= cost).then_some(to)
        });
        if !is_new {
            line.change(|word| (word == claimed).then_some(before));
            return None;
        }
        let charged = bucket.answer(to, Some(to), now, leased.get());
        let reset = u64::try_from(charged.reset_after().as_nanos()).unwrap_or(u64::MAX);
        let figures = Lease { at: now.as_nanos(), limit: charged.capacity(), reset };
        line.set(figures);
        let filled = claimed.filled(leased.get(), cost);
        // ORDERING: release side of *granted* and of *leased*.
        if line.word.compare_exchange(claimed.bits(), filled.bits(), Release, Relaxed).is_err() {
            // The line was closed or emptied, with the tokens that it had.
            self.returns.lost.add(leased.get());
            return None;
        }
        self.note(Hint::Home, Hint::Leased);
        Some(figures.decision(cost, own, filled))
    }
}

impl Leases {
    /// Returns all leases to the bucket, so that its word is home. Does nothing if another thread
    /// is doing so.
    #[cold]
    pub(crate) fn bring_home(&self, bucket: Leased, word: &Atomic<Word>) {
        // ORDERING: relaxed; a denial beside a return writes nothing.
        if self.returns.is_running.load(Relaxed) != 0 {
            return;
        }
        // ORDERING: acquire side of *opened*.
        if self.returns.is_running.compare_exchange(0, 1, Acquire, Relaxed).is_err() {
            return;
        }
        let closed = self.lines.iter().filter_map(|line| line.change(LineWord::closed));
        let tokens = closed.map(LineWord::tokens).sum();
        // The clock is read after the lines were closed: invariant 4.
        let home = |word: Word| bucket.home(word, self.clock.now(), tokens);
        let Updated { from, is_new, .. } = try_update(word, home);
        if !is_new {
            // A change of quota has frozen the word. Its translation counts the leases of this word
            // as spent, and the leases of a later word remain charged there.
            debug_assert!(tokens == 0 || from.is_frozen(), "tokens are out while the word is home");
            self.returns.lost.add(tokens);
        }
        self.lines.iter().for_each(|line| _ = line.vacate(LineWord::opened));
        self.note(Hint::Leased, Hint::Home);
        // ORDERING: release side of *opened*.
        self.returns.is_running.store(0, Release);
    }

    /// Empties all lines, so that no token of an earlier lease of `word` is spent or refunded any
    /// more. Returns the time, which is not before any spending. If a later word has replaced
    /// `word`, its leases are emptied as well, and their tokens remain charged there.
    #[cold]
    pub(crate) fn void(&self, word: &Atomic<Word>) -> Tick {
        // ORDERING: acquire side of *claimed*.
        let _ = word.load(Acquire);
        let voided = self.lines.iter().filter_map(|line| line.vacate(LineWord::voided));
        self.returns.lost.add(voided.map(LineWord::tokens).sum());
        self.note(Hint::Leased, Hint::Home);
        self.clock.now()
    }

    /// Answers a request that does not change a home word, such as a denied one, under the
    /// limiter's first rule. Returns `None` if the request changes the word, or if the word is not
    /// home.
    #[inline(always)]
    pub(crate) fn answer_at_home(
        &self,
        bucket: Gcra,
        word: &Atomic<Word>,
        now: Tick,
        cost: u64,
    ) -> Option<Decision> {
        let from = load(word);
        let is_home = from.is_live() && !Leased::is_leased(from);
        (is_home && bucket.charged(from, now, cost).is_none())
            .then(|| bucket.answer_after(from, None, now, cost))
    }

    /// Decides a request on a home word in one attempt, under the limiter's first rule. Returns
    /// `None` if the word is not home, if another thread has changed it, or if the request may take
    /// a lease.
    #[inline]
    pub(crate) fn decide_at_home(
        &self,
        bucket: Gcra,
        word: &Atomic<Word>,
        now: Tick,
        cost: u64,
        may_lease: bool,
    ) -> Option<Decision> {
        let from = load(word);
        if !from.is_live() || Leased::is_leased(from) {
            return None;
        }
        let Some(to) = bucket.charged(from, now, cost) else {
            return Some(bucket.answer_after(from, None, now, cost));
        };
        if may_lease {
            return None;
        }
        if !swap(word, from, to) {
            self.note_contention();
            return None;
        }
        Some(bucket.answer_after(from, Some(to), now, cost))
    }

    /// Charges the word, or denies the request after all leases were returned. Returns `None` if
    /// the word is frozen. `is_by_clock` tells whether the limiter's own clock was read for `now`.
    pub(crate) fn charge(
        &self,
        bucket: Leased,
        word: &Atomic<Word>,
        now: Tick,
        cost: u64,
        is_by_clock: bool,
    ) -> Option<Decision> {
        let first = Cell::new(None);
        let Updated { from, to, is_new } = try_update(word, |word| {
            // A spurious failure finds the same word again.
            if first.replace(Some(word)).is_some_and(|first| first != word) {
                self.note_contention();
            }
            bucket.charged(word, now, cost)
        });
        let to = is_new.then_some(to);
        let answer = (is_new || from.is_live()).then(|| bucket.answer(from, to, now, cost))?;
        if Leased::is_leased(from) {
            self.note(Hint::Home, Hint::Leased);
        }
        if answer.outcome() == Outcome::Denied && Leased::is_leased(from) {
            self.bring_home(bucket, word);
            // The return has counted the reserve as missing at a later time than `now`, at which
            // more than the reserve would seem to be missing.
            let now = if is_by_clock { self.clock.now() } else { now };
            return self.charge_home(bucket, word, now, cost);
        }
        Some(answer)
    }

    /// Charges the word after the leases were returned.
    fn charge_home(&self, bucket: Leased, word: &Atomic<Word>, now: Tick, cost: u64) -> Option<Decision> {
        let Updated { from, to, is_new } = try_update(word, |word| bucket.charged(word, now, cost));
        let to = is_new.then_some(to);
        (is_new || from.is_live()).then(|| bucket.answer(from, to, now, cost))
    }

    #[cold]
    pub(crate) fn note_contention(&self) {
        self.note(Hint::NotContended, Hint::Home);
    }

    /// Refunds at most `tokens` of a charge that was spent from a lease, and returns how many. They
    /// are none if the lease is not there any more.
    pub(crate) fn refund(&self, lease: LeaseId, tokens: u64) -> u64 {
        let refunded = |word: LineWord| word.refunded(lease, tokens);
        let line = self.lines.get(LineWord::line(lease));
        let before = line.and_then(|line| line.change(refunded));
        before.map_or(0, |word| refunded(word).map_or(0, LineWord::tokens) - word.tokens())
    }
}
