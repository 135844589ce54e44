//! C programs that use the library, the header they include, and the names that it exports.

#[cfg(target_os = "linux")]
mod exports;
mod header;
#[cfg(target_os = "linux")]
mod install;
mod keys;
#[cfg(target_os = "linux")]
mod programs;
