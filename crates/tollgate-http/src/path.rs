//! Request paths. Limits count a path in its canonical form, or by a template that many paths
//! share.

pub(crate) mod canonical;
pub(crate) mod spelling;
pub(crate) mod template;
