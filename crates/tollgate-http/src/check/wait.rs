//! Checks one request against the limits of a layer, some of which are shared.
//!
//! # Order
//!
//! 1. The limits of this process are peeked at. A request that they refuse costs no round trip, and
//!    nothing has been charged.
//! 2. The shared limits are charged, all at the same time: they take as long as the slowest, not
//!    the sum. They are not peeked at first, because that would take another round trip and promise
//!    nothing.
//! 3. The limits of this process are charged together, by [`check_all`]. They come last because
//!    charging them takes no time: meanwhile no other request goes without tokens that may be
//!    refunded.
//!
//! If a limit refuses, the charges of the shared limits are refunded before the request is
//! answered, as `check_all` does it: a client that has received its refusal has paid nothing.
//!
//! # Cancellation
//!
//! While the future waits, only shared limits may have been charged. If it is dropped, their
//! charges stay, because hanging up must not make attempts free. There is nothing else to undo.

use super::judge::{Asked, Judge, Verdict};
use crate::head::RequestHead;
use crate::limit::enforcer::{Bound, SharedBound};
use crate::response::fields::Said;
use futures_util::future::join_all;
use http::request::Parts;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use tollgate::{Chargeable, Decision, DeniedBy, ToKey, check_all};

/// A future that returns the request with its verdict.
pub(crate) type Judging = Pin<Box<dyn Future<Output = (Parts, Verdict)> + Send>>;

pub(crate) fn judging(judge: Arc<Judge>, request: Parts) -> Judging {
    Box::pin(async move {
        let head = RequestHead::of_parts(&request, &judge.peers);
        let verdict = match judge.asked(head) {
            Ok(Asked { local, shared }) if shared.is_empty() => judge.judge_local(head, &local),
            Ok(asked) => decide(&judge, head, &asked).await,
            Err(limit) => Verdict::Refused(judge.without_key(limit, head)),
        };
        (request, verdict)
    })
}

async fn decide(judge: &Judge, head: RequestHead<'_>, asked: &Asked<'_>) -> Verdict {
    let Asked { local, shared } = asked;
    let mut local_answers: Vec<Decision> = local.iter().map(|bound| bound.peek_n(bound.cost)).collect();
    let mut shared_answers = Vec::new();
    if binding(&said(judge, asked, &local_answers, &[])).is_none() {
        shared_answers = charge_shared(shared).await;
        if binding(&said(judge, asked, &[], &shared_answers)).is_none() {
            local_answers = charge_local(judge, local);
        }
    }
    let response = {
        let said = said(judge, asked, &local_answers, &shared_answers);
        let binding = binding(&said);
        let said = said.iter().copied();
        judge.tell(head, said.clone(), binding);
        match binding {
            None => {
                let local = local
                    .iter()
                    .zip(&local_answers)
                    .filter_map(|(bound, charge)| judge.held(bound.limit, charge, || bound.key.to_key()));
                let shared = shared
                    .iter()
                    .zip(&shared_answers)
                    .filter_map(|(bound, charge)| judge.held(bound.limit, charge, || bound.key.clone()));
                return judge.pass(&asked.local, said, local.chain(shared).collect());
            }
            Some(binding) => judge.refuse(head, local, said, binding),
        }
    };
    let charged = shared.iter().zip(&shared_answers).filter(|(_, charge)| charge.charged() > 0);
    join_all(charged.map(|(bound, charge)| bound.limiter.refund(&bound.key, charge))).await;
    Verdict::Refused(response)
}

async fn charge_shared(shared: &[SharedBound<'_>]) -> Vec<Decision> {
    join_all(shared.iter().map(|bound| bound.limiter.check_n(&bound.key, bound.cost))).await
}

/// Charges all of the limits or none, and returns their decisions.
fn charge_local(judge: &Judge, local: &[Bound<'_>]) -> Vec<Decision> {
    let mut parts = judge.parts(local);
    // The caller finds the refusal among the decisions.
    let _ = check_all(&mut parts);
    parts.iter().filter_map(|part| part.decision().copied()).collect()
}

/// Returns the limits that have answered and their decisions, in the order of the layer's limits.
fn said<'r>(
    judge: &'r Judge,
    asked: &Asked<'_>,
    local_answers: &'r [Decision],
    shared_answers: &'r [Decision],
) -> Vec<Said<'r>> {
    let local = asked.local.iter().map(|bound| bound.limit).zip(local_answers);
    let shared = asked.shared.iter().map(|bound| bound.limit).zip(shared_answers);
    let mut answers: Vec<(usize, &Decision)> = local.chain(shared).collect();
    answers.sort_unstable_by_key(|&(limit, _)| limit);
    answers.into_iter().map(|(limit, decision)| Said { limit: &judge.limits[limit], decision }).collect()
}

/// Returns the binding limit, as [`check_all`] does.
fn binding<'r>(said: &[Said<'r>]) -> Option<Said<'r>> {
    let refusing = said.iter().enumerate().filter(|(_, said)| said.refuses());
    let denied = DeniedBy::among(refusing.map(|(index, said)| (index, *said.decision)))?;
    Some(said[denied.index()])
}
