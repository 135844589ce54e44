//! Rate limits in Envoy's own process: a dynamic module for the HTTP filter
//! `envoy.filters.http.dynamic_modules`.
//!
//! The limits are those of [`tollgate_http::settings`], in the configuration of the filter or in a
//! file. `docs/envoy.md` has the configuration of Envoy.
//!
//! # Life of a request
//!
//! 1. Envoy calls a hook ([`hooks`]) on the thread of its worker. No hook panics into Envoy.
//! 2. `request.rs` copies what the limits look at from Envoy's headers: nothing else.
//! 3. The layer of `tollgate-http` checks it against the limits, all or none, without a lock.
//! 4. A refusal is Envoy's local reply. Else the response gets its fields, and its status decides
//!    which charges stay.
//! 5. Places in flight are free again when Envoy completes the stream.
//!
//! # State
//!
//! A limit is one for all workers, and for all filters with the same `filter_name`. The filters of
//! the newest configuration take the limiters of the earlier one (`limits.rs`).

pub mod abi;
mod counters;
mod filter;
pub mod hooks;
mod limits;
mod log;
mod request;
mod settings;
