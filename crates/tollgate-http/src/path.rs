//! Paths of requests: the one form that they are counted in, and templates that many of them share.

pub(crate) mod canonical;
pub(crate) mod template;
