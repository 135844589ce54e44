//! A service that keeps the counts of its limits over a deployment.
//!
//! ```sh
//! cargo run -p tollgate-http --features axum --example restart -- 127.0.0.1:3000 counts
//! ```

use axum::{Router, routing::get};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::{error::Error, net::SocketAddr, thread, time::Duration};
use tollgate::StateFile;
use tollgate_http::settings::{LayerSettings, SavedLimits};

/// Waits for SIGTERM, which systemd and Kubernetes send before they start the next version.
async fn end() {
    #[cfg(unix)]
    let ended = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate());
    #[cfg(unix)]
    let _ = ended.expect("the process may handle signals").recv().await;
    #[cfg(not(unix))]
    tokio::signal::ctrl_c().await.expect("the process may handle signals");
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args().skip(1);
    let mut arg = |default: &str| args.next().unwrap_or_else(|| default.to_owned());
    let (address, path) = (arg("127.0.0.1:3000"), arg("counts"));
    let limits = vec!["per-address=5/d by ip".parse()?, "all=5000/s by nothing".parse()?];
    let settings = LayerSettings { limits, ..LayerSettings::default() };

    // The file belongs to this process as long as it runs.
    let file = StateFile::open(path)?;
    let saved = file.read()?.map_or(Ok(SavedLimits::default()), SavedLimits::read);
    let saved = saved.or_else(|error| {
        eprintln!("{error}; the file is moved to {}", file.set_aside()?.display());
        Ok::<_, std::io::Error>(SavedLimits::default())
    })?;
    let builder = settings.builder_from(saved)?;
    builder.warnings().iter().for_each(|warning| eprintln!("{warning}"));
    let layer = builder.build()?;

    let app = Router::new().route("/", get(async || "hello\n")).layer(layer.clone());
    let listener = tokio::net::TcpListener::bind(address).await?;
    println!("listening on http://{}", listener.local_addr()?);
    // A process that is killed loses the counts of five seconds.
    let (stop, stopped) = channel::<()>();
    let saving = thread::spawn(move || {
        while stopped.recv_timeout(Duration::from_secs(5)) == Err(RecvTimeoutError::Timeout) {
            if let Err(error) = file.write(|to| layer.save(to)) {
                eprintln!("the counts are not saved: {error}");
            }
        }
        file.write(|to| layer.save(to))
    });
    let service = app.into_make_service_with_connect_info::<SocketAddr>();
    axum::serve(listener, service).with_graceful_shutdown(end()).await?;
    // No request is open any more, so the last save misses nothing.
    drop(stop);
    Ok(saving.join().expect("no save panics")?)
}
