//! The section of the README: the defaults of both libraries in six rows.

use super::markdown::{quoted, table, wrapped};
use super::shown::{BASE_RELEASE, OWN_RELEASE, RELEASE, Shown};
use super::{PAGE, Part};
use crate::report::number;
use crate::subjects::{BASE, OWN};
use std::collections::BTreeSet;

/// The rows of the table: the heading of a workload, and a number of threads.
const ROWS: [(&str, usize); 6] = [
    ("hot key, admitted", 1),
    ("hot key, denied", 1),
    ("1,000 keys", 1),
    ("{} keys, u64", 1),
    ("flood of new keys", 1),
    ("hot key, admitted", 2),
];

pub fn parts(shown: &Shown) -> [Part; 1] {
    let row = |(heading, threads)| {
        let cell = shown.cell(heading, threads);
        let time = |subject| format!("{} ns", number(shown.row(cell, subject).map(|row| row.ns_per_op), 1));
        let ratio = number(shown.ratio(cell, OWN_RELEASE), 2);
        (cell.to_string(), vec![time(OWN_RELEASE), time(BASE_RELEASE), ratio])
    };
    let corner = format!("time for a check, profile `{RELEASE}`");
    let table = table(&corner, &[OWN, BASE, "ratio"], ROWS.map(row));
    [("peers", format!("{table}\n\n{}", wrapped(&sentences(shown))))]
}

/// Compares this library with governor and with the other peers.
fn sentences(shown: &Shown) -> String {
    let all = shown.cells().count();
    let is_faster = |cell: &_| shown.ratio(*cell, OWN_RELEASE).is_some_and(|ratio| ratio < 1.0);
    let faster = match shown.cells().filter(is_faster).count() {
        faster if faster == all => format!("all {all}"),
        faster => format!("{faster} of {all}"),
    };
    let lost: Vec<_> =
        shown.cells().map(|cell| shown.faster(cell)).filter(|peers| !peers.is_empty()).collect();
    let peers: BTreeSet<String> = lost.iter().flatten().map(|(_, peer)| quoted(peer)).collect();
    let peers = if peers.is_empty() {
        String::new()
    } else {
        format!("; in the others, {} is faster", Vec::from_iter(peers).join(" or "))
    };
    format!(
        "With default features and cargo's release profile, {OWN} is faster than {BASE} in {faster} cases ({} \
         workloads, each on one thread and on two). With link-time optimization for every limiter, {OWN} is \
         the fastest in {} of {all} cases{peers}. [{PAGE}]({PAGE}) lists every case, and the times of the \
         slowest checks. All figures were measured on one machine: {}.",
        shown.workloads.len(),
        all - lost.len(),
        shown.machine()
    )
}
