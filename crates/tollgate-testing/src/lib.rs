//! What the tests, benches, models and fuzz targets of several crates share.
//!
//! Nothing here is published. A feature for each crate that is tested, so that the tests of the core
//! build no server and no store.

#![allow(missing_docs, clippy::new_without_default)] // Each name says what it is for; nobody else links this.

pub mod fuzz;
pub mod oracle;
pub mod race;
#[cfg(all(feature = "redis", unix))]
pub mod store;
#[cfg(feature = "http")]
pub mod structured;

/// The README's examples, compiled and run.
#[cfg(all(doctest, feature = "http", feature = "redis"))]
#[doc = include_str!("../../../README.md")]
struct Readme;

/// Those of the page for users of governor.
#[cfg(all(doctest, feature = "http"))]
#[doc = include_str!("../../../docs/from-governor.md")]
struct FromGovernor;
