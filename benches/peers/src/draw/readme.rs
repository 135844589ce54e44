//! The section of the README: the picture, and the defaults of both libraries in six rows.

use super::markdown::{self, number, quoted, wrapped};
use super::shown::{HOT, PROFILES, Panel, Shown, THREADS, cell};
use super::{PAGE, PICTURE};
use crate::subjects::{BASE, OWN};

/// The index of cargo's own profile in [`PROFILES`].
const RELEASE: usize = 0;
/// A workload of the picture that has no row.
const LEFT_OUT: &str = "uniform String";

/// Returns the text between the marks.
pub fn section(shown: &Shown) -> String {
    let picture = format!("![Time for a check, {BASE} = 1, as bars]({PICTURE})");
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

/// Where this library loses, and where the rest stands.
fn sentences(shown: &Shown) -> String {
    let all = shown.cells().count();
    let is_lost = |&(panel, threads): &(&Panel, usize)| {
        let row = shown.default_row(RELEASE, panel, threads, OWN);
        row.and_then(|row| row.ratio_to_governor).is_some_and(|ratio| ratio >= 1.0)
    };
    let to_base = match shown.cells().filter(is_lost).count() {
        0 => "none".to_owned(),
        lost => lost.to_string(),
    };
    let peers = lost_to_peers(shown);
    let peers = if peers.is_empty() { "none is faster".to_owned() } else { peers };
    format!(
        "As `cargo add` gives them, {OWN} loses to {BASE} in {to_base} of {all} cases ({} workloads, on one \
         thread and on two); of all peers, built with `lto`, {peers}. `{PAGE}` has every case, the \
         slowest checks, the aims and what was tried, measured on {}.",
        shown.panels.len(),
        shown.machine()
    )
}

/// `papaya + atomic is faster in 2, scc + atomic in 1`, the most first; empty for none.
fn lost_to_peers(shown: &Shown) -> String {
    let mut lost: Vec<(usize, &str)> = Vec::new();
    for (_, peer) in shown.cells().flat_map(|(panel, threads)| shown.faster(panel, threads)) {
        match lost.iter_mut().find(|(_, name)| *name == peer) {
            Some((count, _)) => *count += 1,
            None => lost.push((1, peer)),
        }
    }
    lost.sort_by_key(|&(count, _)| std::cmp::Reverse(count));
    let of_peer = |(nth, (count, peer)): (usize, &(usize, &str))| {
        let is_faster = if nth == 0 { "is faster " } else { "" };
        format!("{} {is_faster}in {count}", quoted(peer))
    };
    lost.iter().enumerate().map(of_peer).collect::<Vec<_>>().join(", ")
}
