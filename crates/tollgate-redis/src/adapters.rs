//! Shared limits as what other crates take: by the layer of `tollgate-http`, by the queues of
//! `tollgate-wait`.

#[cfg(feature = "http")]
mod http;
#[cfg(feature = "wait")]
mod wait;
