//! The arguments of `tollgate suggest`.

use std::path::{Path, PathBuf};

use clap::Args;
use tollgate::Algorithm;

use super::settings::{Amount, BURSTS, Share, SuggestSettings};
use crate::failure::Failure;
use crate::printable::printable;
use crate::replay::args::key::KeyArgs;
use crate::replay::args::log::LogArgs;
use crate::replay::args::{Output, algorithms};
use crate::replay::log::schema::Cost;

/// The description of the subcommand in its help.
pub(crate) const ABOUT: &str = "\
Suggests a limit for recorded traffic: for each algorithm, and for a burst of 1, 2, 5, 10 and 60
seconds of the rate, the smallest rate that denies no more than you allow, with the results of its
replay. The report also shows which clients stand out, and which of them look like bots and retry
storms.

A quota such as 50/10s is a rate of 50 in 10 seconds, and a client may send 50 at once: ten seconds
of the rate. Every whole number is tried in place of the 50, and no smaller one denies as little.";

/// The end of the help text, which covers everything that does not fit beside an option.
pub(crate) const EXAMPLES: &str = "\
Examples:
  tollgate suggest access.log
  tollgate suggest access.log.1.gz access.log --deny-requests 0.1%
  tollgate suggest access.log --deny-clients 3 --burst 60 --config-out proxy.toml
  tollgate suggest access.log --key ip+path --path-template '/users/{id}'
  tollgate suggest events.jsonl --fields time=ts,ip=remote_addr --format json

The report has the smallest rate for each algorithm and each burst, and suggests the rate of
--algorithm and --burst: name the algorithm that you will run. The higher the burst, the lower the
rate, and the more requests may arrive at once: 'peak/s' is the most requests in one second that
the limit lets through, of all clients and of one.

A client is a value of --key. An outlier is a client whose busiest minute is far above the upper
quartile of all clients. By its pattern, a client repeats what failed (at least half of its
requests ask for the path of the request before them in the log, which got status 4xx or 5xx at
most 10 s before), is steady (at least four of five of its requests follow the request before them
after the same time, of 2 s or more, within 1 s or a quarter of it), or comes in bursts (at least
half of the requests of its busiest minute are in two seconds). A pattern needs 20 requests or more;
the first pattern needs the fields path and status.

Memory grows with the log, by 8 to 16 bytes for each request. Exit code: 0, or 2 if anything is
refused.";

#[derive(Args)]
pub(crate) struct SuggestArgs {
    #[command(flatten)]
    log: LogArgs,

    /// The most requests that the limit may deny: a share such as 0.5%, or a number [default: 1%]
    #[arg(long, value_name = "SHARE", conflicts_with = "deny_clients", help_heading = "Limit")]
    deny_requests: Option<String>,

    /// The most clients of which the limit may deny any request: a share such as 2%, or a number
    #[arg(long, value_name = "SHARE", help_heading = "Limit")]
    deny_clients: Option<String>,

    /// The burst of the suggested limit: what its rate refills in 1, 2, 5, 10 or 60 seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 10, help_heading = "Limit")]
    burst: u64,

    /// The only algorithm to try, and to suggest a limit for [default: tries all, suggests one for
    /// token-bucket]
    #[arg(short, long, value_name = "NAME", value_parser = algorithms(), help_heading = "Limit")]
    algorithm: Option<Algorithm>,

    #[command(flatten)]
    key: KeyArgs,

    /// The names of fields in JSON and CSV logs, as in time=ts,ip=remote_addr,status=code
    #[arg(long, value_name = "OURS=THEIRS,..", help_heading = "Log")]
    fields: Option<String>,

    /// How to write the report
    #[arg(long, value_enum, default_value_t = Output::Text, help_heading = "Output")]
    pub(crate) format: Output,

    /// Write the suggested limit as a file for tollgate proxy --config and tollgate replay
    /// --config; '-' writes it to standard output instead of the report
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    config_out: Option<PathBuf>,

    /// How many of the clients that stand out to show
    #[arg(long, value_name = "N", default_value_t = 10, help_heading = "Output")]
    top: usize,
}

impl SuggestArgs {
    /// # Errors
    ///
    /// Returns an error if a share, a burst, a key or a mapping of names is invalid, or if there is
    /// no place for the report in JSON.
    pub(crate) fn settings(self) -> Result<SuggestSettings, Failure> {
        if self.config_out.as_deref() == Some(Path::new("-")) && matches!(self.format, Output::Json) {
            return Err(Failure::refused(
                "--config-out - writes the file in place of the report, so --format json has nothing to \
                 write; give --config-out a file, or leave --format out",
            ));
        }
        let allowed = match (&self.deny_requests, &self.deny_clients) {
            (_, Some(text)) => Share { of_clients: true, amount: parse_amount(text, "--deny-clients")? },
            (text, None) => {
                let text = text.as_deref().unwrap_or("1%");
                Share { of_clients: false, amount: parse_amount(text, "--deny-requests")? }
            }
        };
        if !BURSTS.contains(&self.burst) {
            return Err(Failure::refused(format!(
                "invalid --burst {}: expected one of the bursts that are tried, 1, 2, 5, 10 or 60 seconds of the rate",
                self.burst
            )));
        }
        Ok(SuggestSettings {
            log: self.key.log_settings(
                &self.log,
                self.fields.as_deref(),
                &["time", "path", "status"],
                self.key.fields()?,
                (Cost::One, false),
            )?,
            path_templates: self.key.path_template,
            algorithm: self.algorithm,
            allowed,
            burst: self.burst,
            config_out: self.config_out,
            top: self.top,
        })
    }
}

/// Parses `0.5%` and `20`.
fn parse_amount(text: &str, option: &str) -> Result<Amount, Failure> {
    let invalid = || {
        Failure::refused(format!(
            "invalid {option} `{}`: expected a part from 0% to 100% with at most six decimals, such as 0.5%, or a whole \
             number, such as 20",
            printable(text.as_bytes())
        ))
    };
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let Some(part) = text.strip_suffix('%') else {
        return text.parse().ok().filter(|_| digits(text)).map(Amount::Count).ok_or_else(invalid);
    };
    let (whole, decimals) = part.split_once('.').unwrap_or((part, "0"));
    if !digits(whole) || !digits(decimals) || decimals.len() > 6 || whole.len() > 3 {
        return Err(invalid());
    }
    let millionths = format!("{whole}{decimals:0<6}").parse().map_err(|_| invalid())?;
    if millionths > Amount::ALL { Err(invalid()) } else { Ok(Amount::Part(millionths)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_are_parts_or_numbers() {
        for (text, amount) in [
            ("0", Amount::Count(0)),
            ("20", Amount::Count(20)),
            ("0%", Amount::Part(0)),
            ("0.5%", Amount::Part(500_000)),
            ("1%", Amount::Part(1_000_000)),
            ("12.345678%", Amount::Part(12_345_678)),
            ("100%", Amount::Part(Amount::ALL)),
        ] {
            assert_eq!(parse_amount(text, "--x").ok(), Some(amount), "{text}");
        }
        for text in
            ["", "%", "-1", "+1", "1.5", "1.%", ".5%", "100.1%", "1e3%", "0.1234567%", "99999999%", "x"]
        {
            assert!(parse_amount(text, "--x").is_err(), "{text}");
        }
    }
}
