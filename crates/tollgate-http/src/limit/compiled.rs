//! A named limit whose configuration has been checked.

use super::backend::Backend;
use super::cost::{Cost, Kind};
use super::named::{Charges, Limit, Skips, WhenNoKey};
use crate::error::BuildError;
use crate::head::RequestHead;
use crate::key::by::How;
use crate::key::parts::{KeyPart, KeyRef};
use std::sync::Arc;
use std::time::Duration;
use tollgate::Quota;

/// The longest name of a limit, in bytes.
const MAX_NAME: usize = 128;
/// More requests in a second than any machine receives.
const MAX_REQUESTS: u128 = 100_000_000;

pub(crate) struct CompiledLimit {
    pub(crate) name: Arc<str>,
    /// The name as a String of structured fields, with its quotes.
    pub(crate) quoted: Box<str>,
    pub(crate) backend: Backend,
    /// The most keys that a limiter of this process tracks, if it has keys.
    pub(crate) max_keys: Option<usize>,
    how: Option<How>,
    pub(crate) cost: Cost,
    /// What requests without a key get; set if there may be any.
    pub(crate) no_key: Option<WhenNoKey>,
    pub(crate) shadow: bool,
    skips: Option<Box<Skips>>,
    pub(crate) charges: Option<Box<Charges>>,
    pub(crate) keeps_on_error: bool,
}

impl CompiledLimit {
    pub(crate) fn new(limit: Limit) -> Result<Self, BuildError> {
        let Limit { name, backend, by, cost, no_key, shadow, skips, charges, keeps_on_error } = limit;
        let quoted = quoted(&name)?;
        let how = by.map(|by| by.checked()).transpose()?;
        if let (Some(missing), None) = (how.as_ref().and_then(How::may_miss), no_key) {
            return Err(BuildError::NoKey { limit: name, missing });
        }
        if charges.is_some() && backend.is_in_flight() {
            return Err(BuildError::InFlightRule { limit: name, rule: "charge_if" });
        }
        let limit = Self {
            name: name.into(),
            quoted,
            max_keys: backend.max_keys(),
            backend,
            how,
            cost,
            no_key,
            shadow,
            skips,
            charges,
            keeps_on_error,
        };
        limit.triggers()?;
        Ok(limit)
    }

    /// Refuses a limit that would admit everything or nothing, as far as the configuration shows
    /// it.
    fn triggers(&self) -> Result<(), BuildError> {
        let limit = || self.name.as_ref().to_owned();
        let &Kind::Fixed(cost) = &self.cost.kind else {
            return match self.cost.kind {
                Kind::ContentLength { unit: 0, .. } => Err(BuildError::ZeroUnit { limit: limit() }),
                _ => Ok(()),
            };
        };
        if cost == 0 {
            return Err(BuildError::ZeroCost { limit: limit() });
        }
        if let Some(capacity) = self.backend.capacity_below(&self.shared(), cost) {
            return Err(BuildError::CostAboveCapacity { limit: limit(), cost, capacity });
        }
        let quota = self.backend.quota();
        if !self.backend.is_in_flight() && requests_a_second(quota, cost) > MAX_REQUESTS {
            return Err(BuildError::NeverTriggers { limit: limit(), quota });
        }
        Ok(())
    }

    pub(crate) fn skips(&self, head: RequestHead<'_>) -> bool {
        self.skips.as_ref().is_some_and(|skips| skips(head))
    }

    /// Returns the key of a request. Requests without one have a common key with
    /// [`WhenNoKey::Share`], and `None` otherwise.
    pub(crate) fn key<'a>(&'a self, head: RequestHead<'a>) -> Option<KeyRef<'a>> {
        let mut key = KeyRef::new(&self.name);
        match &self.how {
            Some(how) if how.find(head, &mut key) => Some(key),
            Some(_) if self.no_key != Some(WhenNoKey::Share) => None,
            Some(_) => Some(self.shared()),
            None => Some(key),
        }
    }

    fn shared(&self) -> KeyRef<'_> {
        let mut key = KeyRef::new(&self.name);
        key.push(KeyPart::Missing);
        key
    }
}

/// The name as it is written in headers.
fn quoted(name: &str) -> Result<Box<str>, BuildError> {
    let refused = || BuildError::Name { name: name.to_owned(), most: MAX_NAME };
    if name.is_empty() || name.len() > MAX_NAME {
        return Err(refused());
    }
    let string = sfv::StringRef::from_str(name).map_err(|_| refused())?;
    Ok(sfv::ItemSerializer::new().bare_item(string).finish().into())
}

fn requests_a_second(quota: Quota, cost: u64) -> u128 {
    let tokens = u128::from(quota.tokens()) * Duration::from_secs(1).as_nanos();
    tokens / quota.period().as_nanos().max(1) / u128::from(cost)
}
