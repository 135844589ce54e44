//! Lists the facts that the limits need about each request. For each fact, the list names a limit
//! that needs it.

use tollgate_http::program::{self, Fact};
use tollgate_http::settings::{Allowance, LimitPart};

use super::engine::ReplayLimits;
use super::settings::ConfigFile;
use crate::printable::printable;

/// A fact that a log must have.
#[derive(Clone, Debug)]
pub(crate) struct Need {
    /// The limit or the option that needs the fact, in the notation of the arguments, after its
    /// place in a file.
    pub(crate) of: String,
    pub(crate) what: What,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum What {
    Fact(Fact),
    /// The time from the arrival of a request to the end of its response.
    Duration,
}

impl Need {
    /// Returns the facts that these limits need, or `None` if all of them count by fields of the
    /// log and need nothing else. `file` contains the settings that are not arguments, and `parts`
    /// contains the limits' parts. A fact needed by several limits is listed once, under the first
    /// of them.
    pub(crate) fn all(
        limits: &ReplayLimits,
        file: Option<&ConfigFile>,
        parts: &[LimitPart],
    ) -> Option<Vec<Self>> {
        let settings = &limits.layer;
        let named = |name: &str| format!("--limit '{}'", printable(name.as_bytes()));
        let mut needs: Vec<Self> = Vec::new();
        let mut add = |of: &dyn Fn() -> String, what: What| {
            if !needs.iter().any(|need| need.what == what) {
                let of = of();
                let of = match file {
                    Some(file) => file.with_line(&of),
                    None => of,
                };
                needs.push(Self { of, what });
            }
        };
        for limit in &settings.limits {
            for fact in program::facts(limit) {
                add(&|| named(&limit.name), What::Fact(fact));
            }
        }
        for scope in &settings.except {
            for fact in program::facts_of_scope(scope) {
                add(&|| format!("--except '{}'", printable(scope.to_string().as_bytes())), What::Fact(fact));
            }
        }
        for part in parts.iter().filter(|part| has_places(part)) {
            add(&|| named(&part.text_name), What::Duration);
        }
        (!needs.is_empty() || !limits.are_by_fields()).then_some(needs)
    }

    /// Returns the facts of both lists.
    pub(crate) fn joined(one: Option<Vec<Self>>, other: Option<Vec<Self>>) -> Option<Vec<Self>> {
        let (mut needs, others) = match (one, other) {
            (Some(one), Some(other)) => (one, other),
            (one, other) => return one.or(other),
        };
        for need in others {
            if !needs.iter().any(|known| known.what == need.what) {
                needs.push(need);
            }
        }
        Some(needs)
    }
}

/// Returns whether the limit itself, or any of its classes, limits requests in flight.
fn has_places(part: &LimitPart) -> bool {
    let others = part.classes.iter().map(|(_, allowance)| allowance);
    std::iter::once(&part.allowance).chain(others).any(|it| matches!(it, Allowance::AtOnce(_)))
}
