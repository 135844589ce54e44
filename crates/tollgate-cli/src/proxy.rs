//! Limits in front of a server: a small reverse proxy that streams.
//!
//! A connection ([`server`]) yields requests. Each becomes an
//! [`Exchange`](telemetry::exchange::Exchange), passes the limits ([`limits`], the library's own
//! layer and nothing else), and is forwarded to the [`Upstream`]. Bodies are streamed frame by
//! frame, at the speed of the slower side, and are never held whole. SIGHUP replaces the limits
//! (`reload`); operators look at them through `admin`.

mod activity;
mod admin;
pub(crate) mod args;
mod bad_requests;
mod connection;
pub mod limits;
mod linger;
mod log_line;
mod problem_details;
mod reload;
mod server;
pub(crate) mod settings;
pub mod shared;
mod signals;
mod telemetry;
pub mod upstream;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use tokio::net::TcpListener;
use tokio::runtime;
use tokio::sync::oneshot;
use tokio::task::spawn_blocking;
use tollgate_http::{BuildWarning, program};
use tollgate_redis::{Client, WhenUnavailable};

use admin::{Admin, Health};
use bad_requests::BadRequestLimit;
use limits::{AnyLimiter, Limits};
use log_line::log_line;
use reload::{Load, Reloaded, Reloader};
use server::Served;
use settings::Settings;
use shared::{SharedLimit, Store};
use signals::{Asked, Signals};
use telemetry::access_log::AccessLog;
use telemetry::exchange::Observer;
use telemetry::metrics::Metrics;
use upstream::forward::{Destination, Forward};
use upstream::head::Heads;
use upstream::service::Upstream;

use crate::failure::Failure;
use crate::printable::printable;

pub use args::parse_named_limit;

/// How long the remaining tasks may run after a shutdown.
const LAST_MOMENT: Duration = Duration::from_millis(500);

/// Runs the proxy until a signal ends it; `load` reads the settings anew for a reload.
///
/// # Errors
///
/// Limits that cannot be enforced, addresses that cannot be bound, a log that cannot be written.
pub(crate) fn run(settings: Settings, load: Load) -> Result<(), Failure> {
    let settings = Arc::new(settings);
    let limits = Arc::new(ArcSwap::<Limits>::default());
    let metrics = Arc::new(Metrics::new(Arc::clone(&limits)));
    let store = settings.shared.clone().map(Store::new).transpose();
    let store = store.map_err(|failure| settings.located(failure))?;
    let counts = |parts: &[_]| metrics.decisions_of(parts);
    let built = limits::build(&settings.limits, store.as_ref(), None, counts)
        .map_err(|failure| settings.located(failure))?;
    limits.store(Arc::new(built));
    let bad_requests = BadRequestLimit::new(settings.bad_requests, settings.clients.ipv6_prefix)
        .map_err(|failure| settings.located(failure))?;
    let (log, writer) = match &settings.access_log {
        Some(path) => {
            let (log, writer) = AccessLog::open(path, metrics.unlogged.clone())
                .map_err(|failure| settings.located(failure))?;
            (Some(log), Some(writer))
        }
        None => (None, None),
    };
    let runtime = runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::refused(format!("no threads to work with: {error}")))?;
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
        let observer = Arc::new(Observer { metrics: Arc::clone(&metrics), log: log.clone(), client });
        let bad_requests = Arc::new(bad_requests);
        let served = Served { forward, limits: Arc::clone(&limits), bad_requests, observer };
        let reloader = Reloader { load, settings, limits, store, metrics, log };
        serve(reloader, served).await
    });
    // Dropping the remaining tasks writes their lines to the log.
    runtime.shutdown_timeout(LAST_MOMENT);
    if let Some(writer) = writer {
        writer.finish();
    }
    done
}

async fn serve(reloader: Reloader, served: Served) -> Result<(), Failure> {
    let settings = Arc::clone(&reloader.settings);
    let (metrics, limits) = (Arc::clone(&reloader.metrics), Arc::clone(&reloader.limits));
    let mut signals = Signals::new()?;
    let located = |failure| settings.located(failure);
    let listener = bind(settings.listen, "--listen").await.map_err(located)?;
    let metrics_listener = match settings.metrics {
        Some(address) => Some(bind(address, "--metrics").await.map_err(located)?),
        None => None,
    };
    let local = |listener: &TcpListener| listener.local_addr().map_or("?".to_owned(), |it| it.to_string());
    log_limits(&settings, &limits.load());
    let store = reloader.store.as_ref().map(Store::client);
    if let Some(client) = &store {
        connect(client).await;
    }
    let needs_store =
        settings.shared.as_ref().is_some_and(|it| it.when_unavailable == Some(WhenUnavailable::Deny));
    let health = Health::new(settings.upstream.authority.clone(), store, needs_store);
    let admin = Arc::new(Admin { metrics: Arc::clone(&metrics), limits: Arc::clone(&limits), health });
    if let Some(listener) = metrics_listener {
        log_line(format_args!("metrics at http://{}/metrics", local(&listener)));
        tokio::spawn(admin::serve(listener, Arc::clone(&admin)));
    }
    let authority = &settings.upstream.authority;
    log_line(format_args!("listening on http://{} for http://{authority}", local(&listener)));
    let (stop, stopped) = oneshot::channel::<()>();
    let serving = tokio::spawn(server::serve(listener, served, settings.clients.clone(), async {
        // A closed channel also stops the server: no signal can arrive any more.
        let _ = stopped.await;
    }));
    let log = reloader.log.clone();
    let mut reloader = Some(reloader);
    loop {
        match signals.next().await {
            Asked::Reload => reloader = reload(reloader).await,
            Asked::ReopenLog => reopen(log.clone()).await,
            Asked::End => break,
        }
    }
    admin.health.drain();
    let _ = stop.send(());
    let Ok(graceful) = serving.await else {
        return Err(Failure::refused("the task that accepts connections has failed"));
    };
    let timeout = settings.shutdown_timeout;
    log_line(format_args!(
        "ending: open requests have {timeout:?}; a second signal ends the proxy immediately"
    ));
    let ended = async {
        graceful.shutdown().await;
        flush(&limits.load_full(), &Limits::default()).await;
    };
    tokio::select! {
        () = ended => {}
        () = tokio::time::sleep(timeout) => {
            log_line(format_args!("{} requests were cut off", metrics.in_flight.get()));
        }
        () = signals.end() => std::process::exit(1),
    }
    Ok(())
}

fn log_limits(settings: &Settings, limits: &Limits) {
    for limit in &settings.limits.limits {
        let shadow =
            if settings.limits.shadows.contains(&limit.name) { " (shadow: refuses nothing)" } else { "" };
        // The text of a limit begins with its name and `=`.
        let (name, text) = (&limit.name, limit.to_string());
        let terms = printable(&text.as_bytes()[name.len() + 1..]);
        log_line(format_args!("limit {name}: {terms}, {}{shadow}", settings.limits.algorithm));
    }
    if settings.limits.limits.is_empty() {
        log_line(format_args!("no limits: everything passes"));
    }
    for warning in &limits.warnings {
        match warning {
            BuildWarning::InventedKey { limit, key } => log_line(format_args!(
                "warning: limit {limit} counts by {}, which any client can invent: each invented one has a new \
                 quota, and enough of them leave no place for others; say which are known (known FILE), name \
                 paths in --path-template, or add the address (+ip)",
                printable(key.as_bytes())
            )),
            warning => log_line(format_args!("warning: {}", printable(warning.to_string().as_bytes()))),
        }
    }
}

/// Connects to the store, and says what is wrong with it.
async fn connect(client: &Client) {
    match client.connect().await {
        Ok(()) => log_line(format_args!("limits are shared with all proxies that use this store")),
        Err(error) => log_line(format_args!(
            "{error}; limits are not shared until the store answers (see --redis-when-unavailable)"
        )),
    }
    for warning in client.stats().problems.iter().filter(|problem| problem.is_warning()) {
        log_line(format_args!("warning: {warning}"));
    }
}

/// Reloads the settings on a thread that may block, and says what has changed. `None` if there is
/// no reloader any more, because an earlier reload has panicked.
async fn reload(reloader: Option<Reloader>) -> Option<Reloader> {
    let mut reloader = reloader?;
    let reloaded = spawn_blocking(move || {
        let reloaded = reloader.reload();
        (reloader, reloaded)
    });
    let Ok((reloader, reloaded)) = reloaded.await else {
        log_line(format_args!("the reload has failed in the program itself; the settings stay as they are"));
        return None;
    };
    match reloaded {
        Ok(Reloaded { settings, before, need_restart }) => {
            reloader.metrics.reloads.inc();
            log_limits(&settings, &reloader.limits.load());
            for option in need_restart {
                log_line(format_args!(
                    "{option} has changed, and takes effect when the proxy is started again"
                ));
            }
            log_line(format_args!("reloaded"));
            flush(&before, &reloader.limits.load_full()).await;
        }
        Err(failure) => {
            reloader.metrics.failed_reloads.inc();
            log_line(format_args!("nothing is reloaded: {failure}"));
        }
    }
    Some(reloader)
}

/// Opens the access log again on a thread that may block. If that fails, the log stays as it is.
async fn reopen(log: Option<AccessLog>) {
    let Some(log) = log else { return };
    match spawn_blocking(move || log.output().map(|output| log.write_to(output))).await {
        Ok(Ok(())) => log_line(format_args!("the access log is opened again")),
        Ok(Err(failure)) => log_line(format_args!("the access log is not opened again: {failure}")),
        Err(_) => log_line(format_args!("opening the access log again has failed in the program itself")),
    }
}

/// Tells the store what the shared limiters have not told yet, except for those that stay in use.
async fn flush(limits: &Limits, staying: &Limits) {
    let rate = |limiter: &AnyLimiter| match limiter {
        AnyLimiter::Shared(SharedLimit::Rate(limiter)) => Some(Arc::clone(limiter)),
        AnyLimiter::Shared(SharedLimit::InFlight(..)) | AnyLimiter::Local(_) => None,
    };
    let staying: Vec<_> = staying.iter().filter_map(|(_, limiter)| rate(limiter)).collect();
    for limiter in limits.iter().filter_map(|(_, limiter)| rate(limiter)) {
        if !staying.iter().any(|it| Arc::ptr_eq(it, &limiter)) {
            limiter.flush().await;
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
