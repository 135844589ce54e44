//! The settings of a set of limits, as a program reads them from arguments or a file.
//!
//! With the feature `serde`, [`LimitSettings`] is read from any format, under the names of the
//! options of `tollgate proxy`. Here is all of it in TOML, with the defaults of all but `limit`:
//!
//! ```toml
//! limit = ["all=5000/s by nothing", "per-key=1000/h by header x-api-key or ip"]
//! algorithm = "token-bucket"
//! max-keys = 1000000
//! full = "deny"
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

mod error;
mod limits;
mod local;
#[cfg(feature = "serde")]
mod read;

pub use error::SettingsError;
pub use limits::LimitSettings;
pub use local::LocalLimiter;
