//! Shared by several benchmarks: keys and the order in which they come, limiters that know them,
//! threads that begin together.

// Each benchmark uses a part of this module.
#![allow(dead_code, unreachable_pub)]

pub mod keys;
pub mod known;
pub mod race;
