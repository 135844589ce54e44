//! The arguments about the limits that a replay is compared with.

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

    /// Returns the quota that decisions on one quota are compared with.
    ///
    /// # Errors
    ///
    /// Returns an error for several quotas, for limits with names, or for text that is not a quota.
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

    /// Returns the limits to compare with `layer`. These are either the limits given by `--against`
    /// with all other settings of `layer`, or everything in the file given by `--against-config`.
    ///
    /// # Errors
    ///
    /// An invalid limit, or a limit without a name.
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
        // A limit in shadow mode may be missing from the limits given by `--against`.
        other.shadows.retain(|name| other.limits.iter().any(|limit| limit.name == *name));
        Ok(Some(Against { name: self.limits.join(", "), layer: other }))
    }
}
