//! Limits of any kind, which are charged alone or all together.

pub(super) mod chargeable;
pub(super) mod check_all;
pub(super) mod look;
