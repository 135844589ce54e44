//! The class of a caller, such as free or paid, and how a request reveals it.

pub(crate) mod by;
pub(crate) mod listed;
pub(crate) mod lookup;
pub(crate) mod table;
