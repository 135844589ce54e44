//! Counts, during a replay, the requests in each key's busiest minute.

use tollgate::Tick;

use crate::replay::keys::KeyId;

const NANOS_PER_MINUTE: u64 = 60_000_000_000;

/// For each key, the number of requests in the key's busiest clock minute.
#[derive(Default)]
pub(crate) struct Rates {
    of_keys: Vec<OfKey>,
}

#[derive(Clone, Copy, Default)]
struct OfKey {
    minute: u64,
    in_minute: u64,
    most: u64,
}

impl Rates {
    /// Counts a request. For each key, time never runs backwards.
    pub(crate) fn add(&mut self, id: KeyId, at: Tick) {
        if id >= self.of_keys.len() {
            self.of_keys.resize(id + 1, OfKey::default());
        }
        let of_key = &mut self.of_keys[id];
        let minute = at.as_nanos() / NANOS_PER_MINUTE;
        if minute != of_key.minute {
            (of_key.minute, of_key.in_minute) = (minute, 0);
        }
        of_key.in_minute += 1;
        of_key.most = of_key.most.max(of_key.in_minute);
    }

    /// Returns the number of requests in a key's busiest clock minute.
    pub(crate) fn busiest_minute(&self, id: KeyId) -> u64 {
        self.of_keys.get(id).map_or(0, |of_key| of_key.most)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn minutes_are_those_of_the_clock() {
        let mut rates = Rates::default();
        for second in [0, 30, 59, 60, 61, 62, 63, 180] {
            rates.add(1, Tick::from_nanos(second * 1_000_000_000));
        }
        assert_eq!([0, 1, 2].map(|id| rates.busiest_minute(id)), [0, 4, 0]);
    }
}
