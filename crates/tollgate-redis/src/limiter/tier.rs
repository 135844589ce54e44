//! [`Tier`]: one class of a limit: its quota, the names of its keys, and what this machine keeps.

use crate::core::{self, Core, Request};
use crate::error::ResetError;
use crate::lease::Leases;
use crate::name::{Name, Naming, StoreKey};
use crate::scripts::rule::Op;
use crate::scripts::script::Failure;
use crate::stats::SharedStats;
use crate::unsynced::Unsynced;
use std::sync::Arc;
use tollgate::{Decision, Quota, Source, Tick};

pub(crate) struct Tier {
    pub(crate) core: Arc<Core>,
    pub(crate) naming: Naming,
    pub(crate) mode: Mode,
    pub(crate) quota: Quota,
}

pub(crate) enum Mode {
    Exact,
    Lease(Leases),
    Unsynced(Unsynced),
}

impl Tier {
    pub(crate) async fn check<K: StoreKey + ?Sized>(&self, key: &K, cost: u64) -> Decision {
        let (name, text) = self.naming.name(key);
        self.check_named(Request { name, text: &text, cost }).await
    }

    /// Checks a request of a key whose name was made before.
    pub(crate) async fn check_named(&self, request: Request<'_>) -> Decision {
        match &self.mode {
            Mode::Exact => self.core.check(request, None).await,
            Mode::Lease(leases) => leases.check(request).await,
            Mode::Unsynced(counts) => counts.check(request, None, self.core.deadline()).await,
        }
    }

    pub(crate) async fn check_at<K: StoreKey + ?Sized>(&self, key: &K, cost: u64, now: Tick) -> Decision {
        let (name, text) = self.naming.name(key);
        let request = Request { name, text: &text, cost };
        match &self.mode {
            Mode::Unsynced(counts) => counts.check(request, Some(now), self.core.deadline()).await,
            _ => self.core.check(request, Some(now)).await,
        }
    }

    pub(crate) async fn peek<K: StoreKey + ?Sized>(&self, key: &K, cost: u64, now: Option<Tick>) -> Decision {
        let (name, text) = self.naming.name(key);
        if let Mode::Unsynced(counts) = &self.mode {
            return counts.peek(Request { name, text: &text, cost }, now);
        }
        match self.core.ask(&text, Op::Peek { cost }, now).await {
            Ok(answer) => answer.decision,
            Err(_) => self.core.fallback.peek(&name, cost, self.core.rule.capacity()),
        }
    }

    /// Gives back at most `tokens` of what `charge` took, to where it was taken.
    pub(crate) async fn refund<K: StoreKey + ?Sized>(
        &self,
        key: &K,
        charge: &Decision,
        tokens: u64,
        now: Option<Tick>,
    ) {
        let tokens = charge.charged().min(tokens);
        if tokens == 0 {
            return;
        }
        let (name, text) = self.naming.name(key);
        self.refund_named(name, &text, charge, tokens, now).await;
    }

    /// Gives back `tokens` of a charge of a key whose name was made before.
    pub(crate) async fn refund_named(
        &self,
        name: Name,
        text: &str,
        charge: &Decision,
        tokens: u64,
        now: Option<Tick>,
    ) {
        match (charge.source(), &self.mode) {
            (Source::Remote, mode) => {
                let _ = self.core.ask(text, Op::Refund { charge, tokens }, now).await;
                if let Mode::Lease(leases) = mode {
                    leases.ask_again(&name);
                }
            }
            (Source::Prepaid, Mode::Lease(leases)) => leases.refund(&name, charge, tokens),
            (Source::Prepaid, Mode::Unsynced(counts)) => counts.refund(name, charge, tokens),
            (Source::Key | Source::Overflow, _) => self.core.fallback.refund(&name, charge, tokens),
            _ => {}
        }
    }

    /// Charges tokens that are spent already, and returns how many were charged.
    pub(crate) async fn force<K: StoreKey + ?Sized>(&self, key: &K, tokens: u64, now: Option<Tick>) -> u64 {
        let (name, text) = self.naming.name(key);
        self.force_named(Request { name, text: &text, cost: tokens }, now).await
    }

    /// Charges a key whose name was made before for tokens that are spent already.
    pub(crate) async fn force_named(&self, request: Request<'_>, now: Option<Tick>) -> u64 {
        match &self.mode {
            _ if request.cost == 0 => 0,
            Mode::Unsynced(counts) => counts.force(request, now, self.core.deadline()).await,
            Mode::Exact | Mode::Lease(_) => self.core.force(request, now).await,
        }
    }

    pub(crate) async fn reset<K: StoreKey + ?Sized>(&self, key: &K) -> Result<(), ResetError> {
        let (name, text) = self.naming.name(key);
        let deleted = self.core.client.delete(&text, self.core.deadline()).await;
        // After the deletion: what this machine leased or pushed before it belongs to the deleted
        // state.
        self.core.fallback.reset(&name);
        match &self.mode {
            Mode::Exact => {}
            Mode::Lease(leases) => leases.forget(&name),
            Mode::Unsynced(counts) => counts.forget(name),
        }
        deleted.map_err(|failure| ResetError {
            problem: match failure {
                Failure::Unavailable => "no connection to the store".to_owned(),
                Failure::Unknown => "the store did not answer in time".to_owned(),
                Failure::Server(problem) => problem,
            },
        })
    }

    pub(crate) async fn flush(&self) {
        if let Mode::Unsynced(counts) = &self.mode {
            counts.flush().await;
        }
    }

    /// Adds what this machine holds of the tier's tokens.
    pub(crate) fn add_to(&self, stats: &mut SharedStats) {
        match &self.mode {
            Mode::Exact => {}
            Mode::Lease(leases) => stats.leased += leases.held(),
            Mode::Unsynced(counts) => counts.add_to(stats),
        }
    }
}

/// Checks requests of these tiers of one limit, in the given order, in as few round trips as the
/// servers allow.
pub(crate) async fn check_many<K: StoreKey + ?Sized>(requests: &[(&Tier, &K, u64)]) -> Vec<Decision> {
    let named = |&(tier, key, _): &(&Tier, &K, u64)| tier.naming.name(key);
    let names: Vec<_> = requests.iter().map(named).collect();
    let mut asked = Vec::with_capacity(requests.len());
    for ((name, text), &(tier, _, cost)) in names.iter().zip(requests) {
        asked.push((tier, Request { name: *name, text, cost }));
    }
    let is_unsynced = |tier: &Tier| matches!(tier.mode, Mode::Unsynced(_));
    if !asked.iter().any(|(tier, _)| is_unsynced(tier)) {
        let asked: Vec<_> = asked.iter().map(|(tier, request)| (&*tier.core, *request)).collect();
        return core::check_all(&asked).await;
    }
    let mut decisions = Vec::with_capacity(asked.len());
    for (tier, request) in asked {
        decisions.push(match &tier.mode {
            Mode::Unsynced(counts) => counts.check(request, None, tier.core.deadline()).await,
            _ => tier.core.check(request, None).await,
        });
    }
    decisions
}
