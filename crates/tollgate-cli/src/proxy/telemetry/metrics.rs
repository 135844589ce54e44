//! The metrics of the proxy, for Prometheus. No label has a value that a client chose.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use http::StatusCode;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::text::encode;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::{ConstCounter, Counter};
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::{ConstGauge, Gauge};
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;
use tollgate::Stats;
use tollgate_http::settings::LimitPart;
use tollgate_http::{DecisionEvent, RefusalReason};
use tollgate_redis::{ClientStats, SharedStats};

use crate::proxy::bad_requests::BadRequest;
use crate::proxy::limits::{AnyLimiter, Limits, allowances};
use crate::proxy::log_line::RareLine;
use crate::proxy::upstream::service::Fault;

/// A label and its value.
type Label = [(&'static str, String); 1];

/// The labels of a decision: the limit, the class of the caller, if the limit has classes, and the
/// outcome.
type DecisionLabels = Vec<(&'static str, String)>;

/// The bounds of the latency histogram, in seconds.
const BUCKETS: [f64; 15] =
    [0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 60.0];

/// The classes of statuses; `none` is for a client that left before there was a response.
const CLASSES: [&str; 6] = ["1xx", "2xx", "3xx", "4xx", "5xx", "none"];

/// All metrics of a proxy. Handles to each are kept, so that a request looks nothing up.
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
    decisions: Family<DecisionLabels, Counter>,
}

/// The decisions of one class of callers of a limit.
struct Decisions {
    limit: String,
    class: Option<String>,
    allowed: Counter,
    denied: Counter,
    /// Refused because the limit tracks as many keys as it may, and the key is new.
    full: Counter,
    shadow: Counter,
    no_key: Counter,
    /// Refused because the limit blocks the client.
    blocked: Counter,
    /// Says that the limit is full.
    notice: RareLine,
}

impl Decisions {
    fn count(&self, event: &DecisionEvent<'_>) {
        match event.decision {
            None if event.reason == Some(RefusalReason::Blocked) && event.is_shadow => self.shadow.inc(),
            Some(_) if event.would_refuse() => self.shadow.inc(),
            Some(_) if event.reason == Some(RefusalReason::Full) => {
                self.notice.log(format_args!(
                    "limit {}: as many keys are tracked as --max-keys allows, and new ones are refused",
                    self.limit
                ));
                self.full.inc()
            }
            Some(decision) if !decision.is_allowed() => self.denied.inc(),
            Some(_) if event.is_refused => 0,
            Some(_) => self.allowed.inc(),
            None if event.reason == Some(RefusalReason::Blocked) => self.blocked.inc(),
            None => self.no_key.inc(),
        };
    }
}

impl Metrics {
    /// Creates the metrics of a proxy with these limits, which may change.
    pub(crate) fn new(limits: Arc<ArcSwap<Limits>>) -> Self {
        let mut registry = Registry::with_prefix("tollgate");
        let requests: Family<Label, Counter> = Family::default();
        let faults: Family<Label, Counter> = Family::default();
        let bad_requests: Family<Label, Counter> = Family::default();
        let decisions: Family<DecisionLabels, Counter> = Family::default();
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
        registry.register(
            "decisions",
            "What each limit said; of requests that another limit refused, only what refused them is counted",
            decisions.clone(),
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
        let mut gauge = |name: &str, help: &str| {
            let gauge = Gauge::default();
            registry.register(name, help, gauge.clone());
            gauge
        };
        let in_flight = gauge("requests_in_flight", "Requests that are not answered to their end");
        let open_connections = gauge("open_connections", "Connections that are open");
        let tunnels = gauge("open_tunnels", "Connections that became WebSockets and are open");
        registry.register_collector(Box::new(Held { limits }));
        Self {
            requests: CLASSES.map(|class| requests.get_or_create_owned(&[("status", class.to_owned())])),
            faults: Fault::ALL.map(|fault| faults.get_or_create_owned(&[("kind", fault.name().to_owned())])),
            bad_requests: BadRequest::ALL
                .map(|kind| bad_requests.get_or_create_owned(&[("kind", kind.name().to_owned())])),
            repeated,
            decisions,
            registry,
            durations,
            in_flight,
            request_bytes,
            response_bytes,
            connections,
            refused_connections,
            blocked_connections,
            reloads,
            failed_reloads,
            open_connections,
            tunnels,
            unlogged,
        }
    }

    /// Returns a function that counts the decisions of these limits.
    pub(crate) fn decisions_of(
        &self,
        limits: &[(LimitPart, AnyLimiter)],
    ) -> impl Fn(&DecisionEvent<'_>) + Send + Sync + 'static + use<> {
        let of_class = |limit: &str, class: Option<&str>| {
            let outcome = |outcome: &str| {
                let mut labels = vec![("limit", limit.to_owned())];
                labels.extend(class.map(|class| ("class", class.to_owned())));
                labels.push(("outcome", outcome.to_owned()));
                self.decisions.get_or_create_owned(&labels)
            };
            let [allowed, denied, full, shadow, no_key, blocked] =
                ["allowed", "denied", "full", "shadow", "no-key", "blocked"].map(outcome);
            let (limit, class) = (limit.to_owned(), class.map(str::to_owned));
            Decisions {
                limit,
                class,
                allowed,
                denied,
                full,
                shadow,
                no_key,
                blocked,
                notice: RareLine::new(),
            }
        };
        let decisions = limits
            .iter()
            .flat_map(|(limit, _)| allowances(limit).map(|(class, _)| of_class(&limit.name, class)));
        let decisions: Vec<Decisions> = decisions.collect();
        move |event| {
            // A request without a key has no class, and counts in the default class.
            let is_of = |of: &&Decisions| {
                of.limit == event.limit_name
                    && event.class.is_none_or(|class| of.class.as_deref() == Some(class))
            };
            if let Some(of) = decisions.iter().find(is_of) {
                of.count(event);
            }
        }
    }

    /// Counts a request that hyper has answered by itself.
    pub(crate) fn bad_request(&self, kind: BadRequest) {
        if let Some(at) = BadRequest::ALL.iter().position(|&other| other == kind) {
            self.bad_requests[at].inc();
        }
    }

    /// Counts a request that is over.
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
        let _ = encode(&mut text, &self.registry);
        text
    }
}

/// The statistics of the limits, read when Prometheus asks.
struct Held {
    limits: Arc<ArcSwap<Limits>>,
}

impl fmt::Debug for Held {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Held")
    }
}

/// A metric: name, help, whether it is a counter, and its value.
type Figure<S> = (&'static str, &'static str, bool, fn(&S) -> u64);

/// The metrics of a limit that is local to this proxy.
const OWN: [Figure<Stats>; 5] = [
    ("keys", "Keys that the limit tracks", false, |stats| stats.keys as u64),
    ("keys_max", "The most keys that the limit may track", false, |stats| stats.max_keys as u64),
    ("limiter_memory_bytes", "Bytes that the limit holds", false, |stats| stats.bytes as u64),
    ("keys_forgotten", "Idle keys that were forgotten", true, |stats| stats.evicted),
    ("keys_turned_away", "Requests of new keys for which there was no room", true, |stats| stats.refused),
];

/// The metrics of a shared limit, and of the connection to its store.
const SHARED: [Figure<(SharedStats, ClientStats)>; 11] = [
    ("shared_by_store", "Decisions of the store", true, |(limit, _)| limit.by_store),
    ("shared_by_lease", "Decisions from tokens that are leased or may stay unsynced", true, |(limit, _)| {
        limit.by_lease
    }),
    ("shared_by_fallback", "Decisions that were made in place of the store", true, |(limit, _)| {
        limit.by_fallback
    }),
    (
        "shared_unanswered",
        "Checks that the store may have counted without an answer in time",
        true,
        |(limit, _)| limit.unanswered,
    ),
    ("shared_store_errors", "Checks that the store answered with an error", true, |(limit, _)| {
        limit.store_errors
    }),
    (
        "shared_unsent",
        "Checks that were not sent, without a connection or with an open breaker",
        true,
        |(limit, _)| limit.unsent,
    ),
    ("shared_leased", "Tokens leased and not spent", false, |(limit, _)| limit.leased),
    ("shared_unsynced", "Tokens admitted and not confirmed by the store", false, |(limit, _)| limit.unsynced),
    ("shared_unsynced_sent", "Tokens sent to the store and not confirmed yet", false, |(limit, _)| {
        limit.unsynced_sent
    }),
    ("shared_most_unsynced", "The most unconfirmed tokens of one key", false, |(limit, _)| {
        limit.most_unsynced
    }),
    ("store_breaker_trips", "How often the circuit breaker has opened", true, |(_, client)| {
        client.breaker_trips
    }),
];

impl Collector for Held {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let limits = self.limits.load();
        let (mut own, mut shared) = (Vec::new(), Vec::new());
        for (limit, limiter) in limits.iter() {
            let name = limit.name.as_str();
            own.extend(limiter.stats(limit).map(|(class, stats)| (name, class, stats)));
            if let AnyLimiter::Shared(limiter) = limiter {
                shared.push((name, None, limiter.stats()));
            }
        }
        write(&mut encoder, &OWN, &own)?;
        write(&mut encoder, &SHARED, &shared)
    }
}

/// Writes each metric of all limits and classes.
fn write<S>(
    encoder: &mut DescriptorEncoder<'_>,
    figures: &[Figure<S>],
    limits: &[(&str, Option<&str>, S)],
) -> fmt::Result {
    if limits.is_empty() {
        return Ok(());
    }
    for (name, help, grows, figure) in figures {
        let kind = if *grows { MetricType::Counter } else { MetricType::Gauge };
        let mut family = encoder.encode_descriptor(name, help, None, kind)?;
        for (limit, class, stats) in limits {
            let mut labels = vec![("limit", *limit)];
            labels.extend(class.map(|class| ("class", class)));
            let metric = family.encode_family(&labels)?;
            if *grows {
                ConstCounter::new(figure(stats)).encode(metric)?;
            } else {
                let figure = i64::try_from(figure(stats)).unwrap_or(i64::MAX);
                ConstGauge::new(figure).encode(metric)?;
            }
        }
    }
    Ok(())
}
