//! How long single checks take: not the mean but the tail, `peers latency`.
//!
//! One thread checks a million known keys and times every check. It does so in quiet (*steady*), and while
//! another thread brings fresh keys at a fixed pace, so that tables have to grow and turn over, and sweeps
//! where that is the user's task (*flood*). A sweep blocks whom it blocks: that is what is measured.
//!
//! A loop that waits for its answers sees one long check where a service would see a thousand that queue. So
//! beside the quantiles stands how much of the time went into checks of more than 100 microseconds
//! (*stalled*).
//!
//! The empty loop is timed in the same way: its tail is that of the clock and of the machine.

use crate::keys::{self, CHUNK, Order};
use crate::subjects::{self, Contestant, EMPTY_LOOP, Quota, Setting, Subject};
use crate::workload::grouped;
use hdrhistogram::Histogram;
use serde::Serialize;
use std::slice;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

/// Who takes part: one of each design, with the sweep that it needs.
const NAMES: [&str; 9] = [
    EMPTY_LOOP,
    "tollgate",
    "governor",
    "rate-net",
    "scc + atomic",
    "papaya + atomic",
    "dashmap + atomic",
    "Mutex<HashMap>",
    "256 mutexed shards",
];

#[derive(Clone, Copy)]
pub struct Plan {
    pub known: usize,
    pub rounds: usize,
    /// How long a scene is played for one subject in one round.
    pub scene: Duration,
    /// Fresh keys a second.
    pub pace: u32,
    pub sweep_every: Duration,
}

/// One line of the rows for programs.
#[derive(Serialize)]
pub struct Row {
    scene: &'static str,
    keys: usize,
    subject: &'static str,
    checks: u64,
    p50_ns: u64,
    p99_ns: u64,
    p999_ns: u64,
    p9999_ns: u64,
    max_ns: u64,
    /// Per cent.
    stalled: f64,
}

struct Played {
    name: &'static str,
    steady: Histogram<u64>,
    flood: Histogram<u64>,
}

/// Plays both scenes for all subjects whose names `is_wanted`, and prints them.
pub fn run(plan: Plan, is_wanted: impl Fn(&str) -> bool) -> Result<Vec<Row>, String> {
    let all = subjects::all::<u64>();
    let takes_part = |contestant: &Contestant<u64>| {
        NAMES.contains(&contestant.name) && (contestant.name == EMPTY_LOOP || is_wanted(contestant.name))
    };
    let contestants: Vec<_> = all.into_iter().filter(takes_part).collect();
    let known = keys::distinct::<u64>(plan.known);
    let stream = keys::stream::<u64>(Order::Uniform, plan.known, 2 * plan.known);
    let mut played = Vec::new();
    for contestant in &contestants {
        let (steady, flood) = (histogram()?, histogram()?);
        played.push(Played { name: contestant.name, steady, flood });
    }
    for round in 0..plan.rounds {
        for turn in 0..contestants.len() {
            let place = (turn + round) % contestants.len();
            let setting = Setting { quota: Quota::Ample, keys: 2 * plan.known };
            let subject = (contestants[place].build)(setting)?;
            subject.decide(&known);
            scene(subject.as_ref(), &stream, plan, &mut played[place].steady);
            flooded(subject.as_ref(), &stream, plan, &mut played[place].flood);
        }
    }
    let steady: Vec<_> = played.iter().map(|played| (played.name, &played.steady)).collect();
    let flood: Vec<_> = played.iter().map(|played| (played.name, &played.flood)).collect();
    let mut rows = table("steady", plan, &steady);
    rows.extend(table("flood", plan, &flood));
    let pace = grouped(plan.pace as usize);
    println!("\nflood: {pace} fresh keys a second; swept every {:?} by who brings them", plan.sweep_every);
    Ok(rows)
}

fn histogram() -> Result<Histogram<u64>, String> {
    Histogram::new_with_bounds(1, 60_000_000_000, 3).map_err(|why| why.to_string())
}

/// Times every check until the scene is over.
fn scene(subject: &dyn Subject<u64>, stream: &[u64], plan: Plan, times: &mut Histogram<u64>) {
    let (clock, start) = (quanta::Clock::new(), Instant::now());
    for chunk in stream.chunks(CHUNK).cycle() {
        for key in chunk {
            let before = clock.raw();
            subject.decide(slice::from_ref(key));
            let after = clock.raw();
            times.saturating_record(clock.delta_as_nanos(before, after).max(1));
        }
        if start.elapsed() >= plan.scene {
            return;
        }
    }
}

/// A scene with another thread that brings fresh keys and sweeps.
fn flooded(subject: &dyn Subject<u64>, stream: &[u64], plan: Plan, times: &mut Histogram<u64>) {
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            let start = Instant::now();
            let (mut brought, mut swept) = (0_u32, plan.sweep_every / 2);
            let mut batch = Vec::new();
            while !is_over.load(Relaxed) {
                let due = start.elapsed().as_secs_f64() * f64::from(plan.pace);
                if f64::from(brought) >= due {
                    // Sleeping would bring them in heaps.
                    thread::yield_now();
                    continue;
                }
                let number = |nth: u32| plan.known as u64 + u64::from(brought + nth);
                batch.clear();
                batch.extend((0..16).map(number).map(<u64 as keys::Key>::numbered));
                subject.decide(&batch);
                brought += 16;
                if start.elapsed() >= swept {
                    subject.sweep();
                    swept += plan.sweep_every;
                }
            }
        });
        scene(subject, stream, plan, times);
        is_over.store(true, Relaxed);
    });
}

/// The share of time in checks of more than 100 microseconds, in per cent of the time in all rounds.
fn stalled(times: &Histogram<u64>, plan: Plan) -> f64 {
    let long = times.iter_recorded().filter(|bin| bin.value_iterated_to() > 100_000);
    let nanos: u64 = long.map(|bin| bin.value_iterated_to() * bin.count_at_value()).sum();
    100.0 * nanos as f64 / (plan.scene.as_nanos() as f64 * plan.rounds as f64)
}

fn table(scene: &'static str, plan: Plan, played: &[(&'static str, &Histogram<u64>)]) -> Vec<Row> {
    println!("\n{scene}: nanoseconds of one check of {} known keys, one thread", grouped(plan.known));
    print!("  {:<22}{:>9}{:>9}{:>9}", "", "p50", "p99", "p99.9");
    println!("{:>11}{:>12}{:>10}", "p99.99", "max", "stalled");
    let row = |&(subject, times): &(&'static str, &Histogram<u64>)| Row {
        scene,
        keys: plan.known,
        subject,
        checks: times.len(),
        p50_ns: times.value_at_quantile(0.5),
        p99_ns: times.value_at_quantile(0.99),
        p999_ns: times.value_at_quantile(0.999),
        p9999_ns: times.value_at_quantile(0.9999),
        max_ns: times.max(),
        stalled: stalled(times, plan),
    };
    let rows: Vec<Row> = played.iter().map(row).collect();
    for row in &rows {
        let Row { subject, p50_ns, p99_ns, p999_ns, p9999_ns, max_ns, stalled, .. } = row;
        let times = format!("{p50_ns:>9}{p99_ns:>9}{p999_ns:>9}{p9999_ns:>11}{max_ns:>12}");
        println!("  {subject:<22}{times}{stalled:>9.2}%");
    }
    rows
}
