//! The heads of requests and responses, as read by key functions, costs and conditions. A head
//! borrows everything except the body.

use crate::error::Fault;
use crate::host::canonical_host;
use crate::path::canonical::canonical_path;
use http::header::{CONTENT_LENGTH, COOKIE, HOST};
use http::request::Parts;
use http::{Extensions, HeaderMap, HeaderName, Method, Request, Response, StatusCode, Uri, Version};
use percent_encoding::percent_decode;
use std::borrow::Cow;
use std::fmt;
use std::net::SocketAddr;

/// A request extension that contains the address of the other end of the connection.
///
/// Use this type if the server does not provide a similar one. Insert it into the extensions of
/// each request before the request reaches the layer. With the feature `axum`, the layer also reads
/// the address from axum's `ConnectInfo<SocketAddr>`.
///
/// ```
/// use http::Request;
/// use tollgate_http::{PeerAddr, RequestHead};
///
/// let mut request = Request::new(());
/// request.extensions_mut().insert(PeerAddr(([192, 0, 2, 1], 4711).into()));
/// assert_eq!(RequestHead::of(&request).peer(), Some(([192, 0, 2, 1], 4711).into()));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PeerAddr(pub SocketAddr);

/// Reads the peer address from an extension that a particular server sets.
type PeerSource = Box<dyn Fn(&Extensions) -> Option<SocketAddr> + Send + Sync>;

/// Reads the original URI from an extension that a particular router sets.
type UriSource = Box<dyn Fn(&Extensions) -> Option<&Uri> + Send + Sync>;

/// The extensions in which servers and routers keep parts of a request.
#[derive(Default)]
pub(crate) struct Sources {
    /// The sources of the peer address to be tried before [`PeerAddr`].
    peers: Vec<PeerSource>,
    /// The sources of the URI to be tried before the request's own.
    uris: Vec<UriSource>,
}

impl Sources {
    pub(crate) fn add_peer(&mut self, source: PeerSource) {
        self.peers.push(source);
    }

    pub(crate) fn add_uri(&mut self, source: UriSource) {
        self.uris.push(source);
    }

    fn uri<'a>(&self, own: &'a Uri, extensions: &'a Extensions) -> &'a Uri {
        let given = self.uris.iter().find_map(|source| source(extensions));
        #[cfg(feature = "axum")]
        let given = given.or_else(|| of_axum::original_uri(extensions));
        given.unwrap_or(own)
    }
}

/// The extensions of axum.
#[cfg(feature = "axum")]
mod of_axum {
    use axum::extract::connect_info::MockConnectInfo;
    use axum::extract::{ConnectInfo, OriginalUri};
    use http::{Extensions, Uri};
    use std::net::SocketAddr;

    /// Returns the address that axum's own extractor returns.
    pub(super) fn peer(extensions: &Extensions) -> Option<SocketAddr> {
        let mock = || extensions.get().map(|&MockConnectInfo(peer)| peer);
        extensions.get().map(|&ConnectInfo(peer)| peer).or_else(mock)
    }

    /// Returns the URI before any router shortened its path.
    pub(super) fn original_uri(extensions: &Extensions) -> Option<&Uri> {
        extensions.get().map(|OriginalUri(uri)| uri)
    }
}

impl fmt::Debug for Sources {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sources").field("peers", &self.peers.len()).field("uris", &self.uris.len()).finish()
    }
}

static NO_SOURCES: Sources = Sources { peers: Vec::new(), uris: Vec::new() };

/// A request without its body, by reference.
///
/// ```
/// use http::Request;
/// use tollgate_http::RequestHead;
///
/// let request = Request::get("/search?q=lock%20free").header("x-tenant", "7").body(()).unwrap();
/// let head = RequestHead::of(&request);
/// assert_eq!(head.uri().path(), "/search");
/// assert_eq!(head.header("x-tenant").unwrap(), &b"7"[..]);
/// assert_eq!(head.query("q").unwrap(), &b"lock free"[..]);
/// ```
#[derive(Clone, Copy, Debug)]
pub struct RequestHead<'a> {
    method: &'a Method,
    uri: &'a Uri,
    version: Version,
    headers: &'a HeaderMap,
    extensions: &'a Extensions,
    sources: &'a Sources,
}

impl<'a> RequestHead<'a> {
    /// Returns the head of `request`. Its peer address is read from [`PeerAddr`].
    ///
    /// ```
    /// # use http::Request;
    /// # use tollgate_http::RequestHead;
    /// assert_eq!(RequestHead::of(&Request::new("a body")).method(), "GET");
    /// ```
    pub fn of<B>(request: &'a Request<B>) -> Self {
        Self::with_sources(request, &NO_SOURCES)
    }

    pub(crate) fn with_sources<B>(request: &'a Request<B>, sources: &'a Sources) -> Self {
        let extensions = request.extensions();
        Self {
            method: request.method(),
            uri: sources.uri(request.uri(), extensions),
            version: request.version(),
            headers: request.headers(),
            extensions,
            sources,
        }
    }

    /// Returns the head of a request without its body.
    pub(crate) fn of_parts(parts: &'a Parts, sources: &'a Sources) -> Self {
        let Parts { method, uri, version, headers, extensions, .. } = parts;
        let uri = sources.uri(uri, extensions);
        Self { method, uri, version: *version, headers, extensions, sources }
    }

    /// Returns the method.
    pub fn method(&self) -> &'a Method {
        self.method
    }

    /// Returns the URI, which may be in an extension: see
    /// [`uri_from`](crate::RateLimitBuilder::uri_from). With the feature `axum`, this is the URI
    /// before axum's routers shortened it. Over HTTP/2 the URI contains a host; over
    /// HTTP/1.1 it usually does not. [`header("host")`](Self::header) returns the host in both
    /// cases.
    pub fn uri(&self) -> &'a Uri {
        self.uri
    }

    /// Returns the path in its canonical form, in which different spellings of one path are equal.
    /// All limits count and compare paths in this form. The handler still receives the path as it
    /// was sent, which you can read from the [`uri`](Self::uri).
    ///
    /// # The canonical form
    ///
    /// The path is changed in this order:
    ///
    /// 1. Percent-encoded letters, digits and `-._~` are decoded (RFC 3986 calls them unreserved).
    ///    Other encodings are kept, with their digits in upper case. Bytes that a path must not
    ///    contain unencoded, such as `\`, `"`, `{`, `?` and the bytes of `é`, are encoded. A
    ///    percent sign that does not begin an encoding becomes `%25`.
    /// 2. Repeated slashes become one.
    /// 3. The segments `.` and `..` are removed. A `..` also removes the segment before it, if
    ///    there is one.
    ///
    /// | path | form |
    /// |---|---|
    /// | `//login`, `/./login`, `/%6cogin`, `/b/../login`, `/b/%2e%2E/login` | `/login` |
    /// | `/a%2fb`: an encoded slash is no separator | `/a%2Fb` |
    /// | `/a\b` and `/a%5cb`: a backslash is no separator | `/a%5Cb` |
    /// | `/login;x=1`: the text after a semicolon stays | `/login;x=1` |
    /// | `/login/`: a slash at the end stays | `/login/` |
    /// | `/Login`: upper case stays | `/Login` |
    /// | an empty path, and the target of CONNECT, which has none | `/` |
    /// | `*`, the target of OPTIONS for a whole server | `*` |
    /// | `/100%` and `/%zz`: text that is not an encoding is kept | `/100%25` and `/%25zz` |
    ///
    /// A server may consider even more paths equal: some servers drop the text after a semicolon,
    /// some decode `%2F`, and some ignore case.
    /// [`KeyBy::path_templates`](crate::KeyBy::path_templates) avoids this problem, because it
    /// counts all paths without a matching template as one.
    ///
    /// The canonical form is always ASCII. Canonicalizing it again changes nothing. A path that is
    /// already canonical requires no allocation.
    ///
    /// ```
    /// # use http::Request;
    /// # use tollgate_http::RequestHead;
    /// let request = Request::get("//%6cogin?x=1").body(()).unwrap();
    /// assert_eq!(RequestHead::of(&request).path(), "/login");
    /// ```
    pub fn path(&self) -> Cow<'a, str> {
        let path = self.uri.path();
        match canonical_path(path.as_bytes()) {
            Cow::Borrowed(_) => Cow::Borrowed(path),
            // A canonical path is ASCII.
            Cow::Owned(path) => Cow::Owned(String::from_utf8_lossy(&path).into_owned()),
        }
    }

    /// Returns the version of HTTP.
    pub fn version(&self) -> Version {
        self.version
    }

    /// Returns the headers.
    pub fn headers(&self) -> &'a HeaderMap {
        self.headers
    }

    /// Returns the extensions, which the server and earlier layers have set.
    pub fn extensions(&self) -> &'a Extensions {
        self.extensions
    }

    /// Returns the address of the other end of the connection, which is the client or the last
    /// proxy. The address has the form reported by the server, so an IPv4-mapped address remains
    /// IPv6.
    pub fn peer(&self) -> Option<SocketAddr> {
        let extensions = self.extensions;
        let ours = || extensions.get().map(|&PeerAddr(peer)| peer);
        let given = self.sources.peers.iter().find_map(|source| source(extensions)).or_else(ours);
        #[cfg(feature = "axum")]
        let given = given.or_else(|| of_axum::peer(extensions));
        given
    }

    /// Returns the value of a header that occurs exactly once, without surrounding spaces. Returns
    /// `None` if the header is missing or empty. Also returns `None` if the header occurs more than
    /// once, because the layer cannot know which value counts; a [`KeyBy::header`] then refuses the
    /// request.
    ///
    /// [`KeyBy::header`]: crate::KeyBy::header
    ///
    /// Two headers have the same value over HTTP/1.1 and HTTP/2:
    ///
    /// - `host` is the host of the target if the target has one (`:authority` over HTTP/2), and
    ///   otherwise the header `Host`. It is in lower case, without a user name, without a trailing
    ///   dot, and without the ports 80 and 443. The result is `None` if both are there and differ.
    /// - `cookie` is one value, which HTTP/2 may split into several lines: the lines are joined
    ///   with `; `.
    ///
    /// [`headers`](Self::headers) returns all lines as they were sent.
    ///
    /// ```
    /// # use http::Request;
    /// # use tollgate_http::RequestHead;
    /// let twice =
    ///     Request::get("/").header("x-api-key", "a").header("x-api-key", "b").body(()).unwrap();
    /// assert_eq!(RequestHead::of(&twice).header("x-api-key"), None);
    /// ```
    pub fn header(&self, name: impl http::header::AsHeaderName + AsRef<str>) -> Option<Cow<'a, [u8]>> {
        self.read_header(name).one()
    }

    /// Reads a header as [`header`](Self::header) does, and distinguishes several values from none.
    pub(crate) fn read_header(&self, name: impl http::header::AsHeaderName + AsRef<str>) -> Reading<'a> {
        let is = |other: &HeaderName| name.as_ref().eq_ignore_ascii_case(other.as_str());
        let (is_host, is_cookie) = (is(&HOST), is(&COOKIE));
        let mut lines = self.headers.get_all(name).iter().map(|line| line.as_bytes().trim_ascii());
        if is_cookie {
            return joined(lines.filter(|line| !line.is_empty())).map_or(Reading::Missing, Reading::One);
        }
        let target = self.uri.authority().filter(|_| is_host).map(|target| target.as_str().as_bytes());
        let (first, second) = (lines.next(), lines.next());
        if second.is_some() {
            return Reading::Ambiguous;
        }
        match (target.or(first), first) {
            (Some(host), other) if is_host => {
                let host = canonical_host(host);
                match other.is_none_or(|other| canonical_host(other) == host) {
                    true => Reading::of(host),
                    false => Reading::Ambiguous,
                }
            }
            (Some(value), _) => Reading::of(Cow::Borrowed(value)),
            (None, _) => Reading::Missing,
        }
    }

    /// Returns the value of a query parameter that occurs exactly once, with percent-encoding and
    /// `+` decoded. Returns `None` if the parameter is missing or empty, or if it occurs more than
    /// once.
    ///
    /// ```
    /// # use http::Request;
    /// # use tollgate_http::RequestHead;
    /// let request = Request::get("/?api%5Fkey=a%2Bb&x=1&x=2").body(()).unwrap();
    /// let head = RequestHead::of(&request);
    /// assert_eq!(head.query("api_key").unwrap(), &b"a+b"[..]);
    /// assert_eq!(head.query("x"), None);
    /// ```
    pub fn query(&self, name: &str) -> Option<Cow<'a, [u8]>> {
        self.read_query(name).one()
    }

    /// Reads a query parameter as [`query`](Self::query) does, and distinguishes several values
    /// from none.
    pub(crate) fn read_query(&self, name: &str) -> Reading<'a> {
        let pairs = self.uri.query().unwrap_or_default().split('&');
        let pairs = pairs.map(|pair| pair.split_once('=').unwrap_or((pair, "")));
        let is_it = |found: &'a str| {
            // A space before each word but the first.
            let word = |word: &'a str| std::iter::once(b' ').chain(percent_decode(word.as_bytes()));
            found.split('+').flat_map(word).skip(1).eq(name.bytes())
        };
        let mut values = pairs.filter(|(found, _)| is_it(found)).map(|(_, value)| value);
        let (first, second) = (values.next(), values.next());
        match (first, second) {
            (_, Some(_)) => Reading::Ambiguous,
            (None, None) => Reading::Missing,
            (Some(value), None) if value.contains('+') => {
                let spaced = value.replace('+', " ");
                Reading::of(Cow::Owned(percent_decode(spaced.as_bytes()).collect()))
            }
            (Some(value), None) => Reading::of(percent_decode(value.as_bytes()).into()),
        }
    }

    /// Returns the value of `Content-Length` if this header occurs once and is a number.
    ///
    /// ```
    /// # use http::Request;
    /// # use tollgate_http::RequestHead;
    /// let request = Request::post("/").header("content-length", "1500").body(()).unwrap();
    /// assert_eq!(RequestHead::of(&request).content_length(), Some(1500));
    /// ```
    pub fn content_length(&self) -> Option<u64> {
        number(self.headers, &CONTENT_LENGTH)
    }
}

/// The result of reading a value from a request.
pub(crate) enum Reading<'a> {
    /// There is no value, or an empty one.
    Missing,
    /// There is one value, which is not empty.
    One(Cow<'a, [u8]>),
    /// There are several values, and the layer cannot know which of them the server uses.
    Ambiguous,
}

impl<'a> Reading<'a> {
    fn of(value: Cow<'a, [u8]>) -> Self {
        if value.is_empty() { Self::Missing } else { Self::One(value) }
    }

    fn one(self) -> Option<Cow<'a, [u8]>> {
        match self {
            Self::One(value) => Some(value),
            Self::Missing | Self::Ambiguous => None,
        }
    }
}

/// Parses a header name written by a user.
pub(crate) fn header_name(name: &str) -> Result<HeaderName, Fault> {
    name.parse().map_err(|_| Fault::HeaderName { name: name.to_owned() })
}

/// Returns the item of an iterator that has exactly one item.
fn single<T>(mut several: impl Iterator<Item = T>) -> Option<T> {
    let first = several.next()?;
    if several.next().is_some() { None } else { Some(first) }
}

/// Joins the lines of `Cookie` into one (RFC 9113, section 8.2.3).
fn joined<'a>(mut lines: impl Iterator<Item = &'a [u8]>) -> Option<Cow<'a, [u8]>> {
    let mut all = Cow::Borrowed(lines.next()?);
    for line in lines {
        let all = all.to_mut();
        all.extend_from_slice(b"; ");
        all.extend_from_slice(line);
    }
    Some(all)
}

/// Returns the number in a header or trailer. The field must occur once and contain only digits,
/// apart from surrounding spaces.
pub(crate) fn number(headers: &HeaderMap, name: &HeaderName) -> Option<u64> {
    let value = single(headers.get_all(name).iter())?.as_bytes().trim_ascii();
    let is_number = value.iter().all(u8::is_ascii_digit);
    std::str::from_utf8(value).ok()?.parse().ok().filter(|_| is_number)
}

/// An extension that marks a response as a refusal.
#[derive(Clone, Copy)]
pub(crate) struct RefusalMark {
    /// The wait in whole seconds that the layer promises.
    pub(crate) wait: Option<u64>,
}

/// A response without its body, by reference.
///
/// ```
/// use http::Response;
/// use tollgate_http::ResponseHead;
///
/// let response = Response::builder().status(401).body(()).unwrap();
/// assert_eq!(ResponseHead::of(&response).status(), 401);
/// ```
#[derive(Clone, Copy, Debug)]
pub struct ResponseHead<'a> {
    status: StatusCode,
    headers: &'a HeaderMap,
    extensions: &'a Extensions,
}

impl<'a> ResponseHead<'a> {
    /// Returns the head of `response`.
    pub fn of<B>(response: &'a Response<B>) -> Self {
        Self { status: response.status(), headers: response.headers(), extensions: response.extensions() }
    }

    /// Returns the status. A gRPC response always has status 200, and its real status is in
    /// `grpc-status`. If the response contains no message, `grpc-status` is among the headers.
    /// Otherwise it is in the trailers, which have not been received yet.
    pub fn status(&self) -> StatusCode {
        self.status
    }

    /// Returns whether an inner [`RateLimitLayer`](crate::RateLimitLayer) refused the request. The
    /// request then never reached the handler. The result is also true if the handler itself
    /// refused the request with a [`HandlerLimit`](crate::HandlerLimit).
    ///
    /// Such a refusal is marked with an extension of the response. The result is therefore false if
    /// the handler, or a server behind it, responds with the same status.
    ///
    /// ```
    /// # use tollgate_http::Limit;
    /// # use tollgate::{Quota, SingleLimiter};
    /// # let limiter = SingleLimiter::builder(Quota::per_second(10)).build()?;
    /// // Before authentication: requests that later limits refuse are not charged here.
    /// let before = Limit::new("before", limiter).charge_if(|response| !response.is_refusal());
    /// # Ok::<(), tollgate::ConfigError>(())
    /// ```
    pub fn is_refusal(&self) -> bool {
        self.refusal().is_some()
    }

    pub(crate) fn refusal(&self) -> Option<RefusalMark> {
        self.extensions.get().copied()
    }

    /// Returns the headers.
    pub fn headers(&self) -> &'a HeaderMap {
        self.headers
    }

    /// Returns the extensions, which the handler and inner layers have set.
    pub fn extensions(&self) -> &'a Extensions {
        self.extensions
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_in_headers_occurs_once_and_has_digits_only() {
        let name = HeaderName::from_static("x-tokens");
        let number = |values: &[&str]| {
            let pairs = values.iter().map(|value| (name.clone(), value.parse().unwrap()));
            super::number(&pairs.collect(), &name)
        };
        assert_eq!((number(&["12"]), number(&["\t12 "])), (Some(12), Some(12)));
        for values in [&[][..], &["12", "12"], &["+12"], &["-1"], &["1.5"], &[""], &["99999999999999999999"]]
        {
            assert_eq!(number(values), None, "{values:?}");
        }
    }
}
