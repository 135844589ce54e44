//! The table of the slowest checks.

use super::markdown;
use super::shown::{Faster, Shown, sorted};
use crate::latency::{Row, Scene, Tails};
use crate::subjects::{BASE, EMPTY_LOOP, FLOOR, OWN};
use crate::workload::grouped;

/// The subjects of the table, from the top: one for each design, and those that show the effects of
/// the clock and of the machine.
pub const SUBJECTS: [&str; 7] =
    [OWN, BASE, "Mutex<HashMap>", "256 mutexed shards", "papaya + atomic", FLOOR, EMPTY_LOOP];

/// The name of a figure, and the figure in nanoseconds.
type Figure = (&'static str, fn(&Row) -> u64);
/// The figures of a cell of the table.
const FIGURES: [Figure; 4] =
    [("p50", |row| row.p50), ("p99", |row| row.p99), ("p99.9", |row| row.p999), ("longest", |row| row.max)];

/// Returns a table with a row for each subject, and a column for each scene.
pub fn table(tails: &Tails) -> String {
    let row = |subject| {
        let cell = |scene: Scene| match tails.row(scene, false, subject) {
            Some(row) => times(row),
            None => format!("no {}", scene.name()),
        };
        (subject.to_owned(), Scene::ALL.map(cell).to_vec())
    };
    markdown::table("", &Scene::ALL.map(Scene::name), SUBJECTS.map(row))
}

/// Returns each figure of each scene, with the peers whose time is shorter than tollgate's time,
/// whether the table shows them or not.
pub fn faster(shown: &Shown) -> impl Iterator<Item = (String, Faster<'_>)> {
    let cells = Scene::ALL.into_iter().flat_map(|scene| FIGURES.map(|figure| (scene, figure)));
    cells.map(|(scene, (name, nanos))| {
        let own = shown.tails.row(scene, false, OWN).map_or(f64::NAN, |row| nanos(row) as f64);
        let rows = shown.tails.rows.iter().filter(|row| row.scene == scene.name() && !row.under_way);
        let peers = rows.filter(|row| shown.own_like(&row.subject).is_some());
        let ratios = peers.map(|row| (nanos(row) as f64 / own, &*row.subject));
        (format!("{}, {name}", scene.name()), sorted(ratios))
    })
}

/// Returns a cell of the table: `0.19 / 0.40 / 0.55 / 7,356; 31 %`.
fn times(row: &Row) -> String {
    let times = FIGURES.map(|(_, nanos)| micros(nanos(row)));
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
