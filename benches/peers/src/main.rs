//! `make peers` runs workloads on this limiter and on others, in one process and in turns.
//!
//! A check is timed as a thread sees it. The figures are medians of rounds. The ratio to governor
//! is computed in each round, and its median is shown. `(empty loop)` is the cost of walking
//! through the keys. All figures include it; it is not subtracted. A subject that does not fit a
//! workload is left out and named.
//!
//! `peers defaults` measures only this library and governor, both as `cargo add` adds them, in a
//! separate build. `peers latency` times single checks (see `latency`). `peers draw` measures
//! nothing (see `draw`).
//!
//! If the program is built with an older checkout of this library (`make peers BASELINE=...`), it
//! measures that checkout in the same turns, and reports the ratio of a check to the older check.

mod draw;
mod keys;
mod latency;
mod measure;
mod memory;
mod report;
mod subjects;
mod workload;

use clap::{Parser, ValueEnum};
use keys::Key;
use measure::{Field, Pace};
use report::{Machine, Row, Run, Taken, defaults, profile};
use std::net::Ipv6Addr;
use std::panic;
use std::path::PathBuf;
use std::process::{self, ExitCode};
use std::time::{Duration, Instant};
use subjects::{BASE, Contestant, EMPTY_LOOP, baseline_of};
use workload::{Kind, Workload};

/// Compares tollgate with other limiters, and with maps from which people build limiters.
#[derive(Parser)]
struct Options {
    /// What to do
    #[arg(value_enum, default_value_t = What::Throughput)]
    what: What,
    /// A smoke run with few and short rounds and a tenth of the keys. It shows that the program
    /// works, but measures little. With draw: the picture is written next to the rows, all tables
    /// are printed, and no page is changed
    #[arg(long)]
    quick: bool,
    /// Also ten million keys, if there is memory for it
    #[arg(long)]
    large: bool,
    /// Only workloads or subjects whose names contain this text; may be given several times
    #[arg(long, value_name = "SUBSTRING")]
    only: Vec<String>,
    /// The rounds of every workload [default: 31, or 3 with --quick; latency: 3]; a flood has a
    /// quarter of the rounds, except with a baseline
    #[arg(long)]
    rounds: Option<usize>,
    /// The length of a turn [default: 10, or 2 with --quick; latency: 2000, or 200 with --quick]
    #[arg(long, value_name = "MILLISECONDS")]
    slice: Option<u64>,
    /// Numbers of threads
    #[arg(long, value_delimiter = ',', default_value = "1,2")]
    threads: Vec<usize>,
    /// The file that the rows are written to or read from [default: target/peers.json, latency:
    /// target/peers-latency.json; with --quick: target/peers-quick.json,
    /// target/peers-quick-latency.json; with a baseline: peers-baseline...]. The rows of defaults
    /// are written next to it, to ...-defaults-PROFILE.json
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

#[derive(Clone, Copy, PartialEq, ValueEnum)]
enum What {
    /// The cost of a check, in all workloads
    Throughput,
    /// The cost of a check by tollgate and governor as `cargo add` adds them; built with
    /// --no-default-features
    Defaults,
    /// The tail of single checks: without other work, while the table turns over, in a flood of
    /// fresh keys, and while all keys are cleared
    Latency,
    /// Measures nothing: turns the rows of throughput in the JSON file, and those of defaults and
    /// latency next to it, into benches/peers/ratios.svg, the README's section on speed and the
    /// tables of docs/performance.md
    Draw,
}

impl Options {
    fn pace(&self, workload: Workload) -> Pace {
        let rounds = self.rounds.unwrap_or(if self.quick { 3 } else { 31 }).max(1);
        let is_shortened = workload.is_flood() && !cfg!(feature = "baseline");
        let rounds = if is_shortened { rounds.div_ceil(4) } else { rounds };
        let slice = self.slice.unwrap_or(if self.quick { 2 } else { 10 });
        Pace { rounds, slice: Duration::from_millis(slice) }
    }

    /// The number of keys that counts as many.
    fn many(&self) -> usize {
        if self.quick { 100_000 } else { 1_000_000 }
    }

    fn all_workloads(&self) -> Vec<Workload> {
        workload::all(self.many(), self.large)
    }

    /// Returns the workloads that `only` selects, or all workloads if it names none.
    fn workloads(&self) -> Vec<Workload> {
        let all = self.all_workloads();
        let is_named = |workload: &Workload| self.named(&workload.title());
        if all.iter().any(is_named) { all.into_iter().filter(is_named).collect() } else { all }
    }

    /// Returns the plan of single checks. docs/performance.md describes the plan without options.
    fn latency(&self) -> latency::Plan {
        let (known, (rounds, slice)) = (self.many(), if self.quick { (1, 200) } else { (3, 2000) });
        let scene = Duration::from_millis(self.slice.unwrap_or(slice).max(1));
        let rounds = self.rounds.unwrap_or(rounds).max(1);
        latency::Plan { known, rounds, scene, pace: 500_000 }
    }

    fn json(&self) -> Result<PathBuf, String> {
        let quick = if self.quick { "-quick" } else { "" };
        let baseline = if cfg!(feature = "baseline") { "-baseline" } else { "" };
        let rows = PathBuf::from(format!("target/peers{quick}{baseline}.json"));
        Ok(match (self.what, &self.json) {
            (What::Defaults, json) => report::beside(json.as_ref().unwrap_or(&rows), &defaults(&profile()?)),
            (_, Some(json)) => json.clone(),
            (What::Latency, None) => report::beside(&rows, "latency"),
            (What::Throughput | What::Draw, None) => rows,
        })
    }

    /// Returns the subjects that `only` selects. They always include the subject to compare with,
    /// the empty loop, and the baseline of each selected subject that has one.
    fn contestants<K: Key>(&self) -> Vec<Contestant<K>> {
        let all = if self.what == What::Defaults { subjects::defaults() } else { subjects::all::<K>() };
        let named: Vec<&str> = all.iter().map(|it| it.name).filter(|name| self.named(name)).collect();
        if named.is_empty() {
            return all;
        }
        let baselines: Vec<String> = named.iter().filter_map(|name| baseline_of(name)).collect();
        let is_needed = |contestant: &Contestant<K>| {
            let name = contestant.name;
            [BASE, EMPTY_LOOP].contains(&name)
                || named.contains(&name)
                || baselines.iter().any(|baseline| baseline == name)
        };
        all.into_iter().filter(is_needed).collect()
    }

    fn named(&self, name: &str) -> bool {
        self.only.iter().any(|part| name.to_lowercase().contains(&part.to_lowercase()))
    }

    /// Returns a name in `only` that matches nothing, because it would otherwise select everything.
    fn unknown(&self) -> Option<&String> {
        let mut names: Vec<String> = self.all_workloads().iter().map(Workload::title).collect();
        names.extend(subjects::all::<u64>().iter().map(|contestant| contestant.name.to_owned()));
        let is_known =
            |part: &&String| names.iter().any(|name| name.to_lowercase().contains(&part.to_lowercase()));
        self.only.iter().find(|part| !is_known(part))
    }
}

fn main() -> ExitCode {
    let options = Options::parse();
    // If a thread panicked, the other threads would wait for it.
    let tell = panic::take_hook();
    panic::set_hook(Box::new(move |panic| {
        tell(panic);
        process::exit(101);
    }));
    match run(&options) {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("peers: {why}");
            ExitCode::FAILURE
        }
    }
}

fn run(options: &Options) -> Result<(), String> {
    if let Some(part) = options.unknown() {
        return Err(format!("--only {part}: no workload and no subject has this in its name"));
    }
    if cfg!(feature = "counter") == (options.what == What::Defaults) {
        return Err("`defaults`, and nothing else, is for a program built with --no-default-features".into());
    }
    let (start, path) = (Instant::now(), options.json()?);
    let unwritten = |why| format!("{}: {why}", path.display());
    if options.what == What::Latency {
        let is_wanted = |name: &str| options.only.is_empty() || options.named(name);
        let tails = latency::run(options.latency(), is_wanted)?;
        return report::write(&path, &tails).map_err(unwritten);
    }
    if options.what == What::Draw {
        if !options.only.is_empty() {
            return Err("draw shows all that it shows or nothing: it takes no --only".into());
        }
        return draw::run(&path, options.latency(), options.quick);
    }
    let taken = Taken::so_far();
    let mut run = Run { machine: Machine::this(), profile: profile()?, stolen: 0.0, rows: Vec::new() };
    let mut wrong = Vec::new();
    for workload in options.workloads() {
        run.rows.extend(match workload.kind {
            Kind::U64 => compare::<u64>(workload, options, &mut wrong),
            Kind::String => compare::<String>(workload, options, &mut wrong),
            Kind::Ipv6 => compare::<Ipv6Addr>(workload, options, &mut wrong),
        });
        run.stolen = taken.by_others_since();
        // The rows are written after each workload, so that a run that is cut short leaves results.
        report::write(&path, &run).map_err(unwritten)?;
    }
    if cfg!(feature = "baseline") {
        report::against_baseline(&run.rows);
    }
    let seconds = start.elapsed().as_secs();
    println!("\n{} rows in {} after {seconds} s", run.rows.len(), path.display());
    report::stolen(run.stolen).iter().for_each(|stolen| println!("{stolen}"));
    if wrong.is_empty() { Ok(()) } else { Err(format!("wrong decisions:\n{}", wrong.join("\n"))) }
}

/// Measures one workload. Faults in a subject's decisions are added to `wrong`.
fn compare<K: Key>(workload: Workload, options: &Options, wrong: &mut Vec<String>) -> Vec<Row> {
    let contestants = options.contestants::<K>();
    // The average of the subjects, all of which exist at the same time.
    let bytes_per_key = if workload.kind == Kind::String { 150 } else { 50 };
    let needed = (workload.keys * contestants.len() * bytes_per_key) as u64;
    if let Some(available) = memory::available().filter(|&available| available < needed) {
        let (needed, available) = (needed >> 20, available >> 20);
        println!("\n{}: left out: may need {needed} MiB, {available} are free", workload.title());
        return Vec::new();
    }
    let mut field = Field::<K>::prepare(workload, contestants);
    let mut rows = Vec::new();
    for &threads in &options.threads {
        let measured = field.measure(threads.max(1), options.pace(workload));
        rows.extend(report::table(workload, threads.max(1), &measured));
    }
    report::left_out(&field.left_out);
    wrong.extend(field.wrong);
    rows
}
