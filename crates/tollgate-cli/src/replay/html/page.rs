//! The sections of a page.

use std::time::Duration;

use super::chart::{self, Column};
use super::clients::Clients;
use super::markup::Markup;
use super::parts::{self, LONGEST, MOST_FILES, MOST_ROWS};
use super::watch::Watch;
use crate::printable::cut;
use crate::replay::html_settings::HtmlSettings;
use crate::replay::keys::Keys;
use crate::replay::report::Report;
use crate::replay::report::figures::{Figures, Outcome};
use crate::replay::report::quantity::{duration, grouped, plural, share, shares};
use crate::replay::simulation::Simulation;

/// The facts that a page shows.
pub(crate) struct Facts<'r> {
    pub(crate) settings: &'r HtmlSettings,
    pub(crate) report: &'r Report,
    /// The results of the other algorithms.
    pub(crate) beside: &'r [Outcome],
    /// The simulation of the first algorithm.
    pub(crate) main: Option<&'r Simulation>,
    pub(crate) keys: &'r Keys,
    pub(crate) clients: Clients,
    pub(crate) watch: &'r Watch,
}

/// Returns the whole page.
pub(crate) fn page(facts: &Facts<'_>) -> String {
    let mut page = parts::begin(&title(facts));
    write_head(facts, &mut page);
    if let (Some(main), Some(figures)) = (facts.main, main_figures(facts)) {
        write_figures(facts, figures, &mut page);
        parts::write_timeline(&main.timeline, &mut page);
        write_rates(facts, main, &mut page);
        write_denied(facts, main, &mut page);
        parts::write_waits(&facts.watch.waits, &compliant(facts, figures), &mut page);
        if let Some(changes) = &facts.report.changes {
            parts::write_changes(changes, facts.clients.are_hashed(), &mut page);
        }
        write_algorithms(facts, &mut page);
    } else {
        page.raw("<p>The log is empty: there are no requests to replay.</p>\n");
    }
    write_settings(facts, &mut page);
    write_notes(facts, &mut page);
    parts::end(page)
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
    page.raw("<p class=\"soft\">");
    let log = &facts.report.log;
    page.text(&format!("{} of {}", plural(log.requests, "request"), plural(log.more.keys as u64, "client")));
    if let Some(span) = log.span() {
        page.text(&format!(", {span}"));
    }
    if let Some(outcome) = main_outcome(facts) {
        page.text(&format!(". Algorithm: {}", outcome.algorithm));
    }
    page.raw(".</p>\n</header>\n");
}

fn write_figures(facts: &Facts<'_>, figures: &Figures, page: &mut Markup) {
    let [passed, denied] = shares(figures.passed.into(), figures.denied.into());
    let clients = plural(facts.report.log.more.keys as u64, "client");
    let longest = figures.longest_wait.as_ref().map_or(0, |wait| wait.ns);
    let tiles = [
        ("good", passed, format!("{} passed", plural(figures.passed, "request"))),
        ("bad", denied, format!("{} denied", plural(figures.denied, "request"))),
        ("", grouped(figures.keys_denied as u64), format!("of {clients} were denied something")),
        ("", duration(Duration::from_nanos(longest)), "longest wait that a client was told".to_owned()),
    ];
    parts::write_tiles(tiles, page);
}

/// Returns a sentence about a client that waits out the retry-after of each denial.
fn compliant(facts: &Facts<'_>, figures: &Figures) -> String {
    let compliant = &figures.compliant;
    let sent = compliant.passed + compliant.denied;
    format!(
        "A client that waits as it is told would have sent {} of the {}, and been denied {} ({}).",
        grouped(sent),
        plural(facts.report.log.requests, "request"),
        plural(compliant.denied, "time"),
        share(compliant.denied.into(), sent.into()),
    )
}

fn write_rates(facts: &Facts<'_>, main: &Simulation, page: &mut Markup) {
    // Groups the keys by the number of requests in their busiest minute. Each group covers a range
    // twice as wide as the previous group's: 1, 2, 3 to 4, 5 to 8.
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
    parts::write_legend("clients that were denied nothing", "clients that were denied something", page);
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
    parts::write_legend("passed", "denied", page);
    page.raw(
        "<div class=\"table\"><table>\n<thead><tr><th scope=\"col\">client</th><th scope=\"col\" class=\"optional\">requests</th>",
    );
    page.raw("<th scope=\"col\">denied</th><th scope=\"col\" class=\"optional\">busiest minute</th>");
    page.raw("<th scope=\"col\" class=\"optional\">longest wait</th><td></td></tr></thead>\n<tbody>\n");
    for &id in &ids {
        let (requests, denied) = (facts.keys.requests(id), main.denied(id));
        page.raw("<tr><th scope=\"row\">").text(&facts.clients.name(keys[id])).raw("</th>");
        page.raw("<td class=\"optional\">").shown(grouped(requests)).raw("</td><td>");
        page.text(&format!("{} ({})", grouped(denied), share(denied.into(), requests.into())));
        page.raw("</td><td class=\"optional\">").shown(grouped(facts.watch.rates.busiest_minute(id)));
        page.raw("</td><td class=\"optional\">").text(&duration(facts.watch.longest_wait(id))).raw("</td>");
        parts::write_bar(requests - denied, denied, tallest, page);
        page.raw("</tr>\n");
    }
    page.raw("</tbody></table></div>\n");
    if all > ids.len() {
        let more = plural((all - ids.len()) as u64, "other client");
        page.raw("<p class=\"soft\">And ").text(&more).raw(" (--top shows more).</p>\n");
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
    page.raw("Windows and logs have no burst, and run without it.</p>\n<div class=\"table\"><table>\n");
    page.raw("<thead><tr><th scope=\"col\">algorithm</th><th scope=\"col\" class=\"optional\">limit</th>");
    page.raw("<th scope=\"col\">denied</th><th scope=\"col\" class=\"optional\">clients</th>");
    page.raw("<th scope=\"col\">longest wait</th><td></td></tr></thead>\n<tbody>\n");
    let figures = outcomes.iter().filter_map(|outcome| outcome.figures.as_ref());
    let tallest = figures.map(|figures| figures.denied).max().unwrap_or(1);
    for outcome in outcomes {
        page.raw("<tr><th scope=\"row\" class=\"name\">")
            .text(&outcome.algorithm)
            .raw("</th><td class=\"optional\">");
        page.text(&outcome.limit).raw("</td>");
        let Some(figures) = &outcome.figures else {
            page.raw("<td>refused</td><td class=\"optional\"></td><td></td><td></td></tr>\n");
            continue;
        };
        let all = u128::from(figures.passed) + u128::from(figures.denied);
        let wait = figures.longest_wait.as_ref().map_or(0, |wait| wait.ns);
        page.raw("<td>").text(&format!(
            "{} ({})",
            grouped(figures.denied),
            share(figures.denied.into(), all)
        ));
        page.raw("</td><td class=\"optional\">").shown(grouped(figures.keys_denied as u64)).raw("</td><td>");
        page.text(&duration(Duration::from_nanos(wait))).raw("</td>");
        parts::write_bar(0, figures.denied, tallest, page);
        page.raw("</tr>\n");
    }
    page.raw("</tbody></table></div>\n</section>\n");
}

fn write_settings(facts: &Facts<'_>, page: &mut Markup) {
    let report = facts.report;
    parts::begin_settings(facts.settings, page);
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
    parts::end_settings(&report.log, page);
}

fn write_notes(facts: &Facts<'_>, page: &mut Markup) {
    let log = &facts.report.log;
    let missing = log.more.missing_key_fields.iter().take(MOST_FILES).map(|missing| {
        let field = cut(&missing.field, LONGEST);
        format!("{} without a value of '{field}'", plural(missing.requests, "request"))
    });
    parts::write_notes(missing, log, facts.clients.are_hashed(), page);
}
