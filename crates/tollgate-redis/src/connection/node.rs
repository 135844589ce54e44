//! [`Node`]: the connection to one server, and its breaker.

use super::breaker::{Breaker, Pass};
use super::servers::{Line, Way};
use arc_swap::ArcSwapOption;
use std::sync::Arc;
use tokio::sync::Notify;

/// A server at an address, the master that sentinels name, or a cluster whose topology is unknown.
pub(crate) struct Node {
    pub(crate) way: Way,
    pub(crate) breaker: Breaker,
    line: ArcSwapOption<Line>,
    /// Notified after each probe.
    pub(crate) changed: Notify,
}

/// The state of a node, as a request finds it.
pub(crate) enum Found {
    Line(Arc<Line>),
    /// There was no connection yet; the request may wait for the first attempt.
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

    /// Returns whether `line` is the current connection.
    pub(crate) fn has(&self, line: &Arc<Line>) -> bool {
        self.line.load().as_ref().is_some_and(|current| Arc::ptr_eq(current, line))
    }

    pub(crate) fn install(&self, line: Line) {
        self.line.store(Some(Arc::new(line)));
    }
}
