//! Pieces of Markdown: wrapped paragraphs, cells of tables, and the place between two marks.

/// The width of a paragraph, in columns.
const WIDTH: usize = 100;

/// Returns a page with `text` between its marks `name`.
pub fn placed(page: &str, name: &str, text: &str) -> Result<String, String> {
    let (begin, end) = (format!("<!-- {name} -->"), format!("<!-- /{name} -->"));
    let parts = page.split_once(&begin).and_then(|(before, rest)| Some((before, rest.split_once(&end)?.1)));
    let (before, after) = parts.ok_or_else(|| format!("lacks the marks {begin} and {end}"))?;
    Ok(format!("{before}{begin}\n{text}\n{end}{after}"))
}

/// Returns a table whose first column has names, and whose other columns have figures.
pub fn table<'a>(
    corner: &str,
    columns: impl IntoIterator<Item = &'a str>,
    rows: impl IntoIterator<Item = (String, Vec<String>)>,
) -> String {
    let columns: Vec<String> = columns.into_iter().map(str::to_owned).collect();
    let under = format!("|---|{}", "--:|".repeat(columns.len()));
    let line = |(name, cells): (String, Vec<String>)| {
        let cell = |cell: &String| if cell.is_empty() { " |".to_owned() } else { format!(" {cell} |") };
        format!("|{}", [name].iter().chain(&cells).map(cell).collect::<String>())
    };
    let head = [line((corner.to_owned(), columns)), under];
    head.into_iter().chain(rows.into_iter().map(line)).collect::<Vec<_>>().join("\n")
}

/// `papaya + atomic 0.79; scc + atomic 0.94`.
pub fn shares(faster: &[(f64, &str)]) -> String {
    let names = faster.iter().map(|(share, name)| format!("{} {share:.2}", quoted(name)));
    names.collect::<Vec<_>>().join("; ")
}

/// Returns a name for Markdown. It is quoted if it has angle brackets, which would be a tag.
pub fn quoted(name: &str) -> String {
    if name.contains('<') { format!("`{name}`") } else { name.to_owned() }
}

pub fn wrapped(text: &str) -> String {
    wrapped_at(WIDTH, text)
}

/// Returns an item of a list. Its lines after the first are indented.
pub fn item(text: &str) -> String {
    format!("- {}", wrapped_at(WIDTH - 2, text).replace('\n', "\n  "))
}

fn wrapped_at(width: usize, text: &str) -> String {
    let (mut lines, mut line) = (Vec::new(), String::new());
    for word in text.split_whitespace() {
        if !line.is_empty() && line.len() + 1 + word.len() > width {
            lines.push(std::mem::take(&mut line));
        }
        if !line.is_empty() {
            line.push(' ');
        }
        line.push_str(word);
    }
    lines.push(line);
    lines.join("\n")
}
