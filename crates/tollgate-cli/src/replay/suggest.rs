//! Suggests a limit for a log (`tollgate suggest`).
//!
//! The program tries quotas `N/Ts`, where N is a whole number and T is 1, 2, 5, 10 or 60 seconds.
//! The rate is N requests in T seconds, and the burst is also N requests: a bucket then has a
//! capacity of N requests, and a window of T seconds admits N requests. These quotas include every
//! rate that refills its burst in T seconds, because a burst is a whole number of requests.
//!
//! For each algorithm and each T, [`search`] finds the smallest N that denies no more than is
//! allowed. A [`row`] replays this quota, so its figures are the same as in `tollgate replay`.
//! [`pattern`] finds the clients that stand out, and [`config`] writes a file for the proxy.
//!
//! The search ignores costs, the quotas of individual keys, and the maximum number of keys. The
//! keys in a log are then independent of each other, so each key is tried alone. Memory grows by 8
//! to 16 bytes per request in the log ([`trace`]), and with the number of keys.

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
use report::Suggestion;
use row::Row;
use search::Search;
use settings::{BURSTS, SuggestSettings};
use tollgate::Algorithm;
use trace::Trace;

/// Reads all inputs and suggests a limit.
///
/// # Errors
///
/// Returns an error if an input cannot be read, if a log has no column for a required field, if no
/// line parses, or if the file for the proxy cannot be written.
pub fn suggest(settings: &SuggestSettings) -> Result<Suggestion, Failure> {
    let length = input::check(&settings.log.inputs)?;
    let out = config::open(settings)?;
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
    let report = Suggestion::new(settings, &trace, allowed, rows);
    if let (Some(out), Some(path)) = (out, &settings.config_out) {
        out.write_whole(path, &config::text(settings, &report)?)?;
    }
    Ok(report)
}
