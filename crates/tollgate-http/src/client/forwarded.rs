//! Finds the client's address behind proxies by walking over the trusted addresses from the right.

use super::address;
use super::elements;
use crate::error::Fault;
use crate::head::{Reading, RequestHead};
use crate::text::error::TextError;
use crate::text::printable::printable;
use http::header::{AUTHORIZATION, COOKIE, FORWARDED, HOST, HeaderName, PROXY_AUTHORIZATION};
use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;

/// The field in which the proxies in front of a service report the client's address.
///
/// The layer reads exactly one field, because a proxy that writes one field passes on the other
/// fields as the client sent them.
///
/// ```
/// use tollgate_http::{ForwardedField, KeyBy, TrustedProxies};
///
/// let by = KeyBy::forwarded(ForwardedField::XForwardedFor, TrustedProxies::hops(1));
/// // The field of a content delivery network.
/// let field: ForwardedField = "cf-connecting-ip".parse()?;
/// let by = KeyBy::forwarded(field, TrustedProxies::networks(["173.245.48.0/20"]));
/// # Ok::<(), tollgate_http::settings::TextError>(())
/// ```
///
/// As text, and with the feature `serde`, a field is the name of its header: `forwarded`,
/// `x-forwarded-for`, or any other name for a field with a single address.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ForwardedField {
    /// `Forwarded` (RFC 7239), a list to which each proxy appends; its parameter `for` is read.
    Forwarded,
    /// `X-Forwarded-For`, a list to which each proxy appends.
    XForwardedFor,
    /// A header with the client's address alone, such as `X-Real-IP`, `CF-Connecting-IP` or
    /// `True-Client-IP`. A trusted proxy must set or remove it in each request.
    ///
    /// If the peer is a trusted proxy, the client is the address in the header, whatever the number
    /// of [hops](TrustedProxies::hops). If the header is missing or empty, the client is the peer.
    /// If the header occurs twice, contains a list, or contains anything other than an address, no
    /// key is found, as for an entry of a list that is not an address.
    ///
    /// With the feature `tracing`, the layer warns of the first request from a trusted proxy
    /// without the header, unless an earlier request had it: all clients behind such a proxy share
    /// one key. The same holds for the two lists.
    ///
    /// The name of one of the two lists selects that list.
    Single(HeaderName),
}

/// Headers that never contain an address. A proxy reports the client in the configured field, and
/// would overwrite these headers.
const WITHOUT_ADDRESS: [HeaderName; 4] = [AUTHORIZATION, COOKIE, HOST, PROXY_AUTHORIZATION];

impl ForwardedField {
    /// Returns the field with this header. The headers of the two lists select their variants.
    fn of(header: HeaderName) -> Self {
        match header {
            header if header == FORWARDED => Self::Forwarded,
            header if header == X_FORWARDED_FOR => Self::XForwardedFor,
            header => Self::Single(header),
        }
    }

    /// Returns the header.
    pub(crate) fn header(&self) -> &HeaderName {
        match self {
            Self::Forwarded => &FORWARDED,
            Self::XForwardedFor => &X_FORWARDED_FOR,
            Self::Single(header) => header,
        }
    }
}

impl FromStr for ForwardedField {
    type Err = TextError;

    /// # Errors
    ///
    /// Returns an error if the text is not the name of a header, or if the header is known to
    /// contain something other than an address, such as `cookie`.
    fn from_str(text: &str) -> Result<Self, TextError> {
        let header = text.parse().ok().filter(|header| !WITHOUT_ADDRESS.contains(header));
        header.map(Self::of).ok_or_else(|| {
            TextError::new(format!(
                "invalid field `{}`: expected `x-forwarded-for`, `forwarded`, or the name of a header with one \
                 address, such as `x-real-ip`",
                printable(text.as_bytes())
            ))
        })
    }
}

impl fmt::Display for ForwardedField {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.header().as_str())
    }
}

/// The trusted proxies in front of a service, and how the client's address is found behind them.
///
/// ```
/// use tollgate_http::{ForwardedField, KeyBy, Limit, WhenNoKey, RateLimitLayer, TrustedProxies};
/// use tollgate::{Limiter, Quota};
///
/// let layer = |proxies| {
///     let limiter = Limiter::builder(Quota::per_second(10)).build()?;
///     let by = KeyBy::forwarded(ForwardedField::XForwardedFor, proxies);
///     let limit = Limit::new("per-client", limiter).by(by).when_no_key(WhenNoKey::Deny);
///     Ok::<_, Box<dyn std::error::Error>>(RateLimitLayer::builder().limit(limit).build()?)
/// };
/// assert!(layer(TrustedProxies::networks(["10.0.0.0/8", "fd00::/8"])).is_ok());
/// // If every address were trusted, the client could write any address.
/// let refused = layer(TrustedProxies::networks(["0.0.0.0/0"])).unwrap_err();
/// assert!(refused.to_string().starts_with("the trusted networks hold every IPv4 address"));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TrustedProxies {
    trusted: Result<Trusted, Fault>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Trusted {
    Networks(Vec<IpNet>),
    Hops(usize),
}

impl TrustedProxies {
    /// The largest number of trusted hops.
    pub(crate) const MAX_HOPS: usize = 16;

    /// Trusts the machines in these networks: `10.0.0.0/8`, `2001:db8::/32`, or single addresses.
    ///
    /// The walk begins at the peer. It continues from right to left through the field's addresses
    /// while the current address is trusted. The first untrusted address is the client. If all
    /// addresses are trusted, the client is the leftmost one. If the peer is not trusted, the
    /// client is the peer, and the field is ignored.
    ///
    /// No key is found if there is no peer address, or if the walk reaches an entry that is not an
    /// address (`unknown`, `_hidden`, or anything else).
    ///
    /// ```
    /// # use tollgate_http::TrustedProxies;
    /// let proxies = TrustedProxies::networks(["10.0.0.0/8", "192.0.2.7"]);
    /// ```
    pub fn networks<N: Into<String>>(networks: impl IntoIterator<Item = N>) -> Self {
        let texts: Vec<String> = networks.into_iter().map(Into::into).collect();
        Self { trusted: self::networks(&texts).map(Trusted::Networks) }
    }

    /// Trusts this number of proxies, from 1 to 16, including the proxy that connects to this
    /// service. With `hops(n)`, the client is the `n`th entry from the right.
    ///
    /// If there are fewer entries than hops, the client is the leftmost entry. If there are no
    /// entries, the client is the peer. If the client's entry is not an address, no key is found.
    /// Entries to the right of the client's entry are ignored.
    ///
    /// Use this method only if every request passes through that many proxies. A client that
    /// bypasses one of the proxies can choose its own address.
    ///
    /// ```
    /// # use tollgate_http::TrustedProxies;
    /// // A content delivery network, and a load balancer of our own.
    /// let proxies = TrustedProxies::hops(2);
    /// ```
    pub fn hops(hops: usize) -> Self {
        let trusted = match hops {
            1..=Self::MAX_HOPS => Ok(Trusted::Hops(hops)),
            _ => Err(Fault::Hops { hops, most: Self::MAX_HOPS }),
        };
        Self { trusted }
    }

    /// Returns whether the field is trusted if the request arrives from `peer`. With hops, every
    /// peer is a proxy. If [`check`](Self::check) returns an error, no peer is trusted.
    pub(crate) fn trusts(&self, peer: IpAddr) -> bool {
        match &self.trusted {
            Ok(Trusted::Networks(networks)) => hold(networks, peer.to_canonical()),
            Ok(Trusted::Hops(_)) => true,
            Err(_) => false,
        }
    }

    /// Returns whether a field is trusted in a request from this peer. With hops, the field is
    /// trusted even if there is no peer address.
    pub(crate) fn believes(&self, peer: Option<SocketAddr>) -> bool {
        matches!(self.trusted, Ok(Trusted::Hops(_))) || peer.is_some_and(|peer| self.trusts(peer.ip()))
    }

    /// Checks the configuration.
    ///
    /// # Errors
    ///
    /// Returns an error if a network cannot be parsed, if the networks contain every address, if
    /// there is no network, or if the number of hops is out of range.
    pub(crate) fn check(&self) -> Result<(), Fault> {
        self.trusted.as_ref().map(|_| ()).map_err(Fault::clone)
    }
}

fn hold(networks: &[IpNet], address: IpAddr) -> bool {
    networks.iter().any(|network| network.contains(&address))
}

/// A field and trusted proxies that have been checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Walk {
    field: ForwardedField,
    over: Trusted,
}

static X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");

impl Walk {
    pub(crate) fn new(field: ForwardedField, proxies: &TrustedProxies) -> Result<Self, Fault> {
        let field = match field {
            ForwardedField::Single(header) => ForwardedField::of(header),
            list => list,
        };
        Ok(Self { field, over: proxies.trusted.clone()? })
    }

    /// Returns the client's address, folded.
    pub(crate) fn client(&self, head: RequestHead<'_>) -> Option<IpAddr> {
        let peer = head.peer().map(address::of_socket);
        if let ForwardedField::Single(header) = &self.field {
            return match head.read_header(header) {
                _ if !self.believes(peer) => peer,
                Reading::One(value) => address::parse_node(std::str::from_utf8(&value).ok()?),
                Reading::Missing => peer,
                Reading::Ambiguous => None,
            };
        }
        match &self.over {
            Trusted::Networks(networks) => {
                let mut client = peer?;
                let mut entries = self.entries(head);
                while hold(networks, client) {
                    match entries.next() {
                        Some(entry) => client = self.address(entry)?,
                        None => break,
                    }
                }
                Some(client)
            }
            &Trusted::Hops(hops) => match self.entries(head).take(hops).last() {
                Some(entry) => self.address(entry),
                None => peer,
            },
        }
    }

    /// Returns the header in which the client's address is reported.
    pub(crate) fn header(&self) -> &HeaderName {
        self.field.header()
    }

    /// Returns whether the header is missing or empty in a request from a trusted proxy. Returns
    /// `None` if the request is not from a trusted proxy.
    #[cfg(any(feature = "tracing", feature = "unstable-program"))]
    pub(crate) fn is_absent(&self, head: RequestHead<'_>) -> Option<bool> {
        let believes = self.believes(head.peer().map(address::of_socket));
        believes.then(|| self.entries(head).next().is_none())
    }

    /// Returns whether a request from this peer may contain the header of a trusted proxy.
    fn believes(&self, peer: Option<IpAddr>) -> bool {
        match &self.over {
            Trusted::Networks(networks) => peer.is_some_and(|peer| hold(networks, peer)),
            Trusted::Hops(_) => true,
        }
    }

    fn entries<'a>(&self, head: RequestHead<'a>) -> impl Iterator<Item = &'a [u8]> {
        let is_quoted = self.field == ForwardedField::Forwarded;
        elements::from_right(head.headers(), self.header(), is_quoted)
    }

    /// Parses an entry of a list.
    fn address(&self, entry: &[u8]) -> Option<IpAddr> {
        match self.field {
            ForwardedField::Forwarded => address::parse_node(&elements::forwarded_for(entry)?),
            _ => address::parse_node(std::str::from_utf8(entry).ok()?),
        }
    }
}

/// Parses networks, and converts IPv4-mapped networks to IPv4. Returns an error if the networks
/// together contain every address.
fn networks(texts: &[String]) -> Result<Vec<IpNet>, Fault> {
    if texts.is_empty() {
        return Err(Fault::NoNetworks);
    }
    let networks: Vec<IpNet> = texts.iter().map(|text| network(text)).collect::<Result<_, _>>()?;
    // For example, this merges the two halves of the address space into one network of all
    // addresses.
    let networks = IpNet::aggregate(&networks);
    match networks.iter().find(|network| network.prefix_len() == 0) {
        Some(IpNet::V4(_)) => Err(Fault::TrustsEverybody { family: "IPv4" }),
        Some(IpNet::V6(_)) => Err(Fault::TrustsEverybody { family: "IPv6" }),
        None => Ok(networks),
    }
}

/// Parses a network, or an address as a network of one address. An IPv4-mapped network is converted
/// to IPv4.
pub(crate) fn network(text: &str) -> Result<IpNet, Fault> {
    let parsed = text.parse().ok().or_else(|| text.parse().ok().map(|address: IpAddr| IpNet::from(address)));
    let network: IpNet = parsed.ok_or_else(|| Fault::NotANetwork { text: text.to_owned() })?;
    Ok(match network {
        IpNet::V6(v6) => folded(v6).map_or(network, IpNet::V4),
        IpNet::V4(_) => network,
    })
}

/// Converts a network of IPv4-mapped addresses to the IPv4 network.
fn folded(network: Ipv6Net) -> Option<Ipv4Net> {
    let address = network.addr().to_ipv4_mapped()?;
    Ipv4Net::new(address, network.prefix_len().checked_sub(96)?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(texts: &[&str]) -> Fault {
        let proxies = TrustedProxies::networks(texts.iter().copied());
        Walk::new(ForwardedField::XForwardedFor, &proxies).unwrap_err()
    }

    #[test]
    fn whoever_trusts_everybody_is_told() {
        let v4 = Fault::TrustsEverybody { family: "IPv4" };
        let v6 = Fault::TrustsEverybody { family: "IPv6" };
        assert_eq!(refused(&["10.0.0.0/8", "0.0.0.0/0"]), v4);
        assert_eq!(refused(&["1.2.3.4/0"]), v4);
        assert_eq!(refused(&["0.0.0.0/1", "128.0.0.0/1"]), v4);
        assert_eq!(refused(&["::ffff:0:0/96"]), v4);
        assert_eq!(refused(&["::/0"]), v6);
        assert_eq!(refused(&["8000::/1", "::/2", "4000::/2"]), v6);
    }

    #[test]
    fn what_is_no_network_is_refused_and_so_are_none() {
        for text in ["", "10.0.0.0/33", "10.0.0/8", "::/129", "localhost", "10.0.0.0/8 "] {
            assert_eq!(refused(&[text]), Fault::NotANetwork { text: text.to_owned() });
        }
        assert_eq!(refused(&[]), Fault::NoNetworks);
    }

    #[test]
    fn whose_word_counts_is_the_same_beside_a_layer_however_an_address_is_written() {
        let trusts = |proxies: &TrustedProxies, peer: &str| proxies.trusts(peer.parse().unwrap());
        for network in ["10.0.0.0/8", "::ffff:10.0.0.0/104"] {
            let proxies = TrustedProxies::networks([network]);
            assert!(trusts(&proxies, "10.1.2.3") && trusts(&proxies, "::ffff:10.1.2.3"), "{network}");
            assert!(!trusts(&proxies, "11.1.2.3") && !trusts(&proxies, "::1"), "{network}");
        }
        assert!(trusts(&TrustedProxies::hops(1), "192.0.2.1"));
        for refused in [TrustedProxies::networks(["0.0.0.0/0"]), TrustedProxies::hops(0)] {
            assert!(refused.check().is_err() && !trusts(&refused, "192.0.2.1"));
        }
    }

    #[test]
    fn hops_are_from_1_to_16() {
        let walk = |hops| Walk::new(ForwardedField::Forwarded, &TrustedProxies::hops(hops)).map(drop);
        assert_eq!(walk(0), Err(Fault::Hops { hops: 0, most: 16 }));
        assert_eq!(walk(1), Ok(()));
        assert_eq!(walk(16), Ok(()));
        assert_eq!(walk(17), Err(Fault::Hops { hops: 17, most: 16 }));
    }

    #[test]
    fn a_network_of_mapped_addresses_is_one_of_ipv4() {
        assert_eq!(network("::ffff:10.0.0.0/104").unwrap(), "10.0.0.0/8".parse().unwrap());
        assert_eq!(network("::ffff:10.0.0.1").unwrap(), "10.0.0.1/32".parse().unwrap());
        assert_eq!(network("2001:db8::/32").unwrap(), "2001:db8::/32".parse().unwrap());
    }
}
