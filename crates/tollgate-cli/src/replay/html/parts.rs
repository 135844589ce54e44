//! The parts that both kinds of page share.

use std::time::Duration;

use super::chart::{self, Column};
use super::markup::Markup;
use super::waits::Waits;
use crate::printable::cut;
use crate::replay::html_settings::HtmlSettings;
use crate::replay::report::changes::ChangesReport;
use crate::replay::report::log::Log;
use crate::replay::report::quantity::{date_and_time, duration, grouped, plural, share};
use crate::replay::timeline::Timeline;

/// The maximum number of columns in the timeline.
const STRETCHES: usize = 60;

/// The maximum number of rows and of files in a list, and the maximum length of text from outside
/// this program, in characters.
pub(crate) const MOST_ROWS: usize = 300;
pub(crate) const MOST_FILES: usize = 20;
pub(crate) const LONGEST: usize = 1_000;
pub(crate) const LONGEST_NAME: usize = 120;
const LONGEST_COMMAND: usize = 20_000;

/// The minimum number of wait classes to show.
const FEWEST_WAITS: usize = 5;

const NANOS_PER_SECOND: u64 = 1_000_000_000;
const DAY: u64 = 86_400;

/// Starts a page.
pub(crate) fn begin(title: &str) -> Markup {
    let mut page = Markup::default();
    page.raw(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">\n\
         <title>",
    );
    page.text(title).raw("</title>\n<style>\n").raw(include_str!("style.css"));
    page.raw("</style>\n</head>\n<body>\n<header>\n<h1>What ").text(title).raw(" would have done</h1>\n");
    page
}

/// Ends a page.
pub(crate) fn end(mut page: Markup) -> String {
    page.raw("<footer>Written by tollgate ").text(env!("CARGO_PKG_VERSION"));
    page.raw(". All times are UTC.</footer>\n</body>\n</html>\n");
    page.into_string()
}

/// Writes four tiles, each with a style class, a figure and a label.
pub(crate) fn write_tiles(tiles: [(&'static str, String, String); 4], page: &mut Markup) {
    page.raw("<div class=\"figures\">\n");
    for (class, figure, label) in tiles {
        page.raw("<div class=\"").raw(class).raw("\"><b>").text(&figure).raw("</b><span>").text(&label);
        page.raw("</span></div>\n");
    }
    page.raw("</div>\n");
}

/// Writes the `facts`, the notes on the logs and the lines that do not parse, if there are any.
pub(crate) fn write_notes<M>(
    facts: impl Iterator<Item = String>,
    log: &Log<M>,
    are_clients_hashed: bool,
    page: &mut Markup,
) {
    // A line that does not parse may contain a client's name.
    let bad_lines = if are_clients_hashed { &[][..] } else { &log.bad_lines };
    let bad_lines =
        bad_lines.iter().map(|bad| format!("{}:{} does not parse: {}", bad.file, bad.line, bad.reason));
    let notes: Vec<String> =
        facts.chain(log.notes.iter().take(MOST_FILES).cloned()).chain(bad_lines).collect();
    if notes.is_empty() {
        return;
    }
    page.raw("<section class=\"notes\">\n<h2>Notes</h2>\n<ul>\n");
    for note in &notes {
        page.raw("<li>").text(&cut(note, LONGEST)).raw("</li>\n");
    }
    page.raw("</ul>\n</section>\n");
}

/// Starts the settings section: writes the command that created the page, and opens the section's
/// table.
pub(crate) fn begin_settings(settings: &HtmlSettings, page: &mut Markup) {
    page.raw("<section>\n<h2>How this was made</h2>\n<pre><code>");
    page.text(&cut(&settings.command, LONGEST_COMMAND)).raw("</code></pre>\n");
    page.raw("<div class=\"table\"><table class=\"settings\"><tbody>\n");
}

/// Writes the rows about the logs, and ends the settings section.
pub(crate) fn end_settings<M>(log: &Log<M>, page: &mut Markup) {
    for file in log.files.iter().take(MOST_FILES) {
        page.row(&[
            "log",
            &format!("{} ({}, {})", cut(&file.name, LONGEST), file.format_name(), plural(file.lines, "line")),
        ]);
    }
    if log.files.len() > MOST_FILES {
        page.row(&["", &format!("and {} more", log.files.len() - MOST_FILES)]);
    }
    page.row(&["lines that do not parse", &grouped(log.unparsable)]);
    page.raw("</tbody></table></div>\n</section>\n");
}

/// Writes the timeline section.
pub(crate) fn write_timeline(timeline: &Timeline, page: &mut Markup) {
    let timeline = timeline.at_most(STRETCHES);
    let stretches: Vec<_> = timeline.stretches().collect();
    let first = stretches.first().map_or(0, |(second, _)| *second);
    let days = stretches.last().map_or(0, |(second, _)| *second - first) >= DAY;
    let label = |second: u64| {
        let text = date_and_time(second.saturating_mul(NANOS_PER_SECOND));
        match (timeline.width(), days) {
            (DAY.., _) => text[5..10].to_owned(),
            (_, true) => format!("{} {}h", &text[5..10], &text[11..13]),
            (60.., _) => text[11..16].to_owned(),
            _ => text[11..19].to_owned(),
        }
    };
    let columns: Vec<Column> = stretches
        .iter()
        .map(|(second, count)| Column { label: label(*second), passed: count.passed, denied: count.denied })
        .collect();
    let width = duration(Duration::from_secs(timeline.width()));
    page.raw("<section>\n<h2>When</h2>\n<p class=\"soft\">Requests in each ").text(&width);
    page.raw(", UTC.</p>\n");
    write_legend("passed", "denied", page);
    page.raw("<div class=\"pair\">\n<div>\n");
    chart::columns(&columns, "Requests that passed and that were denied, over time", page);
    page.raw("</div>\n<div class=\"scroll\"><table>\n").head(&["from (UTC)", "passed", "denied"]);
    for (second, count) in &stretches {
        let start = date_and_time(second.saturating_mul(NANOS_PER_SECOND));
        page.row(&[&start, &grouped(count.passed), &grouped(count.denied)]);
    }
    page.raw("</tbody></table></div>\n</div>\n</section>\n");
}

/// Writes the legend of a picture's colours.
pub(crate) fn write_legend(passed: &str, denied: &str, page: &mut Markup) {
    page.raw("<div class=\"legend\"><span>").text(passed).raw("</span><span class=\"denied\">");
    page.text(denied).raw("</span></div>\n");
}

/// Writes the section about how long denied requests would have had to wait. `more` is the text
/// below the section's table.
pub(crate) fn write_waits(waits: &Waits, more: &str, page: &mut Markup) {
    let denied = waits.total();
    if denied == 0 {
        return;
    }
    let mut from = Duration::ZERO;
    let mut columns = Vec::new();
    for (end, count) in waits.classes() {
        let label = match end {
            Some(end) => format!("≤ {}", duration(end)),
            None => format!("> {}", duration(from)),
        };
        from = end.unwrap_or(from);
        columns.push(Column { label, passed: 0, denied: count });
    }
    // Empty classes of long waits are left out.
    while columns.len() > FEWEST_WAITS && columns.last().is_some_and(|column| column.denied == 0) {
        columns.pop();
    }
    for (label, denied) in [("not told", waits.not_told), ("never", waits.never)] {
        if denied > 0 {
            columns.push(Column { label: label.into(), passed: 0, denied });
        }
    }
    page.raw(
        "<section>\n<h2>How long they would have waited</h2>\n<p class=\"soft\">Denied requests by the time ",
    );
    page.raw(
        "after which the client was told to come back (Retry-After).</p>\n<div class=\"pair\">\n<div>\n",
    );
    chart::columns(&columns, "Denied requests by the time to wait", page);
    page.raw("</div>\n<div class=\"scroll\"><table>\n").head(&["wait", "denied requests", "share"]);
    for column in &columns {
        let part = share(column.denied.into(), denied.into());
        page.row(&[&column.label, &grouped(column.denied), &part]);
    }
    page.raw("</tbody></table></div>\n</div>\n<p>").text(more).raw("</p>\n</section>\n");
}

/// Writes the section that compares the decisions with those of other limits.
pub(crate) fn write_changes(changes: &ChangesReport, are_clients_hashed: bool, page: &mut Markup) {
    let changed = changes.newly_refused + changes.newly_passed;
    page.raw("<section>\n<h2>What changes</h2>\n<p class=\"soft\">Against ").text(&changes.against);
    page.text(&format!(
        ", {} of {} differ: {} would be newly denied, and {} would newly pass.",
        plural(changed, "decision"),
        grouped(changed + changes.same),
        grouped(changes.newly_refused),
        grouped(changes.newly_passed),
    ));
    page.raw("</p>\n");
    if changed > 0 {
        page.raw("<div class=\"pair\">\n<div class=\"scroll\"><table>\n");
        page.head(&["from (UTC)", "newly denied", "newly passed"]);
        for stretch in &changes.timeline {
            let start = date_and_time(stretch.second.saturating_mul(NANOS_PER_SECOND));
            page.row(&[&start, &grouped(stretch.newly_refused), &grouped(stretch.newly_passed)]);
        }
        page.raw("</tbody></table></div>\n");
        // The client names in this table are not hashed.
        if !are_clients_hashed {
            page.raw("<div class=\"scroll\"><table>\n").head(&["client", "newly denied", "newly passed"]);
            for row in changes.top_changed.iter().take(MOST_ROWS) {
                let name = cut(&row.name, LONGEST_NAME);
                page.row(&[&name, &grouped(row.newly_refused), &grouped(row.newly_passed)]);
            }
            page.raw("</tbody></table></div>\n");
        }
        page.raw("</div>\n");
    }
    page.raw("</section>\n");
}

/// Writes a cell with a bar. The bar's length is proportional to its count, and a count of
/// `tallest` has the longest bar.
pub(crate) fn write_bar(passed: u64, denied: u64, tallest: u64, page: &mut Markup) {
    const WIDTH: u32 = 1000;
    // A count above zero is always visible.
    const LEAST: u32 = 8;
    let scaled = |count: u64, room: u32| {
        if count == 0 {
            return 0;
        }
        let width = u128::from(count) * u128::from(WIDTH) / u128::from(tallest.max(1));
        u32::try_from(width).unwrap_or(room).clamp(LEAST, room)
    };
    let passed = scaled(passed, if denied > 0 { WIDTH - LEAST } else { WIDTH });
    let denied = scaled(denied, WIDTH - passed);
    page.raw(
        "<td class=\"share\"><svg viewBox=\"0 0 1000 60\" preserveAspectRatio=\"none\" aria-hidden=\"true\">",
    );
    if passed > 0 {
        page.raw("<rect class=\"passed\" x=\"0\" y=\"8\" height=\"44\" width=\"").number(passed).raw("\"/>");
    }
    if denied > 0 {
        page.raw("<rect class=\"denied\" y=\"8\" height=\"44\" x=\"").number(passed);
        page.raw("\" width=\"").number(denied).raw("\"/>");
    }
    page.raw("</svg></td>");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_part_of_a_bar_is_visible_inside_its_picture() {
        for (passed, denied, tallest) in
            [(9_995, 5, 10_000), (5, 9_995, 10_000), (3, 5, 10_000), (0, 1, 1), (1, 1, 2), (1, 0, 1)]
        {
            let mut page = Markup::default();
            write_bar(passed, denied, tallest, &mut page);
            let page = page.into_string();
            let numbers = |name: &str| -> Vec<u32> {
                let begin = format!(" {name}=\"");
                let values = page.split(&begin).skip(1);
                values.filter_map(|rest| rest.split('"').next()?.parse().ok()).collect()
            };
            let mut end = 0;
            for (x, width) in numbers("x").into_iter().zip(numbers("width")) {
                assert!(x == end && width >= 8, "{page}");
                end = x + width;
            }
            assert!(end <= 1000, "{page}");
            assert_eq!(page.matches("<rect").count(), usize::from(passed > 0) + usize::from(denied > 0));
        }
    }
}
