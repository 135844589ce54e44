//! `peers draw` turns saved rows into the README's section on speed, its picture, and the tables of
//! docs/performance.md.
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

use crate::latency::Tails;
use crate::report::{Machine, Run, beside, defaults};
use crate::workload::grouped;
use markdown::placed;
use shown::{OTHERS_PROFILE, PROFILES, Shown};
use std::fs;
use std::io::ErrorKind;
use std::path::Path;

/// The path of the picture, relative to the root.
const PICTURE: &str = "benches/peers/ratios.svg";
const README: &str = "README.md";
const PAGE: &str = "docs/performance.md";
/// The name of the marks around the drawn part of a page.
const MARKS: &str = "peers";

/// Draws the rows in `json`. With `aside`, everything is printed, and the pages and the picture in
/// the repository stay unchanged.
pub fn run(json: &Path, many: usize, aside: bool) -> Result<(), String> {
    let make = if aside { "make peers PEERS=--quick" } else { "make peers" };
    let run = measured(json, OTHERS_PROFILE, make)?;
    let defaults = PROFILES.map(|profile| {
        let options = if aside { "'defaults --quick'" } else { "defaults" };
        let path = beside(json, &defaults(profile));
        let defaults = measured(&path, profile, &format!("make peers PEERS={options}"))?;
        of_one_machine(&path, &defaults.machine, &run.machine)?;
        Ok(defaults)
    });
    let defaults = defaults.into_iter().collect::<Result<_, String>>()?;
    let tails = tails(json, &run, many, aside)?;
    let shown = Shown::of(run, defaults, many, tails).map_err(|missing| {
        format!("{} lacks rows, so nothing is drawn; `{make}` measures them:\n{missing}", json.display())
    })?;
    let (picture, readme, page) = (picture::svg(&shown)?, readme::section(&shown), page::section(&shown));
    if aside {
        println!("{readme}\n\n{page}");
        return write(&json.with_extension("svg"), &picture);
    }
    let pages = [(README, readme), (PAGE, page)].map(|(path, section)| {
        let path = Path::new(path);
        let page = placed(&read(path)?, MARKS, &section).map_err(|why| told(path, why))?;
        Ok((path, page))
    });
    let pages = pages.into_iter().collect::<Result<Vec<_>, String>>()?;
    write(Path::new(PICTURE), &picture)?;
    pages.iter().try_for_each(|(path, page)| write(path, page))
}

/// Reads the rows that `peers` has written, which must have been built in this profile. `make` is
/// the command that measures them.
fn measured(path: &Path, profile: &str, make: &str) -> Result<Run, String> {
    let run: Run = serde_json::from_str(&rows(path, make)?).map_err(|why| told(path, why))?;
    if run.profile == profile {
        Ok(run)
    } else {
        let its = run.profile;
        Err(told(path, format!("measured in profile {its}; `{make}` measures it in {profile}")))
    }
}

/// Reads the rows that `peers latency` has written, which must be of as many keys and of the same
/// machine.
fn tails(json: &Path, run: &Run, many: usize, aside: bool) -> Result<Tails, String> {
    let make = if aside { "make peers PEERS='latency --quick'" } else { "make peers PEERS=latency" };
    let path = beside(json, "latency");
    let tails: Tails = serde_json::from_str(&rows(&path, make)?).map_err(|why| told(&path, why))?;
    of_one_machine(&path, &tails.machine, &run.machine)?;
    if tails.keys != many {
        let (keys, many) = (grouped(tails.keys), grouped(many));
        return Err(told(&path, format!("measured with {keys} keys; `{make}` takes {many}")));
    }
    match tails::missing(&tails) {
        names if names.is_empty() => Ok(tails),
        names => Err(told(&path, format!("lacks {}; `{make}` measures it", names.join("; ")))),
    }
}

fn of_one_machine(path: &Path, its: &Machine, others: &Machine) -> Result<(), String> {
    if its == others { Ok(()) } else { Err(told(path, "measured on another machine than the rows")) }
}

/// Reads a file that the command `make` writes.
fn rows(path: &Path, make: &str) -> Result<String, String> {
    fs::read_to_string(path).map_err(|why| match why.kind() {
        ErrorKind::NotFound => format!("{} is missing; `{make}` measures what it holds", path.display()),
        _ => told(path, why),
    })
}

fn read(path: &Path) -> Result<String, String> {
    fs::read_to_string(path).map_err(|why| told(path, why))
}

fn write(path: &Path, text: &str) -> Result<(), String> {
    fs::write(path, text).map_err(|why| told(path, why))?;
    println!("wrote {}", path.display());
    Ok(())
}

fn told(path: &Path, why: impl std::fmt::Display) -> String {
    format!("{}: {why}", path.display())
}
