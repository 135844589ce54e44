//! A source file, and the part of it that is the library's code.

use std::fs;
use std::io;
use std::path::Path;

/// A file of the library.
pub struct Source {
    /// The path from the root of the project, such as `src/rule.rs`.
    pub name: String,
    pub text: String,
    /// The text with spaces in place of comments, literals and unit tests, so that everything else
    /// keeps its position.
    with_imports: String,
    /// The same text, with spaces in place of imports as well.
    pub code: String,
}

impl Source {
    pub fn new(name: String, text: String) -> Self {
        let mut code = text.clone().into_bytes();
        blank_comments_and_literals(&mut code);
        blank_tests(&mut code);
        let with_imports = whole(code.clone());
        blank_imports(&mut code);
        Self { name, text, with_imports, code: whole(code) }
    }

    /// Returns the lines of imports that rename one of these names, or that import the contents of
    /// `Ordering` without naming them.
    pub fn renamed_imports(&self, renamed: &[&str]) -> Vec<usize> {
        let code = &self.with_imports;
        let imports = names(code).filter(|(_, name)| *name == "use").map(|(at, _)| {
            let end = find(code.as_bytes(), at, b";");
            (at, &code[at..end])
        });
        let hides = |import: &str| {
            let words: Vec<_> = names(import).map(|(_, name)| name).collect();
            import.contains("Ordering::*")
                || words.windows(2).any(|pair| pair[1] == "as" && renamed.contains(&pair[0]))
        };
        imports.filter(|(_, import)| hides(import)).map(|(at, _)| self.line(at)).collect()
    }

    /// Returns the files of the core and of shared limits. Unit tests in separate files are left
    /// out.
    pub fn library(root: &Path) -> io::Result<Vec<Self>> {
        let mut found = Vec::new();
        let mut folders = ["src", "crates/tollgate-redis/src"].map(|folder| root.join(folder)).to_vec();
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(folder)? {
                let path = entry?.path();
                if path.is_dir() {
                    folders.push(path);
                } else if path.extension().is_some_and(|extension| extension == "rs")
                    && !path.ends_with("tests.rs")
                {
                    let name = path.strip_prefix(root).expect("it is in there").display().to_string();
                    found.push(Self::new(name, fs::read_to_string(path)?));
                }
            }
        }
        found.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(found)
    }

    /// Returns the number of the line at `at`, starting from 1.
    pub fn line(&self, at: usize) -> usize {
        self.text[..at].matches('\n').count() + 1
    }
}

fn whole(code: Vec<u8>) -> String {
    String::from_utf8(code).expect("whole characters are blanked")
}

pub fn is_name(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_'
}

/// Returns the names in `code`, with their positions.
pub fn names(code: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut at = 0;
    std::iter::from_fn(move || {
        let bytes = code.as_bytes();
        while at < bytes.len() && !is_name(bytes[at]) {
            at += 1;
        }
        let start = at;
        while at < bytes.len() && is_name(bytes[at]) {
            at += 1;
        }
        (start < at).then(|| (start, &code[start..at]))
    })
}

/// Returns the position of the bracket that closes the bracket at `open`, in code without literals.
pub fn closing(code: &[u8], open: usize) -> usize {
    let mut depth = 0;
    for (at, byte) in code.iter().enumerate().skip(open) {
        match byte {
            b'(' | b'[' | b'{' => depth += 1,
            b')' | b']' | b'}' => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return at;
        }
    }
    code.len() - 1
}

fn blank(text: &mut [u8]) {
    for byte in text {
        if *byte != b'\n' {
            *byte = b' ';
        }
    }
}

/// Returns the position of `end` at or after `from`, or the end of the text.
fn find(text: &[u8], from: usize, end: &[u8]) -> usize {
    let found = text[from..].windows(end.len()).position(|part| part == end);
    found.map_or(text.len(), |at| from + at)
}

fn blank_comments_and_literals(text: &mut [u8]) {
    let mut at = 0;
    while at < text.len() {
        let end = match text[at] {
            b'/' if text[at..].starts_with(b"//") => find(text, at, b"\n"),
            b'/' if text[at..].starts_with(b"/*") => end_of_block(text, at),
            b'"' => end_of_string(text, at),
            b'\'' => end_of_character(text, at),
            b'r' if at == 0 || !is_name(text[at - 1]) || text[at - 1] == b'b' => end_of_raw(text, at),
            _ => at,
        };
        let end = end.min(text.len());
        blank(&mut text[at..end]);
        at = end.max(at + 1);
    }
}

fn end_of_block(text: &[u8], start: usize) -> usize {
    let (mut at, mut depth) = (start, 0);
    loop {
        if text[at..].starts_with(b"/*") {
            (at, depth) = (at + 2, depth + 1);
        } else if text[at..].starts_with(b"*/") {
            (at, depth) = (at + 2, depth - 1);
        } else {
            at += 1;
        }
        if depth == 0 || at >= text.len() {
            return at;
        }
    }
}

fn end_of_string(text: &[u8], start: usize) -> usize {
    let mut at = start + 1;
    while at < text.len() && text[at] != b'"' {
        at += if text[at] == b'\\' { 2 } else { 1 };
    }
    at + 1
}

/// Returns the end of a character, or `start` if a lifetime begins there.
fn end_of_character(text: &[u8], start: usize) -> usize {
    if text.get(start + 1) == Some(&b'\\') {
        return find(text, start + 3, b"'") + 1;
    }
    let after = (start + 2..text.len()).find(|&at| text[at] & 0xc0 != 0x80);
    match after {
        Some(after) if text[after] == b'\'' => after + 1,
        _ => start,
    }
}

/// Returns the end of a raw string, or `start` if no raw string begins there.
fn end_of_raw(text: &[u8], start: usize) -> usize {
    let hashes = text[start + 1..].iter().take_while(|byte| **byte == b'#').count();
    let quote = start + 1 + hashes;
    if text.get(quote) != Some(&b'"') {
        return start;
    }
    let end = [b"\"".as_slice(), &vec![b'#'; hashes]].concat();
    find(text, quote + 1, &end) + end.len()
}

fn blank_imports(code: &mut [u8]) {
    let text = String::from_utf8(code.to_vec()).expect("whole characters are blanked");
    for (at, _) in names(&text).filter(|(_, name)| *name == "use") {
        // `use<'a>` specifies the lifetimes that a type captures.
        if !text[at + 3..].trim_start().starts_with('<') {
            let end = find(code, at, b";");
            blank(&mut code[at..end]);
        }
    }
}

/// Blanks each item under `#[cfg(test)]` or `#[cfg(all(test, ..))]`.
fn blank_tests(code: &mut [u8]) {
    for attribute in [b"#[cfg(test)]".as_slice(), b"#[cfg(all(test,"] {
        let mut from = 0;
        loop {
            let start = find(code, from, attribute);
            if start == code.len() {
                break;
            }
            let mut at = closing(code, start + 1) + 1;
            while at < code.len() && code[at] != b';' {
                match code[at] {
                    b'{' => {
                        at = closing(code, at);
                        break;
                    }
                    b'(' | b'[' => at = closing(code, at) + 1,
                    _ => at += 1,
                }
            }
            let end = (at + 1).min(code.len());
            blank(&mut code[start..end]);
            from = end;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn code(text: &str) -> String {
        let source = Source::new(String::new(), text.to_owned());
        assert_eq!(source.code.len(), text.len());
        assert_eq!(source.code.matches('\n').count(), text.matches('\n').count());
        source.code.split_whitespace().collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn comments_and_literals_are_no_code() {
        assert_eq!(code("a // b\nc /* d /* e */ f */ g"), "a c g");
        assert_eq!(code(r##"a "b \" // c" d r#"e " f"# g br"h" i"##), "a d g b i");
        assert_eq!(code("a<'b>('c', '\\'', '\\u{1f}', 'ü') \"ü\" d"), "a<'b>( , , , ) d");
    }

    #[test]
    fn imports_and_unit_tests_are_no_code() {
        assert_eq!(code("use a::{\n b, c,\n};\nd"), "; d");
        assert_eq!(code("fn f() -> impl A + use<'a> { g }"), "fn f() -> impl A + use<'a> { g }");
        assert_eq!(code("a;\n#[cfg(test)]\nfn b() { c; { d } }\ne"), "a; e");
        assert_eq!(code("a;\n#[cfg(all(test, not(b)))]\n#[c]\nmod d {\n e }\nf"), "a; f");
        assert_eq!(code("#[cfg(test)]\nconst A: [u8; 2] = [1; 2];\nb"), "b");
        assert_eq!(code("#[cfg(not(test))]\na"), "#[cfg(not(test))] a");
    }

    #[test]
    fn lines_are_counted_from_one() {
        let source = Source::new(String::new(), "a\nb\nc".to_owned());
        assert_eq!([0, 2, 4].map(|at| source.line(at)), [1, 2, 3]);
    }
}
