//! State that does not fit a word: the log of a key.

mod log;

pub(crate) use log::{Log, SlidingLog};
