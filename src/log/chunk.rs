//! One part of a log: a row of slots, filled from the first on, and a link to the next part.

use super::refunds::Refunds;
use super::slot::{CLOSED, EMPTY, Fields, Mark, SEALED};
use super::step::{Step, reach};
use crate::reclaim::{Guard, Link, OnceLink, Retire};
use crate::sync::{
    Atomic,
    Ordering::{Acquire, Relaxed, Release},
};
use std::ops::Range;

/// Slots of the smallest chunk.
pub(super) const FEWEST: usize = if cfg!(tollgate_loom) { 4 } else { 8 };

/// Slots of the largest chunk: what one check has to allocate at the most, 128 KB.
pub(super) const MOST: usize = if cfg!(tollgate_loom) { 8 } else { 1 << 14 };

/// How many slots are filled is noted once in so many.
const NOTED: usize = if cfg!(tollgate_loom) { 1 } else { 8 };

/// Where a chunk begins. All of it is known, and final, before the chunk is linked.
#[derive(Clone, Copy, Debug)]
pub(super) struct Start {
    /// Chunks before this one.
    pub(super) number: u64,
    /// Admissions before this chunk.
    pub(super) admissions: u64,
    /// The time, and the tokens admitted before this chunk: slots count from here.
    pub(super) mark: Mark,
    /// The time of the last admission before this chunk.
    pub(super) before: Option<u64>,
    /// Does nothing before this chunk count any more?
    pub(super) anew: bool,
    /// How the slots of this chunk share their bits.
    pub(super) fields: Fields,
}

impl Start {
    /// Of the first chunk of a log.
    pub(super) fn first(time: u64, fields: Fields) -> Self {
        Self { number: 0, admissions: 0, mark: Mark { time, tokens: 0 }, before: None, anew: true, fields }
    }
}

/// What comes behind the filled slots of a chunk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Behind {
    /// An empty slot.
    Empty,
    /// Another chunk, as soon as one is linked: the row is full or closed.
    Chunk,
    /// Nothing ever.
    Sealed,
}

/// Where the filled slots of a chunk end.
#[derive(Clone, Copy, Debug)]
pub(super) struct End {
    pub(super) filled: usize,
    /// The last admission, or the chunk's start.
    pub(super) last: Mark,
    pub(super) behind: Behind,
}

/// How an attempt to write a slot ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Write {
    Done,
    /// Another thread was first.
    Lost,
    /// The admission is too far from the chunk's start.
    DoesNotFit,
}

#[derive(Debug)]
pub(super) struct Chunk {
    pub(super) start: Start,
    /// At least so many slots are filled; a hint.
    noted: Atomic<u64>,
    slots: Box<[Atomic<u64>]>,
    /// Made when something is given back.
    refunds: OnceLink<Refunds>,
    pub(super) next: Link<Chunk>,
}

impl Chunk {
    /// With an empty row of about so many slots, but for the first one.
    pub(super) fn new(start: Start, slots: usize, first: u64) -> Self {
        let mut row = Self::empty_row(slots);
        row[0] = first;
        Self::with_row(start, row, Link::null())
    }

    /// The end of a log.
    pub(super) fn sealed(start: Start) -> Self {
        Self::with_row(start, vec![SEALED], Link::null())
    }

    /// With this row, and what is linked behind it.
    pub(super) fn with_row(start: Start, row: Vec<u64>, next: Link<Self>) -> Self {
        let slots = row.into_iter().map(Atomic::new).collect();
        Self { start, noted: Atomic::new(0), slots, refunds: OnceLink::null(), next }
    }

    /// A row of about so many slots.
    pub(super) fn empty_row(slots: usize) -> Vec<u64> {
        vec![EMPTY; slots.clamp(FEWEST, MOST)]
    }

    /// How many slots the chunk behind this one gets if so many admissions count now: as many, but no more than
    /// twice those of this row, so that few that come far apart and end their rows don't take the room of many.
    pub(super) fn slots_behind(end: &End, live: u64) -> usize {
        usize::try_from(live).unwrap_or(MOST).min(2 * end.filled).clamp(FEWEST, MOST)
    }

    /// How the slots of the chunk behind this one share their bits, if it has so many and begins with `cost`
    /// tokens at `time`. `widest` has room for the limit, and is right where many admissions come in a row.
    /// Behind a row that has ended because of the time, tokens get as many bits as they will need, and the
    /// time gets the others: else each of few admissions that come far apart would take a chunk.
    pub(super) fn fields_behind(
        &self,
        end: &End,
        slots: usize,
        widest: Fields,
        time: u64,
        cost: u64,
    ) -> Fields {
        let own = self.start.fields;
        if own == widest && own.has_time(time - self.start.mark.time) {
            return widest;
        }
        let admitted = end.last.tokens.wrapping_sub(self.start.mark.tokens);
        let each = admitted.div_ceil(end.filled.max(1) as u64).max(cost);
        Fields::of_tokens(2 * slots as u64 * each).min(widest)
    }

    pub(super) fn is_larger_than_the_smallest(&self) -> bool {
        self.slots.len() > FEWEST
    }

    pub(super) fn size(&self) -> usize {
        let refunds = self.refunds.get().map_or(0, Refunds::bytes);
        Link::<Self>::BYTES + size_of_val(&*self.slots) + refunds
    }

    #[inline]
    fn slot(&self, at: usize) -> u64 {
        // ORDERING: acquire side of *row*: the slots before this one.
        self.slots[at].load(Acquire)
    }

    /// The admission in a slot, from the beginning of time and of the log.
    #[inline]
    fn mark(&self, at: usize) -> Option<Mark> {
        let mark = self.start.fields.unpack(self.slot(at))?;
        Some(Mark {
            time: self.start.mark.time + mark.time,
            tokens: self.start.mark.tokens.wrapping_add(mark.tokens),
        })
    }

    /// The time, and the tokens admitted, before a slot all of whose predecessors are filled.
    #[inline]
    pub(super) fn mark_before(&self, at: usize) -> Mark {
        let mark = at.checked_sub(1).and_then(|last| self.mark(last));
        mark.unwrap_or(self.start.mark)
    }

    /// The first slot of a run that lacks a property. Slots that have it come before those that lack it.
    #[inline]
    fn first_without(mut from: usize, mut to: usize, has: impl Fn(usize) -> bool) -> usize {
        while from < to {
            let middle = from + (to - from) / 2;
            if has(middle) { from = middle + 1 } else { to = middle }
        }
        from
    }

    /// Where the filled slots end just now.
    #[inline]
    pub(super) fn end(&self) -> End {
        let is_filled = |at: usize| self.start.fields.unpack(self.slot(at)).is_some();
        // ORDERING: relaxed; a hint.
        let noted = self.noted.load(Relaxed);
        let noted = usize::try_from(noted).unwrap_or(usize::MAX).min(self.slots.len());
        // From the hint in steps that double: it may be old, if who wrote it last was stopped before.
        let mut from = if noted > 0 && is_filled(noted - 1) { noted } else { 0 };
        let mut stride = 1;
        let to = loop {
            let probe = from + stride - 1;
            if probe >= self.slots.len() {
                break self.slots.len();
            }
            if !is_filled(probe) {
                break probe;
            }
            from = probe + 1;
            stride *= 2;
        };
        let mut filled = Self::first_without(from, to, is_filled);
        let mut behind = Behind::Chunk;
        while let Some(slot) = (filled < self.slots.len()).then(|| self.slot(filled)) {
            if self.start.fields.unpack(slot).is_none() {
                behind = match slot {
                    EMPTY => Behind::Empty,
                    SEALED => Behind::Sealed,
                    _ => Behind::Chunk,
                };
                break;
            }
            // Filled since.
            filled += 1;
        }
        End { filled, last: self.mark_before(filled), behind }
    }

    /// The time of the last admission up to `end`: that of the end may be later.
    #[inline]
    pub(super) fn last_admission(&self, end: &End) -> Option<u64> {
        if end.filled > 0 { Some(end.last.time) } else { self.start.before }
    }

    /// The first of the `filled` slots that is later than `time`.
    #[inline]
    pub(super) fn first_after(&self, filled: usize, time: u64) -> usize {
        if time < self.start.mark.time {
            return 0;
        }
        // A slot that can't be seen yet is not old.
        Self::first_without(0, filled, |at| self.mark(at).is_some_and(|mark| mark.time <= time))
    }

    /// The first of the slots in which `tokens` and more are admitted from slot `from` on and not given back.
    pub(super) fn first_with(&self, (from, filled): (usize, usize), tokens: u64) -> usize {
        Self::first_without(from, filled, |at| self.held(from..at + 1) < tokens)
    }

    /// The tokens admitted in a run of slots.
    #[inline]
    fn admitted(&self, slots: Range<usize>) -> u64 {
        self.mark_before(slots.end).tokens.wrapping_sub(self.mark_before(slots.start).tokens)
    }

    /// The tokens admitted in a run of slots and not given back.
    #[inline]
    pub(super) fn held(&self, slots: Range<usize>) -> u64 {
        let admitted = self.admitted(slots.clone());
        let refunds = self.refunds.get().map_or(0, |refunds| refunds.sum(slots));
        admitted.saturating_sub(refunds)
    }

    /// Was anything given back?
    pub(super) fn has_refunds(&self) -> bool {
        self.refunds.get().is_some()
    }

    /// Gives back up to `tokens` of the admissions at `time`, of the last first. How many; `None` if all that
    /// are here were before.
    pub(super) fn give_back(&self, time: u64, tokens: u64) -> Option<u64> {
        let End { filled, last, .. } = self.end();
        if filled > 0 && last.time < time {
            return None;
        }
        let first = time.checked_sub(1).map_or(0, |before| self.first_after(filled, before));
        let mut end = self.first_after(filled, time);
        if first == end {
            return Some(0);
        }
        let refunds = self.refunds.get_or(|| Refunds::of(self.slots.len()));
        let mut given = 0;
        while given < tokens {
            end = refunds.end_of_the_unspent(first..end, |slots| self.admitted(slots));
            let Some(last) = end.checked_sub(1).filter(|last| *last >= first) else { break };
            given += refunds.add(last, self.admitted(last..end), tokens - given);
            end = last;
        }
        Some(given)
    }

    /// Writes an admission behind the `filled` slots.
    pub(super) fn append(&self, filled: usize, mark: Mark) -> Write {
        let from_start = Mark {
            time: mark.time - self.start.mark.time,
            tokens: mark.tokens.wrapping_sub(self.start.mark.tokens),
        };
        let Some(slot) = self.start.fields.pack(from_start) else { return Write::DoesNotFit };
        let written = self.write(filled, slot);
        if written == Write::Done {
            reach(Step::Appended);
            if (filled + 1).is_multiple_of(NOTED) {
                // ORDERING: relaxed; a hint.
                self.noted.store(filled as u64 + 1, Relaxed);
            }
        }
        written
    }

    /// Closes the chunk behind the `filled` slots.
    pub(super) fn close(&self, filled: usize) -> Write {
        self.write(filled, CLOSED)
    }

    /// Ends the log behind the `filled` slots.
    pub(super) fn seal(&self, filled: usize) -> Write {
        self.write(filled, SEALED)
    }

    fn write(&self, at: usize, slot: u64) -> Write {
        // ORDERING: release side of *row*: the slots before this one, which this thread saw filled.
        match self.slots[at].compare_exchange(EMPTY, slot, Release, Relaxed) {
            Ok(_) => Write::Done,
            Err(_) => Write::Lost,
        }
    }
}

impl Retire for Chunk {
    fn bytes(&self, _guard: &Guard) -> usize {
        self.size()
    }
}
