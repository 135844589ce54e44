//! The parts of a page that do not depend on the kind of limits, and the tables that its sections
//! share.

use std::time::Duration;

use super::chart::{self, Column};
use super::markup::Markup;
use super::waits::Waits;
use crate::printable::cut;
use crate::replay::report::changes::{Changed, ChangesReport};
use crate::replay::report::quantity::{date_and_time, duration, grouped, plural, share};
use crate::replay::timeline::{NANOS_PER_SECOND, Timeline};

/// The maximum number of columns in the timeline.
const STRETCHES: usize = 60;

/// The maximum number of rows in a list, and the maximum length of a name from outside this
/// program, in characters.
pub(crate) const MOST_ROWS: usize = 300;
pub(crate) const LONGEST_NAME: usize = 120;

/// The minimum number of wait classes to show.
const FEWEST_WAITS: usize = 5;

const DAY: u64 = 86_400;

/// Starts a page.
pub(crate) fn begin(title: &str) -> Markup {
    let mut page = Markup::default();
    page.add(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">\n\
         <title>{}</title>\n<style>\n",
        &[&title],
    );
    page.raw(include_str!("style.css"));
    page.add("</style>\n</head>\n<body>\n<header>\n<h1>What {} would have done</h1>\n", &[&title]);
    page
}

/// Ends a page.
pub(crate) fn end(mut page: Markup) -> String {
    let end = "<footer>Written by tollgate {}. All times are UTC.</footer>\n</body>\n</html>\n";
    page.add(end, &[&env!("CARGO_PKG_VERSION")]);
    page.into_string()
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
    page.section("When").add("Requests in each {}, UTC.</p>\n", &[&width]);
    write_legend("passed", "denied", page);
    let rows = stretches.iter().map(|(second, count)| {
        let start = date_and_time(second.saturating_mul(NANOS_PER_SECOND));
        [start, grouped(count.passed), grouped(count.denied)]
    });
    let title = "Requests that passed and that were denied, over time";
    write_picture(&columns, title, ["from (UTC)", "passed", "denied"], rows, page);
    page.raw("</section>\n");
}

/// Writes the legend of a picture's colours.
pub(crate) fn write_legend(passed: &str, denied: &str, page: &mut Markup) {
    let legend = "<div class=\"legend\"><span>{}</span><span class=\"denied\">{}</span></div>\n";
    page.add(legend, &[&passed, &denied]);
}

/// Writes a picture, with a table of the same counts beside it.
pub(crate) fn write_picture(
    columns: &[Column],
    title: &'static str,
    headings: [&'static str; 3],
    rows: impl Iterator<Item = [String; 3]>,
    page: &mut Markup,
) {
    page.raw("<div class=\"pair\">\n<div>\n");
    chart::columns(columns, title, page);
    page.raw("</div>\n");
    write_table(headings, rows, page);
    page.raw("</div>\n");
}

/// Writes a table of limited height.
fn write_table(headings: [&'static str; 3], rows: impl Iterator<Item = [String; 3]>, page: &mut Markup) {
    page.raw("<div class=\"scroll\"><table>\n<thead><tr>");
    for heading in headings {
        page.add("<th scope=\"col\">{}</th>", &[&heading]);
    }
    page.raw("</tr></thead>\n<tbody>\n");
    rows.for_each(|row| _ = page.row(&row.each_ref().map(String::as_str)));
    page.raw("</tbody></table></div>\n");
}

/// Writes a table in which a bar ends each row. Each column has a style class and a heading. Each
/// row has the texts of its cells, and the counts that its bar shows as passed and denied.
pub(crate) fn write_bars<const N: usize>(
    columns: [(&'static str, &'static str); N],
    rows: &[([String; N], [u64; 2])],
    page: &mut Markup,
) {
    page.raw("<div class=\"table\"><table>\n<thead><tr>");
    for (class, heading) in columns {
        page.open("th scope=\"col\"", class).text(heading).raw("</th>");
    }
    page.raw("<td></td></tr></thead>\n<tbody>\n");
    let tallest = rows.iter().map(|(_, [passed, denied])| passed + denied).max().unwrap_or(1);
    for (cells, [passed, denied]) in rows {
        page.raw("<tr>");
        for (index, (cell, (class, _))) in cells.iter().zip(columns).enumerate() {
            let (open, close) = if index == 0 { ("th scope=\"row\"", "</th>") } else { ("td", "</td>") };
            page.open(open, class).text(cell).raw(close);
        }
        write_bar(*passed, *denied, tallest, page);
        page.raw("</tr>\n");
    }
    page.raw("</tbody></table></div>\n");
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
    page.section("How long they would have waited")
        .raw("Denied requests by the time after which the client was told to come back (Retry-After).</p>\n");
    let rows = columns.iter().map(|column| {
        [column.label.clone(), grouped(column.denied), share(column.denied.into(), denied.into())]
    });
    let headings = ["wait", "denied requests", "share"];
    write_picture(&columns, "Denied requests by the time to wait", headings, rows, page);
    page.add("<p>{}</p>\n</section>\n", &[&more]);
}

/// Writes the section that compares the decisions with those of other limits.
pub(crate) fn write_changes(changes: &ChangesReport, are_clients_hashed: bool, page: &mut Markup) {
    let Changed { refused, passed } = changes.all;
    let changed = refused + passed;
    let [all, newly_denied, newly_passed] = [changed + changes.same, refused, passed].map(grouped);
    page.section("What changes").add(
        "Against {}, {} of {} differ: {} would be newly denied, and {} would newly pass.</p>\n",
        &[&changes.against, &plural(changed, "decision"), &all, &newly_denied, &newly_passed],
    );
    if changed > 0 {
        page.raw("<div class=\"pair\">\n");
        let row = |name: String, changed: Changed| [name, grouped(changed.refused), grouped(changed.passed)];
        let rows = changes.timeline.iter().map(|stretch| row(stretch.date_and_time(), stretch.count));
        write_table(["from (UTC)", "newly denied", "newly passed"], rows, page);
        // The client names in this table are not hashed.
        if !are_clients_hashed {
            let clients = changes.top_changed.iter().take(MOST_ROWS);
            let rows = clients.map(|it| row(cut(&it.name, LONGEST_NAME).into_owned(), it.changed));
            write_table(["client", "newly denied", "newly passed"], rows, page);
        }
        page.raw("</div>\n");
    }
    page.raw("</section>\n");
}

/// Writes a cell with a bar. The bar's length is proportional to its count, and a count of
/// `tallest` has the longest bar.
fn write_bar(passed: u64, denied: u64, tallest: u64, page: &mut Markup) {
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
        page.add("<rect class=\"passed\" x=\"0\" y=\"8\" height=\"44\" width=\"{}\"/>", &[&passed]);
    }
    if denied > 0 {
        page.add("<rect class=\"denied\" y=\"8\" height=\"44\" x=\"{}\" width=\"{}\"/>", &[&passed, &denied]);
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
