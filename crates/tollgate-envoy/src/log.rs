//! Lines in Envoy's log, from the logger `dynamic_modules`.

use crate::abi::{self, LogLevel};
use std::fmt;

/// Writes a line, if lines of this level are written.
#[allow(unsafe_code)]
pub(crate) fn log(level: LogLevel, message: fmt::Arguments<'_>) {
    // SAFETY: the function takes any level.
    if unsafe { abi::envoy_dynamic_module_callback_log_enabled(level) } {
        let line = format!("tollgate: {message}");
        // SAFETY: the buffer lives until the function returns.
        unsafe { abi::envoy_dynamic_module_callback_log(level, line.as_str().into()) }
    }
}
