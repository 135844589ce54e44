//! Reports a replay as a single HTML page, for `--html`.
//!
//! The page loads nothing: it contains no script, no font, and no network address. Text from a log,
//! an argument or a file name can never become markup ([`markup`]). The size of the page does not
//! grow with the log, because pictures have a fixed number of columns and long lists are truncated.

mod chart;
mod clients;
mod markup;
mod page;
mod parts;
mod seen;
mod svg;
mod waits;

use std::path::Path;

use super::decisions::sink::{ReadFiles, Sink};
use super::engine::{Answer, Engine};
use super::log::summary::LogSummary;
use super::report::figures::{AlgorithmResult, Report};
use super::settings::{HtmlSettings, Settings};
use super::timeline::Timeline;
use crate::failure::Failure;
use clients::ClientNames;
use page::Facts;
use seen::Seen;

/// A page to write, with the counts collected for it.
pub(crate) struct Page<'s> {
    settings: &'s HtmlSettings,
    sink: Sink,
    seen: Seen,
}

impl<'s> Page<'s> {
    /// Opens the page's file.
    ///
    /// # Errors
    ///
    /// Returns an error if the file cannot be written, or if it is one of the `read` files.
    pub(crate) fn open(settings: &'s HtmlSettings, read: &ReadFiles<'_>) -> Result<Self, Failure> {
        if settings.path == Path::new("-") {
            return Err(Failure::refused(
                "--html -: the report goes to standard output; give --html a file, such as report.html",
            ));
        }
        let sink = Sink::open("--html", &settings.path, read)?;
        Ok(Self { settings, sink, seen: Seen::default() })
    }

    /// Counts a request, which the engine has just answered.
    pub(crate) fn judged(&mut self, engine: &Engine, answer: &Answer) {
        self.seen.add(engine, answer);
    }

    /// Writes the page.
    ///
    /// # Errors
    ///
    /// Returns an error if the file cannot be written, or if the system provides no random numbers
    /// for the hashes.
    pub(crate) fn write(
        self,
        settings: &Settings,
        report: &Report,
        engine: &Engine,
        log: &LogSummary,
        timeline: &Timeline,
    ) -> Result<(), Failure> {
        let all: Vec<AlgorithmResult> =
            engine.entries.iter().map(|entry| AlgorithmResult::new(entry, engine, log)).collect();
        let facts = Facts {
            html: self.settings,
            settings,
            report,
            algorithms: &all,
            engine,
            clients: ClientNames::new(self.settings.are_clients_hashed)?,
            timeline,
            seen: &self.seen,
        };
        self.sink.write_whole(&self.settings.path, &page::page(&facts))
    }
}
