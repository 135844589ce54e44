//! The arguments about limits that decisions are compared with.

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
    /// Show what the limit changes against another one, written as that of --limit: how many
    /// decisions differ, whose and when. Limits with names are given once for each
    #[arg(
        id = "against",
        long = "against",
        value_name = "QUOTA",
        conflicts_with = "compare",
        help_heading = "Limit"
    )]
    limits: Vec<String>,

    /// Show what the limits change against those in a file of tollgate proxy
    #[cfg(feature = "proxy")]
    #[arg(
        id = "against_config",
        long = "against-config",
        value_name = "FILE",
        conflicts_with_all = ["compare", "against"],
        help_heading = "Limit"
    )]
    config: Option<PathBuf>,

    /// The limits of that file, and its name.
    #[arg(skip)]
    from_file: Option<Against>,
}

impl AgainstArgs {
    /// Returns the file that `--against-config` names.
    #[cfg(feature = "proxy")]
    pub(crate) fn config(&self) -> Option<&Path> {
        self.config.as_deref()
    }

    /// Adds the limits of that file.
    #[cfg(feature = "proxy")]
    pub(crate) fn set_limits(&mut self, limits: Against) {
        self.from_file = Some(limits);
    }

    /// Returns the quota that decisions on one quota are compared with.
    ///
    /// # Errors
    ///
    /// Several of them, limits with names, or no quota.
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

    /// Returns the limits that decisions of these limits are compared with. Limits that are given
    /// here take the place of these, and all else stays.
    ///
    /// # Errors
    ///
    /// An invalid limit, or one without a name.
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
        // A limit that is only in one of both may be in shadow mode there.
        other.shadows.retain(|name| other.limits.iter().any(|limit| limit.name == *name));
        Ok(Some(Against { name: self.limits.join(", "), layer: other }))
    }
}
