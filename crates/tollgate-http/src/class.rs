//! The class of a caller, such as free or paid: how a request says which it is.

pub(crate) mod by;
pub(crate) mod listed;
pub(crate) mod lookup;
pub(crate) mod table;
