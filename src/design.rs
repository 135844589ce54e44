//! What the limiter promises, why the promises hold, and why it is designed this way. This is the
//! page `docs/design.md`.
//!

// Models are built from a copy of `src` alone.
#![cfg_attr(not(tollgate_loom), doc = include_str!("../docs/design.md"))]
