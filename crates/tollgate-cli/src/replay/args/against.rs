//! The arguments about the limits to compare a replay with.

#[cfg(feature = "proxy")]
use std::path::{Path, PathBuf};

use clap::Args;
use tollgate::Quota;
use tollgate_http::settings::LayerSettings;

use crate::failure::Failure;
use crate::limit::{parse_limit, parse_named_limit};
use crate::printable::printable;
use crate::replay::limits::settings::Against;

#[derive(Args)]
pub(crate) struct AgainstArgs {
    /// Compare the limit with another one, written as for --limit: show how many decisions differ,
    /// of which clients and when. Limits with names are given once for each limit
    #[arg(
        id = "against",
        long = "against",
        value_name = "QUOTA",
        conflicts_with = "compare",
        help_heading = "Limit"
    )]
    limits: Vec<String>,

    /// Compare the limits with those in a file of tollgate proxy
    #[cfg(feature = "proxy")]
    #[arg(
        id = "against_config",
        long = "against-config",
        value_name = "FILE",
        conflicts_with_all = ["compare", "against"],
        help_heading = "Limit"
    )]
    config: Option<PathBuf>,

    /// The limits from the file given by `--against-config`, and the file's name.
    #[arg(skip)]
    from_file: Option<Against>,
}

impl AgainstArgs {
    /// Returns the file that `--against-config` names.
    #[cfg(feature = "proxy")]
    pub(crate) fn config(&self) -> Option<&Path> {
        self.config.as_deref()
    }

    /// Adds the limits from the file given by `--against-config`.
    #[cfg(feature = "proxy")]
    pub(crate) fn set_limits(&mut self, limits: Against) {
        self.from_file = Some(limits);
    }

    /// Returns the quota to compare with, for a replay of one quota.
    ///
    /// # Errors
    ///
    /// Returns an error if `--against` has several quotas, has named limits, or is not a quota.
    pub(crate) fn quota(&self) -> Result<Option<Quota>, Failure> {
        let shown = |text: &str| printable(text.as_bytes());
        match (&self.limits[..], &self.from_file) {
            ([], None) => Ok(None),
            ([quota], None) if !quota.contains('=') => parse_limit(quota, "--against").map(Some),
            ([other, ..], _) => Err(Failure::refused(format!(
                "--against '{}' beside one quota: expected one quota without a name, as in --against 60/min",
                shown(other)
            ))),
            ([], Some(_)) => Err(Failure::refused(
                "--against-config is for limits with names: expected --config, or --limit 'NAME=QUOTA by KEY'",
            )),
        }
    }

    /// Returns the limits to compare with `layer`. The option `--against` replaces only the limits
    /// and keeps all other settings of `layer`. The option `--against-config` replaces everything.
    ///
    /// # Errors
    ///
    /// Returns an error if a limit is invalid or has no name.
    pub(crate) fn limits(self, layer: &LayerSettings) -> Result<Option<Against>, Failure> {
        if self.from_file.is_some() || self.limits.is_empty() {
            return Ok(self.from_file);
        }
        let parse = |limit: &String| match limit.contains('=') {
            true => {
                parse_named_limit(limit).map_err(|failure| Failure::refused(format!("--against: {failure}")))
            }
            false => Err(Failure::refused(format!(
                "--against '{}' has no name, and the limits have: expected NAME=QUOTA by KEY",
                printable(limit.as_bytes())
            ))),
        };
        let mut other = layer.clone();
        other.limits = self.limits.iter().map(parse).collect::<Result<_, _>>()?;
        // The limits given by `--against` need not include every limit in shadow mode.
        other.shadows.retain(|name| other.limits.iter().any(|limit| limit.name == *name));
        Ok(Some(Against { name: self.limits.join(", "), layer: other, file: None }))
    }
}
