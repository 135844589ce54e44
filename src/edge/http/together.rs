//! Several limits as one: all are charged, or none.

use crate::Decision;

/// What can be asked for tokens.
pub(super) trait Gate {
    fn check_n(&self, cost: u64) -> Decision;
    fn peek_n(&self, cost: u64) -> Decision;
    fn refund(&self, charge: &Decision);
}

/// One of the limits that are asked together.
pub(super) struct Part<'g> {
    gate: &'g dyn Gate,
    cost: u64,
    shadow: bool,
    decision: Option<Decision>,
}

impl<'g> Part<'g> {
    pub(super) fn new(gate: &'g dyn Gate, cost: u64) -> Self {
        Self { gate, cost, shadow: false, decision: None }
    }

    pub(super) fn shadow(self) -> Self {
        Self { shadow: true, ..self }
    }

    pub(super) fn decision(&self) -> Option<&Decision> {
        self.decision.as_ref()
    }

    fn refuses(&self) -> bool {
        !self.shadow && self.decision.is_some_and(|decision| !decision.allowed())
    }
}

/// `None`: all allow it and are charged. `Some(i)`: refused; nothing stays charged, and part `i` has the longest wait.
pub(super) fn check_all(parts: &mut [Part<'_>]) -> Option<usize> {
    for part in parts.iter_mut().skip(1) {
        part.decision = Some(part.gate.peek_n(part.cost));
    }
    if parts.iter().any(Part::refuses) {
        if let Some(first) = parts.first_mut() {
            first.decision = Some(first.gate.peek_n(first.cost));
        }
        return binding(parts);
    }
    let order = [false, true];
    let mut charged: [Option<Decision>; 64] = [None; 64];
    for shadow in order {
        for i in 0..parts.len() {
            if parts[i].shadow != shadow {
                continue;
            }
            let decision = parts[i].gate.check_n(parts[i].cost);
            charged[i] = Some(decision);
            if !shadow && !decision.allowed() {
                for (part, charge) in parts.iter_mut().zip(charged) {
                    if let Some(charge) = charge.filter(Decision::allowed) {
                        part.gate.refund(&charge);
                        part.decision = Some(part.gate.peek_n(part.cost));
                    }
                }
                parts[i].decision = Some(decision);
                return binding(parts);
            }
        }
    }
    for (part, charge) in parts.iter_mut().zip(charged) {
        part.decision = charge;
    }
    None
}

fn binding(parts: &[Part<'_>]) -> Option<usize> {
    let wait = |part: &Part<'_>| part.decision.and_then(|decision| decision.retry_after());
    let refusing = (0..parts.len()).filter(|&i| parts[i].refuses());
    refusing.max_by_key(|&i| wait(&parts[i]).map_or((1, None), |wait| (0, Some(wait))))
}
