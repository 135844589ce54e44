//! Warnings about settings that are valid but may not be intended.

use std::fmt;

/// A limit that is weaker than it appears to be, or whose saved counts are of no use; see
/// [`warnings`](crate::RateLimitBuilder::warnings).
///
/// ```
/// use tollgate::{Limiter, Quota};
/// use tollgate_http::{KeyBy, Limit, RateLimitLayer, WhenNoKey};
///
/// let limiter = Limiter::builder(Quota::per_hour(1000)).build()?;
/// let limit = Limit::new("per-key", limiter)
///     .by(KeyBy::header("x-api-key"))
///     .when_no_key(WhenNoKey::Deny);
/// let builder = RateLimitLayer::builder().limit(limit);
/// assert!(builder.warnings()[0].to_string().contains("any client can invent"));
/// # Ok::<(), tollgate::ConfigError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum BuildWarning {
    /// A limit identifies clients only by a value that a client can invent: a header, a query
    /// parameter, or a path.
    InventedKey {
        /// The name of the limit.
        limit: String,
        /// The value that can be invented, such as "header `x-api-key`".
        key: String,
    },
    /// An exemption holds for every address of a family, so the limits never apply to clients with
    /// such an address.
    ExemptsEverybody {
        /// The name of the limit; `None` for an exemption from all limits.
        limit: Option<String>,
        /// `IPv4` or `IPv6`.
        family: &'static str,
    },
    /// The text of a limit allows everything to everybody.
    LimitsNothing {
        /// The name of the limit.
        limit: String,
    },
    /// A header decides whether a request is limited, but no proxy is trusted to set this header.
    /// Any client can therefore evade the limit.
    EvadedByHeader {
        /// The name of the limit; `None` for an exemption from all limits.
        limit: Option<String>,
        /// The name of the header.
        header: String,
    },
    /// A limit charges by [`Content-Length`](crate::RequestCost::content_length) and charges
    /// nothing for a request without this header, which any client can leave out.
    EvadedByLength {
        /// The name of the limit.
        limit: String,
    },
    /// The text of a limit contains an alternative that is never reached, because every request has
    /// the key before that alternative. If that key is the client's address, the alternative is
    /// reached only by requests whose address is unknown.
    NeverReached {
        /// The name of the limit.
        limit: String,
        /// The part that is never reached, such as `else allow`.
        text: String,
    },
    /// The settings contain path templates, but no limit has the key `path`, the only key that uses
    /// them.
    UnusedTemplate {
        /// The first template.
        template: String,
    },
    /// A limit, or a class of it, does not continue with its counts in the [saved
    /// state](crate::settings::SavedLimits), so each of its keys has a whole quota again.
    StartsFresh {
        /// The name of the limit.
        limit: String,
        /// The name of the class; `None` for the default class.
        class: Option<String>,
        /// Why the limit cannot continue.
        why: String,
    },
    /// A [saved state](crate::settings::SavedLimits) contains the counts of a limit, or of a class,
    /// that does not exist any more or has no rate any more.
    CountsDropped {
        /// The name of the limit.
        limit: String,
        /// The name of the class; `None` for the default class.
        class: Option<String>,
    },
}

impl fmt::Display for BuildWarning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::InventedKey { limit, key } => write!(
                f,
                "limit {limit:?} counts by {key}, which any client can invent: each invented one has a \
                 new quota, enough of them leave no place for others, and a client that names the one \
                 of another uses up that client's quota; say which are known with `.known(...)`, name \
                 paths with `KeyBy::path_templates`, or add the address with `.and(KeyBy::peer())`"
            ),
            Self::ExemptsEverybody { limit, family } => {
                match limit {
                    Some(limit) => write!(f, "limit {limit:?} exempts")?,
                    None => f.write_str("`except` exempts")?,
                }
                write!(f, " every {family} address: name smaller networks, or leave the exemption out")
            }
            Self::LimitsNothing { limit } => write!(
                f,
                "limit {limit:?} is `unlimited` for everybody, so it limits nothing: give it a quota or a class that \
                 has one, or leave it out"
            ),
            Self::EvadedByHeader { limit, header } => {
                match limit {
                    Some(limit) => write!(f, "limit {limit:?} is for some requests")?,
                    None => f.write_str("`except` exempts some requests")?,
                }
                write!(
                    f,
                    " by the header `{header}`, which any client can write or leave out: let a trusted proxy set it in \
                     each request and name that proxy (`trust`, `trust-hops`), or use another condition"
                )
            }
            Self::EvadedByLength { limit } => write!(
                f,
                "limit {limit:?} charges nothing for a request without `Content-Length`, which any client can leave \
                 out: charge such a request as well, as in `RequestCost::content_length(1024, 64)`"
            ),
            Self::NeverReached { limit, text } => write!(
                f,
                "limit {limit:?} has `{text}` behind a key that every request has (`ip` is missing only if the \
                 address is unknown), so it is never reached: leave it out, or put it before that key"
            ),
            Self::UnusedTemplate { template } => write!(
                f,
                "the path template `{template}` is not used, because no limit has the key `path`: add a limit such as \
                 `per-page=10/s by ip+path`, write the template after `for` to select requests, or leave it out"
            ),
            Self::StartsFresh { limit, class, why } => {
                let class = OfClass(class.as_deref());
                write!(f, "limit {limit:?}{class} begins without counts: {why}")
            }
            Self::CountsDropped { limit, class } => {
                let class = OfClass(class.as_deref());
                write!(
                    f,
                    "the saved counts of limit {limit:?}{class} are dropped: it does not exist any more, or counts no \
                     rate in this process"
                )
            }
        }
    }
}

/// The class of a limit in a sentence.
struct OfClass<'a>(Option<&'a str>);

impl fmt::Display for OfClass<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.map_or(Ok(()), |class| write!(f, ", class {class:?}"))
    }
}
