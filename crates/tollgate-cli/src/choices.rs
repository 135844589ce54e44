//! Choices that both subcommands offer under the same names.

use std::sync::LazyLock;

use clap::ValueEnum;
use clap::builder::PossibleValuesParser;
use tollgate::{Algorithm, Full};

/// The library's names; clap wants them to live as long as the program.
static ALGORITHMS: LazyLock<[String; Algorithm::ALL.len()]> =
    LazyLock::new(|| Algorithm::ALL.map(|algorithm| algorithm.to_string()));

/// The names of all algorithms.
pub(crate) fn algorithm_names() -> PossibleValuesParser {
    PossibleValuesParser::new(ALGORITHMS.iter().map(String::as_str))
}

/// What new keys get while the limiter tracks as many as it may.
#[derive(Clone, Copy, ValueEnum)]
pub(crate) enum FullArg {
    /// They are denied
    Deny,
    /// They pass, uncounted
    Admit,
    /// They share one state
    Share,
}

impl From<FullArg> for Full {
    fn from(full: FullArg) -> Self {
        match full {
            FullArg::Deny => Self::Deny,
            FullArg::Admit => Self::Admit,
            FullArg::Share => Self::Share,
        }
    }
}
