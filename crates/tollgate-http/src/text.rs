//! Limits as text: for programs that read them from arguments, files or variables.
//!
//! ```
//! use tollgate_http::text::LimitText;
//! use tollgate_http::{Key, KeyBy, Limit};
//! use tollgate::Limiter;
//!
//! let text: LimitText = "per-key=100/s burst 20 by header x-api-key or ip".parse()?;
//! let limiter = Limiter::<Key>::builder(text.quota).build()?;
//! let limit = match &text.key {
//!     Some(key) => Limit::new(&text.name, limiter, key.key_by(KeyBy::peer)).when_no_key(key.no_key),
//!     None => unreachable!("it names a key"),
//! };
//!
//! let refused = "per-key=100/s by address".parse::<LimitText>().unwrap_err();
//! assert!(refused.to_string().starts_with("'address' is no key; allowed: ip, method, path"));
//! # let _ = limit;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Form
//!
//! `NAME=QUOTA by KEY`. A quota is that of [`Quota`](tollgate::Quota): `100/s`, `5/10s`,
//! `1000/h burst 50`. A key is `ip`, `method`, `path` (without the query), `header NAME` or
//! `query NAME`; several joined with `+` count together, as in `ip+path`; `or` gives an alternative
//! for requests without the first; `nothing` counts all requests together. `else deny`,
//! `else allow` and `else share` say what becomes of requests without a key
//! ([`WhenNoKey`](crate::WhenNoKey)).

mod error;
mod limit;
mod path;
mod printable;
mod quota;

pub use error::TextError;
pub use limit::{KeyText, LimitText, Part};
pub use path::PathText;
pub use printable::printable;
pub use quota::parse_quota;
