//! Limits in front of a server: a small reverse proxy that streams.
//!
//! A connection ([`server`]) yields requests. Each becomes an
//! [`Exchange`](observe::exchange::Exchange), passes the limits ([`limits`], the library's own
//! layer and nothing else), and is forwarded to the [`Upstream`]. Bodies are streamed frame by
//! frame, at the speed of the slower side, and are never held whole.

mod activity;
pub(crate) mod args;
mod connection;
pub mod limits;
mod linger;
mod observe;
mod problem;
mod say;
mod server;
mod settings;
pub mod shared;
mod shutdown;
pub mod upstream;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::TcpListener;
use tokio::runtime;
use tokio::sync::oneshot;
use tollgate_http::Key;
use tollgate_redis::SharedLimiter;
use tower_layer::Layer;

use limits::Built;
use observe::access_log::AccessLog;
use observe::exchange::Observer;
use observe::metrics::Metrics;
use observe::metrics_server;
use say::say;
use server::Served;
use settings::Settings;
use shared::Store;
use shutdown::Signals;
use upstream::forward::{Destination, Forward};
use upstream::head::Heads;
use upstream::service::Upstream;

use crate::failure::Failure;
use crate::printable::printable;

pub use args::parse_named_limit;

/// How long the remaining tasks may run after a shutdown.
const LAST_MOMENT: Duration = Duration::from_millis(500);

/// Runs the proxy until a signal ends it.
///
/// # Errors
///
/// Limits that cannot be enforced, addresses that cannot be bound, a log that cannot be written.
pub(crate) fn run(settings: Settings) -> Result<(), Failure> {
    let metrics = Arc::new(Metrics::new(settings.limits.limits.iter().map(|limit| limit.name.clone())));
    let counting = Arc::clone(&metrics);
    let store = settings.shared.clone().map(Store::new).transpose()?;
    let Built { layer, observed, shared } =
        limits::build(&settings.limits, store.as_ref(), move |event| counting.decided(event))?;
    metrics.observe(observed);
    let (log, writer) = match &settings.access_log {
        Some(path) => {
            let (log, writer) = AccessLog::open(path, metrics.unlogged.clone())?;
            (Some(log), Some(writer))
        }
        None => (None, None),
    };
    let runtime = runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::refused(format!("no threads to work with: {error}")))?;
    let done = runtime.block_on(async {
        let upstream = Upstream::new(settings.upstream.clone());
        let heads = Heads {
            origin: settings.origin.clone(),
            preserves_host: settings.preserves_host,
            http2: settings.upstream.http2,
        };
        let destination = Destination { upstream, heads, metrics: Arc::clone(&metrics) };
        let forward = Forward { to: Arc::new(destination) };
        let client = settings.limits.proxies().is_some().then(|| settings.limits.client().ipv6_prefix(128));
        let observer = Arc::new(Observer { metrics, log, client });
        let limited = layer.map(|layer| layer.layer(forward.clone()));
        serve(&settings, &shared, Served { forward, limited, observer }).await
    });
    // Dropping the remaining tasks writes their lines to the log.
    runtime.shutdown_timeout(LAST_MOMENT);
    if let Some(writer) = writer {
        writer.finish();
    }
    done
}

async fn serve(
    settings: &Settings,
    shared: &[Arc<SharedLimiter<Key>>],
    served: Served,
) -> Result<(), Failure> {
    let mut signals = Signals::new()?;
    let metrics = Arc::clone(&served.observer.metrics);
    let listener = bind(settings.listen, "--listen").await?;
    let metrics_listener = match settings.metrics {
        Some(address) => Some(bind(address, "--metrics").await?),
        None => None,
    };
    let local = |listener: &TcpListener| listener.local_addr().map_or("?".to_owned(), |it| it.to_string());
    for limit in &settings.limits.limits {
        let shadow =
            if settings.limits.shadows.contains(&limit.name) { " (shadow: refuses nothing)" } else { "" };
        let key = limit.key.as_ref().map_or("nothing".to_owned(), ToString::to_string);
        let (name, quota, key) = (&limit.name, limit.quota, printable(key.as_bytes()));
        say(format_args!("limit {name}: {quota} by {key}, {}{shadow}", settings.limits.algorithm));
    }
    if let Some(limiter) = shared.first() {
        let client = limiter.client();
        match client.connect().await {
            Ok(()) => say(format_args!("limits are shared with all proxies that use this store")),
            Err(error) => say(format_args!(
                "{error}; limits are not shared until the store answers (see --redis-on-failure)"
            )),
        }
        for warning in client.problems().iter().filter(|problem| problem.is_warning()) {
            say(format_args!("warning: {warning}"));
        }
    }
    if settings.limits.limits.is_empty() {
        say(format_args!("no limits: everything passes"));
    }
    if let Some(listener) = metrics_listener {
        say(format_args!("metrics at http://{}/metrics", local(&listener)));
        tokio::spawn(metrics_server::serve(listener, Arc::clone(&metrics)));
    }
    say(format_args!("listening on http://{} for http://{}", local(&listener), settings.upstream.authority));
    let (stop, stopped) = oneshot::channel::<()>();
    let serving = tokio::spawn(server::serve(listener, served, settings.clients.clone(), async {
        // A closed channel also stops the server: no signal can arrive any more.
        let _ = stopped.await;
    }));
    signals.next().await;
    let _ = stop.send(());
    let Ok(graceful) = serving.await else {
        return Err(Failure::refused("the task that accepts connections has failed"));
    };
    let timeout = settings.shutdown_timeout;
    say(format_args!("ending: open requests have {timeout:?}; a second signal ends the proxy immediately"));
    let ended = async {
        graceful.shutdown().await;
        for limiter in shared {
            limiter.flush().await;
        }
    };
    tokio::select! {
        () = ended => {}
        () = tokio::time::sleep(timeout) => {
            say(format_args!("{} requests were cut off", metrics.in_flight.get()));
        }
        () = signals.next() => std::process::exit(1),
    }
    Ok(())
}

async fn bind(address: SocketAddr, name: &str) -> Result<TcpListener, Failure> {
    TcpListener::bind(address).await.map_err(|error| {
        Failure::refused(format!(
            "{name} {address}: {error}; choose an address of this machine and a port that is free, or port 0 for any"
        ))
    })
}
