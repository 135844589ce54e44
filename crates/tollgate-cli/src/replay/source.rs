//! Finds the request in each line of a log: the key of limits by fields, and what limits with names
//! read from a request.

use std::net::IpAddr;

use super::columns::{Arrived, Columns, Found};
use super::log::formats::Format;
use super::log::record::Records;
use super::log::request::{Reason, Request};
use super::log::schema::{Cost, Unopened};
use super::log::wrapped::{self, Unwrapper};
use super::need::Need;
use super::proxy_log;
use super::reading::Source;
use super::settings::Settings;

/// The requests of one log.
pub(crate) struct Requests {
    /// Reads the key of limits by fields, if there are any.
    key: Option<Records>,
    /// Reads what other limits need, if there are any.
    parts: Option<Parts>,
    /// A buffer for the key.
    buffer: Vec<u8>,
}

/// Reads the parts of a request.
enum Parts {
    Columns(Box<Columns>),
    /// The JSON log of the proxy, whose lines may be wrapped.
    Proxy(Option<Unwrapper>, Cost),
}

/// The content of a line.
pub(crate) enum Line {
    Request(Arrived),
    /// A line without a request.
    NoRequest,
}

impl Requests {
    /// Opens a log. `first` is its first line, and `needs` contains what limits with names need, or
    /// `None` if there are no such limits.
    ///
    /// # Errors
    ///
    /// Returns an error if the line is not a record, or if the log lacks a fact that a limit needs.
    pub(crate) fn open(
        first: &[u8],
        settings: &Settings,
        needs: Option<&[Need]>,
    ) -> Result<(Format, Self), Unopened> {
        let (format, parts) = match needs {
            Some(needs) => {
                let (format, parts) = Parts::open(first, settings, needs)?;
                (Some(format), Some(parts))
            }
            None => (settings.format, None),
        };
        let key = match settings.wanted.key.is_empty() {
            true => None,
            false => Some(Records::open(first, format, &settings.wanted)?),
        };
        let (of_key, key) = key.unzip();
        let format = of_key.or(format).ok_or_else(|| Unopened::NotARecord("it is of no format".into()))?;
        Ok((format, Self { key, parts, buffer: Vec::new() }))
    }

    /// Returns whether the log is the JSON log of tollgate proxy, whose limits are recorded.
    pub(crate) fn is_of_proxy(&self) -> bool {
        matches!(self.parts, Some(Parts::Proxy(..)))
    }

    /// See [`Format::is_by_ends`].
    pub(crate) fn is_by_ends(&self) -> bool {
        let of_columns = matches!(&self.parts, Some(Parts::Columns(columns)) if columns.is_by_ends());
        self.is_of_proxy() || of_columns || self.key.as_ref().is_some_and(Records::is_by_ends)
    }

    /// See [`Columns::guesses_preflights`].
    pub(crate) fn guesses_preflights(&self) -> bool {
        matches!(&self.parts, Some(Parts::Columns(columns)) if columns.guesses_preflights())
    }

    /// Sets the parts of `request` to the values of a line.
    pub(crate) fn fill(&self, ip: Option<IpAddr>, values: &[u8], request: &mut http::Request<()>) {
        match &self.parts {
            Some(Parts::Columns(columns)) => columns.fill(ip, values, request),
            Some(Parts::Proxy(..)) => proxy_log::fill(ip, values, request),
            None => {}
        }
    }
}

impl Parts {
    fn open(first: &[u8], settings: &Settings, needs: &[Need]) -> Result<(Format, Self), Unopened> {
        let may_be_json = matches!(settings.format, None | Some(Format::Json | Format::Tollgate));
        if may_be_json && settings.wanted.names.is_empty() {
            let mut unwrapper = Unwrapper::of(first);
            if let Ok(Some(line)) = wrapped::whole(&mut unwrapper, first, |_| false)
                && proxy_log::is_one(line)
            {
                return Ok((Format::Tollgate, Self::Proxy(unwrapper, settings.wanted.cost)));
            }
        }
        let (format, columns) = Columns::open(first, needs, settings)?;
        Ok((format, Self::Columns(Box::new(columns))))
    }

    fn read(&mut self, text: &[u8], values: &mut Vec<u8>) -> Result<Option<Found>, Reason> {
        match self {
            Self::Columns(columns) => columns.read(text, values),
            Self::Proxy(unwrapper, cost) => match wrapped::whole(unwrapper, text, proxy_log::is_one)? {
                Some(line) => proxy_log::read(line, *cost, values).map(Some),
                None => Ok(None),
            },
        }
    }

    fn again(&self) -> Option<Self> {
        match self {
            Self::Columns(columns) => columns.again().map(|columns| Self::Columns(Box::new(columns))),
            Self::Proxy(None, cost) => Some(Self::Proxy(None, *cost)),
            Self::Proxy(Some(_), _) => None,
        }
    }
}

impl Source for Requests {
    type Request = Line;

    /// Reads a line twice if there are limits of both kinds. Both readers see every line, because a
    /// line may be a part of another one.
    #[inline]
    fn read(&mut self, text: &[u8], values: &mut Vec<u8>) -> Result<Option<Line>, Reason> {
        let Self { key, parts, buffer } = self;
        let Some(parts) = parts else {
            let request = key.as_mut().map_or(Ok(None), |records| records.read(text, values))?;
            return Ok(request.map(|Request { at, cost }| Line::Request(Arrived::new(at, cost))));
        };
        buffer.clear();
        let of_key = key.as_mut().map(|records| records.read(text, buffer));
        let found = parts.read(text, values)?;
        let is_whole = of_key.transpose()?.is_none_or(|request| request.is_some());
        Ok(match found.filter(|_| is_whole) {
            Some(Found::Request(arrived)) => {
                let key_start = values.len();
                values.extend_from_slice(buffer);
                Some(Line::Request(Arrived { key_start, ..arrived }))
            }
            Some(Found::NoRequest) => Some(Line::NoRequest),
            None => None,
        })
    }

    fn again(&self) -> Option<Self> {
        let key = match &self.key {
            Some(key) => Some(key.again()?),
            None => None,
        };
        let parts = match &self.parts {
            Some(parts) => Some(parts.again()?),
            None => None,
        };
        Some(Self { key, parts, buffer: Vec::new() })
    }

    fn incomplete(&self) -> usize {
        match (&self.key, &self.parts) {
            (Some(key), _) => key.incomplete(),
            (None, Some(Parts::Columns(columns))) => columns.incomplete(),
            (None, Some(Parts::Proxy(unwrapper, _))) => unwrapper.as_ref().map_or(0, Unwrapper::incomplete),
            (None, None) => 0,
        }
    }

    fn missing(&self) -> &[u64] {
        self.key.as_ref().map_or(&[], Records::missing)
    }
}
