//! Finds the request in each line of a log: the key of limits by fields, and the parts of a request
//! that limits with names read.

use std::net::IpAddr;

use super::columns::{Columns, Content};
use super::log::formats::Format;
use super::log::record::Records;
use super::log::request::{Arrived, Reason, Record};
use super::log::schema::Unopened;
use super::need::Need;
use super::reading::Source;
use super::settings::Settings;

/// The requests of one log.
pub(crate) struct Requests {
    /// Reads the key of limits by fields, if there are any.
    key: Option<Records>,
    /// Reads the facts that limits with names need, if there are any.
    columns: Option<Box<Columns>>,
    /// A buffer for the key.
    buffer: Vec<u8>,
}

impl Requests {
    /// Opens a log. `first` is its first line, and `needs` contains the facts that limits with
    /// names need, or `None` if there are no such limits.
    ///
    /// # Errors
    ///
    /// Returns an error if the line is not a record, or if the log lacks a fact that a limit needs.
    pub(crate) fn open(
        first: &[u8],
        settings: &Settings,
        needs: Option<&[Need]>,
    ) -> Result<(Format, Self), Unopened> {
        let (mut format, mut columns) = (settings.format, None);
        if let Some(needs) = needs {
            let opened = Columns::open(first, needs, settings)?;
            (format, columns) = (Some(opened.0), Some(Box::new(opened.1)));
        }
        let key = match settings.wanted.key.is_empty() {
            true => None,
            false => Some(Records::open(first, format, &settings.wanted)?),
        };
        let (of_key, key) = key.unzip();
        let format = of_key.or(format).ok_or_else(|| Unopened::NotARecord("it is of no format".into()))?;
        Ok((format, Self { key, columns, buffer: Vec::new() }))
    }

    /// Returns whether the log is the JSON log of tollgate proxy, whose limits are recorded.
    pub(crate) fn is_of_proxy(&self) -> bool {
        self.columns.as_ref().is_some_and(|columns| columns.has_recorded_limits())
    }

    /// See [`Format::is_by_ends`].
    pub(crate) fn is_by_ends(&self) -> bool {
        self.columns.as_ref().is_some_and(|columns| columns.is_by_ends())
            || self.key.as_ref().is_some_and(Records::is_by_ends)
    }

    /// See [`Columns::guesses_preflights`].
    pub(crate) fn guesses_preflights(&self) -> bool {
        self.columns.as_ref().is_some_and(|columns| columns.guesses_preflights())
    }

    /// Sets the parts of `request` to the values of a line.
    pub(crate) fn fill(&self, ip: Option<IpAddr>, values: &[u8], request: &mut http::Request<()>) {
        if let Some(columns) = &self.columns {
            columns.fill(ip, values, request);
        }
    }
}

impl Source for Requests {
    type Request = Content;

    /// Reads a line twice if there are limits of both kinds. Both readers see every line, because a
    /// line may be a part of another one.
    #[inline]
    fn read(&mut self, text: &[u8], values: &mut Vec<u8>) -> Result<Option<Content>, Reason> {
        let Self { key, columns, buffer } = self;
        let Some(columns) = columns else {
            let request = key.as_mut().map_or(Ok(None), |records| records.read(text, values))?;
            return Ok(request.map(|Record { at, cost }| Content::Request(Arrived::new(at, cost))));
        };
        buffer.clear();
        let of_key = key.as_mut().map(|records| records.read(text, buffer));
        let content = columns.read(text, values)?;
        let is_whole = of_key.transpose()?.is_none_or(|request| request.is_some());
        Ok(content.filter(|_| is_whole).map(|content| match content {
            Content::Request(arrived) => {
                let key_start = values.len();
                values.extend_from_slice(buffer);
                Content::Request(Arrived { key_start, ..arrived })
            }
            Content::NoRequest => Content::NoRequest,
        }))
    }

    fn again(&self) -> Option<Self> {
        let key = match &self.key {
            Some(key) => Some(key.again()?),
            None => None,
        };
        let columns = match &self.columns {
            Some(columns) => Some(Box::new(columns.again()?)),
            None => None,
        };
        Some(Self { key, columns, buffer: Vec::new() })
    }

    fn incomplete(&self) -> usize {
        let of_columns = || self.columns.as_ref().map_or(0, |columns| columns.incomplete());
        self.key.as_ref().map_or_else(of_columns, Records::incomplete)
    }

    fn missing(&self) -> &[u64] {
        self.key.as_ref().map_or(&[], Records::missing)
    }
}
