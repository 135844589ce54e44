//! Compares two configurations by counting the requests on which they decide differently.

use std::collections::{BTreeMap, HashMap};

use foldhash::fast::RandomState;
use tollgate::Tick;

use super::timeline::{Count, Timeline};

/// The differing decisions, counted by client, by limit and over time. In each count, the passed
/// requests newly pass, and the denied requests are newly refused.
#[derive(Debug, Default)]
pub(crate) struct Changes {
    /// Requests that both configurations admit or both refuse.
    pub(crate) same: u64,
    pub(crate) all: Count,
    pub(crate) by_client: HashMap<String, Count, RandomState>,
    /// The changed decisions, grouped by the limit that refuses the request before or after the
    /// change.
    pub(crate) by_limit: BTreeMap<String, Count>,
    pub(crate) timeline: Timeline,
}

impl Changes {
    /// Counts a request. `[before, after]` states whether the request passes before and after the
    /// change. This method calls `client` only if the decision changes. `limit` is the name of the
    /// limit that refuses the request, either before or after the change.
    pub(crate) fn add(
        &mut self,
        at: Tick,
        [before, after]: [bool; 2],
        client: impl FnOnce() -> String,
        limit: Option<&str>,
    ) {
        if before == after {
            self.same += 1;
            return;
        }
        self.all.add(after);
        self.by_client.entry(client()).or_default().add(after);
        if let Some(limit) = limit {
            self.by_limit.entry(limit.to_owned()).or_default().add(after);
        }
        self.timeline.count(at, after);
    }
}
