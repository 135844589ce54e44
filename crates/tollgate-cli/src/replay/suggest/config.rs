//! Writes a file with which the proxy enforces the suggested limit.

use super::report::Suggestion;
use super::settings::SuggestSettings;
use crate::failure::Failure;
use crate::replay::args::key::{FORWARDED, key_of_proxy};
use crate::replay::decisions::sink::Sink;
use crate::replay::log::json::HEADER;

/// The name of the limit in the file.
const NAME: &str = "suggested";

/// Opens the file given by `--config-out`, if there is one.
///
/// # Errors
///
/// Returns an error if the proxy cannot limit by this key, if the file cannot be written, or if the
/// file is one of the logs.
pub(crate) fn open(settings: &SuggestSettings) -> Result<Option<Sink>, Failure> {
    let Some(path) = &settings.config_out else { return Ok(None) };
    key(settings)?;
    Sink::open("--config-out", path, &[("the log it reads", &settings.log.inputs)]).map(Some)
}

fn key(settings: &SuggestSettings) -> Result<String, Failure> {
    key_of_proxy(
        &settings.log.wanted.key,
        settings.log.wanted.trust_hops,
        &["referer", "user-agent"],
        "--config-out",
    )
}

/// Returns the text of the file.
///
/// # Errors
///
/// Returns an error if there is no suggested limit, or if the proxy has no key for the fields of
/// the log.
pub(crate) fn text(settings: &SuggestSettings, report: &Suggestion) -> Result<String, Failure> {
    let Some(suggested) = &report.suggested else {
        return Err(Failure::refused(format!(
            "--config-out: {} accepts no limit that denies as little: allow more, or try another --algorithm",
            report.algorithm
        )));
    };
    // In a known format, a replay of limits with names finds a header without --fields.
    let is_mapped = |field: &str| {
        report.names_its_fields() || settings.log.wanted.names.iter().any(|(ours, _)| ours == field)
    };
    let name = |field: &str| match field {
        "referer" | "user-agent" if is_mapped(field) => format!("{HEADER}{field}"),
        FORWARDED => "ip".to_owned(),
        other => other.to_owned(),
    };
    let mut text = format!(
        "# Written by tollgate suggest. {}\n\
         # Change the addresses, check the file with `tollgate proxy --check`, and serve it with\n\
         # `tollgate proxy --config`. To replay it, use\n\
         # `tollgate replay LOG --config FILE{}`.\n\n\
         listen = \"127.0.0.1:8080\"\n\
         upstream = \"http://127.0.0.1:3000\"\n\n\
         limit = [\"{NAME}={} by {}\"]\n\
         algorithm = \"{}\"\n",
        report.summary().replace('\n', "\n# "),
        settings.log_options(report.log.stepped_back > 0, name),
        suggested.limit,
        key(settings)?,
        suggested.algorithm,
    );
    if settings.log.wanted.ipv6_prefix != 64 {
        text.push_str(&format!("ipv6-prefix = {}\n", settings.log.wanted.ipv6_prefix));
    }
    let has_address = settings.log.wanted.key.iter().any(|field| field == "ip" || field == FORWARDED);
    if let (Some(hops), true) = (settings.log.wanted.trust_hops, has_address) {
        text.push_str(&format!("trust-hops = {hops}\n"));
    }
    if !settings.path_templates.is_empty() {
        // A JSON string without control characters is also a TOML string.
        let templates = serde_json::to_string(&settings.path_templates)
            .map_err(|error| Failure::refused(format!("--config-out: {error}")))?;
        text.push_str(&format!("path-template = {templates}\n"));
    }
    Ok(text)
}
