//! Weakens each ordering of the library, one at a time, and checks that a model fails.
//!
//! Run it with `make weaken`; arguments select sites by a part of their printed form, such as
//! `src/rule.rs` or `*link*`. A site is an ordering stronger than relaxed, or a fence, in the code
//! of the library. The `// ORDERING:` note above it names its edges, and the ledgers in the module
//! pages name the tests of each edge. These tests must pass with the library unchanged, and one of
//! them must fail with each weaker ordering. An edge without a test must give a reason, which is
//! printed with its sites.
//!
//! All changes are made in a copy of the tree, under the target directory.

mod ledger;
mod models;
mod sites;
mod source;

use ledger::Edge;
use models::{Models, Outcome};
use sites::Site;
use source::Source;
use std::collections::{BTreeMap, BTreeSet};
use std::error::Error;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

/// The sites to weaken, and the tests that must detect each change.
struct Plan {
    sources: Vec<Source>,
    /// The sites of each source.
    sites: Vec<Vec<Site>>,
    edges: BTreeMap<String, Edge>,
}

impl Plan {
    /// Reads the plan for the library at `root`. Faults in notes and ledgers are added to `errors`.
    fn read(root: &Path, errors: &mut Vec<String>) -> std::io::Result<Self> {
        let sources = Source::library(root)?;
        let edges = ledger::read(&sources, errors);
        let mut sites: Vec<_> = sources.iter().map(|source| sites::find(source, errors)).collect();
        let mut used = BTreeSet::new();
        for (source, sites) in sources.iter().zip(&mut sites) {
            sites.retain(|site| {
                used.extend(site.edges.iter().cloned());
                let unknown: Vec<_> = site.edges.iter().filter(|edge| !edges.contains_key(*edge)).collect();
                for edge in &unknown {
                    errors.push(format!("{}:{}: no ledger has a row for *{edge}*", source.name, site.line));
                }
                unknown.is_empty()
            });
        }
        for edge in edges.keys().filter(|edge| !used.contains(*edge)) {
            errors.push(format!("the ledgers have a row for *{edge}*, which no site belongs to"));
        }
        Ok(Self { sources, sites, edges })
    }

    fn sites(&self) -> impl Iterator<Item = (&Source, &Site)> {
        let files = self.sources.iter().zip(&self.sites);
        files.flat_map(|(source, sites)| sites.iter().map(move |site| (source, site)))
    }

    /// Returns the tests that the ledgers name for the edges of a site.
    fn tests(&self, site: &Site) -> BTreeSet<&str> {
        site.edges.iter().flat_map(|edge| &self.edges[edge].tests).map(String::as_str).collect()
    }

    /// The reason why a site has no test.
    fn reasons(&self, site: &Site) -> String {
        let reasons = site.edges.iter().filter_map(|edge| self.edges[edge].reason.as_deref());
        reasons.collect::<Vec<_>>().join("; ")
    }
}

fn place(source: &Source, site: &Site) -> String {
    let edges = site.edges.iter().map(|edge| format!("*{edge}*")).collect::<Vec<_>>().join(", ");
    format!("{}:{} {edges}", source.name, site.line)
}

/// The number of mutants for each result.
#[derive(Default)]
struct Tally {
    killed: usize,
    survived: usize,
    timed_out: usize,
    exempt: usize,
}

fn run(chosen: &[String]) -> Result<bool, Box<dyn Error>> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().ok_or("the project has a root")?;
    let mut errors = Vec::new();
    let plan = Plan::read(root, &mut errors)?;
    let sites: Vec<_> = plan
        .sites()
        .filter(|(source, site)| {
            let place = place(source, site);
            chosen.is_empty() || chosen.iter().any(|part| place.contains(part))
        })
        .collect();
    if sites.is_empty() {
        return Err("no site is called that".into());
    }

    let mut models = Models::copy(root)?;
    let mut named: BTreeSet<&str> = sites.iter().flat_map(|(_, site)| plan.tests(site)).collect();
    for unknown in named.extract_if(.., |test| !models.has(test)) {
        errors.push(format!("the ledgers name {unknown}, and there is no such test"));
    }
    println!("{} tests, as the library is:", named.len());
    let mut takes: BTreeMap<&str, Duration> = BTreeMap::new();
    for &test in &named {
        let (outcome, time) = models.run(test)?;
        println!("{test}: {outcome} in {time:.1?}");
        if outcome != Outcome::Passed {
            return Err(format!("{test} must pass before anything is weakened").into());
        }
        takes.insert(test, time);
    }

    println!("\nweakened:");
    let mut tally = Tally::default();
    for (source, site) in sites {
        let place = place(source, site);
        let mut tests: Vec<&str> = plan.tests(site).into_iter().collect();
        if tests.is_empty() {
            println!("{place}: {}: exempt: {}", site.what, plan.reasons(site));
            tally.exempt += site.mutants.len();
            continue;
        }
        tests.retain(|test| named.contains(test));
        // Run the quickest tests first.
        tests.sort_by_key(|test| takes[test]);
        for mutant in &site.mutants {
            let change = format!("{place}: {} -> {}", mutant.from, mutant.to);
            models.write(&source.name, &mutant.applied(&source.text))?;
            match models.build(&tests) {
                Ok(()) => println!("{change}: {}", verdict(&models, &tests, &mut tally)?),
                Err(error) => errors.push(format!("{change}: {error}")),
            }
            models.write(&source.name, &source.text)?;
        }
    }

    let Tally { killed, survived, timed_out, exempt } = tally;
    println!("\n{killed} killed, {survived} survived, {timed_out} timed out, {exempt} exempt");
    for error in &errors {
        println!("error: {error}");
    }
    Ok(survived == 0 && timed_out == 0 && errors.is_empty())
}

/// Runs the tests until one fails, and returns the text to print for the result.
fn verdict(models: &Models, tests: &[&str], tally: &mut Tally) -> Result<String, Box<dyn Error>> {
    let mut late = Vec::new();
    for &test in tests {
        let (outcome, time) = models.run(test)?;
        match outcome {
            Outcome::Passed => {}
            Outcome::Failed => {
                tally.killed += 1;
                return Ok(format!("killed by {test} in {time:.1?}"));
            }
            Outcome::TimedOut => late.push(test),
        }
    }
    if late.is_empty() {
        tally.survived += 1;
        return Ok("SURVIVED".to_owned());
    }
    tally.timed_out += 1;
    Ok(format!("timed out in {}", late.join(", ")))
}

fn main() -> ExitCode {
    let chosen: Vec<String> = std::env::args().skip(1).collect();
    match run(&chosen) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            println!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_site_of_the_library_has_edges_that_the_ledgers_know() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        let mut errors = Vec::new();
        let plan = Plan::read(root, &mut errors).unwrap();
        assert!(errors.is_empty(), "{errors:#?}");
        let count = plan.sites().count();
        assert!(count >= 10, "only {count} sites were found: are the sources still read?");
    }
}
