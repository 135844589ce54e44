//! Shared by several benchmarks: keys and the order in which they arrive, limiters that know the
//! keys, and threads that begin together.

// Each benchmark uses a part of this module.
#![allow(dead_code, unreachable_pub)]

pub mod keys;
pub mod known;
pub mod race;
