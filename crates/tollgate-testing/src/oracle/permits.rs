//! Permits in flight, as a list of the permits in use.

use std::collections::BTreeMap;

/// An exact limit on how many permits of each key are in use at once.
#[derive(Clone, Debug)]
pub struct Permits {
    pub limit: u64,
    /// How many places each permit occupies, by the permit's key and number.
    out: BTreeMap<(u64, u64), u64>,
    taken: u64,
}

impl Permits {
    pub const fn new(limit: u64) -> Self {
        Self { limit, out: BTreeMap::new(), taken: 0 }
    }

    pub fn out(&self, key: u64) -> u64 {
        self.out.range((key, 0)..=(key, u64::MAX)).map(|(_, places)| places).sum()
    }

    pub fn fits(&self, key: u64, places: u64) -> bool {
        self.out(key) + places <= self.limit
    }

    /// Takes a permit and returns the permit's number.
    pub fn take(&mut self, key: u64, places: u64) -> u64 {
        self.taken += 1;
        self.out.insert((key, self.taken), places);
        self.taken
    }

    /// Gives a permit back. Does nothing if the permit is void.
    pub fn give_back(&mut self, key: u64, number: u64) {
        self.out.remove(&(key, number));
    }

    /// Voids the permits of all keys for which `is_one` is true.
    pub fn reset(&mut self, is_one: impl Fn(u64) -> bool) {
        self.out.retain(|&(key, _), _| !is_one(key));
    }

    /// Returns the number of keys with an outstanding permit.
    pub fn keys(&self) -> usize {
        let mut keys: Vec<u64> = self.out.keys().map(|&(key, _)| key).collect();
        keys.dedup();
        keys.len()
    }
}
