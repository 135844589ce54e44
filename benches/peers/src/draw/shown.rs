//! The workloads and subjects that are shown, and their rows, all of which must exist.

use super::tails;
use crate::latency::{Plan, Scene, Tails};
use crate::report::{BUSY, Machine, Row, Run, beside, defaults, stolen, waiting};
use crate::subjects::{BARE_TABLE, BASE, FLOOR, OWN};
use crate::workload::{self, Workload, counted, grouped};
use serde::de::DeserializeOwned;
use std::fmt::{self, Display, Formatter};
use std::path::Path;
use std::{fs, io};

pub const THREADS: [usize; 2] = [1, 2];
/// cargo's own profile, in which only defaults are measured.
pub const RELEASE: &str = "release";
/// The profile of defaults and of all other rows.
pub const LTO: &str = "lto";

pub const OWN_RELEASE: &str = "tollgate, default, release";
const OWN_LTO: &str = "tollgate, default, lto";
pub const BASE_RELEASE: &str = "governor, default, release";
/// This library as `cargo add` adds it.
pub const DEFAULTS: [&str; 2] = [OWN_RELEASE, OWN_LTO];
pub const BATCHES: &str = "tollgate, batches of 32";
const COARSE: &str = "tollgate, coarse clock";
const OWN_RESOURCE: &str = "tollgate, one resource";

/// The subjects of the tables and of the picture, from the top.
pub const SUBJECTS: [&str; 17] = [
    OWN_RELEASE,
    BASE_RELEASE,
    OWN_LTO,
    "governor, default, lto",
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

/// The subjects of the table of one resource, from the top. They have no keys, so they have rows
/// only in workloads with one key.
pub const ONE_RESOURCE: [&str; 8] = [
    OWN_RESOURCE,
    "tollgate, one resource, leases",
    BASE,
    "governor, one resource",
    "rate-net, one resource",
    "ratelimit",
    "leaky-bucket",
    FLOOR,
];

/// Returns whether the subject was measured by `peers defaults`.
pub fn is_default(subject: &str) -> bool {
    subject.contains(", default, ")
}

/// A workload on one number of threads: `1,000 keys, 2 threads`.
#[derive(Clone, Copy)]
pub struct Cell {
    pub workload: Workload,
    pub threads: usize,
}

impl Display for Cell {
    fn fmt(&self, f: &mut Formatter) -> fmt::Result {
        write!(f, "{}, {}", self.workload.heading(), counted(self.threads, "thread"))
    }
}

/// The peers that are faster than this library, with the ratio of their time to the time of this
/// library. The fastest peer is first.
pub type Faster<'a> = Vec<(f64, &'a str)>;

/// The rows that are shown, all of which exist.
pub struct Shown {
    /// The rows of `peers`, and those of `peers defaults` in each profile, whose subjects have the
    /// profile in their names.
    runs: [Run; 3],
    pub tails: Tails,
    pub workloads: Vec<Workload>,
    /// The number of keys that counts as many.
    pub many: usize,
}

impl Shown {
    /// Reads all rows that are shown. docs/performance.md describes the `plan` of single checks.
    pub fn read(json: &Path, plan: Plan) -> Result<Self, String> {
        let [release, lto] = [RELEASE, LTO].map(|profile| beside(json, &defaults(profile)));
        let mut runs: [Run; 3] = [read(json)?, read(&release)?, read(&lto)?];
        for Run { profile, rows, .. } in &mut runs[1..] {
            rows.iter_mut().for_each(|row| row.subject += &format!(", default, {profile}"));
        }
        let tails: Tails = read(&beside(json, "latency"))?;
        let Run { machine, profile, rows, .. } = &runs[0];
        if profile != LTO {
            return Err(format!("the rows were measured in profile {profile}, not in {LTO}"));
        }
        if runs.iter().any(|run| run.machine != *machine) || tails.machine != *machine {
            return Err("the rows were measured on different machines".into());
        }
        let pace = (plan.known, plan.rounds, plan.scene.as_secs_f64(), plan.pace);
        if (tails.keys, tails.rounds, tails.seconds, tails.pace) != pace {
            return Err("the single checks were measured with other options than the page describes".into());
        }
        let is_missing = |subject: &&str| tails.row(Scene::Steady, false, subject).is_none();
        if let Some(subject) = tails::SUBJECTS.into_iter().find(is_missing) {
            return Err(format!("no single checks of {subject}"));
        }
        let many = plan.known;
        let is_large = rows.iter().any(|row| row.keys > many);
        let shown = Self { runs, tails, workloads: workload::all(many, is_large), many };
        let missing = |cell: Cell| {
            let single = ONE_RESOURCE.into_iter().filter(|_| cell.workload.keys == 1);
            let mut subjects = SUBJECTS.into_iter().chain(single);
            let subject = subjects.find(|subject| shown.ratio(cell, subject).is_none())?;
            Some(format!("no row of {subject} for {cell}"))
        };
        let missing = shown.cells().find_map(missing);
        missing.map_or(Ok(shown), Err)
    }

    /// Returns the cells of all workloads.
    pub fn cells(&self) -> impl Iterator<Item = Cell> {
        self.workloads.iter().flat_map(|&workload| THREADS.map(|threads| Cell { workload, threads }))
    }

    /// Returns the cell of a workload. `heading` has `{}` in place of the number of many keys.
    pub fn cell(&self, heading: &str, threads: usize) -> Cell {
        let heading = heading.replace("{}", &grouped(self.many));
        let cell = self.cells().find(|cell| cell.threads == threads && cell.workload.heading() == heading);
        cell.expect("a workload has this heading")
    }

    /// Returns the rows of all subjects in a cell, whether they are shown or not.
    fn rows(&self, cell: Cell) -> impl Iterator<Item = &Row> {
        self.runs.iter().flat_map(move |run| rows(run, cell))
    }

    pub fn row(&self, cell: Cell, subject: &str) -> Option<&Row> {
        self.rows(cell).find(|row| row.subject == subject)
    }

    pub fn ratio(&self, cell: Cell, subject: &str) -> Option<f64> {
        self.row(cell, subject)?.ratio_to_governor
    }

    /// Returns the peers that take less time than this library does for the same task, with the
    /// same kind of clock.
    pub fn faster(&self, cell: Cell) -> Faster<'_> {
        let ratio = |row: &Row| {
            let own = self.ratio(cell, self.own_like(&row.subject)?)?;
            Some(row.ratio_to_governor? / own)
        };
        sorted(self.rows(cell).filter_map(|row| Some((ratio(row)?, &*row.subject))))
    }

    /// Returns the subject of this library that a peer is compared with, which has the same kind of
    /// clock. A peer with only one resource has no rows with many keys, and is compared with the
    /// limiter of one resource. Returns `None` for the defaults, for the subjects of this library,
    /// and for peers with another task: peers without a limit, or with an estimate.
    pub fn own_like(&self, subject: &str) -> Option<&'static str> {
        let rows = self.runs[0].rows.iter().filter(|row| row.subject == subject);
        let most_keys = rows.map(|row| row.keys).max()?;
        let is_ours = subject.starts_with(OWN);
        if is_ours || subject.starts_with('(') || subject.ends_with("(estimate)") {
            return None;
        }
        Some(match subject {
            _ if most_keys == 1 => OWN_RESOURCE,
            _ if subject.ends_with("coarse clock") => COARSE,
            _ => OWN,
        })
    }

    /// Returns the number of rounds: `medians of 31 rounds (flood: 8)`.
    pub fn rounds(&self) -> String {
        let rounds = |heading| self.row(self.cell(heading, 1), OWN).map_or(0, |row| row.rounds);
        format!("medians of {} rounds (flood: {})", rounds("1,000 keys"), rounds("flood of new keys"))
    }

    /// Returns the machine: `2 cores, a processor, a system`.
    pub fn machine(&self) -> String {
        let Machine { cores, cpu, os } = &self.tails.machine;
        format!("{}, {cpu}, {os}", counted(*cores, "core"))
    }

    /// Returns a sentence if other users of the host took processor time from the threads.
    pub fn stolen(&self) -> Option<String> {
        let most = self.runs.iter().map(|run| run.stolen).fold(self.tails.stolen, f64::max);
        stolen(most)
    }

    /// Returns a sentence if threads had to wait for a core.
    pub fn busy(&self) -> Option<String> {
        let of_run = |run| self.cells().map(move |cell| (waiting(rows(run, cell)), cell));
        let all: Vec<(f64, Cell)> = self.runs.iter().flat_map(of_run).collect();
        let busy = all.iter().filter(|(waiting, _)| *waiting > BUSY);
        let (most, cell) = busy.clone().max_by(|(a, _), (b, _)| a.total_cmp(b))?;
        let (count, all, most) = (busy.count(), all.len(), most * 100.0);
        Some(format!(
            "The machine was busy: in {count} of {all} cells threads waited for a core, up to {most:.0} % of the \
             time ({cell})."
        ))
    }
}

/// Returns the rows of a run in a cell.
fn rows(run: &Run, cell: Cell) -> impl Iterator<Item = &Row> {
    let Cell { workload: Workload { name, keys, .. }, threads } = cell;
    run.rows.iter().filter(move |row| row.workload == name && row.keys == keys && row.threads == threads)
}

/// Reads a file of results.
fn read<T: DeserializeOwned>(path: &Path) -> Result<T, String> {
    let read = || -> io::Result<T> { Ok(serde_json::from_str(&fs::read_to_string(path)?)?) };
    read().map_err(|why| format!("{}: {why}", path.display()))
}

/// Returns the peers with a ratio below 1. A ratio that is printed as 1.00 does not count.
pub fn sorted<'a>(ratios: impl Iterator<Item = (f64, &'a str)>) -> Faster<'a> {
    let mut faster: Faster = ratios.filter(|&(ratio, _)| ratio < 0.995).collect();
    faster.sort_by(|(a, _), (b, _)| a.total_cmp(b));
    faster
}
