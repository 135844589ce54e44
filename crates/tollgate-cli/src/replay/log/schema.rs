//! The parts of a log that a replay needs, in whatever format: the fields, the cost, the names.

use std::fmt;
use std::sync::Arc;

use tollgate_http::program::PathTemplates;

use super::request::Reason;
use super::timestamp::TimeUnit;
use crate::printable::{listed, printable};

/// The format of a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    Common,
    Combined,
    Json,
    Csv,
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Common => "common",
            Self::Combined => "combined",
            Self::Json => "json",
            Self::Csv => "csv",
        })
    }
}

/// The cost of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cost {
    One,
    /// The bytes of the response; zero where the log has `-`.
    Bytes,
}

/// The parts of a record that the replay needs.
#[derive(Clone, Debug)]
pub struct Wanted {
    /// The fields whose values are the key, in this order.
    pub key: Vec<String>,
    /// How many bits of an IPv6 address the field `ip` is counted by.
    pub ipv6_prefix: u8,
    /// The templates by which the field `path` is counted.
    pub templates: Option<Arc<PathTemplates>>,
    pub cost: Cost,
    /// Pairs of our name of a field and its name in JSON and CSV logs.
    pub names: Vec<(String, String)>,
    pub unit: TimeUnit,
}

impl Wanted {
    /// Returns the name that a JSON or CSV log has for this field.
    pub(crate) fn name_of<'w>(&'w self, field: &'w str) -> &'w str {
        self.names.iter().find(|(ours, _)| ours == field).map_or(field, |(_, theirs)| theirs)
    }

    /// Returns the names of time, bytes (if they are needed) and the key's fields in a JSON or CSV
    /// log.
    pub(crate) fn columns(&self) -> Vec<String> {
        let bytes = (self.cost == Cost::Bytes).then_some("bytes");
        std::iter::once("time")
            .chain(bytes)
            .chain(self.key.iter().map(String::as_str))
            .map(|field| self.name_of(field).to_owned())
            .collect()
    }
}

/// The reason why a log's first line did not open it.
#[derive(Debug)]
pub enum Unopened {
    /// The line is not a record; the next one may be.
    NotARecord(Reason),
    /// The log lacks a field that is asked for; the message lists the fields it has.
    Refused(String),
}

/// Returns the error for a field that the log lacks, with the fields it has.
pub(crate) fn unknown_field<'n>(
    field: &str,
    format: Format,
    known: impl IntoIterator<Item = &'n [u8]>,
) -> Unopened {
    let hint = match format {
        Format::Json | Format::Csv => " (--fields maps names: time=ts,ip=remote_addr)",
        Format::Common | Format::Combined => "",
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
            templates: None,
            cost,
            names: Vec::new(),
            unit: TimeUnit::Seconds,
        }
    }

    pub(crate) const COMBINED: &str = "192.0.2.1 - frank [17/May/2015:10:05:03 +0000] \
        \"GET /a?b=c HTTP/1.1\" 200 123 \"https://example.org/\" \"Agent/1.0 (\\\"x\\\")\"";
}
