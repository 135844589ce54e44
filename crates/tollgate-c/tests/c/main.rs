//! C programs that use the library, the header they include, and the names that it exports.

#[cfg(target_os = "linux")]
mod exports;
mod header;
mod keys;
#[cfg(target_os = "linux")]
mod programs;
