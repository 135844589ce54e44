//! The words of the text of a limit.

/// Returns the words of a text with their positions; a plus sign is a word of its own.
pub(super) fn words(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut rest = 0;
    std::iter::from_fn(move || {
        let at = rest + text[rest..].find(|c: char| !c.is_whitespace())?;
        let word = &text[at..];
        let length = match word.find(|c: char| c.is_whitespace() || c == '+') {
            Some(0) => 1,
            Some(end) => end,
            None => word.len(),
        };
        rest = at + length;
        Some((at, &text[at..rest]))
    })
}
