//! Forwarding to the upstream and back: what is passed on, changed and removed.

pub(crate) mod forward;
pub(crate) mod hop;
pub(crate) mod origin;
pub(crate) mod service;
pub(crate) mod tunnel;
pub(crate) mod upload;
