//! The settings of a suggestion.

use std::path::PathBuf;

use clap::ValueEnum;
use tollgate::Algorithm;

use super::search::Allowed;
use crate::printable::{printable, shell_word};
use crate::replay::log::schema::Wanted;
use crate::replay::log::timestamp::TimeUnit;
use crate::replay::settings::LogSettings;

/// The bursts to try, as the number of seconds in which the rate refills them.
pub(crate) const BURSTS: [u64; 5] = [1, 2, 5, 10, 60];

/// The logs, and the number of requests or clients that a limit may deny.
#[derive(Clone, Debug)]
pub struct SuggestSettings {
    pub log: LogSettings,
    /// The path templates, as the user wrote them.
    pub path_templates: Vec<String>,
    /// If `None`, all algorithms are tried.
    pub algorithm: Option<Algorithm>,
    pub allowed: Share,
    /// The burst of the suggested limit, as the number of seconds in which the rate refills it. It
    /// must be one of [`BURSTS`].
    pub burst: u64,
    pub config_out: Option<PathBuf>,
    /// The maximum number of clients to report among those that stand out.
    pub top: usize,
}

impl SuggestSettings {
    /// Returns the options with which a replay reads the same log in order of time, each after a
    /// space. `name` returns the replay's name for a field.
    pub(crate) fn log_options(&self, is_out_of_order: bool, name: impl Fn(&str) -> String) -> String {
        let Wanted { key, names, unit, trust_hops, .. } = &self.log.wanted;
        let mut options = String::new();
        if let Some(format) = self.log.format {
            options.push_str(&format!(" --log-format {format}"));
        }
        let pair = |field: &str| {
            let theirs = names.iter().find(|(ours, _)| ours == field).map(|(_, theirs)| &**theirs);
            let ours = name(field);
            (theirs.is_some() || ours != field).then(|| format!("{ours}={}", theirs.unwrap_or(field)))
        };
        let fields: Vec<String> =
            std::iter::once("time").chain(key.iter().map(String::as_str)).filter_map(pair).collect();
        if !fields.is_empty() {
            let fields = printable(fields.join(",").as_bytes());
            options.push_str(&format!(" --fields {}", shell_word(&fields)));
        }
        if let Some(unit) = unit.to_possible_value().filter(|_| *unit != TimeUnit::Seconds) {
            options.push_str(&format!(" --time-unit {}", unit.get_name()));
        }
        if let Some(hops) = trust_hops {
            options.push_str(&format!(" --trust-hops {hops}"));
        }
        if is_out_of_order {
            options.push_str(" --sort");
        }
        options
    }
}

/// The number of requests or clients that may be denied, or a share of them. Their total number in
/// the log is not known yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Share {
    pub of_clients: bool,
    pub amount: Amount,
}

/// A number, or a share of all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Amount {
    Count(u64),
    /// A share in millionths of a percent.
    Part(u64),
}

impl Share {
    pub(crate) fn of(self, requests: u64, clients: u64) -> Allowed {
        match self.of_clients {
            true => Allowed { requests: None, clients: Some(self.amount.of(clients)) },
            false => Allowed { requests: Some(self.amount.of(requests)), clients: None },
        }
    }
}

impl Amount {
    /// A hundred percent.
    pub(crate) const ALL: u64 = 100_000_000;

    /// Returns the largest whole number that exceeds neither `all` nor this amount.
    fn of(self, all: u64) -> u64 {
        match self {
            Self::Count(count) => count.min(all),
            Self::Part(part) => {
                let most = u128::from(all) * u128::from(part) / u128::from(Self::ALL);
                u64::try_from(most).unwrap_or(all)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_is_rounded_down_and_a_count_is_at_most_all() {
        for (amount, all, most) in [
            (Amount::Part(1_000_000), 323, 3),
            (Amount::Part(0), 323, 0),
            (Amount::Part(Amount::ALL), 323, 323),
            (Amount::Part(29_000_000), 100, 29),
            (Amount::Count(5), 3, 3),
            (Amount::Count(5), 9, 5),
            (Amount::Part(Amount::ALL), u64::MAX, u64::MAX),
        ] {
            assert_eq!(amount.of(all), most, "{amount:?} of {all}");
        }
    }
}
