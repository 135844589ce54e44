//! From saved rows to what the README shows: `peers draw`.
//!
//! Measuring and drawing are apart, so that a picture can be drawn again from the same rows.
//! Nothing is written unless every row that is to be shown is there: a run with `--only`, one with
//! `--quick`, and one that was cut short lack some. The first rows are of `peers defaults`, and
//! stand beside the others. Ten times as many keys are shown if they were measured, and how long
//! the slowest checks take if that was: what `peers latency` left beside the rows.

mod aims;
mod picture;
mod section;
mod tails;

use crate::latency::Tails;
use crate::report::{BUSY, Row, Run, beside, defaults};
use crate::subjects::{BARE_TABLE, BASE, FLOOR, OWN};
use crate::workload::grouped;
use std::fs;
use std::path::Path;

/// Where the picture goes, from the root; the README points there.
const PICTURE: &str = "benches/peers/ratios.svg";
const README: &str = "README.md";

const THREADS: [usize; 2] = [1, 2];
const BATCHES: &str = "tollgate, batches of 32";
const COARSE: &str = "tollgate, coarse clock";

/// Of cargo's profiles, those that defaults are measured in: its own for releases, and that of all
/// the others.
const PROFILES: [&str; 2] = ["release", OTHERS_PROFILE];
const OTHERS_PROFILE: &str = "lto";

/// Who is shown below the defaults, from the top.
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

/// A workload that is shown, on one thread and on two.
struct Panel {
    workload: &'static str,
    keys: usize,
    title: String,
    /// What was aimed at: who, on how many threads, which part of governor's time at the most.
    aims: &'static [(&'static str, usize, f64)],
}

fn panels(many: usize, is_large: bool) -> Vec<Panel> {
    let panel = |workload, keys, title, aims| Panel { workload, keys, title, aims };
    let uniform =
        |workload, keys, kind, aims| panel(workload, keys, format!("{} keys{kind}", grouped(keys)), aims);
    let mut panels = vec![
        panel(
            "hot key, admitted, u64",
            1,
            "hot key, admitted".to_owned(),
            &[(OWN, 1, 0.5), (OWN, 2, 0.25), (COARSE, 1, 0.33)],
        ),
        panel("hot key, denied, u64", 1, "hot key, denied".to_owned(), &[(OWN, 1, 0.45), (OWN, 2, 0.15)]),
        uniform("uniform u64", 1_000, "", &[(OWN, 1, 0.5), (OWN, 2, 0.5)]),
        uniform("uniform u64", many, ", u64", &[(OWN, 1, 0.6), (BATCHES, 1, 0.13)]),
        uniform("uniform String", many, ", String", &[(OWN, 1, 0.5)]),
    ];
    if is_large {
        panels.push(uniform("uniform u64", 10 * many, ", u64", &[(BATCHES, 1, 0.1)]));
    }
    panels.push(panel("flood of fresh u64", many / 2, "flood of new keys".to_owned(), &[(OWN, 1, 0.5)]));
    panels
}

/// A line of the table, and of the picture.
struct Entry<'a> {
    name: String,
    subject: &'static str,
    run: &'a Run,
    is_default: bool,
}

impl<'a> Entry<'a> {
    fn default(subject: &'static str, run: &'a Run) -> Self {
        Self { name: format!("{subject}, default, {}", run.profile), subject, run, is_default: true }
    }

    fn other(subject: &'static str, run: &'a Run) -> Self {
        Self { name: subject.to_owned(), subject, run, is_default: false }
    }

    fn row(&self, panel: &Panel, threads: usize) -> Option<&Row> {
        rows(self.run, panel, threads).find(|row| row.subject == self.subject)
    }

    fn ratio(&self, panel: &Panel, threads: usize) -> Option<f64> {
        self.row(panel, threads)?.ratio_to_governor
    }
}

/// The rows that are shown, all of them there.
struct Shown {
    run: Run,
    /// One for each of [`PROFILES`].
    defaults: Vec<Run>,
    panels: Vec<Panel>,
    many: usize,
    tails: Option<Tails>,
}

impl Shown {
    /// Or the names of what is missing.
    fn of(run: Run, defaults: Vec<Run>, many: usize, tails: Option<Tails>) -> Result<Self, String> {
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
        let names = shown.tails.as_ref().map(tails::missing).unwrap_or_default();
        if !names.is_empty() {
            missing.push(format!("  and of `peers latency`: {}", names.join("; ")));
        }
        if missing.is_empty() { Ok(shown) } else { Err(missing.join("\n")) }
    }

    /// From the top.
    fn entries(&self) -> Vec<Entry<'_>> {
        let defaults = self.defaults.iter().flat_map(|run| [OWN, BASE].map(|who| Entry::default(who, run)));
        let others = SUBJECTS.map(|subject| Entry::other(subject, &self.run));
        defaults.chain(others).collect()
    }

    fn cells(&self) -> impl Iterator<Item = (&Panel, usize)> {
        self.panels.iter().flat_map(|panel| THREADS.map(|threads| (panel, threads)))
    }

    /// Everybody but the defaults in one panel on so many threads, shown or not.
    fn rows(&self, panel: &Panel, threads: usize) -> impl Iterator<Item = &Row> {
        rows(&self.run, panel, threads)
    }

    fn row(&self, panel: &Panel, threads: usize, subject: &str) -> Option<&Row> {
        self.rows(panel, threads).find(|row| row.subject == subject)
    }

    fn ratio(&self, panel: &Panel, threads: usize, subject: &str) -> Option<f64> {
        self.row(panel, threads, subject)?.ratio_to_governor
    }

    /// The panels of the picture.
    fn drawn(&self) -> impl Iterator<Item = &Panel> {
        self.panels.iter().filter(|panel| panel.keys <= self.many)
    }

    /// Which of ours a peer is held against: one with the same kind of clock. `None` for ours, and for what
    /// has another task: no limit at all, an estimate, and one resource only, which has no rows with many
    /// keys.
    fn own_like(&self, subject: &str) -> Option<&'static str> {
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

    /// How often a turn was taken: `medians of 31 rounds (flood: 8)`.
    fn rounds(&self) -> String {
        let least = |panel: &Panel| self.rows(panel, 1).map(|row| row.rounds).min().unwrap_or(0);
        let (flood, others) = self.panels.split_last().expect("panels is not empty");
        let others = others.iter().map(least).min().unwrap_or(0);
        format!("medians of {others} rounds (flood: {})", least(flood))
    }

    fn runs(&self) -> impl Iterator<Item = &Run> {
        self.defaults.iter().chain([&self.run])
    }

    /// `2 cores, a processor, a system`.
    fn machine(&self) -> String {
        let machine = &self.run.machine;
        let plural = if machine.cores == 1 { "" } else { "s" };
        format!("{} core{plural}, {}, {}", machine.cores, machine.cpu, machine.os)
    }

    /// A sentence, if others on the host took what the threads were to have.
    fn stolen(&self) -> Option<String> {
        let latency = self.tails.iter().map(|tails| tails.stolen);
        let most = self.runs().map(|run| run.stolen).chain(latency).fold(0.0, f64::max);
        let percent = most * 100.0;
        (most > BUSY)
            .then(|| format!("The host was busy: others took {percent:.0} % of the processors' time."))
    }

    /// A sentence, if threads had to wait for a core.
    fn busy(&self) -> Option<String> {
        let mean = |(run, panel, threads)| {
            let waiting: Vec<f64> = rows(run, panel, threads).map(|row| row.waiting).collect();
            (waiting.iter().sum::<f64>() / waiting.len() as f64, panel, threads)
        };
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

/// All of a run in one panel on so many threads.
fn rows<'a>(run: &'a Run, panel: &Panel, threads: usize) -> impl Iterator<Item = &'a Row> {
    let (workload, keys) = (panel.workload, panel.keys);
    let is_in = move |row: &&Row| row.workload == workload && row.keys == keys && row.threads == threads;
    run.rows.iter().filter(is_in)
}

/// `1,000 keys, 2 threads`.
fn cell(panel: &Panel, threads: usize) -> String {
    format!("{}, {threads} thread{}", panel.title, if threads == 1 { "" } else { "s" })
}

/// Draws the rows in `json`. `aside`: the README and its picture stay as they are.
pub fn run(json: &Path, many: usize, aside: bool) -> Result<(), String> {
    let run = measured(json, OTHERS_PROFILE)?;
    let defaults = PROFILES.map(|profile| {
        let (path, machine) = (beside(json, &defaults(profile)), &run.machine);
        let run = measured(&path, profile)?;
        if run.machine == *machine { Ok(run) } else { Err(told(&path, ELSEWHERE)) }
    });
    let defaults = defaults.into_iter().collect::<Result<_, _>>()?;
    let tails = tails(json, &run, many)?;
    let shown = Shown::of(run, defaults, many, tails);
    let shown = shown.map_err(|missing| {
        let cure = if aside { "`peers --quick`" } else { "`peers`, with neither --only nor --quick," };
        format!("{} lacks rows, so nothing is drawn; {cure} measures them:\n{missing}", json.display())
    })?;
    let (picture, section) = (picture::svg(&shown)?, section::markdown(&shown));
    if aside {
        println!("{section}");
        return write(&json.with_extension("svg"), &picture);
    }
    let readme = section::placed(&read(Path::new(README))?, &section)?;
    write(Path::new(PICTURE), &picture)?;
    write(Path::new(README), &readme)
}

const ELSEWHERE: &str = "measured on another machine than the rows";

/// What `peers` left there, if it was built in this profile.
fn measured(path: &Path, profile: &str) -> Result<Run, String> {
    let run: Run = serde_json::from_str(&read(path)?).map_err(|why| told(path, why))?;
    if run.profile == profile {
        Ok(run)
    } else {
        Err(told(path, format!("measured in profile {}", run.profile)))
    }
}

/// What `peers latency` left beside the rows, if it did, with as many keys and on the same machine.
fn tails(json: &Path, run: &Run, many: usize) -> Result<Option<Tails>, String> {
    let path = beside(json, "latency");
    if !path.exists() {
        println!("{} is not there, so latency is not shown; `peers latency` measures it", path.display());
        return Ok(None);
    }
    let tails: Tails = serde_json::from_str(&read(&path)?).map_err(|why| told(&path, why))?;
    if tails.machine != run.machine {
        return Err(told(&path, ELSEWHERE));
    }
    if tails.keys != many {
        return Err(told(&path, format!("measured with {} keys", grouped(tails.keys))));
    }
    Ok(Some(tails))
}

/// Those who take less, with the share that they take; what would be printed as 1.00 is no less.
fn faster(shares: Vec<(f64, String)>) -> String {
    let mut faster: Vec<_> = shares.into_iter().filter(|&(share, _)| share < 0.995).collect();
    faster.sort_by(|a, b| a.0.total_cmp(&b.0));
    let names = faster.iter().map(|(share, name)| format!("{} {share:.2}", quoted(name)));
    names.collect::<Vec<_>>().join("; ")
}

fn number(value: Option<f64>, digits: usize) -> String {
    value.map_or_else(String::new, |value| format!("{value:.digits$}"))
}

/// Angle brackets would be a tag.
fn quoted(name: &str) -> String {
    if name.contains('<') { format!("`{name}`") } else { name.to_owned() }
}

fn read(path: &Path) -> Result<String, String> {
    fs::read_to_string(path).map_err(|why| told(path, why))
}

fn write(path: &Path, text: &str) -> Result<(), String> {
    fs::write(path, text).map_err(|why| told(path, why))?;
    println!("wrote {}", path.display());
    Ok(())
}

fn told(path: &Path, why: impl std::fmt::Display) -> String {
    format!("{}: {why}", path.display())
}
