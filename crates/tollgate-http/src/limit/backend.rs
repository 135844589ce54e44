//! The limiters that a limit can be built over.

use super::any_limiter::AnyLimiter;
use super::async_in_flight::AsyncInFlight;
use super::async_limiter::AsyncLimiter;
use super::saved::Savable;
use crate::key::parts::{Key, KeyRef};
use std::fmt;
use std::sync::Arc;
use tollgate::store::Accepts;
use tollgate::{ClassLimiter, InFlight, Limiter, SingleLimiter};

/// The limiter behind a [`Limit`](crate::Limit), of any type.
///
/// [`Limit::new`](crate::Limit::new) accepts any type that converts into a backend:
///
/// | Limiter | One state for | Counts are |
/// |---|---|---|
/// | [`SingleLimiter`], or an `Arc` of it | all requests | of this process |
/// | [`Limiter<Key>`](Limiter), or an `Arc` of it | each [key](crate::KeyBy) | of this process |
/// | [`ClassLimiter<Key>`](ClassLimiter), or an `Arc` of it | each key of a [class](crate::ClassBy) | of this process |
/// | [`InFlight<Key>`](InFlight) | the requests in flight of each key | of this process |
/// | any [`AsyncLimiter`] | each key | shared with other machines |
/// | any [`AsyncInFlight`], by [`in_flight`](Self::in_flight) | the requests in flight of each key | shared with other machines |
///
/// A function that creates limits can accept this type, or `impl Into<Backend>`:
///
/// ```
/// use std::sync::Arc;
/// use tollgate::{Limiter, Quota, SingleLimiter};
/// use tollgate_http::{Backend, Key, KeyBy, Limit, WhenNoKey};
///
/// fn per_address(limiter: impl Into<Backend>) -> Limit {
///     Limit::new("per-address", limiter).by(KeyBy::peer()).when_no_key(WhenNoKey::Deny)
/// }
///
/// // With an `Arc`, the limiter can be checked and changed while the layer runs.
/// let limiter: Arc<Limiter<Key>> = Arc::new(Limiter::builder(Quota::per_second(10)).build()?);
/// let limit = per_address(Arc::clone(&limiter));
/// # Ok::<(), tollgate::ConfigError>(())
/// ```
pub struct Backend {
    /// The only limiter, or the limiter of the default class.
    pub(crate) default: AnyLimiter,
    /// The name of the default class; `None` without classes.
    pub(crate) default_name: Option<String>,
    /// The other classes.
    pub(crate) classes: Vec<(String, AnyLimiter)>,
    /// The limiters that a layer saves, if they were created from settings.
    pub(crate) savable: Vec<Savable>,
}

impl Backend {
    /// Creates a backend that limits how many requests are in flight at the same time across
    /// several machines.
    ///
    /// ```
    /// use tollgate_http::{AsyncInFlight, Backend, KeyBy, Limit, WhenNoKey};
    ///
    /// fn limit(jobs: impl AsyncInFlight + 'static) -> Limit {
    ///     Limit::new("jobs", Backend::in_flight(jobs))
    ///         .by(KeyBy::header("x-api-key"))
    ///         .when_no_key(WhenNoKey::Deny)
    /// }
    /// ```
    pub fn in_flight(limit: impl AsyncInFlight + 'static) -> Self {
        Self::new(AnyLimiter::SharedInFlight(Arc::new(limit)))
    }

    pub(crate) fn new(default: AnyLimiter) -> Self {
        Self { default, default_name: None, classes: Vec::new(), savable: Vec::new() }
    }

    /// Creates a backend from these classes, starting with the default class. Returns `None` if
    /// there are no classes.
    pub(crate) fn of_classes(mut classes: impl Iterator<Item = (String, AnyLimiter)>) -> Option<Self> {
        let (name, default) = classes.next()?;
        Some(Self { default_name: Some(name), classes: classes.collect(), ..Self::new(default) })
    }
}

/// A limiter that [`Limit::new`](crate::Limit::new) accepts: any type that converts into a
/// [`Backend`].
#[diagnostic::on_unimplemented(
    message = "`{Self}` can't be the limiter of a `Limit`",
    label = "not the limiter of a `Limit`",
    note = "keys of a layer are `tollgate_http::Key`: leave the type of a limiter to be inferred, or write `Limiter<Key>`"
)]
pub trait IntoBackend: Into<Backend> {}

impl<L: Into<Backend>> IntoBackend for L {}

impl<S> From<Arc<Limiter<Key, S>>> for Backend
where
    S: Accepts<Key> + for<'a> Accepts<KeyRef<'a>>,
{
    fn from(limiter: Arc<Limiter<Key, S>>) -> Self {
        Self::new(AnyLimiter::Local(limiter))
    }
}

impl<S> From<Limiter<Key, S>> for Backend
where
    S: Accepts<Key> + for<'a> Accepts<KeyRef<'a>>,
{
    fn from(limiter: Limiter<Key, S>) -> Self {
        Arc::new(limiter).into()
    }
}

impl<S> From<Arc<ClassLimiter<Key, S>>> for Backend
where
    S: Accepts<Key> + for<'a> Accepts<KeyRef<'a>>,
{
    fn from(limiter: Arc<ClassLimiter<Key, S>>) -> Self {
        let class = |(name, class): (&str, &Arc<Limiter<Key, S>>)| {
            let limiter: Arc<Limiter<Key, S>> = Arc::clone(class);
            (name.to_owned(), AnyLimiter::Local(limiter))
        };
        let default = || Self::from(Arc::clone(limiter.default_class()));
        Self::of_classes(limiter.classes().map(class)).unwrap_or_else(default)
    }
}

impl<S> From<ClassLimiter<Key, S>> for Backend
where
    S: Accepts<Key> + for<'a> Accepts<KeyRef<'a>>,
{
    fn from(limiter: ClassLimiter<Key, S>) -> Self {
        Arc::new(limiter).into()
    }
}

impl<S> From<InFlight<Key, S>> for Backend
where
    S: Accepts<Key> + for<'a> Accepts<KeyRef<'a>>,
{
    fn from(limit: InFlight<Key, S>) -> Self {
        Self::new(AnyLimiter::Local(Arc::new(limit)))
    }
}

impl From<Arc<SingleLimiter>> for Backend {
    fn from(limiter: Arc<SingleLimiter>) -> Self {
        Self::new(AnyLimiter::Local(limiter))
    }
}

impl From<SingleLimiter> for Backend {
    fn from(limiter: SingleLimiter) -> Self {
        Arc::new(limiter).into()
    }
}

impl<L: AsyncLimiter + 'static> From<L> for Backend {
    fn from(limiter: L) -> Self {
        let limiter: Arc<dyn AsyncLimiter> = Arc::new(limiter);
        let classes = Arc::clone(&limiter).classes().into_iter();
        let classes = classes.map(|(name, limiter)| (name, AnyLimiter::Shared(limiter)));
        Self::of_classes(classes).unwrap_or_else(|| Self::new(AnyLimiter::Shared(limiter)))
    }
}

impl fmt::Debug for Backend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = self.default_name.iter().chain(self.classes.iter().map(|(name, _)| name));
        let classes: Vec<&String> = names.collect();
        f.debug_struct("Backend")
            .field("quota", &self.default.quota())
            .field("classes", &classes)
            .finish_non_exhaustive()
    }
}
