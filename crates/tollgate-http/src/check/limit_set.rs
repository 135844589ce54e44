//! A layer's limits, and the check of one request against all of them.

use super::decisions::Decisions;
use super::event::DecisionEvent;
use super::listeners::Listeners;
use super::pending_refunds::PendingRefunds;
use crate::atomics::{AtomicBool, Relaxed};
use crate::head::{RequestHead, Sources};
use crate::key::parts::Key;
use crate::limit::any_limiter::Bound;
use crate::limit::applicable::{ApplicableLimits, INLINE, Refusing};
use crate::limit::compiled::{Class, CompiledLimit};
use crate::limit::named::Skips;
use crate::limit::permits::{HeldPermit, Permits};
use crate::response::answer::Answer;
use crate::response::fields::{self, Fields, Legacy, LimitDecision};
use crate::response::policy::Policy;
use crate::response::refusal::{Refusal, RefusalReason};
use crate::response::seconds;
use crate::settle::running::{LimitsAndListeners, PendingRefund};
use bytes::Bytes;
use http::{Extensions, Response, StatusCode};
use smallvec::SmallVec;
use std::fmt;
use std::sync::Arc;
use tollgate::store::ToKey;
use tollgate::{Charge, Decision, check_all};

/// A layer's limits and other settings, shared by all clones of the layer.
pub(crate) struct LimitSet {
    pub(crate) limits: Arc<[CompiledLimit]>,
    /// Whether requests may have to wait, because a limit is shared or looks up classes.
    pub(crate) waits: bool,
    pub(crate) sources: Sources,
    pub(crate) skips: Vec<Box<Skips>>,
    pub(crate) status: StatusCode,
    pub(crate) no_key_status: StatusCode,
    pub(crate) answer: Answer,
    pub(crate) shows_fields: bool,
    pub(crate) shows_legacy: bool,
    pub(crate) policy: Policy,
    pub(crate) listeners: Arc<Listeners>,
    /// Whether anything listens to decisions.
    pub(crate) is_heard: bool,
    pub(crate) repeats: Repeats,
    /// Whether handlers receive the decisions.
    pub(crate) passes_decisions: bool,
}

/// Whether a request may pass the same layer twice, because the layer was put around several
/// services.
#[derive(Default)]
pub(crate) struct Repeats {
    is_used: AtomicBool,
    is_used_again: AtomicBool,
}

impl Repeats {
    /// Records that the layer is put around a service.
    pub(crate) fn note_service(&self) {
        // ORDERING: relaxed, because the flags publish no other data. A thread that puts one
        // service inside another has created or received the inner service, so it sees the flag set
        // for that service.
        if self.is_used.swap(true, Relaxed) {
            self.is_used_again.store(true, Relaxed);
        }
    }

    /// Returns whether the layer was put around more than one service.
    pub(crate) fn are_possible(&self) -> bool {
        // ORDERING: relaxed, as in `note_service`.
        self.is_used_again.load(Relaxed)
    }
}

/// An extension of a request that contains the layers that have checked it.
#[derive(Clone)]
struct CheckedBy(SmallVec<[usize; 2]>);

/// The result of checking a request.
pub(crate) enum Verdict {
    /// The request is handled. The response receives the fields and may settle the charges. The
    /// permits are released at the end of the response.
    Passed(Fields, Option<Box<PendingRefunds>>, Permits, Option<Decisions>),
    /// The request is answered with this response.
    Refused(Response<Bytes>),
}

impl Verdict {
    /// The verdict on a request to which no limit applies.
    pub(crate) fn unlimited() -> Self {
        Self::Passed(Fields::default(), None, Permits::default(), None)
    }

    /// Adds permits from shared limits, if the request has passed.
    pub(crate) fn holding_shared(mut self, held: impl Iterator<Item = HeldPermit>) -> Self {
        if let Self::Passed(_, _, permits, _) = &mut self {
            permits.extend(held);
        }
        self
    }

    /// Adds the permits from process-local limits, if the request has passed.
    pub(crate) fn holding(self, local: &mut [Bound<'_>]) -> Self {
        self.holding_shared(local.iter_mut().filter_map(|bound| Some(bound.permit.take()? as HeldPermit)))
    }
}

impl LimitSet {
    /// Marks a request as checked by this layer. Returns whether the layer has checked it before.
    pub(crate) fn has_checked(&self, extensions: &mut Extensions) -> bool {
        if !self.repeats.are_possible() {
            return false;
        }
        let layer = std::ptr::from_ref(self).addr();
        let CheckedBy(layers) = extensions.get_or_insert_with(|| CheckedBy(SmallVec::new()));
        let has_checked = layers.contains(&layer);
        if !has_checked {
            layers.push(layer);
        }
        has_checked
    }

    /// Checks a request if no limit makes it wait. Otherwise returns `None`, and the caller must
    /// await the verdict.
    pub(crate) fn check_at_once(&self, head: RequestHead<'_>) -> Option<Verdict> {
        if self.skips.iter().any(|skips| skips(head)) {
            return Some(Verdict::unlimited());
        }
        if self.waits {
            return None;
        }
        Some(match self.applicable(head) {
            Ok(mut applicable) => self.check_local(head, &applicable).holding(&mut applicable.local),
            Err(refusing) => Verdict::Refused(self.uncounted(&refusing, head)),
        })
    }

    /// Checks a request against these process-local limits.
    pub(crate) fn check_local(&self, head: RequestHead<'_>, applicable: &ApplicableLimits<'_>) -> Verdict {
        let local = &applicable.local[..];
        let mut parts = self.parts(local);
        let binding = check_all(&mut parts).err();
        let decisions = self.decisions(local, &parts);
        let binding = binding.and_then(|denied| decisions.clone().nth(denied.index()?));
        self.notify(head, decisions.clone(), binding);
        match binding {
            None => {
                let pending = local.iter().zip(&parts).filter_map(|(bound, part)| {
                    let key = || bound.key.to_key();
                    self.pending(head, (bound.limit, bound.class), bound.cost, part.decision()?, key)
                });
                self.pass(head, applicable, decisions, pending.collect())
            }
            Some(binding) => Verdict::Refused(self.refuse(head, applicable, decisions, binding)),
        }
    }

    /// Returns the limits that apply to a request, with the request's keys. If a limit refuses the
    /// request because the key is missing or the caller is blocked, returns that limit instead.
    pub(crate) fn applicable<'r>(
        &'r self,
        head: RequestHead<'r>,
    ) -> Result<ApplicableLimits<'r>, Refusing<'r>> {
        self.listeners.look(head);
        let mut applicable = ApplicableLimits::default();
        for (number, limit) in self.limits.iter().enumerate() {
            if limit.skips(head) {
                continue;
            }
            let added = match limit.key(head) {
                Ok(Some(key)) => {
                    let unknown = |class: &str| self.listeners.unknown_class(&limit.name, class);
                    applicable.add(number, limit, limit.class_of(head, unknown), key, head)
                }
                Ok(None) => {
                    self.notify_uncounted(limit, None, head);
                    Ok(())
                }
                Err(reason) => Err(Refusing::unidentified(limit, reason)),
            };
            if let Err(refusing) = added {
                self.notify_uncounted(limit, Some(&refusing), head);
                if !limit.shadow {
                    return Err(refusing);
                }
            }
        }
        Ok(applicable)
    }

    /// Returns the charges for `check_all`.
    pub(crate) fn parts<'b>(&self, local: &'b [Bound<'_>]) -> SmallVec<[Charge<'b>; INLINE]> {
        let mut parts = SmallVec::new();
        for bound in local {
            let part = Charge::new(bound, bound.cost);
            parts.push(if self.limits[bound.limit].shadow { part.shadow() } else { part });
        }
        parts
    }

    /// Returns the decisions in the order of the limits.
    fn decisions<'r>(
        &'r self,
        local: &'r [Bound<'_>],
        parts: &'r [Charge<'_>],
    ) -> impl Iterator<Item = LimitDecision<'r>> + Clone {
        let decisions = local.iter().zip(parts);
        decisions.filter_map(|(bound, part)| {
            let limit = &self.limits[bound.limit];
            let (class, key) = (limit.class(bound.class), bound.key.parts());
            Some(LimitDecision { limit, class, key, decision: part.decision()? })
        })
    }

    /// Returns the state needed to refund or settle a charge once the response is known, or `None`
    /// if the charge is final.
    pub(crate) fn pending(
        &self,
        head: RequestHead<'_>,
        (number, class): (usize, usize),
        cost: u64,
        charge: &Decision,
        key: impl FnOnce() -> Key,
    ) -> Option<PendingRefund> {
        let limit = &self.limits[number];
        let settle = limit.settle.as_ref().filter(|_| charge.is_allowed());
        if settle.is_none() && (limit.charges.is_none() || charge.charged() == 0) {
            return None;
        }
        let input =
            settle.and_then(|settle| settle.input.as_ref()).map_or(0, |input| input.of(head, || u64::MAX));
        let estimated_as = settle.and_then(|_| limit.cost.class(head));
        Some(PendingRefund { limit: number, class, key: key(), charge: *charge, cost, input, estimated_as })
    }

    pub(crate) fn pass<'r>(
        &self,
        head: RequestHead<'_>,
        applicable: &ApplicableLimits<'_>,
        decisions: impl Iterator<Item = LimitDecision<'r>> + Clone,
        pending: SmallVec<[PendingRefund; 1]>,
    ) -> Verdict {
        let passed = self.passes_decisions.then(|| Decisions::of(decisions.clone()));
        let mut fields =
            self.fields(applicable, decisions.clone(), None, || fields::scarcest(decisions.clone()));
        // Limits that await the response are skipped, because their waits are computed when their
        // charges are settled.
        let settled = decisions.filter(|it| !it.limit.awaits_response());
        fields.wait = settled.map(|it| fields::wait_for_more(it.limit, it.decision)).max().unwrap_or(0);
        let layer = || LimitsAndListeners {
            limits: Arc::clone(&self.limits),
            listeners: Arc::clone(&self.listeners),
        };
        let pending = (!pending.is_empty()).then(|| Box::new(PendingRefunds::new(layer(), head, pending)));
        Verdict::Passed(fields, pending, Permits::default(), passed)
    }

    /// Adds the decisions to a request for the handler, if the layer passes them on.
    pub(crate) fn pass_decisions(&self, verdict: &mut Verdict, extensions: &mut Extensions) {
        if let (true, Verdict::Passed(_, _, _, decisions)) = (self.passes_decisions, verdict) {
            decisions.take().unwrap_or_default().add_to(extensions);
        }
    }

    pub(crate) fn refuse<'r>(
        &self,
        head: RequestHead<'_>,
        applicable: &ApplicableLimits<'_>,
        decisions: impl Iterator<Item = LimitDecision<'r>> + Clone,
        binding: LimitDecision<'r>,
    ) -> Response<Bytes> {
        let decision = binding.decision;
        let wait = seconds::until_retry(decision);
        let fields = self.fields(applicable, decisions.clone(), wait, || Some(decision));
        let limit: &str = &binding.limit.name;
        let reason = RefusalReason::of(decision, binding.limit.kind());
        let is_away = reason == RefusalReason::Unavailable;
        let others = decisions.filter(|it| it.refuses() && *it.limit.name != *limit);
        let mut violated: SmallVec<[&str; INLINE]> = SmallVec::new();
        violated.push(limit);
        violated.extend(others.map(|it| &*it.limit.name));
        let refusal = Refusal {
            limit_name: limit,
            class: binding.class.name.as_deref(),
            violated: &violated,
            decision: Some(decision),
            request: head,
            status: if is_away { StatusCode::SERVICE_UNAVAILABLE } else { self.status },
            retry_after_seconds: wait,
            reason,
            max_keys: binding.class.max_keys.filter(|_| reason == RefusalReason::Full),
        };
        self.answer.response(&refusal, fields)
    }

    fn fields<'r>(
        &self,
        applicable: &ApplicableLimits<'_>,
        decisions: impl Iterator<Item = LimitDecision<'r>>,
        wait: Option<u64>,
        described: impl FnOnce() -> Option<&'r Decision>,
    ) -> Fields {
        let mut fields = Fields::default();
        if self.shows_fields {
            fields.rate_limit = fields::rate_limit(decisions, wait);
            fields.policy = self.policy.value(&self.limits, applicable);
        }
        if self.shows_legacy {
            fields.legacy = described().map(|decision| Box::new(Legacy::new(decision)));
        }
        fields
    }

    pub(crate) fn notify<'r>(
        &self,
        head: RequestHead<'_>,
        decisions: impl Iterator<Item = LimitDecision<'r>>,
        binding: Option<LimitDecision<'r>>,
    ) {
        if !self.is_heard {
            return;
        }
        for LimitDecision { limit, class, key, decision } in decisions {
            let event = DecisionEvent {
                limit_name: &limit.name,
                class: class.name.as_deref(),
                request: head,
                decision: Some(decision),
                key: Some(key),
                reason: (!decision.is_allowed()).then(|| RefusalReason::of(decision, limit.kind())),
                is_shadow: limit.shadow,
                is_binding: binding.is_some_and(|binding| std::ptr::eq(binding.limit, limit)),
                is_refused: binding.is_some(),
                #[cfg(feature = "tracing")]
                how: None,
            };
            self.tell(&event, class);
        }
    }

    /// Notifies listeners of a limit that has not counted the request.
    pub(crate) fn notify_uncounted(
        &self,
        limit: &CompiledLimit,
        refusing: Option<&Refusing<'_>>,
        head: RequestHead<'_>,
    ) {
        if self.is_heard {
            let refused = refusing.is_some() && !limit.shadow;
            let class = refusing.and_then(|it| it.class);
            // A request without a key has no class, so it is counted under the default class.
            let of = limit.class(class.unwrap_or(0));
            let event = DecisionEvent {
                limit_name: &limit.name,
                class: class.and(of.name.as_deref()),
                request: head,
                decision: None,
                key: refusing.and_then(|it| Some(it.key.as_ref()?.parts())),
                reason: refusing.map(|it| it.reason),
                is_shadow: limit.shadow,
                is_binding: refused,
                is_refused: refused,
                #[cfg(feature = "tracing")]
                how: limit.how(),
            };
            self.tell(&event, of);
        }
    }

    fn tell(&self, event: &DecisionEvent<'_>, class: &Class) {
        if let Some(counts) = &class.counts {
            counts.count(event);
        }
        self.listeners.notify(event);
    }

    /// Returns the response for a limit that refuses a request without counting it.
    pub(crate) fn uncounted(&self, refusing: &Refusing<'_>, head: RequestHead<'_>) -> Response<Bytes> {
        let limit: &str = &refusing.limit.name;
        let refusal = Refusal {
            limit_name: limit,
            class: refusing.class_name(),
            violated: &[limit],
            decision: None,
            request: head,
            status: match refusing.reason {
                RefusalReason::AmbiguousKey => StatusCode::BAD_REQUEST,
                _ => self.no_key_status,
            },
            retry_after_seconds: None,
            reason: refusing.reason,
            max_keys: None,
        };
        self.answer.response(&refusal, Fields::default())
    }
}

impl fmt::Debug for LimitSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let limits: Vec<&str> = self.limits.iter().map(|limit| &*limit.name).collect();
        f.debug_struct("RateLimitLayer").field("limits", &limits).finish_non_exhaustive()
    }
}
