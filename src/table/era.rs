//! One generation of the table: a space, the places given out in it, and its own turnover.

use super::chunks::Chunks;
use super::memory::{Memory, Permit};
use super::slot::Fingerprint;
use super::space::{Claim, Space};
use super::step::{Step, reach};
use crate::rule::{Word, update};
use crate::sync::{Atomic, Guard, Link, Ordering::Relaxed};
use crate::time::Tick;
use std::sync::Arc;

/// Lines in a chunk: 16 slots. An operation closes one chunk; for the exceptions see the page of `table`.
pub(super) const CHUNK: usize = if cfg!(tollgate_loom) { 1 } else { 4 };

/// Set in `given` when no more places are given out.
const CLOSED: u64 = 1 << 63;

/// `carried` until the turnover before is complete.
const UNKNOWN: u64 = u64::MAX;

/// How many keys an era is for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Size {
    /// The root is turned over when so many keys have a place.
    limit: u64,
    /// So many may have one while the era before is turned over into this one. The difference is for the
    /// keys that are inserted meanwhile.
    most: u64,
}

impl Size {
    /// For an era without one before it.
    pub(super) const fn first(limit: u64) -> Self {
        Self { limit, most: limit }
    }

    /// For an era into which `used` keys come from `before`. Each insertion turns one chunk over before it
    /// asks for a place, so one place for each chunk is enough for all that come meanwhile.
    pub(super) fn after(before: &Era, used: u64, limit: u64, max_keys: u64) -> Self {
        Self { limit, most: limit.max(used + before.chunks()).min(max_keys) }
    }

    /// Two thirds of the slots are taken at the limit, four fifths at the most.
    fn lines(self) -> u64 {
        Space::lines_for(self.limit).max(Space::lines_for(self.most - self.most / 6))
    }

    /// The bytes of an era of this size.
    pub(super) fn bytes(self) -> u64 {
        size_of::<Era>() as u64 + Space::bytes_of(self.lines()) + self.lines().div_ceil(CHUNK as u64)
    }
}

/// A space and what is known of it. See the page of `table` for states and invariants.
#[derive(Debug)]
pub(super) struct Era {
    pub(super) space: Space,
    size: Size,
    /// When it began, by the clock of the thread that made it.
    pub(super) began: Tick,
    /// How many keys may come from the era before, at the most.
    promised: u64,
    counts: Counts,
    /// This era's own turnover.
    chunks: Chunks,
    pub(super) next: Link<Era>,
    /// Given back when this era is freed.
    _permit: Permit,
}

/// On cache lines of its own: insertions write it, while every lookup reads where the space is.
#[derive(Debug)]
#[repr(align(128))]
struct Counts {
    /// How many keys did come from the era before, once all have.
    carried: Atomic<u64>,
    /// Places given to new keys, and the mark CLOSED.
    given: Atomic<u64>,
    /// Keys evicted by this era's own turnover.
    evicted: Atomic<u64>,
}

/// The answer to a request for a place.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Place {
    Given,
    /// All places are taken.
    None,
    /// No more are given out: the era is being turned over.
    Closed,
}

/// What one call did for a turnover.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Turned {
    /// Keys that this call has evicted.
    pub(super) evicted: u64,
    /// If all is done by now: how many keys were moved, by whoever it was.
    pub(super) moved: Option<u64>,
}

impl Era {
    /// An era of that size, into which `promised` keys may come from the era before; `None` if there is
    /// no memory for it, or none is permitted.
    pub(super) fn new(size: Size, promised: u64, began: Tick, memory: &Arc<Memory>) -> Option<Self> {
        debug_assert!(promised <= size.most);
        let permit = Permit::take(memory, size.bytes())?;
        let lines = usize::try_from(size.lines()).ok()?;
        Some(Self {
            space: Space::new(lines)?,
            size,
            began,
            promised,
            counts: Counts {
                carried: Atomic::new(if promised == 0 { 0 } else { UNKNOWN }),
                given: Atomic::new(0),
                evicted: Atomic::new(0),
            },
            chunks: Chunks::new(lines.div_ceil(CHUNK))?,
            next: Link::null(),
            _permit: permit,
        })
    }

    /// As the root, it is turned over when so many keys have a place.
    pub(super) fn limit(&self) -> u64 {
        self.size.limit
    }

    /// How many chunks its turnover has.
    pub(super) fn chunks(&self) -> u64 {
        self.space.lines().div_ceil(CHUNK) as u64
    }

    /// How many keys may have a place: fewer when no turnover into this era is under way.
    fn places(&self, before: Option<&Self>) -> u64 {
        if before.is_some() { self.size.most } else { self.size.limit }
    }

    /// The most keys that have a place here or are still to come from `before`, the era that is being
    /// turned over into this one, if one is.
    pub(super) fn used(&self, before: Option<&Self>) -> u64 {
        // ORDERING: relaxed; the two counts may be of different moments, but never exceed the most at one.
        ((self.counts.given.load(Relaxed) & !CLOSED) + self.brought(before)).min(self.size.most)
    }

    /// Would a new key get a place now?
    pub(super) fn has_place(&self, before: Option<&Self>) -> bool {
        self.used(before) < self.places(before)
    }

    fn brought(&self, before: Option<&Self>) -> u64 {
        // ORDERING: relaxed; a thread whose root is this era sees it set by the edge *link*, any other
        // falls back to the upper bound.
        match (self.counts.carried.load(Relaxed), before) {
            (UNKNOWN, Some(before)) => self.promised - before.counts.evicted.load(Relaxed),
            (UNKNOWN, None) => self.promised,
            (carried, _) => carried,
        }
    }

    /// Asks for a place for a new key.
    pub(super) fn place(&self, before: Option<&Self>) -> Place {
        let room = self.places(before).saturating_sub(self.brought(before));
        let give = |given: u64| (given < room).then_some(given + 1);
        // ORDERING: relaxed twice; the count publishes nothing. (CLOSED is above any room.)
        match self.counts.given.fetch_update(Relaxed, Relaxed, give) {
            Ok(_) => Place::Given,
            Err(given) if given & CLOSED != 0 => Place::Closed,
            Err(_) => Place::None,
        }
    }

    /// Gives back a place that was not needed.
    pub(super) fn give_back(&self) {
        // ORDERING: relaxed, as in `place`.
        self.counts.given.fetch_sub(1, Relaxed);
    }

    /// Gives out no more places of this era, which is the root; how many keys it has at the most, from now
    /// on.
    pub(super) fn close(&self) -> u64 {
        // ORDERING: relaxed; a count. How many keys were carried, this thread knows since it saw the root.
        let given = self.counts.given.fetch_or(CLOSED, Relaxed) & !CLOSED;
        (given + self.brought(None)).min(self.size.most)
    }

    /// Does a chunk of this era's turnover into `next`: closes its lines, evicts what is idle and moves the
    /// rest. Idempotent: several threads may do the same chunk.
    pub(super) fn turn_chunk(&self, next: &Self, is_idle: impl Fn(Word) -> bool) -> Turned {
        let mut evicted = 0;
        if let Some(chunk) = self.chunks.take() {
            let mut moved = 0;
            let first = chunk * CHUNK;
            for line in first..self.space.lines().min(first + CHUNK) {
                self.space.close_line(line, |key, word| match self.freeze(word, &is_idle) {
                    Frozen::For(frozen) => {
                        reach(Step::Frozen);
                        next.bring(key, frozen);
                        moved += 1;
                    }
                    Frozen::Evicted { by_us } => evicted += u64::from(by_us),
                });
            }
            reach(Step::ChunkMoved);
            self.chunks.finish(chunk, moved);
            reach(Step::ChunkNoted);
        }
        Turned { evicted, moved: self.chunks.add_up() }
    }

    /// Freezes a word, or evicts its key if it is idle; what it is for good.
    fn freeze(&self, word: &Atomic<Word>, is_idle: impl Fn(Word) -> bool) -> Frozen {
        let updated = update(word, |word| match word {
            _ if word.is_frozen() => word,
            _ if is_idle(word) => Word::EVICTED,
            _ => word.frozen(),
        });
        if updated.to != Word::EVICTED {
            return Frozen::For(updated.to);
        }
        let by_us = updated.from != updated.to;
        if by_us {
            reach(Step::Evicted);
            // ORDERING: relaxed; it makes room a moment sooner and need not be exact.
            self.counts.evicted.fetch_add(1, Relaxed);
        }
        Frozen::Evicted { by_us }
    }

    /// Takes over a key from the era before, with its frozen word; does nothing if it is here already.
    pub(super) fn bring(&self, key: Fingerprint, frozen: Word) {
        // A key that comes has a place already. Its run can't be sealed before it is here: this era is
        // closed only when all keys have come.
        match self.space.claim(key) {
            Claim::New(word) | Claim::Known(word) => {
                reach(Step::Brought);
                update(word, |word| if word.is_fresh() { frozen.thawed() } else { word });
            }
            Claim::Sealed => debug_assert!(false, "an era was closed before all its keys had come"),
        }
    }

    /// Notes how many keys have come from the era before, now that all have.
    pub(super) fn carry(&self, moved: u64) {
        // ORDERING: relaxed; published by the edge *link* when this era becomes the root. Whoever stores it
        // stores the same.
        self.counts.carried.store(moved, Relaxed);
    }

    /// How many keys came from the era before, at the most.
    pub(super) fn survivors(&self) -> u64 {
        self.brought(None)
    }

    /// The next era, if this one is being turned over.
    #[inline]
    pub(super) fn next<'g>(&self, guard: &'g Guard) -> Option<&'g Self> {
        self.next.load(guard)
    }

    /// The era after this one, which is closed: that is known from a sealed slot or a frozen word.
    #[inline]
    pub(super) fn successor<'g>(&self, guard: &'g Guard) -> &'g Self {
        self.next(guard).expect("slots are sealed and words frozen only when the next era is linked")
    }
}

/// What a turnover has made of a word.
#[derive(Debug)]
enum Frozen {
    /// It is frozen as this, to be moved.
    For(Word),
    /// Its key is forgotten.
    Evicted { by_us: bool },
}
