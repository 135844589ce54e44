//! The decisions of a layer's limits, as an extension of the request.

use crate::limit::applicable::INLINE;
use crate::response::fields::LimitDecision;
use http::Extensions;
use smallvec::SmallVec;
use std::fmt;
use std::sync::Arc;
use tollgate::Decision;

/// The decisions of the limits that a request has passed, as an extension of the request: see
/// [`pass_decisions`](crate::RateLimitBuilder::pass_decisions).
///
/// Every limit that counted the request is there, including limits in shadow mode. Because the
/// request has passed, a decision that is not [allowed](Decision::is_allowed) is that of a limit in
/// [shadow mode](crate::Limit::shadow). A handler can therefore give one of three answers: the
/// whole service, a cheaper one if a shadow is used up, and none if the layer refuses the request.
///
/// A limit that does not apply to the request is missing, and so is one that found no key. If a
/// request passes several layers, the decisions of all of them are there, outermost first.
///
/// ```
/// use http::{Request, Response};
/// use tollgate::{Quota, SingleLimiter};
/// use tollgate_http::{Decisions, Limit, RateLimitLayer};
/// use tower::{Layer, ServiceExt, service_fn};
///
/// let fair = SingleLimiter::builder(Quota::per_day(1)).build()?;
/// let most = SingleLimiter::builder(Quota::per_day(2)).build()?;
/// let layer = RateLimitLayer::builder()
///     .limit(Limit::new("fair", fair).shadow())
///     .limit(Limit::new("most", most))
///     .pass_decisions()
///     .build()?;
/// let service = layer.layer(service_fn(|request: Request<()>| async move {
///     let decisions: &Decisions = request.extensions().get().unwrap();
///     let left = decisions.get("most").map_or(0, |most| most.remaining());
///     let is_fair = decisions.get("fair").is_none_or(|fair| fair.is_allowed());
///     let answer = if is_fair { "a large model" } else { "a small model" };
///     Ok::<_, std::convert::Infallible>(Response::new(format!("{answer}, {left} left")))
/// }));
/// # use http_body_util::BodyExt;
/// # pollster::block_on(async {
/// for answer in ["a large model, 1 left", "a small model, 0 left"] {
///     let response = service.clone().oneshot(Request::new(())).await.unwrap();
///     assert_eq!(response.into_body().collect().await.unwrap().to_bytes(), answer);
/// }
/// assert_eq!(service.oneshot(Request::new(())).await.unwrap().status(), 429);
/// # });
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Default)]
pub struct Decisions(Arc<Named>);

/// Decisions with the names of their limits.
type Named = SmallVec<[(Arc<str>, Decision); INLINE]>;

impl Decisions {
    pub(crate) fn of<'r>(decisions: impl Iterator<Item = LimitDecision<'r>>) -> Self {
        Self(Arc::new(decisions.map(|it| (Arc::clone(&it.limit.name), *it.decision)).collect()))
    }

    /// Adds these decisions to those that the request already has.
    pub(crate) fn add_to(self, extensions: &mut Extensions) {
        let all = match extensions.get() {
            Some(Self(outer)) if !outer.is_empty() => {
                Self(Arc::new(outer.iter().chain(self.0.iter()).cloned().collect()))
            }
            _ => self,
        };
        extensions.insert(all);
    }

    /// Returns the decision of the limit with this name; `None` if the limit has not counted the
    /// request. If limits in several layers have this name, the outermost one counts.
    pub fn get(&self, limit_name: &str) -> Option<&Decision> {
        self.iter().find(|(name, _)| *name == limit_name).map(|(_, decision)| decision)
    }

    /// Returns the name of each limit that counted the request, with its decision, in the order of
    /// the limits.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Decision)> {
        self.0.iter().map(|(name, decision)| (&**name, decision))
    }
}

impl fmt::Debug for Decisions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.iter()).finish()
    }
}
