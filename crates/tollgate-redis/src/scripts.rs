//! The scripts that the store runs, one for each algorithm, and the parsing of their answers.

mod figures;
pub(crate) mod rule;
pub(crate) mod script;
