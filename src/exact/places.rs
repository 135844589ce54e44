//! The places of a store. Each key owns one place, so the number of keys never exceeds the number
//! of places. A round visits the places to find the keys.
//!
//! # State
//!
//! ```text
//! place:  vacant, with the number of the next vacant one -> the hash of its key -> vacant ...
//! ```
//!
//! `fresh` is the number of places that have ever been in use. The vacant places among these form a
//! stack, whose top is `vacant`. `taken` is the number of places in use.
//!
//! # Invariants
//!
//! 1. From `take` to `give_back`, a place has one owner, and only the owner writes to it.
//! 2. Each push and each pop changes the version in `vacant`. Therefore a pop fails if another push
//!    or pop has occurred since it read `vacant`. The pop must fail, because the number of the next
//!    vacant place may have changed.
//!
//! A round reads places owned by other threads, so a hash read by the round may be out of date. The
//! round therefore searches for an entry with that hash *and* that place. If the hash is out of
//! date, the search finds no entry.
//!
//! # Progress
//!
//! All operations are lock-free. A call to `take` that needs the next segment allocates the
//! segment. A segment is as large as all earlier segments together, and is not freed until the
//! limiter is dropped.
//!
//! # Orderings
//!
//! | edge | release side | acquire side | what becomes visible | loom test that fails if it is weakened |
//! |---|---|---|---|---|
//! | vacant | `give_back` | `pop` | the number of the next vacant place, which the previous owner has written to the place, and which the next owner's hash follows | `places_come_and_go_and_each_has_one_owner` |

use super::entry::VACANT_BITS;
use crate::reclaim::OnceLink;
use crate::sync::{
    Atomic,
    Ordering::{Acquire, Relaxed, Release},
};

/// The number of places in the first segment.
const FIRST: usize = if cfg!(tollgate_loom) { 2 } else { 64 };

/// The number of segments: enough for 2^32 places.
const SEGMENTS: usize = 32;

/// Means "no place", because no place has this number.
const NONE: u32 = u32::MAX;

/// The places of all keys.
#[derive(Debug)]
pub(super) struct Places {
    segments: [OnceLink<Segment>; SEGMENTS],
    most: u64,
    moving: Moving,
}

#[derive(Debug)]
struct Segment(Box<[Atomic<u64>]>);

/// The fields written by insertions and removals. They have their own cache lines.
#[derive(Debug)]
#[repr(align(128))]
struct Moving {
    fresh: Atomic<u64>,
    /// The low half is the number of the first vacant place, or `NONE`. The high half is a version.
    vacant: Atomic<u64>,
    taken: Atomic<u64>,
}

impl Places {
    pub(super) fn new(most: u64) -> Self {
        let (fresh, vacant, taken) = (Atomic::new(0), Atomic::new(u64::from(NONE)), Atomic::new(0));
        let moving = Moving { fresh, vacant, taken };
        Self { segments: std::array::from_fn(|_| OnceLink::null()), most, moving }
    }

    /// Returns how many places are in use.
    pub(super) fn taken(&self) -> u64 {
        // ORDERING: relaxed; a count.
        self.moving.taken.load(Relaxed)
    }

    /// Returns how many places have ever been in use. A round visits only these places.
    pub(super) fn fresh(&self) -> u64 {
        // ORDERING: relaxed, because this is a count. A caller that must see a key's place has seen
        // the key through another edge.
        self.moving.fresh.load(Relaxed).min(self.most)
    }

    pub(super) fn bytes(&self) -> u64 {
        let segments = self.segments.iter().filter_map(OnceLink::get);
        segments.map(|segment| size_of_val(&*segment.0) as u64).sum()
    }

    /// Takes a place for a key with this hash, if one is left.
    pub(super) fn take(&self, hash: u64) -> Option<u32> {
        let place = self.pop().or_else(|| self.next_fresh())?;
        // ORDERING: relaxed; a count.
        self.moving.taken.fetch_add(1, Relaxed);
        // ORDERING: relaxed, because a round that does not yet see the hash skips the place.
        self.at(place).store(hash, Relaxed);
        Some(place)
    }

    /// Gives back a place whose key is no longer in the index.
    pub(super) fn give_back(&self, place: u32) {
        let at = self.at(place);
        // ORDERING: release side of *vacant*. The load is relaxed, because nothing is read through
        // the loaded value.
        let _ = self.moving.vacant.fetch_update(Release, Relaxed, |vacant| {
            // ORDERING: relaxed; published by the update.
            at.store(vacant & u64::from(NONE), Relaxed);
            Some(versioned(vacant, place))
        });
        // ORDERING: relaxed; a count.
        self.moving.taken.fetch_sub(1, Relaxed);
    }

    /// Returns the hash of the key that owns this place, or `None` if the place is vacant.
    pub(super) fn holder(&self, place: u32) -> Option<u64> {
        let segment = self.segments[segment_of(place).0].get()?;
        // ORDERING: relaxed; see the module documentation.
        let hash = segment.0[segment_of(place).1].load(Relaxed);
        (hash >> VACANT_BITS != 0).then_some(hash)
    }

    fn pop(&self) -> Option<u32> {
        // ORDERING: acquire side of *vacant* for the load. The store is relaxed, because it
        // continues the release sequence of the earlier pushes. The next pop that sees the stored
        // value acquires from these pushes.
        let popped = self.moving.vacant.fetch_update(Relaxed, Acquire, |vacant| {
            let first = number(vacant);
            // ORDERING: relaxed, because the number is acquired with `vacant`. If the number is out
            // of date, `vacant` is also out of date, and the pop fails.
            (first != NONE).then(|| versioned(vacant, number(self.at(first).load(Relaxed))))
        });
        popped.ok().map(number)
    }

    fn next_fresh(&self) -> Option<u32> {
        let next = |fresh: u64| (fresh < self.most).then_some(fresh + 1);
        // ORDERING: both accesses are relaxed, because this is a count.
        let fresh = self.moving.fresh.fetch_update(Relaxed, Relaxed, next).ok()?;
        Some(number(fresh))
    }

    fn at(&self, place: u32) -> &Atomic<u64> {
        let (segment, offset) = segment_of(place);
        let places = || (0..size_of_segment(segment)).map(|_| Atomic::new(0));
        &self.segments[segment].get_or(|| Segment(places().collect())).0[offset]
    }
}

/// Returns the number of a place, stored in the low half of a word.
#[allow(clippy::cast_possible_truncation)]
const fn number(word: u64) -> u32 {
    word as u32
}

/// Returns the stack's next word after `before`, with `first` on top.
const fn versioned(before: u64, first: u32) -> u64 {
    ((before >> 32).wrapping_add(1) << 32) | first as u64
}

/// Returns the segment of a place, and the place's offset in the segment. Segments 0 and 1 have
/// `FIRST` places each. Each later segment has as many places as all earlier segments together.
const fn segment_of(place: u32) -> (usize, usize) {
    let segment = (place as usize / FIRST).checked_ilog2();
    match segment {
        None => (0, place as usize),
        Some(n) => (n as usize + 1, place as usize - (FIRST << n)),
    }
}

const fn size_of_segment(segment: usize) -> usize {
    FIRST << segment.saturating_sub(1)
}

#[cfg(all(test, not(tollgate_loom)))]
mod tests {
    use super::*;

    #[test]
    fn every_place_is_in_one_segment() {
        let mut before = (0, usize::MAX);
        for place in 0..10_000 {
            let (segment, offset) = segment_of(place);
            assert!(offset < size_of_segment(segment));
            let follows = if segment == before.0 { before.1.wrapping_add(1) } else { 0 };
            assert_eq!(offset, follows, "place {place}");
            assert!(segment - before.0 <= 1);
            before = (segment, offset);
        }
        assert!(segment_of(NONE - 1).0 < SEGMENTS);
    }

    #[test]
    fn places_are_given_out_once_and_come_back() {
        let places = Places::new(100);
        let hash = 1 << 40;
        let mut taken: Vec<_> = (0..100).map(|_| places.take(hash).unwrap()).collect();
        assert_eq!((places.take(hash), places.taken()), (None, 100));
        for &place in &taken[..50] {
            places.give_back(place);
        }
        assert_eq!((places.taken(), places.fresh()), (50, 100));
        assert!(places.holder(taken[0]).is_none());
        assert_eq!(places.holder(taken[50]), Some(hash));
        for place in &mut taken[..50] {
            *place = places.take(hash).unwrap();
        }
        assert_eq!(places.take(hash), None);
        taken.sort_unstable();
        assert_eq!(taken, (0..100).collect::<Vec<_>>());
    }
}
