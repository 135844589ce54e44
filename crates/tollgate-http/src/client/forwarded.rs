//! Finds the client's address behind proxies by walking over the trusted addresses from the right.

use super::address;
use super::elements;
use crate::error::Fault;
use crate::head::RequestHead;
use http::header::HeaderName;
use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use std::net::{IpAddr, SocketAddr};

/// The field in which the proxies in front of a service report the client's address.
///
/// The layer reads exactly one field, because a proxy that writes one field passes on the other
/// field as the client sent it.
///
/// ```
/// use tollgate_http::{ForwardedField, KeyBy, TrustedProxies};
///
/// let by = KeyBy::forwarded(ForwardedField::XForwardedFor, TrustedProxies::hops(1));
/// ```
///
/// The values for serde are `forwarded` and `x-forwarded-for`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(rename_all = "kebab-case"))]
#[non_exhaustive]
pub enum ForwardedField {
    /// `Forwarded` (RFC 7239); its parameter `for` is read.
    Forwarded,
    /// `X-Forwarded-For`.
    XForwardedFor,
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
#[derive(Clone, Debug)]
pub(crate) struct Walk {
    field: ForwardedField,
    over: Trusted,
}

static FORWARDED: HeaderName = HeaderName::from_static("forwarded");
static X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");

impl Walk {
    pub(crate) fn new(field: ForwardedField, proxies: &TrustedProxies) -> Result<Self, Fault> {
        Ok(Self { field, over: proxies.trusted.clone()? })
    }

    /// Returns the client's address, folded.
    pub(crate) fn client(&self, head: RequestHead<'_>) -> Option<IpAddr> {
        let peer = head.peer().map(address::of_socket);
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

    fn entries<'a>(&self, head: RequestHead<'a>) -> impl Iterator<Item = &'a [u8]> {
        match self.field {
            ForwardedField::Forwarded => elements::from_right(head.headers(), &FORWARDED, true),
            ForwardedField::XForwardedFor => elements::from_right(head.headers(), &X_FORWARDED_FOR, false),
        }
    }

    fn address(&self, entry: &[u8]) -> Option<IpAddr> {
        match self.field {
            ForwardedField::Forwarded => address::parse_node(&elements::forwarded_for(entry)?),
            ForwardedField::XForwardedFor => address::parse_node(std::str::from_utf8(entry).ok()?),
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
