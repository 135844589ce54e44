//! A view of a log: the window that ends at the key's time, and the place where the log can grow.

use super::chunk::{Behind, Chunk, ChunkEnd};
use super::step::{LogStep, reach};
use super::window::SlidingLog;
use crate::reclaim::{Guard, Retry, Root, Walked};
use crate::time::Tick;

/// A chunk, with the number of filled slots that a check has observed.
#[derive(Clone, Copy)]
pub(super) struct Part<'g> {
    pub(super) chunk: &'g Chunk,
    pub(super) filled: usize,
}

/// The state of a log as observed by a check.
pub(super) struct LogView<'g> {
    /// The key's time: the latest of `now`, the time of the log's end, and the time of the rule's
    /// past.
    pub(super) time: u64,
    /// The chunks of the window, up to the tail. The first `skipped` admissions of the first chunk
    /// are before the window.
    pub(super) chunks: Walked<'g, Chunk>,
    skipped: usize,
    pub(super) end: ChunkEnd,
    /// The number of admissions in the window.
    pub(super) live: u64,
    /// The tokens in the window, excluding those given back.
    pub(super) held: u64,
    is_refunded: bool,
}

impl<'g> LogView<'g> {
    /// Creates a view of the log that starts at `root`. Returns `None` if the log has not begun.
    #[inline]
    pub(super) fn of(
        root: &'g Root<Chunk>,
        rule: &SlidingLog,
        now: Tick,
        guard: &'g Guard,
    ) -> Result<Option<Self>, Retry> {
        let mut out = rule.out_at(now.as_nanos());
        let Some(mut chunks) = Self::walk(root, out, guard)? else { return Ok(None) };
        let end = chunks.last().end();
        let time = now.as_nanos().max(end.last.time).max(rule.past.until);
        if time > now.as_nanos() {
            out = rule.out_at(time);
            chunks = Self::window(chunks, out);
        }
        let mut view = Self { time, chunks, skipped: 0, end, live: 0, held: 0, is_refunded: false };
        let first = Self::part(chunks.first(), chunks.behind_first(), view.end.filled);
        view.skipped = out.map_or(0, |out| first.chunk.first_after(first.filled, out));
        let admissions = |chunk: &Chunk, at: usize| chunk.start.admissions + at as u64;
        let before = admissions(first.chunk, view.skipped);
        view.live = admissions(chunks.last(), view.end.filled).saturating_sub(before);
        view.add_up();
        Ok(Some(view))
    }

    /// Returns the chunks up to the tail, starting with the first chunk that may contain an
    /// admission in the window. Returns `None` if the log has not begun.
    #[inline]
    pub(super) fn walk(
        root: &'g Root<Chunk>,
        out: Option<u64>,
        guard: &'g Guard,
    ) -> Result<Option<Walked<'g, Chunk>>, Retry> {
        let Some(root) = root.load(guard)? else { return Ok(None) };
        let mut chunks = Walked::from(root);
        while let Some(next) = chunks.go_on()? {
            reach(LogStep::Followed);
            if Self::begins_at(next, out) {
                chunks.begin_at_last();
            }
        }
        Ok(Some(chunks))
    }

    /// Returns the last chunk, or `None` if the log has not begun.
    pub(super) fn tail(root: &'g Root<Chunk>, guard: &'g Guard) -> Result<Option<&'g Chunk>, Retry> {
        Ok(Self::walk(root, None, guard)?.map(Walked::last))
    }

    /// Returns the chunks that may contain an admission in the window.
    fn window(mut chunks: Walked<'g, Chunk>, out: Option<u64>) -> Walked<'g, Chunk> {
        let mut rest = chunks;
        while let Some(behind) = rest.behind_first() {
            rest = behind;
            if Self::begins_at(rest.first(), out) {
                chunks = rest;
            }
        }
        chunks
    }

    /// Returns true if no admission before this chunk counts.
    #[inline]
    fn begins_at(chunk: &Chunk, out: Option<u64>) -> bool {
        chunk.start.anew || out.is_some_and(|out| chunk.start.before <= Some(out))
    }

    /// Returns a chunk with the number of its slots that were filled when the tail was observed.
    /// `of_tail` is the number of slots that were filled in the tail at that moment.
    #[inline]
    fn part(chunk: &'g Chunk, behind: Option<Walked<'g, Chunk>>, of_tail: usize) -> Part<'g> {
        let filled = behind.map_or(of_tail, |behind| {
            let filled = behind.first().start.admissions - chunk.start.admissions;
            usize::try_from(filled).unwrap_or(usize::MAX)
        });
        Part { chunk, filled }
    }

    /// Iterates over the parts of the window, each with its first slot that counts.
    pub(super) fn parts(&self) -> impl Iterator<Item = (Part<'g>, usize)> + use<'g> {
        let of_tail = self.end.filled;
        let mut rest = Some((self.chunks, self.skipped));
        std::iter::from_fn(move || {
            let (chunks, from) = rest?;
            let behind = chunks.behind_first();
            rest = behind.map(|behind| (behind, 0));
            Some((Self::part(chunks.first(), behind, of_tail), from))
        })
    }

    /// Adds up the tokens in the window, excluding those given back.
    #[inline]
    fn add_up(&mut self) {
        self.is_refunded = self.parts().any(|(part, _)| part.chunk.has_refunds());
        self.held = if self.is_refunded {
            let held = |(part, from): (Part<'_>, usize)| part.chunk.held(from..part.filled);
            self.parts().map(held).sum()
        } else {
            let before = self.chunks.first().mark_before(self.skipped);
            self.end.last.tokens.wrapping_sub(before.tokens)
        };
    }

    /// Returns true if the log is sealed, which means that it has ended.
    #[inline]
    pub(super) fn is_sealed(&self) -> bool {
        self.end.behind == Behind::Sealed
    }

    /// Returns true if the log gives the same decisions as a new log at `now` and later.
    pub(super) fn is_idle(&self, now: Tick) -> bool {
        // If an admission is later than `now`, the log is not idle, even if the admission was given
        // back.
        self.held == 0 && self.time == now.as_nanos()
    }

    /// Returns the time of the last admission between the last reset and the start of the window,
    /// if it is known.
    pub(super) fn last_out(&self) -> Option<u64> {
        let first = self.chunks.first();
        if self.skipped == 0 { first.start.before } else { Some(first.mark_before(self.skipped).time) }
    }

    /// Adds up the tokens of the admissions in the window, from the oldest one on, without the
    /// tokens given back. Returns the time of the admission at which the sum reaches `tokens`. When
    /// this admission leaves the window, at least `tokens` tokens are free. (If more tokens are
    /// given back in the meantime, the result is the time of the last admission.)
    #[cold]
    pub(super) fn admission_of(&self, tokens: u64) -> u64 {
        let mut missing = tokens;
        for (part, from) in self.parts() {
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
        self.chunks.last().last_admission(&self.end).unwrap_or(self.end.last.time)
    }

    /// Returns the nanoseconds until no admission counts any more.
    #[inline]
    pub(super) fn reset(&self, rule: &SlidingLog, now: Tick) -> u64 {
        if self.held == 0 {
            return 0;
        }
        let last = match self.is_refunded {
            true => self.admission_of(self.held),
            false => self.last_admission(),
        };
        rule.until_out(last, now)
    }
}
