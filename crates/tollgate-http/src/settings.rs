//! Limits as text, and the settings of a layer, as a program reads them from arguments or a file.
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
//! A limit is written as `NAME=QUOTA by KEY`, and what follows the key is optional:
//!
//! ```text
//! logins=5/min by ip for POST /login
//! api=10/s and 1000/d class paid 100/s by header x-api-key or ip class by key in customers.csv
//! ```
//!
//! - `KEY` is `ip`, `method`, `path` (without the query), `header NAME` or `query NAME`. Several
//!   joined with `+` form one key, as in `ip+path`; `or` adds an alternative for requests that lack
//!   the first; `nothing` counts all requests together.
//! - `known FILE` after a header or parameter takes only values that are a line of the file, as in
//!   `header x-api-key known /etc/tollgate/keys or ip`: a client that makes up a key is counted by
//!   its address. Without `FILE`, the known values are those in the [file of
//!   classes](#form-of-a-file-of-classes). The name of a file has no space and no `+`.
//! - `else deny`, `else allow` and `else share` after the key choose what happens to requests
//!   without a key ([`WhenNoKey`](crate::WhenNoKey)). The default is `deny`. One that is never
//!   reached, because every request has the key, is a [warning](crate::BuildWarning).
//!
//! # What a limit allows
//!
//! | text | each key may make |
//! |---|---|
//! | `100/s`, `5/10s`, `1000/h burst 50` | a rate: see [`Quota`](tollgate::Quota#text) |
//! | `100/min strict` | never more than 100 in any minute: see [`Quota::strict`](tollgate::Quota::strict) |
//! | `8 at once` | so many requests at a time, until the ends of their responses |
//! | `10/s and 1000/d and 8 at once` | what all of these allow |
//! | `unlimited` | any number |
//! | `blocked` | none: refused with status 403, whatever the time |
//!
//! Several allowances are charged together or not at all. Each is a limit of its own in responses
//! and metrics, whose name has an end: `api-per-s`, `api-per-d`, `api-at-once`.
//!
//! # Which requests a limit is for
//!
//! `for` confines a limit to some requests, and `except` exempts some. Conditions that stand
//! together must all hold; `or` separates alternatives, of which one suffices.
//!
//! | condition | holds for |
//! |---|---|
//! | `POST`, `GET,PUT` | these methods, in capitals; GET includes HEAD |
//! | `/login`, `/users/{id}`, `/files/{*path}` | a path: see [`PathTemplate`] |
//! | `host api.example.com`, `host *.example.com` | a host; all hosts below one |
//! | `header x-beta` | requests with this header |
//! | `header x-plan=free`, `header x-plan="free trial"` | requests with this value of it |
//! | `from 10.0.0.0/8` | clients in a network, found as for the key `ip`; a request without an address is in none |
//! | `preflight` | preflight requests of browsers (CORS) |
//!
//! A key by `path` is the same in a limit for some paths: the path, or its `path-template` if there
//! are any, and not the template after `for`. A limit that no request could come to is refused.
//!
//! # Classes
//!
//! Callers may be of classes, each with an allowance of its own; all others are of the class
//! `default`, which has the limit's own:
//!
//! ```text
//! api=10/min class paid 1000/min class staff unlimited by header x-api-key or ip class by header x-class
//! ```
//!
//! - `class NAME QUOTA` after the limit's quota adds a class, which is allowed what its own text
//!   says and no more or less: `10/s and 8 at once class paid 99/s` lets paid callers have any
//!   number of requests at once.
//! - `class by header NAME` at the end takes the class from a header, from trusted proxies only
//!   ([`ClassBy::header`](crate::ClassBy::header)).
//! - `class by key in FILE` looks the limit's key up in a file, `class by ip in FILE` the client's
//!   address, and `class by header NAME in FILE` or `class by query NAME in FILE` that value.
//!
//! # Form of a file of classes
//!
//! A line has a value for each part of the key, and then a class of the limit, or what this key
//! alone is allowed. The values are separated by commas (CSV); one that has a comma stands in
//! double quotes. Spaces around a value do not count; empty lines, and lines that begin with `#`,
//! are skipped.
//!
//! ```text
//! k-7f3a,paid
//! k-90bd,default
//! k-1c55,300/min and 8 at once
//! 203.0.113.0/24,blocked
//! 203.0.113.7,unlimited
//! ```
//!
//! - With `class by key`, a key of several parts is spelled out, as `192.0.2.1,/login,5/min` for
//!   `ip+path`. Of a key with alternatives a line belongs to the first that it fits, but a value
//!   that reads as an address belongs to `ip`.
//! - Where the key is an address, a line may have a network. The longest network counts. An IPv6
//!   address means the network that one client has (`ipv6-prefix`).
//! - The class `default` makes a key known without changing its quota.
//! - Quotas that are not those of a class are classes whose name is their text, at most 64 for a
//!   limit. Keys of such a class are counted as in any other: a key that changes its class begins
//!   anew.
//!
//! # What can be combined
//!
//! | where | a rate | `N at once` | `unlimited`, `blocked` |
//! |---|---|---|---|
//! | limit, class, line of a file | yes | yes | yes |
//! | limit of several machines (`tollgate proxy --redis`) | yes | if no class has another number | yes, where a class counts only if the limit does |
//! | [`Quota`](tollgate::Quota) in code | yes | [`InFlight`](tollgate::InFlight) | leave the limit out, or refuse before it |
//!
//! # Form of a file
//!
//! With the feature `serde`, [`LayerSettings`] is read from any format, under the names of the
//! options of `tollgate proxy`. Here is all of it in TOML, with the defaults of all but `limit`:
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
//! ```
//!
//! A limit may also be a table of its parts. `for`, `except` and `class-by` have what follows these
//! words in the text:
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
//! A name that is not one of these is an error.

pub(crate) mod layer_settings;
pub(crate) mod local;
#[cfg(feature = "serde")]
mod read;
#[cfg(feature = "unstable-program")]
pub(crate) mod recorded;

pub use crate::path::template::PathTemplate;
pub use crate::text::allowance::Allowance;
pub use crate::text::error::TextError;
pub use crate::text::limit::{LimitPart, LimitText};
pub use crate::text::scope::Scope;
pub use layer_settings::LayerSettings;
