//! Reads the requests and the limits' answers from the JSON log of `tollgate proxy`.
//!
//! The values of a line are the method, the path and the host, followed by the name, the
//! class and the key of each limit that applied. A missing value is empty.

use std::net::IpAddr;

use http::Request;
use http::header::HOST;
use serde::Deserialize;
use tollgate::Tick;
use tollgate_http::program::{Recorded, RecordedLimit};

use super::columns::{Arrived, Found, is_too_long, set_header, set_method, set_peer, set_target};
use crate::printable::printable;
use crate::replay::log::formats::Escapes;
use crate::replay::log::key::KeyShape;
use crate::replay::log::request::Reason;
use crate::replay::log::schema::Cost;

/// The number of fields in the key shape. With the largest possible number, the shape accepts any
/// number of values, and writes each value after its length.
const VALUES: usize = usize::MAX;

#[derive(Deserialize)]
struct Line {
    time_ns: u64,
    duration_ns: u64,
    #[serde(default)]
    bytes: u64,
    ip: Option<String>,
    method: Option<String>,
    host: Option<String>,
    path: Option<String>,
    refused_by: Option<String>,
    limits: Vec<Said>,
}

#[derive(Deserialize)]
struct Said {
    limit: String,
    class: Option<String>,
    key: Option<String>,
    outcome: Option<String>,
}

impl Said {
    /// Returns whether the limit found no key or blocked the client. In both cases, the proxy
    /// answers before it checks the other limits.
    fn is_early(&self) -> bool {
        matches!(self.outcome.as_deref(), Some("no-key" | "blocked"))
    }
}

/// Returns whether this is a line of the proxy's JSON log.
pub(crate) fn is_one(line: &[u8]) -> bool {
    line.trim_ascii_start().starts_with(b"{") && serde_json::from_slice::<Line>(line).is_ok()
}

/// Reads one line, and writes its values into `values`, which must be empty. A request that the
/// proxy could not read does not count, because no limit has seen it.
pub(crate) fn read(line: &[u8], cost: Cost, values: &mut Vec<u8>) -> Result<Found, Reason> {
    let line: Line = serde_json::from_slice(line).map_err(|error| {
        Reason::from(format!(
            "it is not a line of tollgate proxy: {}",
            printable(error.to_string().as_bytes())
        ))
    })?;
    let (Some(method), Some(path)) = (line.method, line.path) else { return Ok(Found::NoRequest) };
    let Line { time_ns, duration_ns, bytes, ip, host, refused_by, limits, .. } = line;
    if is_too_long(path.as_bytes(), Escapes::None) {
        return Ok(Found::NoRequest);
    }
    let refuser = limits.iter().find(|said| refused_by.as_ref() == Some(&said.limit));
    let is_early_refusal = refuser.is_some_and(Said::is_early);
    let mut push = |value: &str| KeyShape::new(VALUES).push(values, value.as_bytes());
    for value in [Some(&*method), Some(&*path), host.as_deref()] {
        push(value.unwrap_or_default());
    }
    for Said { limit, class, key, .. } in &limits {
        for value in [Some(&**limit), class.as_deref(), key.as_deref()] {
            push(value.unwrap_or_default());
        }
    }
    let ip = ip.and_then(|ip| ip.parse().ok());
    let cost = match cost {
        Cost::One => 1,
        Cost::Bytes => bytes,
    };
    Ok(Found::Request(Arrived {
        duration_ns,
        ip,
        is_early_refusal,
        ..Arrived::new(Tick::from_nanos(time_ns), cost)
    }))
}

/// Sets the parts of `request` to these values.
pub(crate) fn fill(ip: Option<IpAddr>, values: &[u8], request: &mut Request<()>) {
    let mut values =
        KeyShape::new(VALUES).values(values).map(|value| str::from_utf8(value).unwrap_or_default());
    let mut next = || values.next().unwrap_or_default();
    request.headers_mut().clear();
    set_peer(ip, request);
    set_method(next().as_bytes(), request);
    set_target(next().as_bytes(), request);
    set_header(HOST, next().as_bytes(), request);
    let mut recorded = Recorded::default();
    let some = |text: &str| (!text.is_empty()).then(|| text.to_owned());
    while let Some(name) = values.next() {
        let [class, key] = [(); 2].map(|()| values.next().and_then(some));
        recorded.limits.push(RecordedLimit { name: name.to_owned(), class, key });
    }
    request.extensions_mut().insert(recorded);
}
