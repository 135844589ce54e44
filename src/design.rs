#![doc = include_str!("../docs/design.md")]
