//! `peers draw` turns saved rows into the README's section on speed, its picture, and the tables of
//! docs/performance.md. The text between the tables is written by hand, in the page itself.
//!
//! Measuring and drawing are separate, so that a picture can be drawn again from the same rows.
//! Nothing is written unless all shown rows exist: a run with `--only`, a run with `--quick`, and a
//! run that was cut short lack some of them. The results of `peers defaults` and `peers latency`
//! are in files next to the rows. Workloads with ten times as many keys are shown if they were
//! measured.

mod aims;
mod markdown;
mod page;
mod picture;
mod readme;
mod shown;
mod tails;

use crate::latency::Plan;
use markdown::placed;
use shown::Shown;
use std::fs;
use std::path::Path;

/// The path of the picture, relative to the root.
const PICTURE: &str = "benches/peers/ratios.svg";
const README: &str = "README.md";
const PAGE: &str = "docs/performance.md";

/// A drawn part of a page, after the name of the marks around it.
type Part = (&'static str, String);

/// Draws the rows in `json`. With `aside`, everything is printed, and the pages and the picture in
/// the repository stay unchanged.
pub fn run(json: &Path, plan: Plan, aside: bool) -> Result<(), String> {
    let shown = Shown::read(json, plan).map_err(|why| {
        let both = if aside { ", both with --quick," } else { "" };
        format!("{why}\nnothing is drawn; `make peers` and `make peers PEERS=latency`{both} measure all rows")
    })?;
    let (picture, readme, page) = (picture::svg(&shown)?, readme::parts(&shown), page::parts(&shown));
    if aside {
        readme.iter().chain(&page).for_each(|(_, text)| println!("{text}\n"));
        return write(&json.with_extension("svg"), &picture);
    }
    // Both pages are complete before the first file is written.
    let (readme, page) = (placed(README, &readme)?, placed(PAGE, &page)?);
    let files = [(PICTURE, picture), (README, readme), (PAGE, page)];
    files.iter().try_for_each(|(path, text)| write(Path::new(path), text))
}

fn write(path: &Path, text: &str) -> Result<(), String> {
    fs::write(path, text).map_err(|why| format!("{}: {why}", path.display()))?;
    println!("wrote {}", path.display());
    Ok(())
}
