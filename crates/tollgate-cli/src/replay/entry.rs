//! The algorithms of a replay. Each algorithm is either simulated or does not accept the limit.

use std::fmt;

use tollgate::{Algorithm, Quota};

use super::key_quotas::KeyQuotas;
use super::limiter::{LimiterSettings, ReplayLimiter};
use super::settings::Settings;
use super::simulation::Simulation;
use crate::failure::Failure;

/// An algorithm's simulation, or the reason why its configuration was refused.
pub(crate) enum Entry {
    Simulated(Box<Simulation>),
    Refused { algorithm: Algorithm, quota: Quota, refusal: Refusal },
}

/// A refused configuration, and the reason.
#[derive(Debug)]
pub(crate) struct Refusal {
    /// The refused quota's line in the file given by `--quotas`, if the quota belongs to a single
    /// key.
    line: Option<String>,
    /// Whether the limiter refused `--max-keys` rather than the quota.
    is_of_max_keys: bool,
    error: String,
}

impl Refusal {
    /// Returns the argument that the limiter refused.
    fn option(&self) -> &str {
        match &self.line {
            Some(line) => line,
            None if self.is_of_max_keys => "--max-keys",
            None => "--limit",
        }
    }
}

/// The text shown in a report. It omits the limit, which the report states elsewhere.
impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.line {
            Some(line) => write!(f, "{line}: {}", self.error),
            None => self.error.fmt(f),
        }
    }
}

/// Returns the algorithms to try.
///
/// # Errors
///
/// Returns an error if the user chose an algorithm that does not accept the limit or, with
/// `--compare`, if no algorithm accepts it.
pub(crate) fn entries(settings: &Settings, own: Option<&KeyQuotas>) -> Result<Vec<Entry>, Failure> {
    if let Some(algorithm) = settings.algorithm {
        let refused = |refusal: Refusal| Failure::refused(format!("{}: {}", refusal.option(), refusal.error));
        let simulation = start(algorithm, settings, own).map_err(refused)?;
        return Ok(vec![Entry::Simulated(Box::new(simulation))]);
    }
    let entries: Vec<Entry> = Algorithm::ALL
        .into_iter()
        .map(|algorithm| match start(algorithm, settings, own) {
            Ok(simulation) => Entry::Simulated(Box::new(simulation)),
            Err(refusal) => {
                Entry::Refused { algorithm, quota: settings.tried(settings.quota, algorithm), refusal }
            }
        })
        .collect();
    let reasons: Vec<String> = entries
        .iter()
        .filter_map(|entry| match entry {
            Entry::Simulated(_) => None,
            Entry::Refused { algorithm, refusal, .. } => {
                Some(format!("\n  {}: {algorithm}: {}", refusal.option(), refusal.error))
            }
        })
        .collect();
    if reasons.len() == entries.len() {
        let own = own.map_or(String::new(), |own| format!(" and the quotas of {}", own.name()));
        let message = format!("--compare: no algorithm accepts {}{own}:{}", settings.quota, reasons.concat());
        return Err(Failure::Refused(message));
    }
    Ok(entries)
}

/// Starts a simulation of the quota given by `--against`.
///
/// # Errors
///
/// Returns an error if the algorithm does not accept the quota.
pub(crate) fn against(
    settings: &Settings,
    quota: Quota,
    own: Option<&KeyQuotas>,
) -> Result<Box<Simulation>, Failure> {
    let other = Settings { quota, ..settings.clone() };
    let refused = |refusal: Refusal| Failure::refused(format!("--against: {}", refusal.error));
    start(settings.algorithm.unwrap_or_default(), &other, own).map(Box::new).map_err(refused)
}

/// Starts the simulation of an algorithm, with all its quotas.
fn start(algorithm: Algorithm, settings: &Settings, own: Option<&KeyQuotas>) -> Result<Simulation, Refusal> {
    let tried = |quota| settings.tried(quota, algorithm);
    let simulation =
        Simulation::new(algorithm, tried(settings.quota), settings.limiter).map_err(|error| Refusal {
            line: None,
            is_of_max_keys: error.setting() == "max_keys",
            error: error.to_string(),
        })?;
    if let Some(own) = own {
        let quotas = own.quotas.iter().map(|own| (&*own.key, tried(own.quota)));
        simulation.set_key_quotas(quotas).map_err(|error| {
            // The error does not name the key with the refused quota, so each quota is tried alone.
            let alone = LimiterSettings { max_keys: 1, ..settings.limiter };
            let refused =
                own.quotas.iter().find(|own| ReplayLimiter::new(algorithm, tried(own.quota), alone).is_err());
            let line =
                refused.map_or_else(|| format!("--quotas {}", own.name()), |refused| own.place(refused));
            Refusal { line: Some(line), is_of_max_keys: false, error: error.to_string() }
        })?;
    }
    Ok(simulation)
}
