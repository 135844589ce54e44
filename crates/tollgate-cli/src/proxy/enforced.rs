//! Builds the limits that the proxy enforces. The proxy counts and logs their decisions, and adds
//! the operator's fields and body to refusals.

use tollgate_http::settings::SavedLimits;
use tollgate_http::{DecisionEvent, RefusalReason};
use tollgate_redis::program::Store;

use super::limits::{self, Limits};
use super::log_line::RareLine;
use super::settings::ProxySettings;
use crate::failure::Failure;
use crate::proxy::telemetry::entry::Noted;

/// Builds the limits in the settings, as [`limits::build`] does.
///
/// # Errors
///
/// Returns the errors of [`limits::build`].
pub(crate) fn build(
    settings: &ProxySettings,
    store: Option<&Store>,
    running: Option<&Limits>,
    saved: SavedLimits,
    metrics: &tollgate_http::Metrics,
) -> Result<Limits, Failure> {
    let refusals = settings.refusals.clone();
    let words = refusals.clone();
    let limits = limits::build(&settings.limits, store, running, saved, |builder, parts| {
        let notices = parts.iter().map(|(limit, _)| (limit.name.clone(), RareLine::new()));
        let notices: Vec<(String, RareLine)> = notices.collect();
        let listen = move |event: &DecisionEvent<'_>| {
            Noted::note(event);
            if event.reason == Some(RefusalReason::Full) && !event.is_shadow {
                let of_limit = |(name, _): &&(String, RareLine)| name == event.limit_name;
                if let Some((name, notice)) = notices.iter().find(of_limit) {
                    notice.log(format_args!(
                        "limit {name}: as many keys are tracked as --max-keys allows, and new ones are refused"
                    ));
                }
            }
        };
        let builder = builder.metrics(metrics).on_decision(listen);
        match words.has_body() {
            true => builder.respond(move |refusal| words.response(refusal)),
            false => builder,
        }
    })?;
    Ok(Limits { refusals, ..limits })
}
