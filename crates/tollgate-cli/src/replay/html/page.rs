//! The sections of a page.

use std::time::Duration;

use super::chart::{self, Column};
use super::clients::Clients;
use super::markup::Markup;
use super::parts::{self, LONGEST, LONGEST_NAME, MOST_FILES, MOST_ROWS};
use super::seen::Seen;
use crate::printable::{cut, printable};
use crate::replay::engine::{Engine, Limits};
use crate::replay::html_settings::HtmlSettings;
use crate::replay::report::figures::{Class, Figures, Limit, Outcome, Report};
use crate::replay::report::quantity::{duration, grouped, plural, share, shares};
use crate::replay::timeline::Timeline;

/// The facts that a page shows.
pub(crate) struct Facts<'r> {
    pub(crate) settings: &'r HtmlSettings,
    pub(crate) limits: &'r Limits,
    pub(crate) report: &'r Report,
    /// The results of all algorithms.
    pub(crate) algorithms: &'r [Outcome],
    pub(crate) engine: &'r Engine,
    pub(crate) clients: Clients,
    pub(crate) timeline: &'r Timeline,
    pub(crate) seen: &'r Seen,
}

impl Facts<'_> {
    /// Returns the limit, if there is only one.
    fn only(&self) -> Option<&Limit> {
        match &self.report.limits[..] {
            [only] => Some(only),
            _ => None,
        }
    }

    /// Returns whether the only limit has no name, so that the page needs no table of limits.
    fn is_quota(&self) -> bool {
        self.only().is_some_and(|only| only.is_by_fields && !only.shadow)
    }
}

/// Returns the whole page.
pub(crate) fn page(facts: &Facts<'_>) -> String {
    let mut page = parts::begin(&title(facts));
    write_head(facts, &mut page);
    match facts.report.main().filter(|_| !facts.report.is_empty()) {
        Some((_, figures)) => {
            write_figures(facts, figures, &mut page);
            parts::write_timeline(facts.timeline, &mut page);
            if !facts.is_quota() {
                write_limits(facts, &mut page);
            }
            if facts.only().is_some() {
                write_rates(facts, &mut page);
            }
            for (number, limit) in facts.report.limits.iter().enumerate() {
                write_denied(facts, (number, limit), &mut page);
            }
            parts::write_waits(&facts.seen.waits, &compliant(facts, figures), &mut page);
            if let Some(changes) = &facts.report.changes {
                parts::write_changes(changes, facts.clients.are_hashed(), &mut page);
            }
            write_algorithms(facts, &mut page);
        }
        None => _ = page.raw("<p>The log is empty: there are no requests to replay.</p>\n"),
    }
    write_settings(facts, &mut page);
    write_notes(facts, &mut page);
    parts::end(page)
}

fn title(facts: &Facts<'_>) -> String {
    match (facts.only(), &facts.report.key) {
        (Some(only), Some(key)) => format!("{} per {}", name(only), cut(key, LONGEST)),
        _ => plural(facts.report.limits.len() as u64, "limit"),
    }
}

fn write_head(facts: &Facts<'_>, page: &mut Markup) {
    let log = &facts.report.log;
    page.raw("<p class=\"soft\">").text(&plural(log.requests, "request"));
    if let Some(only) = facts.only() {
        page.text(&format!(" of {}", plural(only.keys as u64, "client")));
    }
    if let Some(span) = log.span() {
        page.text(&format!(", {span}"));
    }
    page.text(&format!(". Algorithm: {}", facts.engine.algorithm())).raw(".</p>\n</header>\n");
}

fn write_figures(facts: &Facts<'_>, figures: &Figures, page: &mut Markup) {
    let [passed, denied] = shares(figures.passed.into(), figures.denied.into());
    let of_clients = match facts.only() {
        Some(only) => format!("of {} were denied something", plural(only.keys as u64, "client")),
        None => "keys of limits were denied something".to_owned(),
    };
    let limits = facts.report.limits.iter().filter(|limit| !limit.shadow);
    let keys: usize = limits.map(|limit| limit.keys_refused).sum();
    let longest = figures.longest_wait.as_ref().map_or(0, |wait| wait.ns);
    let tiles = [
        ("good", passed, format!("{} passed", plural(figures.passed, "request"))),
        ("bad", denied, format!("{} denied", plural(figures.denied, "request"))),
        ("", grouped(keys as u64), of_clients),
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

fn write_limits(facts: &Facts<'_>, page: &mut Markup) {
    page.raw(
        "<section>\n<h2>Which limit denies</h2>\n<p class=\"soft\">A limit in shadow mode denies nothing: ",
    );
    page.raw("what it would have denied counts here.</p>\n");
    parts::write_legend("passed, or denied by another limit", "denied", page);
    page.raw(
        "<div class=\"table\"><table>\n<thead><tr><th scope=\"col\">limit</th><th scope=\"col\">class</th>",
    );
    page.raw("<th scope=\"col\" class=\"optional\">requests</th><th scope=\"col\">denied</th>");
    page.raw("<td></td></tr></thead>\n<tbody>\n");
    let classes =
        || facts.report.limits.iter().flat_map(|limit| limit.classes.iter().map(move |class| (limit, class)));
    let denied = |class: &Class| class.counts.refused() + class.counts.would_refuse;
    let others = |class: &Class| {
        class.counts.passed + class.counts.passed_without_key + class.counts.refused_by_another
    };
    let tallest = classes().map(|(_, class)| denied(class) + others(class)).max().unwrap_or(1);
    for (limit, class) in classes().take(MOST_ROWS) {
        let (denied, others) = (denied(class), others(class));
        page.raw("<tr><th scope=\"row\">").text(&name(limit)).raw("</th><td>");
        page.text(&cut(
            &class.class.as_deref().map_or(String::new(), |class| printable(class.as_bytes())),
            LONGEST_NAME,
        ));
        page.raw("</td><td class=\"optional\">").shown(grouped(denied + others)).raw("</td><td>");
        page.text(&format!("{} ({})", grouped(denied), share(denied.into(), (denied + others).into())));
        page.raw("</td>");
        parts::write_bar(others, denied, tallest, page);
        page.raw("</tr>\n");
    }
    page.raw("</tbody></table></div>\n</section>\n");
}

fn name(limit: &Limit) -> String {
    let shadow = if limit.shadow { " (shadow)" } else { "" };
    format!("{}{shadow}", cut(&printable(limit.limit.as_bytes()), LONGEST_NAME))
}

fn write_rates(facts: &Facts<'_>, page: &mut Markup) {
    let Some((limit, main)) = facts.engine.limits.first().zip(facts.engine.main()) else { return };
    // Groups the keys by the number of requests in their busiest minute. Each group covers a range
    // twice as wide as the previous group's: 1, 2, 3 to 4, 5 to 8.
    let mut classes: Vec<(u64, u64)> = Vec::new();
    let ids = 0..limit.keys.requests().len();
    for id in ids.filter(|&id| limit.keys.requests()[id] > 0) {
        let most = facts.seen.busiest_minute(0, id).max(1);
        let class = most.next_power_of_two().trailing_zeros() as usize;
        if classes.len() <= class {
            classes.resize(class + 1, (0, 0));
        }
        if main.denied(0, id) > 0 {
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

fn write_denied(facts: &Facts<'_>, (number, limit): (usize, &Limit), page: &mut Markup) {
    page.raw("<section>\n<h2>Who is denied");
    if !facts.is_quota() {
        page.raw(" by ").text(&name(limit));
    }
    page.raw("</h2>\n");
    // The maximum number of rows is shared by all limits.
    let rows = facts.settings.top.min(MOST_ROWS / facts.report.limits.len().max(1));
    let keys = limit.top_refused.get(..rows).unwrap_or(&limit.top_refused);
    if limit.keys_refused == 0 {
        page.raw("<p>Nobody.</p>\n</section>\n");
        return;
    }
    if facts.clients.are_hashed() {
        page.raw(
            "<p class=\"soft\">Clients are shown by hashes with a random key that was not kept: the same client has \
             the same hash on this page only.</p>\n",
        );
    }
    let tallest = keys.iter().map(|key| key.requests).max().unwrap_or(1);
    parts::write_legend("passed, or denied by another limit", "denied", page);
    page.raw(
        "<div class=\"table\"><table>\n<thead><tr><th scope=\"col\">client</th><th scope=\"col\" class=\"optional\">requests</th>",
    );
    page.raw("<th scope=\"col\">denied</th><th scope=\"col\" class=\"optional\">busiest minute</th>");
    page.raw("<th scope=\"col\" class=\"optional\">longest wait</th><td></td></tr></thead>\n<tbody>\n");
    for key in keys {
        page.raw("<tr><th scope=\"row\">").text(&facts.clients.shown(&key.key)).raw("</th>");
        page.raw("<td class=\"optional\">").shown(grouped(key.requests)).raw("</td><td>");
        page.text(&format!("{} ({})", grouped(key.refused), share(key.refused.into(), key.requests.into())));
        page.raw("</td><td class=\"optional\">").shown(grouped(facts.seen.busiest_minute(number, key.id)));
        let wait = facts.seen.longest_wait(number, key.id);
        page.raw("</td><td class=\"optional\">").text(&duration(wait)).raw("</td>");
        parts::write_bar(key.requests - key.refused, key.refused, tallest, page);
        page.raw("</tr>\n");
    }
    page.raw("</tbody></table></div>\n");
    let more = limit.keys_refused - keys.len();
    if more > 0 {
        page.raw("<p class=\"soft\">And ").text(&plural(more as u64, "other client"));
        page.raw(" (--top shows more).</p>\n");
    }
    page.raw("</section>\n");
}

fn write_algorithms(facts: &Facts<'_>, page: &mut Markup) {
    page.raw(
        "<section>\n<h2>Algorithms compared</h2>\n<p class=\"soft\">The same log with the same limits. ",
    );
    page.raw("Windows and logs have no burst, and run without it.</p>\n<div class=\"table\"><table>\n");
    page.raw("<thead><tr><th scope=\"col\">algorithm</th>");
    page.raw("<th scope=\"col\">denied</th><th scope=\"col\" class=\"optional\">clients</th>");
    page.raw("<th scope=\"col\">longest wait</th><td></td></tr></thead>\n<tbody>\n");
    let figures = facts.algorithms.iter().filter_map(|outcome| outcome.figures.as_ref());
    let tallest = figures.map(|figures| figures.denied).max().unwrap_or(1);
    for outcome in facts.algorithms {
        page.raw("<tr><th scope=\"row\" class=\"name\">").text(&outcome.algorithm).raw("</th><td>");
        let Some(figures) = &outcome.figures else {
            let why = outcome.refused.as_deref().unwrap_or_default();
            page.text(&cut(&format!("refused: {why}"), LONGEST));
            page.raw("</td><td class=\"optional\"></td><td></td><td></td></tr>\n");
            continue;
        };
        let all = u128::from(figures.passed) + u128::from(figures.denied);
        let wait = figures.longest_wait.as_ref().map_or(0, |wait| wait.ns);
        page.text(&format!("{} ({})", grouped(figures.denied), share(figures.denied.into(), all)));
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
    for limit in facts.limits.layer.limits.iter().take(MOST_FILES) {
        let text = match facts.limits.by_fields.contains(&limit.name) {
            true => limit.name.clone(),
            false => limit.to_string(),
        };
        page.row(&["limit", &cut(&printable(text.as_bytes()), LONGEST)]);
    }
    let algorithms: Vec<&str> = report.results.iter().map(|outcome| &*outcome.algorithm).collect();
    page.row(&["algorithm", &algorithms.join(", ")]);
    if let Some(key) = &report.key {
        page.row(&["a client is", &cut(key, LONGEST)]);
    }
    let cost = if report.cost == "1" { "1" } else { "the bytes of the response" };
    let order = match report.order {
        "time" => "sorted by time",
        _ => "as they arrived; time never runs backwards",
    };
    page.row(&["a request costs", cost]).row(&["order of requests", order]).row(&["time zone", "UTC"]);
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
