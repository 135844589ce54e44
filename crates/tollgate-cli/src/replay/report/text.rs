//! Writes a report as text, for a terminal of 80 columns.

use std::io::{self, Write};
use std::time::Duration;

use super::changes::write_changes;
use super::compare;
use super::figures::{Class, Figures, LimitReport, LongestWait, MissingField, Report, TimelineRows};
use super::log::{write_bad_lines, write_log};
use super::paragraph::write_paragraph;
use super::quantity::{duration, grouped, plural, rate, share, shares};
use crate::printable::{cut, printable};
use crate::replay::log::schema::Cost;
use crate::replay::timeline::Count;

const BAR_WIDTH: usize = 34;

/// Writes the whole report.
pub fn write_text(report: &Report, out: &mut impl Write) -> io::Result<()> {
    let limits = match &report.limits[..] {
        [only] => cut(&only.shown(), 40).into_owned(),
        several => plural(several.len() as u64, "limit"),
    };
    let algorithms = match &report.results[..] {
        [only] => only.algorithm.clone(),
        several => format!("{} algorithms", several.len()),
    };
    let key = report.key.as_ref().map_or(String::new(), |key| format!(", per {}", cut(key, 40)));
    let cost = match report.cost {
        Cost::One => "each request costs 1",
        Cost::Bytes => "a request costs its bytes",
    };
    write_paragraph("", &format!("{limits}, {algorithms}{key}, {cost}"), out)?;
    if let Some(own) = &report.key_quotas {
        let (keys, seen) = (plural(own.keys as u64, "key"), grouped(own.seen as u64));
        write_paragraph("", &format!("Own quotas ({}): {keys}, {seen} seen in the log", own.file), out)?;
    }
    let log = &report.log;
    let no_requests = match log.more.no_requests {
        0 => String::new(),
        lines => format!(", {} of no request", grouped(lines)),
    };
    let counts = format!("{}{}{no_requests}", plural(log.requests, "request"), of_keys(report));
    let missing =
        log.more.missing_key_fields.iter().map(|missing| describe_missing(missing, report.key.as_deref()));
    write_log(log, &counts, [log.judged(report.order)].into_iter().chain(missing), out)?;
    if report.is_empty() {
        writeln!(out, "\nThe log is empty: there are no requests to replay.")?;
        return Ok(());
    }
    if report.results.len() > 1 {
        compare::write_table(&report.results, out)?;
    } else if let Some(figures) = report.main() {
        write_figures(figures, report, out)?;
    }
    write_limits(report, out)?;
    write_timeline(&report.timeline, out)?;
    if let Some(changes) = &report.changes {
        write_changes(changes, out)?;
    }
    write_bad_lines(log, out)?;
    writeln!(out, "\nThis run (only these figures vary)")?;
    let elapsed = duration(Duration::from_secs_f64(report.run.seconds));
    writeln!(out, "  {:<14} {} lines/s, {elapsed}", "replay", rate(report.run.lines_per_second))
}

/// Returns the number of keys, if there is only one limit.
fn of_keys(report: &Report) -> String {
    match &report.limits[..] {
        [only] => format!(" of {}", plural(only.keys as u64, "key")),
        _ => String::new(),
    }
}

fn describe_missing(missing: &MissingField, key: Option<&str>) -> String {
    let (requests, one) = (plural(missing.requests, "request"), missing.requests == 1);
    let have = if one { "has" } else { "have" };
    let then = match (Some(&*missing.field) == key, one) {
        (true, true) => "its key is '-'",
        (true, false) => "they share one key",
        (false, true) => "it counts as '-'",
        (false, false) => "they count as one and the same",
    };
    format!("{requests} {have} no '{}'; {then}.", missing.field)
}

fn write_figures(figures: &Figures, report: &Report, out: &mut impl Write) -> io::Result<()> {
    let (totals, requests) = (&figures.totals, u128::from(report.log.requests));
    writeln!(out, "\nOutcome{}", if report.limits.len() > 1 { " of all limits together" } else { "" })?;
    let mut write = |name: &str, count: u128, share: &str, note: &str| {
        let line = format!("  {name:<14}{:>15}  {share:>8}   {note}", grouped(count));
        writeln!(out, "{}", line.trim_end())
    };
    let keys = format!("{}{}", grouped(figures.keys_denied as u64), of_keys(report));
    let keys = if report.limits.len() > 1 { String::new() } else { keys };
    let [passed, denied] = shares(totals.passed.into(), totals.denied.into());
    write("passed", totals.passed.into(), &passed, "")?;
    write("denied", totals.denied.into(), &denied, &keys)?;
    if report.cost == Cost::Bytes {
        let [passed, denied] = shares(totals.cost_passed, totals.cost_denied);
        write("bytes passed", totals.cost_passed, &passed, "")?;
        write("bytes denied", totals.cost_denied, &denied, "")?;
    }
    for (name, count, note) in [
        ("too costly", totals.too_costly, "cost above the capacity: never passes"),
        ("no room", totals.answered_by_full_policy, "table full: answered by --when-full"),
        ("shared", totals.charged_to_shared_overflow, "table full: shared one state"),
        ("delayed", totals.delayed, "passed, but told to start later"),
    ] {
        if count > 0 {
            write(name, count.into(), &share(count.into(), requests), note)?;
        }
    }
    write_wait("longest wait", figures.longest_wait.as_ref(), out)?;
    write_wait("longest delay", figures.longest_delay.as_ref(), out)?;
    if totals.denied > 0 {
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
    }
    Ok(())
}

fn write_wait(name: &str, wait: Option<&LongestWait>, out: &mut impl Write) -> io::Result<()> {
    let Some(wait) = wait else { return Ok(()) };
    let time = duration(Duration::from_nanos(wait.ns));
    writeln!(out, "  {name:<14}{time:>15}   key {}", cut(&wait.key, 42))?;
    writeln!(out, "  {:32}at {}:{}", "", wait.file, wait.line)
}

/// Writes the answers of each limit. A single limit without a name is left out, because the section
/// on the outcome shows its answers.
fn write_limits(report: &Report, out: &mut impl Write) -> io::Result<()> {
    if !matches!(&report.limits[..], [only] if only.is_by_fields && !only.shadow) {
        writeln!(out, "\nLimits")?;
        writeln!(out, "  {:38} {:>12} {:>12} {:>8}", "", "passed", "refused", "share")?;
        report.limits.iter().try_for_each(|limit| write_limit(limit, out))?;
    }
    report
        .limits
        .iter()
        .filter(|limit| !limit.top_refused.is_empty())
        .try_for_each(|limit| write_top(limit, out))
}

fn write_limit(limit: &LimitReport, out: &mut impl Write) -> io::Result<()> {
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
        let share = share(refused.into(), all.into());
        let ([passed, refused], name) = ([passed, refused].map(grouped), cut(&name, 38));
        writeln!(out, "  {name:38} {passed:>12} {refused:>12} {share:>8}")?;
        let reasons = [
            (counts.denied, "denied"),
            (counts.full, "denied, because the table was full"),
            (counts.paused, "refused during a penalty"),
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

fn write_top(limit: &LimitReport, out: &mut impl Write) -> io::Result<()> {
    let refused = if limit.shadow { "would have been refused" } else { "were refused" };
    writeln!(out, "\nKeys that {refused} most by {}", cut(&limit.shown(), 40))?;
    writeln!(out, "  {:>12} {:>12} {:>9}   key", "refused", "of", "share")?;
    for key in &limit.top_refused {
        let share = share(key.refused.into(), key.requests.into());
        let ([refused, requests], key) = ([key.refused, key.requests].map(grouped), cut(&key.key, 40));
        writeln!(out, "  {refused:>12} {requests:>12} {share:>9}   {key}")?;
    }
    let more = limit.keys_refused.saturating_sub(limit.top_refused.len());
    if more > 0 {
        writeln!(out, "  and {} (--top shows more)", plural(more as u64, "other key"))?;
    }
    Ok(())
}

fn write_timeline(timeline: &TimelineRows, out: &mut impl Write) -> io::Result<()> {
    let width = duration(Duration::from_secs(timeline.seconds_per_row));
    writeln!(out, "\nTimeline, {width} a row, UTC (█ passed, ░ denied)")?;
    let tallest = timeline.rows.iter().map(|row| row.count.total()).max().unwrap_or(0);
    let mut date = String::new();
    writeln!(out, "  {:19} {:BAR_WIDTH$} {:>11} {:>10}", "", "", "passed", "denied")?;
    for row in &timeline.rows {
        let (start, Count { passed, denied }) = (row.date_and_time(), row.count);
        let (day, time) = start.split_at("2015-05-17".len());
        // Seconds are shown only if some rows do not start at a full minute.
        let time = if timeline.seconds_per_row < 60 { time } else { &time[.." 10:05".len()] };
        let shown_day = if day == date { "" } else { day };
        let bar = bar(passed, denied, tallest);
        let gap = " ".repeat(BAR_WIDTH - bar.chars().count());
        let counts = format!("{:>11} {:>10}", grouped(passed), grouped(denied));
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
