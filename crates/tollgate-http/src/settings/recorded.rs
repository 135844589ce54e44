//! Applies limits to recorded requests from a log. A record includes the limits that applied to the
//! request when the log was written.
//!
//! A record contains the client's address, so proxies are irrelevant. A record may contain the hash
//! of each limit's key rather than headers and query parameters. A limit *goes by the record* if it
//! reads its key and its class from the record. Such a limit applies to a request if it applied
//! when the request was recorded.

use super::layer_settings::LayerSettings;
use crate::class::by::ClassBy;
use crate::client::forwarded::{ForwardedField, TrustedProxies};
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

/// The limits that applied to a request when it was recorded. They are stored in the request as an
/// extension.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Recorded {
    /// The limits that applied.
    pub limits: Vec<RecordedLimit>,
}

/// One limit in a record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordedLimit {
    /// The name of the limit, as [`LimitPart::name`].
    pub name: String,
    /// The class of the caller; `None` without classes.
    pub class: Option<String>,
    /// The key, in any form that is the same for equal keys; `None` if the request had no key.
    pub key: Option<String>,
}

impl Recorded {
    fn of<'r>(head: RequestHead<'r>, limit: &str) -> Option<&'r RecordedLimit> {
        head.extensions().get::<Self>()?.limits.iter().find(|it| it.name == limit)
    }
}

impl LayerSettings {
    /// Returns a builder for a layer that checks recorded requests. A limit goes by the record if
    /// `is_lacking` returns true for any fact that the limit uses.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`builder_with`](Self::builder_with).
    pub(crate) fn builder_recorded<B: Into<Backend>, E: From<LayerError>>(
        &self,
        mut make: impl FnMut(&LimitPart) -> Result<B, E>,
        is_lacking: impl Fn(&Fact) -> bool,
    ) -> Result<RateLimitBuilder, E> {
        self.check()?;
        let here = Self {
            trust: Vec::new(),
            trust_hops: None,
            forwarded_field: ForwardedField::XForwardedFor,
            ..self.clone()
        };
        let mut builder = RateLimitLayer::builder().warn_all(self.unused_templates());
        for text in &self.limits {
            let goes_by_record = text.facts().iter().any(&is_lacking);
            let limits = here.limits_of(text, &mut make, |limit, table| match &text.class_by {
                _ if goes_by_record => Ok(by_record(limit, text)),
                // If there is a trusted proxy, that proxy has set the header in the recorded
                // request.
                Some(ClassByText::Header(header)) if self.proxies().is_some() => {
                    let mut plain = text.clone();
                    plain.class_by = None;
                    let class = ClassBy::header(header, TrustedProxies::hops(1));
                    Ok(here.asked(limit, &plain, table)?.class_by(class))
                }
                _ => here.asked(limit, text, table),
            })?;
            builder = builder.warn_all(Self::warnings_of(text));
            for limit in limits {
                builder = builder.limit(limit);
            }
        }
        let (unknown, known): (Vec<Scope>, Vec<Scope>) =
            self.except.iter().cloned().partition(|scope| scope.facts().any(|fact| is_lacking(&fact)));
        builder = here.exempting(builder, known).warn_all(self.warning_of_exemptions());
        if unknown.is_empty() {
            return Ok(builder);
        }
        Ok(builder.skip(|head| head.extensions().get::<Recorded>().is_none_or(|it| it.limits.is_empty())))
    }
}

/// Sets a limit's scope, key and class according to the record.
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
