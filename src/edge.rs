//! Where the limiter meets the outside world. Each edge is a feature of its own and uses the public interface of
//! the core only.

#[cfg(feature = "http")]
pub mod http;
#[cfg(feature = "redis")]
pub mod redis;
