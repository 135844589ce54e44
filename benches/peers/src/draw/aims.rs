//! The aims, and the figures that reach or miss them. The floors are in the tables of times.

use super::markdown::{table, wrapped};
use super::shown::{BATCHES, PROFILES, Panel, Shown, THREADS, cell};
use crate::report::number;
use crate::subjects::{BASE, OWN};
use crate::workload::grouped;

/// The aim for a million keys in batches of 32, as a ratio to governor's time.
const IN_BATCHES: f64 = 0.1;
/// The aim for the bytes per key, of any type.
const BYTES: f64 = 24.0;
/// The aim for the p99.9 of a check while many keys turn over, as a ratio to the p99.9 without a
/// turnover.
const TURNOVER: f64 = 2.0;

/// An aim: the largest figure that is allowed, and the figures that were reached.
struct Aim {
    what: String,
    asked: f64,
    /// The figure of each of [`PROFILES`], or the single figure of the build with all subjects.
    reached: Vec<f64>,
    /// The number of digits that are shown.
    digits: usize,
}

pub fn text(shown: &Shown) -> String {
    let aims = aims(shown);
    let missed = aims.iter().filter(|aim| aim.reached.first().is_none_or(|&value| aim.misses(value)));
    let text = format!(
        "{} of {} aims are reached; a figure that misses its aim is bold. The aims are for the defaults: {OWN} \
         and {BASE} as `cargo add` installs them, built in cargo's own profile (`release`). The column `lto` is \
         for comparison. The figures for batches and single checks are from the build with all subjects. The \
         aim for two threads on one admitted key assumes leases of tokens between cores, which are not \
         implemented.{}",
        aims.len() - missed.count(),
        aims.len(),
        without_keys(shown)
    );
    let columns = ["aim"].into_iter().chain(PROFILES);
    [wrapped(&text), table("", columns, aims.iter().map(Aim::cells))].join("\n\n")
}

/// Returns a sentence about a check of one state, which needs neither a lookup of a key nor a
/// guard.
fn without_keys(shown: &Shown) -> String {
    let single = format!("{OWN}, one resource");
    let hot = shown.panels.iter().filter(|panel| panel.keys == 1);
    let ratios = hot.filter_map(|panel| {
        let ratio = shown.ratio(panel, THREADS[0], &single)?;
        Some(format!("{} ({})", number(Some(ratio), 2), panel.title))
    });
    match ratios.collect::<Vec<_>>() {
        ratios if ratios.is_empty() => String::new(),
        ratios => format!(
            " A `SingleLimiter` has one state, so it neither looks up a key nor holds a guard: relative to {BASE}, \
             its checks take {} on one thread.",
            ratios.join(", ")
        ),
    }
}

impl Aim {
    /// Returns whether the value misses the aim, in the digits in which both are printed.
    fn misses(&self, value: f64) -> bool {
        let printed = |value: f64| (value * 10_f64.powi(self.digits as i32)).round();
        printed(value) > printed(self.asked)
    }

    /// Returns the cells of the row. A single figure is from the build with `lto`.
    fn cells(&self) -> (String, Vec<String>) {
        let figure = |&value: &f64| {
            let figure = number(Some(value), self.digits);
            if self.misses(value) { format!("**{figure}**") } else { figure }
        };
        let before = PROFILES.len() - self.reached.len();
        let mut cells = vec![number(Some(self.asked), self.digits)];
        cells.extend(std::iter::repeat_n(String::new(), before).chain(self.reached.iter().map(figure)));
        (self.what.clone(), cells)
    }
}

fn aims(shown: &Shown) -> Vec<Aim> {
    let of_defaults = |panel: &Panel, threads, figure: fn(&crate::report::Row) -> Option<f64>| {
        let of = |profile| figure(shown.default_row(profile, panel, threads, OWN)?);
        (0..PROFILES.len()).filter_map(of).collect::<Vec<_>>()
    };
    let (mut aims, mut bytes) = (Vec::new(), Vec::new());
    for panel in &shown.panels {
        aims.extend(panel.aims.iter().map(|&(threads, asked)| {
            let reached = of_defaults(panel, threads, |row| row.ratio_to_governor);
            Aim { what: cell(panel, threads), asked, reached, digits: 2 }
        }));
        if panel.keys == shown.many && !panel.aims.is_empty() {
            let reached = of_defaults(panel, THREADS[0], |row| row.bytes_per_key);
            bytes.push(Aim {
                what: format!("bytes per key, {}", panel.title),
                asked: BYTES,
                reached,
                digits: 0,
            });
        }
    }
    let in_batches =
        shown.panels.iter().find(|panel| panel.keys == shown.many && panel.workload == "uniform u64");
    aims.extend(in_batches.and_then(|panel| {
        let reached = vec![shown.ratio(panel, THREADS[0], BATCHES)?];
        let what = format!("{}, batches of 32", cell(panel, THREADS[0]));
        Some(Aim { what, asked: IN_BATCHES, reached, digits: 2 })
    }));
    aims.extend(bytes);
    aims.extend(shown.tails.turnover_to_steady(OWN).map(|ratio| {
        let what =
            format!("p99.9 while {} keys turn over, relative to p99.9 without", grouped(shown.tails.keys));
        Aim { what, asked: TURNOVER, reached: vec![ratio], digits: 2 }
    }));
    aims
}
