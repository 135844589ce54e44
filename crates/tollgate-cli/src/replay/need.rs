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
    /// Returns the facts that all these limits need, or `None` if all of them count by fields of
    /// the log and need nothing else. Each item consists of limits, the file that contains their
    /// settings unless they are arguments, and the limits' parts. A fact needed by several limits
    /// is listed once, under the first of them.
    pub(crate) fn all(all: &[(&ReplayLimits, Option<&ConfigFile>, &[LimitPart])]) -> Option<Vec<Self>> {
        let named = |name: &str| format!("--limit '{}'", printable(name.as_bytes()));
        let mut needs: Vec<Self> = Vec::new();
        for (limits, file, parts) in all {
            let mut add = |of: &dyn Fn() -> String, what: What| {
                if !needs.iter().any(|need| need.what == what) {
                    let of = file.map_or_else(of, |file| file.with_line(&of()));
                    needs.push(Self { of, what });
                }
            };
            for limit in &limits.layer.limits {
                for fact in program::facts(limit) {
                    add(&|| named(&limit.name), What::Fact(fact));
                }
            }
            for scope in &limits.layer.except {
                let except = || format!("--except '{}'", printable(scope.to_string().as_bytes()));
                program::facts_of_scope(scope).into_iter().for_each(|fact| add(&except, What::Fact(fact)));
            }
            for part in parts.iter().filter(|part| has_places(part)) {
                add(&|| named(&part.text_name), What::Duration);
            }
        }
        let are_by_fields = all.iter().all(|(limits, ..)| limits.are_by_fields());
        (!needs.is_empty() || !are_by_fields).then_some(needs)
    }
}

/// Returns whether the limit itself, or any of its classes, limits requests in flight.
fn has_places(part: &LimitPart) -> bool {
    program::classes(part).any(|(_, allowance)| matches!(allowance, Allowance::AtOnce(_)))
}
