//! Checks one request against all limits of a layer.

use super::event::Event;
use super::listeners::Listeners;
use super::ticket::{Held, Ticket};
use crate::head::{Peers, RequestHead};
use crate::key::parts::Key;
use crate::limit::enforced::Enforced;
use crate::limit::enforcer::{Bound, Enforcer, SharedBound};
use crate::limit::named::{Skips, WhenNoKey};
use crate::response::answer::Answer;
use crate::response::denial::{Denial, Reason};
use crate::response::fields::{self, Fields, Said};
use crate::response::policy::Policy;
use crate::response::seconds;
use bytes::Bytes;
use http::{Response, StatusCode};
use smallvec::SmallVec;
use std::fmt;
use std::sync::Arc;
use tollgate::{Charge, Decision, ToKey, check_all};

/// The number of limits that are asked without an allocation.
const INLINE: usize = 4;

/// The limits that apply to a request.
#[derive(Default)]
pub(crate) struct Asked<'r> {
    pub(crate) local: SmallVec<[Bound<'r>; INLINE]>,
    pub(crate) shared: Vec<SharedBound<'r>>,
}

/// The compiled configuration, which all clones of a layer share.
pub(crate) struct Judge {
    pub(crate) limits: Arc<[Enforced]>,
    pub(crate) peers: Peers,
    pub(crate) skips: Option<Box<Skips>>,
    pub(crate) status: StatusCode,
    pub(crate) no_key_status: StatusCode,
    pub(crate) answer: Answer,
    pub(crate) shows_fields: bool,
    pub(crate) shows_legacy: bool,
    pub(crate) policy: Policy,
    pub(crate) listeners: Listeners,
}

/// The result of checking a request.
pub(crate) enum Verdict {
    /// The request is handled. The response gets the headers, and may settle the charges.
    Passed(Fields, Option<Box<Ticket>>),
    /// The request is answered with this response.
    Refused(Response<Bytes>),
}

impl Verdict {
    /// Returns the verdict on a request to which no limit applies.
    fn exempt() -> Self {
        Self::Passed(Fields::default(), None)
    }
}

impl Judge {
    /// Returns the first shared limit, if there is one.
    pub(crate) fn shared_limit(&self) -> Option<&Enforced> {
        self.limits.iter().find(|limit| matches!(limit.enforcer, Enforcer::Shared(_)))
    }

    /// Checks a request against limits of this process only.
    pub(crate) fn judge(&self, head: RequestHead<'_>) -> Verdict {
        if self.exempts(head) { Verdict::exempt() } else { self.judge_counted(head) }
    }

    /// Checks a request if no limit is shared, else returns `None`: the caller has to wait.
    pub(crate) fn judge_at_once(&self, head: RequestHead<'_>) -> Option<Verdict> {
        if self.exempts(head) {
            return Some(Verdict::exempt());
        }
        self.shared_limit().is_none().then(|| self.judge_counted(head))
    }

    fn exempts(&self, head: RequestHead<'_>) -> bool {
        self.skips.as_ref().is_some_and(|skips| skips(head))
    }

    fn judge_counted(&self, head: RequestHead<'_>) -> Verdict {
        match self.asked(head) {
            Ok(asked) => self.judge_local(head, &asked.local),
            Err(limit) => Verdict::Refused(self.without_key(limit, head)),
        }
    }

    /// Checks a request against these limits of this process.
    pub(crate) fn judge_local(&self, head: RequestHead<'_>, local: &[Bound<'_>]) -> Verdict {
        let mut parts = self.parts(local);
        let binding = check_all(&mut parts).err();
        let said = self.said(local, &parts);
        let binding = binding.and_then(|denied| said.clone().nth(denied.index()));
        self.tell(head, said.clone(), binding);
        match binding {
            None => {
                let held = local.iter().zip(&parts).filter_map(|(bound, part)| {
                    self.held(bound.limit, part.decision()?, || bound.key.to_key())
                });
                self.pass(local, said, held.collect())
            }
            Some(binding) => Verdict::Refused(self.refuse(head, local, said, binding)),
        }
    }

    /// Returns the limits that apply to a request, with its keys; or a limit that refuses it for a
    /// missing key.
    pub(crate) fn asked<'r>(&'r self, head: RequestHead<'r>) -> Result<Asked<'r>, &'r Enforced> {
        let mut asked = Asked::default();
        for (number, limit) in self.limits.iter().enumerate() {
            if limit.skips(head) {
                continue;
            }
            let Some(key) = limit.key(head) else {
                let refused = limit.no_key == Some(WhenNoKey::Deny) && !limit.shadow;
                self.tell_missing(limit, head, refused);
                if refused {
                    return Err(limit);
                }
                continue;
            };
            let cost = limit.cost.of(head);
            match &limit.enforcer {
                Enforcer::Local(limiter) => asked.local.push(Bound { limit: number, limiter, key, cost }),
                Enforcer::Shared(limiter) => {
                    let key = key.to_key();
                    asked.shared.push(SharedBound { limit: number, limiter: &**limiter, key, cost });
                }
            }
        }
        Ok(asked)
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

    /// Returns the decisions of the limits, in their order.
    fn said<'r>(
        &'r self,
        local: &'r [Bound<'_>],
        parts: &'r [Charge<'_>],
    ) -> impl Iterator<Item = Said<'r>> + Clone {
        let said = local.iter().zip(parts);
        said.filter_map(|(bound, part)| {
            Some(Said { limit: &self.limits[bound.limit], decision: part.decision()? })
        })
    }

    /// Returns what is needed to refund a charge when the response is known, if it may be refunded.
    pub(crate) fn held(&self, limit: usize, charge: &Decision, key: impl FnOnce() -> Key) -> Option<Held> {
        let may_return = charge.charged() > 0 && self.limits[limit].charges.is_some();
        may_return.then(|| Held { limit, key: key(), charge: *charge })
    }

    pub(crate) fn pass<'r>(
        &self,
        local: &[Bound<'_>],
        said: impl Iterator<Item = Said<'r>> + Clone,
        held: SmallVec<[Held; 1]>,
    ) -> Verdict {
        let fields = self.fields(local, said.clone(), None, || fields::scarcest(said));
        let ticket = (!held.is_empty()).then(|| Box::new(Ticket::new(Arc::clone(&self.limits), held)));
        Verdict::Passed(fields, ticket)
    }

    pub(crate) fn refuse<'r>(
        &self,
        head: RequestHead<'_>,
        local: &[Bound<'_>],
        said: impl Iterator<Item = Said<'r>> + Clone,
        binding: Said<'r>,
    ) -> Response<Bytes> {
        let decision = binding.decision;
        let wait = seconds::until_retry(decision);
        let fields = self.fields(local, said.clone(), wait, || Some(decision));
        let limit: &str = &binding.limit.name;
        let others = said.filter(|said| said.refuses() && *said.limit.name != *limit);
        let mut violated: SmallVec<[&str; INLINE]> = SmallVec::new();
        violated.push(limit);
        violated.extend(others.map(|said| &*said.limit.name));
        let is_shared = binding.limit.enforcer.is_shared();
        let is_full = Reason::of(Some(decision), is_shared) == Reason::Full;
        let denial = Denial {
            limit,
            violated: &violated,
            decision: Some(decision),
            request: head,
            status: self.status,
            wait,
            is_shared,
            max_keys: binding.limit.max_keys.filter(|_| is_full),
        };
        self.answer.response(&denial, fields)
    }

    fn fields<'r>(
        &self,
        local: &[Bound<'_>],
        said: impl Iterator<Item = Said<'r>>,
        wait: Option<u64>,
        told: impl FnOnce() -> Option<&'r Decision>,
    ) -> Fields {
        let mut fields = Fields::default();
        if self.shows_fields {
            fields.rate_limit = fields::rate_limit(said, wait);
            fields.policy = self.policy.value(&self.limits, local);
        }
        if self.shows_legacy {
            fields.legacy = told().map(fields::legacy);
        }
        fields
    }

    pub(crate) fn tell<'r>(
        &self,
        head: RequestHead<'_>,
        said: impl Iterator<Item = Said<'r>>,
        binding: Option<Said<'r>>,
    ) {
        if !self.listeners.listen() {
            return;
        }
        for Said { limit, decision } in said {
            self.listeners.tell(&Event {
                limit: &limit.name,
                request: head,
                decision: Some(decision),
                denies: !decision.is_allowed(),
                shadow: limit.shadow,
                is_shared: limit.enforcer.is_shared(),
                binding: binding.is_some_and(|binding| std::ptr::eq(binding.limit, limit)),
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
                denies: limit.no_key == Some(WhenNoKey::Deny),
                shadow: limit.shadow,
                is_shared: limit.enforcer.is_shared(),
                binding: refused,
                refused,
            });
        }
    }

    pub(crate) fn without_key(&self, limit: &Enforced, head: RequestHead<'_>) -> Response<Bytes> {
        let denial = Denial {
            limit: &limit.name,
            violated: &[&limit.name],
            decision: None,
            request: head,
            status: self.no_key_status,
            wait: None,
            is_shared: limit.enforcer.is_shared(),
            max_keys: None,
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
