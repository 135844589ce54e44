//! The stores of keys: their interface, and the two implementations.

pub(super) mod exact_keys;
pub(super) mod fingerprints;
pub(super) mod hash;
pub(super) mod interface;
