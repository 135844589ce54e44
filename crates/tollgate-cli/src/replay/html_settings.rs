//! The settings of an HTML page.

use std::path::PathBuf;

/// The page to write.
#[derive(Clone, Debug)]
pub struct HtmlSettings {
    pub path: PathBuf,
    /// Whether clients are shown as hashes with a random key.
    pub are_clients_hashed: bool,
    /// The number of denied clients to show.
    pub top: usize,
    /// The command that creates the page, quoted for a shell.
    pub command: String,
}
