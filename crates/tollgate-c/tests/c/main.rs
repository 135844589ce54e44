//! C programs that use the library, the header they include, and the names that it exports.

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
