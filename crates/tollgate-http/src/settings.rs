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
//! A limit is written as `NAME=QUOTA by KEY`:
//!
//! - `QUOTA` is parsed as a [`Quota`](tollgate::Quota): `100/s`, `5/10s`, `1000/h burst 50`.
//! - `KEY` is `ip`, `method`, `path` (without the query), `header NAME` or `query NAME`. Several
//!   joined with `+` form one key, as in `ip+path`; `or` adds an alternative for requests that lack
//!   the first; `nothing` counts all requests together.
//! - `known FILE` after a header or parameter takes only values that are a line of the file, as in
//!   `header x-api-key known /etc/tollgate/keys or ip`: a client that makes up a key is counted by
//!   its address. The name of the file has no space and no `+`.
//! - `else deny`, `else allow` and `else share` after the key choose what happens to requests
//!   without a key ([`WhenNoKey`](crate::WhenNoKey)). The default is `deny`.
//!
//! # Classes
//!
//! Callers may be of classes with quotas of their own:
//!
//! ```text
//! api=10/min class paid 1000/min by header x-api-key or ip class by header x-class
//! ```
//!
//! - `class NAME QUOTA` after the limit's quota adds a class. All others have the limit's quota.
//! - `class by header NAME` at the end takes the class from a header, from trusted proxies only
//!   ([`ClassBy::header`](crate::ClassBy::header)).
//! - `class by header NAME in FILE`, or `class by query NAME in FILE`, looks the value up in a file
//!   with lines `key,class` ([`ClassBy::file`](crate::ClassBy::file)). The name of the file has no
//!   space and no `+`.
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
//! skip-path = []
//! path-template = []
//! ipv6-prefix = 64
//! trust = []
//! # trust-hops = 1
//! forwarded-field = "x-forwarded-for"
//! ```
//!
//! A name that is not one of these is an error.

pub(crate) mod layer_settings;
pub(crate) mod local;
#[cfg(feature = "serde")]
mod read;

pub use crate::path::template::PathTemplate;
pub use crate::text::error::TextError;
pub use crate::text::limit::LimitText;
pub use crate::text::path::PathText;
pub use layer_settings::LayerSettings;
