//! Collects additional figures for a page during a replay: the results of the other algorithms, and
//! each key's rate and waits.

use std::time::Duration;

use tollgate::{Algorithm, Outcome};

use super::rates::Rates;
use super::waits::Waits;
use crate::failure::Failure;
use crate::replay::entry::{self, Entry};
use crate::replay::key_quotas::KeyQuotas;
use crate::replay::keys::KeyId;
use crate::replay::settings::Settings;
use crate::replay::simulation::{Batch, Decided};

/// The figures that are collected for a page.
pub(crate) struct Watch {
    /// The settings of a comparison.
    pub(crate) settings: Settings,
    /// The algorithms that the report does not contain.
    pub(crate) beside: Vec<Entry>,
    pub(crate) rates: Rates,
    pub(crate) waits: Waits,
    longest: Vec<Duration>,
}

impl Watch {
    pub(crate) fn new(settings: &Settings, own: Option<&KeyQuotas>) -> Self {
        let chosen = settings.algorithm;
        let compared = Settings { algorithm: None, ..settings.clone() };
        let is_beside = |algorithm: Algorithm| chosen.is_some_and(|chosen| chosen != algorithm);
        // This never fails: `entries` returns an error only if no algorithm accepts the quotas, and
        // the report's algorithm accepts them.
        let beside =
            entry::entries(&compared, own).unwrap_or_default().into_iter().filter(|entry| match entry {
                Entry::Simulated(simulation) => is_beside(simulation.algorithm),
                Entry::Refused { algorithm, .. } => is_beside(*algorithm),
            });
        Self {
            beside: beside.collect(),
            settings: compared,
            rates: Rates::default(),
            waits: Waits::default(),
            longest: Vec::new(),
        }
    }

    /// Counts a batch's requests according to the report's decisions, and lets the other algorithms
    /// decide the same requests. `keys` is the number of keys seen so far.
    pub(crate) fn judge<'b>(
        &mut self,
        batch: &'b Batch,
        keys: usize,
        decided: impl Iterator<Item = Decided<'b>>,
    ) -> Result<(), Failure> {
        self.longest.resize(keys, Duration::ZERO);
        for Decided { id, at, decision, .. } in decided {
            self.rates.add(id, at);
            if !decision.is_allowed() {
                let wait = decision.retry_after();
                match decision.outcome() {
                    Outcome::TooCostly => self.waits.never += 1,
                    _ => self.waits.add(wait),
                }
                self.longest[id] = self.longest[id].max(wait.unwrap_or_default());
            }
        }
        for entry in &mut self.beside {
            if let Entry::Simulated(simulation) = entry {
                simulation.judge(batch, keys, None)?;
            }
        }
        Ok(())
    }

    /// Returns the longest retry-after of a key's requests.
    pub(crate) fn longest_wait(&self, id: KeyId) -> Duration {
        self.longest.get(id).copied().unwrap_or_default()
    }
}
