//! The guarantees of the limiter, why they hold, and why the limiter is designed this way. This
//! page is `docs/design.md`.
//!

// The models are built from a copy of `src` that does not include `docs`.
#![cfg_attr(not(tollgate_loom), doc = include_str!("../docs/design.md"))]
