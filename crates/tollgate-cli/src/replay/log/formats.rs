//! Defines the log formats in tables: the columns of the plain text formats, and the fields in the
//! JSON logs of known servers. To add a format, add a row to a table and a sample to the tests.

use std::fmt;

use serde::Serialize;

use super::timestamp::TimeUnit;

/// The format of a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Format {
    Common,
    Combined,
    /// The nginx format `main`: Combined, followed by the field `X-Forwarded-For`.
    NginxMain,
    /// Common, with a virtual host in front.
    VhostCommon,
    /// Combined, with a virtual host in front, like Apache's `vhost_combined`.
    VhostCombined,
    /// The format used by AWS application load balancers.
    Alb,
    /// The format of HAProxy with `option httplog`.
    Haproxy,
    /// The default format of Envoy.
    Envoy,
    /// A log whose `#Fields:` line names the columns, such as the logs of IIS and CloudFront.
    W3c,
    Caddy,
    Traefik,
    /// Envoy's JSON log, with the default fields of Istio or of Envoy Gateway.
    EnvoyJson,
    /// The JSON log of `tollgate proxy`.
    Tollgate,
    Json,
    Csv,
}

impl Format {
    /// All formats, with their names in arguments and reports.
    pub const ALL: [(Self, &'static str); 15] = [
        (Self::Common, "common"),
        (Self::Combined, "combined"),
        (Self::NginxMain, "nginx-main"),
        (Self::VhostCommon, "vhost-common"),
        (Self::VhostCombined, "vhost-combined"),
        (Self::Alb, "alb"),
        (Self::Haproxy, "haproxy"),
        (Self::Envoy, "envoy"),
        (Self::W3c, "w3c"),
        (Self::Caddy, "caddy"),
        (Self::Traefik, "traefik"),
        (Self::EnvoyJson, "envoy-json"),
        (Self::Tollgate, "tollgate"),
        (Self::Json, "json"),
        (Self::Csv, "csv"),
    ];

    /// Returns the name of the format in arguments and reports.
    pub fn name(self) -> &'static str {
        Self::ALL.iter().find(|(format, _)| *format == self).map_or("", |(_, name)| name)
    }

    /// Returns whether each log in this format names its own fields, so that this program defines
    /// no names for them.
    pub(crate) fn names_its_fields(self) -> bool {
        matches!(self, Self::Json | Self::Csv)
    }

    /// Returns whether each line is a JSON object.
    pub(crate) fn is_json(self) -> bool {
        matches!(self, Self::Caddy | Self::Traefik | Self::EnvoyJson | Self::Tollgate | Self::Json)
    }

    /// Returns the unit of times that are numbers, if the format defines one.
    pub(crate) fn time_unit(self) -> Option<TimeUnit> {
        (self == Self::Tollgate).then_some(TimeUnit::Nanos)
    }

    /// Returns whether the lines are in the order in which requests ended, although their times are
    /// those of the arrivals. Such a log is always sorted by time.
    pub(crate) fn is_by_ends(self) -> bool {
        self == Self::Tollgate
    }

    /// Returns the unit of durations, if the format defines one.
    pub(crate) fn duration_unit(self) -> Option<TimeUnit> {
        match self {
            Self::Haproxy | Self::Envoy | Self::EnvoyJson => Some(TimeUnit::Millis),
            Self::Traefik | Self::Tollgate => Some(TimeUnit::Nanos),
            Self::Caddy => Some(TimeUnit::Seconds),
            _ => None,
        }
    }

    /// Returns how servers escape the bytes of a request that they do not write unchanged.
    pub(crate) fn escapes(self) -> Escapes {
        match self {
            Self::Haproxy => Escapes::Hash,
            Self::Envoy | Self::W3c | Self::Csv => Escapes::None,
            json if json.is_json() => Escapes::None,
            _ => Escapes::Backslash,
        }
    }
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// How a server escapes bytes that it does not write unchanged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Escapes {
    None,
    /// `\"`, `\\` and `\x1b`.
    Backslash,
    /// `#1B`.
    Hash,
}

/// A format of plain text, and its columns, separated by one space.
///
/// A column written as `"name"` is in quotes, and a column written as `[name]` is in brackets.
/// `{captures}` may be missing, and ends before a quote. A column with the name of a field contains
/// that field. The column `request` contains the method, the target and the protocol.
pub(crate) type Text = (Format, &'static str);

/// The plain text formats. If several formats match the same lines, the first one in this list
/// applies.
pub(crate) const TEXTS: [Text; 8] = [
    (Format::NginxMain, r#"ip ident user [time] "request" status bytes "referer" "user-agent" "forwarded""#),
    (Format::Combined, r#"ip ident user [time] "request" status bytes "referer" "user-agent""#),
    (Format::Common, r#"ip ident user [time] "request" status bytes"#),
    (Format::VhostCombined, r#"host ip ident user [time] "request" status bytes "referer" "user-agent""#),
    (Format::VhostCommon, r#"host ip ident user [time] "request" status bytes"#),
    (
        Format::Alb,
        r#"type time balancer ip:port target:port request-time target-time response-time status target-status received-bytes bytes "request" "user-agent""#,
    ),
    (
        Format::Haproxy,
        r#"ip:port [time] frontend server timers/duration status bytes request-cookie response-cookie termination connections queues {captures} "request""#,
    ),
    (
        Format::Envoy,
        r#"[time] "request" status flags received-bytes bytes duration upstream-time "forwarded" "user-agent" "request-id" "host" "upstream""#,
    ),
];

/// The request types in the first column of [`Format::Alb`].
pub(crate) const ALB_TYPES: [&[u8]; 6] = [b"http", b"https", b"h2", b"grpcs", b"ws", b"wss"];

/// Our names for the [`Format::W3c`] columns, each with the names used in logs, in order of
/// preference. The column `cs-uri-query` is a part of the field `uri`.
pub(crate) const W3C_FIELDS: [(&str, &[&str]); 11] = [
    ("ip", &["c-ip"]),
    ("user", &["cs-username"]),
    ("method", &["cs-method"]),
    ("protocol", &["cs-protocol-version", "cs-version"]),
    ("status", &["sc-status"]),
    ("bytes", &["sc-bytes"]),
    ("referer", &["cs(Referer)"]),
    ("user-agent", &["cs(User-Agent)"]),
    ("forwarded", &["x-forwarded-for", "X-Forwarded-For", "cs(X-Forwarded-For)"]),
    ("host", &["x-host-header", "cs-host", "cs(Host)"]),
    ("duration", &["time-taken"]),
];

/// A [`Format::W3c`] column that only CloudFront writes. CloudFront logs durations in seconds, and
/// IIS logs them in milliseconds.
pub(crate) const CLOUDFRONT_COLUMN: &str = "x-edge-location";

/// The JSON log of a server.
pub(crate) struct Dialect {
    pub(crate) format: Format,
    /// Fields that occur in every record of a request, but never in the server's messages.
    pub(crate) marks: &'static [&'static str],
    /// Our names for fields, each with its possible names in the log. The first name that occurs in
    /// the log's first record is used.
    pub(crate) fields: &'static [(&'static str, &'static [&'static str])],
    /// The prefix of the fields that contain request headers, if there are such fields. It is
    /// followed by the capitalized name of the header, as in `User-Agent`.
    pub(crate) headers: Option<&'static str>,
}

/// The servers whose JSON logs are known.
pub(crate) const DIALECTS: [Dialect; 4] = [
    Dialect {
        format: Format::Caddy,
        marks: &["request", "size"],
        fields: &[
            ("time", &["ts"]),
            ("ip", &["request.client_ip", "request.remote_ip", "request.remote_addr"]),
            ("user", &["user_id"]),
            ("method", &["request.method"]),
            ("path", &["request.uri"]),
            ("uri", &["request.uri"]),
            ("protocol", &["request.proto"]),
            ("status", &["status"]),
            ("bytes", &["size"]),
            ("referer", &["request.headers.Referer"]),
            ("user-agent", &["request.headers.User-Agent"]),
            ("forwarded", &["request.headers.X-Forwarded-For"]),
            ("host", &["request.host"]),
            ("duration", &["duration"]),
        ],
        headers: Some("request.headers."),
    },
    Dialect {
        format: Format::Traefik,
        marks: &["StartUTC", "RequestMethod"],
        fields: &[
            ("time", &["StartUTC"]),
            ("ip", &["ClientHost"]),
            ("user", &["ClientUsername"]),
            ("method", &["RequestMethod"]),
            ("path", &["RequestPath"]),
            ("uri", &["RequestPath"]),
            ("protocol", &["RequestProtocol"]),
            ("status", &["DownstreamStatus"]),
            ("bytes", &["DownstreamContentSize"]),
            ("referer", &["request_Referer"]),
            ("user-agent", &["request_User-Agent"]),
            ("forwarded", &["request_X-Forwarded-For"]),
            ("host", &["RequestHost", "RequestAddr"]),
            ("duration", &["Duration"]),
        ],
        headers: Some("request_"),
    },
    Dialect {
        format: Format::EnvoyJson,
        marks: &["start_time", "response_code"],
        fields: &[
            ("time", &["start_time"]),
            ("ip", &["downstream_remote_address"]),
            ("method", &["method", ":method"]),
            ("path", &["path", "x-envoy-origin-path", ":path"]),
            ("uri", &["path", "x-envoy-origin-path", ":path"]),
            ("protocol", &["protocol"]),
            ("status", &["response_code"]),
            ("bytes", &["bytes_sent"]),
            ("user-agent", &["user_agent", "user-agent"]),
            ("forwarded", &["x_forwarded_for", "x-forwarded-for"]),
            ("host", &["authority", ":authority"]),
            ("duration", &["duration"]),
        ],
        headers: None,
    },
    Dialect {
        format: Format::Tollgate,
        marks: &["time_ns", "duration_ns", "limits"],
        fields: &[
            ("time", &["time_ns"]),
            ("ip", &["ip"]),
            ("method", &["method"]),
            ("path", &["path"]),
            ("status", &["status"]),
            ("bytes", &["bytes"]),
            ("host", &["host"]),
            ("duration", &["duration_ns"]),
            ("limits", &["limits"]),
            ("refused_by", &["refused_by"]),
        ],
        headers: None,
    },
];
