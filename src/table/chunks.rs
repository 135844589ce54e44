//! Who works on which part of a turnover, and how much of it is done.
//!
//! The lines of an era are turned over in *chunks*. Each helper takes one that nobody has begun, so that
//! helpers don't do the same work; but a helper may stop for good, so when all are taken, the first one that
//! is not done may be redone by anybody. That is harmless: a chunk does the same whoever does it, and
//! however often. Why not count the chunks that are done: a helper that was counted twice, or that stopped
//! before it was counted, would falsify the count for good. Here each chunk has a byte of its own, all
//! helpers of a chunk store the same in it, and whoever comes adds up what is done.

use super::memory::{Zeroed, zeroed};
use crate::sync::{
    Atomic,
    Ordering::{Acquire, Relaxed, Release},
};

/// How many chunks one call adds up at the most. They are bytes, so this costs less than a chunk does.
const ADD_UP: usize = if cfg!(tollgate_loom) { 2 } else { 256 };

/// The chunks of one era. On cache lines of its own: see `era::Counts`.
#[derive(Debug)]
#[repr(align(128))]
pub(super) struct Chunks {
    /// How many were taken, in their order.
    taken: Atomic<u64>,
    /// Of each chunk: 0, and once it is done, 1 + the keys moved out of it.
    done: Zeroed<Atomic<u8>>,
    /// How far it was added up, as [`Sum`].
    sum: Atomic<u64>,
}

/// The chunks from the first on that are done without a gap, and the keys moved out of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Sum {
    chunks: u64,
    moved: u64,
}

impl Sum {
    const fn unpack(bits: u64) -> Self {
        Self { chunks: bits >> 32, moved: bits & 0xffff_ffff }
    }

    const fn pack(self) -> u64 {
        self.chunks << 32 | self.moved
    }
}

impl Chunks {
    /// So many chunks, none of them done; `None` if there is no memory for them.
    pub(super) fn new(count: usize) -> Option<Self> {
        // SAFETY: an atomic byte, and it is 0.
        #[allow(unsafe_code)]
        let done = unsafe { zeroed(count, || Atomic::new(0)) }?;
        Some(Self { taken: Atomic::new(0), done, sum: Atomic::new(0) })
    }

    /// The chunk to work on: one that nobody has begun, or else the first that may not be done. `None`
    /// when all are done.
    pub(super) fn take(&self) -> Option<usize> {
        // ORDERING: relaxed twice; who takes a chunk needs nothing of ours, and nobody must do so.
        let all_taken = self.taken.load(Relaxed) >= self.count();
        let chunk = if all_taken { self.count() } else { self.taken.fetch_add(1, Relaxed) };
        let chunk = if chunk < self.count() {
            chunk
        } else {
            // ORDERING: relaxed; a hint. A chunk that is done already is done once more.
            Sum::unpack(self.sum.load(Relaxed)).chunks
        };
        // Below the number of chunks, which is a usize.
        #[allow(clippy::cast_possible_truncation)]
        let place = chunk as usize;
        (chunk < self.count()).then_some(place)
    }

    /// Notes that a chunk is done: all its keys are closed, and `moved` of them moved.
    pub(super) fn finish(&self, chunk: usize, moved: u8) {
        // ORDERING: release side of *moved*: the words that this thread moved or saw moved. (All helpers
        // of a chunk store the same, for its words are frozen for good by now.)
        self.done[chunk].store(1 + moved, Release);
    }

    /// Adds up what is done; how many keys were moved, if that is all. Lock-free: it starts again only where
    /// another thread has added up more.
    pub(super) fn add_up(&self) -> Option<u64> {
        loop {
            // ORDERING: acquire side of *added up*: who finds all chunks done sees every word moved.
            let seen = self.sum.load(Acquire);
            let from = Sum::unpack(seen);
            // Below the number of chunks, which is a usize.
            #[allow(clippy::cast_possible_truncation)]
            let open = &self.done[from.chunks as usize..];
            let mut to = from;
            for done in open.iter().take(ADD_UP) {
                // ORDERING: acquire side of *moved*.
                match done.load(Acquire) {
                    0 => break,
                    done => to = Sum { chunks: to.chunks + 1, moved: to.moved + u64::from(done) - 1 },
                }
            }
            let complete = to.chunks == self.count();
            if to == from {
                return complete.then_some(to.moved);
            }
            // ORDERING: release side of *added up*: what this thread saw moved, and by way of the value it
            // replaces, what those before it did. A failure is not looked at.
            if self.sum.compare_exchange(seen, to.pack(), Release, Relaxed).is_ok() {
                return complete.then_some(to.moved);
            }
        }
    }

    fn count(&self) -> u64 {
        self.done.len() as u64
    }
}

#[cfg(all(test, not(tollgate_loom)))]
mod tests {
    use super::*;

    #[test]
    fn each_helper_takes_a_chunk_of_its_own_while_there_are_any() {
        let chunks = Chunks::new(3).unwrap();
        assert_eq!([(); 3].map(|()| chunks.take()), [Some(0), Some(1), Some(2)]);
    }

    /// The owner of the first chunk never comes back.
    #[test]
    fn a_chunk_whose_owner_has_stopped_is_redone_by_the_next_one() {
        let chunks = Chunks::new(3).unwrap();
        let _stopped = chunks.take();
        for chunk in [1, 2] {
            assert_eq!(chunks.take(), Some(chunk));
            chunks.finish(chunk, 2);
            assert_eq!(chunks.add_up(), None);
        }
        assert_eq!(chunks.take(), Some(0));
        chunks.finish(0, 5);
        assert_eq!(chunks.add_up(), Some(9));
        assert_eq!(chunks.take(), None);
        // It does come back.
        chunks.finish(0, 5);
        assert_eq!(chunks.add_up(), Some(9));
    }

    #[test]
    fn the_sum_holds_the_largest_table() {
        let most = Sum { chunks: u64::from(u32::MAX), moved: u64::from(u32::MAX) };
        assert_eq!(Sum::unpack(most.pack()), most);
    }

    #[test]
    fn what_was_done_behind_a_gap_is_added_up_in_bounded_steps() {
        let count = 3 * ADD_UP;
        let chunks = Chunks::new(count).unwrap();
        for chunk in (0..count).rev() {
            chunks.finish(chunk, 16);
        }
        assert_eq!([(); 3].map(|()| chunks.add_up()), [None, None, Some(16 * count as u64)]);
    }
}
