//! The arguments of `tollgate proxy`.

pub(crate) mod config;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};
use http::StatusCode;
use jiff::SignedDuration;
use tollgate::{Algorithm, Quota};
use tollgate_http::ForwardedField;
use tollgate_http::program::{self, parse_quota};
use tollgate_http::settings::LayerSettings;
use tollgate_redis::WhenUnavailable;

use super::refusals::Refusals;
use super::settings::Settings;
use super::shared::SharedSettings;
use crate::arg_values::{WhenFullArg, algorithm_names};
use crate::failure::Failure;
use crate::limit::{parse_except, parse_named_limit, parse_path_templates};
use crate::printable::printable_path;
use crate::proxy::server::ClientSettings;
use crate::proxy::telemetry::entry::{LogFormat, LogKey};
use crate::proxy::upstream::origin::Origin;
use crate::proxy::upstream::service::{UpstreamSettings, parse_upstream};
use config::ConfigFile;

/// The description of the subcommand in its help.
pub(crate) const ABOUT: &str = "\
Puts limits in front of a server: a small reverse proxy for HTTP/1.1 and HTTP/2 (without TLS) that
streams bodies both ways. It has one upstream, does not speak the PROXY protocol and delays no request;
put a load balancer or nginx in front for TLS. A request that a limit refuses is answered with 429, Retry-After and a
problem in JSON, and never reaches the server. Responses say what is left (RateLimit and
RateLimit-Policy). WebSockets are passed on.";

/// The end of the help: what does not fit beside an option.
pub(crate) const EXAMPLES: &str = "\
Examples:
  tollgate proxy --listen 127.0.0.1:8080 --upstream http://127.0.0.1:3000 \\
      --limit 'per-ip=100/s burst 20 by ip'
  tollgate proxy ... --limit 'all=5000/s by nothing' --limit 'per-page=10/s by ip+path'
  tollgate proxy ... --limit 'per-key=1000/h by header x-api-key known keys.txt or ip'
  tollgate proxy ... --limit 'logins=5/min by ip for POST /login' --except '/health or preflight'
  tollgate proxy ... --limit 'api=10/s and 8 at once class paid 99/s by ip class by key in customers.csv'
  tollgate proxy ... --limit 'trial=10/s by ip' --shadow trial --metrics 127.0.0.1:9090
  tollgate proxy ... --limit 'per-ip=100/s by ip' --trust 10.0.0.0/8   # behind a load balancer
  tollgate proxy ... --limit 'per-ip=100/s by ip' --redis redis://10.0.0.5   # with other proxies
  tollgate proxy ... --access-log access.log, and later: tollgate replay access.log --limit 50/s
  tollgate proxy --check proxy.toml && tollgate proxy --config proxy.toml

Limits: NAME=QUOTA by KEY. A quota is '100/s', '5/10s', '1000/h burst 50', '100/min strict' (never
more in any minute), '8 at once', 'unlimited' or 'blocked'; 'and' joins several, as in '10/s and
1000/d'. A key is ip, method, path (without the query), header NAME or query NAME; several joined
with '+' count together, as in ip+path; 'or' gives an alternative for requests without the first, as
in query key or ip; and 'nothing' counts all requests together. 'else' says what happens to requests
without a key: deny (they get 403; the default), allow (the limit does not apply to them), share
(together they are one client). Of several limits all must admit a request, and it is charged to all
or to none.

Requests: after the key, 'for' says which requests the limit is for and 'except' which not;
--except exempts from all limits. Conditions are methods in capitals (POST, or GET,PUT; GET includes
HEAD), a path (/login, /users/{id}, /files/{*path}), host NAME, header NAME or NAME=VALUE, from
NETWORK, and preflight. Those that stand together must all hold; 'or' separates alternatives.

Do not limit only by a value that the client chooses: a client that invents a new API key for each
request has a new quota each time, and takes the places of others (--max-keys). Say which values
are known: 'header x-api-key known FILE or ip' takes those that are a line of the file, which
SIGHUP reads again, and counts others by address. The start warns of a limit that does otherwise.

Callers may be of classes with quotas of their own: 'class NAME QUOTA' after the quota, once for
each, and at the end how the class is found. 'class by key in FILE' looks the key up in a file with
lines such as 'k-7f3a,paid', '203.0.113.0/24,blocked' and 'k-1c55,300/min', which SIGHUP reads again;
'class by ip in FILE', 'class by header NAME in FILE' and 'class by query NAME in FILE' look that up.
'class by header NAME' is the value itself, from trusted proxies only. All others are of the class
default, with the limit's own quota.

Paths are counted in one form: %6c is l, // is /, and dot segments are removed, which makes //login
and /b/../%6cogin the same as /login. Encodings of other characters stay (%2F is not a slash), and
a backslash, ';', a slash at the end, and case stay as well. The upstream gets paths as they came,
except for bytes that no URI has: < becomes %3C. --path-template counts all paths of a template as
one, and all others as one more, however they are spelt.

The ip is the other end of the connection. ::ffff:192.0.2.1 is 192.0.2.1, and IPv6 counts by its
network (--ipv6-prefix): a key 2001:db8::17, as under /limits of --metrics, means all of
2001:db8::/64. Behind other proxies, say which to trust: --trust names their networks, --trust-hops counts them. Then the ip
is found in X-Forwarded-For (--forwarded-field), from the right, past those that are trusted.
The upstream is told where a request came from in the same field, and in X-Forwarded-Host and
-Proto. The fields of a client or an untrusted proxy are replaced.

With --redis the counts are in a store, and proxies that name the same limits enforce them together.
A check takes a round trip; --redis-lease and --redis-max-unsynced save most of them. If the store
does not answer in time, --redis-when-unavailable decides. Pass the address in TOLLGATE_REDIS if it holds
a password: other users of the machine can read arguments.

If the upstream can't be reached, the response is a 502; if it does not answer in time, a 504. Both
have a problem in JSON. A request is sent to the upstream once more only if that can't do harm: if a
kept connection ended before the response to a GET, HEAD, OPTIONS, TRACE, PUT or DELETE, or if the
upstream says that it has not begun. Nothing of the request's body may have been read then.

Host is passed on as the client sent it, because servers use it to make links and find sites. Over
HTTP/2 to the upstream it is the upstream's own. --host chooses.

A client that is slow or greedy is cut off: see the options for such clients. Besides, a connection
of HTTP/2 has at most 100 requests at a time, and ends when 20 of them were reset before they were
looked at or when 1,000 had to be reset because of errors; a head has at most 100 fields over
HTTP/1.1; a WebSocket in which nothing moves for an hour is closed. After a refusal, up to 16 MiB of
an upload are read and dropped for at most 10 seconds, so that the client can read the response.

What reaches the upstream can be read in one way only. A field is removed if its name has other
characters than letters, digits and hyphens (X_Forwarded_For), as nginx does by default, and so are
trailers that belong before the body. A request with two hosts or two lengths gets 400; a response
with a length and chunks, or with two lengths, becomes a 502.

SIGHUP reads the file of --config again, applies the options under \"Limits\", and opens the access
log again; if anything is refused, nothing changes. SIGUSR1 only opens the access log again.

SIGINT and SIGTERM end the proxy: it stops accepting, lets open requests finish (but closes
WebSockets), and exits with 0. A second signal ends it immediately, with 1. Invalid
arguments exit with 2.";

#[derive(Args)]
pub(crate) struct ProxyArgs {
    /// A file with any of these options, in TOML: listen = "127.0.0.1:8080", limit = ["..."].
    /// What is given here takes its place
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,

    /// Check such a file, and the files that it names, as the start would, and end: with 0 if the
    /// proxy would start, or with 2
    #[arg(long, value_name = "FILE", conflicts_with = "config")]
    check: Option<PathBuf>,

    /// That file, once it is read.
    #[arg(skip)]
    file: Option<ConfigFile>,

    /// Where clients connect: IP:PORT, as in 127.0.0.1:8080 or [::]:8080; port 0 is any free port
    #[arg(long, value_name = "ADDR", value_parser = address)]
    listen: SocketAddr,

    /// The server behind the proxy: http://HOST[:PORT]
    #[arg(long, value_name = "URL")]
    upstream: String,

    /// A limit, once for each limit: 'per-ip=100/s burst 20 by ip', see below. Without any,
    /// everything passes
    #[arg(short, long, value_name = "NAME=QUOTA by KEY", help_heading = "Limits")]
    limit: Vec<String>,

    /// The algorithm that enforces the limits
    #[arg(
        short,
        long,
        value_name = "NAME",
        default_value = "token-bucket",
        value_parser = algorithm_names(),
        help_heading = "Limits"
    )]
    algorithm: String,

    /// The most keys that each limit may track
    #[arg(long, value_name = "N", default_value_t = 1_000_000, help_heading = "Limits")]
    max_keys: usize,

    /// Share the counts with other proxies through Redis or Valkey:
    /// redis://[:PASSWORD@]HOST[:PORT][/DATABASE], rediss:// with TLS, or several nodes of a
    /// cluster with commas between them. Proxies share a limit if its name, quota and algorithm are
    /// equal
    #[arg(
        long,
        value_name = "URL",
        env = "TOLLGATE_REDIS",
        hide_env_values = true,
        help_heading = "Shared limits"
    )]
    redis: Option<String>,

    /// How long the store may take to answer a check
    #[arg(
        long,
        value_name = "TIME",
        default_value = "50ms",
        value_parser = time,
        requires = "redis",
        help_heading = "Shared limits"
    )]
    redis_deadline: Duration,

    /// How to answer a request when the store does not in time [default: local, or deny with
    /// --redis-max-unsynced]
    #[arg(long, value_enum, value_name = "POLICY", requires = "redis", help_heading = "Shared limits")]
    redis_when_unavailable: Option<WhenUnavailableArg>,

    /// The share of each quota that this proxy enforces alone while the store is unavailable, above
    /// 0 and up to 1 [default: 1]
    #[arg(
        long,
        value_name = "SHARE",
        requires = "redis",
        conflicts_with = "redis_max_unsynced",
        help_heading = "Shared limits"
    )]
    redis_share: Option<f64>,

    /// Take up to this many tokens of a key in advance and spend them without asking: never over
    /// the limit
    #[arg(long, value_name = "N", requires = "redis", help_heading = "Shared limits")]
    redis_lease: Option<u64>,

    /// Count here and tell the store later, with at most this many tokens of a key untold: never
    /// waits, and may exceed the limit by as many for each other proxy; for windows
    #[arg(
        long,
        value_name = "N",
        requires = "redis",
        conflicts_with = "redis_lease",
        help_heading = "Shared limits"
    )]
    redis_max_unsynced: Option<u64>,

    /// The policy for new keys while a limit tracks its maximum
    #[arg(long, value_enum, value_name = "POLICY", default_value_t = WhenFullArg::Deny, conflicts_with = "redis", help_heading = "Limits")]
    when_full: WhenFullArg,

    /// A limit that decides and counts (see --metrics) but refuses nothing, to try it out
    #[arg(long, value_name = "NAME", help_heading = "Limits")]
    shadow: Vec<String>,

    /// The status of a refusal, from 400 to 599
    #[arg(
        long,
        value_name = "CODE",
        default_value_t = 429,
        value_parser = clap::value_parser!(u16).range(400..=599),
        help_heading = "Limits"
    )]
    status: u16,

    /// A field of refusals, such as 'Access-Control-Allow-Origin: *', once for each; in place of
    /// one with the same name
    #[arg(long, value_name = "NAME: VALUE", help_heading = "Limits")]
    refusal_field: Vec<String>,

    /// A file with the body of refusals in place of the problem in JSON: .html, .json or text, up
    /// to 64 KiB. Refusals for gRPC have none
    #[arg(long, value_name = "FILE", help_heading = "Limits")]
    refusal_body: Option<PathBuf>,

    /// Requests that no limit applies to, such as '/health', 'preflight' or 'from 10.0.0.0/8': see
    /// below
    #[arg(long, value_name = "REQUESTS", help_heading = "Limits")]
    except: Vec<String>,

    /// A template of paths, such as /users/{id}, once for each: keys by path count all paths of a
    /// template as one, and as one more all that match none
    #[arg(long, value_name = "TEMPLATE", help_heading = "Limits")]
    path_template: Vec<String>,

    /// A network of proxies in front of this one, such as 10.0.0.0/8, whose statements about the
    /// client are trusted
    #[arg(long, value_name = "NETWORK", help_heading = "Who is asking")]
    trust: Vec<String>,

    /// How many proxies every request passes before this one, where their networks are not known
    #[arg(long, value_name = "N", conflicts_with = "trust", help_heading = "Who is asking")]
    trust_hops: Option<usize>,

    /// The field that names the client, in requests from trusted proxies and to the upstream
    #[arg(long, value_enum, value_name = "FIELD", default_value_t = FieldArg::XForwardedFor, help_heading = "Who is asking")]
    forwarded_field: FieldArg,

    /// How many bits of an IPv6 address identify a client
    #[arg(
        long,
        value_name = "BITS",
        default_value_t = 64,
        value_parser = clap::value_parser!(u8).range(1..=128),
        help_heading = "Who is asking"
    )]
    ipv6_prefix: u8,

    /// The Host that the upstream sees [default: preserve, or upstream with --upstream-http2]
    #[arg(long, value_enum, value_name = "WHOSE", help_heading = "Upstream")]
    host: Option<HostArg>,

    /// Speak HTTP/2 to the upstream without negotiation: for gRPC
    #[arg(long, help_heading = "Upstream")]
    upstream_http2: bool,

    /// How long connecting may take
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = time, help_heading = "Upstream")]
    connect_timeout: Duration,

    /// How long the upstream may take until it begins to answer, once the request body has stopped
    /// moving
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = time, help_heading = "Upstream")]
    request_timeout: Duration,

    /// Where operators get metrics for Prometheus (/metrics), health (/live, /ready) and the states
    /// of keys (/limits): an address that clients can't reach
    #[arg(long, value_name = "ADDR", value_parser = address, help_heading = "Operation")]
    metrics: Option<SocketAddr>,

    /// Append a line for each request to this file; '-' is standard output
    #[arg(long, value_name = "FILE", help_heading = "Operation")]
    access_log: Option<PathBuf>,

    /// The form of the access log: 'combined', or 'json' with the time in nanoseconds and what each
    /// limit said
    #[arg(
        long,
        value_enum,
        value_name = "FORMAT",
        default_value_t = LogFormatArg::Combined,
        requires = "access_log",
        help_heading = "Operation"
    )]
    access_log_format: LogFormatArg,

    /// A file with 32 hexadecimal digits, under which the keys of callers are hashed in the JSON
    /// log [default: random for each process]
    #[arg(long, value_name = "FILE", requires = "access_log", help_heading = "Operation")]
    log_key: Option<PathBuf>,

    /// The most connections from clients at a time; more wait to be accepted
    #[arg(
        long,
        value_name = "N",
        default_value_t = 10_000,
        value_parser = clap::value_parser!(u32).range(1..),
        help_heading = "Clients that are slow or greedy"
    )]
    max_connections: u32,

    /// The most connections of one address, or IPv6 network (--ipv6-prefix); more are closed at
    /// once. Trusted proxies may have any number
    #[arg(
        long,
        value_name = "N",
        default_value_t = 1_000,
        value_parser = clap::value_parser!(u32).range(1..),
        help_heading = "Clients that are slow or greedy"
    )]
    max_connections_per_address: u32,

    /// The largest head of a request in bytes: its first line and its fields. A larger one gets 431
    #[arg(
        long,
        value_name = "BYTES",
        default_value_t = 32 * 1024,
        value_parser = clap::value_parser!(u32).range(8 * 1024..=1024 * 1024),
        help_heading = "Clients that are slow or greedy"
    )]
    max_header_size: u32,

    /// How long a client may take to send the head of a request, and may be connected without any
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = time, help_heading = "Clients that are slow or greedy")]
    header_timeout: Duration,

    /// How long a response that has begun may stand still because neither the upstream nor the
    /// client sends anything. If the client takes nothing, it may be twice as long
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = time, help_heading = "Clients that are slow or greedy")]
    idle_timeout: Duration,

    /// How many malformed requests an address, or IPv6 network (--ipv6-prefix), may send: a quota
    /// such as '20/min'. While it has sent more, its connections are closed at once. Trusted
    /// proxies are not limited
    #[arg(
        long,
        value_name = "QUOTA",
        value_parser = quota,
        help_heading = "Clients that are slow or greedy"
    )]
    bad_request_limit: Option<Quota>,

    /// How long requests may take to finish at shutdown
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = time, help_heading = "Operation")]
    shutdown_timeout: Duration,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum WhenUnavailableArg {
    /// A limiter of this proxy decides, under --redis-share of the quota
    Local,
    /// It is admitted
    Allow,
    /// It is refused
    Deny,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum LogFormatArg {
    Combined,
    Json,
}

#[derive(Clone, Copy, ValueEnum)]
enum FieldArg {
    XForwardedFor,
    Forwarded,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum HostArg {
    /// The one that the client sent
    Preserve,
    /// The one in --upstream
    Upstream,
}

impl ProxyArgs {
    /// Adds the file that some of the arguments are from.
    pub(crate) fn with_file(self, file: ConfigFile) -> Self {
        Self { file: Some(file), ..self }
    }

    /// Returns whether the settings are to be checked, and nothing else.
    pub(crate) fn is_check(&self) -> bool {
        self.check.is_some()
    }

    /// # Errors
    ///
    /// An invalid upstream, limit or network.
    pub(crate) fn settings(mut self) -> Result<Settings, Failure> {
        let file = self.file.take();
        match self.validated() {
            Ok(settings) => Ok(Settings { config: file, ..settings }),
            Err(failure) => Err(match file {
                Some(file) => file.located(failure),
                None => failure,
            }),
        }
    }

    /// Returns the settings of the limits alone.
    ///
    /// # Errors
    ///
    /// An invalid limit, exemption or template.
    pub(crate) fn layer_settings(&self) -> Result<LayerSettings, Failure> {
        let except = parse_except(&self.except)?;
        let path_templates = parse_path_templates(&self.path_template)?;
        let limits = self.limit.iter().map(|limit| parse_named_limit(limit)).collect::<Result<_, _>>()?;
        let algorithm: Algorithm =
            self.algorithm.parse().map_err(|error| Failure::refused(format!("{error}")))?;
        Ok(LayerSettings {
            limits,
            algorithm,
            max_keys: self.max_keys,
            when_full: self.when_full.into(),
            shadows: self.shadow.clone(),
            status: StatusCode::from_u16(self.status).unwrap_or(StatusCode::TOO_MANY_REQUESTS),
            except,
            path_templates,
            ipv6_prefix: self.ipv6_prefix,
            trust: self.trust.clone(),
            trust_hops: self.trust_hops,
            forwarded_field: match self.forwarded_field {
                FieldArg::XForwardedFor => ForwardedField::XForwardedFor,
                FieldArg::Forwarded => ForwardedField::Forwarded,
            },
        })
    }

    fn validated(self) -> Result<Settings, Failure> {
        let authority = parse_upstream(&self.upstream)?;
        if self.upstream_http2 && self.host == Some(HostArg::Preserve) {
            return Err(Failure::refused(
                "--host preserve and --upstream-http2 exclude each other: the authority of a request in HTTP/2 is \
                 that of its connection; leave one of them out (the upstream finds the client's in X-Forwarded-Host)",
            ));
        }
        let limits = self.layer_settings()?;
        let local = WhenUnavailable::Local { share: self.redis_share.unwrap_or(1.0) };
        let when_unavailable = match (self.redis_when_unavailable, self.redis_share) {
            (Some(WhenUnavailableArg::Allow | WhenUnavailableArg::Deny), Some(share)) => {
                return Err(Failure::refused(format!(
                    "--redis-share {share} needs --redis-when-unavailable local, the default; leave one of them out"
                )));
            }
            (None, _) if self.redis_max_unsynced.is_some() => None,
            (None | Some(WhenUnavailableArg::Local), _) => Some(local),
            (Some(WhenUnavailableArg::Allow), None) => Some(WhenUnavailable::Allow),
            (Some(WhenUnavailableArg::Deny), None) => Some(WhenUnavailable::Deny),
        };
        let refusals = Refusals::read(&self.refusal_field, self.refusal_body.as_deref())?;
        let format = match (self.access_log_format, &self.log_key) {
            (LogFormatArg::Combined, None) => LogFormat::Combined,
            (LogFormatArg::Combined, Some(path)) => {
                return Err(Failure::refused(format!(
                    "--log-key '{}' needs --access-log-format json: Combined Log Format has no keys of callers; \
                     leave one of them out",
                    printable_path(path)
                )));
            }
            (LogFormatArg::Json, Some(path)) => LogFormat::Json(LogKey::read(path)?),
            (LogFormatArg::Json, None) => LogFormat::Json(LogKey::random()?),
        };
        let proxies = program::proxies(&limits);
        Ok(Settings {
            config: None,
            listen: self.listen,
            metrics: self.metrics,
            access_log: self.access_log.map(|path| (path, format)),
            upstream: UpstreamSettings {
                authority,
                http2: self.upstream_http2,
                connect_timeout: self.connect_timeout,
                request_timeout: self.request_timeout,
                idle_timeout: self.idle_timeout,
            },
            origin: Origin { field: limits.forwarded_field, trusted: proxies.clone() },
            limits,
            refusals,
            shared: self.redis.map(|url| SharedSettings {
                url,
                deadline: self.redis_deadline,
                when_unavailable,
                lease: self.redis_lease,
                max_unsynced: self.redis_max_unsynced,
            }),
            preserves_host: self.host.map_or(!self.upstream_http2, |host| host == HostArg::Preserve),
            clients: ClientSettings {
                max_connections: usize::try_from(self.max_connections).unwrap_or(usize::MAX),
                max_per_address: usize::try_from(self.max_connections_per_address).unwrap_or(usize::MAX),
                ipv6_prefix: self.ipv6_prefix,
                trusted: proxies,
                max_header_size: self.max_header_size,
                header_timeout: self.header_timeout,
                idle_timeout: self.idle_timeout,
            },
            bad_requests: self.bad_request_limit,
            shutdown_timeout: self.shutdown_timeout,
        })
    }
}

fn quota(text: &str) -> Result<Quota, String> {
    parse_quota(text).map_err(|error| error.to_string())
}

fn address(text: &str) -> Result<SocketAddr, String> {
    text.parse().map_err(|_| "expected IP:PORT, as in 127.0.0.1:8080 or [::]:8080".to_owned())
}

fn time(text: &str) -> Result<Duration, String> {
    let parsed: Option<SignedDuration> = text.parse().ok();
    let positive = parsed.and_then(|time| Duration::try_from(time).ok()).filter(|time| !time.is_zero());
    let a_day = Duration::from_secs(24 * 60 * 60);
    positive
        .filter(|&time| time <= a_day)
        .ok_or_else(|| "expected more than 0s, up to 24h, as in 500ms, 5s or 1m30s".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_units_and_a_range() {
        assert_eq!(time("500ms"), Ok(Duration::from_millis(500)));
        assert_eq!(time("1m30s"), Ok(Duration::from_secs(90)));
        for text in ["", "5", "0s", "-1s", "25h", "soon"] {
            assert!(time(text).is_err(), "{text}");
        }
    }
}
