//! Rephrases a layer's errors in terms of the program's options.

use tollgate_http::LayerError;
use tollgate_http::program::{Fault, fault};

use crate::failure::Failure;
use crate::printable::{listed, printable};

impl From<LayerError> for Failure {
    fn from(error: LayerError) -> Self {
        refused(&error)
    }
}

/// Returns the library's message, with the names of methods and fields replaced by the program's
/// options.
pub(crate) fn refused(error: &LayerError) -> Failure {
    Failure::refused(match fault(error) {
        Fault::Limiter { limit, class, error } => {
            let class = class.as_ref().map_or(String::new(), |class| format!("class {class:?}: "));
            // The option is spelled `--max-keys`, and the setting `max_keys` in code.
            let error = error.to_string().replace("max_keys", "--max-keys");
            match error.starts_with("--max-keys") {
                true => error,
                false => format!("--limit '{}': {class}{error}", printable(limit.as_bytes())),
            }
        }
        Fault::Key { limit, error } => {
            format!("--limit '{}': {error}", printable(limit.as_bytes()))
        }
        Fault::ClassHeader { limit, header } => format!(
            "--limit '{}': any client can write the header `{}`, which names the class of the caller: expected \
             trusted proxies; name their networks in --trust or their number in --trust-hops, or list the \
             classes of keys with `class by header NAME in FILE`",
            printable(limit.as_bytes()),
            printable(header.as_bytes())
        ),
        Fault::UnknownClass { limit, class, classes, .. } => format!(
            "--limit '{}': the file has the class `{}`, which the limit does not have: expected {}, or a quota such \
             as 100/s, `8 at once`, `unlimited` or `blocked`; correct the file, or add `class {} QUOTA` to the limit",
            printable(limit.as_bytes()),
            printable(class.as_bytes()),
            listed(classes.iter().map(String::as_bytes)),
            printable(class.as_bytes())
        ),
        Fault::NeverApplies { limit } => format!(
            "--limit '{}' is for no request, because --except exempts all requests that it is for: expected \
             exemptions that leave some; drop the limit, or the exemption",
            printable(limit.as_bytes())
        ),
        Fault::TooManyLimits { limits, most } => format!(
            "--limit: {limits} limits, where a limit with several rates counts once for each rate: expected at most \
             {most}, because each response names them all; leave some out, or put a second proxy with the rest in \
             front of this one"
        ),
        Fault::PathTemplate { why } => format!("--path-template: {why}"),
        fault @ (Fault::Shadow { name, limits } | Fault::ChargeIf { name, limits }) => {
            let option = if matches!(fault, Fault::Shadow { .. }) { "--shadow" } else { "--charge-if" };
            let known = listed(limits.iter().map(String::as_bytes));
            let known = if known.is_empty() { "there is none".to_owned() } else { known };
            format!(
                "invalid {option} `{}`: expected the name of a --limit ({known})",
                printable(name.as_bytes())
            )
        }
        Fault::NothingToGiveBack { .. } => format!("--{error}"),
        Fault::NotANetwork { text } => format!(
            "invalid --trust `{}`: expected an address, or a network such as 10.0.0.0/8 or 2001:db8::/32",
            printable(text.as_bytes())
        ),
        Fault::TrustsEverybody { family } => format!(
            "--trust holds every {family} address, so each client could choose its address: expected \
             the networks of your proxies only, or their number in --trust-hops"
        ),
        Fault::Hops { hops, most } => {
            format!(
                "invalid --trust-hops {hops}: expected 1 to {most}, the number of proxies in front of this one"
            )
        }
        _ => format!("--limit: {error}"),
    })
}
