//! Reports whether the proxy is ready to receive requests.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use http::uri::Authority;
use http::{Response, StatusCode};
use http_body_util::Full;
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tollgate_redis::Client;

/// How long the upstream may take to accept a connection before it counts as unreachable.
const UPSTREAM: Duration = Duration::from_secs(1);

/// The parts of the proxy that determine its readiness. The limits are not included, because they
/// are built before the server starts.
pub(crate) struct Health {
    pub(crate) upstream: Authority,
    /// The store for shared limits.
    pub(crate) store: Option<Client>,
    /// Whether the proxy refuses requests while the store is unavailable. If so, it is not ready
    /// without the store.
    pub(crate) needs_store: bool,
    draining: AtomicBool,
}

impl Health {
    pub(crate) fn new(upstream: Authority, store: Option<Client>, needs_store: bool) -> Self {
        Self { upstream, store, needs_store, draining: AtomicBool::new(false) }
    }

    /// Records that the proxy is shutting down and is no longer ready.
    pub(crate) fn drain(&self) {
        // ORDERING: relaxed; the flag publishes no other data.
        self.draining.store(true, Relaxed);
    }

    /// Responds with 200 if the proxy is ready, and with 503 otherwise. The body states the
    /// reasons.
    pub(super) async fn answer(&self) -> Response<Full<bytes::Bytes>> {
        // ORDERING: relaxed, as above.
        let draining = self.draining.load(Relaxed);
        let (upstream, problems) = tokio::join!(self.upstream_problem(), self.store_problems());
        let store_fails = problems.iter().any(|(_, is_warning)| !is_warning);
        let ready = !draining && upstream.is_none() && !(self.needs_store && store_fails);
        let problems: Vec<Value> = problems.into_iter().map(|(problem, _)| problem.into()).collect();
        let body = json!({
            "ready": ready,
            "draining": draining,
            "upstream": upstream.map_or(Value::from("reachable"), Value::from),
            "store_problems": self.store.is_some().then_some(problems),
        });
        super::json(if ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE }, &body)
    }

    /// Tries to connect to the upstream. Returns `None` if this succeeds, and the reason for the
    /// failure otherwise.
    async fn upstream_problem(&self) -> Option<String> {
        let port = self.upstream.port_u16().unwrap_or(80);
        let address = format!("{}:{port}", self.upstream.host());
        match timeout(UPSTREAM, TcpStream::connect(address)).await {
            Ok(Ok(_)) => None,
            Ok(Err(error)) => Some(format!("unreachable: {error}")),
            Err(_) => Some(format!("unreachable: no connection within {UPSTREAM:?}")),
        }
    }

    /// Returns each of the store's problems, and whether it is merely a warning.
    async fn store_problems(&self) -> Vec<(String, bool)> {
        let Some(store) = &self.store else { return Vec::new() };
        let problems = store.health().await;
        problems.iter().map(|problem| (problem.to_string(), problem.is_warning())).collect()
    }
}
