//! Writes lines to Envoy's log, through the logger `dynamic_modules`.

use crate::abi::{self, LogLevel};
use std::fmt;

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
