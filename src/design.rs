// Models are built from a copy of `src` alone.
#![cfg_attr(not(tollgate_loom), doc = include_str!("../docs/design.md"))]
#![cfg_attr(tollgate_loom, doc = "See `docs/design.md`.")]
