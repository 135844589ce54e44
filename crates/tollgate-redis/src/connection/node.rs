//! [`Node`]: the connection to one server, and the server's breaker.

use super::breaker::{Breaker, Pass};
use super::servers::{Connection, Endpoint};
use super::trial::Findings;
use crate::health::Problem;
use crate::words::atomics::{AtomicBool, Relaxed};
use arc_swap::{ArcSwap, ArcSwapOption};
use std::sync::Arc;
use tokio::sync::Notify;

/// A server at an address, the master named by sentinels, or a cluster whose topology is unknown.
pub(crate) struct Node {
    pub(crate) endpoint: Endpoint,
    pub(crate) breaker: Breaker,
    connection: ArcSwapOption<Connection>,
    /// Why the breaker is open: the server's last answer, or the error from the last attempt to
    /// connect.
    reason: ArcSwapOption<String>,
    /// The results of the last trial.
    findings: ArcSwap<Findings>,
    /// Whether the server has answered a request with an error since the last trial began.
    refused: AtomicBool,
    /// Whether a task is trying the limits again.
    trying: AtomicBool,
    /// Notified after each probe.
    pub(crate) changed: Notify,
}

/// The reason reported for a server whose answers are late.
pub(crate) const LATE: &str = "no answer in time";

/// The state of a node when a request arrives.
pub(crate) enum Found {
    Connected(Arc<Connection>),
    /// There is no connection, but no failure of the server is known. Either no connection has been
    /// opened yet, or the connection has ended while no request was under way. A request may wait
    /// for the next attempt to connect.
    Unconnected,
    Away,
}

impl Node {
    pub(crate) fn new(endpoint: Endpoint) -> Arc<Self> {
        let (breaker, connection, changed) = (Breaker::new(), ArcSwapOption::empty(), Notify::new());
        let (reason, findings) = (ArcSwapOption::empty(), ArcSwap::default());
        let (refused, trying) = (AtomicBool::new(false), AtomicBool::new(false));
        Arc::new(Self { endpoint, breaker, connection, reason, findings, refused, trying, changed })
    }

    pub(crate) fn find(&self) -> Found {
        match (self.breaker.pass(), self.connection.load_full()) {
            (Pass::Closed, Some(connection)) if connection.is_quiet() && connection.has_ended() => {
                Found::Unconnected
            }
            (Pass::Closed, Some(connection)) => Found::Connected(connection),
            (Pass::Starting, _) => Found::Unconnected,
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
        self.reason.store(None);
    }

    /// Returns the last connection, even if it has ended.
    pub(crate) fn last_connection(&self) -> Option<Arc<Connection>> {
        self.connection.load_full()
    }

    /// Records that an answer did not arrive in time. Returns whether the breaker opened as a
    /// result.
    pub(crate) fn late(&self) -> bool {
        let opened = self.breaker.late();
        if opened {
            self.reason.store(None);
        }
        opened
    }

    /// Returns true if it is unknown why the server does not answer. The server may then have
    /// stalled.
    pub(crate) fn may_have_stalled(&self) -> bool {
        self.reason.load().is_none()
    }

    /// Opens the breaker. Returns true if it was not open before.
    pub(crate) fn fail(&self, reason: String) -> bool {
        self.reason.store(Some(Arc::new(reason)));
        self.breaker.open()
    }

    /// Stores the results of a trial. Does nothing if a trial that started later has already stored
    /// its results.
    pub(crate) fn found(&self, findings: Findings) {
        let findings = Arc::new(findings);
        self.findings.rcu(|last| Arc::clone(if findings.is_older_than(last) { last } else { &findings }));
    }

    /// Records that the server has answered a request with an error.
    pub(crate) fn refuse(&self) {
        // ORDERING: relaxed, here and below; nothing else depends on this flag.
        self.refused.store(true, Relaxed);
    }

    /// Returns whether the server has answered a request with an error since the last call.
    pub(crate) fn take_refused(&self) -> bool {
        // ORDERING: relaxed, as in `refuse`.
        self.refused.swap(false, Relaxed)
    }

    /// Acquires the right to try the limits again. Returns false if a task has this right.
    pub(crate) fn try_again(&self) -> bool {
        // ORDERING: relaxed; the flag only bounds the number of tasks.
        !self.trying.load(Relaxed) && !self.trying.swap(true, Relaxed)
    }

    /// Returns the right to try the limits again.
    pub(crate) fn tried(&self) {
        // ORDERING: relaxed, as in `try_again`.
        self.trying.store(false, Relaxed);
    }

    /// Returns true if the last trial found a problem that prevents the store from answering
    /// checks.
    pub(crate) fn has_failed(&self) -> bool {
        self.findings.load().problems.iter().any(|problem| !problem.is_warning())
    }

    /// Returns the problems found by the last trial.
    pub(crate) fn problems(&self) -> Vec<Problem> {
        self.findings.load().problems.clone()
    }

    /// Returns why the breaker is open.
    pub(crate) fn reason(&self) -> String {
        self.reason.load().as_deref().cloned().unwrap_or_else(|| LATE.to_owned())
    }
}
