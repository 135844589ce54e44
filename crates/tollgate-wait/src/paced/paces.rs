//! The paces of all keys for which a server has reported limits or pauses. The paces are divided
//! into shards, and each shard has a mutex.
//!
//! A pause of all keys is stored in each shard, so that a call locks no second mutex to find it. It
//! is copied to the pace of a key when the key is next used.
//!
//! A pace is kept until all its limits and pauses have ended. When a shard is full, its ended paces
//! are removed, or, if no pace has ended, the pace that ends first. The memory is therefore
//! bounded, whatever servers send.

use super::pace::Pace;
use super::pause::Pause;
use std::collections::HashMap;
use std::hash::{BuildHasher, Hash, RandomState};
use std::sync::{Mutex, PoisonError};
use tollgate::Tick;

const SHARDS: u64 = 16;

/// The id of a pace, which is a hash of the key. Keys with the same hash share a pace, and the
/// slower pace applies.
pub(super) type PaceId = u64;

#[derive(Debug)]
pub(super) struct Paces {
    shards: Box<[Mutex<PaceShard>]>,
    seed: RandomState,
}

#[derive(Debug, Default)]
struct PaceShard {
    paces: HashMap<PaceId, Pace>,
    /// The pause of all keys.
    pause: Pause,
}

impl Default for Paces {
    fn default() -> Self {
        Self { shards: (0..SHARDS).map(|_| Mutex::default()).collect(), seed: RandomState::new() }
    }
}

impl Paces {
    pub(super) fn id(&self, key: &(impl Hash + ?Sized)) -> PaceId {
        self.seed.hash_one(key)
    }

    /// Reads or changes the pace of a key, if the key has one or all keys are paused. An ended pace
    /// is removed.
    pub(super) fn known<R>(&self, id: PaceId, now: Tick, change: impl FnOnce(&mut Pace) -> R) -> Option<R> {
        self.shard(id, |PaceShard { paces, pause }| {
            let mut without = Pace::default();
            let pace = match paces.get_mut(&id) {
                Some(pace) => pace,
                None if pause.is_over(now) => return None,
                None => &mut without,
            };
            if !pause.is_over(now) {
                pace.pause_until(*pause, now);
            }
            let result = change(pace);
            if pace.is_over(now) {
                paces.remove(&id);
            }
            Some(result)
        })
    }

    /// Changes the pace of a key. If the key has no pace, a new one is created. At most `max_keys`
    /// keys have a pace.
    pub(super) fn learn<R>(
        &self,
        id: PaceId,
        max_keys: usize,
        now: Tick,
        change: impl FnOnce(&mut Pace) -> R,
    ) -> R {
        self.shard(id, |PaceShard { paces, .. }| {
            let room = max_keys.div_ceil(self.shards.len());
            if !paces.contains_key(&id) && paces.len() >= room {
                paces.retain(|_, pace| !pace.is_over(now));
                if paces.len() >= room {
                    let first = paces.iter().min_by_key(|(_, pace)| pace.ends()).map(|(id, _)| *id);
                    first.and_then(|first| paces.remove(&first));
                }
            }
            let pace = paces.entry(id).or_default();
            let result = change(pace);
            if pace.is_over(now) {
                paces.remove(&id);
            }
            result
        })
    }

    /// Pauses all keys.
    pub(super) fn pause_all(&self, pause: Pause, now: Tick) {
        for id in 0..SHARDS {
            self.shard(id, |shard| shard.pause.extend(pause, now));
        }
    }

    /// Returns the number of keys that have a pace, including paces that have ended.
    pub(super) fn len(&self) -> usize {
        (0..SHARDS).map(|id| self.shard(id, |shard| shard.paces.len())).sum()
    }

    /// Locks a shard and applies `change` to it. Poison is ignored, because no panic leaves a shard
    /// half changed.
    fn shard<R>(&self, id: PaceId, change: impl FnOnce(&mut PaceShard) -> R) -> R {
        let shard = &self.shards[(id % SHARDS) as usize];
        change(&mut shard.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
