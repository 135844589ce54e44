//! The bodies of the fuzz targets. The targets in `fuzz/` call them with the fuzzer's bytes, and
//! tests call them with saved inputs.

#[cfg(feature = "http")]
pub mod fields;
#[cfg(feature = "http")]
pub mod forwarded;
#[cfg(feature = "proxy")]
pub mod heads;
pub mod input;
#[cfg(feature = "proxy")]
pub mod limit_text;
pub mod limiter;
#[cfg(feature = "cli")]
pub mod log;
pub mod quota;
pub mod rule;
pub mod saved;
pub mod state;
