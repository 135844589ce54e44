//! The report of a replay as one page of HTML: `--html`.
//!
//! The page needs nothing else: no script, no font, no address of the network. No text of a log, an
//! argument or a file name can become markup ([`markup`]). Its size does not grow with the log:
//! pictures have a fixed number of columns, and lists are cut.

mod chart;
mod clients;
mod markup;
mod page;
mod rates;
mod svg;
mod waits;
pub(crate) mod watch;

use std::io::Write;
use std::path::Path;

use super::decisions::sink::Sink;
use super::entry::Entry;
use super::html_settings::HtmlSettings;
use super::input::Input;
use super::keys::Keys;
use super::log::key::KeyShape;
use super::report::Report;
use crate::failure::Failure;
use crate::printable::printable_path;
use clients::Clients;
use page::Facts;
use watch::Watch;

/// A page to write, and what is gathered for it.
pub(crate) struct Page<'s> {
    settings: &'s HtmlSettings,
    sink: Sink,
    pub(crate) watch: Watch,
}

impl<'s> Page<'s> {
    /// Opens the file of the page.
    ///
    /// # Errors
    ///
    /// A file that cannot be written, or that is one of the logs.
    pub(crate) fn open(settings: &'s HtmlSettings, inputs: &[Input], watch: Watch) -> Result<Self, Failure> {
        let path = &settings.path;
        if path == Path::new("-") {
            return Err(Failure::refused(
                "--html -: the report goes to standard output; give --html a file, such as report.html",
            ));
        }
        Ok(Self { settings, sink: Sink::open("--html", path, inputs, None)?, watch })
    }

    /// Writes the page.
    ///
    /// # Errors
    ///
    /// The file cannot be written; the system has no random numbers for hashes.
    pub(crate) fn write(
        mut self,
        report: &Report,
        beside: &Report,
        entries: &[Entry],
        keys: &Keys,
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
            watch: &self.watch,
        };
        let page = page::page(&facts);
        let written = self.sink.write_all(page.as_bytes());
        let done = written.and_then(|()| self.sink.finish());
        done.map_err(|error| Failure::writing(printable_path(&self.settings.path), &error))
    }
}
