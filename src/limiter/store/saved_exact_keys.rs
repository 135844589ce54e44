//! Saves exact keys, which serde serializes as JSON.

use super::exact_keys::ExactKeys;
use super::interface::{Settings, Store};
use crate::error::{LoadError, Refused};
use crate::limiter::save::format::{FileReader, FileWriter};
use crate::limiter::save::persist::{Contents, Exported, Persist, SavedHash};
use crate::quota::Quota;
use crate::state::Since;
use crate::time::Tick;
use serde::{Serialize, de::DeserializeOwned};
use std::hash::{BuildHasher, Hash};
use std::io;

/// The number of places that are visited in one part of a save.
const PLACES_PER_PART: u64 = 1024;

impl<K, H> Persist for ExactKeys<K, H>
where
    K: Clone + Eq + Hash + Serialize + DeserializeOwned + Send + Sync + 'static,
    H: BuildHasher + Clone + Send + Sync + 'static,
{
    type Name = K;
    const KIND: &'static str = "exact keys";

    fn write_name(name: &K, to: &mut FileWriter<'_>) -> io::Result<()> {
        let text = serde_json::to_vec(name).map_err(|error| {
            io::Error::new(io::ErrorKind::InvalidData, format!("a key cannot be written as JSON: {error}"))
        })?;
        to.text(&text)
    }

    fn read_name(from: &mut FileReader<'_>) -> Result<K, LoadError> {
        let text = from.text()?;
        serde_json::from_slice(&text).map_err(|error| {
            let text = String::from_utf8_lossy(&text);
            LoadError::unusable(format_args!("{text:?} is not a key of this limiter: {error}"))
        })
    }

    fn seeds(&self) -> Option<SavedHash> {
        None
    }

    fn hash_of(_: Option<SavedHash>, hash: H) -> Result<H, LoadError> {
        Ok(hash)
    }

    fn parts(&self) -> u64 {
        u64::from(self.store.end()).div_ceil(PLACES_PER_PART)
    }

    fn part(&self, part: u64, _: u64) -> Vec<Exported<K>> {
        let end = ((part + 1) * PLACES_PER_PART).min(u64::from(self.store.end()));
        let places = part * PLACES_PER_PART..end;
        let exported = places.filter_map(|place| {
            // A place fits into a `u32`.
            let cell = self.store.cell(u32::try_from(place).ok()?)?;
            let (key, (quota, state)) = (cell.key(), self.store.saved(&cell)?);
            let is_own = self.store.own_quota(self.asked(key)) == Some(quota);
            Some(Exported { name: key.clone(), quota, is_own, state })
        });
        exported.collect()
    }

    fn own_quotas(&self) -> Vec<(K, Quota)> {
        self.store.own_quotas()
    }

    fn mark(&self) -> Tick {
        self.store.mark()
    }

    fn restored(
        settings: Settings,
        hash: H,
        Contents { own, keys, mark }: Contents<K>,
        now: Tick,
    ) -> Result<Self, Refused> {
        let store = Self::empty(settings, hash)?;
        for (key, quota) in own {
            let rule = store.method.any(quota)?;
            store.store.set_rule(store.asked(&key), key.clone(), rule, &Since::START);
        }
        store.store.raise_mark(mark);
        for (key, state) in keys {
            let restored =
                store.store.insert(store.asked(&key), || key.clone(), now, |to| to.restore(&state));
            debug_assert!(restored.is_ok(), "the store has room for all keys");
        }
        Ok(store)
    }
}
