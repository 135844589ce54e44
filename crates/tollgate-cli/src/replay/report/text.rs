//! Writes a report as text, for a terminal of 80 columns.

use std::io::{self, Write};
use std::time::Duration;

use super::changes::write_changes;
use super::compare;
use super::figures::{Figures, LongestWait, MissingField, Outcome, Report, Run, TimelineRows};
use super::log::{write_bad_lines, write_log};
use super::paragraph::write_paragraph;
use super::quantity::{bytes, date_and_time, duration, grouped, plural, rate, share, shares};
use crate::printable::cut;

const BAR_WIDTH: usize = 34;

/// Writes the whole report.
pub fn write_text(report: &Report, out: &mut impl Write) -> io::Result<()> {
    let algorithms = match &report.results[..] {
        [only] => only.algorithm.clone(),
        several => format!("{} algorithms", several.len()),
    };
    let cost = match report.cost {
        "1" => "each request costs 1",
        _ => "a request costs its bytes",
    };
    writeln!(out, "{}, {algorithms}, per {}, {cost}", report.limit, report.key)?;
    if let Some(own) = &report.key_quotas {
        let (keys, seen) = (plural(own.keys as u64, "key"), grouped(own.seen as u64));
        write_paragraph("", &format!("Own quotas ({}): {keys}, {seen} seen in the log", own.file), out)?;
    }
    let log = &report.log;
    let counts = format!("{} of {}", plural(log.requests, "request"), plural(log.more.keys as u64, "key"));
    let missing = log.more.missing_key_fields.iter().map(|missing| describe_missing(missing, &report.key));
    let facts = [log.judged(report.order, "their key")].into_iter().chain(missing);
    write_log(log, &counts, facts, out)?;
    if report.is_empty() {
        writeln!(out, "\nThe log is empty: there are no requests to replay.")?;
        return Ok(());
    }
    match &report.results[..] {
        [Outcome { figures: Some(figures), .. }] => write_figures(figures, report, out)?,
        several => compare::write_table(several, &report.limit, out)?,
    }
    if let Some(changes) = &report.changes {
        write_changes(changes, out)?;
    }
    write_bad_lines(&report.log, out)?;
    write_run(&report.run, out)
}

fn describe_missing(missing: &MissingField, key: &str) -> String {
    let (requests, one) = (plural(missing.requests, "request"), missing.requests == 1);
    let have = if one { "has" } else { "have" };
    let then = match (missing.field == key, one) {
        (true, true) => "its key is '-'",
        (true, false) => "they share one key",
        (false, true) => "it counts as '-'",
        (false, false) => "they count as one and the same",
    };
    format!("{requests} {have} no '{}'; {then}.", missing.field)
}

fn write_figures(figures: &Figures, report: &Report, out: &mut impl Write) -> io::Result<()> {
    let requests = u128::from(report.log.requests);
    writeln!(out, "\nOutcome")?;
    let mut write = |name: &str, count: u128, share: &str, note: &str| {
        let line = format!("  {name:<14}{:>15}  {share:>8}   {note}", grouped(count));
        writeln!(out, "{}", line.trim_end())
    };
    let keys =
        format!("{} of {}", grouped(figures.keys_denied as u64), plural(report.log.more.keys as u64, "key"));
    let [passed, denied] = shares(figures.passed.into(), figures.denied.into());
    write("passed", figures.passed.into(), &passed, "")?;
    write("denied", figures.denied.into(), &denied, &keys)?;
    if report.cost == "bytes" {
        let [passed, denied] = shares(figures.cost_passed, figures.cost_denied);
        write("bytes passed", figures.cost_passed, &passed, "")?;
        write("bytes denied", figures.cost_denied, &denied, "")?;
    }
    let mut row =
        |name: &str, count: u64, note: &str| write(name, count.into(), &share(count.into(), requests), note);
    if figures.too_costly > 0 {
        let note = "cost above the capacity: never passes";
        row("too costly", figures.too_costly, note)?;
    }
    if figures.answered_by_full_policy > 0 {
        let note = "table full: answered by --when-full";
        row("no room", figures.answered_by_full_policy, note)?;
    }
    if figures.charged_to_shared_overflow > 0 {
        let note = "table full: shared one state";
        row("shared", figures.charged_to_shared_overflow, note)?;
    }
    if figures.delayed > 0 {
        row("delayed", figures.delayed, "passed, but told to start later")?;
    }
    write_wait("longest wait", figures.longest_wait.as_ref(), out)?;
    write_wait("longest delay", figures.longest_delay.as_ref(), out)?;
    if figures.denied > 0 {
        let compliant = &figures.compliant;
        let sent = compliant.passed + compliant.denied;
        let text = format!(
            "A client that waits as retry-after says would have sent {} of the {} and \
             been denied {} ({}); it would have withheld {}.",
            grouped(sent),
            plural(report.log.requests, "request"),
            plural(compliant.denied, "time"),
            share(compliant.denied.into(), sent.into()),
            grouped(compliant.withheld),
        );
        let text = match compliant.too_costly {
            0 => text,
            never => format!("{text} Another {} can never pass.", grouped(never)),
        };
        write_paragraph("  ", &text, out)?;
        write_top(figures, out)?;
    }
    write_timeline(&figures.timeline, out)
}

fn write_wait(name: &str, wait: Option<&LongestWait>, out: &mut impl Write) -> io::Result<()> {
    let Some(wait) = wait else { return Ok(()) };
    let time = duration(Duration::from_nanos(wait.ns));
    writeln!(out, "  {name:<14}{time:>15}   key {}", cut(&wait.key, 42))?;
    writeln!(out, "  {:32}at {}:{}", "", wait.file, wait.line)
}

fn write_top(figures: &Figures, out: &mut impl Write) -> io::Result<()> {
    if figures.top_denied.is_empty() {
        return Ok(());
    }
    writeln!(out, "\nKeys denied most")?;
    writeln!(out, "  {:>12} {:>12} {:>9}   key", "denied", "of", "share")?;
    for key in &figures.top_denied {
        writeln!(
            out,
            "  {:>12} {:>12} {:>9}   {}",
            grouped(key.denied),
            grouped(key.requests),
            share(key.denied.into(), key.requests.into()),
            cut(&key.key, 40),
        )?;
    }
    let more = figures.keys_denied.saturating_sub(figures.top_denied.len());
    if more > 0 {
        writeln!(out, "  and {} (--top shows more)", plural(more as u64, "other key"))?;
    }
    Ok(())
}

fn write_timeline(timeline: &TimelineRows, out: &mut impl Write) -> io::Result<()> {
    let width = duration(Duration::from_secs(timeline.seconds_per_row));
    writeln!(out, "\nTimeline, {width} a row, UTC (█ passed, ░ denied)")?;
    let tallest = timeline.rows.iter().map(|row| row.passed + row.denied).max().unwrap_or(0);
    let mut date = String::new();
    writeln!(out, "  {:19} {:BAR_WIDTH$} {:>11} {:>10}", "", "", "passed", "denied")?;
    for row in &timeline.rows {
        let start = date_and_time(row.second.saturating_mul(1_000_000_000));
        let (day, time) = start.split_at("2015-05-17".len());
        // Seconds are shown only if some rows do not start at a full minute.
        let time = if timeline.seconds_per_row < 60 { time } else { &time[.." 10:05".len()] };
        let shown_day = if day == date { "" } else { day };
        let bar = bar(row.passed, row.denied, tallest);
        let gap = " ".repeat(BAR_WIDTH - bar.chars().count());
        let counts = format!("{:>11} {:>10}", grouped(row.passed), grouped(row.denied));
        writeln!(out, "  {shown_day:10}{time:9} {bar}{gap} {counts}")?;
        date = day.to_owned();
    }
    Ok(())
}

/// Returns a bar with a length proportional to its count. A count of `tallest` has the longest bar,
/// and a count above zero is always visible.
fn bar(passed: u64, denied: u64, tallest: u64) -> String {
    let cells = |count: u64| -> usize {
        let share = u128::from(count) * BAR_WIDTH as u128 * 2;
        let rounded = (share / u128::from(tallest.max(1))).div_ceil(2);
        usize::try_from(rounded).unwrap_or(BAR_WIDTH).clamp(usize::from(count > 0), BAR_WIDTH)
    };
    let total = cells(passed + denied).max(usize::from(passed > 0) + usize::from(denied > 0));
    let denied = cells(denied).min(total - usize::from(passed > 0));
    format!("{}{}", "█".repeat(total - denied), "░".repeat(denied))
}

fn write_run(run: &Run, out: &mut impl Write) -> io::Result<()> {
    writeln!(out, "\nThis run (only these figures vary)")?;
    for limiter in &run.limiters {
        let name = if run.limiters.len() > 1 { &limiter.algorithm } else { "limiter" };
        writeln!(
            out,
            "  {name:<14} {} checks/s, {} in {}",
            rate(limiter.checks_per_second),
            plural(limiter.keys_tracked as u64, "key"),
            bytes(limiter.memory_bytes),
        )?;
    }
    let elapsed = duration(Duration::from_secs_f64(run.seconds));
    writeln!(out, "  {:<14} {} lines/s, {elapsed}", "replay", rate(run.lines_per_second))?;
    let text = "Checks are timed alone, on one thread, with this log's keys in its order; the replay \
                is timed with reading, parsing, checks, the compliant client and all counting. The \
                replay keeps all keys, where a limiter has forgotten those that are idle.";
    write_paragraph("  ", text, out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_are_in_proportion_and_hide_nothing() {
        let shape = |passed, denied, tallest| {
            let bar = bar(passed, denied, tallest);
            (bar.matches('█').count(), bar.matches('░').count())
        };
        assert_eq!(shape(0, 0, 0), (0, 0));
        assert_eq!(shape(0, 0, 9), (0, 0));
        assert_eq!(shape(100, 0, 100), (BAR_WIDTH, 0));
        assert_eq!(shape(0, 100, 100), (0, BAR_WIDTH));
        assert_eq!(shape(50, 50, 100), (BAR_WIDTH / 2, BAR_WIDTH / 2));
        assert_eq!(shape(1, 0, 1_000_000), (1, 0));
        assert_eq!(shape(1, 1, 1_000_000), (1, 1));
        assert_eq!(shape(999_999, 1, 1_000_000), (BAR_WIDTH - 1, 1));
        assert_eq!(shape(1, 999_999, 1_000_000), (1, BAR_WIDTH - 1));
        assert_eq!(shape(u64::MAX / 2, u64::MAX / 2, u64::MAX), (BAR_WIDTH / 2, BAR_WIDTH / 2));
    }
}
