//! Reports a replay of named limits, either as text or as figures serialized to JSON.

use std::io::{self, Write};
use std::time::Duration;

use serde::Serialize;
use tollgate::Algorithm;

use super::engine::Engine;
use super::settings::Settings;
use super::tally::{Counts, OfLimit};
use crate::failure::Failure;
use crate::printable::{cut, listed, printable};
use crate::replay::log::summary::LogSummary;
use crate::replay::report::changes::{ChangesReport, write_changes};
use crate::replay::report::log::{Log, write_bad_lines, write_log};
use crate::replay::report::notes;
use crate::replay::report::paragraph::write_paragraph;
use crate::replay::report::quantity::{duration, grouped, per_second, plural, rate, share, shares};

/// The results of a replay besides the decisions.
#[derive(Default)]
pub(crate) struct Findings {
    /// Whether the log is the JSON log of tollgate proxy.
    pub(crate) is_of_proxy: bool,
    /// Whether the requests were sorted by time.
    pub(crate) is_sorted: bool,
    /// The number of lines that describe no request.
    pub(crate) no_requests: u64,
    /// The number of requests that pass in the replay, but that the proxy refused before it had
    /// computed all limits' keys.
    pub(crate) passed_without_record: u64,
    /// Whether each OPTIONS request counts as a preflight.
    pub(crate) guesses_preflights: bool,
    /// The limits that read their keys from the log, but are never named in it.
    pub(crate) never_named: Vec<String>,
}

/// The results of a replay of named limits.
#[derive(Debug, Serialize)]
pub struct Report {
    pub(crate) algorithm: String,
    pub(crate) order: &'static str,
    pub(crate) log: Log<OfRequests>,
    pub(crate) passed: u64,
    pub(crate) refused: u64,
    pub(crate) limits: Vec<Limit>,
    /// The algorithms of a comparison. Absent if there is none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) algorithms: Vec<ByAlgorithm>,
    /// Absent if the limits are not compared with others.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) changes: Option<ChangesReport>,
    /// The figures that vary from run to run.
    pub(crate) run: Run,
}

/// The facts about the logs that only limits with names have.
#[derive(Debug, Serialize)]
pub(crate) struct OfRequests {
    /// The number of lines that describe no request.
    pub(crate) no_requests: u64,
}

#[derive(Debug, Serialize)]
pub(crate) struct Limit {
    pub(crate) limit: String,
    pub(crate) shadow: bool,
    pub(crate) classes: Vec<Class>,
    pub(crate) keys_refused: usize,
    pub(crate) top_refused: Vec<RefusedKey>,
}

#[derive(Debug, Serialize)]
pub(crate) struct Class {
    /// `null` for a limit without classes, and for the requests without a key.
    pub(crate) class: Option<String>,
    #[serde(flatten)]
    pub(crate) counts: Counts,
}

#[derive(Debug, Serialize)]
pub(crate) struct RefusedKey {
    pub(crate) key: String,
    pub(crate) refused: u64,
}

/// The results of one algorithm.
#[derive(Debug, Serialize)]
pub(crate) struct ByAlgorithm {
    pub(crate) algorithm: String,
    /// The requests that passed, and those that were refused. `null` if the algorithm does not
    /// accept the limits.
    pub(crate) passed: Option<u64>,
    pub(crate) refused: Option<u64>,
    /// Why the algorithm does not accept the limits.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) why: Option<String>,
}

impl ByAlgorithm {
    pub(crate) fn new(algorithm: Algorithm, engine: Result<&Engine, &Failure>) -> Self {
        Self {
            algorithm: algorithm.to_string(),
            passed: engine.ok().map(|engine| engine.passed),
            refused: engine.ok().map(|engine| engine.refused),
            why: engine.err().map(ToString::to_string),
        }
    }
}

#[derive(Debug, Serialize)]
pub(crate) struct Run {
    pub(crate) seconds: f64,
    pub(crate) lines_per_second: f64,
}

impl Report {
    pub(crate) fn new(
        settings: &Settings,
        log: &LogSummary,
        findings: &Findings,
        engine: &Engine,
        elapsed: Duration,
    ) -> Self {
        let tally = engine.tally();
        // All keys share one clock.
        let mut notes = notes::on_log(log, findings.is_sorted, "request", None);
        if findings.guesses_preflights {
            notes.push(
                "the log does not have the headers origin and access-control-request-method: each OPTIONS request \
                 counts as a preflight."
                    .to_owned(),
            );
        }
        for name in &findings.never_named {
            notes.push(format!(
                "no line names the limit {}, which looks at a header or a query parameter: it applied to no request, or \
                 the proxy did not have it. In this replay it applies to no request.",
                printable(name.as_bytes())
            ));
        }
        if findings.passed_without_record > 0 {
            notes.push(format!(
                "{} that the proxy refused for a missing key or a blocked client would pass in this replay. The log has \
                 no keys of them for limits by a header or a query parameter, so these limits have not counted them.",
                plural(findings.passed_without_record, "request")
            ));
        }
        for limit in tally.limits.iter().filter(|limit| !limit.unknown_classes.is_empty()) {
            let mut classes: Vec<&[u8]> = limit.unknown_classes.keys().map(String::as_bytes).collect();
            classes.sort_unstable();
            notes.push(format!(
                "{} of classes that limit {} does not have: they count in the default class. The classes are {}.",
                plural(limit.unknown_classes.values().sum(), "request"),
                printable(limit.name.as_bytes()),
                listed(classes),
            ));
        }
        Self {
            algorithm: settings.layer.algorithm.to_string(),
            order: if findings.is_sorted { "time" } else { "arrival" },
            log: Log::new(log, notes, OfRequests { no_requests: findings.no_requests }),
            passed: engine.passed,
            refused: engine.refused,
            limits: tally.limits.iter().map(|limit| Limit::new(limit, settings.top)).collect(),
            algorithms: Vec::new(),
            changes: None,
            run: Run { seconds: elapsed.as_secs_f64(), lines_per_second: per_second(log.lines(), elapsed) },
        }
    }
}

impl Limit {
    fn new(limit: &OfLimit, top: usize) -> Self {
        let (keys_refused, top_refused) = limit.most_refused(top);
        let class = |class: &super::tally::OfClass| Class { class: class.name.clone(), counts: class.counts };
        let mut classes: Vec<Class> = limit.classes.iter().map(class).collect();
        // The classes are sorted, so that their order does not depend on the order of the lines.
        classes.sort_by(|one, other| one.class.cmp(&other.class));
        Self {
            limit: limit.name.clone(),
            shadow: limit.is_shadow,
            classes,
            keys_refused,
            top_refused: top_refused.into_iter().map(|(key, refused)| RefusedKey { key, refused }).collect(),
        }
    }

    fn shown(&self) -> String {
        printable(self.limit.as_bytes())
    }
}

/// Writes the whole report for a terminal of 80 columns.
pub fn write_text(report: &Report, out: &mut impl Write) -> io::Result<()> {
    writeln!(out, "{}, {}", plural(report.limits.len() as u64, "limit"), report.algorithm)?;
    let log = &report.log;
    let no_requests = match log.more.no_requests {
        0 => String::new(),
        lines => format!(", {} of no request", grouped(lines)),
    };
    let counts = format!("{}{no_requests}", plural(log.requests, "request"));
    write_log(log, &counts, [log.judged(report.order, "a request before them")], out)?;
    writeln!(out, "\nOutcome of all limits together")?;
    for ((name, count), share) in [("passed", report.passed), ("refused", report.refused)]
        .into_iter()
        .zip(shares(report.passed.into(), report.refused.into()))
    {
        writeln!(out, "  {name:<14}{:>15}  {share:>8}", grouped(count))?;
    }
    write_algorithms(&report.algorithms, out)?;
    writeln!(out, "\nLimits")?;
    writeln!(out, "  {:38} {:>12} {:>12} {:>8}", "", "passed", "refused", "share")?;
    for limit in &report.limits {
        write_limit(limit, out)?;
    }
    for limit in report.limits.iter().filter(|limit| !limit.top_refused.is_empty()) {
        write_top(limit, out)?;
    }
    if let Some(changes) = &report.changes {
        write_changes(changes, out)?;
    }
    write_bad_lines(&report.log, out)?;
    writeln!(out, "\nThis run (only these figures vary)")?;
    let elapsed = duration(Duration::from_secs_f64(report.run.seconds));
    writeln!(out, "  {:<14} {} lines/s, {elapsed}", "replay", rate(report.run.lines_per_second))
}

fn write_algorithms(algorithms: &[ByAlgorithm], out: &mut impl Write) -> io::Result<()> {
    if algorithms.is_empty() {
        return Ok(());
    }
    writeln!(out, "\nAlgorithms side by side")?;
    writeln!(out, "  {:38} {:>12} {:>12} {:>8}", "", "passed", "refused", "share")?;
    for it in algorithms {
        let name = &it.algorithm;
        match (it.passed, it.refused, &it.why) {
            (Some(passed), Some(refused), _) => {
                let share = share(refused.into(), u128::from(passed) + u128::from(refused));
                writeln!(out, "  {name:38} {:>12} {:>12} {share:>8}", grouped(passed), grouped(refused))?;
            }
            (.., why) => {
                write_paragraph("  ", &format!("{name}: {}", why.as_deref().unwrap_or_default()), out)?;
            }
        }
    }
    write_paragraph("  ", "Windows and logs take no burst, and ran without.", out)
}

fn write_limit(limit: &Limit, out: &mut impl Write) -> io::Result<()> {
    let shadow = if limit.shadow { " (shadow)" } else { "" };
    if limit.classes.is_empty() {
        return writeln!(out, "  {}{shadow}: applied to no request", limit.shown());
    }
    for Class { class, counts } in &limit.classes {
        let class =
            class.as_ref().map_or(String::new(), |class| format!(", {}", printable(class.as_bytes())));
        let name = format!("{}{class}{shadow}", limit.shown());
        let (passed, refused) = (counts.passed + counts.passed_without_key, counts.refused());
        let all = passed + refused + counts.would_refuse + counts.refused_by_another;
        writeln!(
            out,
            "  {:38} {:>12} {:>12} {:>8}",
            cut(&name, 38),
            grouped(passed),
            grouped(refused),
            share(refused.into(), all.into()),
        )?;
        let reasons = [
            (counts.denied, "denied"),
            (counts.full, "denied, because the table was full"),
            (counts.blocked, "blocked"),
            (counts.no_key, "without a key"),
            (counts.passed_without_key, "let through without a key"),
            (counts.would_refuse, "that it would have refused"),
            (counts.refused_by_another, "that another limit refused"),
        ];
        let reasons = reasons.iter().filter(|(count, _)| *count > 0);
        let reasons: Vec<String> = reasons.map(|(count, why)| format!("{} {why}", grouped(*count))).collect();
        if !reasons.is_empty() {
            write_paragraph("      ", &reasons.join(", "), out)?;
        }
    }
    Ok(())
}

fn write_top(limit: &Limit, out: &mut impl Write) -> io::Result<()> {
    let refused = if limit.shadow { "would have been refused" } else { "were refused" };
    writeln!(out, "\nKeys that {refused} most by {}", limit.shown())?;
    for key in &limit.top_refused {
        writeln!(out, "  {:>12}   {}", grouped(key.refused), cut(&key.key, 60))?;
    }
    let more = limit.keys_refused.saturating_sub(limit.top_refused.len());
    if more > 0 {
        writeln!(out, "  and {} (--top shows more)", plural(more as u64, "other key"))?;
    }
    Ok(())
}
