//! The report of a suggestion: its figures, which are serialized as JSON, and their text.

mod figures;
mod text;

pub use figures::Report;
pub use text::write_text;
