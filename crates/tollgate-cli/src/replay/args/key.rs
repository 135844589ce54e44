//! The arguments about keys, which `tollgate replay` and `tollgate suggest` share.

use std::sync::Arc;

use clap::Args;
use tollgate_http::program::PathTemplates;

use super::log::{LogArgs, first_repeated, parse_names};
use crate::failure::Failure;
use crate::printable::printable;
use crate::replay::log::json::HEADER;
use crate::replay::log::schema::{Cost, Wanted};
use crate::replay::settings::LogSettings;

// A doc comment here would replace the description of the subcommand in its help.
#[derive(Args)]
pub(crate) struct KeyArgs {
    /// The key of a quota without a name: a field, or several fields joined with '+', as in ip+path
    /// [default: ip]
    #[arg(short, long, value_name = "FIELDS", help_heading = "Limit")]
    pub(crate) key: Option<String>,

    /// A template of paths, such as /users/{id}, once for each template: the field path counts all
    /// paths of a template as one, and all paths that match no template as one more
    #[arg(long, value_name = "TEMPLATE", help_heading = "Limit")]
    pub(crate) path_template: Vec<String>,

    /// How many bits of an IPv6 address identify a client, for the field ip [default: 64]
    #[arg(
        long,
        value_name = "BITS",
        value_parser = clap::value_parser!(u8).range(1..=128),
        help_heading = "Limit"
    )]
    pub(crate) ipv6_prefix: Option<u8>,
}

impl KeyArgs {
    /// Returns the fields of the key.
    pub(crate) fn fields(&self) -> Result<Vec<String>, Failure> {
        parse_key(self.key.as_deref().unwrap_or("ip"))
    }

    /// Returns the logs and what to read from them. `names` is the value of `--fields`, which may
    /// name the fields of `key` and the `others`. `has_names` is set if limits with names use path
    /// templates.
    ///
    /// # Errors
    ///
    /// Returns an error if a template or a mapping of names is invalid, or if standard input would
    /// be read twice.
    pub(crate) fn log_settings(
        &self,
        log: &LogArgs,
        names: Option<&str>,
        others: &[&str],
        key: Vec<String>,
        (cost, has_names): (Cost, bool),
    ) -> Result<LogSettings, Failure> {
        let has_path = key.iter().any(|field| field == "path");
        let templates = match has_names && !has_path {
            true => None,
            false => parse_templates(&self.path_template, has_path)?,
        };
        let known = || others.iter().copied().chain(key.iter().map(String::as_str));
        let takes_headers = others.contains(&"header:NAME");
        let is_known =
            |name: &str| known().any(|known| known == name) || takes_headers && name.starts_with(HEADER);
        let names = parse_names(names.unwrap_or_default(), is_known, known)?;
        log.settings(Wanted {
            names,
            key,
            ipv6_prefix: self.ipv6_prefix.unwrap_or(64),
            trust_hops: log.trust_hops.map(usize::from),
            templates,
            cost,
            unit: log.time_unit,
        })
    }
}

/// The field with the addresses that proxies have reported. The proxy's own field for them is `ip`.
pub(crate) const FORWARDED: &str = "forwarded";

/// Returns the proxy's key for these fields of a log. As in a log, requests without one of the
/// `optional` fields are counted by their other fields.
///
/// # Errors
///
/// Returns an error, which begins with `place`, if the proxy's keys cannot contain one of the
/// fields.
pub(crate) fn key_of_proxy(
    fields: &[String],
    trust_hops: Option<usize>,
    optional: &[&str],
    place: &str,
) -> Result<String, Failure> {
    let refused = |why: &str| Failure::refused(format!("{place}: {why}"));
    if fields.iter().any(|field| field == FORWARDED) {
        if trust_hops.is_none() {
            return Err(refused(
                "the key `forwarded` needs --trust-hops, the number of proxies that have added to the list of \
                 addresses: any client can write the others",
            ));
        }
        if fields.iter().any(|field| field == "ip") {
            return Err(refused(
                "in the proxy, `ip` and `forwarded` are one address: expected --key with one of them",
            ));
        }
    }
    let part = |field: &String| match field.as_str() {
        "ip" | "method" | "path" => Ok(field.clone()),
        FORWARDED => Ok("ip".to_owned()),
        "referer" | "user-agent" => Ok(format!("header {field}")),
        _ => Err(refused(&format!(
            "the proxy has no key `{}`: expected --key with ip, forwarded, method, path, referer or user-agent",
            printable(field.as_bytes())
        ))),
    };
    let without = |left_out: &[&str]| {
        let parts = fields.iter().filter(|field| !left_out.contains(&field.as_str())).map(part);
        parts.collect::<Result<Vec<_>, _>>().map(|parts| parts.join("+"))
    };
    let optional: Vec<&str> =
        optional.iter().copied().filter(|it| fields.iter().any(|field| field == it)).collect();
    let chosen = |bits: usize| (0..optional.len()).filter(move |at| bits >> at & 1 == 1);
    let mut left_out: Vec<Vec<&str>> =
        (0..1 << optional.len()).map(|bits| chosen(bits).map(|at| optional[at]).collect()).collect();
    left_out.sort_by_key(Vec::len);
    let left_out = left_out.iter().map(Vec::as_slice);
    let keys: Vec<String> = left_out.map(without).collect::<Result<_, _>>()?;
    let alternatives: Vec<&str> = keys.iter().map(String::as_str).filter(|key| !key.is_empty()).collect();
    let otherwise = if alternatives.len() < keys.len() { " else share" } else { "" };
    Ok(format!("{}{otherwise}", alternatives.join(" or ")))
}

fn parse_key(text: &str) -> Result<Vec<String>, Failure> {
    let fields: Vec<String> = text.split('+').map(|field| field.trim().to_owned()).collect();
    if fields.iter().any(String::is_empty) {
        return Err(Failure::refused(format!(
            "invalid --key `{}`, which has an empty field: expected a field, or several joined with \
             '+', as in ip+path",
            printable(text.as_bytes())
        )));
    }
    if let Some(field) = first_repeated(fields.iter()) {
        let field = printable(field.as_bytes());
        return Err(Failure::refused(format!("--key names '{field}' twice; allowed: each field once")));
    }
    Ok(fields)
}

/// Parses the values of `--path-template`. `has_path` is set if a field of the key is the path.
fn parse_templates(given: &[String], has_path: bool) -> Result<Option<Arc<PathTemplates>>, Failure> {
    let Some(template) = given.first() else { return Ok(None) };
    if !has_path {
        return Err(Failure::refused(format!(
            "--path-template `{}` would not be used: expected path among the fields of --key, as in ip+path",
            printable(template.as_bytes())
        )));
    }
    let templates = PathTemplates::new(given);
    templates.map(Arc::new).map(Some).map_err(|error| Failure::refused(format!("--path-template: {error}")))
}
