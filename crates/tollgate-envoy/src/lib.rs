//! Rate limits inside the Envoy process. This crate is a dynamic module for the HTTP filter
//! `envoy.filters.http.dynamic_modules`.
//!
//! The limits are written in the language of [`tollgate_http::settings`], either in the filter's
//! configuration or in a file. `docs/envoy.md` describes how to configure Envoy.
//!
//! # Life of a request
//!
//! 1. Envoy calls a hook ([`hooks`]) on a worker thread. A panic in a hook never unwinds into
//!    Envoy.
//! 2. `request.rs` copies headers from Envoy, but only the headers that the limits need. The module
//!    refuses a request whose target is too long for the limits.
//! 3. The layer of `tollgate-http` checks the request against the limits, and charges either all of
//!    them or none. This step acquires no lock, unless a log inserts a new key. If limits are
//!    shared (`shared.rs`) and this Envoy has leased no token for the request, Envoy holds the
//!    request back until the store has answered, or until the deadline (`suspended.rs`). The worker
//!    serves other streams meanwhile.
//! 4. Envoy answers a refused request with a local reply. Otherwise, the module adds the limits'
//!    fields to the response, and the response's status determines which charges are kept.
//! 5. When Envoy completes the stream, the places of requests in flight are freed.
//!
//! # State
//!
//! All workers, and all filters with the same `filter_name`, share the state of a limit. The
//! filters of a new configuration take over the limiters of the previous configuration
//! (`limits.rs`). With the setting `state`, the counts of a limit outlive the process (`state.rs`).
//!
//! With the setting `redis`, several Envoys share the state of a limit in a store. One thread of
//! the module talks to the stores (`runtime.rs`).

pub mod abi;
mod counters;
mod filter;
pub mod hooks;
mod limits;
mod log;
mod metadata;
mod request;
mod runtime;
mod settings;
mod shared;
mod state;
mod suspended;
