//! The same workloads on this limiter and on others, in one process, in turns: `make peers`.
//!
//! A check is timed as a thread sees it: the medians are of rounds, the ratio to governor is taken in each
//! round and then its median. `(empty loop)` is what it costs to walk through the keys; it is in all numbers
//! and not subtracted. A subject that a workload does not fit is left out and named.

mod keys;
mod measure;
mod memory;
mod report;
mod subjects;
mod workload;

use clap::Parser;
use keys::Key;
use measure::{Field, Pace};
use report::Row;
use std::net::Ipv6Addr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};
use subjects::{BASE, Contestant, EMPTY_LOOP};
use workload::{Kind, Workload};

/// Compares tollgate with other limiters and with maps that people build limiters from.
#[derive(Parser)]
struct Options {
    /// A smoke run: few and short rounds, a tenth of the keys. Shows that it works, measures little
    #[arg(long)]
    quick: bool,
    /// Also ten million keys, if there is memory for it
    #[arg(long)]
    large: bool,
    /// Only workloads or subjects with this in their names; may be given several times
    #[arg(long, value_name = "SUBSTRING")]
    only: Vec<String>,
    /// Rounds of every workload [default: 31, or 3 with --quick]; a flood has a quarter of them
    #[arg(long)]
    rounds: Option<usize>,
    /// How long a turn is [default: 10, or 2 with --quick]
    #[arg(long, value_name = "MILLISECONDS")]
    slice: Option<u64>,
    /// Numbers of threads
    #[arg(long, value_delimiter = ',', default_value = "1,2")]
    threads: Vec<usize>,
    /// Where the rows go
    #[arg(long, value_name = "FILE", default_value = "target/peers.json")]
    json: PathBuf,
}

impl Options {
    fn pace(&self, workload: Workload) -> Pace {
        let rounds = self.rounds.unwrap_or(if self.quick { 3 } else { 31 }).max(1);
        let rounds = if workload.is_flood() { rounds.div_ceil(4) } else { rounds };
        let slice = self.slice.unwrap_or(if self.quick { 2 } else { 10 });
        Pace { rounds, slice: Duration::from_millis(slice) }
    }

    fn all_workloads(&self) -> Vec<Workload> {
        workload::all(if self.quick { 100_000 } else { 1_000_000 }, self.large)
    }

    /// The workloads that are asked for; all of them if none is named.
    fn workloads(&self) -> Vec<Workload> {
        let all = self.all_workloads();
        let is_named = |workload: &Workload| self.named(&workload.title());
        if all.iter().any(is_named) { all.into_iter().filter(is_named).collect() } else { all }
    }

    /// The subjects that are asked for; always the one to compare with and the empty loop.
    fn contestants<K: Key>(&self) -> Vec<Contestant<K>> {
        let all = subjects::all::<K>();
        let is_named = |contestant: &Contestant<K>| self.named(contestant.name);
        if !all.iter().any(is_named) {
            return all;
        }
        let is_needed = |contestant: &Contestant<K>| {
            [BASE, EMPTY_LOOP].contains(&contestant.name) || is_named(contestant)
        };
        all.into_iter().filter(is_needed).collect()
    }

    fn named(&self, name: &str) -> bool {
        self.only.iter().any(|part| name.to_lowercase().contains(&part.to_lowercase()))
    }

    /// A name that nothing bears would otherwise mean everything.
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
    let start = Instant::now();
    let mut rows = Vec::new();
    for workload in options.workloads() {
        let result = match workload.kind {
            Kind::U64 => compare::<u64>(workload, options),
            Kind::String => compare::<String>(workload, options),
            Kind::Ipv6 => compare::<Ipv6Addr>(workload, options),
        };
        rows.extend(result?);
        // After each workload, so that a run that is cut short leaves something.
        let path = &options.json;
        report::write(path, &rows).map_err(|why| format!("{}: {why}", path.display()))?;
    }
    let seconds = start.elapsed().as_secs();
    println!("\n{} rows in {} after {seconds} s", rows.len(), options.json.display());
    Ok(())
}

fn compare<K: Key>(workload: Workload, options: &Options) -> Result<Vec<Row>, String> {
    let contestants = options.contestants::<K>();
    // No subject takes more than twice that, most take a quarter.
    let needed = (workload.keys * contestants.len()) as u64 * 80;
    if let Some(available) = memory::available().filter(|&available| available < needed) {
        let (needed, available) = (needed >> 20, available >> 20);
        println!("\n{}: left out: may need {needed} MiB, {available} are free", workload.title());
        return Ok(Vec::new());
    }
    let field = Field::<K>::prepare(workload, contestants);
    let mut rows = Vec::new();
    for &threads in &options.threads {
        let measured = field.measure(threads.max(1), options.pace(workload))?;
        rows.extend(report::table(workload, threads.max(1), &measured));
        report::left_out(&field.left_out);
    }
    Ok(rows)
}
