//! Classes of callers, such as free or paid, and how a request reveals its caller's class.

pub(crate) mod by;
pub(crate) mod listed;
pub(crate) mod lookup;
pub(crate) mod table;
