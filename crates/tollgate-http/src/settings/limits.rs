//! The settings, and the layer that is built from them.

use super::error::SettingsError;
use super::local::LocalLimiter;
use crate::class::by::ClassBy;
use crate::client::address::DEFAULT_IPV6_PREFIX;
use crate::client::forwarded::{ForwardedField, TrustedProxies};
use crate::key::by::KeyBy;
use crate::key::parts::Key;
use crate::layer::builder::RateLimitBuilder;
use crate::layer::service::RateLimitLayer;
use crate::limit::named::Limit;
use crate::text::{ClassByText, LimitText, PathTemplate, PathText};
use http::StatusCode;
use std::sync::Arc;
use tollgate::{
    Algorithm, Builder, Class, ClassBuilder, ConfigError, Limiter, Quota, SingleLimiter, Store, WhenFull,
};

/// The settings of a set of limits: all that a [`RateLimitLayer`] needs to be built from arguments
/// or from a file.
///
/// ```
/// use tollgate_http::settings::LimitSettings;
///
/// let settings = LimitSettings {
///     limits: vec!["all=5000/s by nothing".parse()?, "per-ip=100/s by ip".parse()?],
///     max_keys: 100_000,
///     skipped_paths: vec!["/health".parse()?],
///     ..LimitSettings::default()
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
pub struct LimitSettings {
    /// The limits: `limit` in a file. A request must pass all of them.
    #[cfg_attr(feature = "serde", serde(rename = "limit"))]
    pub limits: Vec<LimitText>,
    /// The algorithm that enforces the limits; the token bucket by default.
    pub algorithm: Algorithm,
    /// The most keys that each limit may track; a million by default.
    pub max_keys: usize,
    /// What a new key gets while a limit tracks its maximum: `full` in a file. By default it is
    /// denied.
    #[cfg_attr(feature = "serde", serde(rename = "full"))]
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
    /// path, in its [canonical form](crate::canonical_path), is a key; see
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
    /// The header in which trusted proxies name the client; `X-Forwarded-For` by default.
    pub forwarded_field: ForwardedField,
}

impl Default for LimitSettings {
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

impl LimitSettings {
    /// Returns the builder of a layer with these limits, all with limiters of this process.
    ///
    /// # Errors
    ///
    /// The errors of [`builder_with`](Self::builder_with) and of [`local`](Self::local).
    pub fn builder(&self) -> Result<RateLimitBuilder, SettingsError> {
        self.builder_with(|limit| self.local(limit).map(|(limit, _)| limit))
    }

    /// Returns the builder of a layer with these limits. `make` makes each of them: by
    /// [`local`](Self::local), or over a limiter of the caller's own, with keys by
    /// [`key_by`](Self::key_by). What happens to requests without a key, how classes are found, and
    /// shadow mode, is set here.
    ///
    /// # Errors
    ///
    /// An error of `make`; a name in `shadows` that no limit has; trusted proxies or templates of
    /// paths that are not valid, even if no limit uses them; a key that cannot be found as its text
    /// says, for example because the file of known keys cannot be read; classes that cannot be
    /// found, or that any client could choose.
    ///
    /// ```
    /// use tollgate_http::settings::{LimitSettings, SettingsError};
    ///
    /// let limits = vec!["all=5000/s by nothing".parse()?, "per-ip=100/s by ip".parse()?];
    /// let settings = LimitSettings { limits, ..LimitSettings::default() };
    /// let mut limiters = Vec::new();
    /// let layer = settings
    ///     .builder_with(|text| {
    ///         let (limit, limiter) = settings.local(text)?;
    ///         limiters.push(limiter);
    ///         Ok::<_, SettingsError>(limit)
    ///     })?
    ///     .build()?;
    /// // The limiters are at hand while the layer runs.
    /// limiters[1].set_quota("50/s".parse()?)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn builder_with<E: From<SettingsError>>(
        &self,
        mut make: impl FnMut(&LimitText) -> Result<Limit, E>,
    ) -> Result<RateLimitBuilder, E> {
        self.check()?;
        let mut builder = RateLimitLayer::builder().status(self.status);
        for text in &self.limits {
            let mut limit = make(text)?;
            if let Some(by) = self.class_by(text)? {
                limit = limit.class_by(by);
            }
            let of_key = limit.by.as_ref().and_then(KeyBy::error);
            if let Some(error) = of_key.or_else(|| limit.class_by.as_ref().and_then(ClassBy::error)) {
                let error = SettingsError::Key { limit: text.name.clone(), error: error.clone() };
                return Err(error.into());
            }
            if let Some(key) = &text.key {
                limit = limit.when_no_key(key.no_key);
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

    /// Makes a limit of this process; also returns its limiter, to look at or to change while the
    /// layer runs.
    ///
    /// # Errors
    ///
    /// A quota, or a number of keys, that the algorithm cannot enforce.
    pub fn local(&self, limit: &LimitText) -> Result<(Limit, LocalLimiter), SettingsError> {
        self.limiter(limit).map_err(|error| SettingsError::Limiter { limit: limit.name.clone(), error })
    }

    fn limiter(&self, limit: &LimitText) -> Result<(Limit, LocalLimiter), ConfigError> {
        let limiter = if limit.key.is_none() {
            let single = SingleLimiter::builder(limit.quota).algorithm(self.algorithm).build()?;
            LocalLimiter::Single(Arc::new(single))
        } else {
            let builder = Limiter::<Key>::builder(limit.quota)
                .algorithm(self.algorithm)
                .max_keys(self.max_keys)
                .when_full(self.when_full);
            // An algorithm whose state does not fit a word needs exact keys.
            let is_exact = !Algorithm::PACKED.contains(&self.algorithm);
            let classes = limit.classes.as_ref().and_then(|classes| classes.quotas.split_first());
            match (is_exact, classes) {
                (false, None) => LocalLimiter::Keyed(Arc::new(builder.build()?)),
                (true, None) => LocalLimiter::Exact(Arc::new(builder.exact_keys().build()?)),
                (false, Some(classes)) => {
                    let limiter = with_classes(builder, classes).build()?;
                    LocalLimiter::KeyedClass(Arc::new(limiter), Class::default())
                }
                (true, Some(classes)) => {
                    let limiter = with_classes(builder.exact_keys(), classes).build()?;
                    LocalLimiter::ExactClass(Arc::new(limiter), Class::default())
                }
            }
        };
        Ok((self.limit_over(limit, &limiter), limiter))
    }

    /// Makes a limit over a limiter that [`local`](Self::local) returned earlier, so that its keys
    /// keep their state when the settings are read anew. The quota stays the limiter's: see
    /// [`LocalLimiter::set_quota`]. A limiter without keys counts all requests together, whatever
    /// the limit's key.
    pub fn limit_over(&self, limit: &LimitText, limiter: &LocalLimiter) -> Limit {
        let name = &limit.name;
        let by = || self.key_by(limit).unwrap_or_else(KeyBy::peer);
        match limiter {
            LocalLimiter::Single(limiter) => Limit::global(name, Arc::clone(limiter)),
            LocalLimiter::Keyed(limiter) => Limit::new(name, Arc::clone(limiter), by()),
            LocalLimiter::Exact(limiter) => Limit::new(name, Arc::clone(limiter), by()),
            LocalLimiter::KeyedClass(limiter, _) => Limit::new(name, Arc::clone(limiter), by()),
            LocalLimiter::ExactClass(limiter, _) => Limit::new(name, Arc::clone(limiter), by()),
        }
    }

    /// Returns how the class of a request is found; `None` without classes. The file of classes is
    /// read now.
    ///
    /// # Errors
    ///
    /// A header that names the class, although no proxy is trusted: any client could write it.
    pub fn class_by(&self, limit: &LimitText) -> Result<Option<ClassBy>, SettingsError> {
        let Some(classes) = &limit.classes else { return Ok(None) };
        Ok(Some(match &classes.by {
            ClassByText::Header(header) => {
                let untrusted =
                    || SettingsError::ClassHeader { limit: limit.name.clone(), header: header.clone() };
                ClassBy::header(header, self.proxies().ok_or_else(untrusted)?)
            }
            ClassByText::HeaderIn { header, file } => ClassBy::file(KeyBy::header(header), file),
            ClassByText::QueryIn { parameter, file } => ClassBy::file(KeyBy::query(parameter), file),
        }))
    }

    /// Returns how the keys of a limit are found; `None` if all requests are counted together.
    pub fn key_by(&self, limit: &LimitText) -> Option<KeyBy> {
        let client = || self.client().ipv6_prefix(self.ipv6_prefix);
        limit.key.as_ref().map(|key| key.key_by(client, || self.path()))
    }

    /// Returns the key `path`: the path, or its template if there are any.
    pub fn path(&self) -> KeyBy {
        if self.path_templates.is_empty() {
            return KeyBy::path();
        }
        KeyBy::path_templates(self.path_templates.iter().map(PathTemplate::as_str))
    }

    /// Returns the key `ip` with all bits of an address that count by default: the peer, or what
    /// trusted proxies say. A setting that is not valid shows when the layer is built.
    pub fn client(&self) -> KeyBy {
        match self.proxies() {
            Some(proxies) => KeyBy::forwarded(self.forwarded_field, proxies),
            None => KeyBy::peer(),
        }
    }

    /// Returns the proxies in front of this process, if there are any.
    pub fn proxies(&self) -> Option<TrustedProxies> {
        let networks = || (!self.trust.is_empty()).then(|| TrustedProxies::networks(self.trust.clone()));
        self.trust_hops.map(TrustedProxies::hops).or_else(networks)
    }

    fn check(&self) -> Result<(), SettingsError> {
        let is_limit = |name: &&String| self.limits.iter().any(|limit| limit.name == **name);
        if let Some(name) = self.shadows.iter().find(|name| !is_limit(name)) {
            let limits = self.limits.iter().map(|limit| limit.name.clone()).collect();
            return Err(SettingsError::Shadow { name: name.clone(), limits });
        }
        if let (Some(hops), false) = (self.trust_hops, self.trust.is_empty()) {
            return Err(SettingsError::Trust { networks: self.trust.clone(), hops });
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

/// Adds classes to the builder of a limiter: the first, and the others.
fn with_classes<S: Store>(
    builder: Builder<Limiter<Key, S>>,
    ((name, quota), others): (&(String, Quota), &[(String, Quota)]),
) -> ClassBuilder<Key, S> {
    let first = builder.class(name, *quota);
    others.iter().fold(first, |builder, (name, quota)| builder.class(name, *quota))
}
