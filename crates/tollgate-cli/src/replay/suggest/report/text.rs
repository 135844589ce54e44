//! Writes the report on a suggestion as text, for a terminal of 80 columns.

use std::io::{self, Write};
use std::time::Duration;

use tollgate::Algorithm;

use super::figures::Suggestion;
use crate::printable::{cut, shell_word};
use crate::replay::report::log::{write_bad_lines, write_log};
use crate::replay::report::paragraph::write_paragraph;
use crate::replay::report::quantity::{duration, grouped, plural, share};
use crate::replay::suggest::pattern::Pattern;
use crate::replay::suggest::row::Row;

/// Writes the whole report.
pub fn write_text(report: &Suggestion, out: &mut impl Write) -> io::Result<()> {
    write_suggested(report, out)?;
    let (log, clients) = (&report.log, &report.log.more);
    let counts =
        format!("{} of {}", plural(log.requests, "request"), plural(clients.number as u64, "client"));
    let peaks = format!(
        "At most {} arrived in one second, and {} of one client.",
        plural(clients.peaks.peak_per_second, "request"),
        grouped(clients.peaks.peak_per_second_of_one_client),
    );
    let sorted = (log.stepped_back > 0).then(|| format!("{}; requests were sorted by time.", log.steps()));
    write_log(log, &counts, [peaks].into_iter().chain(sorted), out)?;
    write_rows(report, out)?;
    write_clients(report, out)?;
    write_bad_lines(&report.log, out)?;
    write_next(report, out)
}

fn write_suggested(report: &Suggestion, out: &mut impl Write) -> io::Result<()> {
    let most = match (report.allowed.requests, report.allowed.clients) {
        (Some(requests), _) => format!("denies at most {}", plural(requests, "request")),
        (_, clients) => format!("denies requests of at most {}", plural(clients.unwrap_or(0), "client")),
    };
    let Some(limit) = &report.suggested else {
        let text = format!("No limit of {} that it accepts {most}.", report.algorithm);
        return write_paragraph("", &text, out);
    };
    writeln!(out, "Suggested: {} per {}, {}\n", limit.limit, report.key, limit.algorithm)?;
    let text = format!(
        "Of all rates with a burst of {}, it is the smallest that {most}. It denies {} ({}), of {}.",
        plural(limit.burst_seconds, "second"),
        plural(limit.counts.denied, "request"),
        share(limit.counts.denied.into(), report.log.requests.into()),
        plural(limit.counts.clients_denied, "client"),
    );
    write_paragraph("  ", &text, out)
}

fn write_rows(report: &Suggestion, out: &mut impl Write) -> io::Result<()> {
    writeln!(out, "\nThe smallest rate for each burst, in seconds of the rate")?;
    let line = |out: &mut dyn Write, cells: [&str; 8]| {
        let [burst, limit, rate, denied, share, clients, peak, of_one] = cells;
        writeln!(
            out,
            "  {burst:>5}  {limit:<12} {rate:>9} {denied:>9} {share:>8} {clients:>8} {peak:>8} {of_one:>8}"
        )
    };
    // Algorithms with equal rows are shown together. The groups are sorted by their first rows.
    let mut groups: Vec<(Vec<String>, Vec<&Row>)> = Vec::new();
    for algorithm in Algorithm::ALL {
        let rows: Vec<&Row> = report.rows.iter().filter(|row| row.algorithm == algorithm).collect();
        let results = |rows: &[&Row]| -> Vec<_> { rows.iter().map(|row| (row.limit, row.counts)).collect() };
        match groups.iter_mut().find(|(_, others)| results(others) == results(&rows)) {
            _ if rows.is_empty() => {}
            Some((names, _)) => names.push(algorithm.to_string()),
            None => groups.push((vec![algorithm.to_string()], rows)),
        }
    }
    for (names, rows) in groups {
        writeln!(out, "\n  {}", names.join(", "))?;
        line(out, ["", "", "rate/s", "denied", "", "clients", "peak/s", "of one"])?;
        for row in rows {
            let burst = format!("{} s", row.burst_seconds);
            let (Some(limit), Some(rate), Some(counts)) = (row.limit, row.rate_per_second, row.counts) else {
                writeln!(out, "  {burst:>5}  refused:")?;
                write_paragraph(&" ".repeat(9), row.refused.as_deref().unwrap_or_default(), out)?;
                continue;
            };
            let cells = [
                burst,
                limit.to_string(),
                per_second(rate),
                grouped(counts.denied),
                share(counts.denied.into(), report.log.requests.into()),
                grouped(counts.clients_denied),
                grouped(counts.peaks.peak_per_second),
                grouped(counts.peaks.peak_per_second_of_one_client),
            ];
            line(out, cells.each_ref().map(String::as_str))?;
        }
    }
    writeln!(out)?;
    let text = "denied: requests, and of how many clients. peak/s: the most requests that pass in one \
                second, of all clients and of one.";
    write_paragraph("  ", text, out)
}

/// Formats a rate with at most two decimals.
fn per_second(rate: f64) -> String {
    let text = format!("{rate:.2}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

fn write_clients(report: &Suggestion, out: &mut impl Write) -> io::Result<()> {
    let clients = &report.clients;
    let [_, median, upper, high, most] = clients.busiest_minute_quantiles;
    writeln!(out, "\nClients")?;
    let text = format!(
        "In their busiest minutes, half of all clients send at most {}, three quarters {}, 99 of 100 {}, and the \
         busiest {}.",
        plural(median, "request"),
        grouped(upper),
        grouped(high),
        grouped(most),
    );
    write_paragraph("  ", &text, out)?;
    let text = format!(
        "Outliers (more than {} in a minute): {}, with {} ({}). Clients that repeat what failed: {}. Clients that are \
         steady: {}.",
        grouped(clients.outlier_above),
        grouped(clients.outliers as u64),
        plural(clients.requests_of_outliers, "request"),
        share(clients.requests_of_outliers.into(), report.log.requests.into()),
        grouped(clients.retrying as u64),
        grouped(clients.steady as u64),
    );
    write_paragraph("  ", &text, out)?;
    let outliers = clients.outliers as u64;
    if outliers > 0 && report.allowed.clients != Some(outliers) {
        let text = format!(
            "--deny-clients {outliers} finds the smallest rate that denies requests of only that many clients."
        );
        write_paragraph("  ", &text, out)?;
    }
    if clients.standing_out.is_empty() {
        return Ok(());
    }
    let [requests, minute, second, denied] = ["requests", "minute", "second", "denied"];
    writeln!(out, "\n  {requests:>9} {minute:>6} {second:>6} {denied:>8}  {:19} client", "pattern")?;
    for client in &clients.standing_out {
        let pattern = match client.pattern {
            Pattern::Retries => "repeats what failed".to_owned(),
            Pattern::Steady { every_ns } => format!("every {}", duration(Duration::from_nanos(every_ns))),
            Pattern::Bursts => "in bursts".to_owned(),
            Pattern::Mixed => "mixed".to_owned(),
        };
        let counts = [client.requests, client.busiest_minute, client.busiest_second].map(grouped);
        let ([requests, minute, second], key) = (counts, cut(&client.key, 24));
        let denied = client.denied.map_or("-".into(), grouped);
        writeln!(out, "  {requests:>9} {minute:>6} {second:>6} {denied:>8}  {pattern:19} {key}")?;
    }
    if clients.more > 0 {
        writeln!(out, "  and {} (--top shows more)", plural(clients.more as u64, "other client"))?;
    }
    Ok(())
}

/// Writes the command that replays the suggested limit.
fn write_next(report: &Suggestion, out: &mut impl Write) -> io::Result<()> {
    let Some(limit) = &report.suggested else { return Ok(()) };
    let logs: Vec<String> = report.log.files.iter().map(|file| log_name(&file.name)).collect();
    writeln!(out, "\nTo see what it would have done")?;
    let algorithm = match report.algorithm {
        Algorithm::TokenBucket => String::new(),
        other => format!(" --algorithm {other}"),
    };
    let html = if cfg!(feature = "html") { " --html report.html" } else { "" };
    writeln!(
        out,
        "  tollgate replay {} --limit {}{algorithm}{}{html}",
        logs.join(" "),
        shell_word(&limit.limit.to_string()),
        report.replay_options,
    )
}

/// Returns the name of a log as an argument.
fn log_name(name: &str) -> String {
    if name == "standard input" { "-".to_owned() } else { shell_word(name) }
}
