//! The arguments about the limits to compare a replay with.

#[cfg(feature = "proxy")]
use std::path::PathBuf;

use clap::Args;

use crate::failure::Failure;
use crate::replay::engine::ReplayLimits;
use crate::replay::settings::Against;

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
    pub(crate) config: Option<PathBuf>,

    /// The limits from the file given by `--against-config`, and the file's name.
    #[arg(skip)]
    pub(crate) from_file: Option<Against>,
}

impl AgainstArgs {
    /// Returns the limits to compare with `limits`. The option `--against` replaces only the limits
    /// and keeps all other settings. The option `--against-config` replaces everything.
    ///
    /// # Errors
    ///
    /// Returns an error if a limit is invalid.
    pub(crate) fn limits(&mut self, limits: &ReplayLimits) -> Result<Option<Against>, Failure> {
        if let Some(mut other) = self.from_file.take() {
            let ReplayLimits { fields, has_costs, exact_keys, .. } = *limits;
            other.limits = ReplayLimits { fields, has_costs, exact_keys, ..other.limits };
            return Ok(Some(other));
        }
        if self.limits.is_empty() {
            return Ok(None);
        }
        let mut other = limits.clone();
        other.set(&self.limits, "--against")?;
        // The limits given by `--against` need not include every limit that other settings name.
        let ReplayLimits { layer, .. } = &mut other;
        layer.shadows.retain(|name| layer.limits.iter().any(|limit| limit.name == *name));
        layer.charge_if.retain(|name, _| layer.limits.iter().any(|limit| limit.name == *name));
        Ok(Some(Against { name: self.limits.join(", "), limits: other, file: None }))
    }
}
