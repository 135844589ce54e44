//! The arguments of `tollgate replay`.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::{Args, ValueEnum};
use tollgate::Algorithm;
use tollgate_http::program::PathTemplates;

use super::input::Input;
use super::limiter::LimiterSettings;
use super::log::schema::{Cost, Format, Wanted};
use super::log::timestamp::TimeUnit;
use super::settings::Settings;
use crate::arg_values::{WhenFullArg, algorithm_names};
use crate::failure::Failure;
use crate::limit::parse_limit;
use crate::printable::{listed, printable};

/// The description of the subcommand in its help.
pub(crate) const ABOUT: &str = "\
Replays access logs through a rate limiter, in the log's own time, and reports what the limit would
have done: how many requests pass and are denied, whose and when, and how long clients would have
had to wait.

Logs are seldom in order of time. By default requests are taken as they arrive, and time never runs
backwards for a key: each is judged at its own stamp or at the latest one seen for its key,
whichever is later. The report says how many requests that shifts and how far, and warns where it
makes the figures doubtful: shifts that are long for the limit, a log that begins before the one in
front of it ends, a stamp more than a day ahead of all before it that later lines do not bear out
(it holds its key at that time until the others catch up). --sort goes by time.

NUL bytes that a truncation or a crash has left in a log are skipped, and the report says so.";

/// The end of the help: what does not fit beside an option.
pub(crate) const EXAMPLES: &str = "\
Examples:
  tollgate replay access.log --limit '100/min burst 20'
  zcat -f access.log* | tollgate replay --sort --limit 5/s --key ip+path
  tollgate replay access.log --limit 30/min --key ip+path --path-template '/users/{id}'
  tollgate replay access.log.2.gz access.log --limit '1000/h' --compare
  tollgate replay access.log --limit '10000000/h' --cost bytes --key user
  tollgate replay events.jsonl --limit 10/s --fields time=ts,ip=remote_addr
  tollgate replay access.log --limit 30/min --decisions - | head
  tollgate replay access.log --limit 30/min --quotas customers.csv

Fields of Common Log Format: ip, ident, user, method, path (without the query, in the form in which
tollgate proxy counts it: //login and /%6cogin are /login), uri (as it was sent), protocol, status,
bytes; Combined has referer and user-agent too. Of a request that is not
'METHOD URI PROTOCOL', method, path, uri and protocol are '-'. JSON lines and CSV have the fields
they name themselves; the time is 'time' and the bytes are 'bytes' unless --fields says otherwise.
A CSV record is one line. In JSON, request.remote_ip is the field remote_ip of the object request;
the log begins with the first record that has all fields asked for.

The field ip is an address, and counts as tollgate proxy counts it: ::ffff:192.0.2.1 is 192.0.2.1,
an IPv6 address counts by its network (--ipv6-prefix) and is shown as 2001:db8::/64, and a port,
brackets and a zone do not count. JSON and CSV logs have it under another name if --fields says so,
as in ip=remote_addr. A host name, or a list of addresses, counts as it is.

Requests without a value of the key's field ('-', null, or a missing field) are limited too. They
share the key '-', and the report counts them.

A line of --quotas is a CSV record: a value for each field of the key, as the log has it, then the
limit: 192.0.2.1,1000/h burst 50 or, with --key ip+path, 192.0.2.1,/login,5/min. An IPv6 address
means its network of --ipv6-prefix bits: 2001:db8::17,1000/h is one quota for all addresses in
2001:db8::/64 together. '-' is a value like any other. A value in double quotes may have commas, and
'#' at the beginning of a line; other lines that begin with '#' are skipped, and blank ones. A key
has one quota at most. With --compare windows run without these bursts, too.

The limiter forgets keys at the times of the log, as it would have done while the log was written: a
new key is refused (--when-full) only while --max-keys other keys are not idle. Lines that step back in
time change nothing in that. Memory grows with the number of distinct keys, not with the log, unless
--sort is given.

Exit code: 0, or 2 for anything refused: arguments, a file that cannot be read, a log of which no
line parses, with --strict any line that does not parse.";

#[derive(Args)]
pub(crate) struct ReplayArgs {
    /// Logs to read one after the other, plain or gzip; without any, or for '-', standard input
    #[arg(value_name = "FILE")]
    files: Vec<PathBuf>,

    /// The quota of each key: '100/s', '5/10s', '1000/h burst 50'
    #[arg(short, long, value_name = "QUOTA", help_heading = "Limit")]
    limit: String,

    /// The quotas of single keys, in place of the limit: lines of CSV such as '192.0.2.1,1000/h
    /// burst 50', see below; an IPv6 address means its network; '-' is standard input
    #[arg(long, value_name = "FILE", help_heading = "Limit")]
    quotas: Option<PathBuf>,

    /// The algorithm that enforces the limit
    #[arg(
        short,
        long,
        value_name = "NAME",
        default_value = "token-bucket",
        value_parser = algorithm_names(),
        help_heading = "Limit"
    )]
    algorithm: String,

    /// Run all algorithms side by side (windows and logs have no burst: they run without it)
    #[arg(long, conflicts_with_all = ["algorithm", "decisions"], help_heading = "Limit")]
    compare: bool,

    /// What is limited: a field, or several joined with '+', as in ip+path
    #[arg(short, long, value_name = "FIELDS", default_value = "ip", help_heading = "Limit")]
    key: String,

    /// A template of paths, such as /users/{id}, once for each: the field path counts all paths of
    /// a template as one, and as one more all that match none
    #[arg(long, value_name = "TEMPLATE", help_heading = "Limit")]
    path_template: Vec<String>,

    /// How many bits of an IPv6 address identify a client: the field ip counts by them
    #[arg(
        long,
        value_name = "BITS",
        default_value_t = 64,
        value_parser = clap::value_parser!(u8).range(1..=128),
        help_heading = "Limit"
    )]
    ipv6_prefix: u8,

    /// What a request costs: 1, or the bytes of its response ('-' is 0)
    #[arg(long, value_enum, default_value_t = CostArg::One, help_heading = "Limit")]
    cost: CostArg,

    /// The most keys the limiter may track at a time. A key that has been idle for a second in the
    /// log's time gives its place to a new key
    #[arg(long, value_name = "N", default_value_t = 1_000_000, help_heading = "Limit")]
    max_keys: usize,

    /// The policy for new keys while the limiter tracks its maximum
    #[arg(long, value_enum, value_name = "POLICY", default_value_t = WhenFullArg::Deny, help_heading = "Limit")]
    when_full: WhenFullArg,

    /// Keep the keys themselves instead of 64-bit fingerprints: slower and larger, but two keys
    /// never share a state
    #[arg(long, help_heading = "Limit")]
    exact_keys: bool,

    /// The format of the logs; 'auto' goes by the first line of each
    #[arg(long, value_enum, value_name = "FORMAT", default_value_t = LogFormat::Auto, help_heading = "Log")]
    log_format: LogFormat,

    /// What JSON and CSV logs call our fields, as in time=ts,ip=remote_addr,bytes=size
    #[arg(long, value_name = "OURS=THEIRS,..", help_heading = "Log")]
    fields: Option<String>,

    /// The unit of times that are numbers, in JSON and CSV logs; fractions are exact
    #[arg(long, value_enum, value_name = "UNIT", default_value_t = UnitArg::Seconds, help_heading = "Log")]
    time_unit: UnitArg,

    /// Judge by time instead of order of arrival (needs memory for the log: about 60 bytes per
    /// request)
    #[arg(long, help_heading = "Log")]
    sort: bool,

    /// Stop at the first line that does not parse
    #[arg(long, help_heading = "Log")]
    strict: bool,

    /// How to write the report
    #[arg(long, value_enum, default_value_t = Output::Text, help_heading = "Output")]
    pub(crate) format: Output,

    /// Write every decision as CSV: line,key,allowed,remaining,retry_after_ns; '-' writes it to
    /// standard output in place of the report. With several logs, a column 'file' comes first. The
    /// file appears, or replaces an earlier one, only when the replay has succeeded
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    decisions: Option<PathBuf>,

    /// How many of the most denied keys to show
    #[arg(long, value_name = "N", default_value_t = 10, help_heading = "Output")]
    top: usize,
}

#[derive(Clone, Copy, ValueEnum)]
enum CostArg {
    #[value(name = "1")]
    One,
    Bytes,
}

#[derive(Clone, Copy, ValueEnum)]
enum LogFormat {
    Auto,
    Common,
    Combined,
    Json,
    Csv,
}

#[derive(Clone, Copy, ValueEnum)]
enum UnitArg {
    #[value(name = "s")]
    Seconds,
    #[value(name = "ms")]
    Millis,
    #[value(name = "us")]
    Micros,
    #[value(name = "ns")]
    Nanos,
}

/// The format of the report.
#[derive(Clone, Copy, ValueEnum)]
pub(crate) enum Output {
    Text,
    Json,
}

impl ReplayArgs {
    /// # Errors
    ///
    /// An invalid limit, algorithm, key or mapping of names.
    pub(crate) fn settings(self) -> Result<Settings, Failure> {
        if self.decisions.as_deref() == Some(Path::new("-")) && matches!(self.format, Output::Json) {
            return Err(Failure::refused(
                "--decisions - writes decisions in place of the report, so --format json has nothing \
                 to write; give --decisions a file, or leave --format out",
            ));
        }
        let quota = parse_limit(&self.limit, "--limit")?;
        let key = parse_key(&self.key)?;
        let has_path = key.iter().any(|field| field == "path");
        if let (Some(template), false) = (self.path_template.first(), has_path) {
            return Err(Failure::refused(format!(
                "--path-template `{}` would not be used: expected path among the fields of --key, as in ip+path",
                printable(template.as_bytes())
            )));
        }
        let templates = (!self.path_template.is_empty()).then(|| PathTemplates::new(&self.path_template));
        let templates = templates
            .transpose()
            .map_err(|error| Failure::refused(format!("--path-template: {error}")))?
            .map(Arc::new);
        let algorithm: Algorithm =
            self.algorithm.parse().map_err(|error| Failure::refused(format!("{error}")))?;
        let inputs = inputs(&self.files)?;
        let key_quotas = self.quotas.map(Input::named);
        if key_quotas == Some(Input::Stdin) && inputs.contains(&Input::Stdin) {
            return Err(Failure::refused(
                "--quotas - reads standard input, and so does the log, but it can be read only once; name a \
                 file for one of them",
            ));
        }
        Ok(Settings {
            inputs,
            quota,
            key_quotas,
            algorithm: (!self.compare).then_some(algorithm),
            wanted: Wanted {
                names: parse_names(self.fields.as_deref().unwrap_or_default(), &key)?,
                key,
                ipv6_prefix: self.ipv6_prefix,
                templates,
                cost: match self.cost {
                    CostArg::One => Cost::One,
                    CostArg::Bytes => Cost::Bytes,
                },
                unit: match self.time_unit {
                    UnitArg::Seconds => TimeUnit::Seconds,
                    UnitArg::Millis => TimeUnit::Millis,
                    UnitArg::Micros => TimeUnit::Micros,
                    UnitArg::Nanos => TimeUnit::Nanos,
                },
            },
            format: match self.log_format {
                LogFormat::Auto => None,
                LogFormat::Common => Some(Format::Common),
                LogFormat::Combined => Some(Format::Combined),
                LogFormat::Json => Some(Format::Json),
                LogFormat::Csv => Some(Format::Csv),
            },
            sort: self.sort,
            strict: self.strict,
            decisions: self.decisions,
            limiter: LimiterSettings {
                max_keys: self.max_keys,
                when_full: self.when_full.into(),
                exact_keys: self.exact_keys,
            },
            top: self.top,
        })
    }
}

fn inputs(files: &[PathBuf]) -> Result<Vec<Input>, Failure> {
    if files.is_empty() {
        return Ok(vec![Input::Stdin]);
    }
    let inputs: Vec<Input> = files.iter().cloned().map(Input::named).collect();
    if inputs.iter().filter(|&input| *input == Input::Stdin).count() > 1 {
        return Err(Failure::refused("standard input ('-') can be read only once"));
    }
    Ok(inputs)
}

fn parse_key(text: &str) -> Result<Vec<String>, Failure> {
    let fields: Vec<String> = text.split('+').map(|field| field.trim().to_owned()).collect();
    if fields.iter().any(String::is_empty) {
        return Err(Failure::refused(format!(
            "invalid --key `{}`, which has an empty field: expected a field, or several joined with \
             '+', as in ip+path",
            printable(text.as_bytes())
        )));
    }
    if let Some(field) = first_repeated(fields.iter()) {
        let field = printable(field.as_bytes());
        return Err(Failure::refused(format!("--key names '{field}' twice; allowed: each field once")));
    }
    Ok(fields)
}

/// Parses the pairs of `--fields`: our names, restricted to the fields that this replay uses, and
/// the log's.
fn parse_names(text: &str, key: &[String]) -> Result<Vec<(String, String)>, Failure> {
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
    let known = || ["time", "bytes"].into_iter().chain(key.iter().map(String::as_str));
    match pairs.iter().find(|(ours, _)| !known().any(|known| known == ours)) {
        Some((ours, _)) => {
            let known = listed(known().map(str::as_bytes));
            Err(refused(ours, &format!("is not a field of this replay; expected before '=': {known}")))
        }
        None => Ok(pairs),
    }
}

fn first_repeated<'n>(mut names: impl Iterator<Item = &'n String> + Clone) -> Option<&'n String> {
    while let Some(name) = names.next() {
        if names.clone().any(|other| other == name) {
            return Some(name);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_split_at_plus_signs() {
        assert_eq!(parse_key("ip+path").ok(), Some(vec!["ip".into(), "path".into()]));
        for text in ["", "+", "ip+", "ip++path", "ip+ip", "ip+path+ ip"] {
            assert!(parse_key(text).is_err(), "{text}");
        }
    }

    #[test]
    fn names_are_mapped_in_pairs() {
        let key = ["ip".to_owned()];
        let pairs = vec![("time".to_owned(), "ts".to_owned()), ("ip".into(), "a=b".into())];
        assert_eq!(parse_names("time=ts, ip=a=b", &key).ok(), Some(pairs));
        assert_eq!(parse_names("", &key).ok(), Some(Vec::new()));
        for text in ["time", "time=", "=ts", "time=ts,", ",", "user=u", "ip=a,time=b,ip=c"] {
            assert!(parse_names(text, &key).is_err(), "{text}");
        }
    }
}
