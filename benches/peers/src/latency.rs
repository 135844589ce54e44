//! `peers latency` measures how long single checks take: not the mean, but the tail.
//!
//! One thread checks a million known keys and times every check, in four [scenes](Scene). Each
//! subject gets a new table for each scene, and another thread performs the task of the scene on
//! it, at the same pace for all subjects.
//!
//! A loop that waits for its answers sees one long check where a service would see a thousand
//! queued ones. Therefore the tables also have the share of the time in checks that was spent in
//! checks of more than 100 microseconds (*stalled*).
//!
//! The empty loop is timed in the same way. Its tail is the tail of the clock and of the machine.
//! The floor has an array instead of a table, and copies the array when other subjects sweep. Its
//! tail is the cost of one core reading a table while another core writes a new one.

mod scene;

use crate::keys::{self, Order};
use crate::measure::LeftOut;
use crate::report::{self, Machine, Taken};
use crate::subjects::{self, BASE, BASELINE, Contestant, EMPTY_LOOP, FLOOR, OWN};
use crate::workload::grouped;
use hdrhistogram::Histogram;
pub use scene::{Plan, Scene};
use scene::{Scene::Turnover, Times};
use serde::{Deserialize, Serialize};

/// The subjects, one for each design.
const NAMES: [&str; 11] = [
    EMPTY_LOOP,
    FLOOR,
    OWN,
    BASELINE,
    BASE,
    "rate-net",
    "scc + atomic",
    "papaya + atomic",
    "dashmap + atomic",
    "Mutex<HashMap>",
    "256 mutexed shards",
];

/// The contents of `peers-latency.json`.
#[derive(Serialize, Deserialize)]
pub struct Tails {
    pub machine: Machine,
    /// The result of [`Taken::by_others_since`].
    #[serde(default)]
    pub stolen: f64,
    pub keys: usize,
    pub rounds: usize,
    pub seconds: f64,
    /// The number of fresh keys per second, in the flood.
    pub pace: u32,
    pub rows: Vec<Row>,
}

/// The result of one subject in one scene, in nanoseconds.
#[derive(Serialize, Deserialize)]
pub struct Row {
    pub scene: String,
    /// Whether the row has only the checks during which the other thread was sweeping or clearing.
    pub under_way: bool,
    pub subject: String,
    pub checks: u64,
    pub p50: u64,
    pub p99: u64,
    pub p999: u64,
    pub p9999: u64,
    pub max: u64,
    /// The share of the time in checks of more than 100 microseconds.
    pub stalled: f64,
}

impl Tails {
    pub fn row(&self, scene: Scene, under_way: bool, subject: &str) -> Option<&Row> {
        let is_it =
            |row: &&Row| row.scene == scene.name() && row.under_way == under_way && row.subject == subject;
        self.rows.iter().find(is_it)
    }

    /// Returns the ratio of the slowest check in a thousand during a turnover to that in the steady
    /// scene. Returns `None` if too few checks met a turnover.
    pub fn turnover_to_steady(&self, subject: &str) -> Option<f64> {
        let p999 = |scene, under_way| {
            let row = self.row(scene, under_way, subject)?;
            (row.checks >= 10_000).then_some(row.p999 as f64)
        };
        Some(p999(Turnover, true)? / p999(Scene::Steady, false)?)
    }
}

/// The result of one subject in one scene.
struct Played {
    scene: Scene,
    name: &'static str,
    times: Times,
}

/// Plays all scenes for all subjects whose names `is_wanted`, and prints them.
pub fn run(plan: Plan, is_wanted: impl Fn(&str) -> bool) -> Result<Tails, String> {
    let takes_part = |contestant: &Contestant<u64>| {
        NAMES.contains(&contestant.name)
            && ([EMPTY_LOOP, FLOOR].contains(&contestant.name) || is_wanted(contestant.name))
    };
    let contestants: Vec<_> = subjects::all::<u64>().into_iter().filter(takes_part).collect();
    let known = keys::distinct::<u64>(plan.known);
    let stream = keys::stream::<u64>(Order::Uniform, plan.known, 2 * plan.known);
    let (taken, mut played) = (Taken::so_far(), Vec::new());
    for round in 0..plan.rounds {
        for turn in 0..contestants.len() {
            let Contestant { name, build } = contestants[(turn + round) % contestants.len()];
            for scene in Scene::ALL {
                let subject = build(scene.setting(plan))?;
                if !scene.fits(subject.as_ref()) {
                    continue;
                }
                scene.prepare(subject.as_ref(), &known);
                let times = times_of(&mut played, scene, name)?;
                let told = |why| format!("{}, {name}: {why}", scene.name());
                scene.play(subject.as_ref(), &stream, plan, times).map_err(told)?;
            }
        }
    }
    let names: Vec<_> = contestants.iter().map(|contestant| contestant.name).collect();
    let (keys, rounds, seconds, pace) = (plan.known, plan.rounds, plan.scene.as_secs_f64(), plan.pace);
    let mut tails = Tails {
        machine: Machine::this(),
        stolen: taken.by_others_since(),
        keys,
        rounds,
        seconds,
        pace,
        rows: Vec::new(),
    };
    for scene in Scene::ALL {
        tails.rows.extend(tabled(scene, plan, &names, &played));
    }
    let ratio =
        |name| tails.turnover_to_steady(name).map_or("too few checks".into(), |ratio| format!("{ratio:.2}"));
    println!(
        "\np99.9 of a check while a turnover is under way, to that in the steady scene: tollgate {};",
        ratio(OWN)
    );
    println!("an array that is copied meanwhile {}", ratio(FLOOR));
    report::stolen(tails.stolen).iter().for_each(|stolen| println!("{stolen}"));
    Ok(tails)
}

/// Returns the place for the times of one subject in one scene.
fn times_of<'a>(
    played: &'a mut Vec<Played>,
    scene: Scene,
    name: &'static str,
) -> Result<&'a mut Times, String> {
    let is_it = |played: &Played| played.scene == scene && played.name == name;
    let place = match played.iter().position(is_it) {
        Some(place) => place,
        None => {
            played.push(Played { scene, name, times: Times::none()? });
            played.len() - 1
        }
    };
    Ok(&mut played[place].times)
}

/// Prints the rows of one scene, and returns them.
fn tabled(scene: Scene, plan: Plan, names: &[&'static str], played: &[Played]) -> Vec<Row> {
    let of = |name: &&str| played.iter().find(|played| played.scene == scene && played.name == *name);
    let (known, every, pace) = (grouped(plan.known), scene.every(plan), grouped(plan.pace as usize));
    let meanwhile = match scene {
        Scene::Steady => "nothing else goes on".into(),
        Scene::Turnover => format!("another thread sweeps every {every:?}; no key is idle"),
        Scene::Flood => {
            format!("another brings {pace} fresh keys a second; who needs it is swept every {every:?}")
        }
        Scene::Clear => format!("another thread forgets all keys every {every:?}"),
    };
    println!("\n{}: nanoseconds of one check of {known} known keys; {meanwhile}", scene.name());
    let all: Vec<Row> = names.iter().filter_map(of).map(|played| played.row(false)).collect();
    table(&all);
    let met: Vec<Row> = names.iter().filter_map(of).map(|played| played.row(true)).collect();
    let met: Vec<Row> = met.into_iter().filter(|row| row.checks > 0).collect();
    if !met.is_empty() {
        println!("  only while that is under way:");
        table(&met);
    }
    let why = "has nothing for it";
    let missing = names.iter().filter(|name| of(name).is_none());
    report::left_out(&missing.map(|&name| LeftOut { name, why }).collect::<Vec<_>>());
    all.into_iter().chain(met).collect()
}

impl Played {
    fn row(&self, under_way: bool) -> Row {
        let times = if under_way { &self.times.met } else { &self.times.all };
        Row {
            scene: self.scene.name().to_owned(),
            under_way,
            subject: self.name.to_owned(),
            checks: times.len(),
            p50: times.value_at_quantile(0.5),
            p99: times.value_at_quantile(0.99),
            p999: times.value_at_quantile(0.999),
            p9999: times.value_at_quantile(0.9999),
            max: times.max(),
            stalled: stalled(times),
        }
    }
}

fn stalled(times: &Histogram<u64>) -> f64 {
    let nanos = |least: u64| -> u64 {
        let bins = times.iter_recorded().filter(|bin| bin.value_iterated_to() > least);
        bins.map(|bin| bin.value_iterated_to() * bin.count_at_value()).sum()
    };
    nanos(100_000) as f64 / nanos(0).max(1) as f64
}

fn table(rows: &[Row]) {
    print!("  {:<22}{:>11}{:>10}{:>10}{:>10}", "", "checks", "p50", "p99", "p99.9");
    println!("{:>11}{:>12}{:>10}", "p99.99", "max", "stalled");
    for row in rows {
        let Row { subject, checks, p50, p99, p999, p9999, max, .. } = row;
        let times = format!("{p50:>10}{p99:>10}{p999:>10}{p9999:>11}{max:>12}");
        println!("  {subject:<22}{checks:>11}{times}{:>9.2}%", row.stalled * 100.0);
    }
}
