//! [`Node`]: the connection to one server, and its breaker.

use super::breaker::{Breaker, Pass};
use super::servers::{Connection, Endpoint};
use crate::health::Problem;
use arc_swap::{ArcSwap, ArcSwapOption};
use std::sync::Arc;
use tokio::sync::Notify;

/// A server at an address, the master that sentinels name, or a cluster whose topology is unknown.
pub(crate) struct Node {
    pub(crate) endpoint: Endpoint,
    pub(crate) breaker: Breaker,
    connection: ArcSwapOption<Connection>,
    /// What the last trial has found.
    pub(crate) problems: ArcSwap<Vec<Problem>>,
    /// Notified after each probe.
    pub(crate) changed: Notify,
}

/// The state of a node, as a request finds it.
pub(crate) enum Found {
    Connected(Arc<Connection>),
    /// There was no connection yet; the request may wait for the first attempt.
    Starting,
    Away,
}

impl Node {
    pub(crate) fn new(endpoint: Endpoint) -> Arc<Self> {
        let (breaker, connection, changed) = (Breaker::new(), ArcSwapOption::empty(), Notify::new());
        Arc::new(Self { endpoint, breaker, connection, problems: ArcSwap::default(), changed })
    }

    pub(crate) fn find(&self) -> Found {
        match (self.breaker.pass(), self.connection.load_full()) {
            (Pass::Closed, Some(connection)) => Found::Connected(connection),
            (Pass::Starting, _) => Found::Starting,
            _ => Found::Away,
        }
    }

    pub(crate) fn connection(&self) -> Option<Arc<Connection>> {
        match self.find() {
            Found::Connected(connection) => Some(connection),
            _ => None,
        }
    }

    /// Returns whether `connection` is the current connection.
    pub(crate) fn has(&self, connection: &Arc<Connection>) -> bool {
        self.connection.load().as_ref().is_some_and(|current| Arc::ptr_eq(current, connection))
    }

    pub(crate) fn install(&self, connection: Connection) {
        self.connection.store(Some(Arc::new(connection)));
    }
}
