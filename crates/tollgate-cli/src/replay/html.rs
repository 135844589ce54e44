//! Reports a replay as a single HTML page, for `--html`.
//!
//! The page loads nothing: it contains no script, no font, and no network address. Text from a log,
//! an argument or a file name can never become markup ([`markup`]). The size of the page does not
//! grow with the log, because pictures have a fixed number of columns and long lists are truncated.

mod chart;
mod clients;
mod limits_page;
mod markup;
mod page;
mod parts;
mod rates;
mod svg;
mod waits;
pub(crate) mod watch;

use std::io::Write;
use std::path::Path;
use std::time::Duration;

use tollgate::Tick;

use super::decisions::sink::{ReadFiles, Sink};
use super::entry::Entry;
use super::html_settings::HtmlSettings;
use super::keys::Keys;
use super::log::key::KeyShape;
use super::report::Report;
use super::timeline::Timeline;
use crate::failure::Failure;
use crate::printable::printable_path;
use crate::replay::limits::report::Report as LimitsReport;
use clients::Clients;
use page::Facts;
use waits::Waits;
use watch::Watch;

/// A page to write.
pub(crate) struct Page<'s> {
    settings: &'s HtmlSettings,
    sink: Sink,
}

impl<'s> Page<'s> {
    /// Opens the page's file.
    ///
    /// # Errors
    ///
    /// Returns an error if the file cannot be written, or if it is one of the `read` files.
    pub(crate) fn open(settings: &'s HtmlSettings, read: &ReadFiles<'_>) -> Result<Self, Failure> {
        Ok(Self { settings, sink: open(settings, read)? })
    }

    /// Writes the page.
    ///
    /// # Errors
    ///
    /// Returns an error if the file cannot be written, or if the system provides no random numbers
    /// for the hashes.
    pub(crate) fn write(
        self,
        report: &Report,
        beside: &Report,
        entries: &[Entry],
        keys: &Keys,
        watch: &Watch,
        key_fields: usize,
    ) -> Result<(), Failure> {
        let main = entries.iter().find_map(|entry| match entry {
            Entry::Simulated(simulation) => Some(&**simulation),
            Entry::Refused { .. } => None,
        });
        let facts = Facts {
            settings: self.settings,
            report,
            beside: &beside.results,
            main,
            keys,
            clients: Clients::new(KeyShape::new(key_fields), self.settings.are_clients_hashed)?,
            watch,
        };
        write(&page::page(&facts), self.settings, self.sink)
    }
}

/// A page about named limits, with the counts collected for it.
pub(crate) struct LimitsPage<'s> {
    settings: &'s HtmlSettings,
    sink: Sink,
    timeline: Timeline,
    waits: Waits,
    longest_wait: Duration,
}

impl<'s> LimitsPage<'s> {
    /// Opens the page's file.
    ///
    /// # Errors
    ///
    /// Returns the same errors as [`Page::open`].
    pub(crate) fn open(settings: &'s HtmlSettings, read: &ReadFiles<'_>) -> Result<Self, Failure> {
        Ok(Self {
            settings,
            sink: open(settings, read)?,
            timeline: Timeline::new(),
            waits: Waits::default(),
            longest_wait: Duration::ZERO,
        })
    }

    /// Counts a request. `refused` is `None` if the request passed. For a refused request,
    /// `refused` contains the retry-after, or `None` if the client was told no time.
    pub(crate) fn judged(&mut self, at: Tick, refused: Option<Option<Duration>>) {
        self.timeline.count(at.as_nanos() / 1_000_000_000, refused.is_none());
        if let Some(wait) = refused {
            self.waits.add(wait);
            self.longest_wait = self.longest_wait.max(wait.unwrap_or_default());
        }
    }

    /// Writes the page.
    ///
    /// # Errors
    ///
    /// Returns the same errors as [`Page::write`].
    pub(crate) fn write(self, report: &LimitsReport, limits: &[String]) -> Result<(), Failure> {
        let facts = limits_page::Facts {
            settings: self.settings,
            report,
            clients: Clients::new(KeyShape::new(1), self.settings.are_clients_hashed)?,
            timeline: &self.timeline,
            waits: &self.waits,
            longest_wait: self.longest_wait,
            limits,
        };
        write(&limits_page::page(&facts), self.settings, self.sink)
    }
}

/// Opens a page's file.
fn open(settings: &HtmlSettings, read: &ReadFiles<'_>) -> Result<Sink, Failure> {
    let path = &settings.path;
    if path == Path::new("-") {
        return Err(Failure::refused(
            "--html -: the report goes to standard output; give --html a file, such as report.html",
        ));
    }
    Sink::open("--html", path, read)
}

/// Writes a page to its file.
fn write(page: &str, settings: &HtmlSettings, mut sink: Sink) -> Result<(), Failure> {
    let written = sink.write_all(page.as_bytes());
    let done = written.and_then(|()| sink.finish());
    done.map_err(|error| Failure::writing(printable_path(&settings.path), &error))
}
