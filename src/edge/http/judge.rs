//! One request before all limits of a layer.

use super::answer::Answer;
use super::denial::Denial;
use super::enforced::Enforced;
use super::enforcer::Bound;
use super::event::{Event, Listeners};
use super::fields::{self, Fields, Shown};
use super::head::{Peers, RequestHead};
use super::limit::{NoKey, Skips};
use super::policy::Policy;
use super::seconds;
use super::ticket::{Held, Ticket};
use crate::{Decision, Part, check_all};
use bytes::Bytes;
use http::{Response, StatusCode};
use smallvec::SmallVec;
use std::fmt;
use std::sync::Arc;

/// As many limits as are asked without an allocation.
const INLINE: usize = 4;

/// What all clones of a layer share.
pub(super) struct Judge {
    pub(super) limits: Arc<[Enforced]>,
    pub(super) peers: Peers,
    pub(super) skips: Option<Box<Skips>>,
    pub(super) status: StatusCode,
    pub(super) no_key_status: StatusCode,
    pub(super) answer: Answer,
    pub(super) shows_fields: bool,
    pub(super) shows_legacy: bool,
    pub(super) policy: Policy,
    pub(super) listeners: Listeners,
}

/// What becomes of a request.
pub(super) enum Verdict {
    /// It is handled; the response gets fields, and may settle what was charged.
    Passed(Fields, Option<Box<Ticket>>),
    /// It is answered at once.
    Refused(Response<Bytes>),
}

impl Judge {
    pub(super) fn judge(&self, head: RequestHead<'_>) -> Verdict {
        if self.skips.as_ref().is_some_and(|skips| skips(head)) {
            return Verdict::Passed(Fields::default(), None);
        }
        let mut asked: SmallVec<[Bound<'_>; INLINE]> = SmallVec::new();
        for (number, limit) in self.limits.iter().enumerate() {
            if limit.skips(head) {
                continue;
            }
            match limit.key(head) {
                Some(key) => asked.push(Bound { limit: number, enforcer: &limit.enforcer, key }),
                None if limit.no_key == Some(NoKey::Deny) && !limit.shadow => {
                    self.tell_missing(limit, head, true);
                    return Verdict::Refused(self.without_key(limit, head));
                }
                None => self.tell_missing(limit, head, false),
            }
        }
        let mut parts: SmallVec<[Part<'_>; INLINE]> = SmallVec::new();
        for bound in &asked {
            let limit = &self.limits[bound.limit];
            let part = Part::new(bound, limit.cost.of(head));
            parts.push(if limit.shadow { part.shadow() } else { part });
        }
        let binding = check_all(&mut parts);
        let said = |i: usize| (&self.limits[asked[i].limit], parts[i].decision());
        let said = (0..parts.len()).filter_map(|i| said(i).1.map(|decision| (i, said(i).0, decision)));
        if self.listeners.listen() {
            for (i, limit, decision) in said.clone() {
                self.listeners.tell(&Event {
                    limit: &limit.name,
                    request: head,
                    decision: Some(decision),
                    shadow: limit.shadow,
                    binding: binding == Some(i),
                    refused: binding.is_some(),
                });
            }
        }
        let shown = said.clone().filter(|(_, limit, _)| !limit.shadow);
        let shown = shown.map(|(_, limit, decision)| Shown { limit, decision });
        let Some((binding, decision)) = binding.and_then(|i| Some((i, parts[i].decision()?))) else {
            let fields = self.fields(&asked, shown.clone(), fields::scarcest(shown), None);
            let held = said.filter(|(_, limit, decision)| limit.charges.is_some() && decision.charged() > 0);
            return Verdict::Passed(fields, self.ticket(held.map(|(i, _, decision)| (&asked[i], decision))));
        };
        let wait = seconds::until_retry(decision);
        let fields = self.fields(&asked, shown, Some(decision), wait);
        let limit: &str = &self.limits[asked[binding].limit].name;
        let others =
            said.filter(|&(i, limit, decision)| i != binding && !limit.shadow && !decision.allowed());
        let mut violated: SmallVec<[&str; INLINE]> = SmallVec::new();
        violated.push(limit);
        violated.extend(others.map(|(_, limit, _)| &*limit.name));
        let denial = Denial {
            limit,
            violated: &violated,
            decision: Some(decision),
            request: head,
            status: self.status,
            wait,
        };
        Verdict::Refused(self.answer.response(&denial, fields))
    }

    fn fields<'r>(
        &'r self,
        asked: &[Bound<'_>],
        shown: impl Iterator<Item = Shown<'r>>,
        scarcest: Option<&Decision>,
        wait: Option<u64>,
    ) -> Fields {
        let mut fields = Fields::default();
        if self.shows_fields {
            fields.rate_limit = fields::rate_limit(shown, wait);
            fields.policy = self.policy.value(&self.limits, asked);
        }
        if self.shows_legacy {
            fields.legacy = scarcest.map(fields::legacy);
        }
        fields
    }

    /// What is needed to give back charges when the response is known.
    fn ticket<'b, 'k: 'b>(
        &self,
        held: impl Iterator<Item = (&'b Bound<'k>, &'b Decision)>,
    ) -> Option<Box<Ticket>> {
        let mut held = held.peekable();
        held.peek()?;
        let held = held.map(|(bound, charge)| Held::new(bound.limit, &bound.key, *charge)).collect();
        Some(Box::new(Ticket::new(Arc::clone(&self.limits), held)))
    }

    fn tell_missing(&self, limit: &Enforced, head: RequestHead<'_>, refused: bool) {
        if self.listeners.listen() {
            self.listeners.tell(&Event {
                limit: &limit.name,
                request: head,
                decision: None,
                shadow: limit.shadow,
                binding: refused,
                refused,
            });
        }
    }

    fn without_key(&self, limit: &Enforced, head: RequestHead<'_>) -> Response<Bytes> {
        let denial = Denial {
            limit: &limit.name,
            violated: &[&limit.name],
            decision: None,
            request: head,
            status: self.no_key_status,
            wait: None,
        };
        self.answer.response(&denial, Fields::default())
    }
}

impl fmt::Debug for Judge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let limits: Vec<&str> = self.limits.iter().map(|limit| &*limit.name).collect();
        f.debug_struct("RateLimitLayer").field("limits", &limits).finish_non_exhaustive()
    }
}
