//! The reservations of a request while its response is under way. The body of the response owns
//! them, so they are settled when it ends or is dropped, not when the handler returns.
//!
//! # States
//!
//! ```text
//! a charge, kept     -> settled     by a header, as soon as the response begins
//! a charge, kept     -> running     else
//! running -> running                a frame: what it adds is recorded, and passes
//! running -> settled                the end: by the first figure that is there
//! running -> settled                a cut, an error or a disconnect: by what was counted before,
//!                                   or the estimate; or by a larger figure
//! ```
//!
//! # Invariants
//!
//! 1. A reservation is settled once: `held` is taken for it.
//! 2. A frame of which a limit that cuts can't pay its part is not passed and not charged, to this
//!    limit or another one: recording is all or none.
//! 3. A limit that does not cut never holds up another one. What it can't pay for now is missing
//!    until the next frame, or until it is settled.

use super::by::{Checked, Source};
use super::figure;
use super::reader::Reader;
use crate::head::ResponseHead;
use crate::limit::backend::OwnedBound;
use crate::limit::compiled::CompiledLimit;
use bytes::Bytes;
use http::header::{CONTENT_ENCODING, CONTENT_LENGTH, HeaderMap};
use http_body::Frame;
use smallvec::SmallVec;
use std::fmt;
use std::sync::Arc;
use tollgate::{Reservation, Reservations};

/// A charge whose limit settles it by the response.
pub(crate) struct Reserved {
    pub(crate) limit: usize,
    pub(crate) held: Reservation<OwnedBound>,
    /// What the request itself costs, in addition to what is counted.
    pub(crate) input: u64,
    /// The class of the request in the estimator of the limit's cost.
    pub(crate) estimated_as: Option<usize>,
}

/// The part of one limit, beside its reservation.
struct Part {
    limit: usize,
    settle: Arc<Checked>,
    input: u64,
    estimated_as: Option<usize>,
    /// What headers and trailers have stated, for each of the sources.
    stated: SmallVec<[Option<u64>; 2]>,
    /// What was counted of the frames that passed, with the input; 0 if nothing was.
    counted: u64,
}

/// The reservations of one request, and what has been read of its response.
pub(crate) struct Running {
    limits: Arc<[CompiledLimit]>,
    /// `None` when they are settled.
    held: Option<Reservations<OwnedBound>>,
    /// In the order of the reservations.
    parts: SmallVec<[Part; 1]>,
    reader: Reader,
    /// Whether a frame may be added to the body.
    takes_words: bool,
}

/// A response has spent its budget.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Cut {
    pub(crate) limit: Arc<str>,
    pub(crate) last_words: Bytes,
}

/// How a response ended.
#[derive(Clone, Copy, PartialEq)]
enum End {
    Whole,
    Early,
}

impl Running {
    /// Settles what the head of the response settles. Returns the rest, if there is any.
    pub(crate) fn begin(
        limits: &Arc<[CompiledLimit]>,
        reserved: impl IntoIterator<Item = Reserved>,
        head: ResponseHead<'_>,
    ) -> Option<Box<Self>> {
        let mut held = Vec::new();
        let mut parts: SmallVec<[Part; 1]> = SmallVec::new();
        for Reserved { limit, held: reservation, input, estimated_as } in reserved {
            let Some(settle) = &limits[limit].settle else { continue };
            let stated = settle.sources.iter().map(|source| match source {
                Source::Header(name) => figure::in_headers(head.headers(), name),
                _ => None,
            });
            let (settle, stated) = (Arc::clone(settle), stated.collect());
            let part = Part { limit, settle, input, estimated_as, stated, counted: 0 };
            if let Some(Some(actual)) = part.stated.first() {
                limits[limit].learn(estimated_as, *actual);
                reservation.commit(*actual);
                continue;
            }
            held.push(reservation);
            parts.push(part);
        }
        if held.is_empty() {
            return None;
        }
        let paths = parts.iter().flat_map(|part| &part.settle.sources).filter_map(|source| match source {
            Source::Json(path) => Some(path.clone()),
            _ => None,
        });
        let reader = Reader::new(head, paths);
        let fixes = [CONTENT_LENGTH, CONTENT_ENCODING];
        let takes_words = !fixes.iter().any(|name| head.headers().contains_key(name));
        Some(Box::new(Self {
            limits: Arc::clone(limits),
            held: Some(held.into_iter().collect()),
            parts,
            reader,
            takes_words,
        }))
    }

    /// Reads a frame, and records what it costs.
    ///
    /// # Errors
    ///
    /// [`Cut`] if the frame must not pass, because it can't be paid for.
    pub(crate) fn pass(&mut self, frame: &Frame<Bytes>) -> Result<(), Cut> {
        if self.held.is_none() {
            return Ok(());
        }
        if let Some(trailers) = frame.trailers_ref() {
            self.read_trailers(trailers);
        }
        if let Some(data) = frame.data_ref() {
            self.reader.read(data);
            self.record()?;
        }
        // Nothing follows trailers, and a server may not ask for more than was announced.
        if frame.is_trailers() || self.reader.is_whole() && !self.awaits_trailers() {
            self.end();
        }
        Ok(())
    }

    /// Returns whether the cost is settled, so that nothing is left to do at the end.
    pub(crate) fn is_settled(&self) -> bool {
        self.held.is_none()
    }

    /// Adds no frame to the body if it is cut off.
    pub(crate) fn leave_out_last_words(&mut self) {
        self.takes_words = false;
    }

    /// Ends the response: it is whole.
    pub(crate) fn end(&mut self) {
        if self.held.is_some() {
            self.reader.end();
            self.settle(End::Whole);
        }
    }

    fn record(&mut self) -> Result<(), Cut> {
        let Some(held) = &mut self.held else { return Ok(()) };
        let counted: SmallVec<[u64; 4]> = self.parts.iter().map(|part| part.count(&self.reader)).collect();
        let spent = self.parts.iter().zip(&counted).zip(held.each()).map(|((part, counted), held)| {
            if part.settle.charges_on_the_way { counted.saturating_sub(held.recorded()) } else { 0 }
        });
        let mut spent: SmallVec<[u64; 4]> = spent.collect();
        while spent.iter().any(|&spent| spent > 0)
            && let Err(denied) = held.record(|index| spent[index])
        {
            let part = &self.parts[denied.index()];
            let limit = &self.limits[part.limit];
            if part.settle.cuts && !limit.shadow {
                let words = part.settle.last_words.clone();
                let last_words = if self.takes_words { words } else { Bytes::new() };
                let cut = Cut { limit: Arc::clone(&limit.name), last_words };
                self.settle(End::Early);
                return Err(cut);
            }
            // Each turn leaves one more limit out.
            spent[denied.index()] = 0;
        }
        self.parts.iter_mut().zip(counted).for_each(|(part, counted)| part.counted = counted);
        Ok(())
    }

    fn read_trailers(&mut self, trailers: &HeaderMap) {
        for part in &mut self.parts {
            for (source, stated) in part.settle.sources.iter().zip(&mut part.stated) {
                if let Source::Trailer(name) = source {
                    *stated = figure::in_headers(trailers, name);
                }
            }
        }
    }

    fn awaits_trailers(&self) -> bool {
        let mut sources = self.parts.iter().flat_map(|part| &part.settle.sources);
        sources.any(|source| matches!(source, Source::Trailer(_)))
    }

    fn settle(&mut self, end: End) {
        let Some(held) = self.held.take() else { return };
        let estimates = held.each().iter().map(|held| held.decision().charged());
        let costs = self.parts.iter().zip(estimates).map(|(part, estimate)| match end {
            End::Whole => {
                let actual = part.actual(&self.reader);
                if let Some(actual) = actual {
                    self.limits[part.limit].learn(part.estimated_as, actual);
                }
                actual.unwrap_or(estimate)
            }
            End::Early => part.at_least(&self.reader, estimate),
        });
        let costs: SmallVec<[u64; 4]> = costs.collect();
        held.commit(|index| costs[index]);
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // A server may not ask for trailers after all bytes that were announced.
        if self.reader.is_whole() {
            self.end();
        }
        if self.held.is_some() {
            // All of a JSON text may have passed before the server learnt that it was all.
            self.reader.end();
            self.settle(End::Early);
        }
    }
}

impl Part {
    /// Returns what the response has stated, for each of the sources.
    fn figures(&self, reader: &Reader) -> impl Iterator<Item = Option<u64>> {
        self.settle.sources.iter().zip(&self.stated).map(|(source, stated)| match source {
            Source::Json(path) => reader.figure(path),
            _ => *stated,
        })
    }

    /// Returns what is counted of the response so far, by the first count that it has; 0 if nothing
    /// is.
    fn count(&self, reader: &Reader) -> u64 {
        match self.settle.sources.iter().find_map(|source| count(source, reader)) {
            None | Some(0) => 0,
            Some(count) => count.saturating_add(self.input),
        }
    }

    /// Returns what a whole response has cost, by the first source that tells it.
    fn actual(&self, reader: &Reader) -> Option<u64> {
        let counted = |source| Some(count(source, reader)?.saturating_add(self.input));
        let mut told = self.settle.sources.iter().zip(self.figures(reader));
        told.find_map(|(source, figure)| figure.or_else(|| counted(source)))
    }

    /// Returns what a part of a response has cost. A figure before the end may still grow, so it
    /// gives nothing back.
    fn at_least(&self, reader: &Reader, estimate: u64) -> u64 {
        let counted = if self.counted > 0 { self.counted } else { estimate };
        self.figures(reader).flatten().fold(counted, u64::max)
    }
}

/// Returns what is counted there; `None` where this response can't be counted so.
fn count(source: &Source, reader: &Reader) -> Option<u64> {
    match source {
        Source::Events => reader.events(),
        Source::Bytes { unit } => Some(reader.bytes().div_ceil((*unit).max(1))),
        Source::Header(_) | Source::Trailer(_) | Source::Json(_) => None,
    }
}

impl fmt::Debug for Running {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Running")
            .field("is_settled", &self.is_settled())
            .field("reader", &self.reader)
            .finish_non_exhaustive()
    }
}
