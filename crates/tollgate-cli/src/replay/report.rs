//! The report of a replay: its figures, and how they are written as text. As JSON they stand as they
//! are.

mod compare;
mod figures;
mod notes;
mod paragraph;
mod quantity;
mod text;

pub use figures::Report;
pub use text::write_text;
