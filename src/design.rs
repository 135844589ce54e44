//! What is promised, why it is built like this, and why it holds: the page `docs/design.md`.
//!

// Models are built from a copy of `src` alone.
#![cfg_attr(not(tollgate_loom), doc = include_str!("../docs/design.md"))]
