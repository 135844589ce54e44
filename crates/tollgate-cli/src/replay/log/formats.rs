//! Defines the log formats as tables: the columns of the plain text formats, and the fields of the
//! JSON logs of known servers. To add a format, add a row to a table and a sample to the tests.

use std::fmt;

use super::timestamp::TimeUnit;

/// The format of a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Format {
    Common,
    Combined,
    /// The format `main` of nginx: Combined, followed by the field `X-Forwarded-For`.
    NginxMain,
    /// Common, with a virtual host in front.
    VhostCommon,
    /// Combined, with a virtual host in front, as Apache's `vhost_combined`.
    VhostCombined,
    /// The format of AWS application load balancers.
    Alb,
    /// The format of HAProxy with `option httplog`.
    Haproxy,
    /// The default format of Envoy.
    Envoy,
    /// A log whose line `#Fields:` names its columns, such as the logs of IIS and CloudFront.
    W3c,
    Caddy,
    Traefik,
    /// The JSON log of Envoy, with the default fields of Istio or of Envoy Gateway.
    EnvoyJson,
    Json,
    Csv,
}

impl Format {
    /// All formats.
    pub const ALL: [Self; 14] = [
        Self::Common,
        Self::Combined,
        Self::NginxMain,
        Self::VhostCommon,
        Self::VhostCombined,
        Self::Alb,
        Self::Haproxy,
        Self::Envoy,
        Self::W3c,
        Self::Caddy,
        Self::Traefik,
        Self::EnvoyJson,
        Self::Json,
        Self::Csv,
    ];

    /// Returns the name of the format in arguments and reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::Common => "common",
            Self::Combined => "combined",
            Self::NginxMain => "nginx-main",
            Self::VhostCommon => "vhost-common",
            Self::VhostCombined => "vhost-combined",
            Self::Alb => "alb",
            Self::Haproxy => "haproxy",
            Self::Envoy => "envoy",
            Self::W3c => "w3c",
            Self::Caddy => "caddy",
            Self::Traefik => "traefik",
            Self::EnvoyJson => "envoy-json",
            Self::Json => "json",
            Self::Csv => "csv",
        }
    }

    /// Returns whether each log in this format names its own fields, so the program has no fixed
    /// names for the fields.
    pub(crate) fn names_its_fields(self) -> bool {
        matches!(self, Self::Json | Self::Csv)
    }

    /// Returns whether each line is a JSON object.
    pub(crate) fn is_json(self) -> bool {
        matches!(self, Self::Caddy | Self::Traefik | Self::EnvoyJson | Self::Json)
    }

    /// Returns the unit of durations, if the format defines one.
    pub(crate) fn duration_unit(self) -> Option<TimeUnit> {
        match self {
            Self::Haproxy | Self::Envoy | Self::EnvoyJson => Some(TimeUnit::Millis),
            Self::Traefik => Some(TimeUnit::Nanos),
            Self::Caddy => Some(TimeUnit::Seconds),
            _ => None,
        }
    }

    /// Returns how servers escape those bytes of a request that they do not write unchanged.
    pub(crate) fn escapes(self) -> Escapes {
        match self {
            Self::Haproxy => Escapes::Hash,
            Self::Common
            | Self::Combined
            | Self::NginxMain
            | Self::VhostCommon
            | Self::VhostCombined
            | Self::Alb => Escapes::Backslash,
            _ => Escapes::None,
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

/// A format of plain text.
pub(crate) struct Text {
    pub(crate) format: Format,
    /// The columns, separated by one space. A column written as `"name"` is in quotes, and a column
    /// written as `[name]` is in brackets. `{captures}` may be missing, and ends before a quote. If
    /// a column has the name of a field, it contains that field. `request` contains the method, the
    /// target and the protocol.
    pub(crate) columns: &'static str,
}

/// The plain text formats. A format is listed before any other format that also matches its lines.
pub(crate) const TEXTS: [Text; 8] = [
    Text {
        format: Format::NginxMain,
        columns: r#"ip ident user [time] "request" status bytes "referer" "user-agent" "forwarded""#,
    },
    Text {
        format: Format::Combined,
        columns: r#"ip ident user [time] "request" status bytes "referer" "user-agent""#,
    },
    Text { format: Format::Common, columns: r#"ip ident user [time] "request" status bytes"# },
    Text {
        format: Format::VhostCombined,
        columns: r#"host ip ident user [time] "request" status bytes "referer" "user-agent""#,
    },
    Text { format: Format::VhostCommon, columns: r#"host ip ident user [time] "request" status bytes"# },
    Text {
        format: Format::Alb,
        columns: r#"type time balancer ip:port target:port request-time target-time response-time status target-status received-bytes bytes "request" "user-agent""#,
    },
    Text {
        format: Format::Haproxy,
        columns: r#"ip:port [time] frontend server timers/duration status bytes request-cookie response-cookie termination connections queues {captures} "request""#,
    },
    Text {
        format: Format::Envoy,
        columns: r#"[time] "request" status flags received-bytes bytes duration upstream-time "forwarded" "user-agent" "request-id" "host" "upstream""#,
    },
];

/// The types of requests in the first column of [`Format::Alb`].
pub(crate) const ALB_TYPES: [&[u8]; 6] = [b"http", b"https", b"h2", b"grpcs", b"ws", b"wss"];

/// Our names for the columns of [`Format::W3c`], with their names in the logs in order of
/// preference. `cs-uri-query` is a part of the field `uri`.
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

/// The [`Format::W3c`] column that only CloudFront writes. CloudFront logs durations in seconds,
/// and IIS does not.
pub(crate) const CLOUDFRONT_COLUMN: &str = "x-edge-location";

/// The JSON log of a server.
pub(crate) struct Dialect {
    pub(crate) format: Format,
    /// Fields that occur in every record of a request, but in no message of the server.
    pub(crate) marks: &'static [&'static str],
    /// Our names for fields, with their possible names in the log. If a field has several names,
    /// the first that occurs in the log's first record is used.
    pub(crate) fields: &'static [(&'static str, &'static [&'static str])],
    pub(crate) headers: Headers,
}

/// The fields of a JSON log that contain headers of requests.
#[derive(Clone, Copy)]
pub(crate) enum Headers {
    None,
    /// The field's name is this prefix, followed by the capitalised name of the header, as in
    /// `User-Agent`.
    Capitalised(&'static str),
}

/// The servers whose JSON logs are known.
pub(crate) const DIALECTS: [Dialect; 3] = [
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
        headers: Headers::Capitalised("request.headers."),
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
        headers: Headers::Capitalised("request_"),
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
        headers: Headers::None,
    },
];
