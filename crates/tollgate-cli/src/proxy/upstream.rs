//! Forwards requests to the upstream and responses to the client. Some fields are changed or
//! removed on the way.

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
