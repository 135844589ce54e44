//! Reports whether the proxy is ready for requests.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use http::uri::Authority;
use http::{Response, StatusCode};
use http_body_util::Full;
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tollgate_redis::Client;

/// The time after which an upstream that has not accepted a connection counts as unreachable.
const UPSTREAM: Duration = Duration::from_secs(1);

/// The parts that readiness depends on. The limits are not among them, because they are built
/// before the server starts.
pub(crate) struct Health {
    pub(crate) upstream: Authority,
    /// The store of shared limits.
    pub(crate) store: Option<Client>,
    /// Whether the proxy refuses requests without the store, and therefore is not ready without it.
    pub(crate) needs_store: bool,
    draining: AtomicBool,
}

impl Health {
    pub(crate) fn new(upstream: Authority, store: Option<Client>, needs_store: bool) -> Self {
        Self { upstream, store, needs_store, draining: AtomicBool::new(false) }
    }

    /// Marks the proxy as ending and no longer ready.
    pub(crate) fn drain(&self) {
        // ORDERING: relaxed; it publishes nothing else.
        self.draining.store(true, Relaxed);
    }

    /// Answers with 200 if the proxy is ready, otherwise with 503. The body has the reasons.
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

    /// Returns the reason why the upstream accepts no connection; `None` if it accepts one.
    async fn upstream_problem(&self) -> Option<String> {
        let port = self.upstream.port_u16().unwrap_or(80);
        let address = format!("{}:{port}", self.upstream.host());
        match timeout(UPSTREAM, TcpStream::connect(address)).await {
            Ok(Ok(_)) => None,
            Ok(Err(error)) => Some(format!("unreachable: {error}")),
            Err(_) => Some(format!("unreachable: no connection within {UPSTREAM:?}")),
        }
    }

    /// Returns the problems of the store, and for each whether it is only a warning.
    async fn store_problems(&self) -> Vec<(String, bool)> {
        let Some(store) = &self.store else { return Vec::new() };
        let problems = store.health().await;
        problems.iter().map(|problem| (problem.to_string(), problem.is_warning())).collect()
    }
}
