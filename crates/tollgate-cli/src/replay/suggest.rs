//! Suggests a limit for a log: `tollgate suggest`.
//!
//! The program tries quotas `N/Ts` for whole numbers N, where T is 1, 2, 5, 10 or 60 seconds. Such
//! a quota has a rate of N requests in T seconds, and its burst equals T seconds of this rate. A
//! bucket then has a capacity of N requests, and a window of T seconds admits N requests. No rate
//! with such a burst is left out, because a burst is a whole number of requests.
//!
//! For each algorithm and each T, [`search`] finds the smallest N that denies no more than is
//! allowed. A [`row`] replays this quota, so its figures equal the figures that `tollgate replay`
//! reports. [`pattern`] finds the clients that stand out, and [`config`] writes a file for the
//! proxy.
//!
//! Quotas of single keys, costs and the maximum number of keys are ignored. Without them, the keys
//! of a log do not depend on each other, so each key is tried alone. Memory grows by 8 to 16 bytes
//! for each request in the log ([`trace`]), and with the number of keys.

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
/// Returns an error if an input cannot be read, if no line of a log parses, if no log has one of
/// the fields, or if the file for the proxy cannot be written.
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
