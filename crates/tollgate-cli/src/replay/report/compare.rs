//! Writes the report's table, which shows the algorithms side by side.

use std::io::{self, Write};
use std::time::Duration;

use super::figures::AlgorithmResult;
use super::paragraph::write_paragraph;
use super::quantity::{duration, grouped, share};

/// Writes one row per algorithm. Facts that do not fit in a row follow the table.
pub(crate) fn write_table(outcomes: &[AlgorithmResult], out: &mut impl Write) -> io::Result<()> {
    writeln!(out, "\nAlgorithms side by side")?;
    let line = |out: &mut dyn Write, cells: [&str; 7]| {
        let [name, passed, denied, share, keys, wait, compliant] = cells;
        let line =
            format!("  {name:<14} {passed:>11} {denied:>10} {share:>8} {keys:>8} {wait:>11} {compliant:>9}");
        writeln!(out, "{line}")
    };
    line(out, ["", "", "", "", "keys", "longest", "compliant"])?;
    line(out, ["", "passed", "denied", "%", "denied", "wait", "denied"])?;
    for outcome in outcomes {
        let Some(figures) = &outcome.figures else {
            let reason = outcome.refused.as_deref().unwrap_or_default();
            writeln!(out, "  {:<14} refused:", outcome.algorithm)?;
            write_paragraph(&" ".repeat(17), reason, out)?;
            continue;
        };
        let (totals, wait) = (&figures.totals, figures.longest_wait.as_ref());
        let requests = u128::from(totals.passed) + u128::from(totals.denied);
        let cells = [
            outcome.algorithm.clone(),
            grouped(totals.passed),
            grouped(totals.denied),
            share(totals.denied.into(), requests).replace(" %", ""),
            grouped(figures.keys_denied as u64),
            wait.map_or("-".into(), |wait| duration(Duration::from_nanos(wait.ns))),
            grouped(figures.compliant.denied),
        ];
        line(out, cells.each_ref().map(String::as_str))?;
    }
    writeln!(out)?;
    for outcome in outcomes {
        write_notes(outcome, out)?;
    }
    let text = "Compliant denials are those of a client that sends nothing until the retry-after it was \
                told has passed. Windows and logs take no burst, and ran without.";
    write_paragraph("  ", text, out)
}

fn write_notes(outcome: &AlgorithmResult, out: &mut impl Write) -> io::Result<()> {
    let name = &outcome.algorithm;
    let Some(figures) = &outcome.figures else { return Ok(()) };
    let totals = &figures.totals;
    if let Some(delay) = &figures.longest_delay {
        let text = format!(
            "{name}: {} of those that passed were told to start up to {} later.",
            grouped(totals.delayed),
            duration(Duration::from_nanos(delay.ns)),
        );
        write_paragraph("  ", &text, out)?;
    }
    if totals.too_costly > 0 {
        let text = format!("{name}: {} cost more than can ever pass at once.", grouped(totals.too_costly));
        write_paragraph("  ", &text, out)?;
    }
    let no_room = totals.answered_by_full_policy + totals.charged_to_shared_overflow;
    if no_room > 0 {
        let text = format!("{name}: {} found the table full (--max-keys).", grouped(no_room));
        write_paragraph("  ", &text, out)?;
    }
    Ok(())
}
