//! What the store runs: a script for each algorithm, and how its answers are read.

pub(crate) mod method;
pub(crate) mod script;
