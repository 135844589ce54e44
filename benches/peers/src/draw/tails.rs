//! The table of the slowest checks.

use super::markdown::{self, item, quoted, shares};
use super::shown::{Shown, sorted};
use crate::latency::{Row, Scene, Tails};
use crate::subjects::{BASE, EMPTY_LOOP, FLOOR, OWN};
use crate::workload::grouped;

/// The subjects of the table, from the top: one for each design, and those that show the effects of
/// the clock and of the machine.
const SUBJECTS: [&str; 7] =
    [OWN, BASE, "Mutex<HashMap>", "256 mutexed shards", "papaya + atomic", FLOOR, EMPTY_LOOP];

/// Returns the caption, which explains the columns.
pub fn caption(tails: &Tails) -> String {
    let every = |scene: Scene| 1000.0 * tails.seconds * scene.part();
    format!(
        "One thread checks {} known keys and times every check. Each cell is p50 / p99 / p99.9 / longest, \
         in microseconds, followed by the share of the time that was spent in checks of more than 100 \
         microseconds. Each subject runs each scene for {} s. *Turnover*: another thread calls the \
         subject's method for sweeps every {:.0} ms while no key is idle, so tollgate replaces its table. \
         *Flood*: another thread inserts {} new keys a second, and sweeps every {:.0} ms if the subject \
         needs sweeps. *Clear*: another thread removes all keys every {:.0} ms. The empty loop shows how \
         much the clock and the machine add to every figure.",
        grouped(tails.keys),
        tails.rounds as f64 * tails.seconds,
        every(Scene::Turnover),
        grouped(tails.pace as usize),
        every(Scene::Flood),
        every(Scene::Clear),
    )
}

pub fn table(tails: &Tails) -> String {
    let row = |subject| {
        let cell = |scene: Scene| match tails.row(scene, false, subject) {
            Some(row) => cell(row),
            None => format!("no {}", scene.name()),
        };
        (quoted(subject), Scene::ALL.map(cell).to_vec())
    };
    markdown::table("", Scene::ALL.map(Scene::name), SUBJECTS.map(row))
}

/// Returns the scenes that were not measured.
pub fn missing(tails: &Tails) -> Vec<&'static str> {
    let is_missing = |subject: &&str| tails.row(Scene::Steady, false, subject).is_none();
    let mut missing: Vec<_> = SUBJECTS.into_iter().filter(is_missing).collect();
    if tails.turnover_to_steady(OWN).is_none() {
        missing.push("enough checks of tollgate's while a turnover was under way");
    }
    missing
}

/// Returns the cells of the table in which a peer is faster, whether the table shows the peer or
/// not, with the ratio of its time to tollgate's time.
pub fn losses(shown: &Shown) -> String {
    type Quantile = (&'static str, fn(&Row) -> u64);
    const QUANTILES: [Quantile; 4] = [
        ("p50", |row| row.p50),
        ("p99", |row| row.p99),
        ("p99.9", |row| row.p999),
        ("longest", |row| row.max),
    ];
    let tails = &shown.tails;
    let of_cell = |(scene, (name, value)): (Scene, Quantile)| {
        let own = value(tails.row(scene, false, OWN)?) as f64;
        let rows = tails.rows.iter().filter(|row| row.scene == scene.name() && !row.under_way);
        let peers = rows.filter(|row| shown.own_like(&row.subject).is_some());
        let faster = sorted(peers.map(|row| (value(row) as f64 / own, &*row.subject)));
        (!faster.is_empty()).then(|| item(&format!("{}, {name}: {}", scene.name(), shares(&faster))))
    };
    let cells = Scene::ALL.into_iter().flat_map(|scene| QUANTILES.map(|quantile| (scene, quantile)));
    let (all, lost): (usize, Vec<String>) = (cells.clone().count(), cells.filter_map(of_cell).collect());
    let head = format!(
        "A peer is faster in {} of these {all} cells; the figure is the peer's time, relative to tollgate's:",
        lost.len()
    );
    format!("{head}\n\n{}", lost.join("\n"))
}

/// `0.19 / 0.40 / 0.55 / 7,356; 31 %`.
fn cell(row: &Row) -> String {
    let times = [row.p50, row.p99, row.p999, row.max].map(micros);
    format!("{}; {:.0} %", times.join(" / "), row.stalled * 100.0)
}

/// Formats microseconds with as many digits as are significant.
fn micros(nanos: u64) -> String {
    let micros = nanos as f64 / 1000.0;
    match nanos {
        0..100 => format!("{micros:.3}"),
        100..10_000 => format!("{micros:.2}"),
        10_000..100_000 => format!("{micros:.1}"),
        _ => grouped(micros.round() as usize),
    }
}
