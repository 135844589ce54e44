//! The bodies of the fuzz targets: `fuzz/` calls them with what the fuzzer makes up, tests with what
//! it has found.

#[cfg(feature = "http")]
pub mod fields;
#[cfg(feature = "http")]
pub mod forwarded;
pub mod input;
#[cfg(feature = "cli")]
pub mod limit_text;
pub mod limiter;
#[cfg(feature = "cli")]
pub mod log;
pub mod quota;
pub mod rule;
pub mod saved;
