//! The algorithms of a replay: those on trial, and those that do not accept the limit.

use tollgate::{Algorithm, ConfigError, Quota};

use super::failure::Failure;
use super::settings::Settings;
use super::trial::Trial;

/// An algorithm's trial, or why its configuration was refused.
pub(crate) enum Entry {
    Tried(Box<Trial>),
    Refused { algorithm: Algorithm, quota: Quota, error: ConfigError },
}

/// The algorithms to try. One that is asked for by name must be possible; of all, at least one.
pub(crate) fn entries(settings: &Settings) -> Result<Vec<Entry>, Failure> {
    let start = |algorithm, quota| Trial::new(algorithm, quota, settings.gate);
    if let Some(algorithm) = settings.algorithm {
        let refused = |error| Failure::refused(format!("{}: {error}", option_of(&error)));
        let trial = start(algorithm, settings.quota).map_err(refused)?;
        return Ok(vec![Entry::Tried(Box::new(trial))]);
    }
    let entries: Vec<Entry> = Algorithm::ALL
        .into_iter()
        .map(|algorithm| {
            let quota = if algorithm.has_burst() { settings.quota } else { settings.quota.without_burst() };
            match start(algorithm, quota) {
                Ok(trial) => Entry::Tried(Box::new(trial)),
                Err(error) => Entry::Refused { algorithm, quota, error },
            }
        })
        .collect();
    let reasons: Vec<String> = entries
        .iter()
        .filter_map(|entry| match entry {
            Entry::Tried(_) => None,
            Entry::Refused { algorithm, error, .. } => {
                Some(format!("\n  {}: {algorithm}: {error}", option_of(error)))
            }
        })
        .collect();
    if reasons.len() == entries.len() {
        let message = format!("--compare: no algorithm accepts {}:{}", settings.quota, reasons.concat());
        return Err(Failure::Refused(message));
    }
    Ok(entries)
}

/// The argument that a limiter's builder refused.
fn option_of(error: &ConfigError) -> &'static str {
    match error {
        ConfigError::MaxKeys { .. } | ConfigError::OutOfMemory { .. } => "--max-keys",
        _ => "--limit",
    }
}
