//! Prometheus metrics for layers. They show the decisions that limits make and the figures that
//! limiters report.
//!
//! # State
//!
//! Each limit and class has a row with its counts by outcome. Building a layer adds rows, and
//! nothing removes them, so a count never goes down. Each class in a layer points to the counts in
//! its row, so no request has to look up a row.
//!
//! Each limiter with figures has a source. The source holds a weak reference to the limiter, so the
//! figures disappear with the limiter. After a reload, two limiters with the same name may exist
//! for a moment, and only the newer limiter is shown.
//!
//! # Progress
//!
//! Counting is wait-free, with one addition for each limit. Building a layer is lock-free, and
//! copies the lists of rows and sources.

use crate::atomics::{AtomicU64, Relaxed};
use crate::check::event::DecisionEvent;
use crate::figure::{Figure, ReadFigures};
use arc_swap::ArcSwap;
use std::fmt::{self, Write};
use std::sync::Arc;

/// The names of the outcomes that are counted.
const OUTCOMES: [&str; 8] =
    ["allowed", "denied", "paused", "full", "unavailable", "no-key", "blocked", "shadow"];

/// Counts layers' decisions, and writes these counts and the figures of the layers' limiters for
/// Prometheus.
///
/// [`RateLimitBuilder::metrics`](crate::RateLimitBuilder::metrics) connects the metrics to a layer.
/// Clones share the counts. Several layers may use the same metrics, and limits with the same name
/// in two layers are counted as one limit. No label contains a value chosen by a client.
/// `tollgate proxy` uses the same metric names.
///
/// | name | labels | value |
/// |---|---|---|
/// | `tollgate_decisions_total` | `limit`, `class`, `outcome` | Decisions, by [`outcome`](DecisionEvent::outcome) |
/// | `tollgate_keys` | `limit`, `class` | Keys that the limit tracks |
/// | `tollgate_keys_max` | `limit`, `class` | The most keys that the limit may track |
/// | `tollgate_limiter_memory_bytes` | `limit`, `class` | Bytes that the limit holds |
/// | `tollgate_keys_forgotten_total` | `limit`, `class` | Idle keys that were forgotten |
///
/// The label `class` appears only on limits with classes, and metrics about keys appear only for
/// process-local keyed limits. For a limit over an [`AsyncLimiter`](crate::AsyncLimiter), the
/// metrics are the limiter's [figures](crate::AsyncLimiter::figures), with `limit` as their only
/// label. The figures of `tollgate-redis` count the operations on the store, and report whether the
/// store is reachable.
///
/// ```
/// use http::{Request, Response};
/// use tollgate::{Quota, SingleLimiter};
/// use tollgate_http::{Limit, Metrics, RateLimitLayer};
/// use tower::{Layer, ServiceExt, service_fn};
///
/// let metrics = Metrics::new();
/// let limiter = SingleLimiter::builder(Quota::per_hour(1)).build()?;
/// let layer = RateLimitLayer::builder()
///     .limit(Limit::new("all", limiter))
///     .metrics(&metrics)
///     .build()?;
/// let service = layer.layer(service_fn(|_: Request<()>| async {
///     Ok::<_, std::convert::Infallible>(Response::new(String::from("hello")))
/// }));
/// # pollster::block_on(async {
/// for status in [200, 429, 429] {
///     assert_eq!(service.clone().oneshot(Request::new(())).await.unwrap().status(), status);
/// }
/// # });
/// let text = metrics.prometheus_text();
/// assert!(text.contains("tollgate_decisions_total{limit=\"all\",outcome=\"allowed\"} 1\n"));
/// assert!(text.contains("tollgate_decisions_total{limit=\"all\",outcome=\"denied\"} 2\n"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Default)]
pub struct Metrics {
    rows: Arc<ArcSwap<Vec<Row>>>,
    sources: Arc<ArcSwap<Vec<FigureSource>>>,
}

/// A limit, or one of its classes.
#[derive(Clone)]
struct Row {
    limit: Arc<str>,
    class: Option<Box<str>>,
    counts: Arc<Counts>,
}

/// A limiter with figures, used by a limit or by one of its classes. The newest source is the last
/// in the list.
#[derive(Clone)]
struct FigureSource {
    limit: Arc<str>,
    class: Option<Box<str>>,
    figures: Arc<ReadFigures>,
}

/// How often a limit had each outcome.
#[derive(Debug, Default)]
pub(crate) struct Counts([AtomicU64; OUTCOMES.len()]);

impl Counts {
    pub(crate) fn count(&self, event: &DecisionEvent<'_>) {
        let place = event.outcome().and_then(|outcome| OUTCOMES.iter().position(|&it| it == outcome));
        if let Some(place) = place {
            // ORDERING: relaxed, because the count publishes no other data.
            self.0[place].fetch_add(1, Relaxed);
        }
    }

    fn each(&self) -> impl Iterator<Item = (&'static str, u64)> {
        // ORDERING: relaxed, as in `count`.
        OUTCOMES.into_iter().zip(self.0.iter().map(|count| count.load(Relaxed)))
    }
}

impl Metrics {
    /// Creates metrics without any limit.
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns the counts for a limit, or for one of its classes.
    pub(crate) fn counts(&self, limit: &Arc<str>, class: Option<&str>) -> Arc<Counts> {
        let fresh = Arc::new(Counts::default());
        let is_it = |row: &Row| row.limit == *limit && row.class.as_deref() == class;
        let before = self.rows.rcu(|rows| {
            let mut rows = Vec::clone(rows);
            if !rows.iter().any(is_it) {
                let (limit, counts) = (Arc::clone(limit), Arc::clone(&fresh));
                rows.push(Row { limit, class: class.map(Into::into), counts });
            }
            rows
        });
        before.iter().find(|row| is_it(row)).map_or(fresh, |row| Arc::clone(&row.counts))
    }

    /// Adds the figures of a limiter, which are shown as long as the limiter exists. They replace
    /// the figures of an older limiter for the same limit and class.
    pub(crate) fn show(&self, limit: &Arc<str>, class: Option<&str>, figures: &Arc<ReadFigures>) {
        self.sources.rcu(|sources| {
            let mut sources = Vec::clone(sources);
            sources.retain(|source| (source.figures)().is_some());
            let (limit, figures) = (Arc::clone(limit), Arc::clone(figures));
            sources.push(FigureSource { limit, class: class.map(Into::into), figures });
            sources
        });
    }

    /// Returns the metrics in the text format of Prometheus (version 0.0.4). Answer a scrape with
    /// this text and the content type `text/plain; version=0.0.4`. See [`Metrics`] for an example.
    pub fn prometheus_text(&self) -> String {
        self.text(false)
    }

    /// Returns the metrics in the text format of Prometheus or, without the mark of its end, in
    /// that of OpenMetrics. OpenMetrics describes a counter under its name without `_total`.
    pub(crate) fn text(&self, is_open_metrics: bool) -> String {
        let mut text = String::new();
        for Family { name, help, grows, samples } in self.families() {
            let (end, kind) = if grows { ("_total", "counter") } else { ("", "gauge") };
            let described = if is_open_metrics { "" } else { end };
            // Writing to a `String` does not fail.
            let _ = writeln!(text, "# HELP {name}{described} {help}\n# TYPE {name}{described} {kind}");
            for (labels, value) in samples {
                let labels: Vec<String> =
                    labels.iter().map(|(label, value)| format!("{label}=\"{}\"", escaped(value))).collect();
                let _ = writeln!(text, "{name}{end}{{{}}} {value}", labels.join(","));
            }
        }
        text
    }

    /// Returns all metrics. Each metric has a sample for every limit and class to which it applies.
    pub(crate) fn families(&self) -> Vec<Family> {
        let rows = self.rows.load();
        let of_row = |row: &Row| -> Vec<_> {
            let outcome = |(outcome, count): (&str, u64)| {
                let mut labels = labels(&row.limit, row.class.as_deref());
                labels.push(("outcome", outcome.to_owned()));
                (labels, count)
            };
            row.counts.each().map(outcome).collect()
        };
        let mut families = vec![Family {
            name: "tollgate_decisions",
            help: "Decisions of each limit; if a request was refused, only the limits that refused it are counted",
            grows: true,
            samples: rows.iter().flat_map(of_row).collect(),
        }];
        let sources = self.sources.load();
        // For each limit and class, the newest limiter that still exists.
        let mut shown: Vec<(&FigureSource, Vec<Figure>)> = Vec::new();
        for source in sources.iter().rev() {
            let is_same =
                |(other, _): &(&FigureSource, _)| other.limit == source.limit && other.class == source.class;
            if !shown.iter().any(is_same) {
                shown.extend((source.figures)().map(|figures| (source, figures)));
            }
        }
        for (source, figures) in shown.iter().rev() {
            for &Figure { name, help, grows, value } in figures {
                let sample = (labels(&source.limit, source.class.as_deref()), value);
                match families.iter_mut().find(|family| family.name == name) {
                    Some(family) => family.samples.push(sample),
                    None => families.push(Family { name, help, grows, samples: vec![sample] }),
                }
            }
        }
        families.retain(|family| !family.samples.is_empty());
        families
    }
}

fn labels(limit: &str, class: Option<&str>) -> Labels {
    let mut labels = vec![("limit", limit.to_owned())];
    labels.extend(class.map(|class| ("class", class.to_owned())));
    labels
}

impl fmt::Debug for Metrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rows = self.rows.load();
        f.debug_list().entries(rows.iter().map(|row| (&row.limit, &row.class, &row.counts))).finish()
    }
}

/// The names and the values of labels.
type Labels = Vec<(&'static str, String)>;

/// A metric with its samples.
#[derive(Debug)]
pub struct Family {
    /// The name, without `_total`.
    pub name: &'static str,
    /// The help text.
    pub help: &'static str,
    /// Whether the metric is a counter.
    pub grows: bool,
    /// The labels and the value of each sample.
    pub samples: Vec<(Labels, u64)>,
}

/// Escapes the value of a label.
fn escaped(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}
