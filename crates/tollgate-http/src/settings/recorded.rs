//! Limits that decide on records of requests: those of a log, with what limits said when it was
//! written.
//!
//! A record names the client itself, so no proxy is asked. It may lack headers and query
//! parameters, and have the hash of each limit's key in place of them. A limit *goes by the record*
//! if it takes its key and its class from there: it then applies to a request if the record says
//! that it did.

use super::layer_settings::LayerSettings;
use crate::class::by::ClassBy;
use crate::client::forwarded::TrustedProxies;
use crate::error::LayerError;
use crate::head::RequestHead;
use crate::key::by::KeyBy;
use crate::layer::builder::RateLimitBuilder;
use crate::layer::service::RateLimitLayer;
use crate::limit::backend::Backend;
use crate::limit::named::Limit;
use crate::text::classes::ClassByText;
use crate::text::fact::Fact;
use crate::text::limit::{LimitPart, LimitText};
use crate::text::scope::Scope;

/// What limits said of a request when it was recorded: an extension of the request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Recorded {
    /// The limits that applied.
    pub limits: Vec<RecordedLimit>,
}

/// What one limit said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordedLimit {
    /// The name of the limit, as [`LimitPart::name`].
    pub name: String,
    /// The class of the caller; `None` without classes.
    pub class: Option<String>,
    /// The key, in any form that is the same for equal keys; `None` if there was none.
    pub key: Option<String>,
}

impl Recorded {
    fn of<'r>(head: RequestHead<'r>, limit: &str) -> Option<&'r RecordedLimit> {
        head.extensions().get::<Self>()?.limits.iter().find(|it| it.name == limit)
    }
}

impl LayerSettings {
    /// Returns the builder of a layer for records of requests. A limit goes by the record if
    /// `is_lacking` returns true for something that it looks at.
    ///
    /// # Errors
    ///
    /// Those of [`builder_with`](Self::builder_with).
    pub(crate) fn builder_recorded<B: Into<Backend>, E: From<LayerError>>(
        &self,
        mut make: impl FnMut(&LimitPart) -> Result<B, E>,
        is_lacking: impl Fn(&Fact) -> bool,
    ) -> Result<RateLimitBuilder, E> {
        self.check()?;
        let here = Self { trust: Vec::new(), trust_hops: None, ..self.clone() };
        let mut builder = RateLimitLayer::builder();
        for text in &self.limits {
            let goes_by_record = text.facts().iter().any(&is_lacking);
            let limits = here.limits_of(text, &mut make, |limit, table| match &text.class_by {
                _ if goes_by_record => Ok(by_record(limit, text)),
                // The proxy in front has set the header in the recorded request, if there is one.
                Some(ClassByText::Header(header)) if self.proxies().is_some() => {
                    let mut plain = text.clone();
                    plain.class_by = None;
                    let class = ClassBy::header(header, TrustedProxies::hops(1));
                    Ok(here.asked(limit, &plain, table)?.class_by(class))
                }
                _ => here.asked(limit, text, table),
            })?;
            for limit in limits {
                builder = builder.limit(limit);
            }
        }
        let (unknown, known): (Vec<Scope>, Vec<Scope>) =
            self.except.iter().cloned().partition(|scope| scope.facts().any(|fact| is_lacking(&fact)));
        builder = here.exempting(builder, known);
        if unknown.is_empty() {
            return Ok(builder);
        }
        Ok(builder.skip(|head| head.extensions().get::<Recorded>().is_none_or(|it| it.limits.is_empty())))
    }
}

/// Gives a limit the requests, the keys and the classes that the record has for it.
fn by_record(limit: Limit, text: &LimitText) -> Limit {
    let name = limit.name.clone();
    let (applied, keyed, classed) = (name.clone(), name.clone(), name);
    let mut limit = limit.only(move |head| Recorded::of(head, &applied).is_some());
    if let Some(key) = &text.key {
        let by = KeyBy::from_fn(move |head| Some(Recorded::of(head, &keyed)?.key.as_deref()?.into()));
        limit = limit.by(by).when_no_key(key.no_key());
    }
    match text.class_by {
        Some(_) => {
            limit.class_by(ClassBy::from_fn(move |head| Recorded::of(head, &classed)?.class.as_deref()))
        }
        None => limit,
    }
}
