//! The tables of docs/performance.md: throughput, where a peer is faster, single checks, and aims.

use super::markdown::{self, quoted, wrapped};
use super::shown::{Cell, Faster, ONE_RESOURCE, SUBJECTS, Shown, THREADS, is_default};
use super::{Part, aims, tails};
use crate::report::{Row, number};
use crate::workload::{Kind, Workload};

pub fn parts(shown: &Shown) -> [Part; 7] {
    let (many, few): (Vec<_>, Vec<_>) =
        shown.workloads.iter().copied().partition(|workload| workload.keys >= shown.many);
    let single: Vec<_> = few.iter().copied().filter(is_of_one_resource).collect();
    let times = [few, many.clone()].map(|workloads| table(shown, &workloads, &SUBJECTS, &THREADS, time));
    // The defaults take the same bytes as the same subjects with other settings.
    let others: Vec<&str> = SUBJECTS.into_iter().filter(|subject| !is_default(subject)).collect();
    let cells = shown.cells().map(|cell| (cell.to_string(), shown.faster(cell)));
    [
        ("peers", machine(shown)),
        ("peers times", times.join("\n\n")),
        ("peers one resource", table(shown, &single, &ONE_RESOURCE, &THREADS, time)),
        ("peers bytes", table(shown, &many, &others, &[1], bytes)),
        ("peers faster", losses(cells)),
        ("peers latency", format!("{}\n\n{}", tails::table(&shown.tails), losses(tails::faster(shown)))),
        ("peers aims", aims::text(shown)),
    ]
}

/// Returns whether a workload suits limiters without keys. The type of a key that they ignore makes
/// no difference to them.
fn is_of_one_resource(workload: &Workload) -> bool {
    workload.keys == 1 && workload.kind == Kind::U64
}

fn machine(shown: &Shown) -> String {
    let measured = format!("Measured on {}; {}.", shown.machine(), shown.rounds());
    let lines = [Some(measured), shown.stolen(), shown.busy()];
    lines.iter().flatten().map(|line| wrapped(line)).collect::<Vec<_>>().join("\n\n")
}

/// Returns a table with a row for each subject and a column for each workload. A cell has a figure
/// for each number of threads.
fn table(
    shown: &Shown,
    workloads: &[Workload],
    subjects: &[&str],
    threads: &[usize],
    figure: fn(&Row) -> String,
) -> String {
    let headings: Vec<String> = workloads.iter().map(Workload::heading).collect();
    let cell = |workload, subject| {
        let row = |&threads: &usize| shown.row(Cell { workload, threads }, subject);
        threads.iter().filter_map(row).map(figure).collect::<Vec<_>>().join(" / ")
    };
    let cells = |subject| workloads.iter().map(|&workload| cell(workload, subject)).collect();
    markdown::table("", &headings, subjects.iter().map(|&subject| (subject.to_owned(), cells(subject))))
}

/// Returns the time relative to governor, and for the defaults also the time: `0.42 (25.5 ns)`.
fn time(row: &Row) -> String {
    let ratio = number(row.ratio_to_governor, 2);
    if is_default(&row.subject) { format!("{ratio} ({:.1} ns)", row.ns_per_op) } else { ratio }
}

/// Returns the allocated and the resident bytes per key: `36 (37)`.
fn bytes(row: &Row) -> String {
    format!("{} ({})", number(row.bytes_per_key, 0), number(row.resident_per_key, 0))
}

/// Returns a list of the cells in which a peer is faster, whether a table shows the peer or not.
fn losses<'a>(cells: impl Iterator<Item = (String, Faster<'a>)>) -> String {
    let (mut all, mut lost) = (0, Vec::new());
    for (cell, faster) in cells {
        all += 1;
        let peers: Vec<String> =
            faster.iter().map(|(ratio, peer)| format!("{} {ratio:.2}", quoted(peer))).collect();
        if !peers.is_empty() {
            lost.push(wrapped(&format!("- {cell}: {}", peers.join("; "))));
        }
    }
    format!("A peer is faster in {} of {all} cells.\n\n{}", lost.len(), lost.join("\n"))
}
