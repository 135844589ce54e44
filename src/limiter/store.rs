//! The interface of the key stores, and its two implementations.

pub(super) mod exact_keys;
pub(super) mod fingerprints;
pub(super) mod hash;
pub(super) mod interface;
#[cfg(feature = "serde")]
mod saved_exact_keys;
