//! One generation of the table: a space, the places given out in it, and its own turnover.

use super::slot::Fingerprint;
use super::space::{Claim, Space};
use super::step::{Step, reach};
use crate::rule::Word;
use crate::sync::{
    Atomic, Guard, Link,
    Ordering::{AcqRel, Acquire, Relaxed, Release},
};
use crate::time::Tick;
use std::sync::Arc;

/// Lines that one operation closes at the most: 16 slots.
pub(super) const CHUNK: usize = if cfg!(tollgate_loom) { 1 } else { 4 };

/// Set in `given` when no more places are given out.
const CLOSED: u64 = 1 << 63;

/// `carried` until the turnover before is complete.
const UNKNOWN: u64 = u64::MAX;

/// The bytes that all eras of a table take which are not freed yet, and the most they may.
#[derive(Debug)]
pub(super) struct Memory {
    bytes: Atomic<u64>,
    most: u64,
}

impl Memory {
    pub(super) fn new(most: u64) -> Arc<Self> {
        Arc::new(Self { bytes: Atomic::new(0), most })
    }

    pub(super) fn bytes(&self) -> u64 {
        // ORDERING: relaxed; a count.
        self.bytes.load(Relaxed)
    }

    /// Is more than half of it taken?
    pub(super) fn is_short(&self) -> bool {
        self.bytes() > self.most / 2
    }
}

/// The permission to allocate an era, held until it is freed.
#[derive(Debug)]
pub(super) struct Permit {
    of: Arc<Memory>,
    bytes: u64,
}

impl Permit {
    pub(super) fn take(of: &Arc<Memory>, bytes: u64) -> Option<Self> {
        let add = |sum: u64| sum.checked_add(bytes).filter(|&sum| sum <= of.most);
        // ORDERING: relaxed twice; a count.
        of.bytes.fetch_update(Relaxed, Relaxed, add).ok()?;
        Some(Self { of: Arc::clone(of), bytes })
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        // ORDERING: relaxed; a count.
        self.of.bytes.fetch_sub(self.bytes, Relaxed);
    }
}

/// A space and what is known of it. See the page of `table` for states and invariants.
#[derive(Debug)]
pub(super) struct Era {
    pub(super) space: Space,
    /// The most keys that may have a place here.
    pub(super) limit: u64,
    /// When it began, by the clock of the thread that made it.
    pub(super) began: Tick,
    /// How many keys may come from the era before, at the most.
    pub(super) promised: u64,
    /// How many did come, once all have.
    carried: Atomic<u64>,
    /// Places given to new keys, and the mark CLOSED.
    given: Atomic<u64>,
    /// Lines closed (high half) and keys moved out of them (low half).
    progress: Atomic<u64>,
    /// Keys evicted while this era is turned over.
    evicted: Atomic<u64>,
    pub(super) next: Link<Era>,
    /// Given back when this era is freed.
    _permit: Permit,
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

/// A turnover that is under way, as one thread saw it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Progress {
    lines: u64,
    moved: u64,
}

impl Progress {
    const fn unpack(bits: u64) -> Self {
        Self { lines: bits >> 32, moved: bits & 0xffff_ffff }
    }

    const fn pack(self) -> u64 {
        self.lines << 32 | self.moved
    }
}

impl Era {
    /// An era for `limit` keys, of which `promised` may come from the era before; `None` if there is no
    /// memory for it, or none is permitted.
    pub(super) fn new(limit: u64, promised: u64, began: Tick, memory: &Arc<Memory>) -> Option<Self> {
        let permit = Permit::take(memory, Self::bytes(limit))?;
        let space = Space::new(Space::lines_for(usize::try_from(limit).ok()?))?;
        Some(Self {
            space,
            limit,
            began,
            promised,
            carried: Atomic::new(if promised == 0 { 0 } else { UNKNOWN }),
            given: Atomic::new(0),
            progress: Atomic::new(0),
            evicted: Atomic::new(0),
            next: Link::null(),
            _permit: permit,
        })
    }

    /// The most keys that have a place here or are still to come from `before`, the era that is being
    /// turned over into this one, if one is.
    pub(super) fn used(&self, before: Option<&Self>) -> u64 {
        // ORDERING: relaxed; the two counts may be of different moments, but never exceed the limit at one.
        ((self.given.load(Relaxed) & !CLOSED) + self.brought(before)).min(self.limit)
    }

    fn brought(&self, before: Option<&Self>) -> u64 {
        // ORDERING: relaxed; a thread whose root is this era sees it set by the edge *link*, any other
        // falls back to the upper bound.
        match (self.carried.load(Relaxed), before) {
            (UNKNOWN, Some(before)) => self.promised - before.evicted.load(Relaxed),
            (UNKNOWN, None) => self.promised,
            (carried, _) => carried,
        }
    }

    /// Asks for a place for a new key.
    pub(super) fn place(&self, before: Option<&Self>) -> Place {
        let room = self.limit - self.brought(before);
        let give = |given: u64| (given < room).then_some(given + 1);
        // ORDERING: relaxed twice; the count publishes nothing. (CLOSED is above any room.)
        match self.given.fetch_update(Relaxed, Relaxed, give) {
            Ok(_) => Place::Given,
            Err(given) if given & CLOSED != 0 => Place::Closed,
            Err(_) => Place::None,
        }
    }

    /// Gives back a place that was not needed.
    pub(super) fn give_back(&self) {
        // ORDERING: relaxed, as in `place`.
        self.given.fetch_sub(1, Relaxed);
    }

    /// Gives out no more places; how many keys this era has at the most, from now on.
    pub(super) fn close(&self) -> u64 {
        // ORDERING: both sides of *shut*: who finds the era closed by another thread knows, as that
        // thread did, how many keys it carried.
        let used = (self.given.fetch_or(CLOSED, AcqRel) & !CLOSED) + self.brought(None);
        // There are never more keys than that, also if `carried` were seen too late.
        used.min(self.limit)
    }

    /// Does the next chunk of this era's turnover into `next`: closes its lines, evicts what is idle and
    /// moves the rest. Idempotent: several threads may do the same chunk. True if
    /// all is done.
    pub(super) fn turn_chunk(&self, next: &Self, is_idle: impl Fn(Word) -> bool) -> bool {
        // ORDERING: acquire side of *turned*: who finds the turnover complete sees every word moved.
        let seen = self.progress.load(Acquire);
        let from = Progress::unpack(seen);
        let lines = self.space.lines() as u64;
        if from.lines >= lines {
            return true;
        }
        let until = (from.lines + CHUNK as u64).min(lines);
        let mut moved = 0;
        for line in from.lines..until {
            // Below the number of lines, which is a usize.
            #[allow(clippy::cast_possible_truncation)]
            self.space.close_line(line as usize, |key, word| {
                let frozen = self.freeze(word, &is_idle);
                if frozen != Word::EVICTED {
                    reach(Step::Frozen);
                    next.bring(key, frozen);
                    moved += 1;
                }
            });
        }
        reach(Step::ChunkMoved);
        let to = Progress { lines: until, moved: from.moved + moved };
        // ORDERING: release side of *turned*: the words that this thread moved or saw moved. (All helpers
        // of a chunk count the same, for by now its words are frozen for good.)
        let advanced = self.progress.compare_exchange(seen, to.pack(), Release, Relaxed).is_ok();
        advanced && until == lines
    }

    /// Freezes a word, or evicts its key if it is idle; what it is for good.
    fn freeze(&self, word: &Atomic<Word>, is_idle: impl Fn(Word) -> bool) -> Word {
        let (frozen, evicted) = crate::rule::update(word, |word| {
            if word.is_frozen() {
                (word, (word, false))
            } else if is_idle(word) {
                (Word::EVICTED, (Word::EVICTED, true))
            } else {
                (word.frozen(), (word.frozen(), false))
            }
        });
        if evicted {
            reach(Step::Evicted);
            // ORDERING: relaxed; it makes room a moment sooner and is not needed to be exact.
            self.evicted.fetch_add(1, Relaxed);
        }
        frozen
    }

    /// Takes over a key from the era before, with its frozen word; does nothing if it is here already.
    pub(super) fn bring(&self, key: Fingerprint, frozen: Word) {
        // A key that comes has a place already. Its run can't be sealed before it is here: this era is
        // closed only when all keys have come.
        match self.space.claim(key) {
            Claim::New(word) | Claim::Known(word) => {
                reach(Step::Brought);
                crate::rule::update(word, |word| (if word.is_fresh() { frozen.thawed() } else { word }, ()));
            }
            Claim::Sealed => debug_assert!(false, "an era was closed before all its keys had come"),
        }
    }

    /// Notes that all keys of this era have come into `next`: exactly so many.
    pub(super) fn complete(&self, next: &Self) {
        // ORDERING: acquire side of *turned*.
        let moved = Progress::unpack(self.progress.load(Acquire)).moved;
        // ORDERING: relaxed; published by the edge *link* when `next` becomes the root. Whoever stores it
        // stores the same.
        next.carried.store(moved, Relaxed);
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

    /// The bytes of an era with that limit.
    pub(super) fn bytes(limit: u64) -> u64 {
        let limit = usize::try_from(limit).unwrap_or(usize::MAX >> 8);
        (size_of::<Self>() + Space::bytes_of(Space::lines_for(limit))) as u64
    }
}
