//! The pages name tests and files that exist.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// The pages whose names of tests and files are looked up.
const PAGES: [&str; 9] = [
    "ARCHITECTURE.md",
    "README.md",
    "SECURITY.md",
    "docs/axum.md",
    "docs/choosing.md",
    "docs/design.md",
    "docs/haproxy.md",
    "docs/platforms.md",
    "docs/verification.md",
];

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn page(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// Collects the names of all `#[test]` and `#[tokio::test]` functions in a folder, including models
/// and property tests.
fn tests_of(folder: &Path, names: &mut BTreeSet<String>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            if !path.ends_with("target") {
                tests_of(&path, names);
            }
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let text = fs::read_to_string(&path).unwrap();
            let mut lines = text.lines().map(str::trim);
            while lines.by_ref().any(|line| line == "#[test]" || line.starts_with("#[tokio::test")) {
                let function =
                    lines.by_ref().find_map(|line| line.trim_start_matches("async ").strip_prefix("fn "));
                let name = function.and_then(|function| function.split('(').next());
                names.insert(name.expect("a function comes after the attribute").to_owned());
            }
        }
    }
}

fn all_tests() -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for folder in ["src", "tests", "loom-tests/tests", "crates"] {
        if root().join(folder).is_dir() {
            tests_of(&root().join(folder), &mut names);
        }
    }
    names
}

/// Returns the texts in single backticks, outside of code blocks.
fn quoted(page: &str) -> Vec<&str> {
    let mut found = Vec::new();
    for text in page.split("```").step_by(2) {
        found.extend(text.split('`').skip(1).step_by(2));
    }
    found
}

/// Returns whether the name is a sentence, as the names of tests are.
fn is_test(name: &str) -> bool {
    name.matches('_').count() >= 3
        && name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_')
}

/// Returns the promises, by number, with the tests below each.
fn promises(page: &str) -> Vec<(usize, Vec<&str>)> {
    let section = page.split("\n# ").find(|section| section.starts_with("Promises"));
    let parts = section.expect("there is a section of promises").split("\n## ").skip(1);
    let promises = parts.map(|part| {
        let number = part.split('.').next().and_then(|number| number.parse().ok());
        let tests = part.split_once("\nTests: ").map_or(vec![], |(_, tests)| quoted(tests));
        (number.expect("a promise begins with its number"), tests)
    });
    promises.collect()
}

#[test]
fn every_promise_names_tests_that_are_there() {
    let (names, page) = (all_tests(), page("docs/design.md"));
    let promises = promises(&page);
    let numbers: Vec<_> = promises.iter().map(|(number, _)| *number).collect();
    assert_eq!(numbers, (1..=9).collect::<Vec<_>>(), "the promises, each once");
    for (number, tests) in promises {
        assert!(!tests.is_empty(), "promise {number} names no test");
        for test in tests {
            assert!(names.contains(test), "promise {number} names {test}, which does not exist");
        }
    }
}

#[test]
fn every_test_that_a_page_names_is_there() {
    let names = all_tests();
    for path in PAGES {
        let page = page(path);
        for name in quoted(&page).into_iter().filter(|name| is_test(name)) {
            assert!(names.contains(name), "{path} names {name}, which does not exist");
        }
    }
}

#[test]
fn every_file_that_a_page_names_is_there() {
    let folders = ["src", "tests", "crates", "docs", "benches", "loom-tests"];
    let mut counted = 0;
    for path in PAGES {
        let page = page(path);
        let linked = page.split("](").skip(1).filter_map(|rest| rest.split([')', '#']).next());
        let linked = linked.filter(|link| !link.is_empty() && !link.contains("://"));
        let beside = PathBuf::from(path).parent().map(Path::to_owned).unwrap_or_default();
        let named = quoted(&page).into_iter().filter(|name| {
            !name.contains([' ', '*', '('])
                && folders
                    .iter()
                    .any(|folder| name.strip_prefix(folder).is_some_and(|rest| rest.starts_with('/')))
        });
        let files = linked.map(|link| beside.join(link)).chain(named.map(PathBuf::from));
        for file in files {
            counted += 1;
            assert!(root().join(&file).exists(), "{path} names {}, which is not there", file.display());
        }
    }
    assert!(counted > 50, "only {counted} files are named");
}

#[test]
fn the_front_doors_hide_no_line_of_an_example() {
    for path in ["README.md", "ARCHITECTURE.md"] {
        let page = page(path);
        for code in page.split("```").skip(1).step_by(2).filter(|code| code.starts_with("rust")) {
            let hidden = code.lines().find(|line| *line == "#" || line.starts_with("# "));
            assert_eq!(hidden, None, "{path} has a line that rustdoc hides and others show");
        }
    }
}
