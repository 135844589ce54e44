//! A log as one look at it shows it: the window that ends at the key's time, and where the log goes on.

use super::chunk::{Behind, Chunk, End};
use super::window::SlidingLog;
use crate::sync::{Guard, Link};
use crate::time::Tick;

/// A part of the log as a check sees it.
#[derive(Clone, Copy)]
pub(super) struct Part<'g> {
    pub(super) chunk: &'g Chunk,
    pub(super) filled: usize,
}

/// What a check sees of a log.
pub(super) struct View<'g> {
    /// The key's time: `now`, or that of the end of the log if it is later.
    pub(super) time: u64,
    /// The first chunk of the window, and how many of its admissions are before it.
    pub(super) first: Part<'g>,
    pub(super) skipped: usize,
    pub(super) tail: Part<'g>,
    pub(super) end: End,
    /// Admissions in the window.
    pub(super) live: u64,
    /// Their tokens that are not given back.
    pub(super) held: u64,
    is_refunded: bool,
}

impl<'g> View<'g> {
    /// The log that begins at `root` as it is just now; `None` if nobody has begun it.
    #[inline]
    pub(super) fn of(root: &Link<Chunk>, rule: &SlidingLog, now: Tick, guard: &'g Guard) -> Option<Self> {
        let root = root.load(guard)?;
        let mut out = rule.out_at(now.as_nanos());
        let (mut first, tail) = Self::walk(root, None, out, guard);
        let end = tail.end();
        let time = now.as_nanos().max(end.last.time);
        if time > now.as_nanos() {
            out = rule.out_at(time);
            first = Self::walk(first, Some(tail), out, guard).0;
        }
        let tail = Part { chunk: tail, filled: end.filled };
        let first = Self::part(first, &tail, guard);
        let skipped = out.map_or(0, |out| first.chunk.first_after(first.filled, out));
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
        view.add_up(guard);
        Some(view)
    }

    /// The first chunk up to `last` that may have an admission in the window, and `last`: the tail if it is not
    /// given.
    #[inline]
    pub(super) fn walk(
        from: &'g Chunk,
        last: Option<&'g Chunk>,
        out: Option<u64>,
        guard: &'g Guard,
    ) -> (&'g Chunk, &'g Chunk) {
        let (mut first, mut tail) = (from, from);
        while last.is_none_or(|last| tail.start.number < last.start.number) {
            let Some(next) = tail.next.load(guard) else { break };
            tail = next;
            if next.start.anew || out.is_some_and(|out| next.start.before <= Some(out)) {
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
    pub(super) fn parts(&self, guard: &'g Guard) -> impl Iterator<Item = (Part<'g>, usize)> + use<'g> {
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
    fn add_up(&mut self, guard: &'g Guard) {
        self.is_refunded = self.parts(guard).any(|(part, _)| part.chunk.has_refunds(guard));
        self.held = if self.is_refunded {
            let held = |(part, from): (Part<'_>, usize)| part.chunk.held(from..part.filled, guard);
            self.parts(guard).map(held).sum()
        } else {
            let before = self.first.chunk.mark_before(self.skipped);
            self.end.last.tokens.wrapping_sub(before.tokens)
        };
    }

    /// Does the log go on elsewhere?
    #[inline]
    pub(super) fn is_sealed(&self) -> bool {
        self.end.behind == Behind::Sealed
    }

    /// Has it ended before anybody had begun it?
    pub(super) fn is_of_nothing(&self) -> bool {
        self.tail.chunk.start.number == 0 && self.end.filled == 0 && self.end.last.time == 0
    }

    /// Does it decide like a new log at `now` and ever after?
    pub(super) fn is_idle(&self, now: Tick) -> bool {
        // An admission that `now` has not reached yet is not idle, though it was given back.
        self.held == 0 && self.time == now.as_nanos()
    }

    /// The time of the last admission before the window, as far as it is known and since the last reset.
    pub(super) fn last_out(&self) -> Option<u64> {
        let start = &self.first.chunk.start;
        match self.skipped {
            0 if start.anew => None,
            0 => start.before,
            skipped => Some(self.first.chunk.mark_before(skipped).time),
        }
    }

    /// The time of the first admission with which `tokens` of the window have been admitted and not given
    /// back: when it is out, so many are free again. (The last one, if more is given back meanwhile.)
    #[cold]
    pub(super) fn admission_of(&self, tokens: u64, guard: &'g Guard) -> u64 {
        let mut missing = tokens;
        for (part, from) in self.parts(guard) {
            let held = part.chunk.held(from..part.filled, guard);
            if held >= missing {
                let at = part.chunk.first_with((from, part.filled), missing, guard);
                let at = at.min(part.filled - 1);
                return part.chunk.mark_before(at + 1).time;
            }
            missing -= held;
        }
        self.last_admission()
    }

    fn last_admission(&self) -> u64 {
        self.tail.chunk.last_admission(&self.end).unwrap_or(self.end.last.time)
    }

    /// Nanoseconds until nothing counts any more.
    #[inline]
    pub(super) fn reset(&self, rule: &SlidingLog, now: Tick, guard: &'g Guard) -> u64 {
        if self.held == 0 {
            return 0;
        }
        let last = match self.is_refunded {
            true => self.admission_of(self.held, guard),
            false => self.last_admission(),
        };
        rule.until_out(last, now)
    }
}
