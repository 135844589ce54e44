//! The signals that end the proxy.

use crate::failure::Failure;

#[cfg(unix)]
use tokio::signal::unix::{Signal, SignalKind, signal};

/// SIGINT and SIGTERM; Ctrl-C on systems other than Unix.
pub(crate) struct Signals {
    #[cfg(unix)]
    kinds: [Signal; 2],
}

impl Signals {
    /// # Errors
    ///
    /// Signal handlers that cannot be installed.
    pub(crate) fn new() -> Result<Self, Failure> {
        Ok(Self {
            #[cfg(unix)]
            kinds: [listen(SignalKind::interrupt())?, listen(SignalKind::terminate())?],
        })
    }

    /// Waits for the next signal.
    #[cfg(unix)]
    pub(crate) async fn next(&mut self) {
        let [interrupt, terminate] = &mut self.kinds;
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
    }

    /// Waits for the next signal, for ever if none can arrive.
    #[cfg(not(unix))]
    pub(crate) async fn next(&mut self) {
        if tokio::signal::ctrl_c().await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}

#[cfg(unix)]
fn listen(kind: SignalKind) -> Result<Signal, Failure> {
    signal(kind).map_err(|error| Failure::refused(format!("signals can't be listened for: {error}")))
}
