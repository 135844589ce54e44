//! Defines the request that a log line of any format describes, and the reason why a line contains
//! no request.

use std::borrow::Cow;
use std::net::IpAddr;

use tollgate::Tick;

/// The text for a missing value, as in Common Log Format.
pub(crate) const MISSING: &[u8] = b"-";

/// Why a line does not parse.
pub type Reason = Cow<'static, str>;

/// The time and cost of a request, without its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record {
    pub at: Tick,
    pub cost: u64,
}

/// A request: the time at which it arrived, its cost and, if the log contains it, its duration.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Arrived {
    pub(crate) at: Tick,
    pub(crate) cost: u64,
    pub(crate) duration_ns: u64,
    pub(crate) ip: Option<IpAddr>,
    /// Whether, according to the proxy's log, a limit refused the request before the other limits
    /// were checked.
    pub(crate) is_early_refusal: bool,
    /// The position of the key in the values of the line.
    pub(crate) key_start: usize,
}

/// The result of parsing a line.
pub(crate) enum Parsed {
    Request(Arrived),
    /// The line parses, but it contains no request.
    NoRequest,
    /// The line describes the log, or is part of a split line that is still incomplete.
    Header,
    Blank,
    Bad(Reason),
}

impl Arrived {
    /// Creates a request of which only the time and the cost are known.
    pub(crate) fn new(at: Tick, cost: u64) -> Self {
        Self { at, cost, duration_ns: 0, ip: None, is_early_refusal: false, key_start: 0 }
    }
}

/// Parses a number of bytes. A `-` and an empty string both count as zero.
pub(crate) fn byte_count(text: &[u8]) -> Result<u64, Reason> {
    if text.is_empty() || text == MISSING {
        return Ok(0);
    }
    text.iter()
        .try_fold(0_u64, |count, &byte| {
            let digit = byte.is_ascii_digit().then(|| u64::from(byte - b'0'))?;
            count.checked_mul(10)?.checked_add(digit)
        })
        .ok_or(Cow::Borrowed("the bytes are not a number"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn byte_counts_are_whole_numbers() {
        for (text, count) in [("-", 0), ("", 0), ("0", 0), ("18446744073709551615", u64::MAX)] {
            assert_eq!(byte_count(text.as_bytes()), Ok(count));
        }
        for text in ["18446744073709551616", "-1", "1.5", "1e3", " 1", "x"] {
            assert!(byte_count(text.as_bytes()).is_err(), "{text}");
        }
    }
}
