//! A named limit whose configuration has been checked.

use super::any_limiter::AnyLimiter;
use super::backend::Backend;
use super::named::{ChargeIf, Limit, Skips, WhenNoKey};
use super::request_cost::{CostKind, RequestCost};
use super::saved::Savable;
use crate::class::by::{ClassBy, ClassHow, ClassOf};
use crate::class::lookup::{Found, Question};
use crate::error::Fault;
use crate::head::RequestHead;
use crate::key::by::{Finding, How};
use crate::key::parts::{KeyPart, KeyRef};
use crate::metrics::{Counts, Metrics};
use crate::response::refusal::{LimitKind, RefusalReason};
use crate::settle::response_cost::CheckedCost;
use std::sync::Arc;
use std::time::Duration;
use tollgate::Quota;

/// The maximum length of the name of a limit, in bytes.
const MAX_NAME: usize = 128;
/// More requests per second than any machine receives.
const MAX_REQUESTS: u128 = 100_000_000;

pub(crate) struct CompiledLimit {
    pub(crate) name: Arc<str>,
    /// The name as a String of structured fields, with its quotes.
    pub(crate) quoted: Box<str>,
    /// The default class. Most limits have no other class.
    default: Class,
    classes: Option<Classes>,
    how: Option<How>,
    pub(crate) cost: RequestCost,
    /// What happens to requests without a key. This field is set only if such requests are
    /// possible.
    pub(crate) no_key: Option<WhenNoKey>,
    pub(crate) shadow: bool,
    skips: Vec<Box<Skips>>,
    pub(crate) charges: Option<Box<ChargeIf>>,
    pub(crate) keeps_on_error: bool,
    /// How the response reveals the cost; `None` if the charge is final.
    pub(crate) settle: Option<Arc<CheckedCost>>,
    /// The limiters that the layer saves.
    pub(crate) savable: Vec<Savable>,
}

/// A class of a limit's callers, with its limiter.
pub(crate) struct Class {
    /// The name; `None` if the limit has no classes.
    pub(crate) name: Option<Box<str>>,
    pub(crate) backend: AnyLimiter,
    /// The maximum number of keys, for a process-local keyed limiter.
    pub(crate) max_keys: Option<usize>,
    /// The counts of this class's decisions, if the layer has metrics.
    pub(crate) counts: Option<Arc<Counts>>,
}

impl Class {
    fn new(name: Option<Box<str>>, backend: AnyLimiter) -> Self {
        Self { name, max_keys: backend.max_keys(), backend, counts: None }
    }
}

/// The named classes besides the default class, and how a request's class is found.
struct Classes {
    by: ClassHow,
    named: Box<[Class]>,
}

impl Classes {
    /// # Errors
    ///
    /// Returns an error if there are classes but no way to find them, or a way to find classes but
    /// no classes. Also returns an error if a list or file names a class that the limiter does not
    /// have.
    fn new(
        limit: &str,
        by: Option<ClassBy>,
        default: Option<&str>,
        named: Vec<(String, AnyLimiter)>,
    ) -> Result<Option<Self>, Fault> {
        let limit = || limit.to_owned();
        let names = || named.iter().map(|(name, _)| name.clone()).collect();
        let by = match by {
            Some(by) if default.is_none() => {
                by.checked()?;
                return Err(Fault::NoClasses { limit: limit() });
            }
            None if default.is_some() => {
                return Err(Fault::NoClassBy { limit: limit(), classes: names() });
            }
            None => return Ok(None),
            Some(by) => by.checked()?,
        };
        let is_class = |class: &str| default == Some(class) || named.iter().any(|(name, _)| name == class);
        if let Some(class) = by.names().find(|class| !is_class(class)) {
            let class = class.to_owned();
            return Err(Fault::UnknownClass { limit: limit(), class, classes: names(), why: String::new() });
        }
        let named = named.into_iter().map(|(name, backend)| Class::new(Some(name.into()), backend));
        Ok(Some(Self { by, named: named.collect() }))
    }
}

impl CompiledLimit {
    pub(crate) fn new(limit: Limit) -> Result<Self, Fault> {
        let Limit {
            name,
            backend: Backend { default: backend, default_name, classes, savable },
            by,
            class_by,
            cost,
            no_key,
            shadow,
            skips,
            charges,
            keeps_on_error,
            settle,
        } = limit;
        let quoted = quoted(&name)?;
        let how = by.map(|by| by.checked()).transpose()?;
        if how.is_none() && backend.is_keyed() {
            return Err(Fault::NoBy { limit: name });
        }
        let how = how.filter(|how| !matches!(how, How::Nothing));
        let classes = Classes::new(&name, class_by, default_name.as_deref(), classes)?;
        if matches!((&backend, &how), (AnyLimiter::Local(limiter), Some(_)) if !limiter.is_keyed()) {
            return Err(Fault::OneState { limit: name });
        }
        if let (Some(missing), None) = (how.as_ref().and_then(How::may_miss), no_key) {
            return Err(Fault::NoKey { limit: name, missing });
        }
        if backend.is_in_flight() {
            let rule = [(charges.is_some(), "charge_if"), (settle.is_some(), "settle")];
            if let Some((_, rule)) = rule.into_iter().find(|(is_set, _)| *is_set) {
                return Err(Fault::InFlightRule { limit: name, rule });
            }
        }
        if matches!((&backend, &cost.kind), (AnyLimiter::SharedInFlight(_), kind) if !matches!(kind, CostKind::Fixed(1)))
        {
            return Err(Fault::SharedPlaces { limit: name });
        }
        let settle = settle.map(|settle| settle.checked(&name).map(Arc::new)).transpose()?;
        let limit = Self {
            name: name.into(),
            quoted,
            default: Class::new(default_name.map(Into::into), backend),
            classes,
            how,
            cost,
            no_key,
            shadow,
            skips,
            charges,
            keeps_on_error,
            settle,
            savable,
        };
        limit.triggers(&limit.default.backend)?;
        for class in limit.named() {
            limit.triggers(&class.backend).map_err(|error| Fault::Class {
                class: class.name.as_deref().unwrap_or_default().to_owned(),
                error: Box::new(error),
            })?;
        }
        Ok(limit)
    }

    /// Connects the limit to `metrics`, which then counts each class's decisions and shows the
    /// limiters' figures. The figures of a shared limiter cover all of its classes.
    pub(crate) fn count_in(&mut self, metrics: &Metrics) {
        let is_shared = self.kind().is_shared;
        let named = self.classes.iter_mut().flat_map(|classes| &mut classes.named);
        for (number, class) in [&mut self.default].into_iter().chain(named).enumerate() {
            let name = class.name.as_deref();
            class.counts = Some(metrics.counts(&self.name, name));
            let figures = class.backend.figures().filter(|_| !is_shared || number == 0);
            if let Some(figures) = figures {
                metrics.show(&self.name, name.filter(|_| !is_shared), &figures);
            }
        }
    }

    /// Returns an error if the configuration shows that the limiter would admit everything or
    /// nothing.
    fn triggers(&self, backend: &AnyLimiter) -> Result<(), Fault> {
        let limit = || self.name.as_ref().to_owned();
        let &CostKind::Fixed(cost) = &self.cost.kind else {
            return if self.cost.has_no_unit() { Err(Fault::ZeroUnit { limit: limit() }) } else { Ok(()) };
        };
        if cost == 0 {
            return Err(Fault::ZeroCost { limit: limit() });
        }
        if let Some(capacity) = backend.capacity_below(&self.shared(), cost) {
            return Err(Fault::CostAboveCapacity { limit: limit(), cost, capacity });
        }
        let quota = backend.quota().filter(|_| !backend.is_in_flight());
        if let Some(quota) = quota.filter(|&quota| requests_a_second(quota, cost) > MAX_REQUESTS) {
            return Err(Fault::NeverTriggers { limit: limit(), quota });
        }
        Ok(())
    }

    /// Returns whether the response may cause a refund or a settlement of the charge.
    pub(crate) fn awaits_response(&self) -> bool {
        self.charges.is_some() || self.settle.is_some()
    }

    /// Returns the class with this number, as returned by [`class_of`](Self::class_of).
    pub(crate) fn class(&self, number: usize) -> &Class {
        let named = number.checked_sub(1).and_then(|place| self.named().get(place));
        named.unwrap_or(&self.default)
    }

    /// Returns the classes besides the default class.
    pub(crate) fn named(&self) -> &[Class] {
        self.classes.as_ref().map_or(&[], |classes| &classes.named)
    }

    /// Returns the index of a request's class, or the lookup that will find the class. `unknown` is
    /// called with the class's name if the limiter does not have this class.
    pub(crate) fn class_of(
        &self,
        head: RequestHead<'_>,
        unknown: impl FnOnce(&str),
    ) -> Result<usize, Question> {
        let Some(classes) = &self.classes else { return Ok(0) };
        match classes.by.find(head) {
            ClassOf::Named(name) => Ok(self.number_of(name.as_deref(), unknown)),
            ClassOf::Asked(Found::Known(name)) => Ok(self.number_of(name.as_deref(), unknown)),
            ClassOf::Asked(Found::Asked(question)) => Err(question),
        }
    }

    /// Returns the index of the class with this name. Without a name, returns 0, the index of the
    /// default class. If the limiter does not have the class, calls `unknown` with the name and
    /// returns 0.
    pub(crate) fn number_of(&self, name: Option<&str>, unknown: impl FnOnce(&str)) -> usize {
        let Some(name) = name.filter(|name| self.default.name.as_deref() != Some(*name)) else { return 0 };
        let found = self.named().iter().position(|class| class.name.as_deref() == Some(name));
        found.map(|it| it + 1).unwrap_or_else(|| {
            unknown(name);
            0
        })
    }

    /// Returns whether requests may have to wait for this limit.
    pub(crate) fn waits(&self) -> bool {
        let asks = self.classes.as_ref().is_some_and(|classes| classes.by.waits());
        asks || self.all().any(|class| class.backend.is_shared())
    }

    /// Returns the default class, followed by the others.
    fn all(&self) -> impl Iterator<Item = &Class> {
        std::iter::once(&self.default).chain(self.named())
    }

    /// Returns the limit's kind, which is the same for all classes that count requests.
    pub(crate) fn kind(&self) -> LimitKind {
        let backend = self.all().map(|class| &class.backend).find(|backend| backend.counts());
        let backend = backend.unwrap_or(&self.default.backend);
        LimitKind { is_in_flight: backend.is_in_flight(), is_shared: backend.is_shared() }
    }

    /// Returns whether both limits share one `SingleLimiter`.
    pub(crate) fn is_one_state_with(&self, other: &Self) -> bool {
        self.default.backend.is_one_state_with(&other.default.backend)
    }

    pub(crate) fn skips(&self, head: RequestHead<'_>) -> bool {
        self.skips.iter().any(|skips| skips(head))
    }

    /// Returns a request's key; `None` if the request has no key and the limit does not count it.
    /// With [`WhenNoKey::Share`], all requests without a key, or with several, share one key.
    ///
    /// # Errors
    ///
    /// Returns why the limit refuses a request without a key, or with several.
    pub(crate) fn key<'a>(&'a self, head: RequestHead<'a>) -> Result<Option<KeyRef<'a>>, RefusalReason> {
        let mut key = KeyRef::new(&self.name);
        let Some(how) = &self.how else { return Ok(Some(key)) };
        match (how.find(head, &mut key), self.no_key) {
            (Finding::Found, _) => Ok(Some(key)),
            (_, Some(WhenNoKey::Share)) => Ok(Some(self.shared())),
            (Finding::Missing, Some(WhenNoKey::Deny)) => Err(RefusalReason::NoKey),
            (Finding::Missing, _) => Ok(None),
            (Finding::Ambiguous, _) => Err(RefusalReason::AmbiguousKey),
        }
    }

    /// Returns where the parts of the key are found; `None` if all requests are counted together.
    #[cfg(feature = "tracing")]
    pub(crate) fn how(&self) -> Option<&How> {
        self.how.as_ref()
    }

    fn shared(&self) -> KeyRef<'_> {
        let mut key = KeyRef::new(&self.name);
        key.push(KeyPart::Missing);
        key
    }
}

/// Returns the name as it is written in fields.
pub(crate) fn quoted(name: &str) -> Result<Box<str>, Fault> {
    let refused = || Fault::Name { name: name.to_owned(), most: MAX_NAME };
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
