//! Choices that both subcommands offer under the same names.

use std::sync::LazyLock;

use clap::ValueEnum;
use clap::builder::{PossibleValue, PossibleValuesParser};
use tollgate::{Algorithm, WhenFull};

/// The library's names; clap wants them to live as long as the program.
static ALGORITHMS: LazyLock<[String; Algorithm::ALL.len()]> =
    LazyLock::new(|| Algorithm::ALL.map(|algorithm| algorithm.to_string()));

/// The names of all algorithms.
pub(crate) fn algorithm_names() -> PossibleValuesParser {
    let names = ALGORITHMS.iter().map(|name| match name.parse() {
        Ok(Algorithm::TokenBucket) => PossibleValue::new(name.as_str()).alias("gcra"),
        _ => PossibleValue::new(name.as_str()),
    });
    PossibleValuesParser::new(names)
}

/// What new keys get while the limiter tracks as many as it may.
#[derive(Clone, Copy, ValueEnum)]
pub(crate) enum FullArg {
    /// They are denied
    Deny,
    /// They pass, uncounted
    Allow,
    /// They share one state
    Share,
}

impl From<FullArg> for WhenFull {
    fn from(full: FullArg) -> Self {
        match full {
            FullArg::Deny => Self::Deny,
            FullArg::Allow => Self::Allow,
            FullArg::Share => Self::Share,
        }
    }
}
