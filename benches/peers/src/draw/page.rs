//! The tables of docs/performance.md: throughput, where a peer is faster, single checks, and aims.

use super::markdown::{self, item, quoted, shares, wrapped};
use super::shown::{Entry, Panel, Shown, THREADS, cell};
use super::{aims, tails};
use crate::report::number;
use crate::subjects::{BASE, OWN};

/// Returns the text between the marks.
pub fn section(shown: &Shown) -> String {
    let mut parts = vec![wrapped(&format!("Measured on {}; {}.", shown.machine(), shown.rounds()))];
    parts.extend([shown.stolen(), shown.busy()].into_iter().flatten().map(|busy| wrapped(&busy)));
    parts.extend(["### Time for a check".to_owned(), wrapped(CAPTION)]);
    let (many, few): (Vec<&Panel>, Vec<&Panel>) =
        shown.panels.iter().partition(|panel| panel.keys >= shown.many);
    parts.extend([times(shown, &few), times(shown, &many), wrapped(BYTES), bytes(shown)]);
    parts.extend(["### Where a peer is faster".to_owned(), losses(shown)]);
    parts.extend(["### Single checks".to_owned(), wrapped(&tails::caption(&shown.tails))]);
    parts.extend([tails::table(&shown.tails), tails::losses(shown)]);
    parts.extend(["### Aims".to_owned(), aims::text(shown)]);
    parts.join("\n\n")
}

const CAPTION: &str = "Each cell is the time for a check on 1 thread / on 2 threads, relative to \
    governor: governor takes 1.00, and less is faster. The first four rows compare tollgate and governor as \
    `cargo add` installs them, and also show the time in nanoseconds: once built in cargo's own release \
    profile (`release`), and once with `lto = \"fat\"` and one codegen unit (`lto`). Each of these two \
    builds is a separate program, and a ratio always compares two subjects of the same program. All other \
    rows are from one program, built with `lto`. In that program, every peer is set up as its documentation \
    advises, and tollgate reads the processor's counter, as governor does by default. The rows with `+ \
    atomic`, with `Mutex<HashMap>` and with shards are limiters that programs typically build on maps. The \
    floors do not limit anything: `clock + CAS` reads the clock and updates a word of an array; `bare table` \
    does the same in a table of keys under a guard of crossbeam-epoch, never evicts a key, and stops all \
    threads while it grows. In a flood, every subject starts with no memory for keys, like a process that \
    has never had so many; only the array of `clock + CAS` is allocated in advance.";

const BYTES: &str = "Bytes per key, allocated (and resident):";

/// Returns a table with a row for each entry, and a column for each panel.
fn table<'s>(
    panels: &[&Panel],
    entries: impl Iterator<Item = Entry<'s>>,
    cell: impl Fn(&Entry<'s>, &Panel) -> String,
) -> String {
    let row = |entry: Entry<'s>| {
        let cells = panels.iter().map(|panel| cell(&entry, panel)).collect();
        (quoted(&entry.name), cells)
    };
    markdown::table("", panels.iter().map(|panel| &*panel.title), entries.map(row))
}

/// Returns the table of the ratios of all subjects in some panels.
fn times(shown: &Shown, panels: &[&Panel]) -> String {
    table(panels, shown.entries().into_iter(), |entry, panel| {
        THREADS.map(|threads| time(entry, panel, threads)).join(" / ")
    })
}

/// Returns `0.41`, and for the defaults `0.41 (12.3 ns)`.
fn time(entry: &Entry, panel: &Panel, threads: usize) -> String {
    let ratio = number(entry.ratio(panel, threads), 2);
    match entry.row(panel, threads) {
        Some(row) if entry.is_default => format!("{ratio} ({:.1} ns)", row.ns_per_op),
        _ => ratio,
    }
}

/// Returns the table of bytes per key in the panels with many keys. The defaults are left out,
/// because they take the same bytes.
fn bytes(shown: &Shown) -> String {
    let panels: Vec<&Panel> = shown.panels.iter().filter(|panel| panel.keys == shown.many).collect();
    table(&panels, shown.entries().into_iter().filter(|entry| !entry.is_default), |entry, panel| {
        let row = entry.row(panel, THREADS[0]);
        let held = number(row.and_then(|row| row.bytes_per_key), 0);
        format!("{held} ({})", number(row.and_then(|row| row.resident_per_key), 0))
    })
}

/// Returns every cell in which a peer with a state for each key takes less time, whether the table
/// shows the peer or not.
fn losses(shown: &Shown) -> String {
    let of_cell = |(panel, threads)| {
        let faster = shown.faster(panel, threads);
        (!faster.is_empty()).then(|| item(&format!("{}: {}", cell(panel, threads), shares(&faster))))
    };
    let cells: Vec<String> = shown.cells().filter_map(of_cell).collect();
    let all = shown.cells().count();
    let head = format!(
        "In {} of {all} cells a peer takes less time than {OWN} with the same kind of clock. The figure is the \
         peer's time, relative to {OWN}'s. Every peer that keeps a state for each key is counted: peers that \
         lock, peers whose memory has no bound, and {BASE}.",
        cells.len()
    );
    if cells.is_empty() { wrapped(&head) } else { format!("{}\n\n{}", wrapped(&head), cells.join("\n")) }
}
