//! Limits of any kind, one by one and all together.

pub(super) mod chargeable;
pub(super) mod check_all;
pub(super) mod look;
