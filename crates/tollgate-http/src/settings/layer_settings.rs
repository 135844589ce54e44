//! The settings, and the layer that is built from them.

use super::local::LocalLimiter;
use crate::class::by::ClassBy;
use crate::client::address::DEFAULT_IPV6_PREFIX;
use crate::client::forwarded::{ForwardedField, TrustedProxies};
use crate::error::{Fault, LayerError};
use crate::key::by::KeyBy;
use crate::layer::builder::RateLimitBuilder;
use crate::layer::service::RateLimitLayer;
use crate::limit::backend::Backend;
use crate::limit::named::Limit;
use crate::path::template::PathTemplate;
use crate::text::classes::ClassByText;
use crate::text::limit::LimitText;
use crate::text::path::PathText;
use http::StatusCode;
use tollgate::{Algorithm, WhenFull};

/// The settings of a set of limits: all that a [`RateLimitLayer`] needs to be built from arguments
/// or from a file.
///
/// ```
/// use tollgate_http::settings::LayerSettings;
///
/// let settings = LayerSettings {
///     limits: vec!["all=5000/s by nothing".parse()?, "per-ip=100/s by ip".parse()?],
///     max_keys: 100_000,
///     skipped_paths: vec!["/health".parse()?],
///     ..LayerSettings::default()
/// };
/// let layer = settings.builder()?.build()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// With the feature `serde` it is read from a file, under [these names](crate::settings).
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(default, deny_unknown_fields, rename_all = "kebab-case")
)]
pub struct LayerSettings {
    /// The limits: `limit` in a file. A request must pass all of them.
    #[cfg_attr(feature = "serde", serde(rename = "limit"))]
    pub limits: Vec<LimitText>,
    /// The algorithm that enforces the limits; the token bucket by default.
    pub algorithm: Algorithm,
    /// The most keys that each limit may track; a million by default.
    pub max_keys: usize,
    /// What a new key gets while a limit tracks its maximum. By default it is denied.
    pub when_full: WhenFull,
    /// The names of the limits that decide but refuse nothing: `shadow` in a file.
    #[cfg_attr(feature = "serde", serde(rename = "shadow"))]
    pub shadows: Vec<String>,
    /// The status of refusals, from 400 to 599; 429 by default.
    #[cfg_attr(
        feature = "serde",
        serde(deserialize_with = "super::read::status", serialize_with = "super::read::write_status")
    )]
    pub status: StatusCode,
    /// The paths that no limit applies to: `skip-path` in a file.
    #[cfg_attr(feature = "serde", serde(rename = "skip-path"))]
    pub skipped_paths: Vec<PathText>,
    /// The templates of paths that keys by `path` go by: `path-template` in a file. By default each
    /// path, in its [canonical form](crate::RequestHead::path), is a key; see
    /// [`KeyBy::path_templates`].
    #[cfg_attr(feature = "serde", serde(rename = "path-template"))]
    pub path_templates: Vec<PathTemplate>,
    /// How many bits of an IPv6 address identify a client, from 1 to 128; 64 by default.
    #[cfg_attr(feature = "serde", serde(deserialize_with = "super::read::ipv6_prefix"))]
    pub ipv6_prefix: u8,
    /// The networks of the proxies whose statements about the client are trusted:
    /// [`TrustedProxies::networks`]. Without these and [`trust_hops`](Self::trust_hops), the client
    /// is the peer.
    #[cfg_attr(feature = "serde", serde(deserialize_with = "super::read::networks"))]
    pub trust: Vec<String>,
    /// How many proxies each request passes: [`TrustedProxies::hops`].
    #[cfg_attr(
        feature = "serde",
        serde(deserialize_with = "super::read::hops", skip_serializing_if = "Option::is_none")
    )]
    pub trust_hops: Option<usize>,
    /// The field in which trusted proxies name the client; `X-Forwarded-For` by default.
    pub forwarded_field: ForwardedField,
}

impl Default for LayerSettings {
    fn default() -> Self {
        Self {
            limits: Vec::new(),
            algorithm: Algorithm::TokenBucket,
            max_keys: 1_000_000,
            when_full: WhenFull::Deny,
            shadows: Vec::new(),
            status: StatusCode::TOO_MANY_REQUESTS,
            skipped_paths: Vec::new(),
            path_templates: Vec::new(),
            ipv6_prefix: DEFAULT_IPV6_PREFIX,
            trust: Vec::new(),
            trust_hops: None,
            forwarded_field: ForwardedField::XForwardedFor,
        }
    }
}

impl LayerSettings {
    /// Returns the builder of a layer with these limits, all with limiters of this process.
    ///
    /// # Errors
    ///
    /// The errors of [`builder_with`](Self::builder_with); a quota, or a number of keys, that the
    /// algorithm cannot enforce.
    pub fn builder(&self) -> Result<RateLimitBuilder, LayerError> {
        self.builder_with(|limit| self.local(limit))
    }

    /// Returns the builder of a layer with these limits. `make` returns the limiter of each: of
    /// this process, to look at or to change while the layer runs, or of several machines. A limit
    /// whose text says `by nothing` may have a [`SingleLimiter`](tollgate::SingleLimiter), any
    /// other has a state for each key. Names, keys, the way to classes, and shadow mode are set
    /// here.
    ///
    /// # Errors
    ///
    /// An error of `make`; a name in `shadows` that no limit has; trusted proxies or templates of
    /// paths that are not valid, even if no limit uses them; a key that cannot be found as its text
    /// says, for example because the file of known keys cannot be read; classes that cannot be
    /// found, or that any client could choose.
    ///
    /// ```
    /// use std::sync::Arc;
    /// use tollgate::{Limiter, Quota};
    /// use tollgate_http::settings::LayerSettings;
    /// use tollgate_http::{Key, LayerError};
    ///
    /// let limits = vec!["per-ip=100/s by ip".parse()?];
    /// let settings = LayerSettings { limits, ..LayerSettings::default() };
    /// let limiter: Arc<Limiter<Key>> =
    ///     Arc::new(Limiter::builder(settings.limits[0].quota).max_keys(10_000).build()?);
    /// let layer = settings
    ///     .builder_with(|_| Ok::<_, LayerError>(Arc::clone(&limiter)))?
    ///     .build()?;
    /// // The limiter is at hand while the layer runs.
    /// limiter.set_quota(Quota::per_second(50))?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn builder_with<B: Into<Backend>, E: From<LayerError>>(
        &self,
        mut make: impl FnMut(&LimitText) -> Result<B, E>,
    ) -> Result<RateLimitBuilder, E> {
        self.check()?;
        let mut builder = RateLimitLayer::builder().status(self.status);
        for text in &self.limits {
            let mut limit = Limit::new(&text.name, make(text)?);
            if let Some(key) = &text.key {
                let client = || self.client().ipv6_prefix(self.ipv6_prefix);
                limit = limit.by(key.key_by(client, || self.path())).when_no_key(key.no_key);
            }
            if let Some(class) = self.class_by(text)? {
                limit = limit.class_by(class);
            }
            let of_key = limit.by.as_ref().and_then(KeyBy::error);
            if let Some(error) = of_key.or_else(|| limit.class_by.as_ref().and_then(ClassBy::error)) {
                let error = Fault::Key { limit: text.name.clone(), error: Box::new(error.clone()) };
                return Err(LayerError::from(error).into());
            }
            builder = builder.limit(if self.shadows.contains(&text.name) { limit.shadow() } else { limit });
        }
        let paths = self.skipped_paths.clone();
        if paths.is_empty() {
            return Ok(builder);
        }
        Ok(builder.skip(move |head| {
            let path = head.path();
            paths.iter().any(|skipped| skipped.as_str() == path)
        }))
    }

    /// Makes the limiter of a limit, of this process.
    ///
    /// # Errors
    ///
    /// A quota, or a number of keys, that the algorithm cannot enforce.
    pub(crate) fn local(&self, limit: &LimitText) -> Result<LocalLimiter, LayerError> {
        let limiter = LocalLimiter::new(limit, self.algorithm, self.max_keys, self.when_full);
        limiter.map_err(|error| Fault::Limiter { limit: limit.name.clone(), error }.into())
    }

    /// Returns how the class of a request is found; `None` without classes. The file of classes is
    /// read now.
    ///
    /// # Errors
    ///
    /// A header that names the class, although no proxy is trusted: any client could write it.
    fn class_by(&self, limit: &LimitText) -> Result<Option<ClassBy>, LayerError> {
        let Some(by) = &limit.class_by else { return Ok(None) };
        Ok(Some(match by {
            ClassByText::Header(header) => {
                let untrusted = || Fault::ClassHeader { limit: limit.name.clone(), header: header.clone() };
                ClassBy::header(header, self.proxies().ok_or_else(untrusted)?)
            }
            ClassByText::HeaderIn { header, file } => ClassBy::file(KeyBy::header(header), file),
            ClassByText::QueryIn { parameter, file } => ClassBy::file(KeyBy::query(parameter), file),
        }))
    }

    /// Returns the key `path`: the path, or its template if there are any.
    pub(crate) fn path(&self) -> KeyBy {
        if self.path_templates.is_empty() {
            return KeyBy::path();
        }
        KeyBy::path_templates(self.path_templates.iter().map(PathTemplate::as_str))
    }

    /// Returns the key `ip` with all bits of an address that count by default: the peer, or what
    /// trusted proxies say. A setting that is not valid shows when the layer is built.
    pub(crate) fn client(&self) -> KeyBy {
        match self.proxies() {
            Some(proxies) => KeyBy::forwarded(self.forwarded_field, proxies),
            None => KeyBy::peer(),
        }
    }

    /// Returns the proxies in front of this process, if there are any.
    pub(crate) fn proxies(&self) -> Option<TrustedProxies> {
        let networks = || (!self.trust.is_empty()).then(|| TrustedProxies::networks(self.trust.clone()));
        self.trust_hops.map(TrustedProxies::hops).or_else(networks)
    }

    fn check(&self) -> Result<(), LayerError> {
        let is_limit = |name: &&String| self.limits.iter().any(|limit| limit.name == **name);
        if let Some(name) = self.shadows.iter().find(|name| !is_limit(name)) {
            let limits = self.limits.iter().map(|limit| limit.name.clone()).collect();
            return Err(Fault::Shadow { name: name.clone(), limits }.into());
        }
        if let (Some(hops), false) = (self.trust_hops, self.trust.is_empty()) {
            return Err(Fault::Trust { networks: self.trust.clone(), hops }.into());
        }
        // Also if no limit uses them.
        if let Some(error) = self.path().error() {
            return Err(error.clone().into());
        }
        match self.proxies() {
            Some(proxies) => Ok(proxies.check()?),
            None => Ok(()),
        }
    }
}
