//! Breaks text into lines for a terminal.

use std::io::{self, Write};

/// The assumed width of a terminal, in columns.
const WIDTH: usize = 80;

/// Writes text, on lines that start with `indent` and fit in a terminal.
pub(crate) fn write_paragraph(indent: &str, text: &str, out: &mut impl Write) -> io::Result<()> {
    let mut line = String::from(indent);
    for word in text.split(' ') {
        let length = line.chars().count() + 1 + word.chars().count();
        if length > WIDTH && line.len() > indent.len() {
            writeln!(out, "{line}")?;
            line = String::from(indent);
        }
        if line.len() > indent.len() {
            line.push(' ');
        }
        line.push_str(word);
    }
    writeln!(out, "{line}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paragraphs_end_before_the_terminal_does() {
        let mut out = Vec::new();
        let text = format!("{} {} end", "word ".repeat(40).trim(), "x".repeat(100));
        write_paragraph("  ", &text, &mut out).expect("a vector can be written");
        let text = String::from_utf8_lossy(&out);
        for line in text.lines() {
            assert!(line.starts_with("  ") && (line.len() <= WIDTH || line.contains("xxx")));
        }
        assert_eq!(text.lines().count(), 5);
    }
}
