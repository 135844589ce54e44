//! Limits that machines share, in Redis or Valkey.
mod atomics;
mod builder;
mod client;
mod core;
mod error;
mod failure;
#[cfg(feature = "http")]
mod layer;
mod lease;
mod limiter;
mod method;
mod name;
mod script;
mod stats;
mod unsynced;

pub use builder::SharedBuilder;
pub use client::{Client, ClientBuilder, ConnectError};
pub use error::BuildError;
pub use failure::OnFailure;
pub use limiter::{ResetError, SharedLimiter};
pub use name::StoreKey;
pub use stats::{ClientStats, SharedStats};
