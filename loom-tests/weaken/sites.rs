//! The sites: each place in the code that chooses an ordering, its edges, and the weaker orderings.

use crate::source::{Source, closing, is_name, names};
use std::ops::Range;

/// A place in the code where an ordering is chosen.
#[derive(Debug)]
pub struct Site {
    pub line: usize,
    /// The ordering as it appears in the source, such as `Acquire` or `fence(SeqCst)`.
    pub what: String,
    /// The edges that the site's note names.
    pub edges: Vec<String>,
    pub mutants: Vec<Mutant>,
}

/// One change that makes a site weaker.
#[derive(Debug, PartialEq, Eq)]
pub struct Mutant {
    pub place: Range<usize>,
    /// A short form of the present text.
    pub from: &'static str,
    /// A short form of the new text.
    pub to: &'static str,
}

const ORDERINGS: [&str; 4] = ["Acquire", "Release", "AcqRel", "SeqCst"];

/// Where the library has a compiler fence, models have their own fence.
const FENCES: [&str; 2] = ["fence", "compiler_fence"];

const REMOVED: &str = "removed";

/// Returns the weaker alternatives of an ordering. For a fence, returns only the orderings that are
/// valid for a fence.
fn weaker(ordering: &str, in_fence: bool) -> &'static [&'static str] {
    match (ordering, in_fence) {
        ("AcqRel", _) => &["Acquire", "Release"],
        ("SeqCst", true) => &["AcqRel"],
        ("Acquire" | "Release", false) => &["Relaxed"],
        _ => &[],
    }
}

impl Mutant {
    /// Returns the text of the source with this change.
    pub fn applied(&self, text: &str) -> String {
        // This is a full path, because the file may not import the weaker ordering.
        let to = match self.to {
            REMOVED => "()".to_owned(),
            ordering => format!("::core::sync::atomic::Ordering::{ordering}"),
        };
        format!("{}{to}{}", &text[..self.place.start], &text[self.place.end..])
    }
}

/// Finds the sites of a file. Sites that cannot be understood are added to `errors`.
pub fn find(source: &Source, errors: &mut Vec<String>) -> Vec<Site> {
    let mut sites = Vec::new();
    let code = &source.code;
    for line in source.renamed_imports(&ORDERINGS) {
        errors.push(format!(
            "{}:{line}: an ordering has another name here, which hides its sites",
            source.name
        ));
    }
    for (at, name) in names(code) {
        let end = at + name.len();
        let (what, mutants) = if let Some(from) = ORDERINGS.into_iter().find(|ordering| *ordering == name) {
            let in_fence = call_around(code, at).is_some_and(|call| FENCES.contains(&call));
            if from == "SeqCst" && !in_fence {
                errors.push(format!("{}:{}: loom knows SeqCst in fences only", source.name, source.line(at)));
                continue;
            }
            let place = start_of_path(code, at)..end;
            let mutant = |to| Mutant { place: place.clone(), from, to };
            let mutants: Vec<_> = weaker(from, in_fence).iter().map(|to| mutant(*to)).collect();
            (name.to_owned(), mutants)
        } else if FENCES.contains(&name) && code[end..].starts_with('(') && !defines(code, at) {
            let place = start_of_path(code, at)..closing(code.as_bytes(), end) + 1;
            let what = code[at..place.end].to_owned();
            (what, vec![Mutant { place, from: "fence", to: REMOVED }])
        } else {
            continue;
        };
        let line = source.line(at);
        match note(source, line).map(|note| edges(&note)) {
            Ok(edges) if edges.is_empty() => {
                errors.push(format!("{}:{line}: the note of {what} names no edge", source.name));
            }
            Ok(edges) => sites.push(Site { line, what, edges, mutants }),
            Err(why) => errors.push(format!("{}:{line}: {what} {why}", source.name)),
        }
    }
    sites
}

/// Returns whether the name at `at` is the name of a function that is defined there.
fn defines(code: &str, at: usize) -> bool {
    code[..at].trim_end().ends_with("fn")
}

/// Returns the name of the call whose arguments contain `at`.
fn call_around(code: &str, at: usize) -> Option<&str> {
    let bytes = code.as_bytes();
    let mut depth = 0;
    for open in (0..at).rev() {
        match bytes[open] {
            b')' => depth += 1,
            b'(' if depth > 0 => depth -= 1,
            b'(' => {
                let start = (0..open).rev().take_while(|&at| is_name(bytes[at])).last()?;
                return Some(&code[start..open]);
            }
            b';' | b'{' | b'}' => return None,
            _ => {}
        }
    }
    None
}

/// Returns where the path that ends with the name at `at` begins: at the O of `Ordering::Acquire`.
fn start_of_path(code: &str, at: usize) -> usize {
    let before = code[..at].trim_end_matches(|c: char| c == ':' || c.is_ascii() && is_name(c as u8));
    if code[..at].ends_with("::") { before.len() } else { at }
}

/// Returns the `// ORDERING:` note above the statement that contains `line`.
fn note(source: &Source, line: usize) -> Result<String, &'static str> {
    let lines: Vec<&str> = source.text.lines().take(line - 1).map(str::trim).collect();
    let is_comment = |line: &&str| line.starts_with("//");
    let code = lines.iter().rev().take_while(|line| !is_comment(line));
    if code.clone().any(|line| line.is_empty() || line.ends_with([';', '{', '}'])) {
        return Err("has no note of its own above its statement");
    }
    let end = lines.len() - code.count();
    let block = lines[..end].iter().rev().take_while(|line| is_comment(line)).count();
    let block = &lines[end - block..end];
    let first = block.iter().rposition(|line| line.starts_with("// ORDERING:"));
    let note = &block[first.ok_or("has no ORDERING note")?..];
    Ok(note.iter().map(|line| line.trim_start_matches(['/', ' '])).collect::<Vec<_>>().join(" "))
}

/// Returns the names between asterisks.
fn edges(note: &str) -> Vec<String> {
    let mut edges = Vec::new();
    for part in note.split('*').skip(1).step_by(2) {
        let is_edge =
            part.starts_with(|c: char| c.is_ascii_lowercase()) && !part.ends_with(' ') && !part.contains('(');
        if is_edge && !edges.contains(&part.to_owned()) {
            edges.push(part.to_owned());
        }
    }
    edges
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> (Vec<Site>, Vec<String>) {
        let mut errors = Vec::new();
        let sites = find(&Source::new("a.rs".to_owned(), text.to_owned()), &mut errors);
        (sites, errors)
    }

    #[test]
    fn a_site_is_an_ordering_with_its_line_and_edge() {
        let (sites, errors) = of("use a::{Acquire, Relaxed};\n\
            // Acquire is strong.\n\
            fn f() {\n\
            // ORDERING: relaxed.\n\
            x.load(Relaxed);\n\
            // Two things.\n\
            // ORDERING: release side of *closed*; on failure\n\
            // acquire, for *link*.\n\
            let y = x\n\
            .compare_exchange(1, 2, Release, Ordering::Acquire);\n\
            }\n");
        assert!(errors.is_empty(), "{errors:?}");
        let found: Vec<_> = sites.iter().map(|site| (site.line, &*site.what, site.edges.join(" "))).collect();
        assert_eq!(
            found,
            [(10, "Release", "closed link".to_owned()), (10, "Acquire", "closed link".to_owned())]
        );
    }

    #[test]
    fn a_mutant_replaces_a_whole_path() {
        let text = "// ORDERING: *a*\nx.load(Ordering::Acquire);";
        let (sites, _) = of(text);
        let [mutant] = &*sites[0].mutants else { panic!("{sites:?}") };
        assert_eq!((mutant.from, mutant.to), ("Acquire", "Relaxed"));
        assert_eq!(
            mutant.applied(text),
            "// ORDERING: *a*\nx.load(::core::sync::atomic::Ordering::Relaxed);"
        );
    }

    #[test]
    fn what_is_weaker_depends_on_the_ordering_and_on_whether_it_is_a_fence() {
        let weaker = |statement: &str| {
            let (sites, errors) = of(&format!("// ORDERING: *a*\n{statement}"));
            assert!(errors.is_empty(), "{errors:?}");
            sites.into_iter().flat_map(|site| site.mutants).map(|mutant| mutant.to).collect::<Vec<_>>()
        };
        assert_eq!(weaker("x.fetch_or(1, AcqRel);"), ["Acquire", "Release"]);
        assert_eq!(weaker("const A: Ordering = Release;"), ["Relaxed"]);
        assert_eq!(weaker("fence(Acquire);"), ["removed"]);
        assert_eq!(weaker("fence(SeqCst);"), ["removed", "AcqRel"]);
        assert_eq!(weaker("compiler_fence(SeqCst);"), ["removed", "AcqRel"]);
        assert_eq!(weaker("x.load(if is_late { Acquire } else { Relaxed });"), ["Relaxed"]);
        assert_eq!(weaker("x.load(f(fence_of(1), Relaxed));"), [""; 0]);
    }

    #[test]
    fn a_fence_is_removed_with_its_argument() {
        let text = "// ORDERING: *a*\natomic::fence(Release); f()";
        let (sites, _) = of(text);
        assert_eq!(sites[0].mutants[0].applied(text), "// ORDERING: *a*\n(); f()");
    }

    #[test]
    fn an_ordering_under_another_name_is_an_error() {
        let text =
            "use a::{Acquire as Strong, Relaxed};\nuse b::Ordering::*;\nuse c::Ordering::{self, Release};\n";
        let (_, errors) = of(text);
        let why = "an ordering has another name here, which hides its sites";
        assert_eq!(errors, [1, 2].map(|line| format!("a.rs:{line}: {why}")));
    }

    #[test]
    fn a_site_without_note_or_edge_is_an_error() {
        let (_, errors) = of("// ORDERING: *a*\nx.load(Acquire);\nx.load(Acquire);\n\
            // ORDERING: acquire.\nx.load(Acquire);\n\
            // Nothing.\nx.load(Acquire);\n\
            // ORDERING: *a*\nx.load(SeqCst);\n");
        let expected = [
            "a.rs:3: Acquire has no note of its own above its statement",
            "a.rs:5: the note of Acquire names no edge",
            "a.rs:7: Acquire has no ORDERING note",
            "a.rs:9: loom knows SeqCst in fences only",
        ];
        assert_eq!(errors, expected);
    }
}
