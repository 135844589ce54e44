//! The arguments about keys, which `tollgate replay` and `tollgate suggest` share.

use std::sync::Arc;

use clap::Args;
use tollgate_http::program::PathTemplates;

use super::log::{LogArgs, first_repeated, parse_names};
use crate::failure::Failure;
use crate::printable::printable;
use crate::replay::log::schema::{Cost, Wanted};

// A doc comment here would replace the description of the subcommand in its help.
#[derive(Args)]
pub(crate) struct KeyArgs {
    /// The key that is limited: a field, or several fields joined with '+', as in ip+path [default:
    /// ip]
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
    /// Returns what to read from each line. `names` is the value of `--fields`, which may name the
    /// key's fields and the `others`.
    ///
    /// # Errors
    ///
    /// Returns an error if the key, a template or a mapping of names is invalid.
    pub(crate) fn wanted(
        &self,
        log: &LogArgs,
        names: Option<&str>,
        others: &[&str],
        cost: Cost,
    ) -> Result<Wanted, Failure> {
        let key = parse_key(self.key.as_deref().unwrap_or("ip"))?;
        let templates = parse_templates(&self.path_template, &key)?;
        let known = || others.iter().copied().chain(key.iter().map(String::as_str));
        let is_known = |name: &str| known().any(|known| known == name);
        let names = parse_names(names.unwrap_or_default(), is_known, known)?;
        Ok(Wanted {
            names,
            key,
            ipv6_prefix: self.ipv6_prefix.unwrap_or(64),
            trust_hops: log.trust_hops(),
            templates,
            cost,
            unit: log.unit(),
        })
    }
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

/// Parses the values of `--path-template`, for a key of these fields.
fn parse_templates(given: &[String], key: &[String]) -> Result<Option<Arc<PathTemplates>>, Failure> {
    let Some(template) = given.first() else { return Ok(None) };
    if !key.iter().any(|field| field == "path") {
        return Err(Failure::refused(format!(
            "--path-template `{}` would not be used: expected path among the fields of --key, as in ip+path",
            printable(template.as_bytes())
        )));
    }
    let templates = PathTemplates::new(given);
    templates.map(Arc::new).map(Some).map_err(|error| Failure::refused(format!("--path-template: {error}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_split_at_plus_signs() {
        assert_eq!(parse_key("ip+path").ok(), Some(vec!["ip".into(), "path".into()]));
        for text in ["", "+", "ip+", "ip++path", "ip+ip", "ip+path+ ip"] {
            assert!(parse_key(text).is_err(), "{text}");
        }
    }
}
