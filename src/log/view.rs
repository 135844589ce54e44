//! A view of a log: the window that ends at the key's time, and the place where the log can grow.

use super::chunk::{Behind, Chunk, End};
use super::step::{Step, reach};
use super::window::SlidingLog;
use crate::reclaim::{Guard, Root, Stale};
use crate::time::Tick;

/// A chunk with as many filled slots as a check has seen.
#[derive(Clone, Copy)]
pub(super) struct Part<'g> {
    pub(super) chunk: &'g Chunk,
    pub(super) filled: usize,
}

/// The state of a log as a check sees it.
pub(super) struct View<'g> {
    /// The key's time: `now`, or the time of the log's end if that is later.
    pub(super) time: u64,
    /// The first chunk of the window. `skipped` is the number of its admissions before the window.
    pub(super) first: Part<'g>,
    pub(super) skipped: usize,
    pub(super) tail: Part<'g>,
    pub(super) end: End,
    /// The number of admissions in the window.
    pub(super) live: u64,
    /// The tokens in the window that are not given back.
    pub(super) held: u64,
    is_refunded: bool,
}

impl<'g> View<'g> {
    /// Takes a view of the log that begins at `root`; `None` if the log has not begun.
    #[inline]
    pub(super) fn of(
        root: &'g Root<Chunk>,
        rule: &SlidingLog,
        now: Tick,
        guard: &'g Guard,
    ) -> Result<Option<Self>, Stale> {
        let mut out = rule.out_at(now.as_nanos());
        let Some((mut first, tail)) = Self::walk(root, out, guard)? else { return Ok(None) };
        let end = tail.end();
        let time = now.as_nanos().max(end.last.time);
        if time > now.as_nanos() {
            out = rule.out_at(time);
            first = Self::first_in(first, tail, out, guard);
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
        Ok(Some(view))
    }

    /// Returns the first chunk that may have an admission in the window, and the tail; `None` if
    /// the log has not begun.
    #[inline]
    pub(super) fn walk(
        root: &'g Root<Chunk>,
        out: Option<u64>,
        guard: &'g Guard,
    ) -> Result<Option<(&'g Chunk, &'g Chunk)>, Stale> {
        let Some(mut tail) = root.load(guard)? else { return Ok(None) };
        let mut first = tail;
        while let Some(next) = tail.next()? {
            tail = next;
            reach(Step::Followed);
            if Self::begins_at(&next, out) {
                first = next;
            }
        }
        Ok(Some((first.get(), tail.get())))
    }

    /// Returns the last chunk; `None` if the log has not begun.
    pub(super) fn tail(root: &'g Root<Chunk>, guard: &'g Guard) -> Result<Option<&'g Chunk>, Stale> {
        Ok(Self::walk(root, None, guard)?.map(|(_, tail)| tail))
    }

    /// Returns the first chunk from `first` to `tail` that may have an admission in the window.
    /// Both must have been seen in one walk.
    fn first_in(mut first: &'g Chunk, tail: &'g Chunk, out: Option<u64>, guard: &'g Guard) -> &'g Chunk {
        let mut at = first;
        while let Some(next) = Self::next_before(at, tail, guard) {
            at = next;
            if Self::begins_at(next, out) {
                first = next;
            }
        }
        first
    }

    /// Returns whether no admission before this chunk counts.
    #[inline]
    fn begins_at(chunk: &Chunk, out: Option<u64>) -> bool {
        chunk.start.anew || out.is_some_and(|out| chunk.start.before <= Some(out))
    }

    /// Returns the chunk behind this one, if it is not the tail. Both must have been seen in one
    /// walk.
    #[inline]
    pub(super) fn next_before(chunk: &'g Chunk, tail: &'g Chunk, guard: &'g Guard) -> Option<&'g Chunk> {
        let is_before = chunk.start.number < tail.start.number;
        // SAFETY: the walk has come from `chunk` to `tail`, so it has followed this link under this
        // guard.
        #[allow(unsafe_code)]
        is_before.then(|| unsafe { chunk.next.follow_again(guard) })
    }

    /// Returns a chunk up to the tail, as far as it was filled when the tail was seen.
    #[inline]
    fn part(chunk: &'g Chunk, tail: &Part<'g>, guard: &'g Guard) -> Part<'g> {
        match Self::next_before(chunk, tail.chunk, guard) {
            None => *tail,
            Some(next) => {
                let end = next.start.admissions - chunk.start.admissions;
                Part { chunk, filled: usize::try_from(end).unwrap_or(usize::MAX) }
            }
        }
    }

    /// Iterates over the parts of the window, each with the first slot that counts.
    pub(super) fn parts(&self, guard: &'g Guard) -> impl Iterator<Item = (Part<'g>, usize)> + use<'g> {
        let tail = self.tail;
        let mut part = Some((self.first, self.skipped));
        std::iter::from_fn(move || {
            let this = part?;
            let next = Self::next_before(this.0.chunk, tail.chunk, guard);
            part = next.map(|next| (Self::part(next, &tail, guard), 0));
            Some(this)
        })
    }

    /// Adds up the tokens of the window that are not given back.
    #[inline]
    fn add_up(&mut self, guard: &'g Guard) {
        self.is_refunded = self.parts(guard).any(|(part, _)| part.chunk.has_refunds());
        self.held = if self.is_refunded {
            let held = |(part, from): (Part<'_>, usize)| part.chunk.held(from..part.filled);
            self.parts(guard).map(held).sum()
        } else {
            let before = self.first.chunk.mark_before(self.skipped);
            self.end.last.tokens.wrapping_sub(before.tokens)
        };
    }

    /// Returns whether the log is sealed: it has ended, or continues elsewhere.
    #[inline]
    pub(super) fn is_sealed(&self) -> bool {
        self.end.behind == Behind::Sealed
    }

    /// Returns whether the log was sealed before it had begun.
    pub(super) fn is_of_nothing(&self) -> bool {
        self.tail.chunk.start.number == 0 && self.end.filled == 0 && self.end.last.time == 0
    }

    /// Returns whether the log decides like a new one at `now` and ever after.
    pub(super) fn is_idle(&self, now: Tick) -> bool {
        // An admission later than `now` keeps the log from being idle, even if it was given back.
        self.held == 0 && self.time == now.as_nanos()
    }

    /// Returns the time of the last admission before the window and since the last reset, if it is
    /// known.
    pub(super) fn last_out(&self) -> Option<u64> {
        let start = &self.first.chunk.start;
        match self.skipped {
            0 if start.anew => None,
            0 => start.before,
            skipped => Some(self.first.chunk.mark_before(skipped).time),
        }
    }

    /// Returns the time of the first admission with which `tokens` of the window have been admitted
    /// and not given back: when it is out, that many are free again. (If more is given back
    /// meanwhile, the time of the last admission.)
    #[cold]
    pub(super) fn admission_of(&self, tokens: u64, guard: &'g Guard) -> u64 {
        let mut missing = tokens;
        for (part, from) in self.parts(guard) {
            let held = part.chunk.held(from..part.filled);
            if held >= missing {
                let at = part.chunk.first_with((from, part.filled), missing);
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

    /// Returns the nanoseconds until no admission counts any more.
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
