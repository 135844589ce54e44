//! The paces of all keys of which a server has said something, in shards that have a mutex each.
//!
//! A pace stands here until all that is known of the key is over. Paces that are over are removed
//! when a shard is full; if none is, the pace that ends first gives way, so that the memory is
//! bounded whatever servers say.

use super::pace::Pace;
use std::collections::HashMap;
use std::hash::{BuildHasher, Hash, RandomState};
use std::sync::{Mutex, PoisonError};
use tollgate::Tick;

const SHARDS: u64 = 16;

/// Which pace: a hash of the key. Keys of one hash share a pace, which is the slower one.
pub(super) type PaceId = u64;

#[derive(Debug)]
pub(super) struct Paces {
    shards: Box<[Mutex<HashMap<PaceId, Pace>>]>,
    seed: RandomState,
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

    /// Looks at the pace of a key, or changes it, if it has one. A pace that is over is removed.
    pub(super) fn known<R>(&self, id: PaceId, now: Tick, change: impl FnOnce(&mut Pace) -> R) -> Option<R> {
        self.shard(id, |paces| {
            let pace = paces.get_mut(&id)?;
            let result = change(pace);
            if pace.is_over(now) {
                paces.remove(&id);
            }
            Some(result)
        })
    }

    /// Changes the pace of a key, which is a new one if it has none. At most `max_keys` have one.
    pub(super) fn learn(&self, id: PaceId, max_keys: usize, now: Tick, change: impl FnOnce(&mut Pace)) {
        self.shard(id, |paces| {
            let room = max_keys.div_ceil(self.shards.len());
            if !paces.contains_key(&id) && paces.len() >= room {
                paces.retain(|_, pace| !pace.is_over(now));
                if paces.len() >= room {
                    let first = paces.iter().min_by_key(|(_, pace)| pace.ends()).map(|(id, _)| *id);
                    first.and_then(|first| paces.remove(&first));
                }
            }
            let pace = paces.entry(id).or_default();
            change(pace);
            if pace.is_over(now) {
                paces.remove(&id);
            }
        });
    }

    /// How many keys have a pace, at the most.
    pub(super) fn len(&self) -> usize {
        (0..SHARDS).map(|id| self.shard(id, |paces| paces.len())).sum()
    }

    /// A shard is a value that no panic leaves half changed, so poison means nothing.
    fn shard<R>(&self, id: PaceId, change: impl FnOnce(&mut HashMap<PaceId, Pace>) -> R) -> R {
        let shard = &self.shards[(id % SHARDS) as usize];
        change(&mut shard.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
