//! The arguments about logs, which `tollgate replay` and `tollgate suggest` share.

use std::num::NonZero;
use std::path::PathBuf;
use std::thread::available_parallelism;

use clap::Args;
use clap::builder::PossibleValuesParser;

use crate::failure::Failure;
use crate::printable::{listed, printable};
use crate::replay::input::Input;
use crate::replay::log::formats::Format;
use crate::replay::log::schema::Wanted;
use crate::replay::log::timestamp::TimeUnit;
use crate::replay::settings::LogSettings;

// A doc comment here would replace the description of the subcommand in its help.
#[derive(Args)]
pub(crate) struct LogArgs {
    /// Logs to read one after the other, plain or gzip; '-', or no log at all, is standard input
    #[arg(value_name = "FILE")]
    files: Vec<PathBuf>,

    /// The format of the logs; 'auto' recognizes it by the first lines of each log
    #[arg(long, value_parser = log_formats(), value_name = "FORMAT", default_value = AUTO, help_heading = "Log")]
    log_format: String,

    /// The unit of times that are numbers, in JSON and CSV logs; fractions are exact
    #[arg(long, value_enum, value_name = "UNIT", default_value_t = TimeUnit::Seconds, help_heading = "Log")]
    pub(crate) time_unit: TimeUnit,

    /// How many proxies have added to a list of addresses: with 2, the client is the last but one.
    /// Without this option, a list counts as one text, and limits with names refuse it
    #[arg(
        long,
        value_name = "N",
        value_parser = clap::value_parser!(u8).range(1..=16),
        help_heading = "Log"
    )]
    pub(crate) trust_hops: Option<u8>,

    /// Judge requests in order of time instead of order of arrival, as suggest always does
    #[arg(long, help_heading = "Log")]
    pub(crate) sort: bool,

    /// How many threads parse and judge; the result is the same with any number [default: the
    /// number of processors]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=256), help_heading = "Log")]
    threads: Option<u16>,

    /// Stop at the first line that does not parse
    #[arg(long, help_heading = "Log")]
    strict: bool,
}

/// The value of `--log-format` that detects the format from the first lines of each log.
const AUTO: &str = "auto";

fn log_formats() -> PossibleValuesParser {
    PossibleValuesParser::new(std::iter::once(AUTO).chain(Format::ALL.map(|(_, name)| name)))
}

impl LogArgs {
    /// # Errors
    ///
    /// Returns an error if standard input would be read twice.
    pub(crate) fn settings(&self, wanted: Wanted) -> Result<LogSettings, Failure> {
        let mut inputs: Vec<Input> = self.files.iter().cloned().map(Input::named).collect();
        if inputs.iter().filter(|&input| *input == Input::Stdin).count() > 1 {
            return Err(Failure::refused("standard input ('-') can be read only once"));
        }
        if inputs.is_empty() {
            inputs.push(Input::Stdin);
        }
        let threads = self.threads.map(usize::from);
        Ok(LogSettings {
            inputs,
            wanted,
            format: Format::ALL.iter().find(|(_, name)| *name == self.log_format).map(|(format, _)| *format),
            strict: self.strict,
            threads: threads.unwrap_or_else(|| available_parallelism().map_or(1, NonZero::get)),
        })
    }
}

/// Parses the pairs in `--fields`. Each pair consists of our name for a field and the log's name.
/// Our name must be one of the `known` fields, which this replay uses.
pub(crate) fn parse_names<'n, K: Iterator<Item = &'n str>>(
    text: &str,
    is_known: impl Fn(&str) -> bool,
    known: impl Fn() -> K,
) -> Result<Vec<(String, String)>, Failure> {
    let refused = |pair: &str, why: &str| {
        let [text, pair] = [text, pair].map(|text| printable(text.as_bytes()));
        Failure::refused(format!("--fields '{text}': '{pair}' {why}"))
    };
    let pair = |pair| match str::split_once(pair, '=') {
        Some((ours, theirs)) if !ours.trim().is_empty() && !theirs.trim().is_empty() => {
            Ok((ours.trim().to_owned(), theirs.trim().to_owned()))
        }
        _ => Err(refused(pair, "is not a pair of names; expected pairs such as time=ts,ip=remote_addr")),
    };
    let pairs: Vec<(String, String)> =
        text.split(',').filter(|_| !text.is_empty()).map(pair).collect::<Result<_, _>>()?;
    if let Some(field) = first_repeated(pairs.iter().map(|(ours, _)| ours)) {
        let field = printable(field.as_bytes());
        return Err(Failure::refused(format!("--fields names '{field}' twice; allowed: each field once")));
    }
    match pairs.iter().find(|(ours, _)| !is_known(ours)) {
        Some((ours, _)) => {
            let known = listed(known().map(str::as_bytes));
            Err(refused(ours, &format!("is not a field of this replay; expected before '=': {known}")))
        }
        None => Ok(pairs),
    }
}

/// Returns the first name that occurs again.
pub(super) fn first_repeated<'n>(mut names: impl Iterator<Item = &'n String> + Clone) -> Option<&'n String> {
    while let Some(name) = names.next() {
        if names.clone().any(|other| other == name) {
            return Some(name);
        }
    }
    None
}
