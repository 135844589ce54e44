//! Reports a replay, either as text or as figures serialized to JSON.

pub(crate) mod changes;
mod compare;
pub(crate) mod figures;
pub(crate) mod log;
pub(crate) mod notes;
pub(crate) mod paragraph;
pub(crate) mod quantity;
pub(crate) mod stretch;
mod text;

pub use figures::Report;
pub use text::write_text;
