//! Counts, during a replay, what only a page shows: the waits, and for each key of each limit, the
//! busiest minute and the longest wait.

use std::time::Duration;

use tollgate::{Decision, Outcome};

use super::rates::Rates;
use super::waits::Waits;
use crate::replay::engine::{Answer, Engine};
use crate::replay::keys::KeyId;

/// The counts for a page.
#[derive(Default)]
pub(crate) struct Seen {
    pub(crate) waits: Waits,
    by_limit: Vec<OfLimit>,
}

#[derive(Default)]
struct OfLimit {
    rates: Rates,
    longest: Vec<Duration>,
}

impl Seen {
    /// Counts a request, which the engine has just answered.
    pub(crate) fn add(&mut self, engine: &Engine, answer: &Answer) {
        self.by_limit.resize_with(engine.limits.len(), OfLimit::default);
        for it in engine.applied() {
            self.by_limit[it.limit].rates.add(it.id, answer.at);
        }
        let Some(by) = answer.by.filter(|_| !answer.passes()) else { return };
        let decision = engine.decision(answer);
        let wait = decision.and_then(Decision::retry_after);
        match decision.map(Decision::outcome) {
            Some(Outcome::TooCostly) => self.waits.never += 1,
            _ => self.waits.add(wait),
        }
        let longest = &mut self.by_limit[by.limit].longest;
        if by.id >= longest.len() {
            longest.resize(by.id + 1, Duration::ZERO);
        }
        longest[by.id] = longest[by.id].max(wait.unwrap_or_default());
    }

    /// Returns the number of requests in the busiest clock minute of a key.
    pub(crate) fn busiest_minute(&self, limit: usize, id: KeyId) -> u64 {
        self.by_limit.get(limit).map_or(0, |it| it.rates.busiest_minute(id))
    }

    /// Returns the longest retry-after of a key's requests.
    pub(crate) fn longest_wait(&self, limit: usize, id: KeyId) -> Duration {
        self.by_limit.get(limit).and_then(|it| it.longest.get(id)).copied().unwrap_or_default()
    }
}
