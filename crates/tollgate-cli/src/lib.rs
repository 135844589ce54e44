//! The `tollgate` program. `tollgate replay` runs access logs through a rate limit and reports what
//! the limit would have done. `tollgate suggest` proposes a limit based on access logs.
//! `tollgate proxy` enforces limits in front of a server; it requires the feature `proxy`.
//!
//! The package is a library so that fuzz targets, benches and tests can link to parts of the
//! program. Its API is not stable. Other programs should use [`tollgate`], [`tollgate_http`] or
//! [`tollgate_redis`](https://docs.rs/tollgate-redis). The module [`tollgate_http::settings`]
//! parses limits.

// Public for the fuzz targets, benches and tests of this repository.
#![allow(missing_docs, rustdoc::private_intra_doc_links)]

mod arg_values;
mod args;
#[cfg(feature = "proxy")]
mod bounded_file;
pub mod failure;
mod layer_error;
pub mod limit;
mod printable;
#[cfg(feature = "proxy")]
pub mod proxy;
pub mod replay;

use std::ffi::OsString;
use std::io::{self, BufWriter, Write};
use std::path::Path;
use std::process::ExitCode;

use args::Command;
use failure::Failure;
use replay::args::{Output, ReplayArgs};
use replay::suggest::args::SuggestArgs;
use replay::{report, suggest};
use serde::Serialize;

/// The exit code for refused settings. clap uses the same exit code for refused arguments.
const REFUSED: u8 = 2;

/// Runs the command that the arguments of the process specify.
pub fn run() -> ExitCode {
    let args: Vec<OsString> = std::env::args_os().collect();
    let done = args::parse(&args).and_then(|command| match command {
        Command::Replay(args) => run_replay(*args),
        Command::Suggest(args) => run_suggest(*args),
        #[cfg(feature = "proxy")]
        Command::Proxy(proxy) => {
            let is_check = proxy.is_check();
            let settings = proxy.settings()?;
            if is_check {
                return proxy::check(&settings);
            }
            proxy::run(settings, Box::new(move || proxy_settings(&args)))
        }
    });
    match done {
        Ok(()) | Err(Failure::ReaderLeft) => ExitCode::SUCCESS,
        Err(failure @ Failure::Refused(_)) => {
            // If standard error is closed, only the exit code can report the failure.
            let _ = writeln!(io::stderr(), "tollgate: {failure}");
            ExitCode::from(REFUSED)
        }
        Err(Failure::Logged) => ExitCode::from(REFUSED),
    }
}

/// Rereads the proxy's settings from the same arguments and from the file that the arguments name.
#[cfg(feature = "proxy")]
fn proxy_settings(args: &[OsString]) -> Result<proxy::settings::ProxySettings, Failure> {
    match args::parse(args)? {
        Command::Proxy(proxy) => proxy.settings(),
        Command::Replay(_) | Command::Suggest(_) => {
            Err(Failure::refused("the arguments are not those of a proxy"))
        }
    }
}

fn run_replay(args: ReplayArgs) -> Result<(), Failure> {
    let output = args.format;
    let settings = args.settings()?;
    let report = replay::replay(&settings)?;
    write_report(settings.decisions.as_deref(), output, &report, |out| report::write_text(&report, out))
}

fn run_suggest(args: SuggestArgs) -> Result<(), Failure> {
    let output = args.format;
    let settings = args.settings()?;
    let report = suggest::suggest(&settings)?;
    write_report(settings.config_out.as_deref(), output, &report, |out| {
        suggest::report::write_text(&report, out)
    })
}

/// Writes a report to standard output, unless `file` is standard output.
fn write_report(
    file: Option<&Path>,
    output: Output,
    report: &impl Serialize,
    text: impl FnOnce(&mut BufWriter<io::StdoutLock<'_>>) -> io::Result<()>,
) -> Result<(), Failure> {
    if file == Some(Path::new("-")) {
        return Ok(());
    }
    let mut out = BufWriter::new(io::stdout().lock());
    let written = match output {
        Output::Text => text(&mut out),
        Output::Json => serde_json::to_writer_pretty(&mut out, report)
            .map_err(io::Error::from)
            .and_then(|()| writeln!(out)),
    };
    written.and_then(|()| out.flush()).map_err(|error| Failure::writing_stdout(&error))
}
