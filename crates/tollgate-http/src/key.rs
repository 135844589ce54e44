//! What tells clients apart, and how it is found in a request.

pub(crate) mod by;
pub(crate) mod parts;
