//! The functions that find a request's class.

use super::listed::Listed;
use super::lookup::{ClassLookup, Found, Lookup};
use super::table::Table;
use crate::client::forwarded::TrustedProxies;
use crate::error::Fault;
use crate::head::RequestHead;
use crate::key::by::{How, KeyBy};
use http::HeaderName;
use std::borrow::Cow;
use std::fmt;
use std::hash::Hash;
use std::path::Path;
use std::sync::Arc;

/// Finds a request's class, which is the name of one of the limiter's classes.
///
/// ```
/// use tollgate::{Limiter, Quota};
/// use tollgate_http::{ClassBy, KeyBy, Limit, RateLimitLayer, WhenNoKey};
///
/// /// The account that a middleware has found.
/// #[derive(Clone)]
/// struct Account {
///     id: u64,
///     class: String,
/// }
///
/// let limiter = Limiter::builder(Quota::per_minute(10))
///     .class("paid", Quota::per_minute(1_000))
///     .build()?;
/// let account = KeyBy::extension(|account: &Account| Some(account.id.into()));
/// let limit = Limit::new("per-account", limiter)
///     .by(account)
///     .class_by(ClassBy::extension(|account: &Account| Some(&account.class)))
///     .when_no_key(WhenNoKey::Deny);
/// let layer = RateLimitLayer::builder().limit(limit).build()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # The default class
///
/// A request belongs to the default class if no class is found, or if the limiter does not have the
/// class that was found. The quota of the default class is the first quota passed to the limiter's
/// builder. Make the quota for unknown callers the default, so that a mistake grants nobody a
/// larger quota. To detect such mistakes, use
/// [`on_unknown_class`](crate::RateLimitBuilder::on_unknown_class).
///
/// # Where a class may come from
///
/// Do not read the class from a value that clients can write, because every client would choose the
/// best class. Read the class from an extension verified by an earlier layer
/// ([`extension`](Self::extension)) or from a header set by a trusted proxy
/// ([`header`](Self::header)). Alternatively, look up the owner of the API key
/// ([`list`](Self::list), [`file`](Self::file), [`ClassLookup`]).
#[must_use]
pub struct ClassBy {
    /// An error is reported when the layer is built.
    how: Result<ClassHow, Fault>,
}

/// Where the name of a class is found.
pub(crate) enum ClassHow {
    Extension { name: &'static str, find: Box<FindClass> },
    Closure(Box<FindClass>),
    Header { name: HeaderName, trusted: TrustedProxies },
    Listed(Listed),
    Asked(Arc<dyn Lookup>),
}

/// The class of a request.
pub(crate) enum ClassOf<'a> {
    /// The class has this name; `None` if no class was found.
    Named(Option<Cow<'a, str>>),
    /// The result of a [`ClassLookup`](crate::ClassLookup): the class itself, or a question whose
    /// answer the request must wait for.
    Asked(Found),
}

type FindClass = dyn for<'a> Fn(RequestHead<'a>) -> Option<&'a str> + Send + Sync;

impl ClassBy {
    const fn new(how: ClassHow) -> Self {
        Self { how: Ok(how) }
    }

    /// Reads the class from an extension of type `T`, set by the server or an earlier layer. An
    /// example is the class of a verified account.
    ///
    /// ```
    /// # use tollgate_http::ClassBy;
    /// #[derive(Clone)]
    /// enum Customer {
    ///     Free,
    ///     Paying,
    /// }
    ///
    /// let by = ClassBy::extension(|customer: &Customer| match customer {
    ///     Customer::Free => None,
    ///     Customer::Paying => Some("paid"),
    /// });
    /// ```
    pub fn extension<T, F>(class: F) -> Self
    where
        T: Send + Sync + 'static,
        F: for<'a> Fn(&'a T) -> Option<&'a str> + Send + Sync + 'static,
    {
        let find = boxed(move |head| class(head.extensions().get()?));
        Self::new(ClassHow::Extension { name: std::any::type_name::<T>(), find })
    }

    /// Finds the class with a closure that reads the request's head.
    ///
    /// ```
    /// # use tollgate_http::ClassBy;
    /// // Our own services have certificates, which the server has verified.
    /// #[derive(Clone)]
    /// struct Certificate(String);
    ///
    /// let by = ClassBy::from_fn(|head| {
    ///     let certificate: &Certificate = head.extensions().get()?;
    ///     certificate.0.ends_with(".internal.example").then_some("internal")
    /// });
    /// ```
    pub fn from_fn<F>(find: F) -> Self
    where
        F: for<'a> Fn(RequestHead<'a>) -> Option<&'a str> + Send + Sync + 'static,
    {
        Self::new(ClassHow::Closure(boxed(find)))
    }

    /// Reads the class from a header set by a trusted proxy. The header is ignored if the peer is
    /// not [trusted](TrustedProxies::networks). With [`hops`](TrustedProxies::hops), every peer is
    /// trusted.
    ///
    /// The proxy must set or remove the header in each request, so that a value written by a client
    /// never passes. A header that occurs twice is ignored.
    ///
    /// ```
    /// # use tollgate_http::{ClassBy, TrustedProxies};
    /// // The gateway in 10.0.0.0/8 knows the classes.
    /// let by = ClassBy::header("x-class", TrustedProxies::networks(["10.0.0.0/8"]));
    /// ```
    pub fn header(name: &str, trusted: TrustedProxies) -> Self {
        let refused = |_| Fault::HeaderName { name: name.to_owned() };
        let how = trusted.check().and_then(|()| name.parse().map_err(refused));
        Self { how: how.map(|name| ClassHow::Header { name, trusted }) }
    }

    /// Looks up the class in a list of keys and their classes. `key` specifies how to find a
    /// request's key. The key must have exactly one part, such as [`KeyBy::header`],
    /// [`KeyBy::query`] or [`KeyBy::peer`]. If the key is an address, the list may contain
    /// networks. If several networks match, the one with the longest prefix counts.
    ///
    /// Building the layer fails if the limiter does not have one of the listed classes, or if a key
    /// is listed twice.
    ///
    /// ```
    /// # use tollgate_http::{ClassBy, KeyBy};
    /// let by = ClassBy::list(KeyBy::header("x-api-key"), [("k-7f3a", "paid"), ("k-90bd", "partner")]);
    /// let by = ClassBy::list(KeyBy::peer(), [("10.0.0.0/8", "internal"), ("10.1.0.0/16", "default")]);
    /// ```
    pub fn list<K, C>(key: KeyBy, classes: impl IntoIterator<Item = (K, C)>) -> Self
    where
        K: AsRef<[u8]>,
        C: Into<String>,
    {
        let pairs = classes.into_iter().map(|(key, class)| (key.as_ref().into(), class.into()));
        Self::of(key, |how| Table::list(how, pairs))
    }

    /// Looks up the class in a file, as [`list`](Self::list) does in a list. Each line of the file
    /// is a CSV record: a value for each part of the key, followed by a class name. The key may
    /// have several parts and alternatives. See the [form of such a
    /// file](crate::settings#form-of-a-file-of-classes).
    ///
    /// This call reads the file once. To read the file again, build a new layer.
    ///
    /// Building the layer fails if the file cannot be read, contains no key or is larger than 64
    /// MiB, or if a line has no class.
    ///
    /// ```
    /// # use tollgate_http::{ClassBy, KeyBy};
    /// let by = ClassBy::file(KeyBy::header("x-api-key").or(KeyBy::peer()), "/etc/tollgate/classes");
    /// ```
    pub fn file(key: KeyBy, path: impl AsRef<Path>) -> Self {
        Self::of(key, |how| Table::read(path.as_ref(), how))
    }

    fn of(key: KeyBy, table: impl FnOnce(&How) -> Result<Table, Fault>) -> Self {
        let listed = key.checked().and_then(|how| {
            let table = Arc::new(table(&how)?);
            Ok(ClassHow::Listed(Listed::new(how, table)))
        });
        Self { how: listed }
    }

    /// Looks up a key's class in a table that has already been read.
    pub(crate) fn table(key: KeyBy, table: Arc<Table>) -> Self {
        Self { how: key.checked().map(|how| ClassHow::Listed(Listed::new(how, table))) }
    }

    /// Returns the error that building a layer would report.
    pub(crate) fn error(&self) -> Option<&Fault> {
        self.how.as_ref().err()
    }

    /// Returns the source of the class, or the configuration error.
    pub(crate) fn checked(self) -> Result<ClassHow, Fault> {
        self.how
    }
}

/// Finds the class with a [`ClassLookup`]'s function, such as a database query.
impl<K> From<ClassLookup<K>> for ClassBy
where
    K: Hash + Eq + Clone + Send + Sync + 'static,
{
    fn from(lookup: ClassLookup<K>) -> Self {
        Self { how: lookup.checked().map(ClassHow::Asked) }
    }
}

/// Boxes a closure. The bounds let the compiler infer the lifetimes of the closure's arguments.
fn boxed<F>(find: F) -> Box<FindClass>
where
    F: for<'a> Fn(RequestHead<'a>) -> Option<&'a str> + Send + Sync + 'static,
{
    Box::new(find)
}

impl ClassHow {
    /// Returns the name of a request's class, if any, or the question whose answer is the name.
    pub(crate) fn find<'a>(&'a self, head: RequestHead<'a>) -> ClassOf<'a> {
        ClassOf::Named(match self {
            Self::Extension { find, .. } | Self::Closure(find) => find(head).map(Cow::Borrowed),
            Self::Header { name, trusted } => {
                let value = head.header(name).filter(|_| trusted.believes(head.peer()));
                value.and_then(|value| match value {
                    Cow::Borrowed(value) => std::str::from_utf8(value).ok().map(Cow::Borrowed),
                    Cow::Owned(value) => String::from_utf8(value).ok().map(Cow::Owned),
                })
            }
            Self::Listed(listed) => listed.class(head).map(Cow::Borrowed),
            Self::Asked(lookup) => return ClassOf::Asked(Arc::clone(lookup).class(head)),
        })
    }

    /// Returns whether a request may have to wait for its class.
    pub(crate) fn waits(&self) -> bool {
        matches!(self, Self::Asked(_))
    }

    /// Returns the names of all possible classes, if these are known before any request.
    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        let listed = match self {
            Self::Listed(listed) => Some(listed.names()),
            _ => None,
        };
        listed.into_iter().flatten()
    }
}

impl fmt::Debug for ClassBy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.how {
            Ok(how) => how.fmt(f),
            Err(refused) => refused.fmt(f),
        }
    }
}

impl fmt::Debug for ClassHow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Extension { name, .. } => write!(f, "extension({name})"),
            Self::Closure(_) => f.write_str("closure"),
            Self::Header { name, .. } => write!(f, "header({name})"),
            Self::Listed(listed) => listed.fmt(f),
            Self::Asked(_) => f.write_str("lookup"),
        }
    }
}
