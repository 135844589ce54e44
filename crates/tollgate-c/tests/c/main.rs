//! C programs that use the library, the header that they include, and the names that the library
//! exports.

#[cfg(target_os = "linux")]
mod exports;
#[cfg(target_os = "linux")]
mod haproxy;
mod header;
#[cfg(target_os = "linux")]
mod install;
mod keys;
#[cfg(target_os = "linux")]
mod programs;
