//! The interface of the stores of keys, and its two implementations.

pub(super) mod exact_keys;
pub(super) mod fingerprints;
pub(super) mod hash;
pub(super) mod interface;
