//! Tracks the places in a limiter, that is, which keys would have a state at each time in the log.
//!
//! A limiter has room for `--max-keys` keys. A key is idle if it would receive the same answers as
//! a new key. If a key has been idle for a while, the limiter evicts it, and a new key receives its
//! place. As long as time only moves forward, evictions change no decision.
//!
//! However, the lines of a log may step back in time. Once a limiter has evicted keys, it knows
//! only a time from which all of them are idle. When it charges a key that it does not track, it
//! judges the request no earlier than that time. With evictions, a replay would therefore judge
//! late lines later than their timestamps.
//!
//! A replay instead stores the states of all keys, and this module separately tracks which keys
//! have a place at the latest time in the log. If a request's key has no place, and all places
//! belong to keys that are not idle yet, the request receives the answer of a full limiter.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::collections::binary_heap::PeekMut;
use std::time::Duration;

use tollgate::Tick;

use super::keys::KeyId;
use crate::replay::log::summary::LEAP;

/// How long a key must be idle before it loses its place. This is a limiter's default
/// [`grace`](tollgate::Builder::grace).
const GRACE: Duration = Duration::from_secs(1);

/// The places of one limiter.
pub(crate) struct Places {
    most: usize,
    /// The latest time in the log so far.
    now: Tick,
    /// For each key with a place, the time from which it is idle, indexed by the key's id.
    idle_from: Vec<Option<Tick>>,
    /// One entry for each occupied place, with the earliest time first. The time in an entry may be
    /// out of date: it is a lower bound of the key's time in `idle_from`.
    taken: BinaryHeap<Reverse<(Tick, KeyId)>>,
}

impl Places {
    pub(crate) fn new(most: usize) -> Self {
        Self { most, now: Tick::ZERO, idle_from: Vec::new(), taken: BinaryHeap::new() }
    }

    /// Returns whether the key of a request at this time has a place or can receive a free place.
    pub(crate) fn has_room_for(&mut self, id: KeyId, at: Tick) -> bool {
        // A time that leaps far ahead counts as the log's time only until the next ordinary time.
        let leapt = at + LEAP < self.now;
        self.now = if leapt { at } else { at.max(self.now) };
        let has_place = self.idle_from.get(id).is_some_and(Option::is_some);
        if has_place || self.taken.len() < self.most {
            return true;
        }
        self.forget_idle_keys();
        self.taken.len() < self.most
    }

    /// Records that a key was charged, and that it is idle from this time. A key without a place
    /// receives one.
    pub(crate) fn charged(&mut self, id: KeyId, idle_from: Tick) {
        if id >= self.idle_from.len() {
            self.idle_from.resize(id + 1, None);
        }
        if self.idle_from[id].replace(idle_from).is_none() {
            self.taken.push(Reverse((idle_from, id)));
        }
    }

    fn forget_idle_keys(&mut self) {
        while let Some(mut first) = self.taken.peek_mut() {
            let Reverse((noted, id)) = *first;
            if noted + GRACE > self.now {
                return;
            }
            match self.idle_from[id] {
                Some(later) if later > noted => first.0.0 = later,
                _ => {
                    self.idle_from[id] = None;
                    PeekMut::pop(first);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    fn at(seconds: u64) -> Tick {
        Tick::from_nanos(seconds * SECOND)
    }

    #[test]
    fn a_place_is_free_a_grace_after_its_key_is_idle() {
        let mut places = Places::new(2);
        for id in [0, 1] {
            assert!(places.has_room_for(id, at(10)));
            places.charged(id, at(12));
        }
        // The second charge to a key extends the time for which the key keeps its place.
        places.charged(1, at(14));
        let just_before = Tick::from_nanos(13 * SECOND - 1);
        assert!(!places.has_room_for(2, just_before) && places.has_room_for(1, just_before));
        assert!(places.has_room_for(2, at(13)));
        places.charged(2, at(20));
        assert!(!places.has_room_for(3, at(14)) && places.has_room_for(3, at(15)));
    }

    #[test]
    fn a_late_request_finds_the_places_of_the_latest_time() {
        let mut places = Places::new(1);
        places.charged(0, at(12));
        assert!(places.has_room_for(0, at(30)));
        assert!(places.has_room_for(1, at(11)));
    }

    #[test]
    fn a_time_that_leaps_ahead_is_believed_until_the_next() {
        let mut places = Places::new(1);
        let year = at(365 * 86_400);
        assert!(places.has_room_for(0, year));
        assert!(places.has_room_for(1, at(10)));
        places.charged(1, at(12));
        assert!(!places.has_room_for(2, at(11)), "the year is over");
        assert!(places.has_room_for(2, at(13)));
    }
}
