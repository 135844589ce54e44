//! [`Stretch`]: a row of a timeline, as text and as figures serialized to JSON.

use serde::Serialize;

use super::quantity::{date_and_time, rfc3339};
use crate::replay::timeline::{Count, Timeline};

/// A stretch of time, and the counts of its requests.
#[derive(Debug, Serialize)]
pub(crate) struct Stretch<C> {
    #[serde(skip)]
    second: u64,
    start: String,
    #[serde(flatten)]
    pub(crate) count: C,
}

impl<C: From<Count>> Stretch<C> {
    pub(crate) fn all(timeline: &Timeline) -> Vec<Self> {
        let stretch = |(second, count): (u64, Count)| Self {
            second,
            start: rfc3339(second.saturating_mul(1_000_000_000)),
            count: count.into(),
        };
        timeline.stretches().map(stretch).collect()
    }

    /// Returns the start of the stretch, as a date and a time of day in UTC.
    pub(crate) fn date_and_time(&self) -> String {
        date_and_time(self.second.saturating_mul(1_000_000_000))
    }
}
