//! The workloads and subjects that are shown, and their rows, all of which must exist.

use crate::latency::Tails;
use crate::report::{BUSY, Row, Run, stolen, waiting};
use crate::subjects::{BARE_TABLE, BASE, FLOOR, OWN};
use crate::workload::{counted, grouped};

pub const THREADS: [usize; 2] = [1, 2];
pub const BATCHES: &str = "tollgate, batches of 32";
const COARSE: &str = "tollgate, coarse clock";
/// The workload of the first panel.
pub const HOT: &str = "hot key, admitted, u64";
/// The workload of the last panel.
const FLOOD: &str = "flood of fresh u64";

/// The profiles in which defaults are measured: cargo's own profile for releases, and the profile
/// of all other rows.
pub const PROFILES: [&str; 2] = ["release", OTHERS_PROFILE];
pub const OTHERS_PROFILE: &str = "lto";

/// The subjects below the defaults, from the top.
const SUBJECTS: [&str; 13] = [
    OWN,
    "tollgate, system clock",
    BATCHES,
    COARSE,
    BASE,
    "Mutex<HashMap>",
    "256 mutexed shards",
    "scc + atomic",
    "papaya + atomic",
    "dashmap + atomic",
    "rate-net",
    BARE_TABLE,
    FLOOR,
];

/// A workload that is shown, on one thread and on two threads.
pub struct Panel {
    pub workload: &'static str,
    pub keys: usize,
    pub title: String,
    /// The aims of the defaults: a number of threads, and the largest allowed ratio to governor's
    /// time.
    pub aims: &'static [(usize, f64)],
    /// Whether the picture contains this workload.
    is_drawn: bool,
}

fn panels(many: usize, is_large: bool) -> Vec<Panel> {
    // Workloads of many keys are named by the number of keys.
    let panel = |(workload, keys, kind, is_drawn, aims): (_, _, &str, _, _)| {
        let is_counted = keys > 1 && workload != FLOOD;
        let title = if is_counted { format!("{} keys{kind}", grouped(keys)) } else { kind.to_owned() };
        Panel { workload, keys, title, aims, is_drawn }
    };
    let mut panels: Vec<(_, _, _, _, &'static [_])> = vec![
        (HOT, 1, "hot key, admitted", true, &[(1, 0.5), (2, 0.12)]),
        ("hot key, denied, u64", 1, "hot key, denied", true, &[(1, 0.5), (2, 0.15)]),
        ("hot key, admitted, String", 1, "hot key, admitted, String", false, &[]),
        ("uniform u64", 1_000, "", true, &[(1, 0.5), (2, 0.5)]),
        ("uniform String", 1_000, ", String", false, &[]),
        ("uniform u64", many, ", u64", true, &[(1, 0.35)]),
        ("uniform String", many, ", String", true, &[(1, 0.2)]),
        ("uniform IPv6", many, ", IPv6", false, &[]),
        ("Zipf u64", many, ", u64 by Zipf's law", false, &[]),
    ];
    if is_large {
        panels.push(("uniform u64", 10 * many, ", u64", false, &[]));
    }
    panels.push((FLOOD, many / 2, "flood of new keys", true, &[(1, 0.45)]));
    panels.into_iter().map(panel).collect()
}

/// A row of the table, and of the picture.
pub struct Entry<'a> {
    pub name: String,
    pub subject: &'static str,
    pub run: &'a Run,
    pub is_default: bool,
}

impl<'a> Entry<'a> {
    fn default(subject: &'static str, run: &'a Run) -> Self {
        Self { name: format!("{subject}, default, {}", run.profile), subject, run, is_default: true }
    }

    fn other(subject: &'static str, run: &'a Run) -> Self {
        Self { name: subject.to_owned(), subject, run, is_default: false }
    }

    pub fn row(&self, panel: &Panel, threads: usize) -> Option<&Row> {
        rows(self.run, panel, threads).find(|row| row.subject == self.subject)
    }

    pub fn ratio(&self, panel: &Panel, threads: usize) -> Option<f64> {
        self.row(panel, threads)?.ratio_to_governor
    }
}

/// The rows that are shown, all of which exist.
pub struct Shown {
    run: Run,
    /// The rows of the defaults, for each of [`PROFILES`].
    pub defaults: Vec<Run>,
    pub panels: Vec<Panel>,
    pub many: usize,
    pub tails: Tails,
}

impl Shown {
    /// Returns all rows that are shown. The error has the names of the missing ones.
    pub fn of(run: Run, defaults: Vec<Run>, many: usize, tails: Tails) -> Result<Self, String> {
        let is_large = run.rows.iter().any(|row| row.keys == 10 * many);
        let shown = Self { run, defaults, panels: panels(many, is_large), many, tails };
        let mut missing = Vec::new();
        let entries = shown.entries();
        for (panel, threads) in shown.cells() {
            let is_missing = |entry: &&Entry| entry.ratio(panel, threads).is_none();
            let names: Vec<&str> = entries.iter().filter(is_missing).map(|entry| &*entry.name).collect();
            let who = if names.len() == entries.len() { "everybody".into() } else { names.join("; ") };
            if !names.is_empty() {
                let Panel { workload, keys, .. } = panel;
                missing.push(format!("  {workload}, keys: {}, threads: {threads}: {who}", grouped(*keys)));
            }
        }
        if missing.is_empty() { Ok(shown) } else { Err(missing.join("\n")) }
    }

    /// Returns the entries from the top.
    pub fn entries(&self) -> Vec<Entry<'_>> {
        let defaults = self.defaults.iter().flat_map(|run| [OWN, BASE].map(|who| Entry::default(who, run)));
        let others = SUBJECTS.map(|subject| Entry::other(subject, &self.run));
        defaults.chain(others).collect()
    }

    pub fn cells(&self) -> impl Iterator<Item = (&Panel, usize)> {
        self.panels.iter().flat_map(|panel| THREADS.map(|threads| (panel, threads)))
    }

    /// Returns all subjects except the defaults in one panel on this many threads, whether they are
    /// shown or not.
    pub fn rows(&self, panel: &Panel, threads: usize) -> impl Iterator<Item = &Row> {
        rows(&self.run, panel, threads)
    }

    pub fn row(&self, panel: &Panel, threads: usize, subject: &str) -> Option<&Row> {
        self.rows(panel, threads).find(|row| row.subject == subject)
    }

    pub fn ratio(&self, panel: &Panel, threads: usize, subject: &str) -> Option<f64> {
        self.row(panel, threads, subject)?.ratio_to_governor
    }

    /// Returns the panels of the picture.
    pub fn drawn(&self) -> impl Iterator<Item = &Panel> {
        self.panels.iter().filter(|panel| panel.is_drawn)
    }

    /// Returns the row of a default. `profile` is the index of its profile in [`PROFILES`].
    pub fn default_row(&self, profile: usize, panel: &Panel, threads: usize, subject: &str) -> Option<&Row> {
        rows(&self.defaults[profile], panel, threads).find(|row| row.subject == subject)
    }

    /// Returns the peers that keep a state for each key and take less time than this library with
    /// the same kind of clock, with the ratio of their time to the time of this library. The
    /// fastest peer is first.
    pub fn faster(&self, panel: &Panel, threads: usize) -> Vec<(f64, &str)> {
        let share = |row: &'_ Row| {
            let own = self.ratio(panel, threads, self.own_like(&row.subject)?)?;
            Some(row.ratio_to_governor? / own)
        };
        sorted(self.rows(panel, threads).filter_map(|row| Some((share(row)?, &*row.subject))))
    }

    /// Returns the subject of this library that a peer is compared with, which has the same kind of
    /// clock. Returns `None` for the subjects of this library, and for peers with another task:
    /// peers without a limit, with an estimate, or with only one resource, which have no rows with
    /// many keys.
    pub fn own_like(&self, subject: &str) -> Option<&'static str> {
        let has_keys = self.run.rows.iter().any(|row| row.subject == subject && row.keys > 1);
        let is_ours = subject.starts_with(OWN);
        if !has_keys || is_ours || subject.starts_with('(') || subject.ends_with("(estimate)") {
            None
        } else if subject.ends_with("coarse clock") {
            Some(COARSE)
        } else {
            Some(OWN)
        }
    }

    /// Returns the number of rounds: `medians of 31 rounds (flood: 8)`.
    pub fn rounds(&self) -> String {
        let least = |panel: &Panel| self.rows(panel, 1).map(|row| row.rounds).min().unwrap_or(0);
        let (flood, others) = self.panels.split_last().expect("panels is not empty");
        let others = others.iter().map(least).min().unwrap_or(0);
        format!("medians of {others} rounds (flood: {})", least(flood))
    }

    fn runs(&self) -> impl Iterator<Item = &Run> {
        self.defaults.iter().chain([&self.run])
    }

    /// Returns the machine: `2 cores, a processor, a system`.
    pub fn machine(&self) -> String {
        let machine = &self.run.machine;
        format!("{}, {}, {}", counted(machine.cores, "core"), machine.cpu, machine.os)
    }

    /// Returns a sentence if other users of the host took processor time from the threads.
    pub fn stolen(&self) -> Option<String> {
        let most = self.runs().map(|run| run.stolen).fold(self.tails.stolen, f64::max);
        stolen(most)
    }

    /// Returns a sentence if threads had to wait for a core.
    pub fn busy(&self) -> Option<String> {
        let mean = |(run, panel, threads)| (waiting(rows(run, panel, threads)), panel, threads);
        let cells =
            self.runs().flat_map(|run| self.cells().map(move |(panel, threads)| (run, panel, threads)));
        let all: Vec<_> = cells.map(mean).collect();
        let busy: Vec<_> = all.iter().filter(|(waiting, ..)| *waiting > BUSY).collect();
        let (most, panel, threads) = busy.iter().max_by(|a, b| a.0.total_cmp(&b.0))?;
        let (count, all) = (busy.len(), all.len());
        Some(format!(
            "The machine was busy: in {count} of {all} cells threads waited for a core, up to {:.0} % of the \
             time ({}).",
            most * 100.0,
            cell(panel, *threads)
        ))
    }
}

/// Returns the subjects that take less time, the fastest first. A ratio that is printed as 1.00
/// does not count.
pub fn sorted<'a>(shares: impl Iterator<Item = (f64, &'a str)>) -> Vec<(f64, &'a str)> {
    let mut faster: Vec<_> = shares.filter(|&(share, _)| share < 0.995).collect();
    faster.sort_by(|a, b| a.0.total_cmp(&b.0));
    faster
}

/// Returns all rows of a run in one panel on this many threads.
fn rows<'a>(run: &'a Run, panel: &Panel, threads: usize) -> impl Iterator<Item = &'a Row> {
    let (workload, keys) = (panel.workload, panel.keys);
    let is_in = move |row: &&Row| row.workload == workload && row.keys == keys && row.threads == threads;
    run.rows.iter().filter(is_in)
}

/// `1,000 keys, 2 threads`.
pub fn cell(panel: &Panel, threads: usize) -> String {
    format!("{}, {}", panel.title, counted(threads, "thread"))
}
