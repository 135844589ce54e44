//! Enforces limits in front of a server, as a small streaming reverse proxy.
//!
//! Each connection ([`server`]) yields requests. Each request becomes an
//! [`Exchange`](telemetry::exchange::Exchange), passes the limits, and is forwarded to the
//! [`Upstream`]. Only the layer of `tollgate-http` enforces the limits ([`limits`]).
//!
//! Bodies are streamed frame by frame, at the speed of the slower side, and are never buffered
//! whole. SIGHUP replaces the limits (`reload`). Operators inspect the limits through `admin`.
//! `state` keeps their counts in a file.

mod activity;
mod admin;
pub(crate) mod args;
mod bad_requests;
mod connection;
mod enforced;
pub mod limits;
mod linger;
mod log_line;
mod problem_details;
pub(crate) mod refusals;
mod reload;
mod server;
pub(crate) mod settings;
mod signals;
mod state;
mod telemetry;
pub mod upstream;

use std::io::{self, Write};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use tokio::net::TcpListener;
use tokio::runtime;
use tokio::sync::oneshot;
use tokio::task::spawn_blocking;
use tollgate_http::settings::{LayerSettings, LimitText, SavedLimits};
use tollgate_http::{BuildWarning, ForwardedField, program};
use tollgate_redis::program::{SharedLimit, Store, StoreLine};

use admin::{Admin, Health};
use bad_requests::BadRequestLimit;
use limits::{AnyLimiter, Limits, NAMES};
use log_line::Level;
use reload::{LoadSettings, Reloaded, Reloader};
use server::Served;
use settings::ProxySettings;
use signals::{EarlySignals, SignalAction, Signals};
use state::StateWriter;
use telemetry::access_log::{self, AccessLog};
use telemetry::exchange::Observer;
use telemetry::metrics::Metrics;
use upstream::forward::{Destination, Forward};
use upstream::head::Heads;
use upstream::service::Upstream;

use crate::failure::Failure;
use crate::printable::printable;

pub use crate::limit::parse_named_limit;

/// How long the remaining tasks may run after a shutdown.
const LAST_MOMENT: Duration = Duration::from_millis(500);

/// The parts of a proxy that can be built from its settings without opening a file or binding an
/// address.
struct Made {
    limits: Arc<ArcSwap<Limits>>,
    store: Option<Store>,
    metrics: Arc<Metrics>,
    bad_requests: BadRequestLimit,
}

impl Made {
    /// # Errors
    ///
    /// Returns an error if a limit cannot be enforced, or if the store's address is invalid.
    fn of(settings: &ProxySettings, saved: SavedLimits) -> Result<Self, Failure> {
        let limits = Arc::new(ArcSwap::<Limits>::default());
        let store = settings.shared.clone().map(|shared| Store::new(shared, NAMES, None));
        let store = store.transpose().map_err(Failure::refused)?;
        let metrics = Arc::new(Metrics::new());
        limits.store(Arc::new(enforced::build(settings, store.as_ref(), None, saved, &metrics.decisions)?));
        let bad_requests = BadRequestLimit::new(settings.bad_requests, settings.clients.ipv6_prefix)?;
        Ok(Self { limits, store, metrics, bad_requests })
    }
}

/// Validates settings as a starting proxy does, and reports success on standard output. This
/// function binds no address, opens no connection and creates no file.
///
/// # Errors
///
/// Returns the same errors as [`run`], apart from failures to bind an address.
pub(crate) fn check(settings: &ProxySettings) -> Result<(), Failure> {
    let saved = settings.state.as_deref().map(state::check).transpose();
    let saved = saved.map_err(|failure| settings.located(failure))?.unwrap_or_default();
    let made = Made::of(settings, saved).map_err(|failure| settings.located(failure))?;
    if let Some((path, _)) = &settings.access_log {
        access_log::check(path).map_err(|failure| settings.located(failure))?;
    }
    let limits = made.limits.load();
    log_warnings(settings, &limits);
    let all = &limits.settings.limits;
    let count = all.len();
    let file = settings.config.as_ref().map_or("the settings", |config| config.name());
    let plural = if count == 1 { "" } else { "s" };
    let mut lines = format!("{file}: the proxy would start, with {count} limit{plural}\n");
    all.iter().for_each(|limit| lines.push_str(&format!("{}\n", described(&limits.settings, limit))));
    io::stdout().write_all(lines.as_bytes()).map_err(|error| Failure::writing_stdout(&error))
}

/// Runs the proxy until a signal ends it. A reload calls `load` to read the settings again.
///
/// # Errors
///
/// Returns an error if a limit cannot be enforced, an address cannot be bound, or the access log
/// cannot be written. The reason is written to standard error.
pub(crate) fn run(settings: ProxySettings, load: LoadSettings) -> Result<(), Failure> {
    try_run(settings, load).map_err(|failure| match failure {
        Failure::Refused(why) => {
            log_line::error(format_args!("{why}"));
            Failure::Logged
        }
        other => other,
    })
}

fn try_run(settings: ProxySettings, load: LoadSettings) -> Result<(), Failure> {
    let runtime = runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::refused(format!("no threads to work with: {error}")))?;
    // Reading the state and allocating the tables may take seconds.
    let signals = EarlySignals::new(&runtime)?;
    let settings = Arc::new(settings);
    let state = settings.state.as_deref().map(state::open).transpose();
    let state = state.map_err(|failure| settings.located(failure))?;
    let (file, saved) = state.map_or_else(Default::default, |(file, saved)| (Some(file), saved));
    let made = Made::of(&settings, saved).map_err(|failure| settings.located(failure))?;
    let Made { limits, store, metrics, bad_requests } = made;
    let (log, writer) = match &settings.access_log {
        Some((path, format)) => {
            let (log, writer) = AccessLog::open(path, *format, metrics.unlogged.clone())
                .map_err(|failure| settings.located(failure))?;
            (Some(log), Some(writer))
        }
        None => (None, None),
    };
    let start = |file| StateWriter::start(file, Arc::clone(&limits), metrics.unwritten_states.clone());
    let state = file.map(start).transpose()?;
    let done = runtime.block_on(async {
        let upstream = Upstream::new(settings.upstream.clone(), metrics.repeated.clone());
        let heads = Heads {
            origin: settings.origin.clone(),
            preserves_host: settings.preserves_host,
            http2: settings.upstream.http2,
        };
        let destination = Destination { upstream, heads, metrics: Arc::clone(&metrics) };
        let forward = Forward { to: Arc::new(destination) };
        let client =
            program::proxies(&settings.limits).map(|_| program::client(&settings.limits).ipv6_prefix(128));
        let field = program::field_watch(&settings.limits);
        let observer = Arc::new(Observer { metrics: Arc::clone(&metrics), log: log.clone(), client, field });
        let bad_requests = Arc::new(bad_requests);
        let served = Served { forward, limits: Arc::clone(&limits), bad_requests, observer };
        let reloader = Reloader { load, settings, limits, store, metrics, log };
        serve(reloader, served, signals).await
    });
    // Dropping the remaining tasks writes their lines to the log.
    runtime.shutdown_timeout(LAST_MOMENT);
    if let Some(state) = state {
        state.finish();
    }
    if let Some(writer) = writer {
        writer.finish();
    }
    done
}

async fn serve(reloader: Reloader, served: Served, signals: EarlySignals) -> Result<(), Failure> {
    let settings = Arc::clone(&reloader.settings);
    let (metrics, limits) = (Arc::clone(&reloader.metrics), Arc::clone(&reloader.limits));
    let mut signals = Signals::new(signals)?;
    let located = |failure| settings.located(failure);
    let listener = bind(settings.listen, "--listen").await.map_err(located)?;
    let metrics_listener = match settings.metrics {
        Some(address) => Some(bind(address, "--metrics").await.map_err(located)?),
        None => None,
    };
    let local = |listener: &TcpListener| listener.local_addr().map_or("?".to_owned(), |it| it.to_string());
    log_limits(&settings, &limits.load());
    let store = reloader.store.as_ref().map(|store| store.client().clone());
    if let Some(client) = &store {
        let is_up = Store::connect(client, NAMES, log_store).await;
        tokio::spawn(Store::watch(client.clone(), NAMES, is_up, log_store));
    }
    let needs_store = reloader.store.as_ref().is_some_and(Store::denies_when_unavailable);
    let health = Health::new(settings.upstream.authority.clone(), store, needs_store);
    let admin = Arc::new(Admin { metrics: Arc::clone(&metrics), limits: Arc::clone(&limits), health });
    if let Some(listener) = metrics_listener {
        log_line::info(format_args!("metrics at http://{}/metrics", local(&listener)));
        tokio::spawn(admin::serve(listener, Arc::clone(&admin)));
    }
    let authority = &settings.upstream.authority;
    log_line::info(format_args!("listening on http://{} for http://{authority}", local(&listener)));
    let (stop, stopped) = oneshot::channel::<()>();
    let serving = tokio::spawn(server::serve(listener, served, settings.clients.clone(), async {
        // The server also stops if the sender is dropped, because no signal could arrive any more.
        let _ = stopped.await;
    }));
    let log = reloader.log.clone();
    let mut reloader = Some(reloader);
    loop {
        let asked = signals.next().await;
        // A file that accepts no bytes, such as a pipe without a reader, must not delay the end.
        let answered = async {
            match asked {
                SignalAction::Reload => reloader = reload(reloader.take()).await,
                SignalAction::ReopenLog => reopen(log.clone()).await,
                SignalAction::End => {}
            }
        };
        tokio::select! {
            // After a signal that ends the proxy, `answered` is ready at once. It is polled first,
            // so that a second such signal is left for the shutdown below.
            biased;
            () = answered => {}
            () = signals.end() => break,
        }
        if asked == SignalAction::End {
            break;
        }
    }
    admin.health.drain();
    let _ = stop.send(());
    let Ok(graceful) = serving.await else {
        return Err(Failure::refused("the task that accepts connections has failed"));
    };
    let timeout = settings.shutdown_timeout;
    let ending =
        format!("ending: open requests have {timeout:?}; a second signal ends the proxy immediately");
    log_line::last(Level::Info, ending);
    let ended = async {
        tokio::select! {
            () = graceful.shutdown() => {}
            () = tokio::time::sleep(timeout) => {
                log_line::last(Level::Warn, format!("{} requests were cut off", metrics.in_flight.get()));
            }
        }
        flush(&limits.load_full(), &Limits::default()).await;
    };
    tokio::select! {
        () = ended => {}
        () = signals.end() => std::process::exit(1),
    }
    Ok(())
}

/// Returns a limit as it was read, in one line.
fn described(settings: &LayerSettings, limit: &LimitText) -> String {
    let shadow = if settings.shadows.contains(&limit.name) { " (shadow: refuses nothing)" } else { "" };
    // A limit's text begins with the limit's name and `=`.
    let (name, text) = (&limit.name, limit.to_string());
    let terms = printable(&text.as_bytes()[name.len() + 1..]);
    format!("limit {name}: {terms}, {}{shadow}", settings.algorithm)
}

fn log_limits(settings: &ProxySettings, limits: &Limits) {
    for limit in &settings.limits.limits {
        log_line::info(format_args!("{}", described(&settings.limits, limit)));
    }
    if settings.limits.limits.is_empty() {
        log_line::info(format_args!("no limits: everything passes"));
    }
    log_warnings(settings, limits);
    for limit in settings.limits.charge_if.keys() {
        let warning = settings.shared.as_ref().and_then(|shared| shared.charge_if_warning(NAMES, limit));
        if let Some(warning) = warning {
            log_line::warn(format_args!("{warning}"));
        }
    }
}

fn log_warnings(settings: &ProxySettings, limits: &Limits) {
    if let Some(warning) = state::warning(settings, limits) {
        log_line::warn(format_args!("{warning}"));
    }
    if let (ForwardedField::Single(field), None) = (&settings.origin.field, &settings.origin.trusted) {
        log_line::warn(format_args!(
            "--forwarded-field {field} names the client to the upstream only, because no proxy is trusted: if proxies \
             in front of this one report the client in this field, name them in --trust or --trust-hops, or else each \
             of them counts as one client"
        ));
    }
    for warning in &limits.warnings {
        match warning {
            BuildWarning::InventedKey { limit, key } => log_line::warn(format_args!(
                "limit {limit} counts by {}, which any client can invent: each invented one has a new \
                 quota, enough of them leave no place for others, and a client that names the one of \
                 another uses up that client's quota; say which are known (known FILE), name paths in \
                 --path-template, or add the address (+ip)",
                printable(key.as_bytes())
            )),
            warning => log_line::warn(format_args!("{}", printable(warning.to_string().as_bytes()))),
        }
    }
}

/// Logs a line about the store.
fn log_store(line: StoreLine) {
    match line.is_warning {
        true => log_line::warn(format_args!("{}", line.text)),
        false => log_line::info(format_args!("{}", line.text)),
    }
}

/// Reloads the settings on a thread that may block, and logs the changes. Returns `None` if this
/// reload or an earlier one has panicked, because the reloader is then lost.
async fn reload(reloader: Option<Reloader>) -> Option<Reloader> {
    let mut reloader = reloader?;
    let reloaded = spawn_blocking(move || {
        let reloaded = reloader.reload();
        (reloader, reloaded)
    });
    let Ok((reloader, reloaded)) = reloaded.await else {
        log_line::error(format_args!(
            "the reload has failed in the program itself; the settings stay as they are"
        ));
        return None;
    };
    match reloaded {
        Ok(Reloaded { settings, before, need_restart }) => {
            reloader.metrics.reloads.inc();
            log_limits(&settings, &reloader.limits.load());
            for option in need_restart {
                log_line::warn(format_args!(
                    "{option} has changed, and takes effect when the proxy is started again"
                ));
            }
            log_line::info(format_args!("reloaded"));
            flush(&before, &reloader.limits.load_full()).await;
        }
        Err(failure) => {
            reloader.metrics.failed_reloads.inc();
            log_line::error(format_args!("nothing is reloaded: {failure}"));
        }
    }
    Some(reloader)
}

/// Reopens the access log on a thread that may block. If reopening fails, the log keeps its current
/// output.
async fn reopen(log: Option<AccessLog>) {
    let Some(log) = log else { return };
    match spawn_blocking(move || log.output().map(|output| log.write_to(output))).await {
        Ok(Ok(())) => log_line::info(format_args!("the access log is opened again")),
        Ok(Err(failure)) => log_line::error(format_args!("the access log is not opened again: {failure}")),
        Err(_) => {
            log_line::error(format_args!("opening the access log again has failed in the program itself"))
        }
    }
}

/// Reports the shared limiters' outstanding counts to the store. Skips limiters that are also in
/// `staying`, because they remain in use.
async fn flush(limits: &Limits, staying: &Limits) {
    let shared = |limiter: &AnyLimiter| match limiter {
        AnyLimiter::Shared(limit) => Some(limit.clone()),
        AnyLimiter::Local(_) => None,
    };
    let staying: Vec<SharedLimit> = staying.iter().filter_map(|(_, limiter)| shared(limiter)).collect();
    for limit in limits.iter().filter_map(|(_, limiter)| shared(limiter)) {
        if !staying.iter().any(|it| it.is_same(&limit)) {
            limit.flush().await;
        }
    }
}

async fn bind(address: SocketAddr, name: &str) -> Result<TcpListener, Failure> {
    TcpListener::bind(address).await.map_err(|error| {
        Failure::refused(format!(
            "{name} {address}: {error}; choose an address of this machine and a port that is free, or port 0 for any"
        ))
    })
}
