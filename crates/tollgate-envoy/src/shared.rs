//! The store of a configuration, and the limits that count in the store.
//!
//! Filters whose settings name the same servers share one connection. A task of the connection logs
//! when the store is lost and found. Another task reads the figures of each limit every few
//! seconds, and the next request that the limit's filter decides writes them to Envoy's stats,
//! because Envoy accepts figures only from the hooks of a stream.
//!
//! # Orderings
//!
//! | edge | release side | acquire side | what becomes visible |
//! |---|---|---|---|
//! | figures | `is_due` is set in `SharedPart::read` | `is_due` is cleared in `SharedFigures::publish` | the figures in `latest` |
//!
//! A figure that is published late is not lost: `published` never decreases, and the next
//! publication adds what has grown since.
//!
//! A limit with new settings has a new limiter with the same connection. While the earlier
//! configuration drains, both limiters read the figures of the connection. They share `published`
//! for the figure that grows.

use crate::abi::{EnvoyConfig, EnvoyStream, INFO, WARN};
use crate::counters::{add, define, set};
use crate::runtime::StoreRuntime;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Arc, Weak};
use std::time::Duration;
use tokio::task::{AbortHandle, spawn_blocking};
use tokio::time::sleep;
use tollgate_http::program::figure_parts;
use tollgate_http::settings::LimitPart;
use tollgate_redis::program::{SettingNames, SharedLimit, Store, StoreLine, StoreSettings};

/// How often figures are read. Envoy flushes its stats in the same interval by default.
const INTERVAL: Duration = Duration::from_secs(5);

/// The only growing figure that all limits with one connection have in common.
const OF_CLIENT: &str = "tollgate_store_breaker_trips";

/// The names of the settings in a configuration.
pub(crate) const NAMES: SettingNames = SettingNames { prefix: "", limit: |name| format!("limit `{name}`") };

/// A task that ends with this value.
struct Background(AbortHandle);

impl Drop for Background {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// The store of a configuration.
pub(crate) struct SharedStore {
    store: Store,
    /// The task that watches the connection, for all configurations with the same servers. `None`
    /// before the store is started.
    watch: Option<Arc<Background>>,
    runtime: Option<Arc<StoreRuntime>>,
}

impl SharedStore {
    /// Creates a store, which does not connect before it is started. If `other` is given, uses its
    /// connection, which must be to the same servers. If `is_serving` is false, the store never
    /// connects.
    ///
    /// # Errors
    ///
    /// Returns an error if a setting is refused, or if there is no thread for the store.
    pub(crate) fn new(
        settings: StoreSettings,
        other: Option<&Self>,
        is_serving: bool,
    ) -> Result<Self, String> {
        let store = Store::new(settings, NAMES, other.map(|other| &other.store))?;
        if !is_serving {
            return Ok(Self { store, watch: None, runtime: None });
        }
        let watch = other.and_then(|other| other.watch.clone());
        Ok(Self { store, watch, runtime: Some(StoreRuntime::get()?) })
    }

    /// Connects, unless another configuration has connected. A configuration that is refused later
    /// would have to wait for the end of the attempt.
    pub(crate) fn start(&mut self) {
        if let (Some(runtime), None) = (&self.runtime, &self.watch) {
            runtime.wait_for(self.store.link());
            self.watch = Some(Arc::new(watch_connection(&self.store, runtime)));
        }
    }

    /// Returns whether the settings name the servers of this store.
    pub(crate) fn is_at_same_servers(&self, settings: &StoreSettings) -> bool {
        self.store.settings().is_at_same_servers(settings)
    }

    pub(crate) fn store(&self) -> &Store {
        &self.store
    }

    pub(crate) fn runtime(&self) -> Option<&Arc<StoreRuntime>> {
        self.runtime.as_ref()
    }

    /// Adds what a limit needs to its limiter. `earlier` is a part in force that has the same name
    /// and connection.
    pub(crate) fn part(&self, limit: SharedLimit, earlier: Option<&SharedPart>) -> Arc<SharedPart> {
        let figures = limit.figures().into_iter().map(|figure| {
            let (name, grows, now) = figure_parts(&figure);
            let mut published = earlier.into_iter().flat_map(|part| &part.figures);
            let published = published.find(|it| it.name == name && name == OF_CLIENT);
            let published = published.map(|it| Arc::clone(&it.published));
            // The client may have counted for another limit.
            let published =
                published.unwrap_or_else(|| Arc::new(AtomicU64::new(if grows { now } else { 0 })));
            PublishedFigure { name, grows, latest: AtomicU64::new(now), published }
        });
        let figures = figures.collect();
        Arc::new_cyclic(|part: &Weak<SharedPart>| {
            let part = Weak::clone(part);
            let read = async move {
                loop {
                    sleep(INTERVAL).await;
                    let Some(part) = part.upgrade() else { return };
                    // A limit with leases visits all its keys, which must not delay an answer.
                    let _ = spawn_blocking(move || part.read()).await;
                }
            };
            let reading = self.runtime.as_ref().map(|runtime| Background(runtime.spawn(read)));
            SharedPart { limit, figures, is_due: AtomicBool::new(false), _reading: reading }
        })
    }
}

impl Drop for SharedStore {
    fn drop(&mut self) {
        // The watch ends before the runtime, which waits for its tasks.
        self.watch = None;
    }
}

fn watch_connection(store: &Store, runtime: &Arc<StoreRuntime>) -> Background {
    let (client, log) = (store.client().clone(), runtime.log());
    let report = move |line: StoreLine| {
        let level = if line.is_warning { WARN } else { INFO };
        log.log(level, format_args!("redis: {}", line.text));
    };
    Background(runtime.spawn(async move {
        let is_up = Store::connect(&client, NAMES, &report).await;
        Store::watch(client, NAMES, is_up, report).await;
    }))
}

/// A part of a limit that counts in a store, and its figures. The configurations that continue the
/// limiter share this value.
pub(crate) struct SharedPart {
    pub(crate) limit: SharedLimit,
    figures: Vec<PublishedFigure>,
    /// Whether a hook should publish the figures.
    is_due: AtomicBool,
    _reading: Option<Background>,
}

struct PublishedFigure {
    name: &'static str,
    grows: bool,
    latest: AtomicU64,
    /// The part of a growing figure that Envoy's counter contains.
    published: Arc<AtomicU64>,
}

impl SharedPart {
    /// Reads the figures.
    fn read(&self) {
        for (published, figure) in self.figures.iter().zip(self.limit.figures()) {
            let (_, _, value) = figure_parts(&figure);
            // ORDERING: relaxed, because the store below publishes the figures.
            published.latest.store(value, Relaxed);
        }
        // ORDERING: release, the edge of the figures.
        self.is_due.store(true, Release);
    }

    /// Reads the figures at once, for tests.
    pub(crate) fn read_now(&self) {
        self.read();
    }
}

/// The figures of a configuration's shared limits in Envoy's stats.
pub(crate) struct SharedFigures(Vec<FigureRow>);

/// The figures of one part, with their numbers in Envoy. A number is `None` if Envoy has refused
/// the figure.
struct FigureRow(Arc<SharedPart>, Vec<Option<usize>>);

impl SharedFigures {
    /// Defines the figures. `config` is either null or a configuration that is currently being
    /// created.
    pub(crate) fn new<'p>(
        config: *mut EnvoyConfig,
        filter: &str,
        parts: impl Iterator<Item = (&'p LimitPart, &'p Arc<SharedPart>)>,
    ) -> Self {
        let row = |(limit, part): (&LimitPart, &Arc<SharedPart>)| {
            let ids = part.figures.iter().map(|figure| {
                let name = figure.name.trim_start_matches("tollgate_").replace('_', "-");
                define(config, &format!("tollgate.{filter}.{}.{name}", limit.name), figure.grows)
            });
            FigureRow(Arc::clone(part), ids.collect())
        };
        Self(parts.map(row).collect())
    }

    /// Writes the figures that were read since the last call to Envoy's stats, in a hook of a
    /// stream of this configuration.
    pub(crate) fn publish(&self, stream: *mut EnvoyStream) {
        for FigureRow(part, ids) in &self.0 {
            // ORDERING: relaxed, because the swap below acquires the figures. The load keeps
            // requests from writing.
            if !part.is_due.load(Relaxed) {
                continue;
            }
            // ORDERING: acquire, the edge of the figures.
            if !part.is_due.swap(false, Acquire) {
                continue;
            }
            for (figure, id) in part.figures.iter().zip(ids) {
                let Some(id) = *id else { continue };
                // ORDERING: relaxed, because the swap has acquired the figures.
                let latest = figure.latest.load(Relaxed);
                if !figure.grows {
                    set(stream, id, latest);
                    continue;
                }
                // ORDERING: relaxed, because each publisher adds the part by which it has raised
                // this number.
                let before = figure.published.fetch_max(latest, Relaxed);
                if latest > before {
                    add(stream, id, latest - before);
                }
            }
        }
    }
}
