//! What stands in the README: the same ratios as a table, latency, where tollgate loses, and, folded, what was
//! aimed at.

use super::{Entry, PICTURE, Panel, Shown, THREADS, aims, cell, faster, number, quoted, tails};
use crate::report::Row;
use crate::subjects::OWN;
use crate::workload::grouped;

const BEGIN: &str = "<!-- peers -->";
const END: &str = "<!-- /peers -->";
/// Columns, like the rest of the README.
const WIDTH: usize = 112;

/// What stands between the marks.
pub fn markdown(shown: &Shown) -> String {
    let mut paragraphs = vec![
        format!("![How long a check takes, compared with governor, as bars]({PICTURE})"),
        wrapped(
            "The time for a check, where governor's is 1 and less is faster, on 1 thread / on 2 threads. \
             The first rows, with the time in nanoseconds, are tollgate and governor as `cargo add` gives them, each \
             pair in a program of its own: built in cargo's own release profile (`release`), and with `lto = \"fat\"` \
             and one codegen unit (`lto`), as all the others are. Of the others, \
             every peer is set up as its documentation advises, and tollgate with the clock that governor's \
             default reads, the processor's counter (guarded; where the kernel does not trust it, see *system clock*); `+ atomic`, `Mutex<HashMap>` and \
             the shards are limiters as people build them. The floors limit nothing. One reads the clock \
             and updates a word that the key points to. The other does that in a table of keys, under a guard of \
             crossbeam-epoch; it never forgets, and grows while everybody waits. A flood finds no memory ready for use, \
             as in a process that has not seen so many keys before (but for the array of the first floor).",
        ),
        table(shown),
        losses(shown),
    ];
    if let Some(tails) = &shown.tails {
        let caption = wrapped(&tails::caption(tails));
        paragraphs.extend([caption, tails::table(tails), tails::losses(shown, tails)]);
    }
    paragraphs.extend([shown.stolen(), shown.busy()].into_iter().flatten().map(|busy| wrapped(&busy)));
    paragraphs.push(wrapped(&format!(
        "Measured on {}; {}. `make peers PEERS=--large` and `make peers PEERS=latency` measure it on yours, \
         and `make peers PEERS=draw` puts what came out here.",
        shown.machine(),
        shown.rounds()
    )));
    paragraphs.push(aims::folded(shown));
    paragraphs.join("\n\n")
}

/// The README with the section in its place.
pub fn placed(readme: &str, section: &str) -> Result<String, String> {
    let parts = readme.split_once(BEGIN).and_then(|(before, rest)| Some((before, rest.split_once(END)?.1)));
    let (before, after) = parts.ok_or_else(|| format!("the README has no {BEGIN} and {END} after it"))?;
    Ok(format!("{before}{BEGIN}\n{section}\n{END}{after}"))
}

fn table(shown: &Shown) -> String {
    let titles: Vec<&str> = shown.panels.iter().map(|panel| &*panel.title).collect();
    let bytes = format!("bytes a key (resident), {}: u64 / String", grouped(shown.many));
    let mut lines = vec![
        format!("| | {} | {bytes} |", titles.join(" | ")),
        format!("|---|{}", "--:|".repeat(titles.len() + 1)),
    ];
    for entry in shown.entries() {
        let ratios = |panel: &Panel| THREADS.map(|threads| time(&entry, panel, threads)).join(" / ");
        let many = shown.panels.iter().filter(|panel| panel.keys == shown.many);
        let bytes = many.map(|panel| {
            let row = entry.row(panel, THREADS[0]);
            let [held, resident] =
                [row.and_then(|row| row.bytes_per_key), row.and_then(|row| row.resident_per_key)]
                    .map(|bytes| number(bytes, 0));
            format!("{held} ({resident})")
        });
        let cells: Vec<String> = shown.panels.iter().map(ratios).collect();
        let bytes = bytes.collect::<Vec<_>>().join(" / ");
        lines.push(format!("| {} | {} | {bytes} |", quoted(&entry.name), cells.join(" | ")));
    }
    lines.join("\n")
}

/// `0.41`, and of the defaults `0.41 (12.3 ns)`.
fn time(entry: &Entry, panel: &Panel, threads: usize) -> String {
    let ratio = number(entry.ratio(panel, threads), 2);
    match entry.row(panel, threads) {
        Some(row) if entry.is_default => format!("{ratio} ({:.1} ns)", row.ns_per_op),
        _ => ratio,
    }
}

/// Every cell in which a peer with a state for each key takes less time, shown above or not.
fn losses(shown: &Shown) -> String {
    let of_cell = |(panel, threads)| {
        let share = |row: &Row| {
            let own = shown.ratio(panel, threads, shown.own_like(&row.subject)?)?;
            Some((row.ratio_to_governor? / own, row.subject.clone()))
        };
        let faster = faster(shown.rows(panel, threads).filter_map(share).collect());
        (!faster.is_empty()).then(|| format!("- {}: {faster}", cell(panel, threads)))
    };
    let cells: Vec<String> = shown.cells().filter_map(of_cell).collect();
    if cells.is_empty() {
        return wrapped(&format!(
            "{OWN} loses none of these cells to a peer that keeps a state for each key."
        ));
    }
    let head = format!(
        "Where {OWN} loses: these peers keep a state for each key, too, and take only so much of its time, \
         with the same kind of clock. Those that lock and those without a bound on memory count as well."
    );
    format!("{}\n\n{}", wrapped(&head), cells.join("\n"))
}

pub fn wrapped(text: &str) -> String {
    let (mut lines, mut line) = (Vec::new(), String::new());
    for word in text.split_whitespace() {
        if !line.is_empty() && line.len() + 1 + word.len() > WIDTH {
            lines.push(std::mem::take(&mut line));
        }
        if !line.is_empty() {
            line.push(' ');
        }
        line.push_str(word);
    }
    lines.push(line);
    lines.join("\n")
}
