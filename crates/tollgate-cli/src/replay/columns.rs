//! Reads requests, with the columns that limits with names need.
//!
//! A log must have the needed columns. The proxy's own JSON log has the keys and the classes that
//! the limits found, which are used in place of headers and queries
//! ([`proxy_log`](super::proxy_log)).

use std::net::{IpAddr, SocketAddr};

use http::header::{ACCESS_CONTROL_REQUEST_METHOD, HOST, HeaderName, HeaderValue, ORIGIN};
use http::{Method, Uri};
use tollgate_http::PeerAddr;
use tollgate_http::program::Fact;

use super::need::{Need, What};
use super::proxy_log;
use super::settings::Settings;
use crate::printable::printable;
use crate::replay::log::formats::{Escapes, Format};
pub(crate) use crate::replay::log::json::HEADER;
use crate::replay::log::key::KeyShape;
use crate::replay::log::path;
use crate::replay::log::record::Records;
use crate::replay::log::request::{Arrived, MISSING, Parsed, Reason, Record};
use crate::replay::log::schema::{Unopened, Wanted};
use crate::replay::log::timestamp::{self, TimeUnit};

/// Our names for all columns that are not headers.
pub(crate) const NAMES: [&str; 7] = ["time", "ip", "method", "path", "uri", "host", "duration"];

/// The part of a request that is stored in a column.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Slot {
    Ip,
    Method,
    /// A path, with or without a query, or a URL.
    Target,
    Host,
    Duration,
    Header(HeaderName),
    /// The method, for a log without the headers of preflights: each OPTIONS request counts as one.
    Options,
    /// The answers of the proxy's limits.
    Answers,
    /// The name of the proxy's limit that refused the request.
    RefusedBy,
}

impl Slot {
    /// Returns our name for the column.
    fn name(&self) -> String {
        let name = match self {
            Self::Ip => "ip",
            Self::Method | Self::Options => "method",
            Self::Target => "uri",
            Self::Host => "host",
            Self::Duration => "duration",
            Self::Header(header) => return format!("{HEADER}{header}"),
            Self::Answers => "limits",
            Self::RefusedBy => "refused_by",
        };
        name.to_owned()
    }
}

/// Reads the requests of one log.
pub(crate) struct Columns {
    records: Records,
    slots: Vec<Slot>,
    /// Whether a limit reads the method. Otherwise, the method only shows whether a line is a
    /// request.
    reads_method: bool,
    format: Format,
    /// Whether the log is the proxy's JSON log, which contains the keys and the classes that limits
    /// found.
    pub(crate) is_of_proxy: bool,
    duration_unit: TimeUnit,
}

impl Columns {
    /// Opens a log. `first` is its first line.
    ///
    /// # Errors
    ///
    /// Returns an error if the line is not a record, or if the log lacks a fact that a limit needs.
    pub(crate) fn open(
        first: &[u8],
        needs: &[Need],
        settings: &Settings,
    ) -> Result<(Format, Self), Unopened> {
        let open = |format, slots: &[Slot], names: &[(String, String)]| {
            let wanted = Wanted {
                key: slots.iter().map(Slot::name).collect(),
                // Addresses are read in full, because the limits themselves shorten an address to
                // its prefix.
                ipv6_prefix: 128,
                templates: None,
                names: names.to_vec(),
                ..settings.log.wanted.clone()
            };
            Records::open(first, format, &wanted)
        };
        let mut names = settings.log.wanted.names.clone();
        // The proxy's log is also recognized if its format is given as JSON or not at all.
        let is_of_proxy = names.is_empty()
            && matches!(settings.log.format, Some(Format::Json | Format::Tollgate) | None)
            && open(Some(Format::Tollgate), &[], &names).is_ok();
        let given = if is_of_proxy { Some(Format::Tollgate) } else { settings.log.format };
        let (format, _) = open(given, &[], &names)?;
        let names_its_fields = format.names_its_fields();
        let asks = |fact: fn(&Fact) -> bool| {
            needs.iter().any(|need| matches!(&need.what, What::Fact(needed) if fact(needed)))
        };
        let theirs = |ours: &str| names.iter().find(|(name, _)| name == ours).map(|(_, name)| name.clone());
        // If the log does not contain the whole target, the path takes its place.
        let has_target =
            theirs("uri").is_some() || names_its_fields && asks(|it| matches!(it, Fact::Query(_)));
        let path = theirs("path").or((names_its_fields || is_of_proxy).then(|| "path".to_owned()));
        names.extend(path.filter(|_| !has_target).map(|path| ("uri".to_owned(), path)));
        let is_named = |name: &str| names.iter().any(|(ours, _)| ours == name);
        let has_preflights = {
            let headers = preflight_headers().map(Slot::Header);
            (!names_its_fields || headers.iter().all(|header| is_named(&header.name())))
                && open(Some(format), &headers, &names).is_ok()
        };
        // A line without a method or, in the proxy's log, without a path means that the server
        // could not read the request.
        let mut slots = match format {
            _ if is_of_proxy => vec![Slot::Method, Slot::Target],
            format if is_text(format) => vec![Slot::Method],
            _ => Vec::new(),
        };
        let (_, mut records) = open(Some(format), &slots, &names)?;
        // Basic facts, which every request log contains, come first. A line without them is not a
        // request.
        let (basic, rare): (Vec<&Need>, Vec<&Need>) = needs.iter().partition(|need| is_basic(&need.what));
        for need in basic.into_iter().chain(rare) {
            let needed = match &need.what {
                What::Fact(fact) if is_of_proxy && fact.is_of_few_logs() => {
                    vec![Slot::Answers, Slot::RefusedBy]
                }
                what => slots_of(what, has_preflights),
            };
            for slot in needed {
                if slots.contains(&slot) {
                    continue;
                }
                let name = slot.name();
                let refused = |why: &str| Unopened::Refused(lacking(need, why));
                if matches!(slot, Slot::Header(_)) && names_its_fields && !is_named(&name) {
                    return Err(refused(&format!("name its field, as in --fields {name}=FIELD")));
                }
                slots.push(slot);
                (_, records) = open(Some(format), &slots, &names).map_err(|unopened| match unopened {
                    unopened if is_basic(&need.what) => unopened,
                    Unopened::NotARecord(why) => refused(&why),
                    Unopened::Refused(why) => refused(&why),
                    Unopened::Directive => Unopened::Directive,
                })?;
            }
        }
        let duration_unit = settings.duration_unit.or_else(|| records.duration_unit());
        let duration_unit = duration_unit.unwrap_or(TimeUnit::Seconds);
        let reads_method = asks(|it| matches!(it, Fact::Method | Fact::Preflight));
        Ok((format, Self { records, slots, reads_method, format, is_of_proxy, duration_unit }))
    }

    /// Returns a reader of the same log for another thread, or `None` if lines in the log depend on
    /// earlier lines.
    pub(crate) fn again(&self) -> Option<Self> {
        Some(Self { records: self.records.again()?, slots: self.slots.clone(), ..*self })
    }

    /// Reads one line, and writes its values into `values`, which must be empty.
    pub(crate) fn read(&mut self, line: &[u8], values: &mut Vec<u8>) -> Result<Parsed, Reason> {
        let Some(Record { at, cost }) = self.records.read(line, values)? else { return Ok(Parsed::Header) };
        let (mut duration_ns, mut ip) = (0, None);
        let (mut answers, mut is_early_refusal) = (Vec::new(), false);
        for (slot, value) in self.slots.iter().zip(KeyShape::new(self.slots.len()).values(values)) {
            match slot {
                Slot::Method if !is_method(value) => return Ok(Parsed::NoRequest),
                Slot::Target if is_missing(value) && self.is_of_proxy => {
                    return Ok(Parsed::NoRequest);
                }
                Slot::Target if is_too_long(value, self.format.escapes()) => return Ok(Parsed::NoRequest),
                Slot::Ip if is_missing(value) => {}
                Slot::Ip => {
                    ip = self.records.last_address();
                    if ip.is_some() {
                        continue;
                    }
                    let help = match value.contains(&b',') {
                        true => ": say with --trust-hops how many proxies have added to it",
                        false => "",
                    };
                    return Err(format!("its ip '{}' is not an address{help}", printable(value)).into());
                }
                Slot::Duration => {
                    let read = timestamp::read(value, self.duration_unit);
                    duration_ns = read
                        .map_err(|_| {
                            format!("its duration '{}' is not a number of 0 or more", printable(value))
                        })?
                        .as_nanos();
                }
                Slot::Answers => answers = proxy_log::answers(value)?,
                Slot::RefusedBy => is_early_refusal = proxy_log::is_early_refusal(&answers, value),
                _ => {}
            }
        }
        Ok(Parsed::Request(Arrived { duration_ns, ip, is_early_refusal, ..Arrived::new(at, cost) }))
    }

    /// See [`Format::is_by_ends`].
    pub(crate) fn is_by_ends(&self) -> bool {
        self.format.is_by_ends()
    }

    /// Returns whether the log lacks the headers of preflights that the limits need, so that each
    /// OPTIONS request counts as one.
    pub(crate) fn guesses_preflights(&self) -> bool {
        self.slots.contains(&Slot::Options)
    }

    /// Returns the number of split lines whose last part has not been read.
    pub(crate) fn incomplete(&self) -> usize {
        self.records.incomplete()
    }

    /// Sets the parts of `request` to these values.
    pub(crate) fn fill(&self, ip: Option<IpAddr>, values: &[u8], request: &mut http::Request<()>) {
        request.headers_mut().clear();
        for (slot, value) in self.slots.iter().zip(KeyShape::new(self.slots.len()).values(values)) {
            let unescaped = || path::unescaped(value, self.format.escapes());
            match slot {
                Slot::Ip => set_peer(ip, request),
                Slot::Method if !self.reads_method => {}
                Slot::Method => *request.method_mut() = Method::from_bytes(value).unwrap_or_default(),
                // A target that is too long is not read as a request.
                Slot::Target => *request.uri_mut() = uri(&unescaped()).unwrap_or_default(),
                Slot::Host => set_header(HOST, &unescaped(), request),
                Slot::Header(name) => set_header(name.clone(), &unescaped(), request),
                Slot::Options if *value == *Method::OPTIONS.as_str().as_bytes() => {
                    for header in preflight_headers() {
                        request.headers_mut().insert(header, HeaderValue::from_static("*"));
                    }
                }
                Slot::Answers => {
                    let recorded = proxy_log::answers(value).map(proxy_log::recorded);
                    request.extensions_mut().insert(recorded.unwrap_or_default());
                }
                Slot::Options | Slot::Duration | Slot::RefusedBy => {}
            }
        }
    }
}

/// Returns whether every request log has this fact.
fn is_basic(what: &What) -> bool {
    matches!(what, What::Fact(Fact::Ip | Fact::Method | Fact::Path | Fact::Preflight))
}

/// Returns whether the format has a column for the request line, which may contain any text.
fn is_text(format: Format) -> bool {
    !format.is_json() && !matches!(format, Format::Csv | Format::W3c)
}

fn preflight_headers() -> [HeaderName; 2] {
    [ORIGIN, ACCESS_CONTROL_REQUEST_METHOD]
}

/// Returns the slots for a needed fact.
fn slots_of(what: &What, has_preflights: bool) -> Vec<Slot> {
    match what {
        What::Fact(Fact::Preflight) if has_preflights => {
            [Slot::Method].into_iter().chain(preflight_headers().map(Slot::Header)).collect()
        }
        What::Fact(Fact::Preflight) => vec![Slot::Method, Slot::Options],
        What::Fact(Fact::Ip) => vec![Slot::Ip],
        What::Fact(Fact::Method) => vec![Slot::Method],
        What::Fact(Fact::Path | Fact::Query(_)) => vec![Slot::Target],
        What::Fact(Fact::Host) => vec![Slot::Host],
        What::Duration => vec![Slot::Duration],
        // The layer was built with this header name, so the name is valid.
        What::Fact(Fact::Header(name)) => {
            vec![Slot::Header(HeaderName::from_bytes(name.as_bytes()).unwrap_or(HOST))]
        }
    }
}

fn lacking(need: &Need, why: &str) -> String {
    let what = match &need.what {
        What::Fact(fact) => fact.to_string(),
        What::Duration => "the duration of each request".to_owned(),
    };
    format!(
        "{} needs {what}, which the log does not have: {why}; otherwise leave it out, or replay the JSON log of \
         tollgate proxy",
        need.of
    )
}

fn is_method(value: &[u8]) -> bool {
    let is_word = !value.is_empty() && value.iter().all(u8::is_ascii_uppercase);
    is_word || !is_missing(value) && Method::from_bytes(value).is_ok()
}

fn is_missing(value: &[u8]) -> bool {
    value.is_empty() || value == MISSING
}

fn set_peer(ip: Option<IpAddr>, request: &mut http::Request<()>) {
    let peer = ip.map(|ip| PeerAddr(SocketAddr::new(ip, 0)));
    let extensions = request.extensions_mut();
    match (peer, extensions.get_mut::<PeerAddr>()) {
        (Some(peer), Some(there)) => *there = peer,
        (Some(peer), None) => drop(extensions.insert(peer)),
        (None, _) => drop(extensions.remove::<PeerAddr>()),
    }
}

/// Sets a header, unless its value is missing in the log. Each line of the value becomes a line of
/// the header.
fn set_header(name: HeaderName, value: &[u8], request: &mut http::Request<()>) {
    if is_missing(value) {
        return;
    }
    for line in value.split(|&byte| byte == b'\n') {
        if let Ok(line) = HeaderValue::from_bytes(line) {
            request.headers_mut().append(&name, line);
        }
    }
}

/// Returns whether a target has a path that is too long for `http::Uri`. The proxy answers such a
/// request with 414 before any limit applies.
fn is_too_long(value: &[u8], escapes: Escapes) -> bool {
    // Percent-encoding makes a target at most three times as long.
    value.len() > usize::from(u16::MAX) / 3 && uri(&path::unescaped(value, escapes)).is_none()
}

/// Returns a request's target. As in the proxy, bytes that are not allowed in a target are
/// percent-encoded. If the result is not a URI, returns only the path, or `None` if the path is too
/// long.
fn uri(target: &[u8]) -> Option<Uri> {
    if let Ok(uri) = Uri::try_from(target) {
        return Some(uri);
    }
    let is_plain = |byte: &u8| byte.is_ascii_graphic() && !b"\"<>`".contains(byte);
    let mut encoded = Vec::with_capacity(target.len() + 16);
    for byte in target {
        match is_plain(byte) {
            true => encoded.push(*byte),
            false => encoded.extend_from_slice(format!("%{byte:02X}").as_bytes()),
        }
    }
    Uri::try_from(encoded).or_else(|_| Uri::try_from(&*path::canonical(target))).ok()
}
