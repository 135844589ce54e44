//! Suggests a limit for a log: `tollgate suggest`.
//!
//! The quotas that are tried are `N/Ts`, for whole numbers N and for T of 1, 2, 5, 10 and 60
//! seconds: a rate of N in T seconds whose burst is T seconds of it. A bucket then holds N
//! requests, and a window of T seconds admits N. These are all rates with such a burst, because a
//! burst is a whole number of requests.
//!
//! Of each algorithm and each T, [`search`] finds the smallest N that denies no more than is
//! allowed. A [`row`] replays it, so the figures of a row are those of `tollgate replay`.
//! [`pattern`] tells which clients stand out, and [`config`] writes a file for the proxy.
//!
//! No key quotas, no costs and no maximum of keys are taken into account. Then the keys of a log do
//! not depend on each other, and each is tried alone. Memory grows with the log, by 8 to 16 bytes
//! for each request ([`trace`]), and with its keys.

pub(crate) mod args;
mod client;
mod config;
mod pattern;
pub mod report;
mod row;
mod search;
pub(crate) mod settings;
mod trace;

use super::input;
use super::progress::Progress;
use crate::failure::Failure;
use report::Report;
use row::Row;
use search::Search;
use settings::{BURSTS, Settings};
use tollgate::Algorithm;
use trace::Trace;

/// Reads all inputs and suggests a limit.
///
/// # Errors
///
/// An input that cannot be read, a log without a line that parses, a field that no log has, a file
/// for the proxy that cannot be written.
pub fn suggest(settings: &Settings) -> Result<Report, Failure> {
    let length = input::check(&settings.inputs)?;
    let out = config::Target::open(settings)?;
    let mut progress = Progress::new(length);
    let trace = Trace::read(settings, &mut progress)?;
    progress.finish();
    let algorithms = match settings.algorithm {
        Some(algorithm) => vec![algorithm],
        None => Algorithm::ALL.to_vec(),
    };
    let allowed = settings.allowed.of(trace.log.requests(), trace.clients.len() as u64);
    let mut rows: Vec<Row> = Vec::new();
    for seconds in BURSTS {
        let search = Search::new(&trace.clients, seconds);
        for &algorithm in &algorithms {
            rows.push(Row::new(algorithm, seconds, search.smallest(algorithm, allowed), &trace));
        }
    }
    let report = Report::new(settings, &trace, allowed, &rows)?;
    if let Some(out) = out {
        out.write(&config::text(settings, &report)?)?;
    }
    Ok(report)
}
