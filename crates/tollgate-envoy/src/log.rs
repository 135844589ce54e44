//! Writes lines to Envoy's log, through the logger `dynamic_modules`.

use crate::abi::{self, LogLevel};
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

/// Writes a line if Envoy logs lines at this level.
#[allow(unsafe_code)]
pub(crate) fn log(level: LogLevel, message: fmt::Arguments<'_>) {
    // SAFETY: the function accepts any level.
    if unsafe { abi::envoy_dynamic_module_callback_log_enabled(level) } {
        let line = format!("tollgate: {message}");
        // SAFETY: the buffer outlives the call.
        unsafe { abi::envoy_dynamic_module_callback_log(level, line.as_str().into()) }
    }
}

/// The log for a thread of the module, which may outlive Envoy's log. Clones share their state.
#[derive(Clone)]
pub(crate) struct ThreadLog {
    /// The lock is held while a line is logged, because Envoy destroys its log when it exits.
    has_log: Arc<Mutex<bool>>,
}

impl Default for ThreadLog {
    fn default() -> Self {
        Self { has_log: Arc::new(Mutex::new(true)) }
    }
}

impl ThreadLog {
    /// Writes a line, unless the log is closed.
    pub(crate) fn log(&self, level: LogLevel, message: fmt::Arguments<'_>) {
        let has_log = self.has_log.lock().unwrap_or_else(PoisonError::into_inner);
        if *has_log {
            log(level, message);
        }
    }

    /// Closes the log: from now on, no line is written.
    pub(crate) fn close(&self) {
        *self.has_log.lock().unwrap_or_else(PoisonError::into_inner) = false;
    }
}
