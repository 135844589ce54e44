//! What limits allow: rates, a number of requests at once, everything, or nothing.

use super::error::TextError;
use super::printable::printable;
use super::quota::parse_quota;
use super::words::Words;
use std::fmt;
use tollgate::Quota;

/// The allowance of one limit for each of its keys.
///
/// `Display` writes an allowance in its text form: `100/s burst 20`, `8 at once`, `unlimited`,
/// `blocked`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Allowance {
    /// A rate.
    Rate(Quota),
    /// This many requests in flight at once.
    AtOnce(u64),
    /// Any number of requests: the limit does not apply.
    Unlimited,
    /// No request: each one is refused immediately, with [a separate
    /// reason](crate::RefusalReason::Blocked).
    Blocked,
}

impl Allowance {
    /// Returns the quota of a rate.
    pub fn rate(&self) -> Option<Quota> {
        match *self {
            Self::Rate(quota) => Some(quota),
            Self::AtOnce(_) | Self::Unlimited | Self::Blocked => None,
        }
    }
}

impl fmt::Display for Allowance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Rate(quota) => quota.fmt(f),
            Self::AtOnce(most) => write!(f, "{most} at once"),
            Self::Unlimited => f.write_str("unlimited"),
            Self::Blocked => f.write_str("blocked"),
        }
    }
}

/// The allowances parsed from text. Several allowances apply together. `unlimited` and `blocked`
/// cannot be combined with others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Allowances(pub(crate) Vec<Allowance>);

impl Allowances {
    /// Parses text that consists only of allowances, with `and` between them.
    pub(crate) fn parse(text: &str) -> Result<Self, TextError> {
        let mut words = Words::new(text);
        let mut all = Vec::new();
        loop {
            all.push(one(words.take_until(|words| words.start_with(&["and"])))?);
            if !words.take("and") {
                break;
            }
        }
        let alone = all.iter().find(|it| matches!(it, Allowance::Unlimited | Allowance::Blocked));
        if let (Some(alone), 2..) = (alone, all.len()) {
            return Err(TextError::new(format!(
                "`{alone}` beside another allowance: expected it alone, or rates and `N at once` with `and` \
                 between them"
            )));
        }
        if all.iter().filter(|it| matches!(it, Allowance::AtOnce(_))).count() > 1 {
            return Err(TextError::new(
                "`at once` twice, and only the smaller number would count: expected it once",
            ));
        }
        Ok(Self(all))
    }

    /// Consumes the allowances' words, which end before `class` or `by`.
    pub(super) fn take(words: &mut Words<'_>) -> Result<Self, TextError> {
        Self::parse(words.take_until(|words| words.start_with(&["class"]) || words.start_with(&["by"])))
    }

    /// Returns the quotas of the rates.
    pub(crate) fn rates(&self) -> impl Iterator<Item = Quota> {
        self.0.iter().filter_map(Allowance::rate)
    }

    /// Returns the number of requests at once.
    pub(crate) fn at_once(&self) -> Option<Allowance> {
        self.0.iter().copied().find(|it| matches!(it, Allowance::AtOnce(_)))
    }

    /// Returns the allowance for a part of the limit that has no entry of its own: blocked if these
    /// allowances block everything, and unlimited otherwise.
    pub(crate) fn otherwise(&self) -> Allowance {
        if self.0 == [Allowance::Blocked] { Allowance::Blocked } else { Allowance::Unlimited }
    }
}

fn one(text: &str) -> Result<Allowance, TextError> {
    match text {
        "unlimited" => return Ok(Allowance::Unlimited),
        "blocked" => return Ok(Allowance::Blocked),
        _ => {}
    }
    let Some(most) = text.strip_suffix("once").and_then(|it| it.trim_end().strip_suffix("at")) else {
        let quota = parse_quota(text)?;
        if quota.tokens() == 0 {
            return Err(TextError::new(format!(
                "`{}` allows no request: expected at least 1, as in `1/min`; write `blocked` to refuse every request",
                printable(text.as_bytes())
            )));
        }
        return Ok(Allowance::Rate(quota));
    };
    let number: Option<u64> = most.trim().parse().ok().filter(|most| (1..=1_000_000).contains(most));
    number.map(Allowance::AtOnce).ok_or_else(|| {
        TextError::new(format!(
            "invalid number `{}` before `at once`: expected 1 to 1000000, as in `8 at once`",
            printable(most.trim().as_bytes())
        ))
    })
}

impl fmt::Display for Allowances {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, allowance) in self.0.iter().enumerate() {
            write!(f, "{}{allowance}", if number == 0 { "" } else { " and " })?;
        }
        Ok(())
    }
}
