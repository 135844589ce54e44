//! Reports the facts about the logs, which all reports share: as text, and as figures serialized to
//! JSON.

use std::io::{self, Write};
use std::time::Duration;

use serde::Serialize;

use super::paragraph::write_paragraph;
use super::quantity::{date_and_time, duration, grouped, nanos, plural, rfc3339};
use crate::replay::log::summary::{BadLine, FileSummary, LogSummary};

/// The facts about the logs. `more` contains the facts that only one kind of report has.
#[derive(Debug, Serialize)]
pub(crate) struct Log<M> {
    pub(crate) files: Vec<FileSummary>,
    pub(crate) lines: u64,
    pub(crate) requests: u64,
    pub(crate) unparsable: u64,
    pub(crate) blank: u64,
    /// The earliest and the latest timestamp, RFC 3339.
    pub(crate) first: Option<String>,
    pub(crate) last: Option<String>,
    #[serde(skip)]
    pub(crate) span_ns: Option<(u64, u64)>,
    /// The number of requests with an earlier timestamp than the previous request.
    pub(crate) stepped_back: u64,
    pub(crate) largest_step_ns: u64,
    pub(crate) judged_later_than_stamped: u64,
    /// The mean shift of the requests judged later than their timestamps.
    pub(crate) mean_shift_ns: u64,
    pub(crate) largest_shift_ns: u64,
    #[serde(flatten)]
    pub(crate) more: M,
    /// Notes on the reliability of the figures.
    pub(crate) notes: Vec<String>,
    /// The first few lines that do not parse.
    pub(crate) bad_lines: Vec<BadLine>,
}

impl<M> Log<M> {
    pub(crate) fn new(log: &LogSummary, notes: Vec<String>, more: M) -> Self {
        let span_ns = log.span.map(|(first, last)| (first.as_nanos(), last.as_nanos()));
        let shifts = &log.judged_later_than_stamped;
        Self {
            files: log.files.clone(),
            lines: log.all(|file| file.lines),
            requests: log.requests(),
            unparsable: log.unparsable(),
            blank: log.all(|file| file.blank),
            first: span_ns.map(|(first, _)| rfc3339(first)),
            last: span_ns.map(|(_, last)| rfc3339(last)),
            span_ns,
            stepped_back: log.stepped_back,
            largest_step_ns: nanos(log.largest_step),
            judged_later_than_stamped: shifts.requests,
            mean_shift_ns: nanos(shifts.mean()),
            largest_shift_ns: nanos(shifts.largest),
            more,
            notes,
            bad_lines: log.bad_lines.clone(),
        }
    }

    /// Returns the times of the first and the last request, and the time between them.
    pub(crate) fn span(&self) -> Option<String> {
        let (first, last) = self.span_ns?;
        let time = duration(Duration::from_nanos(last - first));
        Some(format!("{} to {} UTC ({time})", date_and_time(first), date_and_time(last)))
    }

    /// Returns how many lines step back in time, and by how much.
    pub(crate) fn steps(&self) -> String {
        let lines = match self.stepped_back {
            0 => return "No line steps back in time".to_owned(),
            1 => "1 line steps".to_owned(),
            lines => format!("{} lines step", grouped(lines)),
        };
        format!("{lines} back in time, by up to {}", duration(Duration::from_nanos(self.largest_step_ns)))
    }

    /// Returns at which times the requests were judged. `order` is `time` or `arrival`.
    pub(crate) fn judged(&self, order: &str) -> String {
        let taken = match (order, self.judged_later_than_stamped) {
            ("time", _) => "requests were sorted by time".to_owned(),
            (_, 0) => "requests were taken as they arrived, each at its own time".to_owned(),
            (_, later) => format!(
                "requests were taken as they arrived, {} of them at the later time of a request before them ({} later \
                 on average, {} at most)",
                grouped(later),
                duration(Duration::from_nanos(self.mean_shift_ns)),
                duration(Duration::from_nanos(self.largest_shift_ns)),
            ),
        };
        format!("{}; {taken}.", self.steps())
    }
}

/// Writes the section about the logs: the files, the `counts` of their lines, the time that they
/// span, `facts`, and the notes.
pub(crate) fn write_log<M>(
    log: &Log<M>,
    counts: &str,
    facts: impl IntoIterator<Item = String>,
    out: &mut impl Write,
) -> io::Result<()> {
    writeln!(out, "\nLog")?;
    for file in &log.files {
        writeln!(out, "  {} ({}, {})", file.name, file.format_name(), plural(file.lines, "line"))?;
    }
    let blank = if log.blank > 0 { format!(", {} blank", grouped(log.blank)) } else { String::new() };
    writeln!(out, "  {counts}, {} unparsable{blank}", plural(log.unparsable, "line"))?;
    let Some(span) = log.span() else { return Ok(()) };
    writeln!(out, "  {span}")?;
    let notes = log.notes.iter().map(|note| format!("Note: {note}"));
    facts.into_iter().chain(notes).try_for_each(|text| write_paragraph("  ", &text, out))
}

/// Writes the section about the lines that do not parse, unless there are none.
pub(crate) fn write_bad_lines<M>(log: &Log<M>, out: &mut impl Write) -> io::Result<()> {
    if log.bad_lines.is_empty() {
        return Ok(());
    }
    let shown = log.bad_lines.len() as u64;
    let which = if shown < log.unparsable { format!(", the first {shown}") } else { String::new() };
    writeln!(out, "\nLines that do not parse{which}")?;
    for bad in &log.bad_lines {
        write_paragraph("  ", &bad.to_string(), out)?;
    }
    Ok(())
}
