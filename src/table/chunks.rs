//! The progress of a turnover: the chunks that are taken, and the chunks that are done.
//!
//! The lines of an array are turned over in *chunks*. Each helper takes a chunk that no thread has
//! begun, so that helpers share the work. Because a helper may stop for good, any thread may redo
//! the first unfinished chunk when all chunks are taken. Redoing a chunk is harmless: the result is
//! the same whichever threads do it, and however often.
//!
//! Why not keep a single count of finished chunks? A helper that was counted twice, or that stopped
//! before it was counted, would falsify the count for good. Instead, each chunk has its own byte,
//! in which all its helpers store the same value, and any thread can add up the bytes.

use super::memory::{Zeroed, zeroed};
use crate::sync::{
    Atomic,
    Ordering::{Acquire, Relaxed, Release},
};

/// The most chunks that one call adds up. Each is one byte, so adding up this many costs less than
/// doing a chunk.
const ADD_UP: usize = if cfg!(tollgate_loom) { 2 } else { 256 };

/// The progress of one array's turnover, on separate cache lines: see `array::Counts`.
#[derive(Debug)]
#[repr(align(128))]
pub(super) struct Chunks {
    /// How many chunks were taken, in order.
    taken: Atomic<u64>,
    /// For each chunk: 0, and once the chunk is done, 1 + the number of keys moved out of it.
    done: Zeroed<Atomic<u8>>,
    /// The sum of the bytes that were added up so far, as a [`Sum`].
    sum: Atomic<u64>,
}

/// The number of consecutive chunks that are done, counted from the first, and the number of keys
/// moved out of them.
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
    /// Makes `count` chunks that are not done. `None` if there is no memory for them.
    pub(super) fn new(count: usize) -> Option<Self> {
        // SAFETY: an atomic byte of value 0, whose bytes are all zero.
        #[allow(unsafe_code)]
        let done = unsafe { zeroed(count, || Atomic::new(0)) }?;
        Some(Self { taken: Atomic::new(0), done, sum: Atomic::new(0) })
    }

    /// Takes a chunk to work on: a chunk that no thread has begun or, if there is none, the first
    /// chunk that may not be done. `None` when all chunks are done.
    pub(super) fn take(&self) -> Option<usize> {
        // ORDERING: relaxed twice; taking a chunk reads nothing of other threads, and two threads
        // may take the same one.
        let all_taken = self.taken.load(Relaxed) >= self.count();
        let chunk = if all_taken { self.count() } else { self.taken.fetch_add(1, Relaxed) };
        let chunk = if chunk < self.count() {
            chunk
        } else {
            // ORDERING: relaxed; a hint. With an old value, a finished chunk is done again.
            Sum::unpack(self.sum.load(Relaxed)).chunks
        };
        // Below the number of chunks, which is a usize.
        #[allow(clippy::cast_possible_truncation)]
        let place = chunk as usize;
        (chunk < self.count()).then_some(place)
    }

    /// Records that a chunk is done: all its lines are closed, and `moved` of its keys are moved.
    pub(super) fn finish(&self, chunk: usize, moved: u8) {
        // ORDERING: release side of *moved*: the words that this thread moved or saw moved. (All
        // helpers of a chunk store the same value, because its words are frozen for good by now.)
        self.done[chunk].store(1 + moved, Release);
    }

    /// Adds up the finished chunks. Once all chunks are done, returns how many keys were moved.
    /// This method is lock-free: it starts again only if another thread has added up more chunks.
    pub(super) fn add_up(&self) -> Option<u64> {
        loop {
            // ORDERING: acquire side of *added up*: a thread that finds all chunks done sees every
            // moved word.
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
            // ORDERING: release side of *added up*: the words that this thread saw moved and,
            // through the value that it replaces, those that earlier threads saw. A failure reads
            // nothing.
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

    /// The first helper stops in its chunk.
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
        // The first helper resumes.
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
