//! The arguments of `tollgate replay`.

mod against;
pub(crate) mod key;
pub(crate) mod log;

use std::path::{Path, PathBuf};

use against::AgainstArgs;
use clap::builder::TypedValueParser;
use clap::{Args, ValueEnum};
use key::KeyArgs;
use log::LogArgs;
use tollgate::Algorithm;
use tollgate_http::program::files;
use tollgate_http::settings::LayerSettings;

use super::columns;
#[cfg(feature = "html")]
use super::decisions::sink::are_same;
use super::engine::ReplayLimits;
use super::input::Input;
use super::log::schema::Cost;
use super::log::timestamp::TimeUnit;
#[cfg(feature = "html")]
use super::settings::HtmlSettings;
use super::settings::{ConfigFile, Settings, by_fields};
use crate::arg_values::{WhenFullArg, algorithm_names};
use crate::failure::Failure;
use crate::limit::{parse_except, parse_limit, parse_named_limit, parse_path_templates};
#[cfg(feature = "html")]
use crate::printable::{printable, shell_word};

/// The description of the subcommand in its help.
pub(crate) const ABOUT: &str = "\
Replays access logs through limits, in the log's own time, and reports what the limits would have
done: how many requests pass and are denied, which clients are denied and when, and how long clients
would have had to wait.

Logs are seldom in order of time. By default, requests are judged in the order of their lines, and
time never runs backwards, as in a proxy: each request is judged at its own timestamp or at the
latest timestamp so far, whichever is later. The report states how many requests are shifted and how
far, and it warns where shifts make the figures doubtful: if shifts are long for the limit, if a log
begins before the log in front of it ends, or if a timestamp is more than a day ahead of all before
it and later lines do not confirm it (until their own timestamps have caught up, all later requests
are judged at that time). --sort judges in order of time.

NUL bytes that a truncation or a crash has left in a log are skipped, and the report says so.";

/// The end of the help text, which covers everything that does not fit beside an option.
pub(crate) const EXAMPLES: &str = "\
Examples:
  tollgate replay access.log --limit '100/min burst 20'
  zcat -f access.log* | tollgate replay --sort --limit 5/s --key ip+path
  tollgate replay access.log --limit 30/min --key ip+path --path-template '/users/{id}'
  tollgate replay access.log.2.gz access.log --limit '1000/h' --compare
  tollgate replay access.log --limit '10000000/h' --cost bytes --key user
  tollgate replay events.jsonl --limit 10/s --fields time=ts,ip=remote_addr
  tollgate replay access.log --limit 10/s --key forwarded --trust-hops 2
  tollgate replay access.log --limit 30/min --decisions - | head
  tollgate replay access.log --limit 30/min --quotas customers.csv
  tollgate replay access.log --limit 60/min --against 30/min --html report.html
  tollgate replay access.log --limit 'per-ip=100/s by ip' --limit 'logins=5/min by ip for POST /login'
  tollgate replay access.jsonl --config proxy.toml
  tollgate replay nginx.json --limit 'api=8 at once by header x-api-key' \
      --fields header:x-api-key=api_key,duration=request_time,path=request_uri

All limits are enforced together: a request passes if all of them admit it. Limits with names
(NAME=QUOTA by KEY, as in tollgate proxy --help) apply as in the proxy, and --config takes them from
the file of a proxy. A log is refused if it lacks a header, a host or a duration that they need. The
JSON log of tollgate proxy has no headers, but the key and the class that each limit found. In a log
without the headers of preflights, each OPTIONS request counts as one. A quota without a name counts
by --key, which may have any fields of the log. docs/replay.md has more about both.

Formats, each recognized by its first lines: Common and Combined Log Format, also with a virtual
host in front, the format main of nginx, the text and JSON logs of Envoy and Traefik, the JSON log
of Caddy, the HTTP log of HAProxy, logs of AWS load balancers, W3C logs (IIS, CloudFront), the JSON
log of tollgate proxy, which is always sorted by time, JSON lines and CSV. Lines that Docker,
Kubernetes or syslog have wrapped are unwrapped. docs/replay.md has more.

Fields have the same names in all formats: ip, user, method, path (without the query, in the form
in which tollgate proxy counts it: //login and /%6cogin are /login), uri (as it was sent),
protocol, status, bytes, and where the log has them referer, user-agent, host, forwarded
(X-Forwarded-For) and duration; other columns have the name that the log gives them. If a request
is not of the form 'METHOD URI PROTOCOL', its method, path, uri and protocol are '-'. Other JSON
lines and CSV have the fields that they name themselves; the time is 'time' and the bytes are
'bytes' unless --fields says otherwise. A CSV record is one line. In JSON, request.remote_ip is the
field remote_ip of the object request; the log begins with the first record that has all the fields
that the replay needs. A line is refused only if it lacks something that the replay needs.

The fields ip and forwarded are addresses, and count as tollgate proxy counts them:
::ffff:192.0.2.1 is 192.0.2.1, an IPv6 address counts by its network (--ipv6-prefix) and is shown
as 2001:db8::/64, and a port, brackets and a zone do not count. If a JSON or CSV log has another
name for ip, --fields maps it, as in ip=remote_addr. A host name counts as it is, and so does a
list of addresses, unless --trust-hops specifies which of them is the client.

Requests without a value of a field of --key ('-', null, or a missing field) are also limited. They
share the key '-', and the report counts them.

A line of --quotas is a CSV record: a value for each field of the key, as the log has it, then the
limit: 192.0.2.1,1000/h burst 50 or, with --key ip+path, 192.0.2.1,/login,5/min. An IPv6 address
means its network of --ipv6-prefix bits: 2001:db8::17,1000/h is one quota for all addresses in
2001:db8::/64 together. '-' is a value like any other. A value in double quotes may contain commas,
and may begin its line with '#'; other lines that begin with '#' are skipped, and so are blank
lines. A key has at most one quota. With --compare, windows run without the bursts of these quotas
as well.

A limiter forgets keys at the times of the log, as it would have done while the log was written: a
new key is refused (--when-full) only while --max-keys other keys are not idle. Memory grows with the
number of distinct keys, and not with the log, unless --sort is given (about 60 bytes for each
request).

Exit code: 0, or 2 if anything is refused: arguments, a file that cannot be read, a log of which no
line parses, or with --strict any line that does not parse.";

#[derive(Args)]
pub(crate) struct ReplayArgs {
    #[command(flatten)]
    log: LogArgs,

    /// A quota of each key: '100/s', '5/10s', '1000/h burst 50'. Or a limit of the proxy:
    /// 'logins=5/min by ip for POST /login', see below. Several limits hold together
    #[cfg_attr(feature = "proxy", arg(required_unless_present = "config"))]
    #[cfg_attr(not(feature = "proxy"), arg(required = true))]
    #[arg(short, long, value_name = "QUOTA", help_heading = "Limit")]
    limit: Vec<String>,

    /// Take the limits from a file of tollgate proxy. Options about limits that are given here
    /// replace the file's settings; the file's other settings are ignored
    #[cfg(feature = "proxy")]
    #[arg(long, value_name = "FILE", help_heading = "Limit")]
    pub(crate) config: Option<PathBuf>,

    /// The limits from the file given by `--config`, and the file.
    #[arg(skip)]
    pub(crate) from_file: Option<(LayerSettings, ConfigFile)>,

    #[command(flatten)]
    pub(crate) against: AgainstArgs,

    /// The name of a limit that decides but refuses nothing
    #[arg(long, value_name = "NAME", help_heading = "Limit")]
    shadow: Vec<String>,

    /// Requests that no limit applies to, such as '/health or from 10.0.0.0/8'
    #[arg(long, value_name = "REQUESTS", help_heading = "Limit")]
    except: Vec<String>,

    /// A file with the quotas of single keys, which replace the quota without a name: lines of CSV
    /// such as '192.0.2.1,1000/h burst 50', see below; an IPv6 address means its network; '-' is
    /// standard input
    #[arg(long, value_name = "FILE", help_heading = "Limit")]
    quotas: Option<PathBuf>,

    /// The algorithm that enforces the limits [default: token-bucket]
    #[arg(short, long, value_name = "NAME", value_parser = algorithms(), help_heading = "Limit")]
    algorithm: Option<Algorithm>,

    /// Run all algorithms side by side (windows and logs have no burst, and run without it)
    #[arg(long, conflicts_with_all = ["algorithm", "decisions"], help_heading = "Limit")]
    compare: bool,

    #[command(flatten)]
    key: KeyArgs,

    /// What a request costs: 1, or the bytes of its response ('-' is 0) [default: 1]
    #[arg(long, value_enum, help_heading = "Limit")]
    cost: Option<Cost>,

    /// The most keys that the limiter may track at a time. A key that has been idle for a second of
    /// the log's time loses its place to a new key [default: 1000000]
    #[arg(long, value_name = "N", help_heading = "Limit")]
    max_keys: Option<usize>,

    /// The policy for new keys while the limiter tracks its maximum [default: deny]
    #[arg(long, value_enum, value_name = "POLICY", help_heading = "Limit")]
    when_full: Option<WhenFullArg>,

    /// Let limiters keep the keys themselves instead of 64-bit fingerprints: slower and larger, but
    /// two keys never share a state
    #[arg(long, help_heading = "Limit")]
    exact_keys: bool,

    /// The names of fields in the log, as in time=ts,ip=remote_addr,bytes=size for JSON and CSV, or
    /// ip=forwarded. For limits with names: time, ip, method, path, uri (with the query), host,
    /// duration, header:NAME
    #[arg(long, value_name = "OURS=THEIRS,..", help_heading = "Log")]
    fields: Option<String>,

    /// The unit of durations, for limits on requests in flight [default: the format's own unit,
    /// otherwise s]
    #[arg(long, value_enum, value_name = "UNIT", help_heading = "Log")]
    duration_unit: Option<TimeUnit>,

    /// How to write the report
    #[arg(long, value_enum, default_value_t = Output::Text, help_heading = "Output")]
    pub(crate) format: Output,

    /// Write every decision as CSV: line,key,allowed,remaining,retry_after_ns,refused_by,outcome;
    /// '-' writes them to standard output instead of the report. With several logs, the first
    /// column is 'file'. The file appears, or replaces an earlier file, only after the replay has
    /// succeeded
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    decisions: Option<PathBuf>,

    /// Write a page of HTML with pictures and tables, and with the results of the other algorithms:
    /// one file that needs no other
    #[cfg(feature = "html")]
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    html: Option<PathBuf>,

    /// Show clients in the page as hashes under a random key that is not kept
    #[cfg(feature = "html")]
    #[arg(long, requires = "html", help_heading = "Output")]
    hash_clients: bool,

    /// How many of the most refused keys of each limit to show
    #[arg(long, value_name = "N", default_value_t = 10, help_heading = "Output")]
    top: usize,
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
    /// Returns an error if a limit, an algorithm, a key or a mapping of names is invalid.
    pub(crate) fn settings(mut self) -> Result<Settings, Failure> {
        if self.decisions.as_deref() == Some(Path::new("-")) && matches!(self.format, Output::Json) {
            return Err(Failure::refused(
                "--decisions - writes decisions in place of the report, so --format json has nothing \
                 to write; give --decisions a file, or leave --format out",
            ));
        }
        #[cfg(feature = "html")]
        if let (Some(html), Some(decisions)) = (&self.html, &self.decisions)
            && decisions != Path::new("-")
            && are_same(html, decisions)
        {
            return Err(Failure::refused("--html and --decisions name the same file: expected two files"));
        }
        let (layer, file) = self.from_file.take().unzip();
        let fields = self.key.fields()?;
        let cost = self.cost.unwrap_or(Cost::One);
        let mut limits = ReplayLimits {
            layer: layer.unwrap_or_default(),
            by_fields: Default::default(),
            fields: fields.len(),
            has_costs: cost != Cost::One,
            exact_keys: self.exact_keys,
        };
        if !self.limit.is_empty() {
            limits.set(&self.limit, "--limit")?;
        }
        let layer = &mut limits.layer;
        if layer.limits.is_empty() {
            return Err(Failure::refused(
                "the file of --config has no limit: expected `limit` there, or --limit 'NAME=QUOTA by KEY' beside it",
            ));
        }
        // The limits of the command line need not include every limit that the file names.
        layer.charge_if.retain(|name, _| layer.limits.iter().any(|limit| limit.name == *name));
        if !self.shadow.is_empty() {
            layer.shadows = self.shadow.clone();
        }
        if !self.except.is_empty() {
            layer.except = parse_except(&self.except)?;
        }
        if !self.key.path_template.is_empty() {
            layer.path_templates = parse_path_templates(&self.key.path_template)?;
        }
        layer.algorithm = self.algorithm.unwrap_or(layer.algorithm);
        layer.max_keys = self.max_keys.unwrap_or(layer.max_keys);
        layer.when_full = self.when_full.map_or(layer.when_full, Into::into);
        layer.ipv6_prefix = self.key.ipv6_prefix.unwrap_or(layer.ipv6_prefix);
        let ipv6_prefix = layer.ipv6_prefix;
        let mut configs: Vec<PathBuf> = Vec::new();
        #[cfg(feature = "proxy")]
        configs.extend([self.config.clone(), self.against.config.clone()].into_iter().flatten());
        let against = self.against.limits(&limits)?;
        let all = || std::iter::once(&limits).chain(against.iter().map(|against| &against.limits));
        configs.extend(all().flat_map(|limits| &limits.layer.limits).flat_map(files).map(PathBuf::from));
        let has_quota = all().any(|limits| !limits.by_fields.is_empty());
        if let Some(option) =
            self.key.key.as_ref().map(|_| "--key").or(self.quotas.as_ref().map(|_| "--quotas"))
            && !has_quota
        {
            return Err(Failure::refused(format!(
                "{option} is for a quota without a name (--limit QUOTA), and every limit here has a name: expected the \
                 key and the classes of a limit in its text, as in 'per-ip=100/s by ip'"
            )));
        }
        if self.quotas.is_some() && all().any(|limits| limits.by_fields.len() > 1) {
            return Err(Failure::refused(
                "--quotas sets the quotas of keys in the place of one quota, and there are several quotas without \
                 names: expected one; give the others names, as in 'per-ip=100/s by ip'",
            ));
        }
        let of_keys = all().flat_map(|limits| &limits.by_fields).filter(|_| self.quotas.is_some());
        for quota in of_keys {
            parse_limit(quota, "--quotas sets the quotas of keys in the place of a quota, and this is none")?;
        }
        // Limits with names read some fields, and limits by fields read the others.
        let mut known = vec!["time"];
        if cost == Cost::Bytes || has_quota {
            known.push("bytes");
        }
        let has_names = !all().all(ReplayLimits::are_by_fields) || self.duration_unit.is_some();
        if has_names
            || all().flat_map(|limits| &limits.layer.limits).any(|limit| limit.name.contains("at once"))
        {
            known.extend(columns::NAMES.into_iter().filter(|name| *name != "time"));
            known.push("header:NAME");
        }
        let key = if has_quota { fields } else { Vec::new() };
        let is_named = all().any(|limits| limits.layer.limits.len() > limits.by_fields.len());
        let mut log =
            self.key.log_settings(&self.log, self.fields.as_deref(), &known, key, (cost, is_named))?;
        log.wanted.ipv6_prefix = ipv6_prefix;
        let key_quotas = self.quotas.map(Input::named);
        if key_quotas == Some(Input::Stdin) && log.inputs.contains(&Input::Stdin) {
            return Err(Failure::refused(
                "--quotas - reads standard input, and so does the log, but it can be read only once; name a \
                 file for one of them",
            ));
        }
        #[cfg(feature = "html")]
        let html = self.html.map(|path| HtmlSettings {
            path,
            are_clients_hashed: self.hash_clients,
            command: command(),
        });
        #[cfg(not(feature = "html"))]
        let html = None;
        Ok(Settings {
            log,
            limits,
            file,
            compare: self.compare,
            against,
            key_quotas,
            configs: configs.into_iter().map(Input::File).collect(),
            duration_unit: self.duration_unit,
            sort: self.log.sort,
            decisions: self.decisions,
            top: self.top,
            html,
        })
    }
}

impl ReplayLimits {
    /// Sets the limits to those of an option. A limit without a name counts by fields of the log.
    ///
    /// # Errors
    ///
    /// Returns an error, which begins with `option`, if a limit is invalid.
    fn set(&mut self, texts: &[String], option: &str) -> Result<(), Failure> {
        self.layer.limits.clear();
        self.by_fields.clear();
        for text in texts {
            let limit = match text.contains('=') {
                true => parse_named_limit(text).map_err(|failure| match option {
                    "--limit" => failure,
                    option => Failure::refused(format!("{option}: {failure}")),
                })?,
                false => by_fields(text, option)?,
            };
            if !text.contains('=') {
                self.by_fields.insert(limit.name.clone());
            }
            self.layer.limits.push(limit);
        }
        Ok(())
    }
}

/// Returns this process's command line, quoted for a shell.
#[cfg(feature = "html")]
fn command() -> String {
    let words = std::env::args_os().skip(1).map(|word| shell_word(&printable(word.as_encoded_bytes())));
    ["tollgate".to_owned()].into_iter().chain(words).collect::<Vec<_>>().join(" ")
}

/// Returns a parser that accepts the name of any algorithm.
pub(crate) fn algorithms() -> impl TypedValueParser<Value = Algorithm> {
    algorithm_names().try_map(|name| name.parse::<Algorithm>())
}
