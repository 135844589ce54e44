//! The scripts that the store runs, one for each algorithm, and the parsing of their answers.

pub(crate) mod rule;
pub(crate) mod script;
