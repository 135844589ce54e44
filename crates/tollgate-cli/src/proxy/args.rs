//! The arguments of `tollgate proxy`.

pub(crate) mod config;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};
use http::StatusCode;
use tollgate::{Algorithm, Quota};
use tollgate_http::ForwardedField;
use tollgate_http::program::{self, parse_quota, parse_time};
use tollgate_http::settings::{LayerSettings, Statuses, TextError};
use tollgate_redis::program::{StoreSettings, UnavailablePolicy};

use super::refusals::{NOT_OURS, Refusals};
use super::settings::ProxySettings;
use crate::arg_values::{WhenFullArg, algorithm_names};
use crate::failure::Failure;
use crate::limit::{parse_except, parse_named_limit, parse_path_templates};
use crate::printable::{printable, printable_path};
use crate::proxy::server::ClientSettings;
use crate::proxy::telemetry::entry::{LogFormat, LogKey};
use crate::proxy::upstream::origin::{self, Origin};
use crate::proxy::upstream::service::{UpstreamSettings, parse_upstream};
use config::ConfigFile;

/// The subcommand's description in its help.
pub(crate) const ABOUT: &str = "\
Puts limits in front of a server: a small reverse proxy for HTTP/1.1 and HTTP/2 (without TLS) that
streams bodies in both directions. It has one upstream, does not speak the PROXY protocol, and
delays no request; put a load balancer or nginx in front of it for TLS. A request that a limit
refuses is answered with 429, Retry-After and a problem in JSON, and never reaches the server.
Responses state how much of each limit is left (RateLimit and RateLimit-Policy). WebSockets are
passed on.";

/// The last part of the help, with everything that does not fit beside an option.
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
more than 100 in any minute), '8 at once', 'unlimited' or 'blocked'; 'and' joins several, as in
'10/s and 1000/d'. A key is ip, method, path (without the query), header NAME or query NAME. Keys
joined with '+' count together, as in ip+path; 'or' gives an alternative for requests without the
first key, as in 'query key or ip'; and 'nothing' counts all requests together. 'else' specifies
what happens to requests without a key: deny (they get 403; the default), allow (the limit does not
apply to them) or share (together they count as one client). A request passes only if all limits
admit it, and it is charged to all of them or to none.

Requests: after the key, 'for' selects the requests that the limit applies to, and 'except' exempts
requests from it; --except exempts requests from all limits. A condition is a method in capitals
(POST, or GET,PUT; GET includes HEAD), method NAME for a method that your server defines, a path
(/login, /users/{id}, /files/{*path}), host NAME (at any port), header NAME or NAME=VALUE, from
NETWORK, or preflight. Conditions that stand side by side must all hold; 'or' separates
alternatives.

Do not limit only by a value that the client chooses: a client that invents a new API key for each
request has a new quota each time, and takes the places of other clients (--max-keys). State which
values are known: 'header x-api-key known FILE or ip' accepts the values in the lines of the file,
which SIGHUP reads again, and counts all other requests by address. When the proxy starts, it warns
of each limit whose keys any client can invent.

Classes: callers may be divided into classes with quotas of their own. Write 'class NAME QUOTA'
after the quota of the limit, once for each class, and how to find the class at the end of the
limit. 'class by key in FILE' looks the key up in a file with lines such as 'k-7f3a,paid',
'203.0.113.0/24,blocked' and 'k-1c55,300/min', which SIGHUP reads again; 'class by ip in FILE',
'class by header NAME in FILE' and 'class by query NAME in FILE' look up that value instead. With
'class by header NAME', the value itself is the class, and only trusted proxies may send it. All
other callers belong to the class default, with the limit's own quota.

Paths are counted in one form: %6c is l, // is /, and dot segments are removed, which makes //login
and /b/../%6cogin the same as /login. Encodings of other characters stay (%2F is not a slash), and
so do a backslash, ';', a slash at the end, and case. The upstream gets paths as the client sent
them, except for bytes that no URI may contain: < becomes %3C. --path-template counts all paths of
a template as one, however they are spelled, and all paths that match no template as one more.

The ip is the address at the other end of the connection. ::ffff:192.0.2.1 is 192.0.2.1, and an
IPv6 address counts by its network (--ipv6-prefix): a key 2001:db8::17, as under /limits of
--metrics, means all of 2001:db8::/64. Behind other proxies, state which of them to trust: --trust
names their networks, --trust-hops their number. The ip is then the first address in
X-Forwarded-For (--forwarded-field), read from the right, that is not a trusted proxy; in a field
with one address, such as x-real-ip or cf-connecting-ip, it is that address. The proxy reports where
a request came from to the upstream in the same field, and in X-Forwarded-Host and -Proto. It
replaces such fields if a client or an untrusted proxy sent them.

With --redis, the counts are in a store, and proxies that name the same limits enforce them
together. A check takes a round trip; --redis-lease and --redis-max-unsynced save most of the round
trips. If the store does not answer in time, --redis-when-unavailable decides. Pass the URL in
TOLLGATE_REDIS if it contains a password, because other users of the machine can read arguments.

If the upstream cannot be reached, the response is a 502; if it does not answer in time, a 504.
Both have a problem in JSON. The proxy sends a request to the upstream once more only if that
cannot do harm: if a kept connection ended before the response to a GET, HEAD, OPTIONS, TRACE, PUT
or DELETE, or if the upstream reports that it has not begun the request. In either case, nothing of
the request's body may have been read.

Host is passed on as the client sent it, because servers use it to build links and to select sites.
Over HTTP/2, the upstream gets its own name. --host chooses.

A client that is slow or greedy is cut off: see the options for such clients. In addition, an
HTTP/2 connection has at most 100 requests at a time, and it ends when the client has reset 20
requests before the proxy looked at them, or when the proxy had to reset 1,000 because of errors. A
head over HTTP/1.1 has at most 100 fields. A WebSocket on which nothing moves for an hour is
closed. After a refusal, the proxy reads and drops up to 16 MiB of an upload for at most 10
seconds, so that the client can read the response.

The proxy forwards only messages that can be read in one way. It removes a field whose name has
other characters than letters, digits and hyphens (X_Forwarded_For), as nginx does by default, and
it removes trailers that belong before the body. A request with two hosts or two lengths gets 400;
a response with both a length and chunks, or with two lengths, becomes a 502.

SIGHUP reads the file of --config again, applies the options under \"Limits\", and opens the access
log again; if anything is refused, nothing changes. SIGUSR1 only opens the access log again.

SIGINT and SIGTERM end the proxy: it accepts no more connections, lets open requests finish (but
closes WebSockets), and exits with 0. A second signal ends it immediately, with 1, until the
requests have ended and the store has their counts. Invalid arguments exit with 2.

With --state, the counts of limits are written to a file every 5 seconds and at the end, after all
requests, and the next start continues them. A proxy that is killed loses the counts of the last 5
seconds. Limits that count with --redis and requests at once ('8 at once') are not in the file. A
limit that has a new name, key or algorithm begins without counts, and so does every limit if the
file is damaged, which is then moved aside. Two proxies cannot use one file.";

#[derive(Args)]
pub(crate) struct ProxyArgs {
    /// A file with any of these options, in TOML: listen = "127.0.0.1:8080", limit = ["..."]. An
    /// option that is given here replaces the file's setting
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,

    /// Check such a file, and the files that it names, as the start would, and exit: with 0 if the
    /// proxy would start, otherwise with 2
    #[arg(long, value_name = "FILE", conflicts_with = "config")]
    check: Option<PathBuf>,

    /// The configuration file, after it was read.
    #[arg(skip)]
    file: Option<ConfigFile>,

    /// The folder of the configuration file, if the limits are in that file.
    #[arg(skip)]
    limits_folder: Option<PathBuf>,

    /// Where clients connect: IP:PORT, as in 127.0.0.1:8080 or [::]:8080; port 0 is any free port
    #[arg(long, value_name = "ADDR", value_parser = address)]
    listen: SocketAddr,

    /// The server behind the proxy: http://HOST[:PORT]
    #[arg(long, value_name = "URL")]
    upstream: String,

    /// A limit, such as 'per-ip=100/s burst 20 by ip', once for each limit: see below. Without
    /// limits, everything passes
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
    /// cluster with commas between them. Proxies share a limit if its name, key and algorithm are
    /// the same on each of them
    #[arg(
        long,
        value_name = "URL",
        env = "TOLLGATE_REDIS",
        hide_env_values = true,
        help_heading = "Shared limits"
    )]
    redis: Option<String>,

    /// The sentinels that know the store's master: redis://HOST[:PORT], several with commas between
    /// them. The host of --redis is then the name of the master, as in redis://:PASSWORD@mymaster
    #[arg(
        long,
        value_name = "URLS",
        env = "TOLLGATE_REDIS_SENTINEL",
        hide_env_values = true,
        requires = "redis",
        help_heading = "Shared limits"
    )]
    redis_sentinel: Option<String>,

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

    /// How to answer a request if the store does not answer in time [default: local, or deny with
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

    /// Take up to this many tokens of a key in advance, and spend them without asking the store;
    /// the limit is never exceeded
    #[arg(long, value_name = "N", requires = "redis", help_heading = "Shared limits")]
    redis_lease: Option<u64>,

    /// Count in this proxy and report to the store later, with at most this many tokens of a key
    /// not yet reported: requests never wait for the store, and the limit may be exceeded by as
    /// many tokens for each other proxy; for windows
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

    /// The statuses of the responses that a limit counts, such as 'logins=401, 403' or 'a=5xx',
    /// once for each limit: any other response gives the charge back. Limits on requests at once
    /// are not affected
    #[arg(long, value_name = "NAME=STATUSES", help_heading = "Limits")]
    charge_if: Vec<String>,

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

    /// A field of refusals, such as 'Access-Control-Allow-Origin: *', once for each field; it
    /// replaces a field with the same name
    #[arg(long, value_name = "NAME: VALUE", help_heading = "Limits")]
    refusal_field: Vec<String>,

    /// A file with the body of refusals, which replaces the problem in JSON: .html, .json or text,
    /// up to 64 KiB. Refusals for gRPC have no body
    #[arg(long, value_name = "FILE", help_heading = "Limits")]
    refusal_body: Option<PathBuf>,

    /// Requests that no limit applies to, such as '/health', 'preflight' or 'from 10.0.0.0/8': see
    /// below
    #[arg(long, value_name = "REQUESTS", help_heading = "Limits")]
    except: Vec<String>,

    /// A template of paths, such as /users/{id}, once for each template: keys by path count all
    /// paths of a template as one, and all paths that match no template as one more
    #[arg(long, value_name = "TEMPLATE", help_heading = "Limits")]
    path_template: Vec<String>,

    /// A network of proxies in front of this one, such as 10.0.0.0/8, whose statements about the
    /// client are trusted
    #[arg(long, value_name = "NETWORK", help_heading = "Who is asking")]
    trust: Vec<String>,

    /// How many proxies every request passes before this one, if their networks are not known
    #[arg(long, value_name = "N", conflicts_with = "trust", help_heading = "Who is asking")]
    trust_hops: Option<usize>,

    /// The field that names the client, in requests from trusted proxies and to the upstream:
    /// x-forwarded-for, forwarded, or a field with one address, such as x-real-ip or
    /// cf-connecting-ip
    #[arg(
        long,
        value_name = "FIELD",
        default_value_t = ForwardedField::XForwardedFor,
        value_parser = forwarded_field,
        help_heading = "Who is asking"
    )]
    forwarded_field: ForwardedField,

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

    /// How long the upstream may take until it begins to answer. The time begins anew with each
    /// part of the request body; a client that sends no further part in this time gets 408
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = time, help_heading = "Upstream")]
    request_timeout: Duration,

    /// Where operators get metrics for Prometheus (/metrics), health (/live, /ready) and the states
    /// of keys (/limits): an address that clients can't reach
    #[arg(long, value_name = "ADDR", value_parser = address, help_heading = "Operation")]
    metrics: Option<SocketAddr>,

    /// Append a line for each request to this file; '-' is standard output
    #[arg(long, value_name = "FILE", help_heading = "Operation")]
    access_log: Option<PathBuf>,

    /// The format of the access log: 'combined', or 'json' with the time in nanoseconds and the
    /// answer of each limit
    #[arg(
        long,
        value_enum,
        value_name = "FORMAT",
        default_value_t = LogFormatArg::Combined,
        requires = "access_log",
        help_heading = "Operation"
    )]
    access_log_format: LogFormatArg,

    /// A file with 32 hexadecimal digits, the secret under which the JSON log hashes the keys of
    /// callers [default: random for each process]
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
    /// once. Trusted proxies may have any number, and so may every peer with --trust-hops
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

    /// How long a client may take to send the head of a request, and may stay connected without a
    /// request
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = time, help_heading = "Clients that are slow or greedy")]
    header_timeout: Duration,

    /// How long a response that has begun may stall because neither the upstream nor the client
    /// sends anything. If the client reads nothing, the response may stall for twice as long
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = time, help_heading = "Clients that are slow or greedy")]
    idle_timeout: Duration,

    /// How many malformed requests an address, or IPv6 network (--ipv6-prefix), may send: a quota
    /// such as '20/min'. After an address has used up the quota, its connections are closed at once
    /// until it regains some. Trusted proxies are not limited; with --trust-hops, nobody is
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

    /// A file in which the proxy keeps the counts of its limits, so that a restart forgives nobody;
    /// each proxy needs its own. Shared limits keep their counts in the store
    #[arg(long, value_name = "FILE", help_heading = "Operation")]
    state: Option<PathBuf>,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum WhenUnavailableArg {
    /// A limiter in this proxy decides, with --redis-share of the quota
    Local,
    /// The request is admitted
    Allow,
    /// The request is refused
    Deny,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum LogFormatArg {
    Combined,
    Json,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum HostArg {
    /// The Host that the client sent
    Preserve,
    /// The host in --upstream
    Upstream,
}

impl ProxyArgs {
    /// Adds the file that contained some of the arguments.
    pub(crate) fn with_file(self, file: ConfigFile) -> Self {
        let limits_folder = file.sets("limit").then(|| file.folder().to_owned());
        Self { file: Some(file), limits_folder, ..self }
    }

    /// Returns whether the program only checks the settings.
    pub(crate) fn is_check(&self) -> bool {
        self.check.is_some()
    }

    /// # Errors
    ///
    /// Returns an error if an upstream, a limit or a network is invalid.
    pub(crate) fn settings(mut self) -> Result<ProxySettings, Failure> {
        let file = self.file.take();
        match self.validated() {
            Ok(settings) => Ok(ProxySettings { config: file, ..settings }),
            Err(failure) => Err(match file {
                Some(file) => file.located(failure),
                None => failure,
            }),
        }
    }

    /// Returns only the limits' settings.
    ///
    /// # Errors
    ///
    /// Returns an error if a limit, an exemption or a template is invalid.
    pub(crate) fn layer_settings(&self) -> Result<LayerSettings, Failure> {
        let except = parse_except(&self.except)?;
        let path_templates = parse_path_templates(&self.path_template)?;
        let limits = self.limit.iter().map(|limit| parse_named_limit(limit)).collect::<Result<Vec<_>, _>>();
        let mut limits = limits?;
        if let Some(folder) = &self.limits_folder {
            limits.iter_mut().for_each(|limit| program::files_relative_to(limit, folder));
        }
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
            // Without trusted proxies, the field is only for the upstream.
            forwarded_field: match self.trust.is_empty() && self.trust_hops.is_none() {
                true => ForwardedField::XForwardedFor,
                false => self.forwarded_field.clone(),
            },
            charge_if: parse_charge_if(&self.charge_if)?,
        })
    }

    fn validated(self) -> Result<ProxySettings, Failure> {
        let authority = parse_upstream(&self.upstream)?;
        if self.upstream_http2 && self.host == Some(HostArg::Preserve) {
            return Err(Failure::refused(
                "--host preserve and --upstream-http2 exclude each other: the authority of a request in HTTP/2 is \
                 that of its connection; leave one of them out (the upstream finds the client's in X-Forwarded-Host)",
            ));
        }
        if self.metrics.is_some_and(|metrics| metrics == self.listen && metrics.port() != 0) {
            return Err(Failure::refused(format!(
                "--metrics {} is also the address of --listen: expected two addresses; choose another port for one of \
                 them",
                self.listen
            )));
        }
        let limits = self.layer_settings()?;
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
        Ok(ProxySettings {
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
            origin: Origin { field: self.forwarded_field, trusted: proxies.clone() },
            limits,
            refusals,
            shared: self.redis.map(|addresses| StoreSettings {
                addresses,
                sentinels: self.redis_sentinel,
                deadline: Some(self.redis_deadline),
                when_unavailable: self.redis_when_unavailable.map(|policy| match policy {
                    WhenUnavailableArg::Local => UnavailablePolicy::Local,
                    WhenUnavailableArg::Allow => UnavailablePolicy::Allow,
                    WhenUnavailableArg::Deny => UnavailablePolicy::Deny,
                }),
                share: self.redis_share,
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
            state: self.state,
        })
    }
}

/// Parses the values of `--charge-if`.
fn parse_charge_if(texts: &[String]) -> Result<BTreeMap<String, Statuses>, Failure> {
    let mut all = BTreeMap::new();
    for text in texts {
        let (name, statuses) = text.split_once('=').ok_or_else(|| {
            Failure::refused(format!(
                "invalid --charge-if `{}`: expected NAME=STATUSES, as in 'logins=401, 403'",
                printable(text.as_bytes())
            ))
        })?;
        let statuses = statuses.parse().map_err(|error| {
            Failure::refused(format!("--charge-if '{}': {error}", printable(text.as_bytes())))
        })?;
        let name = name.trim();
        if all.insert(name.to_owned(), statuses).is_some() {
            return Err(Failure::refused(format!(
                "--charge-if has `{}` twice: expected each limit once, with all its statuses",
                printable(name.as_bytes())
            )));
        }
    }
    Ok(all)
}

fn forwarded_field(text: &str) -> Result<ForwardedField, String> {
    let field: ForwardedField = text.parse().map_err(|error: TextError| error.to_string())?;
    match &field {
        ForwardedField::Single(name) if NOT_OURS.contains(name) || origin::is_written(name) => Err(format!(
            "the proxy itself writes `{name}`: expected x-forwarded-for, forwarded, or a field with the address of the \
             client, such as x-real-ip"
        )),
        _ => Ok(field),
    }
}

fn quota(text: &str) -> Result<Quota, String> {
    parse_quota(text).map_err(|error| error.to_string())
}

fn address(text: &str) -> Result<SocketAddr, String> {
    text.parse().map_err(|_| "expected IP:PORT, as in 127.0.0.1:8080 or [::]:8080".to_owned())
}

fn time(text: &str) -> Result<Duration, String> {
    parse_time(text).map_err(|error| error.to_string())
}
