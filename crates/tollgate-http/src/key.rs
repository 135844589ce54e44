//! Keys, which tell clients apart, and how they are found in a request.

pub(crate) mod by;
pub(crate) mod known;
pub(crate) mod parts;
