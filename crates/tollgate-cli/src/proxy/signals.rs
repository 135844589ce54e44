//! Receives the signals that end the proxy, reload its settings, or reopen its access log.

use tokio::runtime::Runtime;

use crate::failure::Failure;

#[cfg(unix)]
use tokio::signal::unix::{Signal, SignalKind, signal};

/// The operation that a signal requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SignalAction {
    /// SIGHUP, which exists only on Unix.
    Reload,
    /// SIGUSR1, as in nginx. It exists only on Unix.
    ReopenLog,
    /// SIGINT and SIGTERM, or Ctrl-C on systems other than Unix.
    End,
}

/// The signals that do not end the proxy. Without their handlers, they would end a proxy that is
/// still starting, and a service manager would take that for an orderly end.
pub(crate) struct EarlySignals {
    #[cfg(unix)]
    reload: Signal,
    #[cfg(unix)]
    reopen_log: Signal,
}

impl EarlySignals {
    /// Keeps these signals for [`Signals::next`].
    ///
    /// # Errors
    ///
    /// Returns an error if a signal handler cannot be installed.
    pub(crate) fn new(runtime: &Runtime) -> Result<Self, Failure> {
        let _entered = runtime.enter();
        Ok(Self {
            #[cfg(unix)]
            reload: listen(SignalKind::hangup())?,
            #[cfg(unix)]
            reopen_log: listen(SignalKind::user_defined1())?,
        })
    }
}

/// The signals that the proxy listens for.
pub(crate) struct Signals {
    #[cfg_attr(not(unix), expect(dead_code, reason = "these signals exist only on Unix"))]
    early: EarlySignals,
    #[cfg(unix)]
    end: [Signal; 2],
}

impl Signals {
    /// Adds the signals that end the proxy.
    ///
    /// # Errors
    ///
    /// Returns an error if a signal handler cannot be installed.
    pub(crate) fn new(early: EarlySignals) -> Result<Self, Failure> {
        Ok(Self {
            early,
            #[cfg(unix)]
            end: [listen(SignalKind::interrupt())?, listen(SignalKind::terminate())?],
        })
    }

    /// Waits for the next signal.
    #[cfg(unix)]
    pub(crate) async fn next(&mut self) -> SignalAction {
        let Self { early: EarlySignals { reload, reopen_log }, end: [interrupt, terminate] } = self;
        tokio::select! {
            _ = reload.recv() => SignalAction::Reload,
            _ = reopen_log.recv() => SignalAction::ReopenLog,
            _ = interrupt.recv() => SignalAction::End,
            _ = terminate.recv() => SignalAction::End,
        }
    }

    /// Waits for the next signal, or forever if no signal can arrive.
    #[cfg(not(unix))]
    pub(crate) async fn next(&mut self) -> SignalAction {
        if tokio::signal::ctrl_c().await.is_err() {
            std::future::pending::<()>().await;
        }
        SignalAction::End
    }

    /// Waits for a signal that ends the proxy. Other signals wait for [`next`](Self::next).
    #[cfg(unix)]
    pub(crate) async fn end(&mut self) {
        let [interrupt, terminate] = &mut self.end;
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
    }

    /// Waits for a signal that ends the proxy, or forever if no signal can arrive.
    #[cfg(not(unix))]
    pub(crate) async fn end(&mut self) {
        self.next().await;
    }
}

#[cfg(unix)]
fn listen(kind: SignalKind) -> Result<Signal, Failure> {
    signal(kind).map_err(|error| Failure::refused(format!("signals can't be listened for: {error}")))
}
