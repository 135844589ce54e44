//! Reports a suggestion, as figures that are serialized as JSON, and as text.

mod figures;
mod text;

pub use figures::Report;
pub use text::write_text;
