//! The arguments of the `tollgate` program: its subcommands.

use clap::{Parser, Subcommand};

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
    Replay(ReplayArgs),
    /// Puts limits in front of a server: a small reverse proxy
    #[command(
        long_about = proxy::ABOUT,
        after_long_help = proxy::EXAMPLES,
        after_help = "See --help for how limits are written, who is believed, and examples."
    )]
    Proxy(Box<ProxyArgs>),
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_arguments_are_consistent() {
        Cli::command().debug_assert();
    }
}
