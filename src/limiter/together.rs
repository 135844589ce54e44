//! Limits of any kind, charged singly or all together.

pub(super) mod chargeable;
pub(super) mod check_all;
pub(super) mod look;
