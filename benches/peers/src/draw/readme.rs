//! The section of the README: the picture, and the defaults of both libraries in six rows.

use super::markdown::{self, quoted, wrapped};
use super::shown::{HOT, PROFILES, Panel, Shown, THREADS, cell};
use super::{PAGE, PICTURE};
use crate::report::number;
use crate::subjects::{BASE, OWN};

/// The index of cargo's own profile in [`PROFILES`].
const RELEASE: usize = 0;
/// A workload of the picture that has no row.
const LEFT_OUT: &str = "uniform String";

/// Returns the text between the marks.
pub fn section(shown: &Shown) -> String {
    let picture = format!("![Bar chart: time for a check relative to {BASE}]({PICTURE})");
    [picture, table(shown), wrapped(&sentences(shown))].join("\n\n")
}

fn table(shown: &Shown) -> String {
    let row = |(panel, threads)| {
        let [own, base] = [OWN, BASE].map(|subject| shown.default_row(RELEASE, panel, threads, subject));
        let nanos = [own, base].map(|row| format!("{} ns", number(row.map(|row| row.ns_per_op), 1)));
        let ratio = number(own.and_then(|row| row.ratio_to_governor), 2);
        (cell(panel, threads), nanos.into_iter().chain([ratio]).collect())
    };
    let corner = format!("time for a check, profile `{}`", PROFILES[RELEASE]);
    markdown::table(&corner, [OWN, BASE, "ratio"], rows(shown).map(row))
}

/// Returns the rows: one thread in each workload, and then two threads on the hot key.
fn rows(shown: &Shown) -> impl Iterator<Item = (&Panel, usize)> {
    let one = shown.drawn().filter(|panel| panel.workload != LEFT_OUT).map(|panel| (panel, THREADS[0]));
    let two = shown.drawn().filter(|panel| panel.workload == HOT).map(|panel| (panel, THREADS[1]));
    one.chain(two)
}

/// How this library compares with governor and with the other peers.
fn sentences(shown: &Shown) -> String {
    let all = shown.cells().count();
    let is_faster = |&(panel, threads): &(&Panel, usize)| {
        let row = shown.default_row(RELEASE, panel, threads, OWN);
        row.and_then(|row| row.ratio_to_governor).is_none_or(|ratio| ratio < 1.0)
    };
    let faster = shown.cells().filter(is_faster).count();
    let in_cases = if faster == all { format!("all {all}") } else { format!("{faster} of {all}") };
    let peers = faster_peers(shown, all);
    let peers = if peers.is_empty() { format!("none is faster than {OWN}") } else { peers };
    format!(
        "With default features and cargo's release profile, {OWN} is faster than {BASE} in {in_cases} cases ({} \
         workloads, each on one thread and on two). In a build of {OWN} and all other limiters with link-time \
         optimization, {peers}. [{PAGE}]({PAGE}) lists every case, and the times of the slowest checks. All \
         figures were measured on one machine: {}.",
        shown.panels.len(),
        shown.machine()
    )
}

/// `papaya + atomic is faster than tollgate in 2 of 20 cases, and scc + atomic in 1`, the most
/// first; empty for none.
fn faster_peers(shown: &Shown, all: usize) -> String {
    let mut faster: Vec<(usize, &str)> = Vec::new();
    for (_, peer) in shown.cells().flat_map(|(panel, threads)| shown.faster(panel, threads)) {
        match faster.iter_mut().find(|(_, name)| *name == peer) {
            Some((count, _)) => *count += 1,
            None => faster.push((1, peer)),
        }
    }
    faster.sort_by_key(|&(count, _)| std::cmp::Reverse(count));
    let of_peer = |(nth, (count, peer)): (usize, &(usize, &str))| {
        let peer = quoted(peer);
        if nth == 0 {
            format!("{peer} is faster than {OWN} in {count} of {all} cases")
        } else {
            let and = if nth + 1 == faster.len() { "and " } else { "" };
            format!("{and}{peer} in {count}")
        }
    };
    faster.iter().enumerate().map(of_peer).collect::<Vec<_>>().join(", ")
}
