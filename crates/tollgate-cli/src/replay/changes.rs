//! What a change of limits would do: the decisions on a log that two configurations make
//! differently.

use std::collections::HashMap;

use foldhash::fast::RandomState;
use tollgate::Tick;

use super::timeline::Timeline;

const NANOS_PER_SECOND: u64 = 1_000_000_000;

/// The decisions that differ, and whose they are.
#[derive(Debug)]
pub(crate) struct Changes {
    /// Requests that both configurations let pass, or refuse.
    pub(crate) same: u64,
    pub(crate) all: Changed,
    pub(crate) by_client: HashMap<Box<[u8]>, Changed, RandomState>,
    /// Changes by the limit that refuses a request now, or has refused it.
    pub(crate) by_limit: HashMap<String, Changed, RandomState>,
    /// Newly passed and newly refused requests.
    pub(crate) timeline: Timeline,
}

/// Counts of requests whose decision changes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Changed {
    /// They passed, and are refused now.
    pub(crate) refused: u64,
    /// They were refused, and pass now.
    pub(crate) passed: u64,
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
            by_limit: HashMap::default(),
            timeline: Timeline::new(),
        }
    }

    /// Counts a request: whether it passed before the change, and whether it does after it.
    /// `client` and `limit` are asked for if the decision changes; the limit is the one that
    /// refuses the request, before or after.
    pub(crate) fn add<'c>(
        &mut self,
        at: Tick,
        [before, after]: [bool; 2],
        client: impl FnOnce() -> Box<[u8]>,
        limit: Option<impl FnOnce() -> &'c str>,
    ) {
        if before == after {
            self.same += 1;
            return;
        }
        self.all.add(after);
        self.by_client.entry(client()).or_default().add(after);
        if let Some(limit) = limit {
            self.by_limit.entry(limit().to_owned()).or_default().add(after);
        }
        self.timeline.count(at.as_nanos() / NANOS_PER_SECOND, after);
    }
}
