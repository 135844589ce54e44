//! The arguments of the `tollgate` program: its subcommands.

use std::ffi::OsString;
#[cfg(feature = "proxy")]
use std::path::Path;

use clap::error::{ContextKind, ContextValue, ErrorKind};
#[cfg(feature = "proxy")]
use clap::{CommandFactory, FromArgMatches};
use clap::{Parser, Subcommand};
#[cfg(feature = "proxy")]
use tollgate_http::settings::LayerSettings;

use crate::failure::Failure;
#[cfg(feature = "proxy")]
use crate::printable::printable_path;
#[cfg(feature = "proxy")]
use crate::proxy::args::config::{self, ConfigFile};
#[cfg(feature = "proxy")]
use crate::proxy::args::{self as proxy, ProxyArgs};
use crate::replay::args::{self as replay, ReplayArgs};
#[cfg(feature = "proxy")]
use crate::replay::engine::ReplayLimits;
#[cfg(feature = "proxy")]
use crate::replay::settings::Against;
use crate::replay::suggest::args::{self as suggest, SuggestArgs};

/// The error message of a build without `tollgate proxy`.
const WITHOUT_PROXY: &str = "this build leaves `tollgate proxy` out: build tollgate-cli with its feature `proxy`, \
     which is on by default (without --no-default-features)";

#[cfg_attr(
    feature = "proxy",
    doc = "Try rate limits on recorded traffic, and put them in front of a server."
)]
#[cfg_attr(not(feature = "proxy"), doc = "Try rate limits on recorded traffic.")]
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
    /// What limit should I take for this traffic?
    #[command(
        long_about = suggest::ABOUT,
        after_long_help = suggest::EXAMPLES,
        after_help = "See --help for the patterns of clients, and examples."
    )]
    Suggest(Box<SuggestArgs>),
    /// Puts limits in front of a server: a small reverse proxy
    #[cfg(feature = "proxy")]
    #[command(
        long_about = proxy::ABOUT,
        after_long_help = proxy::EXAMPLES,
        after_help = "See --help for how limits are written, which proxies are trusted, and examples."
    )]
    Proxy(Box<ProxyArgs>),
}

/// Parses the program's arguments, including arguments from the file that `--config` names. If clap
/// refuses an argument, or if the user requests `--help`, the process exits with clap's message.
///
/// # Errors
///
/// Returns a [`Failure`] if the file cannot be read, if an argument in the file is refused, or if
/// this build does not include the subcommand.
pub(crate) fn parse(args: &[OsString]) -> Result<Command, Failure> {
    #[cfg(feature = "proxy")]
    if let Some(command) = parse_with_file(args)? {
        return Ok(command);
    }
    match Cli::try_parse_from(args) {
        #[cfg(feature = "proxy")]
        Ok(Cli { command: Command::Replay(mut replay) }) => {
            if let Some(path) = &replay.against.config {
                let name = printable_path(path);
                let (layer, file) = limits_of_file("--against-config", path)?;
                let limits = ReplayLimits { layer, ..ReplayLimits::default() };
                replay.against.from_file = Some(Against { name, limits, file: Some(file) });
            }
            if let Some(path) = &replay.config {
                replay.from_file = Some(limits_of_file("--config", path)?);
            }
            Ok(Command::Replay(replay))
        }
        Ok(cli) => Ok(cli.command),
        Err(error) if asks_for_proxy(&error) => Err(Failure::refused(WITHOUT_PROXY)),
        Err(error) => with_tip(error).exit(),
    }
}

/// Parses a proxy's arguments together with those in the file that `--config` or `--check` names.
/// Returns `None` if no file is named.
#[cfg(feature = "proxy")]
fn parse_with_file(args: &[OsString]) -> Result<Option<Command>, Failure> {
    // The first pass ignores errors, because the file may contain the required arguments.
    let given = Cli::command().ignore_errors(true).try_get_matches_from(args).ok();
    let given = given.as_ref().and_then(|given| given.subcommand_matches("proxy"));
    let Some((given, (option, path))) = given.and_then(|given| Some((given, config::path(given)?))) else {
        return Ok(None);
    };
    let command = Cli::command();
    let options = command.find_subcommand("proxy").unwrap_or(&command);
    let file = ConfigFile::read(option, &path, options, given)?;
    // The subcommand is the first argument, because no option before it takes a value.
    let (program, given) = args.split_at(2.min(args.len()));
    let all = program.iter().cloned().chain(file.arguments()).chain(given.iter().cloned());
    match Cli::try_parse_from(all) {
        Ok(Cli { command: Command::Proxy(proxy) }) => {
            Ok(Some(Command::Proxy(Box::new(proxy.with_file(file)))))
        }
        Ok(Cli { command }) => Ok(Some(command)),
        Err(error) if !error.use_stderr() => error.exit(),
        Err(error) => Err(file.located(Failure::refused(refusal(&with_tip(error))))),
    }
}

/// Reads a proxy's limits from its configuration file, which `option` names. All other settings in
/// the file must also be valid, but they are ignored.
#[cfg(feature = "proxy")]
fn limits_of_file(option: &str, path: &Path) -> Result<(LayerSettings, ConfigFile), Failure> {
    // The limits must not depend on a store in the environment of the replay.
    let mut command = Cli::command().mut_subcommand("proxy", |proxy| {
        let names = ["redis", "redis_sentinel"];
        names.into_iter().fold(proxy, |proxy, name| proxy.mut_arg(name, |option| option.env(None::<&str>)))
    });
    let nothing = command.clone().ignore_errors(true).get_matches_from(["tollgate", "proxy"]);
    let options = command.find_subcommand("proxy").unwrap_or(&command);
    let nothing = nothing.subcommand_matches("proxy").unwrap_or(&nothing);
    let file = ConfigFile::read(option, path, options, nothing)?;
    // The file may lack required options, because the proxy's command line and environment can also
    // supply them. An option is required by the proxy, or by another setting in the file.
    let [store, of_store @ ..] = tollgate_redis::program::SETTINGS;
    let sets = |options: &[&str]| options.iter().any(|option| file.sets(option));
    let required = [
        ("listen", "127.0.0.1:0", true),
        ("upstream", "http://127.0.0.1:1", true),
        (store, "redis://127.0.0.1", sets(&of_store)),
        ("access-log", "-", sets(&["access-log-format", "log-key"])),
    ];
    let missing = required.iter().filter(|(option, _, is_required)| *is_required && !file.sets(option));
    let missing = missing.map(|(option, value, _)| OsString::from(format!("--{option}={value}")));
    let program = ["tollgate", "proxy"].map(OsString::from).into_iter();
    let given = command.try_get_matches_from_mut(program.chain(missing).chain(file.arguments()));
    match given.and_then(|given| Cli::from_arg_matches(&given)) {
        Ok(Cli { command: Command::Proxy(proxy) }) => match proxy.with_file(file.clone()).layer_settings() {
            Ok(limits) => Ok((limits, file)),
            Err(failure) => Err(file.located(failure)),
        },
        Ok(_) => Err(Failure::refused("the file is not that of a proxy")),
        Err(error) => Err(file.located(Failure::refused(refusal(&with_tip(error))))),
    }
}

/// Returns whether the refused argument is the subcommand `proxy`. Only a build without the proxy
/// refuses that subcommand.
fn asks_for_proxy(error: &clap::Error) -> bool {
    let refused = error.get(ContextKind::InvalidSubcommand);
    refused.is_some_and(|it| matches!(it, ContextValue::String(name) if name == "proxy"))
}

/// Adds a tip about an unexpected word. Such a word is often part of a value that needs quotes.
fn with_tip(mut error: clap::Error) -> clap::Error {
    let is_word =
        |argument: &ContextValue| matches!(argument, ContextValue::String(it) if !it.starts_with('-'));
    if error.kind() == ErrorKind::UnknownArgument && error.get(ContextKind::InvalidArg).is_some_and(is_word) {
        let tip = "a value with spaces needs quotes, as in --limit 'per-ip=100/s by ip'";
        error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![tip.into()]));
    }
    error
}

/// Returns clap's message and tip on one line, without the usage text that follows them.
#[cfg(feature = "proxy")]
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
        <Cli as clap::CommandFactory>::command().debug_assert();
    }
}
