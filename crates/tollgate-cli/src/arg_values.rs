//! Argument values that several subcommands share.

use std::sync::LazyLock;

use clap::ValueEnum;
use clap::builder::{PossibleValue, PossibleValuesParser};
use tollgate::{Algorithm, WhenFull};

/// The algorithm names. They are stored in a static because clap requires `'static` names.
static ALGORITHMS: LazyLock<[String; Algorithm::ALL.len()]> =
    LazyLock::new(|| Algorithm::ALL.map(|algorithm| algorithm.to_string()));

/// Returns a parser that accepts the name of any algorithm.
pub(crate) fn algorithm_names() -> PossibleValuesParser {
    let names = ALGORITHMS.iter().map(|name| match name.parse() {
        Ok(Algorithm::TokenBucket) => PossibleValue::new(name.as_str()).alias("gcra"),
        _ => PossibleValue::new(name.as_str()),
    });
    PossibleValuesParser::new(names)
}

/// The policy for new keys when the limiter already tracks the maximum number of keys.
#[derive(Clone, Copy, ValueEnum)]
pub(crate) enum WhenFullArg {
    /// New keys are denied
    Deny,
    /// New keys pass, uncounted
    Allow,
    /// New keys share one state
    Share,
}

impl From<WhenFullArg> for WhenFull {
    fn from(full: WhenFullArg) -> Self {
        match full {
            WhenFullArg::Deny => Self::Deny,
            WhenFullArg::Allow => Self::Allow,
            WhenFullArg::Share => Self::Share,
        }
    }
}
