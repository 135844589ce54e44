//! The prose of this repository: comments and pages wrap at 100 columns, and say things plainly.
//!
//! `make lint` runs this. There is no list of exceptions: a line that is found gets wrapped, and a
//! phrase that is found gets replaced by what the rule's message suggests.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

/// The most characters in a line of prose.
const COLUMNS: usize = 100;

/// What is read: these files, and the files in these folders that are of a known [`Language`].
const READ: [&str; 17] = [
    ".cargo",
    "ARCHITECTURE.md",
    "CHANGELOG.md",
    "Cargo.toml",
    "Makefile",
    "README.md",
    "SECURITY.md",
    "benches",
    "crates",
    "docs",
    "examples",
    "fuzz",
    "loom-tests",
    "scripts",
    "src",
    "tests",
    ".ci",
];

/// Folders in those that hold what tools write, and data.
const NOT_READ: [&str; 4] = ["target", "artifacts", "corpus", "data"];

/// Openings that make sense only to a reader of the comment above, and what to write instead.
const OPENINGS: [(&str, &str); 6] = [
    ("the same", "say what this item is or does"),
    ("that,", "name the thing that `that` stands for"),
    ("so many", "write `The number of ...`"),
    ("such a", "name the thing, and say what it does"),
    ("as it", "say what this item is or does"),
    ("a wish", "write `Advises ...; failure is ignored`"),
];

/// Phrases that need a second reading, as words with their alternatives, and what to write instead.
/// A phrase is fine after one of the words in its second field, where `^` is the beginning of a
/// sentence. A full stop in a phrase is the end
/// of a sentence or of a paragraph, and `*` is any word but those of [`COMPARED`].
const PHRASES: [(&str, &str, &str); 9] = [
    ("so many as", "", "write `as many as`"),
    ("has|have|had it come|done|made|freed", "", "name the caller, and what it does"),
    ("it were", "if as though", "write `it was` or `it would be`"),
    ("is|are no *", "^ there here it", "write `is not a ...`"),
    ("is|are none .", "there", "write `is missing` or `is not one`"),
    ("and the same .", "", "say what is the same"),
    ("whoever|whomever", "", "write `a thread that ...`, `the caller`, or of people `anyone who`"),
    (
        "who has|does|is|was second|first|it|just|found|begun|seen|moved|taken|frozen",
        "",
        "write `a thread that ...`, `the caller`, or the function's name",
    ),
    (
        "who reads|finds|found|sees|saw|frees|makes|writes|comes|looks|takes|waits|brings|moves|helps|\
         loses|wins|swaps|stores|loads|charges|inserts|adds|begins|changes|evicts|retires|removes",
        "",
        "write `a thread that ...`, `the caller`, or the function's name",
    ),
];

/// `is no longer` is a comparison, and `is no key` is a riddle.
const COMPARED: [&str; 16] = [
    "longer", "older", "younger", "more", "less", "fewer", "better", "worse", "later", "earlier", "larger",
    "smaller", "slower", "faster", "higher", "lower",
];

#[derive(Clone, Copy, PartialEq)]
enum Language {
    Rust,
    /// All of a page is prose, but what is between fences.
    Markdown,
    /// What follows `#` is prose, and no formatter sees to the other lines.
    Script,
    /// What follows `#` or `--` at the beginning of a line is prose.
    Data,
}

fn language(path: &Path) -> Option<Language> {
    let extension = path.extension().and_then(|extension| extension.to_str());
    match extension {
        _ if path.ends_with("Makefile") || path.ends_with(".ci/run") => Some(Language::Script),
        Some("rs") => Some(Language::Rust),
        Some("md") => Some(Language::Markdown),
        Some("sh") => Some(Language::Script),
        Some("toml" | "lua") => Some(Language::Data),
        _ => None,
    }
}

/// A line of prose, without its comment marker.
struct Prose<'t> {
    number: usize,
    marker: &'static str,
    text: &'t str,
    /// Is it between fences, or a row of a table? Then it is not made of sentences.
    is_code: bool,
}

/// A text in quotes, with the number of its first line.
struct Literal<'t> {
    number: usize,
    text: &'t str,
}

/// Comments and string literals of Rust source. Markers in literals, and quotes in comments, are
/// text.
fn lex(source: &str) -> (Vec<Prose<'_>>, Vec<Literal<'_>>) {
    let (mut comments, mut literals) = (Vec::new(), Vec::new());
    let (mut at, mut number) = (0, 1);
    let bytes = source.as_bytes();
    while at < bytes.len() {
        let rest = &source[at..];
        let before = at.checked_sub(1).map(|before| bytes[before]);
        let begins_word = !before.is_some_and(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
        let raw = rest.trim_start_matches(['b', 'c']).strip_prefix('r');
        let hashes = raw.map(|raw| raw.len() - raw.trim_start_matches('#').len());
        let length = if rest.starts_with("//") {
            let line = &rest[..rest.find('\n').unwrap_or(rest.len())];
            let is = |marker: &&&str| line.starts_with(**marker);
            let marker = ["////", "///", "//!", "//"].iter().find(is).unwrap();
            comments.push(Prose { number, marker, text: &line[marker.len()..], is_code: false });
            line.len()
        } else if let (true, Some(raw), Some(hashes)) = (begins_word, raw, hashes)
            && raw[hashes..].starts_with('"')
        {
            let text = &raw[hashes + 1..];
            let end = format!("\"{}", "#".repeat(hashes));
            let text = &text[..text.find(&end).unwrap_or(text.len())];
            literals.push(Literal { number, text });
            let prefix = rest.len() - raw.len();
            (prefix + hashes + 1 + text.len() + end.len()).min(rest.len())
        } else if let Some(quoted) = rest.strip_prefix('"') {
            let mut escaped = false;
            let end = quoted.find(|c| {
                let is_end = c == '"' && !escaped;
                escaped = c == '\\' && !escaped;
                is_end
            });
            let text = &quoted[..end.unwrap_or(quoted.len())];
            literals.push(Literal { number, text });
            (text.len() + 2).min(rest.len())
        } else if let Some(quoted) = rest.strip_prefix('\'') {
            // A quote begins a character or a lifetime.
            let first = quoted.chars().next().map_or(0, char::len_utf8);
            if quoted.starts_with('\\') {
                3 + quoted.get(2..).and_then(|quoted| quoted.find('\'')).unwrap_or(0)
            } else if quoted[first..].starts_with('\'') {
                first + 2
            } else {
                1
            }
        } else {
            rest.chars().next().map_or(1, char::len_utf8)
        };
        number += rest[..length].matches('\n').count();
        at += length;
    }
    (comments, literals)
}

/// The lines of prose in a text.
fn prose(text: &str, language: Language) -> Vec<Prose<'_>> {
    let mut lines = match language {
        Language::Rust => lex(text).0,
        Language::Markdown => {
            let lines = text.lines().enumerate();
            lines.map(|(i, text)| Prose { number: i + 1, marker: "", text, is_code: false }).collect()
        }
        Language::Script | Language::Data => {
            let lines = text.lines().enumerate();
            let prose = lines.filter_map(|(i, line)| {
                let line = line.trim_start();
                let marker = ["#", "--"].into_iter().find(|marker| line.starts_with(marker))?;
                Some(Prose { number: i + 1, marker, text: &line[marker.len()..], is_code: false })
            });
            prose.collect()
        }
    };
    let mut fenced = false;
    let mut last = 0;
    for line in &mut lines {
        // A fence that a comment leaves open ends with it.
        fenced &= line.number == last + 1;
        last = line.number;
        let is_fence = line.text.trim_start().starts_with("```");
        line.is_code = fenced || is_fence || line.text.trim_start().starts_with('|');
        fenced ^= is_fence;
    }
    lines
}

/// Sentences between empty lines, as words, each with the number of its line.
struct Paragraph<'t> {
    is_doc: bool,
    words: Vec<(usize, &'t str)>,
}

fn paragraphs<'t>(lines: &[Prose<'t>]) -> Vec<Paragraph<'t>> {
    let mut found: Vec<Paragraph<'t>> = Vec::new();
    let mut last: Option<&Prose<'t>> = None;
    for line in lines {
        let text = line.text.trim();
        let follows = last.is_some_and(|last| {
            last.number + 1 == line.number && last.marker == line.marker && !last.text.trim().is_empty()
        });
        let begins_item = text.starts_with("- ") || text.starts_with("* ") || text.starts_with('#');
        last = Some(line);
        if line.is_code || text.is_empty() {
            last = None;
            continue;
        }
        if !follows || begins_item {
            let is_doc = matches!(line.marker, "///" | "//!");
            found.push(Paragraph { is_doc, words: Vec::new() });
        }
        let words = text.split_whitespace().map(|word| (line.number, word));
        found.last_mut().unwrap().words.extend(words);
    }
    for paragraph in &mut found {
        without_code(&mut paragraph.words);
    }
    found
}

/// Leaves one word of each piece of code in backquotes.
fn without_code(words: &mut Vec<(usize, &str)>) {
    let mut inside = false;
    words.retain(|(_, word)| {
        let began_inside = inside;
        inside ^= word.matches('`').count() % 2 == 1;
        !began_inside
    });
}

/// The word alone: `(who` and `who,` are `who`.
fn bare(word: &str) -> String {
    let is_around = |c: char| !c.is_alphanumeric() && c != '`';
    word.trim_matches(is_around).to_lowercase()
}

fn ends_sentence(word: &str) -> bool {
    word.trim_end_matches([')', '"', '*', '_']).ends_with(['.', ';', ':', '?', '!'])
}

/// Where a phrase stands in these words, if it does: at the word of that index.
fn find(words: &[&str], phrase: &str, not_after: &str) -> Option<usize> {
    let parts: Vec<&str> = phrase.split(' ').collect();
    let is_at = |at: usize| {
        let mut next = at;
        for part in &parts {
            let before = next.checked_sub(1).map(|before| words[before]);
            if *part == "." {
                if next < words.len() && !before.is_some_and(ends_sentence) {
                    return false;
                }
                continue;
            }
            let Some(word) = words.get(next) else { return false };
            // A phrase does not reach over the end of a sentence.
            if next > at && before.is_some_and(ends_sentence) {
                return false;
            }
            let word = bare(word);
            let fits = match *part {
                "*" => !word.is_empty() && !COMPARED.contains(&&*word),
                part => part.split('|').any(|alternative| alternative == word),
            };
            if !fits {
                return false;
            }
            next += 1;
        }
        let before = at.checked_sub(1).map(|before| words[before]);
        let before = before.filter(|before| !ends_sentence(before)).map_or("^".to_owned(), bare);
        !not_after.split(' ').any(|word| word == before)
    };
    (0..words.len()).find(|at| is_at(*at))
}

/// Is the line too long, and can it be made shorter? The row of a table can't be, and a long word
/// can't be, also where it is the item of a list or the target of `[name]: target`.
fn is_too_long(line: &str, text: &str) -> bool {
    let text = text.trim().trim_start_matches(['-', '*', ' ']);
    let target = text.split_once("]: ").filter(|_| text.starts_with('['));
    line.chars().count() > COLUMNS
        && !text.starts_with('|')
        && target.map_or(text, |(_, target)| target).contains(' ')
}

/// What is wrong with a text, by line.
fn faults(text: &str, language: Language) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    let lines: Vec<&str> = text.lines().collect();
    let comments = prose(text, language);
    let long = |number: usize| format!("is {number} columns wide: wrap it at {COLUMNS}");
    if language == Language::Script {
        for (i, line) in lines.iter().enumerate().filter(|(_, line)| is_too_long(line, line)) {
            found.push((i + 1, long(line.chars().count())));
        }
    } else {
        for comment in &comments {
            let line = lines[comment.number - 1];
            // What stands before a comment on the same line is the formatter's.
            if is_too_long(line, comment.text) {
                found.push((comment.number, long(line.chars().count())));
            }
        }
    }
    for paragraph in paragraphs(&comments) {
        let words: Vec<&str> = paragraph.words.iter().map(|(_, word)| *word).collect();
        let opening = words.iter().take(3).copied().collect::<Vec<_>>().join(" ").to_lowercase() + " ";
        let begins = |(riddle, _): &&(&str, &str)| {
            opening.strip_prefix(riddle).is_some_and(|rest| !rest.starts_with(char::is_alphabetic))
        };
        if let (true, Some((riddle, instead))) = (paragraph.is_doc, OPENINGS.iter().find(begins)) {
            found.push((paragraph.words[0].0, format!("begins with `{riddle}`: {instead}")));
        }
        for (phrase, not_after, instead) in PHRASES {
            if let Some(at) = find(&words, phrase, not_after) {
                let riddle = words[at..].iter().take(3).copied().collect::<Vec<_>>().join(" ");
                found.push((paragraph.words[at].0, format!("says `{riddle}`: {instead}")));
            }
        }
    }
    if language == Language::Rust {
        for literal in lex(text).1 {
            let lines = literal.text.lines().enumerate();
            let words = lines.flat_map(|(i, line)| line.split_whitespace().map(move |word| (i, word)));
            let (numbers, words): (Vec<usize>, Vec<&str>) = words.unzip();
            if let Some(at) = find(&words, "is|are no *", "there here it") {
                let fault = "a message denies what X is: write `invalid Y X: expected ...`";
                found.push((literal.number + numbers[at], fault.to_owned()));
            }
        }
    }
    found.sort();
    found
}

/// All files in or at `path` that are of a known language.
fn collect(path: &Path, found: &mut Vec<PathBuf>) {
    if path.is_dir() {
        let is_read = !NOT_READ.iter().any(|folder| path.ends_with(folder));
        for entry in fs::read_dir(path).unwrap().filter(|_| is_read) {
            collect(&entry.unwrap().path(), found);
        }
    } else if language(path).is_some() && path.is_file() {
        found.push(path.to_owned());
    }
}

#[test]
fn prose_is_wrapped_and_plain() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut files = Vec::new();
    for name in READ {
        collect(&root.join(name), &mut files);
    }
    files.sort();
    assert!(files.len() > 300, "only {} files were found: does this test still read them?", files.len());
    let mut report = String::new();
    let mut count = 0;
    for file in files {
        let text = fs::read_to_string(&file).unwrap();
        let name = file.strip_prefix(root).unwrap().display();
        for (line, fault) in faults(&text, language(&file).unwrap()) {
            writeln!(report, "{name}:{line}: {fault}").unwrap();
            count += 1;
        }
    }
    assert!(count == 0, "{count} lines to rewrite:\n{report}");
}

/// The faults of a doc comment that consists of this.
fn faults_of(comment: &str) -> Vec<String> {
    let text = format!("/// {}\nfn f() {{}}\n", comment.replace('\n', "\n/// "));
    faults(&text, Language::Rust).into_iter().map(|(_, fault)| fault).collect()
}

fn assert_told_apart(riddle: &str, plain: &str, message: &str) {
    let faults = faults_of(riddle);
    assert!(faults.iter().any(|fault| fault.contains(message)), "of `{riddle}`: {faults:?}");
    assert_eq!(faults_of(plain), [""; 0], "of `{plain}`");
}

#[test]
fn a_line_is_too_long_only_if_it_can_be_wrapped() {
    let words = "word ".repeat(25);
    let url = format!("https://{}", "long".repeat(30));
    let columns = format!("is {} columns wide: wrap it at 100", 4 + words.trim().len());
    assert_told_apart(words.trim(), &url, &columns);
    assert_told_apart(words.trim(), &format!("| {words} |"), &columns);
    assert_told_apart(words.trim(), &format!("[name]: {url}"), &columns);
    assert_told_apart(&format!("{}x", "x ".repeat(48)), &"x ".repeat(48), "is 101 columns wide");
    // The formatter sees to code, and a literal is code.
    let text = format!("let s = \"{words} // {words}\"; // short\n");
    assert_eq!(faults(&text, Language::Rust), []);
    assert_eq!(faults(&format!("let s = 1; // {words}\n"), Language::Rust).len(), 1);
    assert_eq!(faults(&format!("all:\n\t{words}\n"), Language::Script).len(), 1);
    assert_eq!(faults(&format!("# {words}\nx = \"{words}\"\n"), Language::Data).len(), 1);
    assert_eq!(faults(&format!("{words}\n"), Language::Markdown).len(), 1);
}

#[test]
fn openings_that_lean_on_the_comment_above_are_found() {
    for (riddle, plain) in [
        ("The same, for a window.", "Charges a window the same amount."),
        ("That, as it is now.", "Takes a snapshot of the root."),
        ("So many have it.", "The number of slots that have it."),
        ("Such a one is the loser.", "The loser of the race."),
        ("A wish.", "Advises the kernel; failure is ignored."),
        ("As it was.", "The word before the charge."),
    ] {
        assert_told_apart(riddle, plain, "begins with");
    }
    // In a paragraph of its own, too; but not in the middle of one, and not in another comment.
    assert_told_apart("Charges.\n\nThe same here.", "Charges\nthe same here.", "begins with");
    assert_eq!(faults("// The same key again.\n", Language::Rust), []);
}

#[test]
fn phrases_that_need_a_second_reading_are_found() {
    for (riddle, plain) in [
        ("Waits for so many as there are.", "Waits for as many as there are."),
        ("A sweep has it come ahead.", "A sweep pre-faults the memory."),
        ("With a branch it were 1.17.", concat!("Is", " no key there? It is as if it were one.")),
        (concat!("A ratio that\nis", " no integer."), "Where there is no key, it is no longer charged."),
        ("An address that is none.", "There is none. Is none of them there?"),
        ("It is slower, and the same.", "It is slower and has the same result."),
        ("By whoever comes.", "By a thread that comes."),
        ("Of one who\nhas moved it.", "A person who has a key."),
        ("Told to who reads it.", "A user who asks."),
    ] {
        assert_told_apart(riddle, plain, "says");
    }
    let told = PHRASES.iter().map(|(_, _, instead)| *instead);
    assert!(told.chain(OPENINGS.map(|(_, instead)| instead)).all(|instead| !instead.is_empty()));
    // Code in backquotes is not read, and neither is code between fences.
    assert_eq!(faults_of("Calls `who reads`.\n```\n// whoever\n```"), [""; 0]);
}

#[test]
fn a_message_names_what_is_expected() {
    let told = |riddle: &str| {
        let text = format!("fn f() {{ panic!(\"`{{x}}` {riddle}\") }}\n");
        faults(&text, Language::Rust).len()
    };
    assert_eq!(told(concat!("is", " no key")), 1);
    assert_eq!(told("is no longer there"), 0);
    assert_eq!(told("is invalid: expected a key"), 0);
}

#[test]
fn comments_and_literals_of_source_are_told_apart() {
    let source = concat!(
        "/* none */ let a = \"// \\\" no\"; // one\n",
        "let b = r#\"\"// no\"#; let c = '\"'; let d = '\\''; // two\n",
        "fn f<'a>(a: &'a str) {} //! three\n",
        "\"a\nb\" //// four\n",
    );
    let (comments, literals) = lex(source);
    let comments: Vec<_> = comments.iter().map(|line| (line.number, line.text)).collect();
    assert_eq!(comments, [(1, " one"), (2, " two"), (3, " three"), (5, " four")]);
    let literals: Vec<_> = literals.iter().map(|literal| (literal.number, literal.text)).collect();
    assert_eq!(literals, [(1, "// \\\" no"), (2, "\"// no"), (4, "a\nb")]);
}
