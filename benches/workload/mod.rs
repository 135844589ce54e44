//! What several benchmarks measure with: keys and the order in which they come, limiters that know
//! them, threads that begin together.

// Each benchmark uses a part of it.
#![allow(dead_code, unreachable_pub)]

pub mod keys;
pub mod known;
pub mod race;
