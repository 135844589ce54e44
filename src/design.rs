//! The promises of the limiter, the reasons for its design, and why the promises hold: the page
//! `docs/design.md`.
//!

// Models are built from a copy of `src` alone.
#![cfg_attr(not(tollgate_loom), doc = include_str!("../docs/design.md"))]
