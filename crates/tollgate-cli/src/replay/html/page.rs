//! The sections of a page.

use std::time::Duration;

use super::chart::Column;
use super::clients::ClientNames;
use super::markup::Markup;
use super::parts::{self, LONGEST_NAME, MOST_ROWS};
use super::seen::Seen;
use crate::printable::{cut, printable};
use crate::replay::engine::Engine;
use crate::replay::engine::limit::RefusedKey;
use crate::replay::engine::trial::Totals;
use crate::replay::log::schema::Cost;
use crate::replay::report::figures::{AlgorithmResult, Class, Figures, LimitReport, Report};
use crate::replay::report::quantity::{duration, grouped, plural, share, shares};
use crate::replay::settings::{HtmlSettings, Settings};
use crate::replay::timeline::Timeline;

/// The maximum number of files in a list, and the maximum lengths of text from outside this
/// program, in characters.
const MOST_FILES: usize = 20;
const LONGEST: usize = 1_000;
const LONGEST_COMMAND: usize = 20_000;

/// The facts that a page shows.
pub(crate) struct Facts<'r> {
    pub(crate) html: &'r HtmlSettings,
    pub(crate) settings: &'r Settings,
    pub(crate) report: &'r Report,
    /// The results of all algorithms.
    pub(crate) algorithms: &'r [AlgorithmResult],
    pub(crate) engine: &'r Engine,
    pub(crate) clients: ClientNames,
    pub(crate) timeline: &'r Timeline,
    pub(crate) seen: &'r Seen,
}

impl Facts<'_> {
    /// Returns the limit, if there is only one.
    fn only(&self) -> Option<&LimitReport> {
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
        Some(figures) => {
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
    let clients = facts.only().map(|only| format!(" of {}", plural(only.keys as u64, "client")));
    let span = log.span().map(|span| format!(", {span}"));
    page.add(
        "<p class=\"soft\">{}{}{}. Algorithm: {}.</p>\n</header>\n",
        &[
            &plural(log.requests, "request"),
            &clients.unwrap_or_default(),
            &span.unwrap_or_default(),
            &facts.engine.algorithm(),
        ],
    );
}

fn write_figures(facts: &Facts<'_>, figures: &Figures, page: &mut Markup) {
    let [passed, denied] = shares(figures.totals.passed.into(), figures.totals.denied.into());
    let of_clients = match facts.only() {
        Some(only) => format!("of {} were denied something", plural(only.keys as u64, "client")),
        None => "keys of limits were denied something".to_owned(),
    };
    let limits = facts.report.limits.iter().filter(|limit| !limit.shadow);
    let keys: usize = limits.map(|limit| limit.keys_refused).sum();
    let longest = figures.longest_wait.as_ref().map_or(0, |wait| wait.ns);
    let tiles = [
        ("good", passed, format!("{} passed", plural(figures.totals.passed, "request"))),
        ("bad", denied, format!("{} denied", plural(figures.totals.denied, "request"))),
        ("", grouped(keys as u64), of_clients),
        ("", duration(Duration::from_nanos(longest)), "longest wait that a client was told".to_owned()),
    ];
    page.raw("<div class=\"figures\">\n");
    for (class, figure, label) in tiles {
        page.add("<div class=\"{}\"><b>{}</b><span>{}</span></div>\n", &[&class, &figure, &label]);
    }
    page.raw("</div>\n");
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
    page.section("Which limit denies")
        .raw("A limit in shadow mode denies nothing: what it would have denied counts here.</p>\n");
    parts::write_legend("passed, or denied by another limit", "denied", page);
    let classes =
        facts.report.limits.iter().flat_map(|limit| limit.classes.iter().map(move |it| (limit, it)));
    let row = |(limit, Class { class, counts }): (&LimitReport, &Class)| {
        let denied = counts.refused() + counts.would_refuse;
        let others = counts.passed + counts.passed_without_key + counts.refused_by_another;
        let class = class.as_deref().map_or(String::new(), |class| printable(class.as_bytes()));
        let share = share(denied.into(), (denied + others).into());
        let cells = [
            name(limit),
            cut(&class, LONGEST_NAME).into_owned(),
            grouped(denied + others),
            format!("{} ({share})", grouped(denied)),
        ];
        (cells, [others, denied])
    };
    let rows: Vec<_> = classes.take(MOST_ROWS).map(row).collect();
    let columns = [("", "limit"), ("", "class"), ("optional", "requests"), ("", "denied")];
    parts::write_bars(columns, &rows, page);
    page.raw("</section>\n");
}

fn name(limit: &LimitReport) -> String {
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
        let most = facts.seen.of(0, id).busiest_minute.max(1);
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
    let column = |(class, &(passed, denied))| Column { label: range(class), passed, denied };
    let columns: Vec<Column> = classes.iter().enumerate().map(column).collect();
    page.section("How busy clients are")
        .raw("Clients by the number of requests in their busiest minute of the clock.</p>\n");
    parts::write_legend("clients that were denied nothing", "clients that were denied something", page);
    let rows = columns
        .iter()
        .map(|Column { label, passed, denied }| [label.clone(), grouped(passed + denied), grouped(*denied)]);
    let title = "Clients by the requests in their busiest minute";
    parts::write_picture(&columns, title, ["requests a minute", "clients", "of them denied"], rows, page);
    page.raw("</section>\n");
}

fn write_denied(facts: &Facts<'_>, (number, limit): (usize, &LimitReport), page: &mut Markup) {
    let by = if facts.is_quota() { String::new() } else { format!(" by {}", name(limit)) };
    page.add("<section>\n<h2>Who is denied{}</h2>\n", &[&by]);
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
    parts::write_legend("passed, or denied by another limit", "denied", page);
    let row = |key: &RefusedKey| {
        let seen = facts.seen.of(number, key.id);
        let share = share(key.refused.into(), key.requests.into());
        let cells = [
            facts.clients.shown(&key.key),
            grouped(key.requests),
            format!("{} ({share})", grouped(key.refused)),
            grouped(seen.busiest_minute),
            duration(seen.longest_wait),
        ];
        (cells, [key.requests - key.refused, key.refused])
    };
    let columns = [
        ("", "client"),
        ("optional", "requests"),
        ("", "denied"),
        ("optional", "busiest minute"),
        ("optional", "longest wait"),
    ];
    parts::write_bars(columns, &keys.iter().map(row).collect::<Vec<_>>(), page);
    let more = limit.keys_refused - keys.len();
    if more > 0 {
        let more = plural(more as u64, "other client");
        page.add("<p class=\"soft\">And {} (--top shows more).</p>\n", &[&more]);
    }
    page.raw("</section>\n");
}

fn write_algorithms(facts: &Facts<'_>, page: &mut Markup) {
    page.section("Algorithms compared")
        .raw("The same log with the same limits. Windows and logs have no burst, and run without it.</p>\n");
    let row = |outcome: &AlgorithmResult| {
        let algorithm = outcome.algorithm.clone();
        let Some(figures) = &outcome.figures else {
            let why = format!("refused: {}", outcome.refused.as_deref().unwrap_or_default());
            return ([algorithm, cut(&why, LONGEST).into_owned(), String::new(), String::new()], [0, 0]);
        };
        let Totals { passed, denied, .. } = figures.totals;
        let share = share(denied.into(), u128::from(passed) + u128::from(denied));
        let wait = figures.longest_wait.as_ref().map_or(0, |wait| wait.ns);
        let cells = [
            algorithm,
            format!("{} ({share})", grouped(denied)),
            grouped(figures.keys_denied as u64),
            duration(Duration::from_nanos(wait)),
        ];
        (cells, [0, denied])
    };
    let columns = [("name", "algorithm"), ("", "denied"), ("optional", "clients"), ("", "longest wait")];
    parts::write_bars(columns, &facts.algorithms.iter().map(row).collect::<Vec<_>>(), page);
    page.raw("</section>\n");
}

fn write_settings(facts: &Facts<'_>, page: &mut Markup) {
    let report = facts.report;
    page.add(
        "<section>\n<h2>How this was made</h2>\n<pre><code>{}</code></pre>\n\
         <div class=\"table\"><table class=\"settings\"><tbody>\n",
        &[&cut(&facts.html.command, LONGEST_COMMAND)],
    );
    let limits = &facts.settings.limits;
    for limit in limits.layer.limits.iter().take(MOST_FILES) {
        let text = match limits.by_fields.contains(&limit.name) {
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
    let cost = if report.cost == Cost::One { "1" } else { "the bytes of the response" };
    let order = match report.order {
        "time" => "sorted by time",
        _ => "as they arrived; time never runs backwards",
    };
    page.row(&["a request costs", cost]).row(&["order of requests", order]).row(&["time zone", "UTC"]);
    if let Some(own) = &report.key_quotas {
        let (keys, seen) = (plural(own.keys as u64, "key"), grouped(own.seen as u64));
        page.row(&["own quotas", &format!("{}: {keys}, {seen} seen", cut(&own.file, LONGEST))]);
    }
    let log = &report.log;
    for file in log.files.iter().take(MOST_FILES) {
        let (name, lines) = (cut(&file.name, LONGEST), plural(file.lines, "line"));
        page.row(&["log", &format!("{name} ({}, {lines})", file.format_name())]);
    }
    if log.files.len() > MOST_FILES {
        page.row(&["", &format!("and {} more", log.files.len() - MOST_FILES)]);
    }
    page.row(&["lines that do not parse", &grouped(log.unparsable)]);
    page.raw("</tbody></table></div>\n</section>\n");
}

/// Writes the missing fields, the notes on the logs and the lines that do not parse, if there are
/// any.
fn write_notes(facts: &Facts<'_>, page: &mut Markup) {
    let log = &facts.report.log;
    let missing = log.more.missing_key_fields.iter().take(MOST_FILES).map(|missing| {
        let field = cut(&missing.field, LONGEST);
        format!("{} without a value of '{field}'", plural(missing.requests, "request"))
    });
    // A line that does not parse may contain a client's name.
    let bad_lines = if facts.clients.are_hashed() { &[][..] } else { &log.bad_lines };
    let bad_lines =
        bad_lines.iter().map(|bad| format!("{}:{} does not parse: {}", bad.file, bad.line, bad.reason));
    let notes: Vec<String> =
        missing.chain(log.notes.iter().take(MOST_FILES).cloned()).chain(bad_lines).collect();
    if notes.is_empty() {
        return;
    }
    page.raw("<section class=\"notes\">\n<h2>Notes</h2>\n<ul>\n");
    for note in &notes {
        page.add("<li>{}</li>\n", &[&cut(note, LONGEST)]);
    }
    page.raw("</ul>\n</section>\n");
}
