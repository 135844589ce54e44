//! Medians, ratios and where they go: a table for people, rows for programs.

use crate::measure::{LeftOut, Measured};
use crate::subjects::{BASE, STATELESS};
use crate::workload::Workload;
use serde::{Deserialize, Serialize};
use std::env::consts;
use std::fs;
use std::io;
use std::path::Path;
use std::thread;

/// What `peers.json` holds.
#[derive(Serialize, Deserialize)]
pub struct Run {
    pub machine: Machine,
    /// As [`Taken::by_others_since`] tells.
    #[serde(default)]
    pub stolen: f64,
    pub rows: Vec<Row>,
}

/// Where it was measured, as the system says.
#[derive(PartialEq, Serialize, Deserialize)]
pub struct Machine {
    pub cores: usize,
    pub cpu: String,
    pub os: String,
}

/// What was taken of the processors' time since the system began, and what of it others took who have the same host. All
/// zero where the system does not tell.
pub struct Taken {
    ticks: u64,
    stolen: u64,
}

impl Taken {
    pub fn so_far() -> Self {
        let told = fs::read_to_string("/proc/stat").unwrap_or_default();
        let ticks = told.lines().next().unwrap_or_default().split_whitespace().skip(1);
        // Of users, of nice ones, the system's, idle, waiting for a disk, two kinds of interrupts, stolen.
        let ticks: Vec<u64> = ticks.map_while(|ticks| ticks.parse().ok()).take(8).collect();
        match ticks[..] {
            [user, nice, system, _, _, hard, soft, stolen] => {
                Self { ticks: user + nice + system + hard + soft + stolen, stolen }
            }
            _ => Self { ticks: 0, stolen: 0 },
        }
    }

    /// The share of what was taken since then that others took. A thread that has a core and does not run for it knows
    /// nothing of that.
    pub fn by_others_since(&self) -> f64 {
        let now = Self::so_far();
        (now.stolen - self.stolen) as f64 / (now.ticks - self.ticks).max(1) as f64
    }
}

/// One subject in one workload on so many threads.
#[derive(Serialize, Deserialize)]
pub struct Row {
    pub workload: String,
    pub keys: usize,
    pub threads: usize,
    pub subject: String,
    pub rounds: usize,
    pub ns_per_op: f64,
    /// `None` if governor has no result.
    pub ratio_to_governor: Option<f64>,
    /// Only where there are so many keys that fixed costs don't show.
    pub bytes_per_key: Option<f64>,
    /// The same of what is resident, where the system tells.
    #[serde(default)]
    pub resident_per_key: Option<f64>,
    /// The share of the time in which its threads were ready to run and had no core.
    pub waiting: f64,
}

/// Below that many keys bytes per key say nothing.
const MANY: usize = 100_000;
/// A machine whose threads wait for a core for more than this share of the time is busy; so is a host of which others take
/// so much.
pub const BUSY: f64 = 0.02;

impl Machine {
    pub fn this() -> Self {
        let value = |file, key: &str| -> Option<String> {
            let told = fs::read_to_string(file).ok()?;
            let value = told.lines().find(|line| line.starts_with(key))?.split_once(['=', ':'])?.1;
            Some(value.trim().trim_matches('"').to_owned())
        };
        let cpu = value("/proc/cpuinfo", "model name");
        let os = value("/etc/os-release", "PRETTY_NAME");
        Self {
            cores: thread::available_parallelism().map_or(1, usize::from),
            cpu: cpu.unwrap_or_else(|| format!("a processor of the {} family", consts::ARCH)),
            os: os.unwrap_or_else(|| consts::OS.to_owned()),
        }
    }
}

/// The rows of one table, printed as they are made.
pub fn table(workload: Workload, threads: usize, measured: &[Measured]) -> Vec<Row> {
    let title = workload.title();
    let plural = if threads == 1 { "" } else { "s" };
    let rounds = measured.first().map_or(0, |measured| measured.rounds.len());
    println!("\n{title}, {threads} thread{plural} ({rounds} rounds)");
    let waiting = measured.iter().map(|measured| measured.waiting).sum::<f64>() / measured.len() as f64;
    if waiting > BUSY {
        println!("  a busy machine: threads waited for a core {:.0} % of the time", waiting * 100.0);
    }
    let columns = ["ns/check", "spread", "x governor", "bytes/key", "resident"];
    println!(
        "  {:<28}{:>10}{:>9}{:>12}{:>12}{:>12}",
        "", columns[0], columns[1], columns[2], columns[3], columns[4]
    );

    let base = measured.iter().find(|measured| measured.name == BASE);
    let mut lines: Vec<(Row, f64)> = measured
        .iter()
        .map(|measured| {
            let ratio = base.map(|base| {
                let ratios = measured.rounds.iter().zip(&base.rounds).map(|(own, base)| own / base);
                quantile(&ratios.collect::<Vec<_>>(), 0.5)
            });
            let ns_per_op = quantile(&measured.rounds, 0.5);
            let between = quantile(&measured.rounds, 0.75) - quantile(&measured.rounds, 0.25);
            let holds_keys = workload.keys >= MANY && !STATELESS.contains(&measured.name);
            let row = Row {
                workload: workload.name.to_owned(),
                keys: workload.keys,
                threads,
                subject: measured.name.to_owned(),
                rounds: measured.rounds.len(),
                ns_per_op: rounded(ns_per_op),
                ratio_to_governor: ratio.map(rounded),
                bytes_per_key: holds_keys.then_some(rounded(measured.bytes_per_key)),
                resident_per_key: measured.resident_per_key.filter(|_| holds_keys).map(rounded),
                waiting: rounded(measured.waiting),
            };
            (row, between / ns_per_op)
        })
        .collect();
    lines.sort_by(|(a, _), (b, _)| a.ns_per_op.total_cmp(&b.ns_per_op));
    for (row, spread) in &lines {
        let [bytes, resident] = [row.bytes_per_key, row.resident_per_key]
            .map(|bytes| bytes.map_or_else(String::new, |bytes| format!("{bytes:.1}")));
        println!(
            "  {:<28}{:>10.1}{:>8.0}%{:>12.2}{:>12}{:>12}",
            row.subject,
            row.ns_per_op,
            spread * 100.0,
            row.ratio_to_governor.unwrap_or(f64::NAN),
            bytes,
            resident
        );
    }
    lines.into_iter().map(|(row, _)| row).collect()
}

/// Who has no result, one line for each reason.
pub fn left_out(all: &[LeftOut]) {
    let mut reasons: Vec<&str> = all.iter().map(|left_out| left_out.why).collect();
    reasons.sort_unstable();
    reasons.dedup();
    for reason in reasons {
        let names: Vec<_> = all.iter().filter(|out| out.why == reason).map(|out| out.name).collect();
        println!("  left out: {}: {reason}", names.join("; "));
    }
}

pub fn write(path: &Path, results: &impl Serialize) -> io::Result<()> {
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder)?;
    }
    fs::write(path, serde_json::to_string_pretty(results)? + "\n")
}

/// By linear interpolation between the two nearest; NaN of nothing.
pub fn quantile(values: &[f64], at: f64) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let Some(last) = sorted.len().checked_sub(1) else { return f64::NAN };
    let place = at * last as f64;
    let (below, above) = (sorted[place.floor() as usize], sorted[place.ceil() as usize]);
    below + (above - below) * place.fract()
}

fn rounded(value: f64) -> f64 {
    (value * 1000.0).round() / 1000.0
}
