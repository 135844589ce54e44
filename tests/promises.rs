//! The page of the design names, for each promise, tests that are there.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

/// The names of all functions with `#[test]` in a folder, in models and property tests too.
fn tests_of(folder: &Path, names: &mut BTreeSet<String>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            tests_of(&path, names);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let text = fs::read_to_string(&path).unwrap();
            let mut lines = text.lines().map(str::trim);
            while lines.by_ref().any(|line| line == "#[test]") {
                let function = lines.by_ref().find_map(|line| line.strip_prefix("fn "));
                let name = function.and_then(|function| function.split('(').next());
                names.insert(name.expect("a function comes after #[test]").to_owned());
            }
        }
    }
}

/// The rows of the table of promises: their number, and the tests that they name.
fn promises(page: &str) -> Vec<(usize, Vec<String>)> {
    let section = page.split("//! # ").find(|section| section.starts_with("Promises"));
    let rows = section.expect("there is a section of promises").lines().filter_map(|line| {
        let mut cells = line.strip_prefix("//! | ")?.split(" | ");
        let number = cells.next()?.parse().ok()?;
        let tests = cells.nth(1)?.split('`').skip(1).step_by(2).map(str::to_owned).collect();
        Some((number, tests))
    });
    rows.collect()
}

#[test]
fn every_promise_names_tests_that_are_there() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut names = BTreeSet::new();
    for folder in ["src", "tests", "loom-tests/tests", "tests/shuttle/tests"] {
        tests_of(&root.join(folder), &mut names);
    }
    let promises = promises(&fs::read_to_string(root.join("src/design.rs")).unwrap());
    let numbers: Vec<_> = promises.iter().map(|(number, _)| *number).collect();
    assert_eq!(numbers, (1..=8).collect::<Vec<_>>(), "the promises, each once");
    for (number, tests) in promises {
        assert!(!tests.is_empty(), "promise {number} names no test");
        for test in tests {
            assert!(names.contains(&test), "promise {number} names {test}, which is no test");
        }
    }
}
