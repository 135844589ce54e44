//! Counts the figures that only a page shows: the waits, and for each key of each limit, the
//! busiest minute and the longest wait.

use std::time::Duration;

use tollgate::{Decision, Outcome, Tick};

use super::waits::Waits;
use crate::replay::engine::{Answer, Engine};
use crate::replay::keys::KeyId;

const NANOS_PER_MINUTE: u64 = 60_000_000_000;

/// The counts for a page.
#[derive(Default)]
pub(crate) struct Seen {
    pub(crate) waits: Waits,
    by_limit: Vec<Vec<OfKey>>,
}

/// The counts of one key of a limit.
#[derive(Clone, Copy, Default)]
pub(crate) struct OfKey {
    minute: u64,
    in_minute: u64,
    /// The number of requests in the key's busiest clock minute.
    pub(crate) busiest_minute: u64,
    pub(crate) longest_wait: Duration,
}

impl OfKey {
    /// Counts a request. Time never runs backwards.
    fn requested(&mut self, at: Tick) {
        let minute = at.as_nanos() / NANOS_PER_MINUTE;
        if minute != self.minute {
            (self.minute, self.in_minute) = (minute, 0);
        }
        self.in_minute += 1;
        self.busiest_minute = self.busiest_minute.max(self.in_minute);
    }
}

impl Seen {
    /// Counts a request, which the engine has just answered.
    pub(crate) fn add(&mut self, engine: &Engine, answer: &Answer) {
        for it in engine.applied() {
            self.key(it.limit, it.id).requested(answer.at);
        }
        let Some(by) = answer.by.filter(|_| !answer.passes()) else { return };
        let decision = engine.decision(answer);
        let wait = decision.and_then(Decision::retry_after);
        match decision.map(Decision::outcome) {
            Some(Outcome::TooCostly) => self.waits.never += 1,
            _ => self.waits.add(wait),
        }
        let key = self.key(by.limit, by.id);
        key.longest_wait = key.longest_wait.max(wait.unwrap_or_default());
    }

    fn key(&mut self, limit: usize, id: KeyId) -> &mut OfKey {
        if limit >= self.by_limit.len() {
            self.by_limit.resize(limit + 1, Vec::new());
        }
        let keys = &mut self.by_limit[limit];
        if id >= keys.len() {
            keys.resize(id + 1, OfKey::default());
        }
        &mut keys[id]
    }

    /// Returns the counts of a key.
    pub(crate) fn of(&self, limit: usize, id: KeyId) -> OfKey {
        self.by_limit.get(limit).and_then(|keys| keys.get(id)).copied().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn minutes_are_those_of_the_clock() {
        let mut seen = Seen::default();
        for second in [0, 30, 59, 60, 61, 62, 63, 180] {
            seen.key(0, 1).requested(Tick::from_nanos(second * 1_000_000_000));
        }
        assert_eq!([0, 1, 2].map(|id| seen.of(0, id).busiest_minute), [0, 4, 0]);
    }
}
