//! Runs `wrk`, which sends the requests.

use crate::subject::Subject;
use std::process::{Command, Stdio};

/// The results of one run. Times are in microseconds.
pub(crate) struct Run {
    pub(crate) per_second: f64,
    /// The subject's processor time per request.
    pub(crate) processor: f64,
    pub(crate) median: f64,
    pub(crate) p99: f64,
}

/// Returns whether `wrk` is installed.
pub(crate) fn is_here() -> bool {
    Command::new("wrk").arg("-v").stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok()
}

/// Sends requests to a subject for `seconds` seconds over `connections` connections.
pub(crate) fn run(subject: &Subject, seconds: usize, connections: usize) -> Result<Run, String> {
    let before = subject.processor_time();
    let mut wrk = Command::new("wrk");
    if subject.has_keys {
        wrk.arg("--script").arg(concat!(env!("CARGO_MANIFEST_DIR"), "/benches/proxy/keys.lua"));
    }
    let output = wrk
        .args(["--latency", "--threads", "1"])
        .args(["--connections", &connections.to_string(), "--duration", &format!("{seconds}s")])
        .arg(&subject.url)
        .output()
        .map_err(|error| format!("wrk does not start: {error}"))?;
    let text = String::from_utf8_lossy(&output.stdout);
    let failed = |why: &str| format!("{}: {why}; wrk said:\n{text}", subject.name);
    let value = |label: &str| {
        let found = text.lines().find_map(|line| line.trim().strip_prefix(label));
        found.map(|value| value.trim().to_owned()).ok_or_else(|| failed(&format!("no line {label:?}")))
    };
    if text.contains("Socket errors") {
        return Err(failed("sockets failed"));
    }
    if text.contains("Non-2xx") != subject.refuses {
        return Err(failed("it did not answer as it should"));
    }
    let time = |label: &str| value(label).and_then(|text| micros(&text).ok_or_else(|| failed("no time")));
    let requests = text.lines().find_map(|line| line.split_once(" requests in "));
    let requests: Option<f64> = requests.and_then(|(requests, _)| requests.trim().parse().ok());
    let requests = requests.filter(|&requests| requests > 0.0).ok_or_else(|| failed("no requests"))?;
    Ok(Run {
        processor: (subject.processor_time() - before) / requests,
        per_second: value("Requests/sec:")?.parse().map_err(|_| failed("no number of requests"))?,
        median: time("50%")?,
        p99: time("99%")?,
    })
}

/// Parses a time in the output of `wrk`, and returns it in microseconds.
fn micros(text: &str) -> Option<f64> {
    let unit = text.find(|c: char| c.is_alphabetic())?;
    let (number, unit) = text.split_at(unit);
    let micros = match unit {
        "us" => 1.0,
        "ms" => 1e3,
        "s" => 1e6,
        "m" => 60e6,
        _ => return None,
    };
    Some(number.parse::<f64>().ok()? * micros)
}
