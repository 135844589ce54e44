//! The proxy's metrics for Prometheus. Clients cannot choose the value of any label.

use std::time::Duration;

use http::StatusCode;
use prometheus_client::encoding::text::{encode_eof, encode_registry};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;
use tollgate_http::program;

use crate::proxy::bad_requests::BadRequest;
use crate::proxy::upstream::service::Fault;

/// A label and its value.
type Label = [(&'static str, String); 1];

/// The bounds of the latency histogram, in seconds.
const BUCKETS: [f64; 15] =
    [0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 60.0];

/// The status classes. The class `none` counts requests whose client disconnected before a
/// response.
const CLASSES: [&str; 6] = ["1xx", "2xx", "3xx", "4xx", "5xx", "none"];

/// All metrics of a proxy. This struct stores a handle to each metric, so requests need no lookups.
pub(crate) struct Metrics {
    registry: Registry,
    requests: [Counter; CLASSES.len()],
    durations: Histogram,
    pub(crate) in_flight: Gauge,
    pub(crate) request_bytes: Counter,
    pub(crate) response_bytes: Counter,
    faults: [Counter; Fault::ALL.len()],
    pub(crate) repeated: Counter,
    bad_requests: [Counter; BadRequest::ALL.len()],
    pub(crate) connections: Counter,
    pub(crate) refused_connections: Counter,
    pub(crate) blocked_connections: Counter,
    pub(crate) open_connections: Gauge,
    pub(crate) tunnels: Gauge,
    pub(crate) unlogged: Counter,
    pub(crate) reloads: Counter,
    pub(crate) failed_reloads: Counter,
    pub(crate) unwritten_states: Counter,
    /// The layer's metrics: the limits' decisions and the sizes of their limiters.
    pub(crate) decisions: tollgate_http::Metrics,
}

impl Metrics {
    pub(crate) fn new() -> Self {
        let (mut all, decisions) = (Registry::default(), tollgate_http::Metrics::new());
        let registry = all.sub_registry_with_prefix("tollgate");
        let requests: Family<Label, Counter> = Family::default();
        let faults: Family<Label, Counter> = Family::default();
        let bad_requests: Family<Label, Counter> = Family::default();
        let durations = Histogram::new(BUCKETS);
        registry.register("requests", "Requests answered, by class of the status", requests.clone());
        registry.register(
            "request_duration_seconds",
            "From the head of the request to the end of the response",
            durations.clone(),
        );
        registry.register(
            "upstream_errors",
            "Requests that got no response from the upstream",
            faults.clone(),
        );
        registry.register(
            "bad_requests",
            "Requests that are not HTTP or are too large, by what was wrong",
            bad_requests.clone(),
        );
        let mut counter = |name: &str, help: &str| {
            let counter = Counter::default();
            registry.register(name, help, counter.clone());
            counter
        };
        let repeated =
            counter("upstream_repeated", "Requests sent to the upstream once more, on a new connection");
        let request_bytes = counter("request_body_bytes", "Bytes of bodies passed to the upstream");
        let response_bytes = counter("response_body_bytes", "Bytes of bodies passed to clients");
        let connections = counter("connections", "Connections accepted");
        let refused_connections =
            counter("connections_refused", "Connections closed at once: their address had too many");
        let blocked_connections = counter(
            "connections_blocked",
            "Connections closed at once: their address had sent too many malformed requests",
        );
        let reloads = counter("reloads", "Reloads of the settings that took effect");
        let failed_reloads = counter("reloads_failed", "Reloads of the settings that changed nothing");
        let unlogged = counter("access_log_lost", "Lines of the access log that could not be written");
        let unwritten_states =
            counter("state_writes_failed", "Writes of the file of counts that have failed");
        let mut gauge = |name: &str, help: &str| {
            let gauge = Gauge::default();
            registry.register(name, help, gauge.clone());
            gauge
        };
        let in_flight = gauge("requests_in_flight", "Requests that are not answered to their end");
        let open_connections = gauge("open_connections", "Connections that are open");
        let tunnels = gauge("open_tunnels", "Connections that became WebSockets and are open");
        Self {
            requests: CLASSES.map(|class| requests.get_or_create_owned(&[("status", class.to_owned())])),
            faults: Fault::ALL.map(|fault| faults.get_or_create_owned(&[("kind", fault.name().to_owned())])),
            bad_requests: BadRequest::ALL
                .map(|kind| bad_requests.get_or_create_owned(&[("kind", kind.name().to_owned())])),
            repeated,
            decisions,
            registry: all,
            durations,
            in_flight,
            request_bytes,
            response_bytes,
            connections,
            refused_connections,
            blocked_connections,
            reloads,
            failed_reloads,
            unwritten_states,
            open_connections,
            tunnels,
            unlogged,
        }
    }

    /// Counts a request that hyper answered by itself.
    pub(crate) fn bad_request(&self, kind: BadRequest) {
        if let Some(at) = BadRequest::ALL.iter().position(|&other| other == kind) {
            self.bad_requests[at].inc();
        }
    }

    /// Counts a request that has ended.
    pub(crate) fn answered(&self, status: Option<StatusCode>, took: Duration) {
        let hundreds = status.map(|status| usize::from(status.as_u16() / 100));
        let class = hundreds.map_or(CLASSES.len(), |class| class.clamp(1, 5));
        self.requests[class - 1].inc();
        self.durations.observe(took.as_secs_f64());
    }

    /// Counts a request without a response.
    pub(crate) fn fault(&self, fault: Fault) {
        if let Some(at) = Fault::ALL.iter().position(|&other| other == fault) {
            self.faults[at].inc();
        }
    }

    /// Returns all metrics as text (OpenMetrics).
    pub(crate) fn text(&self) -> String {
        let mut text = String::new();
        // Writing to a string cannot fail.
        let _ = encode_registry(&mut text, &self.registry);
        text += &program::open_metrics(&self.decisions);
        let _ = encode_eof(&mut text);
        text
    }
}
