//! Where the keys are: the interface to stores, and the two that there are.

pub(super) mod exact_keys;
pub(super) mod fingerprints;
pub(super) mod hash;
pub(super) mod interface;
