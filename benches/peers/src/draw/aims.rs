//! What was aimed at, what was reached, and what the floors take of it: folded, in the README.

use super::section::wrapped;
use super::{COARSE, Panel, Shown, THREADS, cell, number};
use crate::subjects::{FIXED_TABLE, FIXED_TABLE_COARSE, FLOOR, OWN};
use crate::workload::grouped;

/// Who is to be beaten on two threads, in every workload.
const RIVALS: [&str; 4] = ["Mutex<HashMap>", "256 mutexed shards", "scc + atomic", "papaya + atomic"];
/// Bytes a key, of whatever type.
const BYTES: f64 = 28.0;
/// The p99.9 of a check while many keys turn over, to the p99.9 without.
const TURNOVER: f64 = 2.0;

struct Line {
    what: String,
    asked: f64,
    reached: f64,
    /// How many digits of these are shown.
    digits: usize,
    is_missed: bool,
    /// What the clock and a compare-and-swap take, where they have the same to do.
    floor: Option<f64>,
    /// What a fixed table takes.
    fixed: Option<f64>,
}

pub fn folded(shown: &Shown) -> String {
    let lines = lines(shown);
    let missed: Vec<&Line> = lines.iter().filter(|line| line.is_missed).collect();
    let is_beyond = |line: &&&Line| line.fixed.is_some_and(|fixed| fixed >= line.asked);
    let (beyond, all) = (missed.iter().filter(is_beyond).count(), lines.len());
    let head = format!(
        "<details><summary>What was aimed at: reached in {} of {all} lines. What the floors take.</summary>",
        all - missed.len()
    );
    let text = format!(
        "A check's time in parts of governor's; the last lines are what they say. The first floor reads the \
         clock and does one compare-and-swap on a word of an array. The fixed table hashes the key, pins the \
         epoch and finds the word beside the key, or a place for a new one: what no limiter can do without \
         that keeps its keys as tollgate does, before it grows, forgets or knows more than one quota. In \
         {beyond} of the {} lines that are missed it alone takes all that was asked for.",
        missed.len()
    );
    let text = text + &without_keys(shown);
    let mut table = vec![
        "| | asked | reached | clock + CAS | fixed table | its share of tollgate's time |".to_owned(),
        "|---|--:|--:|--:|--:|--:|".to_owned(),
    ];
    table.extend(lines.iter().map(Line::markdown));
    format!("{head}\n\n{}\n\n{}\n\n</details>", wrapped(&text), table.join("\n"))
}

/// What is left of a check where there is one state: what nothing that looks a key up can do without.
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
            " Where there is one state, no key to find and no epoch to pin, so with `SingleLimiter`, a check on one \
             thread takes {}.",
            ratios.join(", ")
        ),
    }
}

impl Line {
    fn markdown(&self) -> String {
        let reached = number(Some(self.reached), self.digits);
        let reached = if self.is_missed { format!("**{reached}**") } else { reached };
        let asked = number(Some(self.asked), self.digits);
        let floor = number(self.floor, self.digits);
        let (fixed, share) = (number(self.fixed, self.digits), self.fixed.map(|fixed| fixed / self.reached));
        let share = share.map_or_else(String::new, |share| format!("{:.0} %", share * 100.0));
        format!("| {} | {asked} | {reached} | {floor} | {fixed} | {share} |", self.what)
    }
}

fn lines(shown: &Shown) -> Vec<Line> {
    let of_panel = |panel| times(shown, panel);
    let mut lines: Vec<Line> = shown.panels.iter().flat_map(of_panel).collect();
    lines.push(rivals(shown));
    lines.extend(shown.panels.iter().filter_map(|panel| bytes(shown, panel)));
    lines.extend(turnover(shown));
    lines
}

fn times(shown: &Shown, panel: &Panel) -> Vec<Line> {
    let line = |&(subject, threads, asked): &(&str, usize, f64)| {
        let reached = shown.ratio(panel, threads, subject)?;
        // Batches do less than the floors do.
        let (floor, fixed) = match subject {
            OWN => (Some(FLOOR), Some(FIXED_TABLE)),
            COARSE => (None, Some(FIXED_TABLE_COARSE)),
            _ => (None, None),
        };
        let [floor, fixed] = [floor, fixed].map(|floor| shown.ratio(panel, threads, floor?));
        let who = subject.strip_prefix(OWN).unwrap_or(subject);
        let what = cell(panel, threads) + who;
        Some(Line { what, asked, reached, digits: 2, is_missed: is_more(reached, asked), floor, fixed })
    };
    panel.aims.iter().filter_map(line).collect()
}

/// As it is printed, with two digits.
fn is_more(reached: f64, asked: f64) -> bool {
    reached >= asked + 0.005
}

/// In how many cells they are slower.
fn rivals(shown: &Shown) -> Line {
    let cells = shown.panels.iter().flat_map(|panel| RIVALS.map(|rival| (panel, rival)));
    let all: Vec<bool> = cells
        .filter_map(|(panel, rival)| {
            Some(shown.ratio(panel, THREADS[1], OWN)? < shown.ratio(panel, THREADS[1], rival)?)
        })
        .collect();
    let (asked, reached) = (all.len() as f64, all.iter().filter(|&&is_slower| is_slower).count() as f64);
    let what = "2 threads: cells in which the mutexed maps, scc and papaya are slower".to_owned();
    Line { what, asked, reached, digits: 0, is_missed: reached < asked, floor: None, fixed: None }
}

fn bytes(shown: &Shown, panel: &Panel) -> Option<Line> {
    if panel.keys != shown.many {
        return None;
    }
    let reached = shown.row(panel, THREADS[0], OWN)?.bytes_per_key?;
    let (what, is_missed) = (format!("bytes a key, {}", panel.title), reached.round() > BYTES);
    Some(Line { what, asked: BYTES, reached, digits: 0, is_missed, floor: None, fixed: None })
}

/// The floor copies its array meanwhile, which is the least that a turnover does.
fn turnover(shown: &Shown) -> Option<Line> {
    let tails = shown.tails.as_ref()?;
    let ratio = |subject| tails.turnover_to_steady(subject);
    let (reached, floor, keys) = (ratio(OWN)?, ratio(FLOOR), grouped(tails.keys));
    let what = format!("p99.9 while {keys} keys turn over, to p99.9 without");
    let is_missed = is_more(reached, TURNOVER);
    Some(Line { what, asked: TURNOVER, reached, digits: 2, is_missed, floor, fixed: None })
}
