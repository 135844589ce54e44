//! The tables of docs/performance.md: throughput, where a peer is faster, single checks, and aims.

use super::markdown::{quoted, table, wrapped};
use super::shown::{Cell, SUBJECTS, Shown, THREADS, is_default};
use super::{Part, aims, tails};
use crate::report::number;
use crate::workload::Workload;

pub fn parts(shown: &Shown) -> [Part; 1] {
    let (many, few): (Vec<_>, Vec<_>) =
        shown.workloads.iter().copied().partition(|workload| workload.keys >= shown.many);
    let cells = shown.cells().map(|cell| (cell.to_string(), shown.faster(cell)));
    let parts = [
        machine(shown),
        "### Time for a check".to_owned(),
        wrapped(CAPTION),
        times(shown, &few),
        times(shown, &many),
        "Bytes per key, allocated (and resident):".to_owned(),
        bytes(shown),
        "### Where a peer is faster".to_owned(),
        wrapped(FASTER),
        losses(cells),
        "### Single checks".to_owned(),
        wrapped(&tails::caption(&shown.tails)),
        tails::table(&shown.tails),
        losses(tails::faster(shown)),
        "### Aims".to_owned(),
        wrapped(AIMS),
        aims::text(shown),
    ];
    [("peers", parts.join("\n\n"))]
}

const CAPTION: &str = "Each cell is the time for a check on 1 thread / on 2 threads, relative to governor: governor takes \
    1.00, and less is faster. The first four rows compare tollgate and governor as `cargo add` installs \
    them, and also show the time in nanoseconds: once built in cargo's own release profile (`release`), \
    and once with `lto = \"fat\"` and one codegen unit (`lto`). Each of these two builds is a separate \
    program, and a ratio always compares two subjects of the same program. All other rows are from one \
    program, built with `lto`. In that program, every peer is set up as its documentation advises, and \
    tollgate reads the processor's counter, as governor does by default. The rows with `+ atomic`, with \
    `Mutex<HashMap>` and with shards are limiters that programs typically build on maps. The floors do \
    not limit anything: `clock + CAS` reads the clock and updates a word of an array; `bare table` does \
    the same in a table of keys under a guard of crossbeam-epoch, never evicts a key, and stops all \
    threads while it grows. In a flood, every subject starts with no memory for keys, like a process \
    that has never had so many; only the array of `clock + CAS` is allocated in advance.";

const FASTER: &str = "Each line names the peers that take less time than tollgate with the same kind of clock. The figure \
    is the peer's time, relative to tollgate's. Every peer that keeps a state for each key is counted: \
    peers that lock, peers whose memory has no bound, and governor.";

const AIMS: &str = "The aims are for the defaults: tollgate and governor as `cargo add` installs them, built in cargo's \
    own profile (`release`). The column `lto` is for comparison. The figures for batches and single \
    checks are from the build with all subjects. The aim for two threads on one admitted key assumes \
    leases of tokens between cores, which are not implemented. A `SingleLimiter` has one state, so it \
    neither looks up a key nor holds a guard.";

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
