//! Finds the request in each line of a log: the key of limits by fields, and what limits with names
//! read from a request.

use std::net::IpAddr;

use tollgate::Tick;

use super::columns::{self, Columns, Found};
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

/// A request. Its values are those of its parts, followed by its key.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Arrived {
    pub(crate) at: Tick,
    pub(crate) cost: u64,
    pub(crate) duration_ns: u64,
    pub(crate) ip: Option<IpAddr>,
    /// Whether, according to the proxy's log, a limit refused the request before the other limits
    /// were checked.
    pub(crate) is_early_refusal: bool,
    /// The length of the values of the parts.
    pub(crate) key_start: usize,
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

    /// Reads a line twice if there are limits of both kinds.
    #[inline]
    fn read(&mut self, text: &[u8], values: &mut Vec<u8>) -> Result<Option<Line>, Reason> {
        let Self { key, parts, buffer } = self;
        let mut arrived = Arrived {
            at: Tick::ZERO,
            cost: 1,
            duration_ns: 0,
            ip: None,
            is_early_refusal: false,
            key_start: 0,
        };
        if let Some(parts) = parts {
            match parts.read(text, values)? {
                Some(Found::Request(columns::Arrived { at, cost, duration_ns, ip, is_early_refusal })) => {
                    arrived =
                        Arrived { at, cost, duration_ns, ip, is_early_refusal, key_start: values.len() };
                }
                Some(Found::NoRequest) => return Ok(Some(Line::NoRequest)),
                None if key.is_none() => return Ok(None),
                None => {}
            }
        }
        if let Some(records) = key {
            // A reader writes a key into an empty buffer.
            let request = match arrived.key_start {
                0 => records.read(text, values)?,
                _ => {
                    buffer.clear();
                    let request = records.read(text, buffer)?;
                    values.extend_from_slice(buffer);
                    request
                }
            };
            let Some(Request { at, cost }) = request else { return Ok(None) };
            (arrived.at, arrived.cost) = (at, cost);
        }
        Ok(Some(Line::Request(arrived)))
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
