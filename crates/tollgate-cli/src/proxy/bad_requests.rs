//! Handles requests that hyper answers by itself because they are not HTTP.
//!
//! Such requests never reach the proxy's service. With HTTP/1, hyper answers with 400, 414 or 431;
//! with HTTP/2, it ends the connection. In both cases, the connection's future ends with an error.
//! The proxy uses this error to count and log the request, and to charge the client's address.

use std::error::Error;
use std::net::IpAddr;

use http::StatusCode;
use tollgate::{Limiter, Quota, WhenFull};
use tollgate_http::KeyPart;

use crate::failure::Failure;

/// The maximum number of addresses tracked at the same time. Further addresses are not limited.
const MAX_ADDRESSES: usize = 100_000;

/// The fault of a bad request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BadRequest {
    /// The request is not HTTP.
    Malformed,
    /// The request's target is longer than hyper allows.
    UriTooLong,
    /// The request's head is larger than `--max-header-size` or has too many fields.
    HeadTooLarge,
    /// The client violated the HTTP/2 protocol.
    Http2,
}

impl BadRequest {
    pub(crate) const ALL: [Self; 4] = [Self::Malformed, Self::UriTooLong, Self::HeadTooLarge, Self::Http2];

    /// Returns the fault of the request that made a connection end with this error, or `None` if no
    /// request caused the error.
    pub(crate) fn of(error: &(dyn Error + Send + Sync + 'static)) -> Option<Self> {
        let error = error.downcast_ref::<hyper::Error>()?;
        if error.is_parse_too_large() {
            // Only the text of hyper's error distinguishes a long target from a large head.
            let is_uri = error.to_string().contains("URI too long");
            return Some(if is_uri { Self::UriTooLong } else { Self::HeadTooLarge });
        }
        if error.is_parse() {
            return Some(Self::Malformed);
        }
        // An error counts if this side of the connection detected it. All other errors stem from
        // broken connections or from clients that disconnected.
        let http2 = error.source().and_then(|source| source.downcast_ref::<h2::Error>());
        http2.filter(|error| error.is_library()).map(|_| Self::Http2)
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Malformed => "malformed",
            Self::UriTooLong => "uri-too-long",
            Self::HeadTooLarge => "head-too-large",
            Self::Http2 => "http2",
        }
    }

    /// Returns the status for the access log: with HTTP/1, the status that hyper sent; with HTTP/2,
    /// the closest match.
    pub(crate) fn status(self) -> StatusCode {
        match self {
            Self::Malformed | Self::Http2 => StatusCode::BAD_REQUEST,
            Self::UriTooLong => StatusCode::URI_TOO_LONG,
            Self::HeadTooLarge => StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE,
        }
    }
}

/// Limits how many bad requests each address may send.
pub(crate) struct BadRequestLimit {
    limiter: Option<Limiter<KeyPart<'static>>>,
    ipv6_prefix: u8,
}

impl BadRequestLimit {
    /// Creates a limit. Without a quota, no address is limited.
    ///
    /// # Errors
    ///
    /// Returns an error if no limiter can enforce the quota.
    pub(crate) fn new(quota: Option<Quota>, ipv6_prefix: u8) -> Result<Self, Failure> {
        let limiter = |quota| {
            let limiter = Limiter::<KeyPart<'static>>::builder(quota)
                .max_keys(MAX_ADDRESSES)
                .when_full(WhenFull::Allow);
            limiter.build().map_err(|error| Failure::refused(format!("--bad-request-limit: {error}")))
        };
        Ok(Self { limiter: quota.map(limiter).transpose()?, ipv6_prefix })
    }

    /// Charges an address for a bad request.
    pub(crate) fn charge(&self, ip: IpAddr) {
        if let Some(limiter) = &self.limiter {
            let _ = limiter.check(&KeyPart::address(ip, self.ipv6_prefix));
        }
    }

    /// Returns whether an address has used up its quota of bad requests.
    pub(crate) fn is_spent(&self, ip: IpAddr) -> bool {
        let spent = |limiter: &Limiter<KeyPart<'static>>| {
            !limiter.peek(&KeyPart::address(ip, self.ipv6_prefix)).is_allowed()
        };
        self.limiter.as_ref().is_some_and(spent)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_spent_by_bad_requests_alone_and_a_network_of_ipv6_is_one() {
        let ip = |text: &str| text.parse().expect("an address");
        let limit = BadRequestLimit::new(Some(Quota::per_hour(2)), 64).expect("a quota");
        for _ in 0..9 {
            assert!(!limit.is_spent(ip("192.0.2.1")), "looking is free");
        }
        for _ in 0..2 {
            limit.charge(ip("::ffff:192.0.2.1"));
            limit.charge(ip("2001:db8::1"));
        }
        assert!(limit.is_spent(ip("192.0.2.1")) && limit.is_spent(ip("2001:db8::ffff")));
        assert!(!limit.is_spent(ip("192.0.2.2")) && !limit.is_spent(ip("2001:db8:0:1::1")));
    }

    #[test]
    fn without_a_quota_nothing_is_limited() {
        let limit = BadRequestLimit::new(None, 64).expect("nothing to refuse");
        let ip = IpAddr::from([192, 0, 2, 1]);
        limit.charge(ip);
        assert!(!limit.is_spent(ip));
    }
}
