//! The settings of a page of HTML.

use std::path::PathBuf;

/// The page to write.
#[derive(Clone, Debug)]
pub struct HtmlSettings {
    pub path: PathBuf,
    /// Whether clients are shown by hashes with a random key.
    pub are_clients_hashed: bool,
    /// How many denied clients are shown.
    pub top: usize,
    /// The command that makes the page, as a shell takes it.
    pub command: String,
}
