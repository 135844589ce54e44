//! The sections of a page about named limits.

use std::time::Duration;

use super::clients::Clients;
use super::markup::Markup;
use super::parts::{self, LONGEST, LONGEST_NAME, MOST_FILES, MOST_ROWS};
use super::waits::Waits;
use crate::printable::{cut, printable};
use crate::replay::html_settings::HtmlSettings;
use crate::replay::limits::report::{Class, Limit, Report};
use crate::replay::report::quantity::{duration, grouped, plural, share, shares};
use crate::replay::timeline::Timeline;

/// The facts that a page shows.
pub(crate) struct Facts<'r> {
    pub(crate) settings: &'r HtmlSettings,
    pub(crate) report: &'r Report,
    pub(crate) clients: Clients,
    pub(crate) timeline: &'r Timeline,
    pub(crate) waits: &'r Waits,
    pub(crate) longest_wait: Duration,
    /// The limits, as the user wrote them.
    pub(crate) limits: &'r [String],
}

/// Returns the whole page.
pub(crate) fn page(facts: &Facts<'_>) -> String {
    let report = facts.report;
    let mut page = parts::begin(&plural(report.limits.len() as u64, "limit"));
    page.raw("<p class=\"soft\">").text(&plural(report.log.requests, "request"));
    if let Some(span) = report.log.span() {
        page.text(&format!(", {span}"));
    }
    page.text(&format!(". Algorithm: {}", report.algorithm)).raw(".</p>\n</header>\n");
    let keys: usize =
        report.limits.iter().filter(|limit| !limit.shadow).map(|limit| limit.keys_refused).sum();
    let [passed, denied] = shares(report.passed.into(), report.refused.into());
    parts::write_tiles(
        [
            ("good", passed, format!("{} passed", plural(report.passed, "request"))),
            ("bad", denied, format!("{} denied", plural(report.refused, "request"))),
            ("", grouped(keys as u64), "keys of limits were denied something".to_owned()),
            ("", duration(facts.longest_wait), "longest wait that a client was told".to_owned()),
        ],
        &mut page,
    );
    parts::write_timeline(facts.timeline, &mut page);
    write_limits(facts, &mut page);
    write_algorithms(facts, &mut page);
    report.limits.iter().for_each(|limit| write_keys(facts, limit, &mut page));
    parts::write_waits(facts.waits, "", &mut page);
    if let Some(changes) = &report.changes {
        parts::write_changes(changes, facts.clients.are_hashed(), &mut page);
    }
    write_settings(facts, &mut page);
    parts::write_notes(std::iter::empty(), &report.log, facts.clients.are_hashed(), &mut page);
    parts::end(page)
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

fn write_algorithms(facts: &Facts<'_>, page: &mut Markup) {
    if facts.report.algorithms.is_empty() {
        return;
    }
    page.raw("<section>\n<h2>The algorithms</h2>\n");
    page.raw("<p class=\"soft\">Windows and logs take no burst, and ran without.</p>\n");
    page.raw("<div class=\"table\"><table>\n").head(&["algorithm", "passed", "denied"]);
    for it in &facts.report.algorithms {
        page.raw("<tr><th scope=\"row\">").text(&it.algorithm).raw("</th>");
        match (it.passed, it.refused) {
            (Some(passed), Some(refused)) => {
                page.raw("<td>").shown(grouped(passed)).raw("</td><td>").shown(grouped(refused)).raw("</td>");
            }
            _ => {
                let why = it.why.as_deref().unwrap_or_default();
                page.raw("<td>").text(&cut(why, LONGEST)).raw("</td><td></td>");
            }
        }
        page.raw("</tr>\n");
    }
    page.raw("</tbody></table></div>\n</section>\n");
}

fn write_keys(facts: &Facts<'_>, limit: &Limit, page: &mut Markup) {
    if limit.top_refused.is_empty() {
        return;
    }
    page.raw("<section>\n<h2>Who is denied by ").text(&name(limit)).raw("</h2>\n");
    if facts.clients.are_hashed() {
        page.raw("<p class=\"soft\">Keys are shown by hashes with a random key that was not kept.</p>\n");
    }
    page.raw(
        "<div class=\"table\"><table>\n<thead><tr><th scope=\"col\">key</th><th scope=\"col\">denied</th>",
    );
    page.raw("<td></td></tr></thead>\n<tbody>\n");
    let tallest = limit.top_refused.first().map_or(1, |key| key.refused);
    // The maximum number of rows is shared by all limits.
    let rows = MOST_ROWS / facts.report.limits.len().max(1);
    for key in limit.top_refused.iter().take(rows) {
        page.raw("<tr><th scope=\"row\">").text(&facts.clients.shown(&key.key)).raw("</th><td>");
        page.shown(grouped(key.refused)).raw("</td>");
        parts::write_bar(0, key.refused, tallest, page);
        page.raw("</tr>\n");
    }
    page.raw("</tbody></table></div>\n");
    let more = limit.keys_refused.saturating_sub(limit.top_refused.len().min(rows));
    if more > 0 {
        page.raw("<p class=\"soft\">And ").text(&plural(more as u64, "other key"));
        page.raw(" (--top shows more).</p>\n");
    }
    page.raw("</section>\n");
}

fn write_settings(facts: &Facts<'_>, page: &mut Markup) {
    let report = facts.report;
    parts::begin_settings(facts.settings, page);
    for limit in facts.limits.iter().take(MOST_FILES) {
        page.row(&["limit", &cut(limit, LONGEST)]);
    }
    let order = match report.order {
        "time" => "sorted by time",
        _ => "as they arrived; time never runs backwards",
    };
    page.row(&["algorithm", &report.algorithm]).row(&["order of requests", order]).row(&["time zone", "UTC"]);
    parts::end_settings(&report.log, page);
}
