//! Builds HTML in which text never becomes markup.
//!
//! Elements and attributes are literals in this program: only `&'static str` values are written
//! unchanged. All other text is escaped, regardless of its origin.

use std::fmt::Display;

/// A part of a page.
#[derive(Default)]
pub(crate) struct Markup(String);

impl Markup {
    /// Appends markup from this program's own literals.
    pub(crate) fn raw(&mut self, markup: &'static str) -> &mut Self {
        self.0.push_str(markup);
        self
    }

    /// Appends text.
    pub(crate) fn text(&mut self, text: &str) -> &mut Self {
        for character in text.chars() {
            match character {
                '&' => self.0.push_str("&amp;"),
                '<' => self.0.push_str("&lt;"),
                '>' => self.0.push_str("&gt;"),
                '"' => self.0.push_str("&quot;"),
                '\'' => self.0.push_str("&#39;"),
                character if character.is_control() => self.0.push('\u{fffd}'),
                character => self.0.push(character),
            }
        }
        self
    }

    /// Appends markup, which is a literal of this program. Each `{}` in the markup is replaced with
    /// one of the texts.
    pub(crate) fn add(&mut self, markup: &'static str, texts: &[&dyn Display]) -> &mut Self {
        debug_assert_eq!(markup.matches("{}").count(), texts.len(), "{markup}");
        let mut parts = markup.split("{}");
        self.raw(parts.next().unwrap_or_default());
        for (text, part) in texts.iter().zip(parts) {
            self.text(&text.to_string()).raw(part);
        }
        self
    }

    /// Appends another part of the page.
    pub(crate) fn part(&mut self, part: &Self) -> &mut Self {
        self.0.push_str(&part.0);
        self
    }

    /// Appends a row to a table. The first cell is the row's heading.
    pub(crate) fn row(&mut self, cells: &[&str]) -> &mut Self {
        self.raw("<tr>");
        for (index, cell) in cells.iter().enumerate() {
            let (open, close) = if index == 0 { ("<th scope=\"row\">", "</th>") } else { ("<td>", "</td>") };
            self.raw(open).text(cell).raw(close);
        }
        self.raw("</tr>\n")
    }

    /// Appends the start of an element, with a style class unless `class` is empty.
    pub(crate) fn open(&mut self, element: &'static str, class: &'static str) -> &mut Self {
        self.raw("<").raw(element);
        if !class.is_empty() {
            self.raw(" class=\"").raw(class).raw("\"");
        }
        self.raw(">")
    }

    /// Opens a section with this heading, and the section's first paragraph.
    pub(crate) fn section(&mut self, heading: &'static str) -> &mut Self {
        self.raw("<section>\n<h2>").text(heading).raw("</h2>\n<p class=\"soft\">")
    }

    pub(crate) fn into_string(self) -> String {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_text_becomes_markup() {
        let mut markup = Markup::default();
        markup.add("<p>{}</p>{}", &[&"<script>{}alert('&\"')</script>\0\u{1b}", &-3]);
        let expected = "<p>&lt;script&gt;{}alert(&#39;&amp;&quot;&#39;)&lt;/script&gt;\u{fffd}\u{fffd}</p>-3";
        assert_eq!(markup.into_string(), expected);
    }
}
