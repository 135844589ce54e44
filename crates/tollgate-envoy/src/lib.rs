//! Rate limits inside the process of Envoy, as a dynamic module for the HTTP filter
//! `envoy.filters.http.dynamic_modules`.
//!
//! The limits are written in the language of [`tollgate_http::settings`], in the configuration of
//! the filter or in a file. `docs/envoy.md` describes the configuration of Envoy.
//!
//! # Life of a request
//!
//! 1. Envoy calls a hook ([`hooks`]) on the thread of a worker. No panic of a hook unwinds into
//!    Envoy.
//! 2. `request.rs` copies the headers that the limits look at from Envoy, and no others.
//! 3. The layer of `tollgate-http` checks the request against the limits, and charges all of them
//!    or none. It takes no lock.
//! 4. A refused request gets a local reply of Envoy. Otherwise, the response gets the fields of the
//!    limits, and its status decides which charges stay.
//! 5. Places of requests in flight are freed when Envoy completes the stream.
//!
//! # State
//!
//! All workers, and all filters with the same `filter_name`, share the state of a limit. The
//! filters of a new configuration take over the limiters of the earlier one (`limits.rs`).

pub mod abi;
mod counters;
mod filter;
pub mod hooks;
mod limits;
mod log;
mod request;
mod settings;
