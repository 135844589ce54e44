//! [`Stretch`]: a row of a timeline, as text and as figures serialized to JSON.

use serde::Serialize;

use super::quantity::{date_and_time, rfc3339};
use crate::replay::timeline::{Count, NANOS_PER_SECOND, Timeline};

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
    pub(crate) fn all(timeline: &Timeline) -> impl Iterator<Item = Self> {
        timeline.stretches().map(|(second, count)| Self {
            second,
            start: rfc3339(second.saturating_mul(NANOS_PER_SECOND)),
            count: count.into(),
        })
    }

    /// Returns the start of the stretch, as a date and a time of day in UTC.
    pub(crate) fn date_and_time(&self) -> String {
        date_and_time(self.second.saturating_mul(NANOS_PER_SECOND))
    }
}
