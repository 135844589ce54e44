//! Reports the effect of changed limits, either as text or as figures serialized to JSON.

use std::io::{self, Write};
use std::time::Duration;

use serde::Serialize;

use super::quantity::{date_and_time, duration, grouped, plural, rfc3339, share};
use crate::printable::{cut, printable};
use crate::replay::changes::{Changed, Changes};

const TIMELINE_ROWS: usize = 24;
const NANOS_PER_SECOND: u64 = 1_000_000_000;

/// The decisions that differ under other limits.
#[derive(Debug, Serialize)]
pub(crate) struct ChangesReport {
    /// The other limits, as the user wrote them.
    pub(crate) against: String,
    pub(crate) same: u64,
    pub(crate) newly_refused: u64,
    pub(crate) newly_passed: u64,
    pub(crate) clients_changed: usize,
    pub(crate) top_changed: Vec<Row>,
    /// The changed decisions, grouped by the limit that refuses the request before or after the
    /// change. Only named limits are listed.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) limits: Vec<Row>,
    pub(crate) seconds_per_row: u64,
    /// Stretches of time without changed decisions are omitted.
    pub(crate) timeline: Vec<Stretch>,
}

#[derive(Debug, Serialize)]
pub(crate) struct Row {
    pub(crate) name: String,
    pub(crate) newly_refused: u64,
    pub(crate) newly_passed: u64,
}

#[derive(Debug, Serialize)]
pub(crate) struct Stretch {
    #[serde(skip)]
    pub(crate) second: u64,
    pub(crate) start: String,
    pub(crate) newly_refused: u64,
    pub(crate) newly_passed: u64,
}

impl ChangesReport {
    pub(crate) fn new(against: &str, changes: &Changes, top: usize) -> Self {
        let mut clients: Vec<(&String, Changed)> =
            changes.by_client.iter().map(|(client, changed)| (client, *changed)).collect();
        clients.sort_unstable_by(|one, other| {
            other.1.total().cmp(&one.1.total()).then_with(|| one.0.cmp(other.0))
        });
        let row = |name: String, changed: Changed| Row {
            name,
            newly_refused: changed.refused,
            newly_passed: changed.passed,
        };
        let limit = |(name, changed): (&String, &Changed)| row(printable(name.as_bytes()), *changed);
        let mut limits: Vec<Row> = changes.by_limit.iter().map(limit).collect();
        limits.sort_unstable_by(|one, other| one.name.cmp(&other.name));
        let timeline = changes.timeline.at_most(TIMELINE_ROWS);
        let stretches = timeline.stretches().filter(|(_, count)| count.passed + count.denied > 0);
        Self {
            against: printable(against.as_bytes()),
            same: changes.same,
            newly_refused: changes.all.refused,
            newly_passed: changes.all.passed,
            clients_changed: clients.len(),
            top_changed: clients
                .iter()
                .take(top)
                .map(|(client, changed)| row((*client).clone(), *changed))
                .collect(),
            limits,
            seconds_per_row: timeline.width(),
            timeline: stretches
                .map(|(second, count)| Stretch {
                    second,
                    start: rfc3339(second.saturating_mul(NANOS_PER_SECOND)),
                    newly_refused: count.denied,
                    newly_passed: count.passed,
                })
                .collect(),
        }
    }
}

/// Writes the section about the changed decisions.
pub(crate) fn write_changes(report: &ChangesReport, out: &mut impl Write) -> io::Result<()> {
    writeln!(out, "\nWhat changes against {}", cut(&report.against, 58))?;
    let changed = report.newly_refused + report.newly_passed;
    let all = u128::from(changed) + u128::from(report.same);
    for (name, count) in [
        ("newly refused", report.newly_refused),
        ("newly passed", report.newly_passed),
        ("as before", report.same),
    ] {
        writeln!(out, "  {name:<14}{:>15}  {:>8}", grouped(count), share(count.into(), all))?;
    }
    if changed == 0 {
        return Ok(());
    }
    let clients = plural(report.clients_changed as u64, "client");
    write_rows(&format!("Changes of {clients}"), &report.top_changed, out)?;
    let more = report.clients_changed.saturating_sub(report.top_changed.len());
    if more > 0 {
        writeln!(out, "  and {} (--top shows more)", plural(more as u64, "other client"))?;
    }
    if !report.limits.is_empty() {
        write_rows("Changes by the limit that refuses", &report.limits, out)?;
    }
    let width = duration(Duration::from_secs(report.seconds_per_row));
    let rows = report.timeline.iter().map(|stretch| Row {
        name: date_and_time(stretch.second.saturating_mul(NANOS_PER_SECOND)),
        newly_refused: stretch.newly_refused,
        newly_passed: stretch.newly_passed,
    });
    write_rows(&format!("Changes over time, {width} a row, UTC"), &rows.collect::<Vec<_>>(), out)
}

fn write_rows(title: &str, rows: &[Row], out: &mut impl Write) -> io::Result<()> {
    writeln!(out, "\n{title}")?;
    writeln!(out, "  {:>14} {:>14}", "newly refused", "newly passed")?;
    for row in rows {
        writeln!(
            out,
            "  {:>14} {:>14}   {}",
            grouped(row.newly_refused),
            grouped(row.newly_passed),
            cut(&row.name, 44)
        )?;
    }
    Ok(())
}
