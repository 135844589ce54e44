//! Suggests a limit for a log: `tollgate suggest`.
//!
//! The program tries quotas `N/Ts`, for whole numbers N and for T of 1, 2, 5, 10 and 60 seconds: a
//! rate of N in T seconds whose burst is T seconds of the rate. A bucket then holds N requests, and
//! a window of T seconds admits N. These are all rates with such a burst, because a burst is a
//! whole number of requests.
//!
//! For each algorithm and each T, [`search`] finds the smallest N that denies no more than is
//! allowed. A [`row`] replays this quota, so that its figures are the figures of `tollgate replay`.
//! [`pattern`] finds the clients that stand out, and [`config`] writes a file for the proxy.
//!
//! Quotas of single keys, costs and the maximum of keys are not taken into account. Without them,
//! the keys of a log do not depend on each other, and each key is tried alone. Memory grows with
//! the log, by 8 to 16 bytes for each request ([`trace`]), and with its keys.

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
/// An input that cannot be read, a log without a line that parses, a field that no log has, or a
/// file for the proxy that cannot be written.
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
