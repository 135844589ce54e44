//! The report of a replay: its figures, which are serialized as JSON, and their text.

mod compare;
mod figures;
mod notes;
mod paragraph;
mod quantity;
mod text;

pub use figures::Report;
pub use text::write_text;
