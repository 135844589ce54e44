//! A part of a log: a row of slots that are filled in order, and a link to the next part.

use super::refunds::Refunds;
use super::slot::{CHANGE, CLOSED, EMPTY, LogMark, SEALED, SlotFields};
use super::step::{LogStep, reach};
use crate::reclaim::{Chained, Link, OnceLink, Retire};
use crate::sync::{
    Atomic,
    Ordering::{Acquire, Relaxed, Release},
};
use std::ops::Range;

/// The number of slots in the smallest chunk.
pub(super) const FEWEST: usize = if cfg!(tollgate_loom) { 4 } else { 8 };

/// The number of slots in the largest chunk. They occupy 128 KB. No single check has to allocate
/// more.
pub(super) const MOST: usize = if cfg!(tollgate_loom) { 8 } else { 1 << 14 };

/// How many slots are filled between two updates of the hint about their number.
const NOTED: usize = if cfg!(tollgate_loom) { 1 } else { 8 };

/// The state of a log at the start of a chunk. This state is final before the chunk is linked.
#[derive(Clone, Copy, Debug)]
pub(super) struct Start {
    /// The number of chunks before this one.
    pub(super) number: u64,
    /// The number of admissions before this chunk.
    pub(super) admissions: u64,
    /// The time at the start, and the tokens admitted before this chunk. Slots count from this
    /// mark.
    pub(super) mark: LogMark,
    /// The time of the last admission before this chunk, or `None` if a reset has wiped that
    /// admission.
    pub(super) before: Option<u64>,
    /// True if no admission before this chunk counts any more.
    pub(super) anew: bool,
    /// How the bits of a slot in this chunk are divided.
    pub(super) fields: SlotFields,
}

impl Start {
    /// Creates the start of a log's first chunk.
    pub(super) fn first(time: u64, fields: SlotFields) -> Self {
        Self { number: 0, admissions: 0, mark: LogMark { time, tokens: 0 }, before: None, anew: true, fields }
    }
}

/// The successor of a chunk's filled slots.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Behind {
    /// An empty slot.
    Empty,
    /// Another chunk, because the row is full or closed. This chunk may not be linked yet.
    Chunk,
    /// Nothing, because the log has ended. This is final.
    Sealed,
}

/// Where the filled slots of a chunk end.
#[derive(Clone, Copy, Debug)]
pub(super) struct ChunkEnd {
    pub(super) filled: usize,
    /// The last admission or, if there is none, the chunk's start.
    pub(super) last: LogMark,
    pub(super) behind: Behind,
    /// The value of the slot after the filled slots, or `EMPTY` if there is no such slot.
    slot: u64,
}

/// The outcome of an attempt to write a slot.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Write {
    Done,
    /// Another thread wrote the slot first.
    Lost,
    /// The admission does not fit into a slot, because it is too far from the chunk's start.
    DoesNotFit,
}

#[derive(Debug)]
pub(super) struct Chunk {
    pub(super) start: Start,
    /// A lower bound for the number of filled slots, used as a hint.
    noted: Atomic<u64>,
    slots: Box<[Atomic<u64>]>,
    /// Allocated at the first refund.
    refunds: OnceLink<Refunds>,
    pub(super) next: Link<Chunk>,
}

impl Chunk {
    /// The size in bytes of the smallest chunk, without refunds.
    pub(super) const SMALLEST_BYTES: usize = Link::<Self>::BYTES + FEWEST * size_of::<Atomic<u64>>();

    /// Creates a chunk with a row of about `slots` slots. The first slot contains `first`, and all
    /// others are empty.
    pub(super) fn new(start: Start, slots: usize, first: u64) -> Self {
        let mut row = Self::empty_row(slots);
        row[0] = first;
        Self::with_row(start, row, Link::null())
    }

    /// Creates a chunk that ends a log.
    pub(super) fn sealed(start: Start) -> Self {
        Self::with_row(start, vec![SEALED], Link::null())
    }

    /// Creates a chunk with this row, and with `next` linked behind it.
    pub(super) fn with_row(start: Start, row: Vec<u64>, next: Link<Self>) -> Self {
        let slots = row.into_iter().map(Atomic::new).collect();
        Self { start, noted: Atomic::new(0), slots, refunds: OnceLink::null(), next }
    }

    /// Creates an empty row of about `slots` slots.
    pub(super) fn empty_row(slots: usize) -> Vec<u64> {
        vec![EMPTY; slots.clamp(FEWEST, MOST)]
    }

    /// Returns the number of slots for the next chunk when `live` admissions count. The number is
    /// `live`, but at most twice the number of slots used in this row. This upper bound keeps rows
    /// small if admissions are sparse and end their rows early.
    pub(super) fn slots_behind(end: &ChunkEnd, live: u64) -> usize {
        usize::try_from(live).unwrap_or(MOST).min(2 * end.filled).clamp(FEWEST, MOST)
    }

    /// Returns the fields for the next chunk, which has `slots` slots and starts with `cost` tokens
    /// at `time`.
    ///
    /// `widest` has enough token bits for the limit, and suits many admissions in quick succession.
    /// If this row has ended because a time did not fit, the tokens receive only as many bits as
    /// they will need, and the time receives the other bits. With the widest fields, each sparse
    /// admission would occupy a whole chunk.
    pub(super) fn fields_behind(
        &self,
        end: &ChunkEnd,
        slots: usize,
        widest: SlotFields,
        time: u64,
        cost: u64,
    ) -> SlotFields {
        let own = self.start.fields;
        if own == widest && own.has_time(time - self.start.mark.time) {
            return widest;
        }
        let admitted = end.last.tokens.wrapping_sub(self.start.mark.tokens);
        let each = admitted.div_ceil(end.filled.max(1) as u64).max(cost);
        SlotFields::of_tokens(2 * slots as u64 * each).min(widest)
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
        // ORDERING: this is the acquire side of *row*, for the slots before this one.
        self.slots[at].load(Acquire)
    }

    /// Returns the admission in a slot, with its absolute time and the sum since the log began.
    #[inline]
    fn mark(&self, at: usize) -> Option<LogMark> {
        let mark = self.start.fields.unpack(self.slot(at))?;
        Some(LogMark {
            time: self.start.mark.time + mark.time,
            tokens: self.start.mark.tokens.wrapping_add(mark.tokens),
        })
    }

    /// Returns the time and the sum of tokens just before a slot. All preceding slots must be
    /// filled.
    #[inline]
    pub(super) fn mark_before(&self, at: usize) -> LogMark {
        let mark = at.checked_sub(1).and_then(|last| self.mark(last));
        mark.unwrap_or(self.start.mark)
    }

    /// Returns the first slot of a run for which `has` returns false. All slots for which `has`
    /// returns true must precede all others.
    #[inline]
    fn first_without(mut from: usize, mut to: usize, has: impl Fn(usize) -> bool) -> usize {
        while from < to {
            let middle = from + (to - from) / 2;
            if has(middle) { from = middle + 1 } else { to = middle }
        }
        from
    }

    /// Returns the current end of the filled slots.
    #[inline]
    pub(super) fn end(&self) -> ChunkEnd {
        let is_filled = |at: usize| self.start.fields.unpack(self.slot(at)).is_some();
        // ORDERING: relaxed; this is only a hint.
        let noted = self.noted.load(Relaxed);
        let noted = usize::try_from(noted).unwrap_or(usize::MAX).min(self.slots.len());
        // Search from the hint in steps that double. The hint may be out of date, because a thread
        // may have been stopped just before it wrote the hint.
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
        let (mut behind, mut seen) = (Behind::Chunk, EMPTY);
        while let Some(slot) = (filled < self.slots.len()).then(|| self.slot(filled)) {
            if self.start.fields.unpack(slot).is_none() {
                seen = slot;
                behind = match slot {
                    CLOSED => Behind::Chunk,
                    SEALED => Behind::Sealed,
                    _ => Behind::Empty,
                };
                break;
            }
            // Another thread has filled the slot in the meantime.
            filled += 1;
        }
        ChunkEnd { filled, last: self.mark_before(filled), behind, slot: seen }
    }

    /// Returns the time of the last admission up to `end`. The time of `end` itself may be later.
    #[inline]
    pub(super) fn last_admission(&self, end: &ChunkEnd) -> Option<u64> {
        if end.filled > 0 { Some(end.last.time) } else { self.start.before }
    }

    /// Returns the first of the `filled` slots whose time is later than `time`.
    #[inline]
    pub(super) fn first_after(&self, filled: usize, time: u64) -> usize {
        if time < self.start.mark.time {
            return 0;
        }
        // A slot that is not visible yet counts as later than `time`.
        Self::first_without(0, filled, |at| self.mark(at).is_some_and(|mark| mark.time <= time))
    }

    /// Returns the first slot at which the run that starts at `from` holds at least `tokens`
    /// tokens, excluding those given back.
    pub(super) fn first_with(&self, (from, filled): (usize, usize), tokens: u64) -> usize {
        Self::first_without(from, filled, |at| self.held(from..at + 1) < tokens)
    }

    /// Returns the tokens admitted in a run of slots.
    #[inline]
    fn admitted(&self, slots: Range<usize>) -> u64 {
        self.mark_before(slots.end).tokens.wrapping_sub(self.mark_before(slots.start).tokens)
    }

    /// Returns the tokens admitted in a run of slots, excluding the tokens that were given back.
    #[inline]
    pub(super) fn held(&self, slots: Range<usize>) -> u64 {
        let admitted = self.admitted(slots.clone());
        let refunds = self.refunds.get().map_or(0, |refunds| refunds.sum(slots));
        admitted.saturating_sub(refunds)
    }

    /// Returns true if any admission in this chunk was refunded.
    pub(super) fn has_refunds(&self) -> bool {
        self.refunds.get().is_some()
    }

    /// Gives back up to `tokens` tokens of the admissions made at `time`, starting with the last
    /// admission. Returns how many tokens were given back, or `None` if all admissions in this
    /// chunk are older than `time`.
    pub(super) fn give_back(&self, time: u64, tokens: u64) -> Option<u64> {
        let ChunkEnd { filled, last, .. } = self.end();
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

    /// Writes an admission at the observed end. This fails if another thread gets there first, or
    /// if the admission does not fit.
    pub(super) fn append(&self, end: &ChunkEnd, mark: LogMark) -> Write {
        let from_start = LogMark {
            time: mark.time - self.start.mark.time,
            tokens: mark.tokens.wrapping_sub(self.start.mark.tokens),
        };
        let Some(slot) = self.start.fields.pack(from_start) else { return Write::DoesNotFit };
        let written = self.write(end, slot);
        if written == Write::Done {
            reach(LogStep::Appended);
            if (end.filled + 1).is_multiple_of(NOTED) {
                // ORDERING: relaxed; this is only a hint.
                self.noted.store(end.filled as u64 + 1, Relaxed);
            }
        }
        written
    }

    /// Closes the chunk at the observed end, so that the log continues in the next chunk.
    pub(super) fn close(&self, end: &ChunkEnd) -> Write {
        self.write(end, CLOSED)
    }

    /// Seals the log at the observed end.
    pub(super) fn seal(&self, end: &ChunkEnd) -> Write {
        self.write(end, SEALED)
    }

    /// Writes another empty value into the slot at the observed end.
    pub(super) fn change(&self, end: &ChunkEnd) -> Write {
        self.write(end, end.slot + CHANGE)
    }

    fn write(&self, end: &ChunkEnd, slot: u64) -> Write {
        // ORDERING: this is the release side of *row*. It publishes the preceding slots, which this
        // thread saw filled, and, for a change of quota, the linked version.
        match self.slots[end.filled].compare_exchange(end.slot, slot, Release, Relaxed) {
            Ok(_) => Write::Done,
            Err(_) => Write::Lost,
        }
    }
}

impl Chained for Chunk {
    fn next(&self) -> &Link<Self> {
        &self.next
    }
}

impl Retire for Chunk {
    fn bytes(&self) -> usize {
        self.size()
    }
}
