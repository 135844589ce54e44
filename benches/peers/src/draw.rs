//! From saved rows to what the README shows: `peers draw`.
//!
//! Measuring and drawing are apart, so that a picture can be drawn again from the same rows. Nothing is
//! written unless every row that is to be shown is there: a run with `--only`, one with `--quick`, and one
//! that was cut short lack some.

mod picture;
mod section;

use crate::report::{BUSY, Row, Run};
use crate::subjects::{BASE, FLOOR, OWN};
use crate::workload::grouped;
use std::fs;
use std::path::Path;

/// Where the picture goes, from the root; the README points there.
const PICTURE: &str = "benches/peers/ratios.svg";
const README: &str = "README.md";

const THREADS: [usize; 2] = [1, 2];

/// Who is shown, from the top.
const SUBJECTS: [&str; 11] = [
    OWN,
    "tollgate, batches of 32",
    "tollgate, coarse clock",
    BASE,
    "Mutex<HashMap>",
    "256 mutexed shards",
    "scc + atomic",
    "papaya + atomic",
    "dashmap + atomic",
    "rate-net",
    FLOOR,
];

/// A workload that is shown, on one thread and on two.
struct Panel {
    workload: &'static str,
    keys: usize,
    title: String,
}

fn panels(many: usize) -> Vec<Panel> {
    let of_many = |kind| format!("{} keys, {kind}", grouped(many));
    let panels = [
        ("hot key, admitted, u64", 1, "hot key, admitted".to_owned()),
        ("hot key, denied, u64", 1, "hot key, denied".to_owned()),
        ("uniform u64", 1_000, "1,000 keys".to_owned()),
        ("uniform u64", many, of_many("u64")),
        ("uniform String", many, of_many("String")),
        ("flood of fresh u64", many / 2, "flood of new keys".to_owned()),
    ];
    panels.into_iter().map(|(workload, keys, title)| Panel { workload, keys, title }).collect()
}

/// The rows that are shown, all of them there.
struct Shown {
    run: Run,
    panels: Vec<Panel>,
    many: usize,
}

impl Shown {
    /// Or the names of what is missing.
    fn of(run: Run, many: usize) -> Result<Self, String> {
        let shown = Self { run, panels: panels(many), many };
        let mut missing = Vec::new();
        for (panel, threads) in shown.cells() {
            let is_missing = |subject: &&&str| shown.ratio(panel, threads, subject).is_none();
            let names: Vec<&str> = SUBJECTS.iter().filter(is_missing).copied().collect();
            let who = if names.len() == SUBJECTS.len() { "everybody".into() } else { names.join("; ") };
            if !names.is_empty() {
                let Panel { workload, keys, .. } = panel;
                missing.push(format!("  {workload}, keys: {}, threads: {threads}: {who}", grouped(*keys)));
            }
        }
        if missing.is_empty() { Ok(shown) } else { Err(missing.join("\n")) }
    }

    fn cells(&self) -> impl Iterator<Item = (&Panel, usize)> {
        self.panels.iter().flat_map(|panel| THREADS.map(|threads| (panel, threads)))
    }

    /// Everybody in one panel on so many threads, shown or not.
    fn rows(&self, panel: &Panel, threads: usize) -> impl Iterator<Item = &Row> {
        let (workload, keys) = (panel.workload, panel.keys);
        let is_in = move |row: &&Row| row.workload == workload && row.keys == keys && row.threads == threads;
        self.run.rows.iter().filter(is_in)
    }

    fn row(&self, panel: &Panel, threads: usize, subject: &str) -> Option<&Row> {
        self.rows(panel, threads).find(|row| row.subject == subject)
    }

    fn ratio(&self, panel: &Panel, threads: usize, subject: &str) -> Option<f64> {
        self.row(panel, threads, subject)?.ratio_to_governor
    }

    /// How often a turn was taken: `medians of 31 rounds (flood: 8)`.
    fn rounds(&self) -> String {
        let least = |panel: &Panel| self.rows(panel, 1).map(|row| row.rounds).min().unwrap_or(0);
        let (flood, others) = self.panels.split_last().expect("panels is not empty");
        let others = others.iter().map(least).min().unwrap_or(0);
        format!("medians of {others} rounds (flood: {})", least(flood))
    }

    /// `2 cores, a processor, a system`.
    fn machine(&self) -> String {
        let machine = &self.run.machine;
        let plural = if machine.cores == 1 { "" } else { "s" };
        format!("{} core{plural}, {}, {}", machine.cores, machine.cpu, machine.os)
    }

    /// A sentence, if threads had to wait for a core.
    fn busy(&self) -> Option<String> {
        let mean = |(panel, threads)| {
            let waiting: Vec<f64> = self.rows(panel, threads).map(|row| row.waiting).collect();
            (waiting.iter().sum::<f64>() / waiting.len() as f64, panel, threads)
        };
        let busy: Vec<_> = self.cells().map(mean).filter(|&(waiting, ..)| waiting > BUSY).collect();
        let (most, panel, threads) = busy.iter().max_by(|a, b| a.0.total_cmp(&b.0))?;
        let (count, all) = (busy.len(), self.cells().count());
        Some(format!(
            "The machine was busy: in {count} of {all} cells threads waited for a core, up to {:.0} % of the \
             time ({}).",
            most * 100.0,
            cell(panel, *threads)
        ))
    }
}

/// `1,000 keys, 2 threads`.
fn cell(panel: &Panel, threads: usize) -> String {
    format!("{}, {threads} thread{}", panel.title, if threads == 1 { "" } else { "s" })
}

/// Draws the rows in `json`. `aside`: the README and its picture stay as they are.
pub fn run(json: &Path, many: usize, aside: bool) -> Result<(), String> {
    let text = read(json)?;
    let run: Run = serde_json::from_str(&text).map_err(|why| told(json, why))?;
    let shown = Shown::of(run, many);
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
