//! One request before all limits of a layer.

use super::answer::Answer;
use super::denial::Denial;
use super::enforced::Enforced;
use super::enforcer::Bound;
use super::event::Event;
use super::fields::{self, Fields, Said};
use super::head::{Peers, RequestHead};
use super::limit::{NoKey, Skips};
use super::listeners::Listeners;
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

type Asked<'r> = SmallVec<[Bound<'r>; INLINE]>;

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
        let asked = match self.asked(head) {
            Ok(asked) => asked,
            Err(limit) => return Verdict::Refused(self.without_key(limit, head)),
        };
        let mut parts: SmallVec<[Part<'_>; INLINE]> = SmallVec::new();
        for bound in &asked {
            let limit = &self.limits[bound.limit];
            let part = Part::new(bound, limit.cost.of(head));
            parts.push(if limit.shadow { part.shadow() } else { part });
        }
        let binding = check_all(&mut parts);
        self.tell(head, &asked, &parts, binding);
        match binding.and_then(|binding| Some((binding, parts[binding].decision()?))) {
            None => self.pass(&asked, &parts),
            Some((binding, decision)) => {
                Verdict::Refused(self.refuse(head, &asked, &parts, binding, decision))
            }
        }
    }

    /// The limits that count for a request, with its keys; or one that refuses it for want of a key.
    fn asked<'r>(&'r self, head: RequestHead<'r>) -> Result<Asked<'r>, &'r Enforced> {
        let mut asked = SmallVec::new();
        for (number, limit) in self.limits.iter().enumerate() {
            if limit.skips(head) {
                continue;
            }
            match limit.key(head) {
                Some(key) => asked.push(Bound { limit: number, enforcer: &limit.enforcer, key }),
                None => {
                    let refused = limit.no_key == Some(NoKey::Deny) && !limit.shadow;
                    self.tell_missing(limit, head, refused);
                    if refused {
                        return Err(limit);
                    }
                }
            }
        }
        Ok(asked)
    }

    /// What the limits said, in their order.
    fn said<'r>(
        &'r self,
        asked: &'r [Bound<'_>],
        parts: &'r [Part<'_>],
    ) -> impl Iterator<Item = Said<'r>> + Clone {
        let said = asked.iter().zip(parts);
        said.filter_map(|(bound, part)| {
            Some(Said { limit: &self.limits[bound.limit], decision: part.decision()? })
        })
    }

    fn pass(&self, asked: &[Bound<'_>], parts: &[Part<'_>]) -> Verdict {
        let said = self.said(asked, parts);
        let fields = self.fields(asked, said.clone(), None, || fields::scarcest(said.clone()));
        // What is needed to give charges back when the response is known.
        let held = asked.iter().zip(parts).filter_map(|(bound, part)| {
            let charge = part.decision().filter(|charge| charge.charged() > 0)?;
            let may_return = self.limits[bound.limit].charges.is_some();
            may_return.then(|| Held::new(bound.limit, &bound.key, *charge))
        });
        let held: SmallVec<[Held; 1]> = held.collect();
        let ticket = (!held.is_empty()).then(|| Box::new(Ticket::new(Arc::clone(&self.limits), held)));
        Verdict::Passed(fields, ticket)
    }

    fn refuse(
        &self,
        head: RequestHead<'_>,
        asked: &[Bound<'_>],
        parts: &[Part<'_>],
        binding: usize,
        decision: &Decision,
    ) -> Response<Bytes> {
        let wait = seconds::until_retry(decision);
        let said = self.said(asked, parts);
        let fields = self.fields(asked, said.clone(), wait, || Some(decision));
        let limit: &str = &self.limits[asked[binding].limit].name;
        let others = said.filter(|said| said.refuses() && *said.limit.name != *limit);
        let mut violated: SmallVec<[&str; INLINE]> = SmallVec::new();
        violated.push(limit);
        violated.extend(others.map(|said| &*said.limit.name));
        let (violated, decision, status) = (&*violated, Some(decision), self.status);
        self.answer.response(&Denial { limit, violated, decision, request: head, status, wait }, fields)
    }

    fn fields<'r>(
        &self,
        asked: &[Bound<'_>],
        said: impl Iterator<Item = Said<'r>>,
        wait: Option<u64>,
        told: impl FnOnce() -> Option<&'r Decision>,
    ) -> Fields {
        let mut fields = Fields::default();
        if self.shows_fields {
            fields.rate_limit = fields::rate_limit(said, wait);
            fields.policy = self.policy.value(&self.limits, asked);
        }
        if self.shows_legacy {
            fields.legacy = told().map(fields::legacy);
        }
        fields
    }

    fn tell(&self, head: RequestHead<'_>, asked: &[Bound<'_>], parts: &[Part<'_>], binding: Option<usize>) {
        if !self.listeners.listen() {
            return;
        }
        for (index, (bound, part)) in asked.iter().zip(parts).enumerate() {
            let limit = &self.limits[bound.limit];
            self.listeners.tell(&Event {
                limit: &limit.name,
                request: head,
                decision: part.decision(),
                denies: part.decision().is_some_and(|decision| !decision.allowed()),
                shadow: limit.shadow,
                binding: binding == Some(index),
                refused: binding.is_some(),
            });
        }
    }

    fn tell_missing(&self, limit: &Enforced, head: RequestHead<'_>, refused: bool) {
        if self.listeners.listen() {
            self.listeners.tell(&Event {
                limit: &limit.name,
                request: head,
                decision: None,
                denies: limit.no_key == Some(NoKey::Deny),
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
