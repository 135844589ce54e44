//! The arguments of the `tollgate` program: its subcommands.

use std::ffi::OsString;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{CommandFactory, Parser, Subcommand};

use crate::failure::Failure;
use crate::proxy::args::config::{self, ConfigFile};
use crate::proxy::args::{self as proxy, ProxyArgs};
use crate::replay::args::{self as replay, ReplayArgs};

/// Try rate limits on recorded traffic, and put them in front of a server.
#[derive(Parser)]
#[command(name = "tollgate", version, arg_required_else_help = true)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Subcommand)]
pub(crate) enum Command {
    /// What would this limit have done to yesterday's traffic?
    #[command(
        long_about = replay::ABOUT,
        after_long_help = replay::EXAMPLES,
        after_help = "See --help for the fields, the order of time, and examples."
    )]
    Replay(Box<ReplayArgs>),
    /// Puts limits in front of a server: a small reverse proxy
    #[command(
        long_about = proxy::ABOUT,
        after_long_help = proxy::EXAMPLES,
        after_help = "See --help for how limits are written, who is believed, and examples."
    )]
    Proxy(Box<ProxyArgs>),
}

/// Parses the arguments of the program, with those that are in the file of `--config`; also returns
/// that file. Arguments that clap refuses end the process with its message, as `--help` does.
///
/// # Errors
///
/// A file that cannot be read, and arguments that are refused if some of them are the file's.
pub(crate) fn parse(args: &[OsString]) -> Result<(Command, Option<ConfigFile>), Failure> {
    // What is required may be in the file, so the first look ignores errors.
    let given = Cli::command().ignore_errors(true).try_get_matches_from(args).ok();
    let given = given.as_ref().and_then(|given| given.subcommand_matches("proxy"));
    let Some((given, path)) = given.and_then(|given| Some((given, config::path(given)?))) else {
        let cli = Cli::try_parse_from(args).unwrap_or_else(|error| with_tip(error).exit());
        return Ok((cli.command, None));
    };
    let command = Cli::command();
    let options = command.find_subcommand("proxy").unwrap_or(&command);
    let file = ConfigFile::read(&path, options, given)?;
    // The subcommand is the first argument: there are no options before it that take a value.
    let (program, given) = args.split_at(2.min(args.len()));
    let all = program.iter().cloned().chain(file.arguments()).chain(given.iter().cloned());
    match Cli::try_parse_from(all) {
        Ok(cli) => Ok((cli.command, Some(file))),
        Err(error) if !error.use_stderr() => error.exit(),
        Err(error) => Err(file.located(Failure::refused(refusal(&with_tip(error))))),
    }
}

/// Adds a tip for a word that is no argument: the rest of a value whose quotes are missing.
fn with_tip(mut error: clap::Error) -> clap::Error {
    let is_word =
        |argument: &ContextValue| matches!(argument, ContextValue::String(it) if !it.starts_with('-'));
    if error.kind() == ErrorKind::UnknownArgument && error.get(ContextKind::InvalidArg).is_some_and(is_word) {
        let tip = "a value with spaces needs quotes, as in --limit 'per-ip=100/s by ip'";
        error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![tip.into()]));
    }
    error
}

/// Returns what clap refuses and its tip in one line, without the usage below it.
fn refusal(error: &clap::Error) -> String {
    let text = error.to_string();
    let text = text.strip_prefix("error: ").unwrap_or(&text);
    let text = text.split("\n\nUsage:").next().unwrap_or(text);
    let text = text.split("\n\nFor more information").next().unwrap_or(text);
    let paragraphs = text.split("\n\n").map(|paragraph| {
        paragraph.lines().map(str::trim).filter(|line| !line.is_empty()).collect::<Vec<_>>().join(" ")
    });
    paragraphs.filter(|paragraph| !paragraph.is_empty()).collect::<Vec<_>>().join("; ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_arguments_are_consistent() {
        Cli::command().debug_assert();
    }
}
