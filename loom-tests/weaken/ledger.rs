//! The ledgers: the tables in the module pages that name, for each edge, the tests that fail
//! without it.

use crate::source::Source;
use std::collections::BTreeMap;

/// The entry of an edge in the ledgers.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Edge {
    /// Each of the edge's orderings is needed by at least one of these tests.
    pub tests: Vec<String>,
    /// The reason why the edge has no test, if it has none.
    pub reason: Option<String>,
}

/// Returns the edges of all ledgers, by name. Faults in a ledger are added to `errors`.
pub fn read(sources: &[Source], errors: &mut Vec<String>) -> BTreeMap<String, Edge> {
    let mut edges = BTreeMap::new();
    for source in sources {
        // The column of the tests, within a ledger.
        let mut column = None;
        for (i, line) in source.text.lines().enumerate() {
            let Some(cells) = cells(line) else {
                column = None;
                continue;
            };
            if cells[0] == "edge" {
                column = cells.iter().position(|cell| cell.contains("loom test"));
                continue;
            }
            let name = cells[0].trim_matches(['*', '`']);
            if name.starts_with(['-', ':', '(']) {
                continue;
            }
            let Some(column) = column else { continue };
            let edge: &mut Edge = edges.entry(name.to_owned()).or_default();
            let tests = cells.get(column).copied().unwrap_or_default();
            if let Some(reason) = tests.strip_prefix("none") {
                let reason = reason.trim_start_matches([':', ' ']);
                if reason.is_empty() {
                    errors.push(format!("{}:{}: no reason why *{name}* has no test", source.name, i + 1));
                }
                edge.reason = Some(reason.to_owned());
                continue;
            }
            let named: Vec<_> = tests.split('`').skip(1).step_by(2).map(str::to_owned).collect();
            if named.is_empty() {
                errors.push(format!("{}:{}: no test for *{name}*", source.name, i + 1));
            }
            edge.tests.extend(named);
        }
    }
    edges
}

/// Returns the cells of one line of a table in a doc comment.
fn cells(line: &str) -> Option<Vec<&str>> {
    let line = line.trim_start();
    let line = line.strip_prefix("//!").or_else(|| line.strip_prefix("///"))?;
    let row = line.trim().strip_prefix('|')?.strip_suffix('|')?;
    Some(row.split('|').map(str::trim).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> (Vec<(String, Edge)>, Vec<String>) {
        let mut errors = Vec::new();
        let source = Source::new("a.rs".to_owned(), text.to_owned());
        let edges = read(&[source], &mut errors);
        (edges.into_iter().collect(), errors)
    }

    #[test]
    fn rows_name_tests_or_say_why_there_are_none() {
        let (edges, errors) = of("//! | edge | becomes visible | loom test that fails |\n\
            //! |---|---|---|\n\
            //! | (none) | | |\n\
            //! | link | `all` | `one_races`, `two_race` |\n\
            //!\n\
            //! | word | what |\n\
            //! | other | `no_test` |\n\
            /// | edge | loom test that fails |\n\
            /// | *turned* | none: it is slow |\n\
            /// | link | `three` |\n");
        let tests = ["one_races", "two_race", "three"].map(str::to_owned).to_vec();
        let turned = Edge { tests: vec![], reason: Some("it is slow".to_owned()) };
        assert_eq!(edges, [("link".to_owned(), Edge { tests, reason: None }), ("turned".to_owned(), turned)]);
        assert!(errors.is_empty());
    }

    #[test]
    fn a_row_without_tests_or_reason_is_an_error() {
        let (_, errors) = of("//! | edge | loom test |\n//! | a | none |\n//! | b | |\n");
        assert_eq!(errors, ["a.rs:2: no reason why *a* has no test", "a.rs:3: no test for *b*"]);
    }
}
