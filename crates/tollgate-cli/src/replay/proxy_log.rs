//! Reads the limits' answers from a line of the JSON log of `tollgate proxy`.

use std::borrow::Cow;

use serde::Deserialize;
use tollgate_http::program::{Recorded, RecordedLimit};

use crate::printable::printable;
use crate::replay::log::request::Reason;

/// The answer of one limit.
#[derive(Deserialize)]
pub(crate) struct LimitAnswer<'l> {
    #[serde(borrow)]
    limit: Cow<'l, str>,
    class: Option<String>,
    key: Option<String>,
    outcome: Option<&'l str>,
}

/// Reads the field `limits`. The text of an empty list is empty.
pub(crate) fn answers(limits: &[u8]) -> Result<Vec<LimitAnswer<'_>>, Reason> {
    if limits.is_empty() {
        return Ok(Vec::new());
    }
    serde_json::from_slice(limits).map_err(|error| {
        let why = printable(error.to_string().as_bytes());
        format!("its 'limits' are not those of tollgate proxy: {why}").into()
    })
}

/// Returns whether the limit that refused the request found no key or blocked the client. In both
/// cases, the proxy answers before it checks the other limits.
pub(crate) fn is_early_refusal(answers: &[LimitAnswer<'_>], refused_by: &[u8]) -> bool {
    let refusing = answers.iter().find(|answer| answer.limit.as_bytes() == refused_by);
    refusing.is_some_and(|answer| matches!(answer.outcome, Some("no-key" | "blocked")))
}

/// Returns the keys and the classes that the limits found.
pub(crate) fn recorded(answers: Vec<LimitAnswer<'_>>) -> Recorded {
    let limit = |LimitAnswer { limit, class, key, .. }: LimitAnswer<'_>| {
        let name = limit.into_owned();
        RecordedLimit { name, class, key }
    };
    Recorded { limits: answers.into_iter().map(limit).collect() }
}
