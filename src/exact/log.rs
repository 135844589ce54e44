//! The sliding log: the time of every admission of one key, so that any trailing period is counted exactly.
//!
//! A request is admitted if its cost and all that was admitted in the period that ends with it are at most
//! the limit. Why not a ring of `limit` times: it holds the memory of the busiest key for every key, a request
//! of many tokens fills many places, and claiming a place and storing the time in it are two steps, so that a
//! thread stopped between them leaves a place of which nobody knows how old it is. Here both are one step, and
//! there is nothing between them to wait for, to help with, or to guess.
//!
//! # State
//!
//! A log is a chain of [`Chunk`]s, from the oldest that may still count (the *root*) to the newest (the
//! *tail*). A chunk is a row of slots. An admission is one slot, whatever it costs: its time and the *sum*
//! of all tokens admitted so far, in one word (`slot`). What a period admitted is the difference of two sums;
//! the first of its admissions is found by binary search. What was given back is noted beside the slots
//! (`refunds`).
//!
//! ```text
//! slot:   EMPTY -> admission      a charge; by compare-and-swap, in order, never changed again
//!         EMPTY -> CLOSED         the admission that comes does not fit this chunk, or a reset
//! next:   null -> chunk           behind a full or closed row; the chunk has an admission in its first slot,
//!                                 or is empty and begins *anew*: a reset
//! root:   null -> chunk -> next   when all admissions of a chunk are out of the window, or before a reset
//! ```
//!
//! A key's time is that of its last admission, or of a later request. A request with an older `now` (another
//! thread was quicker, or has a clock that is ahead) is judged at the key's time and counted there.
//!
//! # Invariants
//!
//! 1. A slot is written once, and only when all slots before it in its row are admissions.
//! 2. A chunk is linked only behind a row that takes no more admissions. So there is one place at which the log
//!    can go on: the first empty slot of the tail or, if there is none, its null link.
//! 3. Along the chain, times never decrease and sums grow by what each admission took.
//! 4. The admissions in the window of any key's time have at most `limit` tokens that are not given back.
//! 5. Refunds of a run of admissions are never read as more than was given back of it.
//! 6. A chunk that is retired has no admission that counts at the key's time, and the key's time stays.
//!
//! # Why it is right
//!
//! A charge looks for the place of invariant 2, adds up the window that ends at `max(now, last time)`, and
//! writes its admission into that very place by one compare-and-swap: of a slot, or of the link, with a chunk
//! that holds the admission. If it succeeds, nobody was admitted between, so the sum was right at that moment;
//! what was given back since then leaves more room, not less (invariants 3 and 5). If it fails, somebody
//! else was admitted, or the row was closed, and it looks again. Two requests at one instant take two slots.
//!
//! An admission is thus whole or not there. A thread that stops for good has either charged, and all see it,
//! or it has not; what it leaves undone (a hint, a chunk to be linked or retired, the sums above a refund) is
//! done by others or delays nobody.
//!
//! A period that reaches back to chunks that are retired is never asked about: the key's time has passed them
//! (invariant 6). That is why a stale `now` is raised to the key's time, instead of being judged by its own.
//!
//! Sums may overflow: only differences are used, and those are of one window.
//!
//! # Bound
//!
//! In any interval as long as a period (without one of its ends) exactly the limit at most, by the times at
//! which admissions are counted. That is `now`, or the key's time where that is later.
//!
//! # Cost
//!
//! With n admissions in the window: a walk along the chunks, and a binary search in one of them for the
//! first admission that counts. A chunk has as many slots as admissions counted when it was begun (8 at the
//! least, 16,384 at the most). So there are about log2(n) chunks after a burst, later 3 or 4, and n / 16,384
//! more. A denial searches once more. Memory is 8 bytes for each admission in the window, and never more than
//! three times that, and a few hundred bytes; 16 to 32 bytes for each slot of a chunk in which something was
//! given back. It is allocated as it is used, and an idle log that is charged again begins with a small chunk.
//!
//! A chunk also ends where a slot's time field does: 2^(63 - b) ns after its start, b = bits(limit). That is 104
//! days for a limit of 1,000, 20 hours for 100,000, and 2.4 hours for 1,000,000. A longer period has more
//! chunks, if it has so many admissions: 100,000 a month have 37.
//!
//! # Progress
//!
//! `check`, `refund` and `reset` are lock-free: each time one begins again, another has charged or reset.
//! A check allocates a chunk once in a while, and the allocator is what it is. A denial only loads, and is
//! wait-free but for the walk along chunks that are linked meanwhile; so are `peek` and `is_idle`. They linearize
//! where they see the place of invariant 2, but for refunds: a `peek` that runs while others charge and refund
//! may count a refund and miss a charge before it. A charge can't: its compare-and-swap fails then.
//!
//! Retired chunks are freed when no guard needs them. A thread that stops for good under a guard keeps all
//! chunks that are retired from then on, 8 bytes for each admission.
//!
//! # Orderings
//!
//! | edge | release side | acquire side | what becomes visible | loom test that fails if it is weakened |
//! |---|---|---|---|---|
//! | row | the compare-and-swap of a slot (`chunk`) | each load of a slot | the slots before it, filled by other threads | `an_admission_shows_all_before_it` |
//!
//! *link*, of `sync`, does the rest: who sees a chunk sees what it was made with, and the row before it. Hints
//! and refunds are relaxed: each says why.

mod chunk;
mod refunds;
mod slot;
mod step;

use crate::algorithm::Algorithm;
use crate::decision::{Decision, Figures, NEVER, Outcome, Source};
use crate::error::ConfigError;
use crate::quota::Quota;
use crate::sync::{Guard, Link};
use crate::time::Tick;
use chunk::{Chunk, End, Start, Write};
use slot::{EMPTY, Fields, Mark};
use std::time::Duration;
use step::{Step, reach};

/// At most `limit` tokens in any trailing period: what all logs of one quota have in common.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SlidingLog {
    limit: u64,
    period: u64,
    fields: Fields,
}

impl SlidingLog {
    /// The largest limit. A key that uses it up holds 8 to 24 MB.
    const MOST: u64 = 1_000_000;

    /// The rule for `quota`.
    ///
    /// # Errors
    ///
    /// A [`ConfigError`] for a limit or period of 0, a period above [`Quota::MAX_PERIOD`], a burst, or a
    /// limit above a million.
    pub(crate) fn new(quota: Quota) -> Result<Self, ConfigError> {
        let (limit, period) = quota.rate()?;
        if let Some(burst) = quota.explicit_burst() {
            return Err(ConfigError::BurstOfWindow { algorithm: Algorithm::SlidingLog, burst });
        }
        if limit > Self::MOST {
            return Err(ConfigError::LogTooLarge { limit, most: Self::MOST });
        }
        Ok(Self { limit, period, fields: Fields::of_limit(limit) })
    }

    /// The latest time that is out of the window which ends at `time`.
    #[inline]
    fn out_at(&self, time: u64) -> Option<u64> {
        time.checked_sub(self.period)
    }

    /// Nanoseconds from `now` until an admission is out of the window.
    #[inline]
    fn until_out(&self, admission: u64, now: Tick) -> u64 {
        let out = admission + self.period;
        if out > Tick::MAX.as_nanos() { NEVER } else { out.saturating_sub(now.as_nanos()) }
    }
}

/// The admissions of one key. See the page of this module.
#[derive(Debug)]
pub(crate) struct Log {
    root: Link<Chunk>,
}

/// A part of the log as a check sees it.
#[derive(Clone, Copy)]
struct Part<'g> {
    chunk: &'g Chunk,
    filled: usize,
}

/// What a check sees of a log: the window that ends at the key's time, and where the log goes on.
struct View<'g> {
    /// The key's time: `now`, or the time of the last admission.
    time: u64,
    /// The first chunk of the window, and how many of its admissions are before it.
    first: Part<'g>,
    skipped: usize,
    tail: Part<'g>,
    end: End,
    /// Admissions in the window.
    live: u64,
    /// Their tokens that are not given back.
    held: u64,
    is_refunded: bool,
}

impl<'g> View<'g> {
    /// The log as it is just now; `None` if it was never charged.
    #[inline]
    fn of(log: &Log, rule: &SlidingLog, now: Tick, guard: &'g Guard) -> Option<Self> {
        let root = log.root.load(guard)?;
        let mut out = rule.out_at(now.as_nanos());
        let (mut first, tail) = Self::walk(root, None, out, guard);
        let end = tail.end(rule.fields);
        let time = now.as_nanos().max(end.last.time);
        if time > now.as_nanos() {
            out = rule.out_at(time);
            first = Self::walk(first, Some(tail), out, guard).0;
        }
        let tail = Part { chunk: tail, filled: end.filled };
        let first = Self::part(first, &tail, guard);
        let skipped = out.map_or(0, |out| first.chunk.first_after(rule.fields, first.filled, out));
        let admissions = |part: Part<'_>, at: usize| part.chunk.start.admissions + at as u64;
        let mut view = Self {
            time,
            first,
            skipped,
            tail,
            end,
            live: admissions(tail, tail.filled).saturating_sub(admissions(first, skipped)),
            held: 0,
            is_refunded: false,
        };
        view.add_up(rule, guard);
        Some(view)
    }

    /// The first chunk up to `last` that may have an admission in the window, and `last`: the tail if it is not
    /// given.
    #[inline]
    fn walk(
        from: &'g Chunk,
        last: Option<&'g Chunk>,
        out: Option<u64>,
        guard: &'g Guard,
    ) -> (&'g Chunk, &'g Chunk) {
        let (mut first, mut tail) = (from, from);
        while last.is_none_or(|last| tail.start.number < last.start.number) {
            let Some(next) = tail.next.load(guard) else { break };
            tail = next;
            if next.start.anew || out.is_some_and(|out| next.start.before <= out) {
                first = next;
            }
        }
        (first, tail)
    }

    /// A chunk that is not after the tail, as far as it was filled when the tail was seen.
    #[inline]
    fn part(chunk: &'g Chunk, tail: &Part<'g>, guard: &'g Guard) -> Part<'g> {
        if chunk.start.number == tail.chunk.start.number {
            return *tail;
        }
        let end = chunk.next.load(guard).map_or(0, |next| next.start.admissions - chunk.start.admissions);
        Part { chunk, filled: usize::try_from(end).unwrap_or(usize::MAX) }
    }

    /// The parts of the window, each with the first slot that counts.
    fn parts(&self, guard: &'g Guard) -> impl Iterator<Item = (Part<'g>, usize)> + use<'g> {
        let tail = self.tail;
        let mut part = Some((self.first, self.skipped));
        std::iter::from_fn(move || {
            let this = part?;
            let chunk = this.0.chunk;
            let is_tail = chunk.start.number == tail.chunk.start.number;
            let next = if is_tail { None } else { chunk.next.load(guard) };
            part = next.map(|next| (Self::part(next, &tail, guard), 0));
            Some(this)
        })
    }

    /// Adds up the tokens of the window that are not given back.
    #[inline]
    fn add_up(&mut self, rule: &SlidingLog, guard: &'g Guard) {
        self.is_refunded = self.parts(guard).any(|(part, _)| part.chunk.has_refunds(guard));
        self.held = if self.is_refunded {
            let held =
                |(part, from): (Part<'_>, usize)| part.chunk.held(rule.fields, from, part.filled, guard);
            self.parts(guard).map(held).sum()
        } else {
            let before = self.first.chunk.mark_before(rule.fields, self.skipped);
            self.end.last.tokens.wrapping_sub(before.tokens)
        };
    }

    /// The time of the first admission with which `tokens` of the window have been admitted and not given
    /// back: when it is out, so many are free again. (The last one, if more is given back meanwhile.)
    #[cold]
    fn admission_of(&self, rule: &SlidingLog, tokens: u64, guard: &'g Guard) -> u64 {
        let mut missing = tokens;
        for (part, from) in self.parts(guard) {
            let held = part.chunk.held(rule.fields, from, part.filled, guard);
            if held >= missing {
                let at = part.chunk.first_with(rule.fields, (from, part.filled), missing, guard);
                let at = at.min(part.filled - 1);
                return part.chunk.mark_before(rule.fields, at + 1).time;
            }
            missing -= held;
        }
        self.end.last.time
    }

    /// Nanoseconds until nothing counts any more.
    #[inline]
    fn reset(&self, rule: &SlidingLog, now: Tick, guard: &'g Guard) -> u64 {
        if self.held == 0 {
            return 0;
        }
        let last = match self.is_refunded {
            true => self.admission_of(rule, self.held, guard),
            false => self.end.last.time,
        };
        rule.until_out(last, now)
    }
}

/// What a request asks of a log, and the one place that makes answers.
struct Request {
    now: Tick,
    cost: u64,
    is_peek: bool,
}

impl Request {
    fn answer(&self, rule: &SlidingLog, view: Option<&View<'_>>, guard: &Guard) -> Decision {
        let held = view.map_or(0, |view| view.held);
        let free = rule.limit.saturating_sub(held);
        let reset = || view.map_or(0, |view| view.reset(rule, self.now, guard));
        let (outcome, wait) = if self.cost > rule.limit {
            (Outcome::TooCostly, NEVER)
        } else if self.cost <= free {
            (Outcome::Allowed, 0)
        } else {
            let excess = self.cost - free;
            let last = view.map_or(0, |view| view.admission_of(rule, excess, guard));
            (Outcome::Denied, rule.until_out(last, self.now))
        };
        let cost = if outcome == Outcome::Allowed && self.is_peek { 0 } else { self.cost };
        let charged = if outcome == Outcome::Allowed { cost } else { 0 };
        let reset = match charged {
            0 => reset(),
            _ => rule.until_out(view.map_or(self.now.as_nanos(), |view| view.time), self.now),
        };
        Decision {
            cost,
            limit: rule.limit,
            figures: Figures::Known { remaining: free - charged, wait, reset },
            at: self.now,
            outcome,
            source: Source::Key,
        }
    }
}

impl Log {
    /// A log without admissions. It holds no memory but its own 8 bytes.
    pub(crate) fn new() -> Self {
        Self { root: Link::null() }
    }

    /// Decides a request of `cost` tokens at `now`, and charges it if it is allowed. Lock-free.
    #[inline]
    pub(crate) fn check(&self, rule: &SlidingLog, now: Tick, cost: u64, guard: &Guard) -> Decision {
        let request = Request { now, cost, is_peek: false };
        loop {
            let view = View::of(self, rule, now, guard);
            let decision = request.answer(rule, view.as_ref(), guard);
            if decision.charged() == 0 {
                return decision;
            }
            reach(Step::Decided);
            let time = view.as_ref().map_or(now.as_nanos(), |view| view.time);
            if let Some(first) = self.admit(rule, view.as_ref(), time, cost, guard) {
                self.retire_before(first, guard);
                return decision;
            }
        }
    }

    /// What [`check`](Self::check) would answer, with the figures as they are before a charge. Only loads.
    pub(crate) fn peek(&self, rule: &SlidingLog, now: Tick, cost: u64, guard: &Guard) -> Decision {
        let view = View::of(self, rule, now, guard);
        Request { now, cost, is_peek: true }.answer(rule, view.as_ref(), guard)
    }

    /// Gives back `tokens` of what `charge` took, or what is left of it, until it is out of the window. Among
    /// charges of one time it takes any, for they leave the window together. Lock-free.
    ///
    /// What a charge took is not given back if it stays until after [`Tick::MAX`], nor after a reset. It takes
    /// longer the more charges there are of the same time.
    pub(crate) fn refund(&self, rule: &SlidingLog, charge: &Decision, tokens: u64, guard: &Guard) {
        let mut left = tokens.min(charge.charged());
        if left == 0 || charge.reset_after() == Duration::MAX {
            return;
        }
        // When it was counted: its window ends when it resets.
        let out = (charge.at + charge.reset_after()).as_nanos();
        let (Some(time), Some(root)) = (rule.out_at(out), self.root.load(guard)) else { return };
        // From the last reset on.
        let first = View::walk(root, None, None, guard).0;
        let chunks = std::iter::successors(Some(first), |chunk| chunk.next.load(guard));
        let chunks: Vec<_> = chunks.take_while(|chunk| chunk.start.mark.time <= time).collect();
        // The last first, here and in a chunk: who takes from a charge that came after its own leaves as much
        // where the refund of that one comes by. Forwards, it might be in a charge that this one can't see yet.
        for chunk in chunks.into_iter().rev() {
            left -= chunk.give_back(rule.fields, time, left, guard);
        }
    }

    /// Makes the key as good as new, at the time it has come to. Lock-free.
    pub(crate) fn reset(&self, rule: &SlidingLog, guard: &Guard) {
        while let Some(root) = self.root.load(guard) {
            let (_, tail) = View::walk(root, None, None, guard);
            let end = tail.end(rule.fields);
            if tail.start.anew && end.filled == 0 {
                return;
            }
            if end.open && tail.close(end.filled) == Write::Lost {
                continue;
            }
            let start = Self::start_after(tail, &end, end.last.time, true);
            let (chunk, is_ours) = tail.next.install(Chunk::new(start, 0, EMPTY), guard);
            if is_ours {
                reach(Step::Linked);
                self.retire_before(chunk, guard);
                return;
            }
        }
    }

    /// Does it behave like a new log at `now` and ever after? Only loads.
    pub(crate) fn is_idle(&self, rule: &SlidingLog, now: Tick, guard: &Guard) -> bool {
        match View::of(self, rule, now, guard) {
            // An admission that `now` has not reached yet is not idle, though it was given back.
            Some(view) => view.held == 0 && view.time == now.as_nanos(),
            None => true,
        }
    }

    /// The bytes it points to, without those that are retired.
    pub(crate) fn bytes(&self, guard: &Guard) -> usize {
        let chunks = std::iter::successors(self.root.load(guard), |chunk| chunk.next.load(guard));
        chunks.map(|chunk| chunk.bytes(guard)).sum::<usize>()
    }

    /// Writes an admission at the end of the log as it was seen: the first chunk that counts now. `None` if the
    /// log has gone on since.
    #[inline]
    fn admit<'g>(
        &'g self,
        rule: &SlidingLog,
        view: Option<&View<'g>>,
        time: u64,
        cost: u64,
        guard: &'g Guard,
    ) -> Option<&'g Chunk> {
        let Some(view) = view else {
            let mark = Mark { time, tokens: 0 };
            let start = Start { number: 0, admissions: 0, mark, before: 0, anew: true };
            return Self::link(&self.root, rule, start, 0, cost, guard);
        };
        let (tail, end) = (view.tail.chunk, &view.end);
        if end.open {
            let mark = Mark { time, tokens: end.last.tokens.wrapping_add(cost) };
            // After a burst, when nothing is left of it: don't keep its memory.
            let is_too_large = view.live == 0 && tail.is_larger_than_the_smallest();
            let written = match is_too_large {
                true => Write::DoesNotFit,
                false => tail.append(rule.fields, end.filled, mark),
            };
            match written {
                Write::Done => return Some(view.first.chunk),
                Write::Lost => return None,
                Write::DoesNotFit if tail.close(end.filled) == Write::Lost => return None,
                Write::DoesNotFit => reach(Step::Closed),
            }
        }
        let start = Self::start_after(tail, end, time, false);
        let linked = Self::link(&tail.next, rule, start, view.live, cost, guard)?;
        Some(if view.live == 0 { linked } else { view.first.chunk })
    }

    /// Links a chunk with an admission in it. `None` if another thread was first.
    #[cold]
    fn link<'g>(
        link: &'g Link<Chunk>,
        rule: &SlidingLog,
        start: Start,
        live: u64,
        cost: u64,
        guard: &'g Guard,
    ) -> Option<&'g Chunk> {
        // A cost is at most the limit, so it fits.
        let first = rule.fields.pack(Mark { time: 0, tokens: cost }).unwrap_or(EMPTY);
        let (chunk, is_ours) = link.install(Chunk::new(start, live, first), guard);
        if is_ours {
            reach(Step::Linked);
        }
        is_ours.then_some(chunk)
    }

    /// Where the chunk begins that comes after `tail`.
    fn start_after(tail: &Chunk, end: &End, time: u64, anew: bool) -> Start {
        Start {
            number: tail.start.number + 1,
            admissions: tail.start.admissions + end.filled as u64,
            mark: Mark { time, tokens: end.last.tokens },
            before: end.last.time,
            anew,
        }
    }

    /// Retires the chunks before one in which nothing counts any more.
    #[inline]
    fn retire_before(&self, first: &Chunk, guard: &Guard) {
        while let Some(root) = self.root.load(guard).filter(|root| root.start.number < first.start.number) {
            let Some(next) = root.next.load(guard) else { return };
            if self.root.advance(root, next, guard) {
                reach(Step::Retired);
            }
        }
    }
}

impl Drop for Log {
    fn drop(&mut self) {
        let mut chunk = self.root.take();
        while let Some(mut last) = chunk {
            chunk = last.next.take();
        }
    }
}
