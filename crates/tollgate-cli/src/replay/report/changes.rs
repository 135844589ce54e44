//! Reports the effect of changed limits, either as text or as figures serialized to JSON.

use std::io::{self, Write};
use std::time::Duration;

use serde::Serialize;

use super::quantity::{duration, grouped, plural, share};
use super::stretch::Stretch;
use crate::printable::{cut, printable};
use crate::replay::changes::Changes;
use crate::replay::timeline::Count;

const TIMELINE_ROWS: usize = 24;

/// The decisions that differ under other limits.
#[derive(Debug, Serialize)]
pub(crate) struct ChangesReport {
    /// The other limits, as the user wrote them.
    pub(crate) against: String,
    pub(crate) same: u64,
    #[serde(flatten)]
    pub(crate) all: Changed,
    pub(crate) clients_changed: usize,
    pub(crate) top_changed: Vec<ChangedRow>,
    /// The changed decisions, grouped by the limit that refuses the request before or after the
    /// change. Only named limits are listed.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) limits: Vec<ChangedRow>,
    pub(crate) seconds_per_row: u64,
    /// Stretches of time without changed decisions are omitted.
    pub(crate) timeline: Vec<Stretch<Changed>>,
}

/// The numbers of requests whose decision changes.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct Changed {
    /// Requests that passed before, and are now refused.
    #[serde(rename = "newly_refused")]
    pub(crate) refused: u64,
    /// Requests that were refused before, and now pass.
    #[serde(rename = "newly_passed")]
    pub(crate) passed: u64,
}

/// The counts of [`Changes`].
impl From<Count> for Changed {
    fn from(Count { passed, denied }: Count) -> Self {
        Self { refused: denied, passed }
    }
}

#[derive(Debug, Serialize)]
pub(crate) struct ChangedRow {
    pub(crate) name: String,
    #[serde(flatten)]
    pub(crate) changed: Changed,
}

impl ChangesReport {
    pub(crate) fn new(against: &str, changes: &Changes, top: usize) -> Self {
        let mut clients: Vec<(&String, &Count)> = changes.by_client.iter().collect();
        clients.sort_unstable_by(|one, other| {
            other.1.total().cmp(&one.1.total()).then_with(|| one.0.cmp(other.0))
        });
        let row = |name: String, count: &Count| ChangedRow { name, changed: (*count).into() };
        let limit = |(name, count): (&String, &Count)| row(printable(name.as_bytes()), count);
        let timeline = changes.timeline.at_most(TIMELINE_ROWS);
        Self {
            against: printable(against.as_bytes()),
            same: changes.same,
            all: changes.all.into(),
            clients_changed: clients.len(),
            top_changed: clients.iter().take(top).map(|(name, count)| row((*name).clone(), count)).collect(),
            limits: changes.by_limit.iter().map(limit).collect(),
            seconds_per_row: timeline.width(),
            timeline: Stretch::all(&timeline)
                .filter(|it: &Stretch<Changed>| it.count.refused + it.count.passed > 0)
                .collect(),
        }
    }
}

/// Writes the section about the changed decisions.
pub(crate) fn write_changes(report: &ChangesReport, out: &mut impl Write) -> io::Result<()> {
    writeln!(out, "\nWhat changes against {}", cut(&report.against, 58))?;
    let Changed { refused, passed } = report.all;
    let all = u128::from(refused) + u128::from(passed) + u128::from(report.same);
    for (name, count) in [("newly refused", refused), ("newly passed", passed), ("as before", report.same)] {
        writeln!(out, "  {name:<14}{:>15}  {:>8}", grouped(count), share(count.into(), all))?;
    }
    if refused + passed == 0 {
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
    let row =
        |stretch: &Stretch<Changed>| ChangedRow { name: stretch.date_and_time(), changed: stretch.count };
    let rows: Vec<ChangedRow> = report.timeline.iter().map(row).collect();
    write_rows(&format!("Changes over time, {width} a row, UTC"), &rows, out)
}

fn write_rows(title: &str, rows: &[ChangedRow], out: &mut impl Write) -> io::Result<()> {
    writeln!(out, "\n{title}")?;
    writeln!(out, "  {:>14} {:>14}", "newly refused", "newly passed")?;
    for row in rows {
        let [refused, passed] = [row.changed.refused, row.changed.passed].map(grouped);
        writeln!(out, "  {refused:>14} {passed:>14}   {}", cut(&row.name, 44))?;
    }
    Ok(())
}
