//! One part of a log: a row of slots, filled from the first on, and a link to the next part.

use super::refunds::Refunds;
use super::slot::{CLOSED, EMPTY, Fields, Mark};
use super::step::{Step, reach};
use crate::sync::{
    Atomic, Guard, Link,
    Ordering::{Acquire, Relaxed, Release},
};

/// Slots of the smallest chunk.
pub(super) const FEWEST: u64 = if cfg!(tollgate_loom) { 4 } else { 8 };

/// Slots of the largest chunk: what one check has to allocate at the most, 128 KB.
const MOST: u64 = if cfg!(tollgate_loom) { 8 } else { 1 << 14 };

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
    pub(super) before: u64,
    /// Does nothing before this chunk count any more?
    pub(super) anew: bool,
}

/// Where the filled slots of a chunk end.
#[derive(Clone, Copy, Debug)]
pub(super) struct End {
    pub(super) filled: usize,
    /// The last admission, or the chunk's start.
    pub(super) last: Mark,
    /// Is there an empty slot behind it?
    pub(super) open: bool,
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
    refunds: Link<Refunds>,
    pub(super) next: Link<Chunk>,
}

impl Chunk {
    /// For one after a chunk and its admissions, of which `live` count. `first` is what the first slot holds.
    pub(super) fn new(start: Start, live: u64, first: u64) -> Self {
        // At most `MOST`.
        #[allow(clippy::cast_possible_truncation)]
        let slots = live.clamp(FEWEST, MOST) as usize;
        Self {
            start,
            noted: Atomic::new(0),
            slots: (0..slots).map(|slot| Atomic::new(if slot == 0 { first } else { EMPTY })).collect(),
            refunds: Link::null(),
            next: Link::null(),
        }
    }

    pub(super) fn is_larger_than_the_smallest(&self) -> bool {
        self.slots.len() as u64 > FEWEST
    }

    pub(super) fn bytes(&self, guard: &Guard) -> usize {
        let refunds = self.refunds.load(guard).map_or(0, Refunds::bytes);
        size_of::<Self>() + size_of_val(&*self.slots) + refunds
    }

    #[inline]
    fn slot(&self, at: usize) -> u64 {
        // ORDERING: acquire side of *row*: the slots before this one.
        self.slots[at].load(Acquire)
    }

    /// The admission in a slot, from the beginning of time and of the log.
    #[inline]
    fn mark(&self, fields: Fields, at: usize) -> Option<Mark> {
        let mark = fields.unpack(self.slot(at))?;
        Some(Mark {
            time: self.start.mark.time + mark.time,
            tokens: self.start.mark.tokens.wrapping_add(mark.tokens),
        })
    }

    /// The time, and the tokens admitted, before a slot all of whose predecessors are filled.
    #[inline]
    pub(super) fn mark_before(&self, fields: Fields, at: usize) -> Mark {
        let mark = at.checked_sub(1).and_then(|last| self.mark(fields, last));
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
    pub(super) fn end(&self, fields: Fields) -> End {
        let is_filled = |at: usize| fields.unpack(self.slot(at)).is_some();
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
        let mut open = false;
        while let Some(slot) = (filled < self.slots.len()).then(|| self.slot(filled)) {
            if fields.unpack(slot).is_none() {
                open = slot == EMPTY;
                break;
            }
            // Filled since.
            filled += 1;
        }
        End { filled, last: self.mark_before(fields, filled), open }
    }

    /// The first of the `filled` slots that is later than `time`.
    #[inline]
    pub(super) fn first_after(&self, fields: Fields, filled: usize, time: u64) -> usize {
        if time < self.start.mark.time {
            return 0;
        }
        // A slot that can't be seen yet is not old.
        Self::first_without(0, filled, |at| self.mark(fields, at).is_some_and(|mark| mark.time <= time))
    }

    /// The first of the slots in which `tokens` and more are admitted from slot `from` on and not given back.
    pub(super) fn first_with(
        &self,
        fields: Fields,
        (from, filled): (usize, usize),
        tokens: u64,
        guard: &Guard,
    ) -> usize {
        Self::first_without(from, filled, |at| self.held(fields, from, at + 1, guard) < tokens)
    }

    /// The tokens admitted in a run of slots and not given back.
    #[inline]
    pub(super) fn held(&self, fields: Fields, from: usize, to: usize, guard: &Guard) -> u64 {
        let tokens = |at| self.mark_before(fields, at).tokens;
        let refunds = self.refunds.load(guard).map_or(0, |refunds| refunds.sum(from..to));
        tokens(to).wrapping_sub(tokens(from)).saturating_sub(refunds)
    }

    /// Was anything given back?
    pub(super) fn has_refunds(&self, guard: &Guard) -> bool {
        self.refunds.load(guard).is_some()
    }

    /// Gives back up to `tokens` of the admissions at `time`, of the last first. How many.
    pub(super) fn give_back(&self, fields: Fields, time: u64, tokens: u64, guard: &Guard) -> u64 {
        let end = self.first_after(fields, self.end(fields).filled, time);
        let mut given = 0;
        for at in (0..end).rev() {
            let mark = self.mark_before(fields, at + 1);
            if mark.time != time || given == tokens {
                break;
            }
            let refunds = match self.refunds.load(guard) {
                Some(refunds) => refunds,
                None => self.refunds.install(Refunds::of(self.slots.len()), guard).0,
            };
            let admitted = mark.tokens.wrapping_sub(self.mark_before(fields, at).tokens);
            given += refunds.add(at, admitted, tokens - given);
        }
        given
    }

    /// Writes an admission behind the `filled` slots.
    pub(super) fn append(&self, fields: Fields, filled: usize, mark: Mark) -> Write {
        let from_start = Mark {
            time: mark.time - self.start.mark.time,
            tokens: mark.tokens.wrapping_sub(self.start.mark.tokens),
        };
        let Some(slot) = fields.pack(from_start) else { return Write::DoesNotFit };
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

    fn write(&self, at: usize, slot: u64) -> Write {
        // ORDERING: release side of *row*: the slots before this one, which this thread saw filled.
        match self.slots[at].compare_exchange(EMPTY, slot, Release, Relaxed) {
            Ok(_) => Write::Done,
            Err(_) => Write::Lost,
        }
    }
}

impl Drop for Chunk {
    fn drop(&mut self) {
        drop(self.refunds.take());
    }
}
