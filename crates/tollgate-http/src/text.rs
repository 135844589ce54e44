//! Limits as text, for programs that read them from arguments, files or environment variables.
//!
//! ```
//! use tollgate_http::text::LimitText;
//! use tollgate_http::{Key, KeyBy, Limit};
//! use tollgate::Limiter;
//!
//! let text: LimitText = "per-key=100/s burst 20 by header x-api-key or ip".parse()?;
//! let limiter = Limiter::<Key>::builder(text.quota).build()?;
//! let limit = match &text.key {
//!     Some(key) => Limit::new(&text.name, limiter, key.key_by(KeyBy::peer, KeyBy::path))
//!         .when_no_key(key.no_key),
//!     None => unreachable!("it names a key"),
//! };
//!
//! let refused = "per-key=100/s by address".parse::<LimitText>().unwrap_err();
//! assert!(refused.to_string().starts_with("invalid key `address`: expected `ip`, `method`, "));
//! # let _ = limit;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Form
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
//! Callers may be of classes, such as plans, with quotas of their own:
//!
//! ```text
//! api=10/min class paid 1000/min by header x-api-key or ip class by header x-plan
//! ```
//!
//! - `class NAME QUOTA` after the limit's quota adds a class. All others have the limit's quota.
//! - `class by header NAME` at the end takes the class from a header, from trusted proxies only
//!   ([`ClassBy::header`](crate::ClassBy::header)).
//! - `class by header NAME in FILE`, or `class by query NAME in FILE`, looks the value up in a file
//!   with lines `key,class` ([`ClassBy::file`](crate::ClassBy::file)). The name of the file has no
//!   space and no `+`.

#[cfg(feature = "serde")]
mod by_text;
mod classes;
pub(crate) mod error;
mod limit;
mod path;
pub(crate) mod printable;
mod quota;
mod words;

pub use crate::path::template::PathTemplate;
pub use classes::{ClassByText, ClassesText};
pub use error::TextError;
pub use limit::{KeyText, LimitText, Part};
pub use path::PathText;
pub use printable::printable;
pub use quota::parse_quota;
