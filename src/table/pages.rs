//! Memory of the system, which it gives and takes back part by part.
//!
//! Writing zeroes to the memory of a large table takes milliseconds, and so does giving it back.
//! One check would wait for that. So a large block has no memory to begin with. The first operation
//! that brings a key to a part of the block asks for that part; that happens in a turnover, so a
//! chunk at a time. When no thread can see the block any more, later operations give it back in
//! parts (see [`Leaving`]). A sweep of several steps fetches as many parts before it needs them,
//! and gives as many back in one call.
//!
//! Whether a part was asked for is a hint. Memory that nobody has asked for comes when it is first
//! used: each page with an exception of its own, and with two if it is read before it is written,
//! as the slots of a table are.
//!
//! A sweep of several steps does not ask: it writes to each page. While the system serves a
//! request, the thread shares the lock of the process's memory, and a thread that asks for
//! megabytes at a stretch keeps others that map memory from that lock. One of them is the loser of
//! the race to begin a turnover, which gives back the era it allocated.

use crate::sync::{Atomic, AtomicCell, Ordering::Relaxed};
use memmap2::{Advice, MmapMut, UncheckedAdvice};
use std::ptr::NonNull;

/// From this size on a block is the system's. Below, the allocator may have it at hand, and if not,
/// the thread that begins a turnover waits for it: some quarter of a millisecond.
const LEAST: usize = 512 << 10;

/// What is asked for at once, some 20 microseconds' work: larger parts would be the longest wait of
/// a check, and smaller ones would come too often.
const PART: usize = 64 << 10;

/// What is given back at once, some 60 microseconds' work: the other processors are told each time,
/// so not in small parts.
const GIVEN_BACK: usize = 1 << 20;

/// From this size on a block is to be in huge pages, which make checks of ten million keys faster.
/// Smaller tables gain little by them, and a check may have to wait until the system has made one
/// free.
const HUGE: usize = 128 << 20;

/// A page, where pages are smallest.
const PAGE: usize = 4096;

/// A huge page.
const HUGE_PART: usize = 2 << 20;

/// A block of such memory, all zeroes.
#[derive(Debug)]
pub(super) struct Pages {
    map: MmapMut,
    /// The bytes of a part.
    part: usize,
    /// Of each part: 0, and once it was asked for or written to ahead, 1.
    asked: Box<[Atomic<u8>]>,
    /// So many of them, from the first, were taken to come ahead.
    ahead: Atomic<usize>,
    /// So many bytes, from the first, are not given back yet.
    held: usize,
}

impl Pages {
    /// So many bytes; `None` if the allocator is to have them.
    pub(super) fn new(bytes: usize) -> Option<Box<Self>> {
        let map = if bytes < LEAST { None } else { MmapMut::map_anon(bytes).ok() }?;
        // Advises the kernel, which may refuse: then the pages are small.
        let is_huge = bytes >= HUGE && map.advise(Advice::HugePage).is_ok();
        let part = if is_huge { HUGE_PART } else { PART };
        let asked = (0..bytes.div_ceil(part)).map(|_| Atomic::new(0)).collect();
        Some(Box::new(Self { map, part, asked, ahead: Atomic::new(0), held: bytes }))
    }

    /// Where the block begins. It stays there.
    pub(super) fn start(&mut self) -> Option<NonNull<u8>> {
        NonNull::new(self.map.as_mut_ptr())
    }

    /// Has the system give the part in which this byte is, unless it was asked for that.
    #[inline]
    pub(super) fn populate(&self, byte: usize) {
        // A part is a power of two. A shift, for this is done for every key that is moved.
        let part = byte >> self.part.trailing_zeros();
        // ORDERING: relaxed; a hint.
        if self.asked[part].load(Relaxed) == 0 {
            self.ask_for(part);
        }
    }

    /// Where the pages begin of the next parts that nobody has asked for, among as many as make so many of the usual size: for
    /// whoever then writes to each, so that it comes. (Huge parts are asked for: each is one page. Where reading and writing it are
    /// two exceptions, as on some 64-bit ARMs, it would come as small ones.)
    pub(super) fn ahead(&self, parts: usize) -> impl Iterator<Item = usize> {
        let all = self.asked.len();
        let parts = parts.saturating_mul(PART).div_ceil(self.part);
        let end = |first: usize| first.saturating_add(parts).min(all);
        // ORDERING: relaxed twice; a hint.
        let (Ok(first) | Err(first)) =
            self.ahead.fetch_update(Relaxed, Relaxed, |first| Some(end(first)).filter(|&end| end > first));
        // ORDERING: relaxed; a hint.
        let is_new = |&part: &usize| self.asked[part].load(Relaxed) == 0;
        (first..end(first)).filter(is_new).flat_map(|part| {
            let (start, stop) = (part * self.part, self.map.len().min((part + 1) * self.part));
            let from = if self.part == HUGE_PART {
                self.ask_for(part);
                stop
            } else {
                // ORDERING: relaxed; a hint, as in `ask_for`.
                self.asked[part].store(1, Relaxed);
                start
            };
            (from..stop).step_by(PAGE)
        })
    }

    #[cold]
    fn ask_for(&self, part: usize) {
        // ORDERING: relaxed; a hint. Whoever asks first may be slow: then others get single pages meanwhile.
        self.asked[part].store(1, Relaxed);
        let start = part * self.part;
        let end = self.map.len().min(start + self.part);
        // Advises the kernel, which obeys from Linux 5.14 on. Failure is ignored.
        let _ = self.map.advise_range(Advice::PopulateWrite, start, end - start);
    }

    /// Gives back some of its end: so many times [`GIVEN_BACK`], or a part if that is more. How many bytes that were. Nobody
    /// uses the block any more.
    pub(super) fn give_back(&mut self, times: usize) -> usize {
        let most = self.part.max(GIVEN_BACK.saturating_mul(times));
        let start = self.held.saturating_sub(most).next_multiple_of(self.part);
        let bytes = self.held - start;
        // Refused where pages are locked in memory: they go with the block, when the last part has gone.
        // SAFETY: nobody has a reference to the block or will have one: it is ours alone, and we look at nothing in it.
        #[allow(unsafe_code)]
        let _ = unsafe { self.map.unchecked_advise_range(UncheckedAdvice::DontNeed, start, bytes) };
        self.held = start;
        bytes
    }
}

/// A block that nobody uses any more, and that is not all given back yet. One at the most: when the next comes, the rest of
/// it goes at once.
///
/// Whoever gives a part back takes the block out, so that it is his alone, and puts it in again. A thread that stops
/// between keeps it; nobody waits for that, and its bytes stay counted. What it has done to the block, the next one sees:
/// a swap of an `AtomicCell` acquires and releases.
#[derive(Default)]
pub(super) struct Leaving {
    bytes: Atomic<u64>,
    block: AtomicCell<Option<Box<Pages>>>,
}

const _: () = assert!(AtomicCell::<Option<Box<Pages>>>::is_lock_free());

impl std::fmt::Debug for Leaving {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Leaving").field("bytes", &self.bytes()).finish_non_exhaustive()
    }
}

impl Leaving {
    /// How many bytes are not given back yet.
    #[inline]
    pub(super) fn bytes(&self) -> u64 {
        // ORDERING: relaxed; a count.
        self.bytes.load(Relaxed)
    }

    /// Takes a block that nobody uses any more. Of another, what is left goes back at once, and off the sum `all`.
    pub(super) fn take(&self, block: Box<Pages>, all: &Atomic<u64>) {
        // ORDERING: relaxed; a count.
        self.bytes.fetch_add(block.held as u64, Relaxed);
        self.all_back(self.block.swap(Some(block)), all);
    }

    /// Gives so many parts back, and takes them off the sum `all`: some 60 microseconds' work for each. False if there is
    /// nothing, or if another thread is at it.
    pub(super) fn give_back(&self, parts: usize, all: &Atomic<u64>) -> bool {
        if self.bytes() == 0 {
            return false;
        }
        let Some(mut block) = self.block.take() else { return false };
        self.are_back(block.give_back(parts), all);
        if block.held > 0 {
            self.all_back(self.block.swap(Some(block)), all);
        }
        true
    }

    /// Gives back all there is, and takes it off the sum `all`.
    pub(super) fn give_all_back(&self, all: &Atomic<u64>) {
        self.all_back(self.block.take(), all);
    }

    fn all_back(&self, block: Option<Box<Pages>>, all: &Atomic<u64>) {
        if let Some(block) = block {
            let bytes = block.held;
            drop(block);
            self.are_back(bytes, all);
        }
    }

    fn are_back(&self, bytes: usize, all: &Atomic<u64>) {
        for count in [&self.bytes, all] {
            // ORDERING: relaxed; a count.
            count.fetch_sub(bytes as u64, Relaxed);
        }
    }
}

#[cfg(test)]
impl Pages {
    /// How many bytes of it are in memory: the two highest bits tell, of each page. (The second of a page that is being moved, as the
    /// system does to make room for huge ones, or is swapped out.)
    pub(super) fn resident(&self) -> usize {
        use std::os::unix::fs::FileExt;
        let pagemap = std::fs::File::open("/proc/self/pagemap").unwrap();
        let mut pages = vec![0; self.map.len().div_ceil(PAGE) * 8];
        pagemap.read_exact_at(&mut pages, (self.map.as_ptr().addr() / PAGE * 8) as u64).unwrap();
        let (pages, _) = pages.as_chunks::<8>();
        pages.iter().filter(|&&page| u64::from_ne_bytes(page) >> 62 != 0).count() * PAGE
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_small_is_left_to_the_allocator() {
        assert!(Pages::new(LEAST - 1).is_none());
        assert_eq!(Pages::new(LEAST).unwrap().part, PART);
    }

    #[test]
    fn memory_comes_with_the_parts_that_are_asked_for_and_goes_part_by_part() {
        const BYTES: usize = (10 << 20) + 4096;
        let mut block = Pages::new(BYTES).unwrap();
        let parts = BYTES.div_ceil(PART);
        assert_eq!((block.asked.len(), block.held, block.resident()), (parts, BYTES, 0));
        // Their first bytes, and their last; and once more.
        for part in 0..parts {
            let byte = if part % 2 == 0 { part * PART } else { part * PART + PART - 1 };
            for _ in 0..2 {
                block.populate(byte);
                assert_eq!(block.resident(), BYTES.min((part + 1) * PART));
            }
        }
        // Whole parts.
        const LAST: usize = GIVEN_BACK - PART + 4096;
        for (times, given) in [(1, LAST), (1, GIVEN_BACK), (3, 3 * GIVEN_BACK), (2, 2 * GIVEN_BACK)] {
            assert_eq!(block.give_back(times), given);
            assert_eq!(block.resident(), block.held);
        }
        let rest = [1, 1, 1, 1, usize::MAX].map(|times| block.give_back(times));
        assert_eq!(
            (rest, block.held, block.resident()),
            ([GIVEN_BACK, GIVEN_BACK, GIVEN_BACK, PART, 0], 0, 0)
        );
    }

    /// As whoever uses the block does.
    fn come_ahead(block: &mut Pages, parts: usize) {
        let pages: Vec<_> = block.ahead(parts).collect();
        pages.into_iter().for_each(|byte| block.map[byte] = 1);
    }

    #[test]
    fn memory_comes_ahead_in_order() {
        const PARTS: usize = 65;
        const BYTES: usize = PARTS * PART + 4096;
        let mut block = Pages::new(BYTES).unwrap();
        block.populate(2 * PART);
        for (parts, all) in [(0, 1), (1, 2), (2, 3), (60, 63), (1, 64), (1, PARTS)] {
            come_ahead(&mut block, parts);
            assert_eq!(block.resident(), all * PART);
        }
        // The last part is a page.
        come_ahead(&mut block, usize::MAX);
        assert_eq!(block.resident(), BYTES);
        assert_eq!((block.ahead(1).count(), block.ahead(usize::MAX).count()), (0, 0));
    }

    /// Two who come at once have the next parts each; and who is asked for a part meanwhile need not wait for them.
    #[test]
    fn memory_that_comes_ahead_is_nobodys_twice() {
        const PAGES: usize = PART / PAGE;
        let block = Pages::new(16 * PART).unwrap();
        let (mut first, mut second) = (block.ahead(2), block.ahead(usize::MAX));
        assert_eq!((first.next(), second.next()), (Some(0), Some(2 * PART)));
        assert_eq!(block.ahead(1).next(), None);
        block.populate(PART);
        block.populate(3 * PART);
        block.populate(0);
        assert_eq!((first.count(), second.count()), (PAGES - 1, 13 * PAGES - 1));
        assert_eq!(block.resident(), 2 * PART);
    }

    #[test]
    fn very_large_blocks_come_and_go_in_huge_parts() {
        let mut block = Pages::new(HUGE + 1).unwrap();
        assert_eq!((block.part, block.asked.len()), (HUGE_PART, HUGE / HUGE_PART + 1));
        // Parts may lie in one huge page more.
        block.populate(HUGE - 1);
        assert!((HUGE_PART..=2 * HUGE_PART).contains(&block.resident()));
        assert_eq!(block.ahead(1).count(), 0);
        assert!((2 * HUGE_PART..=4 * HUGE_PART).contains(&block.resident()));
        assert_eq!(block.ahead(HUGE_PART / PART + 1).count(), 0);
        assert!((4 * HUGE_PART..=6 * HUGE_PART).contains(&block.resident()));
        assert_eq!(block.ahead.load(Relaxed), 3);
        assert_eq!(
            (block.give_back(1), block.give_back(1), block.give_back(5)),
            (1, HUGE_PART, 2 * HUGE_PART)
        );
        while block.give_back(1) > 0 {}
        assert_eq!(block.resident(), 0);
    }

    /// The bytes that leave, and all.
    fn counts(leaving: &Leaving, all: &Atomic<u64>) -> (usize, usize) {
        [leaving.bytes(), all.load(Relaxed)].map(|bytes| usize::try_from(bytes).unwrap()).into()
    }

    #[test]
    fn the_bytes_that_leave_are_counted_until_they_have_left() {
        const BYTES: usize = 4 * GIVEN_BACK + PART;
        const OTHERS: usize = 1_000;
        let (leaving, all) = (Leaving::default(), Atomic::new((3 * BYTES + OTHERS) as u64));
        leaving.give_all_back(&all);
        assert!(!leaving.give_back(1, &all));
        assert_eq!(counts(&leaving, &all), (0, 3 * BYTES + OTHERS));
        let take = || leaving.take(Pages::new(BYTES).unwrap(), &all);
        take();
        assert_eq!(counts(&leaving, &all), (BYTES, 3 * BYTES + OTHERS));
        assert!(leaving.give_back(1, &all));
        assert_eq!(counts(&leaving, &all), (BYTES - GIVEN_BACK, 3 * BYTES - GIVEN_BACK + OTHERS));
        // There is room for one.
        take();
        assert_eq!(counts(&leaving, &all), (BYTES, 2 * BYTES + OTHERS));
        leaving.give_all_back(&all);
        assert_eq!(counts(&leaving, &all), (0, BYTES + OTHERS));
        take();
        let parts = (0..).take_while(|_| leaving.give_back(1, &all)).count();
        assert_eq!((parts, counts(&leaving, &all)), (BYTES.div_ceil(GIVEN_BACK), (0, OTHERS)));
        assert!(leaving.block.take().is_none());
    }

    #[test]
    fn a_thread_that_stops_while_it_gives_back_stops_nobody_else() {
        const BYTES: usize = 2 * GIVEN_BACK;
        let (leaving, all) = (Leaving::default(), Atomic::new(3 * BYTES as u64));
        leaving.take(Pages::new(BYTES).unwrap(), &all);
        let _stopped = leaving.block.take();
        assert!(!leaving.give_back(1, &all));
        leaving.give_all_back(&all);
        assert_eq!(counts(&leaving, &all), (BYTES, 3 * BYTES));
        leaving.take(Pages::new(2 * BYTES).unwrap(), &all);
        assert!(leaving.give_back(1, &all));
        assert_eq!(counts(&leaving, &all), (3 * BYTES - GIVEN_BACK, 3 * BYTES - GIVEN_BACK));
        leaving.give_all_back(&all);
        assert_eq!(counts(&leaving, &all), (BYTES, BYTES));
    }
}
