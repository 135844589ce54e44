//! The cost of a shared limit. Run `make bench-redis`, or `cargo bench -p tollgate-redis --bench
//! redis -- --rounds 5 --seconds 2 --tasks 64`.
//!
//! Tasks of one process check random keys, out of 1,000, as fast as they can. The server runs on
//! the same machine, and shares the cores with the client. Operations per second are therefore
//! meaningful only as ratios; the server itself measures its CPU time for each check.
//!
//! Subjects take turns, round by round, and each figure is the median of all rounds. Two subjects
//! are widely used methods, reimplemented here: INCR with EXPIRE, and a GCRA script in floating
//! point. The server's times are also compared with those of the GCRA script in the same round.
//!
//! With `--draw`, the table is written into docs/performance.md, between the table's marks.

mod subjects;

use hdrhistogram::Histogram;
use std::fmt::Write;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};
use subjects::{Subject, subjects};
use tollgate_testing::store::server::Server;

const KEYS: u64 = 1_000;
const BEGIN: &str = "<!-- make bench-redis: begin -->";
const END: &str = "<!-- make bench-redis: end -->";

struct Plan {
    rounds: usize,
    seconds: f64,
    tasks: usize,
    draws: bool,
}

impl Plan {
    fn from_args() -> Result<Self, String> {
        let mut plan = Self { rounds: 5, seconds: 2.0, tasks: 64, draws: false };
        let mut args = std::env::args().skip(1).filter(|arg| arg != "--bench");
        while let Some(name) = args.next() {
            if name == "--draw" {
                plan.draws = true;
                continue;
            }
            let value = args.next().unwrap_or_default();
            let number: Option<f64> = value.parse().ok().filter(|number| *number > 0.0);
            let number = number.ok_or_else(|| format!("{name} {value}: no number above 0"))?;
            let whole = value.parse().ok().filter(|&number: &usize| number > 0);
            match (name.as_str(), whole) {
                ("--seconds", _) => plan.seconds = number,
                ("--rounds", Some(rounds)) => plan.rounds = rounds,
                ("--tasks", Some(tasks)) => plan.tasks = tasks,
                _ => {
                    return Err(format!(
                        "invalid option `{name} {value}`: expected --rounds N, --seconds S, --tasks N or --draw"
                    ));
                }
            }
        }
        Ok(plan)
    }
}

/// The results of one run.
struct Run {
    per_second: f64,
    p50: Duration,
    p99: Duration,
    /// The server's CPU time per check, in microseconds.
    cpu: f64,
    /// How long the server executes commands per check, in microseconds. This excludes reading
    /// requests and writing responses.
    commands: f64,
}

/// Returns how long the server has executed the commands of the subjects.
fn execution_time(server: &Server) -> Duration {
    ["evalsha", "incr", "expire"].iter().map(|command| server.execution_time(command)).sum()
}

/// Runs tasks that make checks for a given time.
async fn run(subject: &Arc<Subject>, server: &Server, plan: &Plan) -> Run {
    let until = Instant::now() + Duration::from_secs_f64(plan.seconds);
    let (cpu, commands) = (server.cpu_time(), execution_time(server));
    let begun = Instant::now();
    let check = |subject: Arc<Subject>| async move {
        let mut latencies = latencies();
        loop {
            // Subjects that never wait yield to the other tasks.
            for _ in 0..64 {
                let begun = Instant::now();
                subject.check(fastrand::u64(..KEYS)).await;
                latencies.saturating_record(u64::try_from(begun.elapsed().as_nanos()).unwrap_or(u64::MAX));
            }
            if Instant::now() > until {
                return latencies;
            }
            tokio::task::yield_now().await;
        }
    };
    let tasks: Vec<_> = (0..plan.tasks).map(|_| tokio::spawn(check(Arc::clone(subject)))).collect();
    let mut all = latencies();
    for task in tasks {
        all.add(task.await.expect("a task has panicked")).expect("they have the same bounds");
    }
    let (elapsed, cpu) = (begun.elapsed(), server.cpu_time() - cpu);
    let commands = execution_time(server) - commands;
    let per_check = |time: Duration| time.as_secs_f64() * 1e6 / all.len() as f64;
    Run {
        per_second: all.len() as f64 / elapsed.as_secs_f64(),
        p50: Duration::from_nanos(all.value_at_quantile(0.5)),
        p99: Duration::from_nanos(all.value_at_quantile(0.99)),
        cpu: per_check(cpu),
        commands: per_check(commands),
    }
}

/// Returns an empty histogram of nanoseconds, up to a minute.
fn latencies() -> Histogram<u64> {
    Histogram::new_with_bounds(1, 60_000_000_000, 3).expect("good bounds")
}

/// Returns how many bytes a key occupies in the store after 100 checks of the key.
async fn bytes_per_key(subject: &Subject, server: &Server) -> Option<u64> {
    server.command(&["FLUSHALL"]);
    for _ in 0..100 {
        subject.check(KEYS).await;
    }
    subject.settle().await;
    let keys = server.keys_with_ttl();
    keys.iter().map(|(key, _)| server.memory_usage(key).unwrap_or(0)).max()
}

fn median(mut numbers: Vec<f64>) -> f64 {
    numbers.sort_unstable_by(f64::total_cmp);
    numbers[numbers.len() / 2]
}

fn micros(time: f64) -> String {
    match time {
        ..10.0 => format!("{time:.1} µs"),
        ..1000.0 => format!("{time:.0} µs"),
        _ => format!("{:.1} ms", time / 1000.0),
    }
}

/// Returns a time, and how it compares with the times of the GCRA script, which is the last
/// subject, in the same rounds.
fn compared(runs: &[Run], gcra: &[Run], time: fn(&Run) -> f64) -> String {
    let ratios = runs.iter().zip(gcra).map(|(run, gcra)| time(run) / time(gcra));
    match median(runs.iter().map(time).collect()) {
        ..0.05 => "0".to_owned(),
        median_time => format!("{} ({:.2})", micros(median_time), median(ratios.collect())),
    }
}

/// Returns the rows of the table. Each row contains the medians of its rounds.
fn table(names: &[&str], runs: &[Vec<Run>], bytes: &[Option<u64>]) -> String {
    let mut table = String::from(
        "| limit | checks per second | p50 | p99 | server CPU per check | in commands | bytes per key |\n|---|---|---|---|---|---|---|\n",
    );
    let gcra = runs.last().expect("there are subjects");
    for ((name, runs), bytes) in names.iter().zip(runs).zip(bytes) {
        let of = |figure: fn(&Run) -> f64| median(runs.iter().map(figure).collect());
        let bytes = bytes.map_or("-".to_owned(), |bytes| bytes.to_string());
        let cpu = compared(runs, gcra, |run| run.cpu);
        let commands = compared(runs, gcra, |run| run.commands);
        let _ = writeln!(
            table,
            "| {name} | {:.0} k | {} | {} | {cpu} | {commands} | {bytes} |",
            of(|run| run.per_second) / 1e3,
            micros(of(|run| run.p50.as_secs_f64() * 1e6)),
            micros(of(|run| run.p99.as_secs_f64() * 1e6)),
        );
    }
    table
}

/// Writes the table into the page, with the command that produced it.
fn draw(text: &str) -> Result<(), String> {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/performance.md");
    let told = |error: std::io::Error| format!("{path}: {error}");
    let page = std::fs::read_to_string(path).map_err(told)?;
    let place = |mark: &str| page.find(mark).ok_or_else(|| format!("{path} lacks the mark {mark}"));
    let (begin, end) = (place(BEGIN)? + BEGIN.len(), place(END)?);
    let page = format!("{}\n{text}{}", &page[..begin], &page[end..]);
    std::fs::write(path, page).map_err(told)
}

async fn measure(plan: &Plan) -> Result<(), String> {
    let server = Server::start();
    let subjects: Vec<Arc<Subject>> = subjects(&server).await.into_iter().map(Arc::new).collect();
    let mut bytes = Vec::new();
    for subject in &subjects {
        bytes.push(bytes_per_key(subject, &server).await);
    }
    server.command(&["FLUSHALL"]);
    let mut runs: Vec<Vec<Run>> = subjects.iter().map(|_| Vec::new()).collect();
    for round in 0..plan.rounds {
        eprintln!("round {} of {}", round + 1, plan.rounds);
        for (subject, runs) in subjects.iter().zip(&mut runs) {
            // At the start of a turn, the state of the subject's keys already exists.
            runs.push(run(subject, &server, plan).await);
            subject.settle().await;
        }
    }
    let names: Vec<_> = subjects.iter().map(|subject| subject.name()).collect();
    let table = table(&names, &runs, &bytes);
    let Plan { tasks, rounds, seconds, .. } = plan;
    let text = format!("{tasks} tasks, {KEYS} keys, {rounds} rounds of {seconds} s:\n\n{table}");
    println!("{text}");
    if plan.draws { draw(&text) } else { Ok(()) }
}

fn main() -> ExitCode {
    let measured = Plan::from_args().and_then(|plan| {
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
        runtime.map_err(|error| error.to_string())?.block_on(measure(&plan))
    });
    match measured {
        Ok(()) => ExitCode::SUCCESS,
        Err(problem) => {
            eprintln!("{problem}");
            ExitCode::FAILURE
        }
    }
}
