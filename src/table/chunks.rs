//! The progress of a turnover: which chunks are taken, and which chunks are done.
//!
//! The lines of an array are turned over in *chunks*. Each helper takes a chunk that no other
//! thread has started, so the helpers share the work. Because a helper may stop forever, any thread
//! may redo the first unfinished chunk once all chunks are taken. Redoing a chunk is harmless,
//! because the result is the same for every thread and for any number of repetitions.
//!
//! Why not keep a single count of finished chunks? If a helper were counted twice, or stopped
//! before it was counted, the count would be wrong forever. Instead, each chunk has its own byte.
//! All helpers of the chunk store the same value in that byte, and any thread can add up the bytes.

use super::memory::{Zeroed, zeroed};
use crate::sync::{
    Atomic,
    Ordering::{Acquire, Relaxed, Release},
};

/// The maximum number of chunks that one call adds up. The state of a chunk is one byte, so adding
/// up this many bytes costs less than turning over one chunk.
const ADD_UP: usize = if cfg!(tollgate_loom) { 2 } else { 256 };

/// The progress of one array's turnover. This struct has its own cache lines for the same reason as
/// `array::Counts`.
#[derive(Debug)]
#[repr(align(128))]
pub(super) struct Chunks {
    /// How many chunks have been taken so far. Chunks are taken in order.
    taken: Atomic<u64>,
    /// One byte for each chunk: 0 until the chunk is done, then 1 plus the number of keys moved out
    /// of the chunk.
    done: Zeroed<Atomic<u8>>,
    /// The sum of the bytes added up so far, as a [`Sum`].
    sum: Atomic<u64>,
}

/// How many consecutive chunks, starting with the first, are done, and how many keys were moved out
/// of these chunks.
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
    /// Creates `count` chunks that are not done. Returns `None` if there is no memory for them.
    pub(super) fn new(count: usize) -> Option<Self> {
        // SAFETY: `zero` creates an atomic byte with the value 0, whose only byte is zero.
        #[allow(unsafe_code)]
        let done = unsafe { zeroed(count, || Atomic::new(0)) }?;
        Some(Self { taken: Atomic::new(0), done, sum: Atomic::new(0) })
    }

    /// Takes a chunk that no thread has started. If there is no such chunk, takes the first chunk
    /// that may not be done yet. Returns `None` when all chunks are done.
    pub(super) fn take(&self) -> Option<usize> {
        // ORDERING: both accesses are relaxed. A thread that takes a chunk reads nothing written by
        // other threads, and two threads may take the same chunk.
        let all_taken = self.taken.load(Relaxed) >= self.count();
        let chunk = if all_taken { self.count() } else { self.taken.fetch_add(1, Relaxed) };
        let chunk = if chunk < self.count() {
            chunk
        } else {
            // ORDERING: relaxed, because this is a hint. If the value is outdated, a finished chunk
            // is redone.
            Sum::unpack(self.sum.load(Relaxed)).chunks
        };
        // The index is below the number of chunks, which is a usize.
        #[allow(clippy::cast_possible_truncation)]
        let place = chunk as usize;
        (chunk < self.count()).then_some(place)
    }

    /// Records that a chunk is done: all lines of the chunk are closed, and `moved` of its keys
    /// were moved.
    pub(super) fn finish(&self, chunk: usize, moved: u8) {
        // ORDERING: release side of *moved*, for the words that this thread moved or saw moved. (By
        // now the chunk's words are permanently frozen, so all helpers of the chunk store the same
        // value.)
        self.done[chunk].store(1 + moved, Release);
    }

    /// Adds up the finished chunks. Once all chunks are done, returns how many keys were moved.
    /// This method is lock-free, because it starts again only if another thread has added up more
    /// chunks.
    pub(super) fn add_up(&self) -> Option<u64> {
        loop {
            // ORDERING: acquire side of *added up*. A thread that finds all chunks done sees every
            // moved word.
            let seen = self.sum.load(Acquire);
            let from = Sum::unpack(seen);
            // The index is below the number of chunks, which is a usize.
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
            // ORDERING: release side of *added up*, for the words that this thread saw moved. The
            // release sequence also publishes the words seen by earlier threads. A failed exchange
            // reads nothing.
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

    /// The first helper stops in the middle of its chunk.
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
