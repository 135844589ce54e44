//! The aims, the results, and the floors' part of them.

use super::markdown::{number, wrapped};
use super::shown::{BATCHES, PROFILES, Panel, Shown, THREADS, cell};
use crate::subjects::{BARE_TABLE, BARE_TABLE_BATCHES, BASE, CLOCK, FLOOR, OWN};
use crate::workload::grouped;

/// For a million keys in batches of 32, in parts of governor's time.
const IN_BATCHES: f64 = 0.1;
/// Bytes for each key, of any type.
const BYTES: f64 = 24.0;
/// The p99.9 of a check while many keys turn over, to the p99.9 without.
const TURNOVER: f64 = 2.0;

struct Line {
    what: String,
    asked: f64,
    /// One for each of [`PROFILES`], or one of the build with `lto` that has all subjects.
    reached: Vec<f64>,
    /// How many digits of these are shown.
    digits: usize,
    wanted: Wanted,
    floors: Floors,
}

#[derive(Clone, Copy, PartialEq)]
enum Wanted {
    AtMost,
    AtLeast,
}

/// The times of the floors, which limit nothing, in parts of governor's time in the same build.
#[derive(Clone, Copy, Default)]
struct Floors {
    /// A floor that reads the same clock.
    clock: Option<f64>,
    /// A floor with the clock and a compare-and-swap.
    word: Option<f64>,
    /// A floor with a bare table.
    table: Option<f64>,
}

pub fn text(shown: &Shown) -> String {
    let lines = lines(shown);
    let missed: Vec<&Line> = lines.iter().filter(|line| line.is_missed()).collect();
    let missed_by = |floor: fn(&Floors) -> Option<f64>| {
        missed.iter().filter(|line| floor(&line.floors).is_some_and(|value| line.misses(value))).count()
    };
    let (word, bare) = (missed_by(|floors| floors.word), missed_by(|floors| floors.table));
    let text = format!(
        "Reached: {} of {} aims. The aims are of the defaults, so the build is {OWN} and {BASE} as `cargo add` \
         gives them, in cargo's own profile (`release`); what `lto` reaches stands beside it. Batches and the \
         slowest checks are of the build with all subjects. The floors are of that build, too. Of the {} aims \
         that are missed, `clock + CAS` misses {word} as well, and the bare table {bare}. The aim for two threads \
         on one admitted key supposes leases of tokens between cores, which are not built.{}",
        lines.len() - missed.len(),
        lines.len(),
        missed.len(),
        without_keys(shown)
    );
    let mut table = vec![
        format!("| | asked | {} | {} | clock | clock + CAS | bare table |", PROFILES[0], PROFILES[1]),
        "|---|--:|--:|--:|--:|--:|--:|".to_owned(),
    ];
    table.extend(lines.iter().map(Line::markdown));
    [wrapped(&text), table.join("\n")].join("\n\n")
}

/// A check with one state, so without a key to find and without a guard.
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
            " `SingleLimiter` has one state, no key to find and no guard to hold; one thread takes {}.",
            ratios.join(", ")
        ),
    }
}

impl Line {
    /// Does the value miss the aim, as both are printed?
    fn misses(&self, value: f64) -> bool {
        let printed = |value: f64| (value * 10_f64.powi(self.digits as i32)).round();
        match self.wanted {
            Wanted::AtMost => printed(value) > printed(self.asked),
            Wanted::AtLeast => printed(value) < printed(self.asked),
        }
    }

    /// Does the first of its builds miss the aim?
    fn is_missed(&self) -> bool {
        self.reached.first().is_none_or(|&reached| self.misses(reached))
    }

    /// A missed aim is bold. A single figure is of the build with `lto`.
    fn markdown(&self) -> String {
        let cell = |&value: &f64| {
            let figure = number(Some(value), self.digits);
            if self.misses(value) { format!("**{figure}**") } else { figure }
        };
        let reached = match &self.reached[..] {
            [lto] => format!(" | {}", cell(lto)),
            all => all.iter().map(cell).collect::<Vec<_>>().join(" | "),
        };
        let Floors { clock, word, table } = self.floors;
        let floors = [clock, word, table].map(|floor| number(floor, self.digits)).join(" | ");
        format!("| {} | {} | {reached} | {floors} |", self.what, number(Some(self.asked), self.digits))
    }
}

fn lines(shown: &Shown) -> Vec<Line> {
    let mut lines: Vec<Line> = shown.panels.iter().flat_map(|panel| times(shown, panel)).collect();
    lines.extend(shown.panels.iter().filter_map(|panel| batches(shown, panel)));
    lines.push(ahead(shown));
    lines.extend(shown.panels.iter().filter_map(|panel| bytes(shown, panel)));
    lines.extend(turnover(shown));
    lines
}

/// The defaults of both.
fn times(shown: &Shown, panel: &Panel) -> Vec<Line> {
    let line = |&(threads, asked): &(usize, f64)| {
        let ratio = |profile| shown.default_row(profile, panel, threads, OWN)?.ratio_to_governor;
        let reached = (0..PROFILES.len()).filter_map(ratio).collect();
        let [clock, word, table] = [CLOCK, FLOOR, BARE_TABLE].map(|floor| shown.ratio(panel, threads, floor));
        let floors = Floors { clock, word, table };
        Line { what: cell(panel, threads), asked, reached, digits: 2, wanted: Wanted::AtMost, floors }
    };
    panel.aims.iter().map(line).collect()
}

fn batches(shown: &Shown, panel: &Panel) -> Option<Line> {
    if panel.keys != shown.many || panel.workload != "uniform u64" {
        return None;
    }
    let threads = THREADS[0];
    let reached = vec![shown.ratio(panel, threads, BATCHES)?];
    let what = format!("{}, batches of 32", cell(panel, threads));
    let floors = Floors { table: shown.ratio(panel, threads, BARE_TABLE_BATCHES), ..Floors::default() };
    Some(Line { what, asked: IN_BATCHES, reached, digits: 2, wanted: Wanted::AtMost, floors })
}

/// In how many cells the default is ahead of governor's.
fn ahead(shown: &Shown) -> Line {
    let is_ahead = |profile| {
        move |&(panel, threads): &(&Panel, usize)| {
            let row = shown.default_row(profile, panel, threads, OWN);
            row.and_then(|row| row.ratio_to_governor).is_some_and(|ratio| ratio < 1.0)
        }
    };
    let reached = |profile| shown.cells().filter(is_ahead(profile)).count() as f64;
    Line {
        what: format!("cells in which it is ahead of {BASE}"),
        asked: shown.cells().count() as f64,
        reached: (0..PROFILES.len()).map(reached).collect(),
        digits: 0,
        wanted: Wanted::AtLeast,
        floors: Floors::default(),
    }
}

/// The floors are left out: a bare table has outgrown some sizes, and crossbeam-epoch may not have
/// freed those yet.
fn bytes(shown: &Shown, panel: &Panel) -> Option<Line> {
    if panel.keys != shown.many || panel.aims.is_empty() {
        return None;
    }
    let bytes = |profile| shown.default_row(profile, panel, THREADS[0], OWN)?.bytes_per_key;
    Some(Line {
        what: format!("bytes a key, {}", panel.title),
        asked: BYTES,
        reached: (0..PROFILES.len()).filter_map(bytes).collect(),
        digits: 0,
        wanted: Wanted::AtMost,
        floors: Floors::default(),
    })
}

/// The floor copies its array meanwhile, which is the least that a turnover does.
fn turnover(shown: &Shown) -> Option<Line> {
    let tails = &shown.tails;
    let what = format!("p99.9 while {} keys turn over, to p99.9 without", grouped(tails.keys));
    let floors = Floors { word: tails.turnover_to_steady(FLOOR), ..Floors::default() };
    let reached = vec![tails.turnover_to_steady(OWN)?];
    Some(Line { what, asked: TURNOVER, reached, digits: 2, wanted: Wanted::AtMost, floors })
}
