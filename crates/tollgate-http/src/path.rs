//! Paths of requests: the canonical form in which they are counted, and templates that many paths
//! share.

pub(crate) mod canonical;
pub(crate) mod template;
