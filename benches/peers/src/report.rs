//! Medians and ratios, as a table for people and as rows for programs.

use crate::measure::{LeftOut, Measured};
use crate::subjects::{BASE, STATELESS, baseline_of};
use crate::workload::{Workload, counted, title};
use serde::{Deserialize, Serialize};
use std::env::{self, consts};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::thread;

/// The contents of `peers.json`.
#[derive(Serialize, Deserialize)]
pub struct Run {
    pub machine: Machine,
    /// Cargo's profile: see [`profile`].
    pub profile: String,
    /// The result of [`Taken::by_others_since`].
    #[serde(default)]
    pub stolen: f64,
    pub rows: Vec<Row>,
}

/// The machine, as the system describes it.
#[derive(PartialEq, Serialize, Deserialize)]
pub struct Machine {
    pub cores: usize,
    pub cpu: String,
    pub os: String,
}

/// The processor time that was used since the system started, and the part of it that other users
/// of the host took. All values are zero if the system does not report them.
pub struct Taken {
    ticks: u64,
    stolen: u64,
}

impl Taken {
    pub fn so_far() -> Self {
        let told = fs::read_to_string("/proc/stat").unwrap_or_default();
        let ticks = told.lines().next().unwrap_or_default().split_whitespace().skip(1);
        // The fields are user, nice, system, idle, iowait, two kinds of interrupts, and stolen.
        let ticks: Vec<u64> = ticks.map_while(|ticks| ticks.parse().ok()).take(8).collect();
        match ticks[..] {
            [user, nice, system, _, _, hard, soft, stolen] => {
                Self { ticks: user + nice + system + hard + soft + stolen, stolen }
            }
            _ => Self { ticks: 0, stolen: 0 },
        }
    }

    /// Returns the share of the time since then that other users of the host took. A thread that
    /// has a core but does not run for this reason cannot notice it.
    pub fn by_others_since(&self) -> f64 {
        let now = Self::so_far();
        (now.stolen - self.stolen) as f64 / (now.ticks - self.ticks).max(1) as f64
    }
}

/// One subject in one workload on this many threads.
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
    /// Only for rows of this library that were measured together with the baseline.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ratio_to_baseline: Option<Spread>,
    /// Only for many keys, so that fixed costs do not matter.
    pub bytes_per_key: Option<f64>,
    /// The resident bytes per key, if the system reports them.
    #[serde(default)]
    pub resident_per_key: Option<f64>,
    /// The share of the time in which the threads were ready to run and had no core.
    pub waiting: f64,
}

/// The ratios of all rounds: the middle half of them is between `low` and `high`. With 31
/// independent rounds, the middle half contains the true median more than 99 times in 100. Rounds
/// with the same table, and rounds during the same task of the machine, are not independent, so one
/// or two of a hundred cells with equal code may still seem slower.
#[derive(Clone, Copy, Serialize, Deserialize)]
pub struct Spread {
    pub median: f64,
    pub low: f64,
    pub high: f64,
}

impl Spread {
    fn of(ratios: &[f64]) -> Self {
        let [low, median, high] = [0.25, 0.5, 0.75].map(|at| rounded(quantile(ratios, at)));
        Self { median, low, high }
    }
}

/// A ratio to the baseline above this is reported.
const SLOWER: f64 = 1.03;
/// The number of keys from which on bytes per key are significant.
const MANY: usize = 100_000;
/// A machine is busy if threads wait for a core for more than this share of the time, or if other
/// users of the host take more than this share.
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

/// Prints the rows of one table, and returns them.
pub fn table(workload: Workload, threads: usize, all: &[Measured]) -> Vec<Row> {
    let named = |name: &str| all.iter().find(|measured| measured.name == name);
    let row = |measured: &Measured| {
        let name = measured.name;
        let ratios_to = |other: &Measured| -> Vec<f64> {
            measured.rounds.iter().zip(&other.rounds).map(|(own, other)| own / other).collect()
        };
        let baseline = baseline_of(name).and_then(|baseline| named(&baseline));
        let holds_keys = workload.keys >= MANY && !STATELESS.contains(&name);
        Row {
            workload: workload.name.to_owned(),
            keys: workload.keys,
            threads,
            subject: name.to_owned(),
            rounds: measured.rounds.len(),
            ns_per_op: rounded(quantile(&measured.rounds, 0.5)),
            ratio_to_governor: named(BASE).map(|base| rounded(quantile(&ratios_to(base), 0.5))),
            ratio_to_baseline: baseline.map(|baseline| Spread::of(&ratios_to(baseline))),
            bytes_per_key: holds_keys.then_some(rounded(measured.bytes_per_key)),
            resident_per_key: measured.resident_per_key.filter(|_| holds_keys).map(rounded),
            waiting: rounded(measured.waiting),
        }
    };
    let spread = |rounds: &[f64]| (quantile(rounds, 0.75) - quantile(rounds, 0.25)) / quantile(rounds, 0.5);
    let mut lines: Vec<(Row, f64)> =
        all.iter().map(|measured| (row(measured), spread(&measured.rounds))).collect();
    lines.sort_by(|(a, _), (b, _)| a.ns_per_op.total_cmp(&b.ns_per_op));

    let rounds = lines.first().map_or(0, |(row, _)| row.rounds);
    println!("\n{}, {} ({rounds} rounds)", workload.title(), counted(threads, "thread"));
    let waiting = waiting(lines.iter().map(|(row, _)| row));
    if waiting > BUSY {
        println!("  a busy machine: threads waited for a core {:.0} % of the time", waiting * 100.0);
    }
    println!("  {:<28}  ns/check   spread  x governor   bytes/key    resident", "");
    for (row, spread) in &lines {
        let Row { subject, ns_per_op, ratio_to_governor, bytes_per_key, resident_per_key, .. } = row;
        let [bytes, resident] = [bytes_per_key, resident_per_key].map(|&bytes| number(bytes, 1));
        let (spread, ratio) = (spread * 100.0, number(*ratio_to_governor, 2));
        println!("  {subject:<28}{ns_per_op:>10.1}{spread:>8.0}%{ratio:>12}{bytes:>12}{resident:>12}");
    }
    lines.into_iter().map(|(row, _)| row).collect()
}

/// Returns the average share of the time in which the threads had no core.
pub fn waiting<'a>(rows: impl Iterator<Item = &'a Row>) -> f64 {
    let (sum, count) = rows.fold((0.0, 0.0), |(sum, count), row| (sum + row.waiting, count + 1.0));
    sum / count
}

/// Returns a sentence if other users of the host took this share of the processors' time.
pub fn stolen(share: f64) -> Option<String> {
    let text = format!("The host was busy: others took {:.0} % of the processors' time.", share * 100.0);
    (share > BUSY).then_some(text)
}

/// Returns a value with this number of digits after the point, or an empty text if there is none.
pub fn number(value: Option<f64>, digits: usize) -> String {
    value.map_or_else(String::new, |value| format!("{value:.digits$}"))
}

/// Prints every cell in which this library was measured together with the baseline, and the cells
/// in which this library is slower.
pub fn against_baseline(rows: &[Row]) {
    let line = |(row, ratio): &(&Row, Spread)| {
        let cell = format!("{}, {}", title(&row.workload, row.keys), counted(row.threads, "thread"));
        let Spread { median, low, high } = ratio;
        println!("  {cell:<44}{:<26}{median:>7.3}   {low:.3} to {high:.3}{:>5}", row.subject, row.rounds);
    };
    let cells: Vec<(&Row, Spread)> =
        rows.iter().filter_map(|row| Some((row, row.ratio_to_baseline?))).collect();
    println!(
        "\na check's time in parts of the baseline's: median of the rounds, middle half of them, rounds"
    );
    cells.iter().for_each(line);
    let beyond = cells.iter().filter(|(_, ratio)| ratio.median > SLOWER);
    let (slower, unclear): (Vec<_>, Vec<_>) = beyond.partition(|(_, ratio)| ratio.low > 1.0);
    let count = cells.len();
    println!("slower, beyond {SLOWER} with a middle half above 1.0: {} of {count} cells", slower.len());
    slower.into_iter().for_each(line);
    println!("unclear, beyond {SLOWER} with a middle half that includes 1.0: {} of {count}", unclear.len());
    unclear.into_iter().for_each(line);
}

/// Prints the subjects without a result, with one line for each reason.
pub fn left_out(all: &[LeftOut]) {
    let mut reasons: Vec<&str> = all.iter().map(|left_out| left_out.why).collect();
    reasons.sort_unstable();
    reasons.dedup();
    for reason in reasons {
        let names: Vec<_> = all.iter().filter(|out| out.why == reason).map(|out| out.name).collect();
        println!("  left out: {}: {reason}", names.join("; "));
    }
}

/// Returns the profile that this program was built in, from the folder in which cargo builds it.
/// `release` is cargo's own profile.
pub fn profile() -> Result<String, String> {
    let program = env::current_exe().map_err(|why| format!("where this program is: {why}"))?;
    let folder = program.parent().and_then(Path::file_name).ok_or("this program is in no folder")?;
    Ok(folder.to_string_lossy().into_owned())
}

/// Returns the kind of the results of `peers defaults` built in this profile.
pub fn defaults(profile: &str) -> String {
    format!("defaults-{profile}")
}

/// Returns the path of results of another kind: for `target/peers.json` and `latency`, it is
/// `target/peers-latency.json`.
pub fn beside(path: &Path, kind: &str) -> PathBuf {
    let stem = path.file_stem().unwrap_or_default().to_string_lossy();
    path.with_file_name(format!("{stem}-{kind}.json"))
}

pub fn write(path: &Path, results: &impl Serialize) -> io::Result<()> {
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder)?;
    }
    fs::write(path, serde_json::to_string_pretty(results)? + "\n")
}

/// Returns a quantile, by linear interpolation between the two nearest values, or NaN if there are
/// no values.
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
