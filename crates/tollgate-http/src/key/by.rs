//! The functions that find a request's key.

use super::known::Known;
use super::parts::{Key, KeyPart, KeyRef};
use crate::client::address::DEFAULT_IPV6_PREFIX;
use crate::client::forwarded::{ForwardedField, TrustedProxies, Walk};
use crate::error::{Fault, LayerError};
use crate::head::{Reading, RequestHead, header_name};
use crate::host::canonical_host;
use crate::path::spelling::path_key;
use crate::path::template::PathTemplates;
use crate::text::methods::counted;
use http::header::HOST;
use http::{HeaderName, Method};
use std::fmt;
use std::net::IpAddr;
use std::path::Path;
use tollgate::store::ToKey;

/// Finds a request's key, which tells clients apart.
///
/// ```
/// use tollgate_http::{ForwardedField, KeyBy, TrustedProxies};
///
/// // The client's address, behind a load balancer in 10.0.0.0/8.
/// let address =
///     KeyBy::forwarded(ForwardedField::XForwardedFor, TrustedProxies::networks(["10.0.0.0/8"]));
/// // The API key in a header, otherwise in the query, otherwise the address.
/// let client = KeyBy::api_key("x-api-key", "api_key").or(address);
/// // A key for each client and path.
/// let per_path = client.and(KeyBy::path());
/// ```
///
/// # Which key to choose
///
/// Do not key by a value that a client can choose. A client could invent a new API key, path or
/// header for each request. The client would then have a new quota each time, and its keys would
/// leave no room for other clients' keys. It could also name another client's value, and use up
/// that client's quota. Use such a value only if it is [`known`](Self::known), verified by an
/// earlier layer ([`extension`](Self::extension)), or combined with the address. In all other
/// cases, the layer [warns](crate::RateLimitBuilder::warnings) about the limit.
///
/// A header or parameter is treated as missing if it is empty. If it occurs more than once, the
/// layer cannot know which value the handler will use. It refuses the request with status 400 and
/// [`RefusalReason::AmbiguousKey`](crate::RefusalReason::AmbiguousKey), without trying the next
/// alternative; with [`WhenNoKey::Share`](crate::WhenNoKey::Share), it charges the shared key. The
/// headers `host` and `cookie` produce the same key over HTTP/1.1 and HTTP/2, although the two
/// versions send them differently: see [`RequestHead::header`].
#[must_use]
pub struct KeyBy {
    /// An error is reported when the layer is built.
    how: Result<How, Fault>,
}

/// Where the parts of a key are found.
pub(crate) enum How {
    Peer { ipv6_prefix: u8 },
    Forwarded { walk: Walk, ipv6_prefix: u8 },
    Header(HeaderName),
    Query(Box<str>),
    ApiKey { header: HeaderName, parameter: Box<str> },
    Path,
    PathTemplates(PathTemplates),
    Method,
    Known { how: Box<How>, known: Known },
    Extension { name: &'static str, find: Box<FindKey> },
    Closure(Box<FindKey>),
    Or(Vec<How>),
    And(Vec<How>),
    Nothing,
}

/// The characters that a query parameter's name must not contain. A text with one of these
/// characters also includes the question mark, the value or the encoding, so no request would have
/// a parameter of this name.
pub(crate) const NOT_IN_PARAMETERS: [char; 6] = ['?', '&', '=', '#', '%', '"'];

/// The result of looking for a key in a request.
pub(crate) enum Finding {
    /// The request has the key.
    Found,
    /// The request has no key.
    Missing,
    /// The request has several values in a place of the key.
    Ambiguous,
}

/// The hint for a missing peer address. It names the setup step that is usually forgotten.
const NO_PEER: &str = if cfg!(feature = "axum") {
    "no peer address (with axum, serve `into_make_service_with_connect_info::<SocketAddr>()`; otherwise add a \
     `PeerAddr` to the request's extensions)"
} else {
    "no peer address (with axum, enable the feature `axum` of tollgate-http and serve \
     `into_make_service_with_connect_info::<SocketAddr>()`; otherwise add a `PeerAddr` to the request's extensions)"
};

type FindKey = dyn for<'a> Fn(RequestHead<'a>) -> Option<KeyPart<'a>> + Send + Sync;

impl KeyBy {
    const fn new(how: How) -> Self {
        Self { how: Ok(how) }
    }

    /// Keys requests by the peer address, that is, the address of the other end of the connection.
    /// All bits of an IPv4 address count, but only the first 64 bits of an IPv6 address (see
    /// [`ipv6_prefix`](Self::ipv6_prefix)). An IPv4-mapped address counts as the IPv4 address.
    ///
    /// The server must provide the peer address as an extension of the request: a
    /// [`PeerAddr`](crate::PeerAddr), or a type that
    /// [`peer_from`](crate::RateLimitBuilder::peer_from) reads. With the feature `axum`, the layer
    /// also reads axum's `ConnectInfo<SocketAddr>`. Behind a proxy, the peer is the proxy, so use
    /// [`forwarded`](Self::forwarded) there.
    ///
    /// ```
    /// # use tollgate_http::KeyBy;
    /// let by = KeyBy::peer().ipv6_prefix(56);
    /// ```
    pub fn peer() -> Self {
        Self::new(How::Peer { ipv6_prefix: DEFAULT_IPV6_PREFIX })
    }

    /// Keys requests by the client's address as reported by the proxies in front of this service.
    /// [`TrustedProxies`] describes how the address is found. [`peer`](Self::peer) describes which
    /// bits of the address count.
    ///
    /// ```
    /// # use tollgate_http::{ForwardedField, KeyBy, TrustedProxies};
    /// let proxies = TrustedProxies::networks(["10.0.0.0/8"]);
    /// let by = KeyBy::forwarded(ForwardedField::Forwarded, proxies);
    /// ```
    pub fn forwarded(field: ForwardedField, proxies: TrustedProxies) -> Self {
        let walk = Walk::new(field, &proxies);
        Self { how: walk.map(|walk| How::Forwarded { walk, ipv6_prefix: DEFAULT_IPV6_PREFIX }) }
    }

    /// Keys requests by the value of a header.
    ///
    /// ```
    /// # use tollgate_http::KeyBy;
    /// let by = KeyBy::header("x-tenant");
    /// ```
    pub fn header(name: &str) -> Self {
        Self { how: header_name(name).map(How::Header) }
    }

    /// Keys requests by the value of a query parameter.
    ///
    /// ```
    /// # use tollgate_http::KeyBy;
    /// let by = KeyBy::query("api_key");
    /// ```
    pub fn query(name: &str) -> Self {
        Self { how: parameter_name(name).map(How::Query) }
    }

    /// Keys requests by an API key in a header or, if the header is missing, in a query parameter.
    /// An API key identifies the same client in either place.
    ///
    /// ```
    /// # use tollgate_http::KeyBy;
    /// let by = KeyBy::api_key("x-api-key", "api_key").or(KeyBy::peer());
    /// ```
    pub fn api_key(header: &str, parameter: &str) -> Self {
        let names = header_name(header).and_then(|header| Ok((header, parameter_name(parameter)?)));
        Self { how: names.map(|(header, parameter)| How::ApiKey { header, parameter }) }
    }

    /// Keys requests by the path without the query. If clients can choose parts of a path, as in
    /// `/users/7`, use [`path_templates`](Self::path_templates) instead, or key by the route that
    /// the router stores in an extension.
    ///
    /// The key is the [canonical form](RequestHead::path) of the path, with three further changes:
    /// `%2F` and `%5C` separate segments, segments end at a semicolon, and there is no slash at the
    /// end. The reason is that some servers treat `/b/login`, `/b/login/`, `/b/login;x` and
    /// `/b%2Flogin` alike. For a server that also ignores case, use `path_templates`, which ignore
    /// case as well.
    ///
    /// ```
    /// # use tollgate_http::KeyBy;
    /// let by = KeyBy::peer().and(KeyBy::path());
    /// ```
    pub const fn path() -> Self {
        Self::new(How::Path)
    }

    /// Keys requests by the first template that matches the path. With `/users/{id}`, all users'
    /// paths share one key. All paths without a matching template share another key, so that nobody
    /// gains by inventing paths. See [`PathTemplate`](crate::settings::PathTemplate) for the form
    /// of a template. Building the layer reports an invalid template.
    ///
    /// ```
    /// # use tollgate_http::KeyBy;
    /// let by = KeyBy::peer().and(KeyBy::path_templates(["/login", "/users/{id}"]));
    /// ```
    pub fn path_templates<T: AsRef<str>>(templates: impl IntoIterator<Item = T>) -> Self {
        let templates = PathTemplates::new(templates);
        let refused = |error: crate::text::error::TextError| Fault::PathTemplate { why: error.to_string() };
        Self { how: templates.map(How::PathTemplates).map_err(refused) }
    }

    /// Accepts only these keys, compared byte by byte. A request with any other key is treated as a
    /// request without a key, so [`or`](Self::or) tries the next alternative. Call this method
    /// directly after [`header`](Self::header), [`query`](Self::query) or
    /// [`api_key`](Self::api_key). Building the layer fails if the list is empty.
    ///
    /// Without this method, a client could invent a key for each request. The client would then
    /// have a new quota each time, and its keys would fill the limiter until no room is left for
    /// other clients.
    ///
    /// ```
    /// # use tollgate_http::KeyBy;
    /// // A client without a key, or with an invented one, is counted by its address.
    /// let by = KeyBy::header("x-api-key").known(["k-7f3a", "k-90bd"]).or(KeyBy::peer());
    /// ```
    pub fn known<K: AsRef<[u8]>>(self, keys: impl IntoIterator<Item = K>) -> Self {
        self.known_as(|| Known::list(keys))
    }

    /// Accepts only the keys in a file, as [`known`](Self::known) does for a list. The file
    /// contains one key per line. Spaces around a key, empty lines, and lines that begin with `#`
    /// are ignored.
    ///
    /// This call reads the file once. To read the file again, build a new layer. To look up keys
    /// elsewhere, use [`known_if`](Self::known_if).
    ///
    /// Building the layer fails if the file cannot be read, contains no key, or is larger than 64
    /// MiB.
    ///
    /// ```
    /// # use tollgate_http::KeyBy;
    /// let by = KeyBy::header("x-api-key").known_file("/etc/tollgate/api-keys").or(KeyBy::peer());
    /// ```
    pub fn known_file(self, path: impl AsRef<Path>) -> Self {
        self.known_as(|| Known::file(path.as_ref()))
    }

    /// Accepts only the keys for which a function returns true, as [`known`](Self::known) does for
    /// a list. The request waits for the function, so the function should be quick: look up keys in
    /// memory, not on another machine.
    ///
    /// ```
    /// # use tollgate_http::KeyBy;
    /// // Keys that contain a checksum of themselves.
    /// let by = KeyBy::header("x-api-key").known_if(|key| key.starts_with(b"k-"));
    /// ```
    pub fn known_if(self, is_known: impl Fn(&[u8]) -> bool + Send + Sync + 'static) -> Self {
        self.known_as(|| Ok(Known::Asked(Box::new(is_known))))
    }

    fn known_as(self, keys: impl FnOnce() -> Result<Known, Fault>) -> Self {
        let known = |how: How| match how {
            How::Header(_) | How::Query(_) | How::ApiKey { .. } => {
                Ok(How::Known { known: keys()?.in_form(|key| how.listed(key)), how: Box::new(how) })
            }
            how => Err(Fault::KnownKeys {
                why: format!(
                    "`.known(...)` after {how:?}: expected it right after `KeyBy::header`, `KeyBy::query` or \
                     `KeyBy::api_key`, before `.or(...)` and `.and(...)`"
                ),
            }),
        };
        Self { how: self.how.and_then(known) }
    }

    /// Counts all requests together, under one key. A limiter with a state for each key requires a
    /// key, so that no limit is shared by all clients by mistake. Use this key for a limit that all
    /// clients are meant to share.
    ///
    /// ```
    /// # use tollgate_http::{KeyBy, Limit};
    /// # use tollgate::InFlight;
    /// let jobs = Limit::new("jobs", InFlight::builder(4).build()?).by(KeyBy::nothing());
    /// # Ok::<(), tollgate::ConfigError>(())
    /// ```
    pub const fn nothing() -> Self {
        Self::new(How::Nothing)
    }

    /// Keys requests by the method. The methods `post` and `POST` have the same key, because some
    /// servers treat them alike.
    ///
    /// ```
    /// # use tollgate_http::KeyBy;
    /// let by = KeyBy::peer().and(KeyBy::method());
    /// ```
    pub const fn method() -> Self {
        Self::new(How::Method)
    }

    /// Keys requests by a value in an extension of type `T`, set by the server or an earlier layer.
    /// Examples are a verified user or a matched route.
    ///
    /// ```
    /// use tollgate_http::KeyBy;
    ///
    /// #[derive(Clone)]
    /// struct User {
    ///     id: u64,
    /// }
    ///
    /// let by = KeyBy::extension(|user: &User| Some(user.id.into()));
    /// ```
    pub fn extension<T, F>(part: F) -> Self
    where
        T: Send + Sync + 'static,
        F: for<'a> Fn(&'a T) -> Option<KeyPart<'a>> + Send + Sync + 'static,
    {
        let find = boxed(move |head| part(head.extensions().get()?));
        Self::new(How::Extension { name: std::any::type_name::<T>(), find })
    }

    /// Keys each request by the value that a closure returns for its head. `None` means that the
    /// request has no key.
    ///
    /// ```
    /// use tollgate_http::KeyBy;
    ///
    /// // The first segment of the path.
    /// let tenant = KeyBy::from_fn(|head| head.uri().path().split('/').nth(1).map(Into::into));
    /// ```
    pub fn from_fn<F>(find: F) -> Self
    where
        F: for<'a> Fn(RequestHead<'a>) -> Option<KeyPart<'a>> + Send + Sync + 'static,
    {
        Self::new(How::Closure(boxed(find)))
    }

    /// Uses `other` for requests in which `self` finds no key. The key records which alternative
    /// found it, so a client that sends an address as its API key is not mistaken for the client
    /// with that address. A key can have at most 255 alternatives; with more, building the layer
    /// fails.
    ///
    /// ```
    /// # use tollgate_http::KeyBy;
    /// let by = KeyBy::header("x-tenant").or(KeyBy::peer());
    /// ```
    pub fn or(self, other: Self) -> Self {
        let joined = |how, other| match how {
            How::Or(hows) if hows.len() == usize::from(u8::MAX) => Err(Fault::Alternatives),
            How::Or(mut hows) => {
                hows.push(other);
                Ok(How::Or(hows))
            }
            how => Ok(How::Or(vec![how, other])),
        };
        Self { how: self.how.and_then(|how| joined(how, other.how?)) }
    }

    /// Combines the parts of `self` and `other` into one key. A request has no key if either part
    /// is missing.
    ///
    /// ```
    /// # use tollgate_http::KeyBy;
    /// let by = KeyBy::peer().and(KeyBy::method()).and(KeyBy::path());
    /// ```
    pub fn and(self, other: Self) -> Self {
        let joined = |how, other| match how {
            How::And(mut hows) => {
                hows.push(other);
                How::And(hows)
            }
            how => How::And(vec![how, other]),
        };
        Self { how: self.how.and_then(|how| Ok(joined(how, other.how?))) }
    }

    /// Sets how many leading bits of an IPv6 address identify a client, from 1 to 128. The default
    /// is 64. The setting applies to all keys combined so far.
    ///
    /// A customer of an internet provider owns at least a /64 network, often a /56 or /48. If the
    /// prefix set here is longer than the customer's prefix, one customer can appear as many
    /// clients.
    ///
    /// ```
    /// # use tollgate_http::KeyBy;
    /// let by = KeyBy::header("x-tenant").or(KeyBy::peer()).ipv6_prefix(48);
    /// ```
    pub fn ipv6_prefix(self, bits: u8) -> Self {
        if !(1..=128).contains(&bits) {
            return Self { how: self.how.and(Err(Fault::Ipv6Prefix { prefix: bits })) };
        }
        let set = |mut how: How| {
            how.set_ipv6_prefix(bits);
            how
        };
        Self { how: self.how.map(set) }
    }

    /// Returns the request's key in the limit named `limit`, if the request has one key. Use this
    /// key to check or change the limiter outside of the layer.
    ///
    /// # Errors
    ///
    /// Returns the error that [`build`](crate::RateLimitBuilder::build) would report for this key.
    ///
    /// ```
    /// use http::Request;
    /// use tollgate_http::{Key, KeyBy, RequestHead};
    ///
    /// let request = Request::get("/reports").body(()).unwrap();
    /// let key = KeyBy::path().key("per-path", RequestHead::of(&request))?;
    /// assert_eq!(key, Some(Key::new("per-path", ["/reports"])));
    /// # Ok::<(), tollgate_http::LayerError>(())
    /// ```
    pub fn key(&self, limit: &str, head: RequestHead<'_>) -> Result<Option<Key>, LayerError> {
        let how = self.how.as_ref().map_err(|fault| LayerError::from(fault.clone()))?;
        let limit = limit.into();
        let mut key = KeyRef::new(&limit);
        Ok(matches!(how.find(head, &mut key), Finding::Found).then(|| key.to_key()))
    }

    /// Returns the client's address in a request, if the key is an address.
    #[cfg(feature = "unstable-program")]
    pub(crate) fn address(&self, head: RequestHead<'_>) -> Option<IpAddr> {
        self.how.as_ref().ok()?.address(head)
    }

    /// Returns how the client is found behind proxies, if the key is an address that they report.
    #[cfg(feature = "unstable-program")]
    pub(crate) fn walk(&self) -> Option<&Walk> {
        self.how.as_ref().ok()?.walk()
    }

    /// Returns the error that building a layer would report.
    pub(crate) fn error(&self) -> Option<&Fault> {
        self.how.as_ref().err()
    }

    /// Names the value that clients can invent, or returns `None` if they cannot invent the whole
    /// key.
    pub(crate) fn invented(&self) -> Option<String> {
        self.how.as_ref().ok()?.invented()
    }

    /// Returns where the key's parts are found, or the configuration error.
    pub(crate) fn checked(self) -> Result<How, Fault> {
        self.how
    }
}

fn parameter_name(name: &str) -> Result<Box<str>, Fault> {
    let is_name = !name.is_empty() && !name.contains(NOT_IN_PARAMETERS);
    if is_name { Ok(name.into()) } else { Err(Fault::QueryName { name: name.to_owned() }) }
}

/// Boxes a closure. The bounds let the compiler infer the lifetimes of the closure's arguments.
fn boxed<F>(find: F) -> Box<FindKey>
where
    F: for<'a> Fn(RequestHead<'a>) -> Option<KeyPart<'a>> + Send + Sync + 'static,
{
    Box::new(find)
}

impl How {
    /// Converts a listed key to the form in which [`value`](Self::value) returns it.
    pub(crate) fn listed(&self, key: Box<[u8]>) -> Box<[u8]> {
        match self {
            Self::Header(name) if *name == HOST => canonical_host(&key).into(),
            Self::Known { how, .. } => how.listed(key),
            Self::Path => path_key(&key).into(),
            Self::Method => Method::from_bytes(&key).map_or(key, |it| counted(&it).as_bytes().into()),
            Self::PathTemplates(templates) => templates.of(&key).as_bytes().into(),
            _ => key,
        }
    }

    /// Reads the header or query parameter, if the key is one of these.
    fn value<'a>(&self, head: RequestHead<'a>) -> Reading<'a> {
        match self {
            Self::Header(name) => head.read_header(name),
            Self::Query(name) => head.read_query(name),
            Self::ApiKey { header, parameter } => match head.read_header(header) {
                Reading::Missing => head.read_query(parameter),
                found => found,
            },
            _ => Reading::Missing,
        }
    }

    /// Returns the number of IPv6 bits that count, if the key is an address.
    pub(crate) fn ipv6_prefix(&self) -> Option<u8> {
        match self {
            Self::Peer { ipv6_prefix } | Self::Forwarded { ipv6_prefix, .. } => Some(*ipv6_prefix),
            _ => None,
        }
    }

    /// Returns how the client is found behind proxies, if a part of the key is an address that they
    /// report.
    #[cfg(any(feature = "tracing", feature = "unstable-program"))]
    pub(crate) fn walk(&self) -> Option<&Walk> {
        match self {
            Self::Forwarded { walk, .. } => Some(walk),
            Self::Or(hows) | Self::And(hows) => hows.iter().find_map(Self::walk),
            _ => None,
        }
    }

    /// Returns the client's address in a request, if the key is an address.
    pub(crate) fn address(&self, head: RequestHead<'_>) -> Option<IpAddr> {
        match self {
            Self::Peer { .. } => head.peer().map(|peer| peer.ip()),
            Self::Forwarded { walk, .. } => walk.client(head),
            _ => None,
        }
    }

    /// Appends the parts of a request's key. If the request has no key, some parts may have been
    /// appended anyway.
    pub(crate) fn find<'a>(&'a self, head: RequestHead<'a>, key: &mut KeyRef<'a>) -> Finding {
        let part = match self {
            Self::Peer { ipv6_prefix } => head.peer().map(|peer| KeyPart::address(peer.ip(), *ipv6_prefix)),
            Self::Forwarded { walk, ipv6_prefix } => {
                walk.client(head).map(|client| KeyPart::address(client, *ipv6_prefix))
            }
            Self::Header(_) | Self::Query(_) | Self::ApiKey { .. } | Self::Known { .. } => {
                let (how, known) = match self {
                    Self::Known { how, known } => (&**how, Some(known)),
                    how => (how, None),
                };
                match how.value(head) {
                    Reading::Ambiguous => return Finding::Ambiguous,
                    Reading::Missing => None,
                    Reading::One(value) => Some(value)
                        .filter(|it| known.is_none_or(|known| known.contains(it)))
                        .map(KeyPart::from),
                }
            }
            Self::Path => Some(path_key(head.uri().path().as_bytes()).into()),
            Self::PathTemplates(templates) => Some(templates.of(head.uri().path().as_bytes()).into()),
            Self::Method => Some(counted(head.method()).into()),
            Self::Extension { find, .. } | Self::Closure(find) => find(head),
            Self::Or(hows) => return find_first(hows, head, key),
            Self::And(hows) => {
                let found = hows.iter().map(|how| how.find(head, key));
                return found.into_iter().find(|it| !matches!(it, Finding::Found)).unwrap_or(Finding::Found);
            }
            Self::Nothing => return Finding::Found,
        };
        match part {
            Some(part) => {
                key.push(part);
                Finding::Found
            }
            None => Finding::Missing,
        }
    }

    /// Returns the name of the item that is missing from a request without a key. Returns `None` if
    /// every request has a key.
    pub(crate) fn may_miss(&self) -> Option<String> {
        match self {
            Self::Peer { .. } => Some(NO_PEER.to_owned()),
            Self::Forwarded { .. } => {
                Some(format!("no address in the header that proxies write, or {NO_PEER}"))
            }
            Self::Header(name) => Some(format!("no header `{name}`")),
            Self::Query(name) => Some(format!("no query parameter `{name}`")),
            Self::ApiKey { header, parameter } => {
                Some(format!("neither a header `{header}` nor a query parameter `{parameter}`"))
            }
            Self::Path | Self::PathTemplates(_) | Self::Method | Self::Nothing => None,
            Self::Known { how, .. } => how.may_miss().map(|missing| format!("{missing} that is known")),
            Self::Extension { name, .. } => Some(format!("no extension `{name}`")),
            Self::Closure(_) => Some("nothing that the closure finds".to_owned()),
            Self::Or(hows) => {
                let all: Option<Vec<String>> = hows.iter().map(Self::may_miss).collect();
                all.map(|all| all.join(", and "))
            }
            Self::And(hows) => {
                let any: Vec<String> = hows.iter().filter_map(Self::may_miss).collect();
                if any.is_empty() { None } else { Some(any.join(", or ")) }
            }
        }
    }

    /// Names the value that clients can invent, or returns `None` if they cannot invent the whole
    /// key.
    fn invented(&self) -> Option<String> {
        match self {
            Self::Header(name) => Some(format!("header `{name}`")),
            Self::Query(name) => Some(format!("query parameter `{name}`")),
            Self::ApiKey { header, parameter } => {
                Some(format!("header `{header}` or query parameter `{parameter}`"))
            }
            Self::Path => Some("path".to_owned()),
            Self::Method => Some("method".to_owned()),
            Self::Or(hows) => hows.iter().find_map(Self::invented),
            Self::And(hows) => {
                let all: Option<Vec<String>> = hows.iter().map(Self::invented).collect();
                all.map(|all| all.join(" and "))
            }
            Self::Peer { .. }
            | Self::Forwarded { .. }
            | Self::PathTemplates(_)
            | Self::Known { .. }
            | Self::Extension { .. }
            | Self::Closure(_)
            | Self::Nothing => None,
        }
    }

    fn set_ipv6_prefix(&mut self, bits: u8) {
        match self {
            Self::Peer { ipv6_prefix } | Self::Forwarded { ipv6_prefix, .. } => *ipv6_prefix = bits,
            Self::Or(hows) | Self::And(hows) => hows.iter_mut().for_each(|how| how.set_ipv6_prefix(bits)),
            _ => {}
        }
    }
}

/// Appends the number of the first alternative that finds a key, followed by the parts of that key.
fn find_first<'a>(hows: &'a [How], head: RequestHead<'a>, key: &mut KeyRef<'a>) -> Finding {
    let before = key.len();
    for (how, number) in hows.iter().zip(0..) {
        key.push(KeyPart::Alternative(number));
        match how.find(head, key) {
            Finding::Missing => key.truncate(before),
            found => return found,
        }
    }
    Finding::Missing
}

impl fmt::Debug for KeyBy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.how {
            Ok(how) => how.fmt(f),
            Err(refused) => refused.fmt(f),
        }
    }
}

impl fmt::Debug for How {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Peer { ipv6_prefix } => write!(f, "peer/{ipv6_prefix}"),
            Self::Forwarded { walk, ipv6_prefix } => write!(f, "{walk:?}/{ipv6_prefix}"),
            Self::Header(name) => write!(f, "header({name})"),
            Self::Query(name) => write!(f, "query({name})"),
            Self::ApiKey { header, parameter } => write!(f, "api_key({header}, {parameter})"),
            Self::Path => f.write_str("path"),
            Self::PathTemplates(_) => f.write_str("path_templates"),
            Self::Known { how, known } => write!(f, "{how:?}.known({known:?})"),
            Self::Method => f.write_str("method"),
            Self::Nothing => f.write_str("nothing"),
            Self::Extension { name, .. } => write!(f, "extension({name})"),
            Self::Closure(_) => f.write_str("closure"),
            Self::Or(hows) => f.debug_tuple("or").field(hows).finish(),
            Self::And(hows) => f.debug_tuple("and").field(hows).finish(),
        }
    }
}
