//! Whether the proxy is ready for requests.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use http::uri::Authority;
use http::{Response, StatusCode};
use http_body_util::Full;
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tollgate_redis::Client;

/// How long the upstream has to accept a connection before it counts as unreachable.
const UPSTREAM: Duration = Duration::from_secs(1);

/// What readiness depends on. The limits are built before anything is served.
pub(crate) struct Health {
    pub(crate) upstream: Authority,
    /// The store of shared limits.
    pub(crate) store: Option<Client>,
    /// Whether requests are refused without the store, so that the proxy is not ready without it.
    pub(crate) needs_store: bool,
    draining: AtomicBool,
}

impl Health {
    pub(crate) fn new(upstream: Authority, store: Option<Client>, needs_store: bool) -> Self {
        Self { upstream, store, needs_store, draining: AtomicBool::new(false) }
    }

    /// Says that the proxy ends, and is no longer ready.
    pub(crate) fn drain(&self) {
        // ORDERING: relaxed; it publishes nothing else.
        self.draining.store(true, Relaxed);
    }

    /// Answers with 200 if the proxy is ready, and else with 503; the body has the reasons.
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

    /// Returns why the upstream accepts no connection, if it does not.
    async fn upstream_problem(&self) -> Option<String> {
        let port = self.upstream.port_u16().unwrap_or(80);
        let address = format!("{}:{port}", self.upstream.host());
        match timeout(UPSTREAM, TcpStream::connect(address)).await {
            Ok(Ok(_)) => None,
            Ok(Err(error)) => Some(format!("unreachable: {error}")),
            Err(_) => Some(format!("unreachable: no connection within {UPSTREAM:?}")),
        }
    }

    /// Returns what is wrong with the store, each with whether it is only a warning.
    async fn store_problems(&self) -> Vec<(String, bool)> {
        let Some(store) = &self.store else { return Vec::new() };
        let problems = store.health().await;
        problems.iter().map(|problem| (problem.to_string(), problem.is_warning())).collect()
    }
}
