//! Defines the parts that a replay needs from a log of any format: the fields, the cost, and their
//! names.

use std::sync::Arc;

use clap::ValueEnum;
use serde::Serialize;
use tollgate_http::program::PathTemplates;

use super::formats::Format;
use super::request::Reason;
use super::timestamp::TimeUnit;
use crate::printable::{listed, printable};

/// The cost of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Cost {
    #[serde(rename = "1")]
    #[value(name = "1")]
    One,
    // A doc comment here would be shown in the help.
    // The size of the response in bytes, or zero if the log has `-`.
    Bytes,
}

/// The parts of a record that the replay needs.
#[derive(Clone, Debug)]
pub struct Wanted {
    /// The fields whose values form the key, in order.
    pub key: Vec<String>,
    /// The number of bits of an IPv6 address that identify a client, for the fields `ip` and
    /// `forwarded`.
    pub ipv6_prefix: u8,
    /// The number of proxies that appended to a list of addresses. The client is at this position
    /// in the list, counted from the end. If `None`, a list is counted unchanged.
    pub trust_hops: Option<usize>,
    /// The templates by which the field `path` is counted.
    pub templates: Option<Arc<PathTemplates>>,
    pub cost: Cost,
    /// Pairs of names: our name for a field, and the log's name.
    pub names: Vec<(String, String)>,
    pub unit: TimeUnit,
}

impl Wanted {
    /// Returns the log's name for this field, according to the arguments.
    pub(crate) fn name_of<'w>(&'w self, field: &'w str) -> &'w str {
        self.names.iter().find(|(ours, _)| ours == field).map_or(field, |(_, theirs)| theirs)
    }

    /// Returns our names for the time, the bytes if they are needed, and the key's fields.
    pub(crate) fn fields(&self) -> impl Iterator<Item = &str> {
        let bytes = (self.cost == Cost::Bytes).then_some("bytes");
        std::iter::once("time").chain(bytes).chain(self.key.iter().map(String::as_str))
    }

    /// Returns the log's names for these fields, for a log that names its own fields.
    pub(crate) fn columns(&self) -> Vec<String> {
        self.fields().map(|field| self.name_of(field).to_owned()).collect()
    }
}

/// Why a log could not be opened, judging by its first line.
#[derive(Debug)]
pub enum Unopened {
    /// The line is not a record, but the next line may be one.
    NotARecord(Reason),
    /// The line describes the log, but only a later line names the columns.
    Directive,
    /// The log lacks a required field. The message lists the fields that exist.
    Refused(String),
}

/// Returns the error for a field that the log lacks. The message lists the `known` fields.
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
