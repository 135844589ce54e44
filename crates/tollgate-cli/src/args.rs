//! The arguments of the `tollgate` program: its subcommands.

use std::ffi::OsString;

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
        return Ok((Cli::parse_from(args).command, None));
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
        Err(error) => Err(file.located(Failure::refused(first_paragraph(&error)))),
    }
}

/// Returns what clap refuses, without the usage below it.
fn first_paragraph(error: &clap::Error) -> String {
    let text = error.to_string();
    let text = text.strip_prefix("error: ").unwrap_or(&text);
    let lines: Vec<&str> = text.lines().map(str::trim).take_while(|line| !line.is_empty()).collect();
    lines.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_arguments_are_consistent() {
        Cli::command().debug_assert();
    }
}
