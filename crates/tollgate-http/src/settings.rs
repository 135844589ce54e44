//! Parses limits and layer settings from command-line arguments or a file.
//!
//! ```
//! use tollgate_http::settings::{LayerSettings, LimitText};
//!
//! let per_key: LimitText = "per-key=100/s burst 20 by header x-api-key or ip".parse()?;
//! let all: LimitText = "all=5000/s by nothing".parse()?;
//! let settings = LayerSettings { limits: vec![per_key, all], ..LayerSettings::default() };
//! let layer = settings.builder()?.build()?;
//!
//! let refused = "per-key=100/s by address".parse::<LimitText>().unwrap_err();
//! assert!(refused.to_string().starts_with("invalid key `address`: expected `ip`, `method`, "));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Form of a limit
//!
//! A limit has the form `NAME=QUOTA by KEY`. Everything after the key is optional:
//!
//! ```text
//! logins=5/min by ip for POST /login
//! api=10/s and 1000/d class paid 100/s by header x-api-key or ip class by key in customers.csv
//! ```
//!
//! - `KEY` is `ip`, `method`, `path` (without the query), `header NAME` or `query NAME`. Several of
//!   these joined with `+` form one key, as in `ip+path`; `or` adds an alternative for requests
//!   that lack the first key; `nothing` counts all requests together.
//! - `known FILE` after a header or parameter accepts only values listed in the file, one per line.
//!   With `header x-api-key known /etc/tollgate/keys or ip`, a client that invents a key is counted
//!   by its address. Without `FILE`, the known values are those in the [file of
//!   classes](#form-of-a-file-of-classes). A file name cannot contain a space or `+`.
//! - `else deny`, `else allow` and `else share` after the key specify what happens to requests
//!   without a key ([`WhenNoKey`](crate::WhenNoKey)). The default is `deny`. If every request has
//!   the key, the `else` has no effect and causes a [warning](crate::BuildWarning). An `else` after
//!   `ip` causes the warning too, although it applies to requests without an address.
//!
//! - `then pause TIME` at the end adds a penalty: a key that is refused by its quota stays refused
//!   for `TIME`, as in `logins=5/min by ip for POST /login then pause 10min`. Requests during the
//!   pause do not extend it; see [`Builder::penalty`](tollgate::Builder::penalty). The time has the
//!   units of a quota's period.
//!
//! # What a limit allows
//!
//! | text | each key may make |
//! |---|---|
//! | `100/s`, `5/10s`, `1000/h burst 50` | a rate: see [`Quota`](tollgate::Quota#text) |
//! | `100/min strict` | never more than 100 in any minute: see [`Quota::strict`](tollgate::Quota::strict) |
//! | `8 at once` | this many requests at a time; each counts until the end of its response |
//! | `10/s and 1000/d and 8 at once` | the requests that all of these allow |
//! | `unlimited` | any number |
//! | `blocked` | no request: each one is refused with status 403 |
//!
//! Several allowances are charged together or not at all. Responses and metrics show each allowance
//! as a separate limit, whose name has a suffix: `api-per-s`, `api-per-d`, `api-at-once`.
//!
//! # Which requests a limit is for
//!
//! `for` restricts a limit to some requests, and `except` exempts some. Conditions separated by
//! spaces must all hold. Alternatives are separated by `or`, and one of them suffices.
//!
//! | condition | holds for |
//! |---|---|
//! | `POST`, `GET,PUT` | these registered methods, in capitals; GET includes HEAD |
//! | `method PURGE` | a method that the server defines |
//! | `/login`, `/users/{id}`, `/files/{*path}` | a path: see [`PathTemplate`] |
//! | `host api.example.com`, `host *.example.com` | a host; all subdomains of a host; at any port |
//! | `host api.example.com:8443` | a host at one port other than 80 and 443 |
//! | `header x-beta` | requests with this header |
//! | `header x-plan=free`, `header x-plan="free trial"` | requests whose header has this value |
//! | `from 10.0.0.0/8` | clients in a network, found as for the key `ip`; a request without an address is in none |
//! | `preflight` | preflight requests of browsers (CORS) |
//!
//! Templates after `for` do not affect the key `path`, which is the path or, if `path-template` is
//! set, the path's template. A limit that no request could reach is an error.
//!
//! # Spellings
//!
//! Every server treats some spellings of a request alike, but servers differ in which. If a request
//! meets a condition only for some servers, the limit applies if the condition follows `for`, and
//! the request is not exempt if the condition follows `except`. This rule covers
//!
//! - paths: `/login/`, `/login;x`, `/%2Flogin`, `/a\..\login` and `/LOGIN` for `/login`;
//! - methods: `post` for `POST`;
//! - hosts and headers that occur twice, a host in the target that differs from the field `Host`,
//!   and hosts with encoded characters.
//!
//! A key never depends on such a spelling, except that the key `path` depends on case; the
//! templates of `path-template` do not. If the header or parameter of a key occurs twice, the
//! request is refused with status 400, or charged to the shared key of `else share`.
//!
//! The rule does not cover a method in a header such as `X-HTTP-Method-Override`, parameters
//! separated by `;`, paths that a server rewrites or decodes twice, and other names of a host: a
//! server that answers to any host is not limited by `for host`.
//!
//! # Classes
//!
//! A limit can define classes of callers, each with its own allowance. All other callers belong to
//! the class `default`, which has the limit's own allowance:
//!
//! ```text
//! api=10/min class paid 1000/min class staff unlimited by header x-api-key or ip class by header x-class
//! ```
//!
//! - `class NAME QUOTA` after the limit's quota adds a class. Only the class's own text applies to
//!   its callers: `10/s and 8 at once class paid 99/s` lets paid callers have any number of
//!   requests at once.
//! - `class by header NAME` at the end reads the class from a header set by a trusted proxy
//!   ([`ClassBy::header`](crate::ClassBy::header)).
//! - `class by key in FILE` looks up the limit's key in a file. `class by ip in FILE` looks up the
//!   client's address, and `class by header NAME in FILE` or `class by query NAME in FILE` looks up
//!   the value of that header or parameter.
//!
//! # Form of a file of classes
//!
//! Each line contains a value for each part of the key, followed by one of the limit's classes, or
//! by an allowance for this key alone. Values are separated by commas (CSV), and a value that
//! contains a comma is enclosed in double quotes. Spaces around a value, empty lines, and lines
//! that begin with `#` are ignored.
//!
//! ```text
//! k-7f3a,paid
//! k-90bd,default
//! k-1c55,300/min and 8 at once
//! 203.0.113.0/24,blocked
//! 203.0.113.7,unlimited
//! ```
//!
//! - With `class by key`, a line contains all parts of the key, as in `192.0.2.1,/login,5/min` for
//!   `ip+path`. If the key has alternatives, a line belongs to the first alternative that it fits,
//!   but a value that can be parsed as an address belongs to `ip`.
//! - If the key is an address, a line may contain a network. If several networks match, the one
//!   with the longest prefix counts. An IPv6 address stands for the network of one client
//!   (`ipv6-prefix`).
//! - The class `default` makes a key known without changing its quota.
//! - A quota that does not belong to a named class becomes a separate class, named after the text
//!   of the quota. A limit can have at most 64 of these classes. As with any other class, a key
//!   that changes its class starts anew in the new class.
//!
//! # What can be combined
//!
//! | where | a rate | `N at once` | `unlimited`, `blocked` |
//! |---|---|---|---|
//! | limit, class, line of a file | yes | yes | yes |
//! | limit of several machines (`tollgate proxy --redis`) | yes | if every class is `unlimited` or `blocked` | yes; the classes of a limit that is one of the two must be, too |
//! | [`Quota`](tollgate::Quota) in code | yes | [`InFlight`](tollgate::InFlight) | leave the limit out, or refuse the request before it |
//!
//! # Form of a file
//!
//! With the feature `serde`, [`LayerSettings`] can be deserialized from any format. The settings
//! have the same names as the options of `tollgate proxy`. This TOML file contains all settings.
//! Except for `limit`, the values are the defaults:
//!
//! ```toml
//! limit = ["all=5000/s by nothing", "per-key=1000/h by header x-api-key or ip"]
//! algorithm = "token-bucket"
//! max-keys = 1000000
//! when-full = "deny"
//! shadow = []
//! status = 429
//! except = []
//! path-template = []
//! ipv6-prefix = 64
//! trust = []
//! # trust-hops = 1
//! forwarded-field = "x-forwarded-for"
//! charge-if = {}
//! ```
//!
//! With `charge-if = { logins = "401, 403" }`, the limit `logins` counts only the requests whose
//! responses have one of these statuses.
//!
//! A limit can also be a table of its parts. The values of `for`, `except` and `class-by` contain
//! the text that would follow these words in a limit. The texts of a list are alternatives, of
//! which one suffices:
//!
//! ```toml
//! [[limit]]
//! name = "api"
//! quota = "10/min"
//! by = "header x-api-key known or ip"
//! for = ["/api/{*path}", "host api.example.com"]
//! except = "preflight"
//! class = { paid = "1000/min", staff = "unlimited" }
//! class-by = "key in /etc/tollgate/customers.csv"
//! ```
//!
//! Any other name is an error.

pub(crate) mod layer_settings;
pub(crate) mod local;
#[cfg(feature = "serde")]
mod read;
#[cfg(feature = "unstable-program")]
pub(crate) mod recorded;

pub use crate::limit::saved::SavedLimits;
pub use crate::path::template::PathTemplate;
pub use crate::text::allowance::Allowance;
pub use crate::text::error::TextError;
pub use crate::text::limit::{LimitPart, LimitText};
pub use crate::text::scope::Scope;
pub use crate::text::statuses::Statuses;
pub use layer_settings::LayerSettings;
