//! Implements the traits of `tollgate-http`'s layer and `tollgate-wait`'s queues for shared limits.

#[cfg(feature = "http")]
mod http;
#[cfg(feature = "wait")]
mod wait;
