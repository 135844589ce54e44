//! Checks one request against a layer's limits, if some of the limits are shared or must look up
//! the caller's class.
//!
//! # Order
//!
//! 1. The process-local limits are peeked at, except those for which the caller's class is still
//!    unknown. If one of these limits refuses, the request costs no round trip, and nothing has
//!    been charged. A peek cannot tell whether a full limit has room for a new key. As in
//!    [`check_all`], a full limit is therefore charged, which inserts the key if there is room, and
//!    the charge is given back.
//! 2. All unknown classes are looked up at the same time. All process-local limits are then peeked
//!    at, with the classes found.
//! 3. All shared limits are charged at the same time. The request therefore waits only as long as
//!    the slowest limit takes to answer. The shared limits are not peeked at first, because a peek
//!    would take another round trip and guarantee nothing.
//! 4. The process-local limits are charged together, by [`check_all`]. They are charged last
//!    because charging them takes no time. If they were charged earlier, other requests could be
//!    denied because of charges that are refunded a moment later.
//!
//! If a limit refuses, the charges made to the shared limits are refunded before the request is
//! answered, as in `check_all`. A client that has received a refusal has therefore paid nothing.
//!
//! # Cancellation
//!
//! While the future waits, only shared limits can hold charges for the request. If the future is
//! dropped, these charges are kept, because hanging up must not make attempts free. Permits in
//! flight are dropped with the future, so they are released. There is nothing else to undo.

use super::limit_set::{LimitSet, Verdict};
use crate::head::RequestHead;
use crate::limit::any_limiter::{Bound, SharedAnswer, SharedBound};
use crate::limit::applicable::ApplicableLimits;
use crate::limit::compiled::CompiledLimit;
use crate::response::fields::LimitDecision;
use futures_util::future::join_all;
use http::request::Parts;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use tollgate::store::ToKey;
use tollgate::{Chargeable, Decision, DecisionSource, Denied, check_all};

/// A future that returns the request with its verdict.
pub(crate) type Checking = Pin<Box<dyn Future<Output = (Parts, Verdict)> + Send>>;

pub(crate) fn checking(set: Arc<LimitSet>, mut request: Parts) -> Checking {
    Box::pin(async move {
        let head = RequestHead::of_parts(&request, &set.sources);
        let mut verdict = match set.applicable(head) {
            Ok(mut applicable) if applicable.shared.is_empty() && applicable.asking.is_empty() => {
                set.check_local(head, &applicable).holding(&mut applicable.local)
            }
            Ok(mut applicable) => decide(&set, head, &mut applicable).await.holding(&mut applicable.local),
            Err(refusing) => Verdict::Refused(set.uncounted(&refusing, head)),
        };
        set.pass_decisions(&mut verdict, &mut request.extensions);
        (request, verdict)
    })
}

async fn decide(set: &LimitSet, head: RequestHead<'_>, applicable: &mut ApplicableLimits<'_>) -> Verdict {
    let mut local_answers = peek(set, &applicable.local);
    if !applicable.asking.is_empty() && binding(&decisions(set, applicable, &local_answers, &[])).is_none() {
        for refusing in applicable.ask(head, |limit, class| set.listeners.unknown_class(limit, class)).await {
            set.notify_uncounted(refusing.limit, Some(&refusing), head);
            if !refusing.limit.shadow {
                return Verdict::Refused(set.uncounted(&refusing, head));
            }
        }
        local_answers = peek(set, &applicable.local);
    }
    let applicable = &*applicable;
    let ApplicableLimits { local, shared, .. } = applicable;
    let mut shared_answers = Vec::new();
    if binding(&decisions(set, applicable, &local_answers, &[])).is_none() {
        shared_answers = join_all(shared.iter().map(SharedBound::charge)).await;
        if binding(&decisions(set, applicable, &[], &shared_answers)).is_none() {
            local_answers = charge_local(set, local);
        }
    } else {
        note_denials(set, local, &local_answers);
    }
    let verdict = verdict(set, head, applicable, &local_answers, &shared_answers);
    if matches!(verdict, Verdict::Refused(_)) {
        join_all(shared.iter().zip(shared_answers).map(|(bound, answer)| bound.refund(answer))).await;
        return verdict;
    }
    verdict.holding_shared(shared_answers.into_iter().filter_map(|answer| answer.permit))
}

/// Returns the verdict that follows from the limits' answers.
fn verdict(
    set: &LimitSet,
    head: RequestHead<'_>,
    applicable: &ApplicableLimits<'_>,
    local_answers: &[Decision],
    shared_answers: &[SharedAnswer],
) -> Verdict {
    let ApplicableLimits { local, shared, .. } = applicable;
    let decisions = decisions(set, applicable, local_answers, shared_answers);
    let binding = binding(&decisions);
    let decisions = decisions.iter().copied();
    set.notify(head, decisions.clone(), binding);
    if let Some(binding) = binding {
        return Verdict::Refused(set.refuse(head, applicable, decisions, binding));
    }
    let local_charges = local.iter().zip(local_answers).filter_map(|(bound, charge)| {
        set.pending(head, (bound.limit, bound.class), bound.cost, charge, || bound.key.to_key())
    });
    let shared_charges = shared.iter().zip(shared_answers).filter_map(|(bound, answer)| {
        let key = || bound.key.clone();
        set.pending(head, (bound.limit, bound.class), bound.cost, &answer.decision, key)
    });
    set.pass(head, applicable, decisions, local_charges.chain(shared_charges).collect())
}

fn peek(set: &LimitSet, local: &[Bound<'_>]) -> Vec<Decision> {
    let peek = |bound: &Bound<'_>| {
        let peeked = bound.peek_n(bound.cost);
        if is_denied_as_full(&peeked) && !set.limits[bound.limit].shadow {
            let checked = bound.check_n(bound.cost);
            bound.refund(&checked);
            return checked;
        }
        peeked
    };
    local.iter().map(peek).collect()
}

/// Returns whether a limiter has denied a request because it has no room for a new key.
fn is_denied_as_full(decision: &Decision) -> bool {
    let is_full = matches!(decision.source(), DecisionSource::Policy | DecisionSource::Overflow);
    is_full && !decision.is_allowed()
}

/// Counts the denials that a peek has returned, as [`check_all`] does. Denials by full limiters are
/// denials of a check, which has counted them.
fn note_denials(set: &LimitSet, local: &[Bound<'_>], peeked: &[Decision]) {
    for (bound, decision) in local.iter().zip(peeked) {
        let is_counted = is_denied_as_full(decision);
        if !decision.is_allowed() && !is_counted && !set.limits[bound.limit].shadow {
            bound.note_denial(decision);
        }
    }
}

/// Charges all limits or none, and returns their decisions.
fn charge_local(set: &LimitSet, local: &[Bound<'_>]) -> Vec<Decision> {
    let mut parts = set.parts(local);
    // If a limit refuses, the caller finds the refusal among the decisions.
    let _ = check_all(&mut parts);
    parts.iter().filter_map(|part| part.decision().copied()).collect()
}

/// Returns the decisions of all limits that have answered, in the order of the layer's limits.
fn decisions<'r>(
    set: &'r LimitSet,
    applicable: &'r ApplicableLimits<'_>,
    local_answers: &'r [Decision],
    shared_answers: &'r [SharedAnswer],
) -> Vec<LimitDecision<'r>> {
    let answer = |limit: usize, class, key, decision| {
        let of: &CompiledLimit = &set.limits[limit];
        (limit, LimitDecision { limit: of, class: of.class(class), key, decision })
    };
    let local = applicable.local.iter().zip(local_answers);
    let local = local.map(|(it, decision)| answer(it.limit, it.class, it.key.parts(), decision));
    let shared = applicable.shared.iter().zip(shared_answers);
    let shared = shared.map(|(it, of)| answer(it.limit, it.class, it.key.parts(), &of.decision));
    let mut answers: Vec<(usize, LimitDecision<'r>)> = local.chain(shared).collect();
    answers.sort_unstable_by_key(|&(limit, _)| limit);
    answers.into_iter().map(|(_, decision)| decision).collect()
}

/// Returns the binding limit, as [`check_all`] does.
fn binding<'r>(decisions: &[LimitDecision<'r>]) -> Option<LimitDecision<'r>> {
    let refusing = decisions.iter().enumerate().filter(|(_, it)| it.refuses());
    let denied = Denied::among(refusing.map(|(index, it)| (index, *it.decision)))?;
    Some(decisions[denied.index()?])
}
