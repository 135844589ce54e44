//! Reports a suggestion, either as text or as figures serialized to JSON.

mod figures;
mod text;

pub use figures::Suggestion;
pub use text::write_text;
