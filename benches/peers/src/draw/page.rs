//! The tables of docs/performance.md: throughput, where a peer is faster, single checks, and aims.

use super::markdown::{quoted, table, wrapped};
use super::shown::{Cell, SUBJECTS, Shown, THREADS, is_default};
use super::{Part, aims, tails};
use crate::report::number;
use crate::workload::Workload;

pub fn parts(shown: &Shown) -> [Part; 6] {
    let (many, few): (Vec<_>, Vec<_>) =
        shown.workloads.iter().copied().partition(|workload| workload.keys >= shown.many);
    let cells = shown.cells().map(|cell| (cell.to_string(), shown.faster(cell)));
    [
        ("peers", machine(shown)),
        ("peers times", format!("{}\n\n{}", times(shown, &few), times(shown, &many))),
        ("peers bytes", bytes(shown)),
        ("peers faster", losses(cells)),
        ("peers latency", format!("{}\n\n{}", tails::table(&shown.tails), losses(tails::faster(shown)))),
        ("peers aims", aims::text(shown)),
    ]
}

fn machine(shown: &Shown) -> String {
    let measured = format!("Measured on {}; {}.", shown.machine(), shown.rounds());
    let lines = [Some(measured), shown.stolen(), shown.busy()];
    lines.iter().flatten().map(|line| wrapped(line)).collect::<Vec<_>>().join("\n\n")
}

/// Returns a table with a row for each subject, and a column for each workload.
fn of_workloads(
    workloads: &[Workload],
    subjects: &[&str],
    cell: impl Fn(Workload, &str) -> String,
) -> String {
    let headings: Vec<String> = workloads.iter().map(Workload::heading).collect();
    let cells = |subject| workloads.iter().map(|&workload| cell(workload, subject)).collect();
    table("", &headings, subjects.iter().map(|&subject| (subject.to_owned(), cells(subject))))
}

/// Returns the times relative to governor on one thread and on two, such as `0.41 / 0.38`. The rows
/// of the defaults also have the times in nanoseconds.
fn times(shown: &Shown, workloads: &[Workload]) -> String {
    of_workloads(workloads, &SUBJECTS, |workload, subject| {
        let time = |threads| match shown.row(Cell { workload, threads }, subject) {
            Some(row) if is_default(subject) => {
                format!("{} ({:.1} ns)", number(row.ratio_to_governor, 2), row.ns_per_op)
            }
            row => number(row.and_then(|row| row.ratio_to_governor), 2),
        };
        THREADS.map(time).join(" / ")
    })
}

/// Returns the allocated and the resident bytes per key in the workloads of many keys, such as
/// `36 (37)`. The defaults are left out, because they take the same bytes.
fn bytes(shown: &Shown) -> String {
    let workloads = shown.workloads.iter().copied().filter(|workload| workload.keys == shown.many);
    let subjects: Vec<&str> = SUBJECTS.into_iter().filter(|subject| !is_default(subject)).collect();
    of_workloads(&workloads.collect::<Vec<_>>(), &subjects, |workload, subject| {
        let row = shown.row(Cell { workload, threads: 1 }, subject);
        let bytes = number(row.and_then(|row| row.bytes_per_key), 0);
        format!("{bytes} ({})", number(row.and_then(|row| row.resident_per_key), 0))
    })
}

/// Returns the cells in which peers take less time, with the peers, whether a table shows them or
/// not.
fn losses<'s>(cells: impl Iterator<Item = (String, Vec<(f64, &'s str)>)>) -> String {
    let (mut all, mut lost) = (0, Vec::new());
    for (cell, faster) in cells {
        all += 1;
        let peers: Vec<String> =
            faster.iter().map(|(share, peer)| format!("{} {share:.2}", quoted(peer))).collect();
        if !peers.is_empty() {
            lost.push(wrapped(&format!("- {cell}: {}", peers.join("; "))));
        }
    }
    format!("A peer is faster in {} of {all} cells.\n\n{}", lost.len(), lost.join("\n"))
}
