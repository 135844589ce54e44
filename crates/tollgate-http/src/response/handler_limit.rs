//! A limit that a handler checks itself, with the fields and the refusals of a layer.

use super::answer;
use super::fields::{self, FieldText, Fields};
use super::policy;
use super::refusal::{LimitKind, Refusal, RefusalReason};
use super::seconds;
use crate::error::LayerError;
use crate::head::{RefusalMark, RequestHead};
use crate::limit::compiled::quoted;
use http::header::HeaderMap;
use http::{Request, Response, StatusCode};
use tollgate::{Decision, Quota};

/// The name of a limit that a handler checks itself. It writes the same response fields and
/// refusals as a [layer](crate::RateLimitLayer).
///
/// A layer checks a request before the handler. Some limits need data that only the handler
/// has, such as the account in a body or the number of items to process. The handler then checks a
/// limiter itself:
///
/// ```
/// use http::Response;
/// use tollgate::{Limiter, Quota};
/// use tollgate_http::HandlerLimit;
///
/// let exports: Limiter<String> = Limiter::builder(Quota::per_hour(1)).build()?;
/// let limit = HandlerLimit::new("exports")?;
///
/// // In axum, `String` may be any body, and `refusal.into_response()` is the answer.
/// let handler = |account: &str| -> Response<String> {
///     let decision = exports.check(account);
///     if let Some(refusal) = limit.refusal(exports.quota(), &decision) {
///         return refusal;
///     }
///     let mut response = Response::new(String::from("exported"));
///     limit.write_fields(response.headers_mut(), exports.quota(), &decision);
///     response
/// };
///
/// let exported = handler("alice");
/// assert_eq!(exported.headers()["ratelimit-policy"], "\"exports\";q=1;w=3600");
/// assert_eq!(exported.headers()["ratelimit"], "\"exports\";r=0;t=3600");
/// let refused = handler("alice");
/// assert_eq!((refused.status().as_u16(), &refused.headers()["retry-after"]), (429, &"3600".parse()?));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// The quota of an [`InFlight`](tollgate::InFlight) has a period of zero: `Quota::new(8,
/// Duration::ZERO)` for 8 requests at once. For a limiter that counts in a store, call
/// [`shared`](Self::shared).
///
/// If the key is an unverified claim of the caller, such as the account in a body, anyone can use
/// up the quota of another account. Verify the claim first, or combine it with the address.
#[derive(Clone, Debug)]
pub struct HandlerLimit {
    name: Box<str>,
    quoted: Box<str>,
    is_shared: bool,
}

impl HandlerLimit {
    /// Creates a name of 1 to 128 printable ASCII characters.
    ///
    /// # Errors
    ///
    /// Returns an error if the name is empty, too long, or has other characters, because it could
    /// not be sent in a field.
    pub fn new(name: &str) -> Result<Self, LayerError> {
        Ok(Self { name: name.into(), quoted: quoted(name)?, is_shared: false })
    }

    /// Declares that the limiter counts in a store, such as a `SharedLimiter` of `tollgate-redis`. A
    /// [`refusal`](Self::refusal) by the limiter's policy then has the reason
    /// [`Unavailable`](RefusalReason::Unavailable) instead of [`Full`](RefusalReason::Full), and the
    /// status 503.
    ///
    /// ```
    /// # use tollgate_http::HandlerLimit;
    /// let limit = HandlerLimit::new("exports")?.shared();
    /// # Ok::<(), tollgate_http::LayerError>(())
    /// ```
    #[must_use]
    pub fn shared(self) -> Self {
        Self { is_shared: true, ..self }
    }

    /// Adds the fields `RateLimit` and `RateLimit-Policy` to a response. Valid items that the
    /// fields already have are kept. If a policy allowed the request without counting it, only
    /// `RateLimit-Policy` gets an item. `quota` is the quota of the limiter, or of the caller's
    /// class or key.
    pub fn write_fields(&self, headers: &mut HeaderMap, quota: Quota, decision: &Decision) {
        let (mut state, mut policy) = (FieldText::new(), FieldText::new());
        if fields::is_counted(decision) {
            fields::put_item(&mut state, &self.quoted, decision, None);
        }
        policy::put_item(&mut policy, &self.quoted, quota);
        let (rate_limit, policy) = (fields::value(&state), fields::value(&policy));
        Fields { rate_limit, policy, ..Fields::default() }.write(headers, false);
    }

    /// Returns the response to a request that this decision denies: status 429, problem JSON, the
    /// fields, and `Retry-After` if the time is known. The status is 503 if the store of a
    /// [shared](Self::shared) limiter is unreachable. Returns `None` if the decision allows the
    /// request.
    ///
    /// An outer layer treats the response as [a refusal](crate::ResponseHead::is_refusal). A
    /// `String` is a body for hyper and axum; for another body, use [`Response::map`].
    pub fn refusal(&self, quota: Quota, decision: &Decision) -> Option<Response<String>> {
        if decision.is_allowed() {
            return None;
        }
        let wait = seconds::until_retry(decision);
        let kind = LimitKind { is_in_flight: quota.period().is_zero(), is_shared: self.is_shared };
        let reason = RefusalReason::of(decision, kind);
        // Only a layer answers gRPC and `HEAD` in another form.
        let request = Request::new(());
        let refusal = Refusal {
            limit_name: &self.name,
            class: None,
            violated: &[&self.name],
            decision: Some(decision),
            request: RequestHead::of(&request),
            status: match reason {
                RefusalReason::Unavailable => StatusCode::SERVICE_UNAVAILABLE,
                _ => StatusCode::TOO_MANY_REQUESTS,
            },
            retry_after_seconds: wait,
            reason,
            max_keys: None,
        };
        let mut response = answer::problem_response(&refusal);
        let headers = response.headers_mut();
        if let Some(wait) = wait {
            fields::promise(headers, wait);
        }
        self.write_fields(headers, quota, decision);
        response.extensions_mut().insert(RefusalMark { wait });
        Some(response)
    }
}
