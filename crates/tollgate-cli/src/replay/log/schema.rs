//! Defines the parts of a log that a replay needs in any format: the fields, the cost, and their
//! names.

use std::sync::Arc;

use tollgate_http::program::PathTemplates;

use super::formats::Format;
use super::request::Reason;
use super::timestamp::TimeUnit;
use crate::printable::{listed, printable};

/// The cost of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cost {
    One,
    /// The size of the response in bytes, or zero if the log has `-`.
    Bytes,
}

/// The parts of a record that the replay needs.
#[derive(Clone, Debug)]
pub struct Wanted {
    /// The fields whose values form the key, in this order.
    pub key: Vec<String>,
    /// How many bits of an IPv6 address count for the fields `ip` and `forwarded`.
    pub ipv6_prefix: u8,
    /// The number of proxies that appended to a list of addresses. The client is this many
    /// addresses from the end of the list. If `None`, a list counts as written.
    pub trust_hops: Option<usize>,
    /// The templates by which the field `path` is counted.
    pub templates: Option<Arc<PathTemplates>>,
    pub cost: Cost,
    /// Pairs of our name for a field and its name in the log.
    pub names: Vec<(String, String)>,
    pub unit: TimeUnit,
}

impl Wanted {
    /// Returns the name of this field in the log, according to the arguments.
    pub(crate) fn name_of<'w>(&'w self, field: &'w str) -> &'w str {
        self.names.iter().find(|(ours, _)| ours == field).map_or(field, |(_, theirs)| theirs)
    }

    /// Returns our names for the time, for the bytes if they are needed, and for the key's fields.
    pub(crate) fn fields(&self) -> impl Iterator<Item = &str> {
        let bytes = (self.cost == Cost::Bytes).then_some("bytes");
        std::iter::once("time").chain(bytes).chain(self.key.iter().map(String::as_str))
    }

    /// Returns the log's own names for these fields, for a log that names its fields.
    pub(crate) fn columns(&self) -> Vec<String> {
        self.fields().map(|field| self.name_of(field).to_owned()).collect()
    }
}

/// The reason why a log could not be opened with its first line.
#[derive(Debug)]
pub enum Unopened {
    /// The line is not a record, but the next line may be one.
    NotARecord(Reason),
    /// The line describes the log, and a later line names the columns.
    Directive,
    /// The log lacks a required field. The message lists the fields of the log.
    Refused(String),
}

/// Returns the error for a field that is missing in the log. The message lists the `known` fields
/// of the log.
pub(crate) fn unknown_field<'n>(
    field: &str,
    format: Format,
    known: impl IntoIterator<Item = &'n [u8]>,
) -> Unopened {
    let hint = match format.names_its_fields() {
        true => " (--fields maps names: time=ts,ip=remote_addr)",
        false => "",
    };
    let field = printable(field.as_bytes());
    Unopened::Refused(format!("unknown field '{field}': this {format} log has {}{hint}", listed(known)))
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn wanted(key: &[&str], cost: Cost) -> Wanted {
        Wanted {
            key: key.iter().map(|&field| field.to_owned()).collect(),
            ipv6_prefix: 64,
            trust_hops: None,
            templates: None,
            cost,
            names: Vec::new(),
            unit: TimeUnit::Seconds,
        }
    }

    pub(crate) const COMBINED: &str = "192.0.2.1 - frank [17/May/2015:10:05:03 +0000] \
        \"GET /a?b=c HTTP/1.1\" 200 123 \"https://example.org/\" \"Agent/1.0 (\\\"x\\\")\"";
}
