//! Pieces of Markdown: tables, wrapped paragraphs, and the places between marks.

use super::Part;
use std::borrow::Borrow;
use std::fs;

/// The width of a paragraph, in columns.
const WIDTH: usize = 100;

/// Returns the page at `path` with each part between its marks.
pub fn placed(path: &str, parts: &[Part]) -> Result<String, String> {
    let mut page = fs::read_to_string(path).map_err(|why| format!("{path}: {why}"))?;
    for (name, text) in parts {
        let (begin, end) = (format!("<!-- {name} -->"), format!("<!-- /{name} -->"));
        let around =
            page.split_once(&begin).and_then(|(before, rest)| Some((before, rest.split_once(&end)?.1)));
        let (before, after) = around.ok_or_else(|| format!("{path}: lacks the marks {begin} and {end}"))?;
        page = format!("{before}{begin}\n{text}\n{end}{after}");
    }
    Ok(page)
}

/// A name and its figures.
type Line = (String, Vec<String>);

/// Returns a table whose first column has names, and whose other columns have figures.
pub fn table(corner: &str, columns: &[impl Borrow<str>], lines: impl IntoIterator<Item = Line>) -> String {
    let head = format!("| {corner} | {} |\n|---|{}", columns.join(" | "), "--:|".repeat(columns.len()));
    let line = |(name, cells): Line| format!("| {} | {} |", quoted(&name), cells.join(" | "));
    let lines: Vec<String> = [head].into_iter().chain(lines.into_iter().map(line)).collect();
    // An empty cell is one space.
    lines.join("\n").replace("|  |", "| |")
}

/// Returns a name for Markdown. It is quoted if it has angle brackets, which would be a tag.
pub fn quoted(name: &str) -> String {
    if name.contains('<') { format!("`{name}`") } else { name.to_owned() }
}

/// Returns a paragraph, or an item of a list, whose lines after the first are indented.
pub fn wrapped(text: &str) -> String {
    let indent = if text.starts_with("- ") { "\n  " } else { "\n" };
    let (mut wrapped, mut column) = (String::new(), 0);
    for word in text.split_whitespace() {
        let space = match column {
            0 => "",
            column if column + 1 + word.len() > WIDTH => indent,
            _ => " ",
        };
        column = if space == indent { indent.len() - 1 } else { column + space.len() } + word.len();
        wrapped.extend([space, word]);
    }
    wrapped
}
