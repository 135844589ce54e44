//! A harness shared by the tests, benchmarks, models and fuzz targets of several crates.
//!
//! This crate is not published. It has one feature for each crate under test, so that the core's
//! tests do not build servers or stores.

// The names explain themselves, and only tests link this crate.
#![allow(missing_docs, clippy::new_without_default)]

pub mod fuzz;
pub mod limit_texts;
pub mod oracle;
pub mod paths;
pub mod race;
pub mod spellings;
#[cfg(all(feature = "redis", unix))]
pub mod store;
#[cfg(feature = "http")]
pub mod structured;

/// Compiles and runs the README's example.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;

/// Compiles the examples on the page for users of governor.
#[cfg(all(doctest, feature = "http"))]
#[doc = include_str!("../../../docs/from-governor.md")]
struct FromGovernor;
