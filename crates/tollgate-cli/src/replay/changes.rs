//! Compares two configurations by counting the requests on which they decide differently.

use std::collections::{BTreeMap, HashMap};

use foldhash::fast::RandomState;
use serde::Serialize;
use tollgate::Tick;

use super::timeline::{Count, Timeline};

const NANOS_PER_SECOND: u64 = 1_000_000_000;

/// The differing decisions, counted by client, by limit and over time.
#[derive(Debug)]
pub(crate) struct Changes {
    /// Requests that both configurations admit or both refuse.
    pub(crate) same: u64,
    pub(crate) all: Changed,
    pub(crate) by_client: HashMap<String, Changed, RandomState>,
    /// The changed decisions, grouped by the limit that refuses the request before or after the
    /// change.
    pub(crate) by_limit: BTreeMap<String, Changed>,
    /// Newly passed and newly refused requests.
    pub(crate) timeline: Timeline,
}

/// The numbers of requests whose decision changes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Changed {
    /// Requests that passed before, and are now refused.
    #[serde(rename = "newly_refused")]
    pub(crate) refused: u64,
    /// Requests that were refused before, and now pass.
    #[serde(rename = "newly_passed")]
    pub(crate) passed: u64,
}

/// The counts of the [timeline](Changes::timeline).
impl From<Count> for Changed {
    fn from(Count { passed, denied }: Count) -> Self {
        Self { refused: denied, passed }
    }
}

impl Changed {
    pub(crate) fn total(self) -> u64 {
        self.refused + self.passed
    }

    fn add(&mut self, passes: bool) {
        if passes {
            self.passed += 1;
        } else {
            self.refused += 1;
        }
    }
}

impl Changes {
    pub(crate) fn new() -> Self {
        Self {
            same: 0,
            all: Changed::default(),
            by_client: HashMap::default(),
            by_limit: BTreeMap::new(),
            timeline: Timeline::new(),
        }
    }

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
        self.timeline.count(at.as_nanos() / NANOS_PER_SECOND, after);
    }
}
