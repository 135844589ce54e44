//! Splits the text of a limit into words.

/// Text and a position in it. The words before the position have been consumed.
#[derive(Clone)]
pub(super) struct Words<'t> {
    text: &'t str,
    at: usize,
}

impl<'t> Words<'t> {
    pub(super) const fn new(text: &'t str) -> Self {
        Self { text, at: 0 }
    }

    /// Returns the next word without consuming it. Spaces between double quotes belong to the word.
    pub(super) fn peek(&self) -> Option<&'t str> {
        self.word(false)
    }

    /// Consumes and returns the next word.
    pub(super) fn next(&mut self) -> Option<&'t str> {
        let word = self.word(false)?;
        self.skip(word);
        Some(word)
    }

    /// Consumes and returns the next word of a key. In a key, a plus sign is a separate word.
    pub(super) fn next_of_key(&mut self) -> Option<&'t str> {
        let word = self.word(true)?;
        self.skip(word);
        Some(word)
    }

    /// Consumes the next word if it equals `word`. Returns whether a word was consumed.
    pub(super) fn take(&mut self, word: &str) -> bool {
        let is_next = self.peek() == Some(word);
        if is_next {
            self.skip(word);
        }
        is_next
    }

    /// Returns whether these words are next.
    pub(super) fn start_with(&self, words: &[&str]) -> bool {
        let mut ahead = self.clone();
        words.iter().all(|word| ahead.take(word))
    }

    /// Consumes all words before the first position for which `ends` returns true, and returns the
    /// consumed text.
    pub(super) fn take_until(&mut self, ends: impl Fn(&Self) -> bool) -> &'t str {
        let from = self.at;
        while let Some(word) = self.peek() {
            if ends(self) {
                break;
            }
            self.skip(word);
        }
        self.text[from..self.at].trim()
    }

    fn word(&self, ends_at_plus: bool) -> Option<&'t str> {
        let rest = self.text[self.at..].trim_start();
        let mut is_quoted = false;
        let end = rest.char_indices().find(|&(at, character)| match character {
            '"' => {
                is_quoted = !is_quoted;
                false
            }
            '+' if ends_at_plus && at == 0 => false,
            '+' => ends_at_plus,
            _ if ends_at_plus && rest.starts_with('+') => true,
            other => other.is_whitespace() && !is_quoted,
        });
        let word = &rest[..end.map_or(rest.len(), |(at, _)| at)];
        (!word.is_empty()).then_some(word)
    }

    fn skip(&mut self, word: &str) {
        let rest = &self.text[self.at..];
        self.at += rest.len() - rest.trim_start().len() + word.len();
    }
}
