//! Forwarding to the upstream and back: what is passed on, changed and removed.

pub(crate) mod download;
mod fields;
pub(crate) mod forward;
pub mod head;
pub mod hop;
mod link;
pub mod origin;
pub(crate) mod service;
pub(crate) mod tunnel;
pub(crate) mod upload;
