//! One server: the connection to it, and whether it is asked.

use super::breaker::{Breaker, Pass};
use super::servers::{Line, Way};
use arc_swap::ArcSwapOption;
use std::sync::Arc;
use tokio::sync::Notify;

/// A server at an address; or the master that sentinels name, or a cluster of which nothing is known yet.
pub(crate) struct Node {
    pub(crate) way: Way,
    pub(crate) breaker: Breaker,
    line: ArcSwapOption<Line>,
    /// Told after each probe.
    pub(crate) changed: Notify,
}

/// What a request finds.
pub(crate) enum Found {
    Line(Arc<Line>),
    /// There was no connection yet: the first attempt may be waited for.
    Starting,
    Away,
}

impl Node {
    pub(crate) fn new(way: Way) -> Arc<Self> {
        let (breaker, line, changed) = (Breaker::new(), ArcSwapOption::empty(), Notify::new());
        Arc::new(Self { way, breaker, line, changed })
    }

    pub(crate) fn find(&self) -> Found {
        match (self.breaker.pass(), self.line.load_full()) {
            (Pass::Closed, Some(line)) => Found::Line(line),
            (Pass::Starting, _) => Found::Starting,
            _ => Found::Away,
        }
    }

    pub(crate) fn line(&self) -> Option<Arc<Line>> {
        match self.find() {
            Found::Line(line) => Some(line),
            _ => None,
        }
    }

    /// Is this the connection that is used now?
    pub(crate) fn has(&self, line: &Arc<Line>) -> bool {
        self.line.load().as_ref().is_some_and(|current| Arc::ptr_eq(current, line))
    }

    pub(crate) fn install(&self, line: Line) {
        self.line.store(Some(Arc::new(line)));
    }
}
