//! Limiters as people build them: a map with a state per key. All of them use the same decision and
//! the same clock.
//!
//! Known keys are looked up by reference, and only new keys are cloned. All maps hash with
//! foldhash, which is faster than their default hashers and also has a random seed.

use super::gcra::{Gcra, is_idle, now};
use super::{Rows, Upkeep, kept};
use crate::keys::Key;
use dashmap::DashMap;
use foldhash::fast::RandomState;
use hashbrown::HashTable;
use std::collections::HashMap;
use std::hash::BuildHasher;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

pub fn all<K: Key>() -> Rows<K> {
    vec![
        ("scc + atomic", |setting| {
            let rule = Gcra::new(setting.quota);
            let map = scc::HashMap::<K, AtomicU64, _>::with_hasher(RandomState::default());
            let check = move |map: &scc::HashMap<_, _, _>, key: &K| {
                let now = now();
                match map.read_sync(key, |_, arrival| rule.charge_shared(arrival, now)) {
                    Some(admitted) => admitted,
                    None => rule.charge_shared(map.entry_sync(key.clone()).or_default().get(), now),
                }
            };
            let sweep = |map: &scc::HashMap<K, AtomicU64, _>| {
                let now = now();
                map.retain_sync(|_, arrival| !is_idle(*arrival.get_mut(), now));
            };
            kept(map, check, Upkeep::of_map(sweep, scc::HashMap::clear_sync))
        }),
        ("papaya + atomic", |setting| {
            let rule = Gcra::new(setting.quota);
            // The map uses blocking resizes, as its documentation advises for stable keys.
            // Otherwise, readers search two tables until enough inserts have completed a resize.
            let map = papaya::HashMap::<K, AtomicU64>::builder().hasher(RandomState::default());
            let map = map.resize_mode(papaya::ResizeMode::Blocking).build();
            let check = move |map: &papaya::HashMap<_, _, _>, key: &K| {
                let (now, map) = (now(), map.pin());
                let arrival = match map.get(key) {
                    Some(arrival) => arrival,
                    None => map.get_or_insert_with(key.clone(), AtomicU64::default),
                };
                rule.charge_shared(arrival, now)
            };
            let sweep = |map: &papaya::HashMap<K, AtomicU64, _>| {
                let now = now();
                map.pin().retain(|_, arrival| !is_idle(arrival.load(Relaxed), now));
            };
            kept(map, check, Upkeep::of_map(sweep, |map| map.pin().clear()))
        }),
        ("dashmap + atomic", |setting| {
            let rule = Gcra::new(setting.quota);
            let map = DashMap::<K, AtomicU64, _>::with_hasher(RandomState::default());
            let check = move |map: &DashMap<_, _, _>, key: &K| {
                let now = now();
                match map.get(key) {
                    Some(arrival) => rule.charge_shared(&arrival, now),
                    None => rule.charge_shared(&map.entry(key.clone()).or_default(), now),
                }
            };
            let sweep = |map: &DashMap<K, AtomicU64, _>| {
                let now = now();
                map.retain(|_, arrival| !is_idle(*arrival.get_mut(), now));
            };
            kept(map, check, Upkeep::of_map(sweep, DashMap::clear))
        }),
        ("Mutex<HashMap>", |setting| {
            let rule = Gcra::new(setting.quota);
            let map = Mutex::new(HashMap::<K, u64, _>::with_hasher(RandomState::default()));
            let check = move |map: &Mutex<HashMap<_, _, _>>, key: &K| {
                let (now, mut map) = (now(), map.lock().unwrap());
                match map.get_mut(key) {
                    Some(arrival) => rule.charge(arrival, now),
                    None => rule.charge(map.entry(key.clone()).or_default(), now),
                }
            };
            let sweep = |map: &Mutex<HashMap<K, u64, _>>| {
                let now = now();
                map.lock().unwrap().retain(|_, arrival| !is_idle(*arrival, now));
            };
            kept(map, check, Upkeep::of_map(sweep, |map| map.lock().unwrap().clear()))
        }),
        ("256 mutexed shards", |setting| {
            let (rule, hasher) = (Gcra::new(setting.quota), RandomState::default());
            let shards = Shards((0..256).map(|_| Shard::default()).collect());
            let check = move |Shards(shards): &Shards<K>, key: &K| {
                // The shard and the table use different bits of the same hash.
                let (now, hash) = (now(), hasher.hash_one(key));
                let mut keys = shards[(hash >> 40) as usize % 256].0.lock().unwrap();
                match keys.find_mut(hash, |(other, _)| other == key) {
                    Some((_, arrival)) => rule.charge(arrival, now),
                    None => {
                        let mut arrival = 0;
                        let admitted = rule.charge(&mut arrival, now);
                        keys.insert_unique(hash, (key.clone(), arrival), |(key, _)| hasher.hash_one(key));
                        admitted
                    }
                }
            };
            let sweep = |Shards(shards): &Shards<K>| {
                let now = now();
                for shard in shards {
                    shard.0.lock().unwrap().retain(|(_, arrival)| !is_idle(*arrival, now));
                }
            };
            let clear = |Shards(shards): &Shards<K>| {
                shards.iter().for_each(|shard| shard.0.lock().unwrap().clear());
            };
            kept(shards, check, Upkeep::of_map(sweep, clear))
        }),
    ]
}

struct Shards<K>(Box<[Shard<K>]>);

/// A shard has its own cache lines, so that its lock is not slowed down by neighbours.
#[repr(align(128))]
struct Shard<K>(Mutex<HashTable<(K, u64)>>);

impl<K> Default for Shard<K> {
    fn default() -> Self {
        Self(Mutex::new(HashTable::new()))
    }
}
