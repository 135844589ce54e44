//! The aims, and the figures that reach or miss them. The floors are in the tables of times.

use super::markdown::{table, wrapped};
use super::shown::{BATCHES, DEFAULTS, LTO, RELEASE, Shown};
use crate::report::number;
use crate::subjects::OWN;
use crate::workload::grouped;
use Figure::{Batches, Bytes, Time, Turnover};

enum Figure {
    /// The time for a check, relative to governor's time.
    Time,
    /// The time for a check in batches of 32, relative to governor's time for a single check.
    Batches,
    /// The allocated bytes per key.
    Bytes,
    /// The p99.9 of a check while many keys turn over, relative to the p99.9 without a turnover.
    Turnover,
}

/// The heading of a workload, a number of threads, a figure, and the largest value that is allowed.
const AIMS: [(&str, usize, Figure, f64); 13] = [
    ("hot key, admitted", 1, Time, 0.5),
    ("hot key, admitted", 2, Time, 0.12),
    ("hot key, denied", 1, Time, 0.5),
    ("hot key, denied", 2, Time, 0.15),
    ("1,000 keys", 1, Time, 0.5),
    ("1,000 keys", 2, Time, 0.5),
    ("{} keys, u64", 1, Time, 0.35),
    ("{} keys, String", 1, Time, 0.2),
    ("flood of new keys", 1, Time, 0.45),
    ("{} keys, u64", 1, Batches, 0.1),
    ("{} keys, u64", 1, Bytes, 24.0),
    ("{} keys, String", 1, Bytes, 24.0),
    ("{} keys, u64", 1, Turnover, 2.0),
];

/// Returns a table of the aims, with the number of aims that are reached. Only the defaults have a
/// figure in the profile `release`; it decides whether they reach an aim.
pub fn text(shown: &Shown) -> String {
    let (many, mut missed) = (grouped(shown.many), 0);
    let row = |(heading, threads, figure, bound)| {
        let cell = shown.cell(heading, threads);
        let (name, digits, figures) = match figure {
            Time => (cell.to_string(), 2, DEFAULTS.map(|subject| shown.ratio(cell, subject))),
            Batches => (format!("{cell}, batches of 32"), 2, [None, shown.ratio(cell, BATCHES)]),
            Bytes => {
                let bytes = DEFAULTS.map(|subject| shown.row(cell, subject)?.bytes_per_key);
                (format!("bytes per key, {}", cell.workload.heading()), 0, bytes)
            }
            Turnover => {
                let name = format!("p99.9 while {many} keys turn over, relative to p99.9 without");
                (name, 2, [None, shown.tails.turnover_to_steady(OWN)])
            }
        };
        let misses = |figure: &String| figure.parse().is_ok_and(|printed: f64| printed > bound);
        let figures = figures.map(|figure| number(figure, digits));
        missed += usize::from(figures.iter().find(|figure| !figure.is_empty()).is_none_or(misses));
        let bold = figures.map(|figure| if misses(&figure) { format!("**{figure}**") } else { figure });
        (name, [vec![number(Some(bound), digits)], bold.to_vec()].concat())
    };
    let table = table("", &["aim", RELEASE, LTO], AIMS.map(row));
    let text = format!(
        "{} of {} aims are reached; a figure that misses its aim is bold.",
        AIMS.len() - missed,
        AIMS.len()
    );
    format!("{}\n\n{table}", wrapped(&text))
}
