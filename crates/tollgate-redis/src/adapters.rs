//! Implementations of other crates' traits for shared limits: for the layer of `tollgate-http` and
//! for the queues of `tollgate-wait`.

#[cfg(feature = "http")]
mod http;
#[cfg(feature = "wait")]
mod wait;
