//! Scopes, which select the requests for a limit: `POST /login or PUT /password`.

use super::error::TextError;
#[cfg(feature = "unstable-program")]
use super::fact::Fact;
use super::methods::{nearest, registered};
use super::printable::printable;
use super::words::Words;
use crate::client::forwarded::network;
use crate::head::{Reading, RequestHead};
use crate::host::{canonical_host, has_port, is_plain, without_port};
use crate::path::canonical::canonical_path;
use crate::path::spelling::without_case;
use crate::path::template::PathTemplate;
use http::Method;
use http::header::{ACCESS_CONTROL_REQUEST_METHOD, HOST, HeaderName, ORIGIN};
use ipnet::IpNet;
use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

/// Selects the requests that a limit applies to, or the requests exempt from a limit: see the
/// [form](crate::settings#which-requests-a-limit-is-for).
///
/// ```
/// use tollgate_http::settings::Scope;
///
/// let writes: Scope = "POST,PUT /orders/{id} or DELETE".parse()?;
/// assert_eq!(writes.to_string(), "POST,PUT /orders/{id} or DELETE");
/// assert!("post /login".parse::<Scope>().unwrap_err().to_string().contains("invalid condition `post`"));
/// # Ok::<(), tollgate_http::settings::TextError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scope {
    /// A request is in scope if it meets all the conditions of any one alternative.
    alternatives: Vec<Vec<Condition>>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Condition {
    Methods(Vec<Method>),
    Path(PathTemplate),
    /// A host name or, if `is_end` is set, the common end of all its subdomains, which begins with
    /// a dot.
    Host {
        name: String,
        is_end: bool,
    },
    Header {
        name: HeaderName,
        value: Option<String>,
    },
    From(IpNet),
    Preflight,
}

const CONDITIONS: &str = "a method in capitals (`POST`, `GET,PUT`, `method PURGE`), a path that begins with `/` \
    (`/users/{id}`), `host NAME`, `header NAME`, `header NAME=VALUE`, `from NETWORK` or `preflight`";

/// Determines whether a scope selects a request for which it is doubtful whether a condition holds.
/// The reason for the doubt is a value that occurs twice, or two spellings that only some servers
/// treat alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Doubtful {
    /// The limit applies, so that no spelling evades it.
    Selected,
    /// The request is not exempt.
    NotSelected,
}

impl Scope {
    /// Parses the words of a scope, which end before `except`, `class` or `then`.
    pub(super) fn take(words: &mut Words<'_>) -> Result<Self, TextError> {
        let mut alternatives = Vec::new();
        loop {
            let mut conditions: Vec<Condition> = Vec::new();
            while words.peek().is_some_and(|word| !["or", "except", "class", "then"].contains(&word)) {
                let condition = Condition::take(words)?;
                if let Some(other) = conditions.iter().find(|other| other.excludes(&condition)) {
                    let shown = |condition: &Condition| printable(condition.to_string().as_bytes());
                    let (other, condition) = (shown(other), shown(&condition));
                    return Err(TextError::new(format!(
                        "`{other}` and `{condition}` in one alternative: expected conditions that one request can \
                         meet together; write `or` between them if either suffices"
                    )));
                }
                conditions.push(condition);
            }
            if conditions.is_empty() {
                return Err(TextError::new(format!("missing condition: expected {CONDITIONS}")));
            }
            alternatives.push(conditions);
            if !words.take("or") {
                return Ok(Self { alternatives });
            }
        }
    }

    /// Combines the alternatives of several scopes into one scope. Returns `None` if there are
    /// none.
    #[cfg(feature = "serde")]
    pub(super) fn any(scopes: impl IntoIterator<Item = Self>) -> Option<Self> {
        let alternatives: Vec<_> = scopes.into_iter().flat_map(|scope| scope.alternatives).collect();
        (!alternatives.is_empty()).then_some(Self { alternatives })
    }

    /// Returns whether a request is in scope. `client` returns the address of the request's client.
    pub(crate) fn holds(
        &self,
        head: RequestHead<'_>,
        doubtful: Doubtful,
        client: impl Fn() -> Option<IpAddr>,
    ) -> bool {
        let holds =
            |condition: &Condition| condition.holds(head, &client).unwrap_or(doubtful == Doubtful::Selected);
        self.alternatives.iter().any(|all| all.iter().all(holds))
    }

    /// Returns `IPv4` or `IPv6` if the scope contains every address of this family, whatever else
    /// the request is.
    pub(crate) fn everybody(&self) -> Option<&'static str> {
        self.alternatives.iter().find_map(|all| match &all[..] {
            [Condition::From(network)] if network.prefix_len() == 0 => {
                Some(if network.addr().is_ipv4() { "IPv4" } else { "IPv6" })
            }
            _ => None,
        })
    }

    /// Returns whether the scope depends on the address of the client.
    pub(crate) fn asks_for_client(&self) -> bool {
        self.alternatives.iter().flatten().any(|condition| matches!(condition, Condition::From(_)))
    }

    /// Returns the headers on whose presence or value the scope depends.
    pub(crate) fn headers(&self) -> impl Iterator<Item = &HeaderName> {
        self.alternatives.iter().flatten().filter_map(|condition| match condition {
            Condition::Header { name, .. } => Some(name),
            _ => None,
        })
    }

    /// Returns the facts that the scope reads from a request.
    #[cfg(feature = "unstable-program")]
    pub(crate) fn facts(&self) -> impl Iterator<Item = Fact> {
        self.alternatives.iter().flatten().flat_map(Condition::facts)
    }

    /// Returns whether every request in this scope is also in one of `others`. Alternatives are
    /// compared one by one, so the result may be false although the other scopes together contain
    /// all of these requests.
    pub(crate) fn is_within(&self, others: &[&Self]) -> bool {
        let all: Vec<&Vec<Condition>> = others.iter().flat_map(|scope| &scope.alternatives).collect();
        self.alternatives.iter().all(|narrow| {
            let covers = |wide: &Condition| narrow.iter().any(|condition| wide.covers(condition));
            all.iter().any(|wide| wide.iter().all(covers))
        })
    }
}

impl Condition {
    fn take(words: &mut Words<'_>) -> Result<Self, TextError> {
        let word = words.next().unwrap_or_default();
        let mut argument = |what: &str, example: &str| {
            let found = words.next();
            found
                .ok_or_else(|| TextError::new(format!("missing {what} after `{word}`: expected `{example}`")))
        };
        match word {
            "preflight" => Ok(Self::Preflight),
            "method" => Self::methods(argument("name", "method PURGE")?, |_| true),
            "host" => Self::host(argument("name", "host api.example.com")?),
            "header" => Self::header(argument("name", "header x-beta")?),
            "from" => {
                let text = argument("network", "from 10.0.0.0/8")?;
                network(text).map(|network| Self::From(network.trunc())).map_err(|_| {
                    TextError::new(format!(
                        "invalid network `{}` after `from`: expected an address, or a network such as \
                         `10.0.0.0/8` or `2001:db8::/32`",
                        printable(text.as_bytes())
                    ))
                })
            }
            path if path.starts_with('/') => Ok(Self::Path(path.parse()?)),
            methods
                if methods.bytes().all(|byte| byte.is_ascii_uppercase() || byte == b',' || byte == b'-') =>
            {
                Self::methods(methods, |name| registered(name).is_some())
            }
            other => {
                let meant =
                    registered(other).map_or(String::new(), |name| format!("; did you mean `{name}`?"));
                let hint = match other {
                    "*" => "; leave `for` out if the limit is for all requests",
                    _ if other.starts_with('"') => "; write it without quotes",
                    _ => "",
                };
                let other = printable(other.as_bytes());
                Err(TextError::new(format!(
                    "invalid condition `{other}`: expected {CONDITIONS}{meant}{hint}"
                )))
            }
        }
    }

    /// Parses a list of methods, each of which must be known.
    fn methods(text: &str, is_known: impl Fn(&str) -> bool) -> Result<Self, TextError> {
        let all = text.split(',').map(|name| {
            let shown = printable(name.as_bytes());
            let method = registered(name).unwrap_or(name).parse().map_err(|_| {
                TextError::new(format!(
                    "invalid methods `{}`: expected some such as `GET,PUT`",
                    printable(text.as_bytes())
                ))
            })?;
            if is_known(name) {
                return Ok(method);
            }
            let meant = nearest(name).map_or(String::new(), |near| format!(" (did you mean `{near}`?)"));
            Err(TextError::new(format!(
                "unknown method `{shown}`{meant}: expected a registered method such as `POST`, or `method {shown}` for one \
                 that your server defines; leave the method out if every method is meant"
            )))
        });
        all.collect::<Result<_, _>>().map(Self::Methods)
    }

    fn host(text: &str) -> Result<Self, TextError> {
        let (name, is_end) = text.strip_prefix('*').map_or((text, false), |end| (end, true));
        let form = String::from_utf8_lossy(&canonical_host(name.as_bytes())).into_owned();
        let port = &form.as_bytes()[without_port(form.as_bytes()).len()..];
        let is_name = is_plain(without_port(form.as_bytes()))
            && port.iter().skip(1).all(u8::is_ascii_digit)
            && form.starts_with('.') == is_end;
        if !is_name {
            let hint = match () {
                () if !text.is_ascii() => {
                    "; write the form `xn--...` of a name that is not ASCII, which clients send"
                }
                () if text.ends_with(":*") => "; leave the port out, a host without one matches any port",
                () if text.matches(':').count() > 1 => "; write an IPv6 address in brackets, `[2001:db8::1]`",
                () => "",
            };
            return Err(TextError::new(format!(
                "invalid host `{}`: expected a name such as `api.example.com`, or `*.example.com` for all below it{hint}",
                printable(text.as_bytes())
            )));
        }
        Ok(Self::Host { name: form, is_end })
    }

    fn header(text: &str) -> Result<Self, TextError> {
        let invalid = |expected: &str| {
            Err(TextError::new(format!(
                "invalid header `{}`: expected {expected}",
                printable(text.as_bytes())
            )))
        };
        let (name, value) = text.split_once('=').map_or((text, None), |(name, value)| (name, Some(value)));
        if name.ends_with('!') {
            return invalid(
                "no `!=`; name the requests to leave out behind `except`, as in `except header x-plan=free`",
            );
        }
        match value {
            Some("*") => {
                return invalid("`header NAME` for any value, or `header NAME=\"*\"` for an asterisk");
            }
            Some(value) if value.contains([',', '|']) && !value.starts_with('"') => {
                return invalid(
                    "one value; write `header NAME=A or header NAME=B` for two, or a value with a comma in double quotes",
                );
            }
            _ => {}
        }
        let value = value.map(|value| {
            value.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')).unwrap_or(value).to_owned()
        });
        match name.parse() {
            Ok(name) if value.as_ref().is_none_or(|value| !value.is_empty() && !value.contains('"')) => {
                Ok(Self::Header { name, value })
            }
            _ => invalid(
                "`header NAME`, or `header NAME=VALUE` with a value that has spaces in double quotes, as in `header \
                 x-plan=\"free trial\"`",
            ),
        }
    }

    /// Returns whether the condition holds, or `None` if that is doubtful.
    fn holds(&self, head: RequestHead<'_>, client: &impl Fn() -> Option<IpAddr>) -> Option<bool> {
        Some(match self {
            Self::Methods(methods) => holds_method(methods, head.method()),
            Self::Path(template) => {
                let path = canonical_path(head.uri().path().as_bytes());
                let matches = template.matches(&path);
                if !matches && template.may_match(&without_case(&path)) {
                    return None;
                }
                matches
            }
            Self::Host { name, is_end } => match head.read_header(HOST) {
                Reading::One(host) if is_plain(without_port(&host)) => is_host((name, *is_end), &host),
                _ => return None,
            },
            Self::Header { name, value: None } => head.headers().contains_key(name),
            Self::Header { name, value: Some(value) } => match head.read_header(name) {
                Reading::One(found) => *found == *value.as_bytes(),
                Reading::Missing => false,
                Reading::Ambiguous => return None,
            },
            Self::From(network) => client().is_some_and(|address| network.contains(&address.to_canonical())),
            Self::Preflight => {
                let headers = head.headers();
                head.method().as_str().eq_ignore_ascii_case(Method::OPTIONS.as_str())
                    && headers.contains_key(ORIGIN)
                    && headers.contains_key(ACCESS_CONTROL_REQUEST_METHOD)
            }
        })
    }

    #[cfg(feature = "unstable-program")]
    fn facts(&self) -> Vec<Fact> {
        match self {
            Self::Methods(_) => vec![Fact::Method],
            Self::Path(_) => vec![Fact::Path],
            Self::Host { .. } => vec![Fact::Host],
            Self::Header { name, .. } => vec![Fact::header(name.as_str())],
            Self::From(_) => vec![Fact::Ip],
            Self::Preflight => vec![Fact::Preflight],
        }
    }

    /// Returns whether both conditions concern the same property. If they do, either no request
    /// meets both conditions, or one of them is redundant.
    fn excludes(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Header { name, .. }, Self::Header { name: other, .. }) => name == other,
            (Self::Methods(methods), Self::Preflight) | (Self::Preflight, Self::Methods(methods)) => {
                !methods.contains(&Method::OPTIONS)
            }
            _ => std::mem::discriminant(self) == std::mem::discriminant(other),
        }
    }

    /// Returns whether this condition holds whenever `narrow` holds.
    fn covers(&self, narrow: &Self) -> bool {
        match (self, narrow) {
            (Self::Methods(wide), Self::Methods(narrow)) => {
                narrow.iter().all(|method| holds_method(wide, method))
            }
            (Self::Methods(wide), Self::Preflight) => wide.contains(&Method::OPTIONS),
            (Self::Path(wide), Self::Path(narrow)) => wide.covers(narrow),
            (Self::Host { name, is_end }, Self::Host { name: narrow, is_end: is_narrow_end }) => {
                name == narrow && is_end == is_narrow_end
                    || (*is_end || !is_narrow_end) && is_host((name, *is_end), narrow.as_bytes())
            }
            (Self::Header { name, value: None }, Self::Header { name: narrow, .. }) => name == narrow,
            (Self::From(wide), Self::From(narrow)) => wide.contains(narrow),
            _ => self == narrow,
        }
    }
}

/// Returns whether a method is in this list, in any case. A list with GET also contains HEAD.
fn holds_method(methods: &[Method], method: &Method) -> bool {
    let is = |other: &Method, method: &Method| other.as_str().eq_ignore_ascii_case(method.as_str());
    let is_head = is(&Method::HEAD, method) && methods.contains(&Method::GET);
    is_head || methods.iter().any(|other| is(other, method))
}

/// Returns whether a host in canonical form has this name or, if `is_end` is set, ends with it. A
/// name without a port matches any port.
fn is_host((name, is_end): (&str, bool), host: &[u8]) -> bool {
    let host = if has_port(name.as_bytes()) { host } else { without_port(host) };
    match is_end {
        true => host.len() > name.len() && host.ends_with(name.as_bytes()),
        false => host == name.as_bytes(),
    }
}

impl FromStr for Scope {
    type Err = TextError;

    /// # Errors
    ///
    /// Returns a [`TextError`] that names the condition and the expected form.
    fn from_str(text: &str) -> Result<Self, TextError> {
        let mut words = Words::new(text);
        let scope = Self::take(&mut words)?;
        match words.peek() {
            None => Ok(scope),
            Some(word) => Err(TextError::new(format!("`{word}` after the conditions: expected the end"))),
        }
    }
}

impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, conditions) in self.alternatives.iter().enumerate() {
            f.write_str(if number == 0 { "" } else { " or " })?;
            for (number, condition) in conditions.iter().enumerate() {
                write!(f, "{}{condition}", if number == 0 { "" } else { " " })?;
            }
        }
        Ok(())
    }
}

impl fmt::Display for Condition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Methods(methods) => {
                let names: Vec<&str> = methods.iter().map(Method::as_str).collect();
                let is_known = names.iter().all(|name| registered(name).is_some());
                write!(f, "{}{}", if is_known { "" } else { "method " }, names.join(","))
            }
            Self::Path(template) => template.fmt(f),
            Self::Host { name, is_end } => write!(f, "host {}{name}", if *is_end { "*" } else { "" }),
            Self::Header { name, value: None } => write!(f, "header {name}"),
            Self::Header { name, value: Some(value) } => {
                let is_quoted =
                    value.contains(|it: char| it.is_whitespace() || it == ',' || it == '|') || value == "*";
                let quote = if is_quoted { "\"" } else { "" };
                write!(f, "header {name}={quote}{value}{quote}")
            }
            Self::From(network) => write!(f, "from {network}"),
            Self::Preflight => f.write_str("preflight"),
        }
    }
}
