//! The sections of a page.

use std::time::Duration;

use super::chart::{self, Column};
use super::clients::Clients;
use super::markup::Markup;
use super::watch::Watch;
use crate::printable::cut;
use crate::replay::html_settings::HtmlSettings;
use crate::replay::keys::Keys;
use crate::replay::report::Report;
use crate::replay::report::figures::{Figures, Outcome};
use crate::replay::report::quantity::{date_and_time, duration, grouped, plural, share};
use crate::replay::simulation::Simulation;

/// The most columns of the timeline.
const STRETCHES: usize = 60;

/// The most rows of a list, and the most characters of a text that is not of this program.
const MOST_ROWS: usize = 300;
const MOST_FILES: usize = 20;
const LONGEST: usize = 1_000;
const LONGEST_NAME: usize = 120;
const LONGEST_COMMAND: usize = 20_000;

/// The fewest classes of waits.
const FEWEST_WAITS: usize = 5;

const NANOS_PER_SECOND: u64 = 1_000_000_000;
const DAY: u64 = 86_400;

/// What a page shows.
pub(crate) struct Facts<'r> {
    pub(crate) settings: &'r HtmlSettings,
    pub(crate) report: &'r Report,
    /// The results of the other algorithms.
    pub(crate) beside: &'r [Outcome],
    /// The first algorithm that was tried.
    pub(crate) main: Option<&'r Simulation>,
    pub(crate) keys: &'r Keys,
    pub(crate) clients: Clients,
    pub(crate) watch: &'r Watch,
}

/// Returns the whole page.
pub(crate) fn page(facts: &Facts<'_>) -> String {
    let mut page = Markup::default();
    page.raw(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">\n\
         <title>",
    );
    page.text(&title(facts)).raw("</title>\n<style>\n").raw(include_str!("style.css"));
    page.raw("</style>\n</head>\n<body>\n");
    write_head(facts, &mut page);
    if let (Some(main), Some(figures)) = (facts.main, main_figures(facts)) {
        write_figures(facts, figures, &mut page);
        write_timeline(main, &mut page);
        write_rates(facts, main, &mut page);
        write_denied(facts, main, &mut page);
        write_waits(facts, figures, &mut page);
        write_changes(facts, &mut page);
        write_algorithms(facts, &mut page);
    } else {
        page.raw("<p>The log is empty: there are no requests to replay.</p>\n");
    }
    write_settings(facts, &mut page);
    write_notes(facts, &mut page);
    page.raw("<footer>Written by tollgate ").text(env!("CARGO_PKG_VERSION"));
    page.raw(". All times are UTC.</footer>\n</body>\n</html>\n");
    page.into_string()
}

fn main_outcome<'r>(facts: &Facts<'r>) -> Option<&'r Outcome> {
    facts.report.results.iter().find(|outcome| outcome.figures.is_some() && !facts.report.is_empty())
}

fn main_figures<'r>(facts: &Facts<'r>) -> Option<&'r Figures> {
    main_outcome(facts).and_then(|outcome| outcome.figures.as_ref())
}

fn title(facts: &Facts<'_>) -> String {
    format!("{} per {}", facts.report.limit, cut(&facts.report.key, LONGEST))
}

fn write_head(facts: &Facts<'_>, page: &mut Markup) {
    page.raw("<header>\n<h1>What ").text(&title(facts)).raw(" would have done</h1>\n<p class=\"soft\">");
    let log = &facts.report.log;
    page.text(&format!("{} of {}", plural(log.requests, "request"), plural(log.keys as u64, "client")));
    if let (Some(first), Some(last), Some(span)) = (log.first_nanos, log.last_nanos, log.span) {
        page.text(&format!(", {} to {} UTC ({})", date_and_time(first), date_and_time(last), duration(span)));
    }
    if let Some(outcome) = main_outcome(facts) {
        page.text(&format!(". Algorithm: {}", outcome.algorithm));
    }
    page.raw(".</p>\n</header>\n");
}

fn write_figures(facts: &Facts<'_>, figures: &Figures, page: &mut Markup) {
    let all = u128::from(figures.passed) + u128::from(figures.denied);
    let of_all = |count: u64| share(count.into(), all);
    let clients = plural(facts.report.log.keys as u64, "client");
    let longest = figures.longest_wait.as_ref().map_or(0, |wait| wait.ns);
    let tiles = [
        ("good", of_all(figures.passed), format!("{} passed", plural(figures.passed, "request"))),
        ("bad", of_all(figures.denied), format!("{} denied", plural(figures.denied, "request"))),
        ("", grouped(figures.keys_denied as u64), format!("of {clients} were denied something")),
        ("", duration(Duration::from_nanos(longest)), "longest wait that a client was told".to_owned()),
    ];
    page.raw("<div class=\"figures\">\n");
    for (class, figure, label) in tiles {
        page.raw("<div class=\"").raw(class).raw("\"><b>").text(&figure).raw("</b><span>").text(&label);
        page.raw("</span></div>\n");
    }
    page.raw("</div>\n");
}

fn write_timeline(main: &Simulation, page: &mut Markup) {
    let timeline = main.timeline.at_most(STRETCHES);
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

fn write_legend(passed: &str, denied: &str, page: &mut Markup) {
    page.raw("<div class=\"legend\"><span>").text(passed).raw("</span><span class=\"denied\">");
    page.text(denied).raw("</span></div>\n");
}

fn write_rates(facts: &Facts<'_>, main: &Simulation, page: &mut Markup) {
    // Classes of busiest minutes, each twice as wide as the one before: 1, 2, 3 to 4, 5 to 8.
    let mut classes: Vec<(u64, u64)> = Vec::new();
    for id in 0..facts.keys.len() {
        let most = facts.watch.rates.busiest_minute(id).max(1);
        let class = most.next_power_of_two().trailing_zeros() as usize;
        if classes.len() <= class {
            classes.resize(class + 1, (0, 0));
        }
        if main.denied(id) > 0 {
            classes[class].1 += 1;
        } else {
            classes[class].0 += 1;
        }
    }
    let range = |class: usize| match class {
        0 => "1".to_owned(),
        1 => "2".to_owned(),
        class => format!("{}–{}", grouped((1_u64 << (class - 1)) + 1), grouped(1_u64 << class)),
    };
    let columns: Vec<Column> = classes
        .iter()
        .enumerate()
        .map(|(class, &(passed, denied))| Column { label: range(class), passed, denied })
        .collect();
    page.raw("<section>\n<h2>How busy clients are</h2>\n");
    page.raw(
        "<p class=\"soft\">Clients by the number of requests in their busiest minute of the clock.</p>\n",
    );
    write_legend("clients that were denied nothing", "clients that were denied something", page);
    page.raw("<div class=\"pair\">\n<div>\n");
    chart::columns(&columns, "Clients by the requests in their busiest minute", page);
    page.raw("</div>\n<div class=\"scroll\"><table>\n").head(&[
        "requests a minute",
        "clients",
        "of them denied",
    ]);
    for column in &columns {
        page.row(&[&column.label, &grouped(column.passed + column.denied), &grouped(column.denied)]);
    }
    page.raw("</tbody></table></div>\n</div>\n</section>\n");
}

fn write_denied(facts: &Facts<'_>, main: &Simulation, page: &mut Markup) {
    let keys = facts.keys.by_id();
    let mut ids: Vec<usize> = (0..keys.len()).filter(|&id| main.denied(id) > 0).collect();
    page.raw("<section>\n<h2>Who is denied</h2>\n");
    if ids.is_empty() {
        page.raw("<p>Nobody.</p>\n</section>\n");
        return;
    }
    ids.sort_unstable_by(|&one, &other| {
        main.denied(other).cmp(&main.denied(one)).then_with(|| keys[one].cmp(keys[other]))
    });
    if facts.clients.are_hashed() {
        page.raw(
            "<p class=\"soft\">Clients are shown by hashes with a random key that was not kept: the same client has \
             the same hash on this page only.</p>\n",
        );
    }
    let all = ids.len();
    ids.truncate(facts.settings.top.min(MOST_ROWS));
    let tallest = ids.iter().map(|&id| facts.keys.requests(id)).max().unwrap_or(1);
    write_legend("passed", "denied", page);
    page.raw(
        "<table>\n<thead><tr><th scope=\"col\">client</th><th scope=\"col\" class=\"optional\">requests</th>",
    );
    page.raw("<th scope=\"col\">denied</th><th scope=\"col\" class=\"optional\">busiest minute</th>");
    page.raw(
        "<th scope=\"col\">longest wait</th><th scope=\"col\">in proportion</th></tr></thead>\n<tbody>\n",
    );
    for &id in &ids {
        let (requests, denied) = (facts.keys.requests(id), main.denied(id));
        page.raw("<tr><th scope=\"row\">").text(&facts.clients.name(keys[id])).raw("</th>");
        page.raw("<td class=\"optional\">").shown(grouped(requests)).raw("</td><td>");
        page.text(&format!("{} ({})", grouped(denied), share(denied.into(), requests.into())));
        page.raw("</td><td class=\"optional\">").shown(grouped(facts.watch.rates.busiest_minute(id)));
        page.raw("</td><td>").text(&duration(facts.watch.longest_wait(id))).raw("</td>");
        write_bar(requests - denied, denied, tallest, page);
        page.raw("</tr>\n");
    }
    page.raw("</tbody></table>\n");
    if all > ids.len() {
        let more = plural((all - ids.len()) as u64, "other client");
        page.raw("<p class=\"soft\">And ").text(&more).raw(" (--top shows more).</p>\n");
    }
    page.raw("</section>\n");
}

/// Writes a cell with a bar whose length is in proportion to the tallest.
fn write_bar(passed: u64, denied: u64, tallest: u64, page: &mut Markup) {
    const WIDTH: u128 = 1000;
    let scaled = |count: u64| {
        let width = u128::from(count) * WIDTH / u128::from(tallest.max(1));
        i64::try_from(width).unwrap_or(0).max(if count > 0 { 8 } else { 0 })
    };
    let (passed, denied) = (scaled(passed), scaled(denied));
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

fn write_waits(facts: &Facts<'_>, figures: &Figures, page: &mut Markup) {
    if figures.denied == 0 {
        return;
    }
    let mut from = Duration::ZERO;
    let mut columns = Vec::new();
    for (end, count) in facts.watch.waits.classes() {
        let label = match end {
            Some(end) => format!("≤ {}", duration(end)),
            None => format!("> {}", duration(from)),
        };
        from = end.unwrap_or(from);
        columns.push(Column { label, passed: 0, denied: count });
    }
    // Without the long waits of nobody.
    while columns.len() > FEWEST_WAITS && columns.last().is_some_and(|column| column.denied == 0) {
        columns.pop();
    }
    if facts.watch.waits.never > 0 {
        columns.push(Column { label: "never".into(), passed: 0, denied: facts.watch.waits.never });
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
        let part = share(column.denied.into(), figures.denied.into());
        page.row(&[&column.label, &grouped(column.denied), &part]);
    }
    page.raw("</tbody></table></div>\n</div>\n<p>");
    let compliant = &figures.compliant;
    let sent = compliant.passed + compliant.denied;
    page.text(&format!(
        "A client that waits as it is told would have sent {} of the {}, and been denied {} ({}).",
        grouped(sent),
        plural(facts.report.log.requests, "request"),
        plural(compliant.denied, "time"),
        share(compliant.denied.into(), sent.into()),
    ));
    page.raw("</p>\n</section>\n");
}

fn write_changes(facts: &Facts<'_>, page: &mut Markup) {
    let Some(changes) = &facts.report.changes else { return };
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
        // These names are not hashed.
        if !facts.clients.are_hashed() {
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

fn write_algorithms(facts: &Facts<'_>, page: &mut Markup) {
    let mut outcomes: Vec<&Outcome> = facts.report.results.iter().chain(facts.beside).collect();
    let place = |outcome: &Outcome| {
        tollgate::Algorithm::ALL.iter().position(|algorithm| algorithm.to_string() == outcome.algorithm)
    };
    outcomes.sort_by_key(|outcome| place(outcome));
    page.raw("<section>\n<h2>Algorithms compared</h2>\n<p class=\"soft\">The same log with the same limit. ");
    page.raw("Windows and logs have no burst, and run without it.</p>\n<table>\n");
    page.raw("<thead><tr><th scope=\"col\">algorithm</th><th scope=\"col\" class=\"optional\">limit</th>");
    page.raw("<th scope=\"col\">denied</th><th scope=\"col\">clients</th>");
    page.raw(
        "<th scope=\"col\">longest wait</th><th scope=\"col\">in proportion</th></tr></thead>\n<tbody>\n",
    );
    let figures = outcomes.iter().filter_map(|outcome| outcome.figures.as_ref());
    let tallest = figures.map(|figures| figures.denied).max().unwrap_or(1);
    for outcome in outcomes {
        page.raw("<tr><th scope=\"row\" class=\"name\">")
            .text(&outcome.algorithm)
            .raw("</th><td class=\"optional\">");
        page.text(&outcome.limit).raw("</td>");
        let Some(figures) = &outcome.figures else {
            page.raw("<td>refused</td><td></td><td></td><td></td></tr>\n");
            continue;
        };
        let all = u128::from(figures.passed) + u128::from(figures.denied);
        let wait = figures.longest_wait.as_ref().map_or(0, |wait| wait.ns);
        page.raw("<td>").text(&format!(
            "{} ({})",
            grouped(figures.denied),
            share(figures.denied.into(), all)
        ));
        page.raw("</td><td>").shown(grouped(figures.keys_denied as u64)).raw("</td><td>");
        page.text(&duration(Duration::from_nanos(wait))).raw("</td>");
        write_bar(0, figures.denied, tallest, page);
        page.raw("</tr>\n");
    }
    page.raw("</tbody></table>\n</section>\n");
}

fn write_settings(facts: &Facts<'_>, page: &mut Markup) {
    let (report, log) = (facts.report, &facts.report.log);
    page.raw("<section>\n<h2>How this was made</h2>\n<pre><code>");
    page.text(&cut(&facts.settings.command, LONGEST_COMMAND)).raw("</code></pre>\n");
    page.raw("<table class=\"settings\"><tbody>\n");
    let algorithms: Vec<&str> = report.results.iter().map(|outcome| &*outcome.algorithm).collect();
    let cost = if report.cost == "1" { "1" } else { "the bytes of the response" };
    let order = match report.order {
        "time" => "sorted by time",
        _ => "as they arrived; for each client time never runs backwards",
    };
    page.row(&["limit", &report.limit]).row(&["algorithm", &algorithms.join(", ")]);
    page.row(&["a client is", &cut(&report.key, LONGEST)]).row(&["a request costs", cost]);
    page.row(&["order of requests", order]).row(&["time zone", "UTC"]);
    if let Some(own) = &report.key_quotas {
        let (keys, seen) = (plural(own.keys as u64, "key"), grouped(own.seen as u64));
        page.row(&["own quotas", &format!("{}: {keys}, {seen} seen", cut(&own.file, LONGEST))]);
    }
    for file in log.files.iter().take(MOST_FILES) {
        let format = file.format.as_deref().unwrap_or("unknown");
        page.row(&[
            "log",
            &format!("{} ({format}, {})", cut(&file.name, LONGEST), plural(file.lines, "line")),
        ]);
    }
    if log.files.len() > MOST_FILES {
        page.row(&["", &format!("and {} more", log.files.len() - MOST_FILES)]);
    }
    page.row(&["lines that do not parse", &grouped(log.unparsable)]);
    page.raw("</tbody></table>\n</section>\n");
}

fn write_notes(facts: &Facts<'_>, page: &mut Markup) {
    let log = &facts.report.log;
    // What does not parse may name clients.
    let bad_lines = if facts.clients.are_hashed() { &[][..] } else { &log.bad_lines };
    if log.notes.is_empty() && bad_lines.is_empty() && log.missing_key_fields.is_empty() {
        return;
    }
    page.raw("<section class=\"notes\">\n<h2>Notes</h2>\n<ul>\n");
    for missing in log.missing_key_fields.iter().take(MOST_FILES) {
        let text = format!(
            "{} without a value of '{}'",
            plural(missing.requests, "request"),
            cut(&missing.field, LONGEST)
        );
        page.raw("<li>").text(&text).raw("</li>\n");
    }
    for note in log.notes.iter().take(MOST_FILES) {
        page.raw("<li>").text(&cut(note, LONGEST)).raw("</li>\n");
    }
    for bad in bad_lines {
        let text = format!("{}:{} does not parse: {}", bad.file, bad.line, bad.reason);
        page.raw("<li>").text(&cut(&text, LONGEST)).raw("</li>\n");
    }
    page.raw("</ul>\n</section>\n");
}
