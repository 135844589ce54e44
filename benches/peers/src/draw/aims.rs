//! What was aimed at, what was reached, and what the floors take of it: folded, in the README.

use super::section::wrapped;
use super::{BATCHES, COARSE, Panel, Shown, THREADS, cell, number};
use crate::subjects::{BARE_TABLE, BARE_TABLE_BATCHES, BARE_TABLE_COARSE, CLOCK, FLOOR, OWN};
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
    wanted: Wanted,
    /// What reading the same clock takes.
    clock: Option<f64>,
    /// What the clock and a compare-and-swap take, where they have the same to do.
    floor: Option<f64>,
    /// What a bare table reaches.
    bare: Option<f64>,
}

#[derive(Clone, Copy, PartialEq)]
enum Wanted {
    AtMost,
    AtLeast,
}

pub fn folded(shown: &Shown) -> String {
    let lines = lines(shown);
    let missed: Vec<&Line> = lines.iter().filter(|line| line.is_missed_by(line.reached)).collect();
    let missed_by = |who: fn(&Line) -> Option<f64>| {
        missed.iter().filter(|line| who(line).is_some_and(|value| line.is_missed_by(value))).count()
    };
    let (clock, all) = (missed_by(|line| line.clock), lines.len());
    let (floor, bare) = (missed_by(|line| line.floor), missed_by(|line| line.bare));
    let head = format!(
        "<details><summary>What was aimed at: reached in {} of {all} lines. What the floors take.</summary>",
        all - missed.len()
    );
    let text = format!(
        "A check's time in parts of governor's; the last lines are what they say. The first floor only reads the \
         clock, the next does one compare-and-swap besides, on a word of an array. The bare table hashes the key, takes a guard of \
         crossbeam-epoch and finds the word beside the key, or a place for a new one, and grows while everybody \
         waits: what a table of ready parts takes before it forgets, grows beside others or knows more than one \
         quota. (tollgate's own guards take less, so it can be the faster one.) Of the {} lines that are missed, the \
         clock misses {clock}, too, the compare-and-swap {floor} and the bare table {bare}.",
        missed.len()
    );
    let text = text + &without_keys(shown);
    let limits: Vec<String> = missed.iter().filter_map(|line| line.limits()).collect();
    let mut table = vec![
        "| | asked | reached | clock | clock + CAS | bare table | its share of what tollgate takes |"
            .to_owned(),
        "|---|--:|--:|--:|--:|--:|--:|".to_owned(),
    ];
    table.extend(lines.iter().map(Line::markdown));
    let parts = [head, wrapped(&text), limits.join("\n"), table.join("\n"), "</details>".into()];
    parts.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join("\n\n")
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
            " Where there is one state, no key to find and no guard to hold, so with `SingleLimiter`, a check on one \
             thread takes {}.",
            ratios.join(", ")
        ),
    }
}

impl Line {
    /// As it is printed.
    fn is_missed_by(&self, value: f64) -> bool {
        let printed = |value: f64| (value * 10_f64.powi(self.digits as i32)).round();
        match self.wanted {
            Wanted::AtMost => printed(value) > printed(self.asked),
            Wanted::AtLeast => printed(value) < printed(self.asked),
        }
    }

    /// How much of what tollgate takes the floors take that limit nothing.
    fn limits(&self) -> Option<String> {
        let share = |floor: f64| floor / self.reached * 100.0;
        let (clock, floor) = (share(self.clock?), share(self.floor?));
        Some(format!(
            "- {}: the clock takes {clock:.0} % of tollgate's time, with the word of the array {floor:.0} %",
            self.what
        ))
    }

    fn markdown(&self) -> String {
        let reached = number(Some(self.reached), self.digits);
        let reached = if self.is_missed_by(self.reached) { format!("**{reached}**") } else { reached };
        let asked = number(Some(self.asked), self.digits);
        let [clock, floor] = [self.clock, self.floor].map(|floor| number(floor, self.digits));
        let (bare, share) = (number(self.bare, self.digits), self.bare.map(|bare| bare / self.reached));
        let share = share.filter(|_| self.wanted == Wanted::AtMost);
        let share = share.map_or_else(String::new, |share| format!("{:.0} %", share * 100.0));
        format!("| {} | {asked} | {reached} | {clock} | {floor} | {bare} | {share} |", self.what)
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
        let (floors, bare) = match subject {
            OWN => ([Some(CLOCK), Some(FLOOR)], BARE_TABLE),
            // The first floors read a clock of the other kind, or read it for each key.
            COARSE => ([None; 2], BARE_TABLE_COARSE),
            BATCHES => ([None; 2], BARE_TABLE_BATCHES),
            _ => unreachable!("nothing is asked of {subject}"),
        };
        let [clock, floor] = floors.map(|floor| shown.ratio(panel, threads, floor?));
        let bare = shown.ratio(panel, threads, bare);
        let who = subject.strip_prefix(OWN).unwrap_or(subject);
        let what = cell(panel, threads) + who;
        Some(Line { what, asked, reached, digits: 2, wanted: Wanted::AtMost, clock, floor, bare })
    };
    panel.aims.iter().filter_map(line).collect()
}

/// In how many cells they are slower.
fn rivals(shown: &Shown) -> Line {
    let cells = || shown.panels.iter().flat_map(|panel| RIVALS.map(|rival| (panel, rival)));
    let slower_than = |subject| {
        let is_slower = |&(panel, rival): &(&Panel, &str)| {
            let [own, rival] = [subject, rival].map(|who| shown.ratio(panel, THREADS[1], who));
            own.zip(rival).is_some_and(|(own, rival)| own < rival)
        };
        cells().filter(is_slower).count() as f64
    };
    let what = "2 threads: cells in which the mutexed maps, scc and papaya are slower".to_owned();
    let (reached, bare) = (slower_than(OWN), Some(slower_than(BARE_TABLE)));
    let asked = cells().count() as f64;
    Line { what, asked, reached, digits: 0, wanted: Wanted::AtLeast, clock: None, floor: None, bare }
}

fn bytes(shown: &Shown, panel: &Panel) -> Option<Line> {
    if panel.keys != shown.many {
        return None;
    }
    let reached = shown.row(panel, THREADS[0], OWN)?.bytes_per_key?;
    let what = format!("bytes a key, {}", panel.title);
    // A bare table's say nothing: some it has outgrown, and the epoch may not have freed that yet.
    Some(Line {
        what,
        asked: BYTES,
        reached,
        digits: 0,
        wanted: Wanted::AtMost,
        clock: None,
        floor: None,
        bare: None,
    })
}

/// The floor copies its array meanwhile, which is the least that a turnover does.
fn turnover(shown: &Shown) -> Option<Line> {
    let tails = shown.tails.as_ref()?;
    let ratio = |subject| tails.turnover_to_steady(subject);
    let (reached, floor, keys) = (ratio(OWN)?, ratio(FLOOR), grouped(tails.keys));
    let what = format!("p99.9 while {keys} keys turn over, to p99.9 without");
    Some(Line {
        what,
        asked: TURNOVER,
        reached,
        digits: 2,
        wanted: Wanted::AtMost,
        clock: None,
        floor,
        bare: None,
    })
}
