//! Implementations of other crates' traits for shared limits. The traits belong to the layer of
//! `tollgate-http` and to the queues of `tollgate-wait`.

#[cfg(feature = "http")]
mod http;
#[cfg(feature = "wait")]
mod wait;
