//! The arguments about the limits to compare a replay with.

#[cfg(feature = "proxy")]
use std::path::{Path, PathBuf};

use clap::Args;
use tollgate::Quota;
use tollgate_http::settings::LayerSettings;

use super::key::limit_of;
use crate::failure::Failure;
use crate::limit::parse_limit;
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

    /// Returns the values of `--against`.
    pub(crate) fn given(&self) -> &[String] {
        &self.limits
    }

    /// Returns whether there is nothing to compare with, or one quota without a name.
    pub(crate) fn is_quota(&self) -> bool {
        self.from_file.is_none() && self.limits.len() <= 1 && !self.limits.iter().any(|it| it.contains('='))
    }

    /// Returns the quota to compare with, if there is one.
    ///
    /// # Errors
    ///
    /// Returns an error if `--against` is not a quota.
    pub(crate) fn quota(&self) -> Result<Option<Quota>, Failure> {
        self.limits.first().map(|quota| parse_limit(quota, "--against")).transpose()
    }

    /// Returns the limits to compare with `layer`. The option `--against` replaces only the limits
    /// and keeps all other settings of `layer`. `key` returns the key of a quota without a name.
    /// The option `--against-config` replaces everything.
    ///
    /// # Errors
    ///
    /// Returns an error if a limit is invalid.
    pub(crate) fn limits(
        self,
        layer: &LayerSettings,
        key: impl Fn() -> Result<String, Failure>,
    ) -> Result<Option<Against>, Failure> {
        if self.from_file.is_some() || self.limits.is_empty() {
            return Ok(self.from_file);
        }
        let mut other = layer.clone();
        other.limits =
            self.limits.iter().map(|limit| limit_of(limit, "--against", &key)).collect::<Result<_, _>>()?;
        // The limits given by `--against` need not include every limit in shadow mode.
        other.shadows.retain(|name| other.limits.iter().any(|limit| limit.name == *name));
        Ok(Some(Against { name: self.limits.join(", "), layer: other, file: None }))
    }
}
