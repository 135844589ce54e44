//! Manages a request's charges while its response is under way. The response body owns the charges,
//! so they are settled when the body ends or is dropped, not when the handler returns.
//!
//! # States
//!
//! ```text
//! a charge, kept     -> settled     by a header, as soon as the response begins
//! a charge, kept     -> running     otherwise
//! running -> running                a frame: its cost is recorded, and the frame passes
//! running -> settled                the end: by the first figure that was found
//! running -> settled                a cut, an error, a disconnect, or the end of a response
//!                                   without its body: by the count before it, or the
//!                                   estimate; or by a larger figure
//! ```
//!
//! # Invariants
//!
//! 1. The charges are settled exactly once, however the response ends.
//! 2. If a process-local limit lacks the tokens for a frame, it may cut the response off. The frame
//!    then does not pass, and no process-local limit is charged for the frame. A shared limit is
//!    queried in the background, so a denial cuts the response off at a later frame (`shared.rs`).
//! 3. A limit that does not cut responses off never stops a frame. If the limit has too few tokens
//!    for a frame, it charges those that it has. The missing tokens are requested again with the
//!    next frame. Tokens that are still missing at the end are charged at the settlement.
//! 4. If the response ends with a smaller figure, charges made during the response are given back,
//!    as the estimate is (`charges.rs`).

use super::charges::Charges;
use super::figure::JsonPath;
use super::reader::Reader;
use super::response_cost::{CheckedCost, CostSource};
use super::shared::SharedHold;
use crate::check::event::SettleEvent;
use crate::check::listeners::Listeners;
use crate::head::{ResponseHead, number};
use crate::key::parts::Key;
use crate::limit::any_limiter::{AnyLimiter, OwnedBound, OwnedShared};
use crate::limit::compiled::CompiledLimit;
use bytes::Bytes;
use http::header::{CONTENT_ENCODING, CONTENT_LENGTH, HeaderMap};
use http::{Method, StatusCode};
use http_body::Frame;
use smallvec::SmallVec;
use std::fmt;
use std::mem;
use std::sync::Arc;
use tollgate::{Charge, Chargeable, Decision, Settlement, check_all};

/// A charge that the response may refund or settle, with its limit, class and key.
pub(crate) struct PendingRefund {
    pub(crate) limit: usize,
    pub(crate) class: usize,
    pub(crate) key: Key,
    pub(crate) charge: Decision,
    /// The cost that was charged, or that a policy admitted.
    pub(crate) cost: u64,
    /// The input part of the cost, which is added to the count of the response.
    pub(crate) input: u64,
    /// The request's class in the limit's cost estimator.
    pub(crate) estimated_as: Option<usize>,
}

/// A layer's limits, and the listeners to notify of settlements.
#[derive(Clone)]
pub(crate) struct LimitsAndListeners {
    pub(crate) limits: Arc<[CompiledLimit]>,
    pub(crate) listeners: Arc<Listeners>,
}

/// The state of one limit.
struct Part {
    limit: usize,
    class: usize,
    settle: Arc<CheckedCost>,
    /// Whether the limit cuts the response off.
    cuts: bool,
    held: LimitCharges,
    input: u64,
    estimated_as: Option<usize>,
    /// The figures in headers and trailers, one for each source.
    stated: SmallVec<[Option<u64>; 2]>,
    /// The count of the frames passed so far, including the input; 0 if nothing was counted.
    counted: u64,
}

/// The charges of a limit.
enum LimitCharges {
    Here(OwnedBound, Charges),
    Shared(SharedHold),
}

/// One request's charges, and the data read from its response.
pub(crate) struct Running {
    layer: LimitsAndListeners,
    parts: SmallVec<[Part; 1]>,
    is_settled: bool,
    /// Whether HTTP forbids a body, although the response describes one or begins a connection for
    /// other data.
    lacks_body: bool,
    reader: Reader,
    /// Whether last words may be added to the body.
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
enum BodyEnd {
    Whole,
    Early,
    /// Cut off by the part with this index.
    Cut(usize),
}

impl Running {
    /// Settles the charges whose cost is stated in the response's head. Returns the remaining
    /// charges, if any. `method` is the method of the request.
    pub(crate) fn begin(
        layer: LimitsAndListeners,
        method: &Method,
        kept: impl IntoIterator<Item = PendingRefund>,
        head: ResponseHead<'_>,
    ) -> Option<Box<Self>> {
        let mut parts: SmallVec<[Part; 1]> = SmallVec::new();
        for PendingRefund { limit, class, key, charge, cost, input, estimated_as } in kept {
            let Some(settle) = &layer.limits[limit].settle else { continue };
            let stated = settle.sources.iter().map(|source| match source {
                CostSource::Header(name) => number(head.headers(), name),
                _ => None,
            });
            let (settle, stated) = (Arc::clone(settle), stated.collect());
            let cuts = settle.cuts && !layer.limits[limit].shadow;
            let charges = Charges::of(cost, charge);
            let held = match &layer.limits[limit].class(class).backend {
                AnyLimiter::Local(limiter) => {
                    LimitCharges::Here(OwnedBound { limiter: Arc::clone(limiter), key }, charges)
                }
                AnyLimiter::Shared(limiter) => {
                    let shared = OwnedShared { limiter: Arc::clone(limiter), key };
                    LimitCharges::Shared(SharedHold::start(shared, charges, cuts))
                }
                // The cost of a response changes neither shared permits nor limits that count
                // nothing.
                AnyLimiter::SharedInFlight(_) | AnyLimiter::Unlimited | AnyLimiter::Blocked => continue,
            };
            let part = Part { limit, class, settle, cuts, held, input, estimated_as, stated, counted: 0 };
            if let Some(Some(actual)) = part.stated.first() {
                layer.limits[limit].cost.learn(estimated_as, *actual);
                part.settle(&layer, Some(*actual), false);
                continue;
            }
            parts.push(part);
        }
        if parts.is_empty() {
            return None;
        }
        let paths = parts.iter().flat_map(|part| &part.settle.sources).filter_map(|source| match source {
            CostSource::Json(path) => Some(path.clone()),
            _ => None,
        });
        let reader = Reader::new(head, paths);
        let fixes = [CONTENT_LENGTH, CONTENT_ENCODING];
        let takes_words = !fixes.iter().any(|name| head.headers().contains_key(name));
        let lacks_body = match head.status() {
            StatusCode::SWITCHING_PROTOCOLS | StatusCode::NOT_MODIFIED => true,
            status => *method == Method::HEAD || *method == Method::CONNECT && status.is_success(),
        };
        Some(Box::new(Self { layer, parts, is_settled: false, lacks_body, reader, takes_words }))
    }

    /// Reads a frame, and records its cost.
    ///
    /// # Errors
    ///
    /// Returns [`Cut`] if the frame cannot be paid for and must not pass.
    pub(crate) fn pass(&mut self, frame: &Frame<Bytes>) -> Result<(), Cut> {
        if self.is_settled {
            return Ok(());
        }
        if let Some(trailers) = frame.trailers_ref() {
            self.read_trailers(trailers);
        }
        if let Some(data) = frame.data_ref() {
            self.reader.read(data);
            self.record()?;
        }
        // Nothing follows trailers, and a server may stop polling after the announced length, so
        // the response ends here.
        if frame.is_trailers() || self.reader.is_whole() && !self.awaits_trailers() {
            self.end();
        }
        Ok(())
    }

    /// Returns whether the cost is settled. The end of the response then requires no further work.
    pub(crate) fn is_settled(&self) -> bool {
        self.is_settled
    }

    /// Prevents a cut from adding last words to the body.
    pub(crate) fn leave_out_last_words(&mut self) {
        self.takes_words = false;
    }

    /// Ends a response that is complete, unless it lacks its body.
    pub(crate) fn end(&mut self) {
        if !self.is_settled {
            self.reader.end();
            self.settle(if self.lacks_body { BodyEnd::Early } else { BodyEnd::Whole });
        }
    }

    fn record(&mut self) -> Result<(), Cut> {
        let counted: SmallVec<[u64; 4]> = self.parts.iter().map(|part| part.count(&self.reader)).collect();
        // If the frame does not pass, the tokens taken from shared limits are given back at the
        // end.
        for index in 0..self.parts.len() {
            if !self.parts[index].spend_shared(counted[index]) {
                return Err(self.cut(index));
            }
        }
        let missing = |(index, part): (usize, &Part)| (index, part.missing_here(counted[index]));
        let mut missing: SmallVec<[(usize, u64); 4]> =
            self.parts.iter().enumerate().map(missing).filter(|(_, tokens)| *tokens > 0).collect();
        loop {
            match self.charge_here(&missing) {
                Ok(()) => break,
                Err(place) if self.parts[missing[place].0].cuts => return Err(self.cut(missing[place].0)),
                // Each iteration excludes one more limit.
                Err(place) => _ = missing.remove(place),
            }
        }
        self.parts.iter_mut().zip(counted).for_each(|(part, counted)| part.counted = counted);
        Ok(())
    }

    /// Charges all of these process-local limits, or none. Each limit is given by the index of its
    /// part.
    ///
    /// # Errors
    ///
    /// If a limit refuses, returns the limit's position in `missing` as the error.
    fn charge_here(&mut self, missing: &[(usize, u64)]) -> Result<(), usize> {
        let made: SmallVec<[Option<Decision>; 4]> = {
            let bound = |&(index, tokens): &(usize, u64)| match &self.parts[index].held {
                LimitCharges::Here(bound, _) => Some(Charge::new(bound, tokens)),
                LimitCharges::Shared(_) => None,
            };
            let mut charges: SmallVec<[Charge<'_>; 4]> = missing.iter().filter_map(bound).collect();
            check_all(&mut charges).map_err(|denied| denied.index().unwrap_or_default())?;
            charges.iter().map(|charge| charge.decision().copied()).collect()
        };
        for (&(index, tokens), made) in missing.iter().zip(made) {
            if let (LimitCharges::Here(_, charges), Some(made)) = (&mut self.parts[index].held, made) {
                charges.add(tokens, made);
            }
        }
        Ok(())
    }

    /// Cuts the response off, for the limit of this part.
    fn cut(&mut self, index: usize) -> Cut {
        let part = &self.parts[index];
        let limit = Arc::clone(&self.layer.limits[part.limit].name);
        let last_words = if self.takes_words { part.settle.last_words.clone() } else { Bytes::new() };
        self.settle(BodyEnd::Cut(index));
        Cut { limit, last_words }
    }

    fn read_trailers(&mut self, trailers: &HeaderMap) {
        for part in &mut self.parts {
            for (source, stated) in part.settle.sources.iter().zip(&mut part.stated) {
                if let CostSource::Trailer(name) = source {
                    *stated = number(trailers, name);
                }
            }
        }
    }

    fn awaits_trailers(&self) -> bool {
        let mut sources = self.parts.iter().flat_map(|part| &part.settle.sources);
        sources.any(|source| matches!(source, CostSource::Trailer(_)))
    }

    fn settle(&mut self, end: BodyEnd) {
        if mem::replace(&mut self.is_settled, true) {
            return;
        }
        for (index, part) in self.parts.iter().enumerate() {
            let told = match end {
                BodyEnd::Whole => part.actual(&self.reader),
                BodyEnd::Early | BodyEnd::Cut(_) => part.at_least(&self.reader),
            };
            if let (BodyEnd::Whole, Some(actual)) = (end, told) {
                self.layer.limits[part.limit].cost.learn(part.estimated_as, actual);
            }
            part.settle(&self.layer, told, end == BodyEnd::Cut(index));
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // A server may not poll for trailers after all announced bytes.
        if self.reader.is_whole() {
            self.end();
        }
        if !self.is_settled {
            // The whole JSON text may have passed before the server noticed its end.
            self.reader.end();
            self.settle(BodyEnd::Early);
        }
    }
}

impl Part {
    /// Returns the figures stated in the response, one for each source. `find` searches the JSON.
    fn figures(&self, find: impl Fn(&JsonPath) -> Option<u64>) -> impl Iterator<Item = Option<u64>> {
        self.settle.sources.iter().zip(&self.stated).map(move |(source, stated)| match source {
            CostSource::Json(path) => find(path),
            _ => *stated,
        })
    }

    /// Returns the response's count so far, according to the first source that can count the
    /// response. Returns 0 if no source can.
    fn count(&self, reader: &Reader) -> u64 {
        match self.settle.sources.iter().find_map(|source| count(source, reader)) {
            None | Some(0) => 0,
            Some(count) => count.saturating_add(self.input),
        }
    }

    /// Returns the cost of a complete response, according to the first source that reveals the
    /// cost.
    fn actual(&self, reader: &Reader) -> Option<u64> {
        let counted = |source| Some(count(source, reader)?.saturating_add(self.input));
        let figures = self.figures(|path| reader.last_figure(path));
        let mut told = self.settle.sources.iter().zip(figures);
        told.find_map(|(source, figure)| figure.or_else(|| counted(source)))
    }

    /// Returns the cost of an incomplete response: the count, or a figure above it. If nothing was
    /// counted, returns a figure above the estimate, or `None` without such a figure. A figure
    /// stated before the end may still grow, so a figure alone never causes a refund.
    fn at_least(&self, reader: &Reader) -> Option<u64> {
        let figure = self.figures(|path| reader.figure(path)).flatten().max();
        if self.counted > 0 {
            return figure.max(Some(self.counted));
        }
        figure.filter(|&figure| figure > self.held.estimate())
    }

    /// Reports the count to a shared limit. Returns false if the limit cuts the response off.
    fn spend_shared(&mut self, counted: u64) -> bool {
        match &mut self.held {
            LimitCharges::Shared(hold) if self.settle.charges_on_the_way => hold.spend(counted),
            LimitCharges::Shared(_) | LimitCharges::Here(..) => true,
        }
    }

    /// Returns how many tokens to charge to a process-local limit before a frame with this count
    /// passes. If the limit does not cut the response off, these are at most the tokens that it has
    /// left. The limit then denies nothing, and counts no denial.
    fn missing_here(&self, counted: u64) -> u64 {
        let LimitCharges::Here(bound, charges) = &self.held else { return 0 };
        let missing = counted.saturating_sub(charges.allowance());
        if missing == 0 || !self.settle.charges_on_the_way {
            return 0;
        }
        let left = (!self.cuts).then(|| bound.peek_n(missing)).filter(|left| !left.is_allowed());
        left.map_or(missing, |left| left.remaining().min(missing))
    }

    /// Settles the charges with the revealed cost, or leaves the estimate. Notifies the listeners
    /// of the result, either now or when a shared limit has answered.
    fn settle(&self, layer: &LimitsAndListeners, told: Option<u64>, is_cut: bool) {
        let report = layer.report(self.limit, self.class, told, is_cut);
        let cost = told.unwrap_or_else(|| self.held.estimate());
        match &self.held {
            LimitCharges::Here(bound, charges) => report(settle_here(bound, charges, cost)),
            LimitCharges::Shared(hold) => hold.settle(cost, report),
        }
    }
}

impl LimitCharges {
    /// Returns the charge for the estimate.
    fn estimate(&self) -> u64 {
        match self {
            Self::Here(_, charges) => charges.estimate(),
            Self::Shared(hold) => hold.estimate(),
        }
    }
}

fn settle_here(bound: &OwnedBound, charges: &Charges, cost: u64) -> Settlement {
    charges.back(cost).for_each(|(charge, tokens)| bound.refund_n(charge, tokens));
    let owed = charges.owed(cost);
    charges.settlement(cost, if owed > 0 { bound.force(owed) } else { 0 })
}

impl LimitsAndListeners {
    /// Returns a closure that notifies the listeners of a settlement.
    fn report(
        &self,
        limit: usize,
        class: usize,
        cost: Option<u64>,
        is_cut: bool,
    ) -> impl FnOnce(Settlement) + use<> {
        let layer = self.listeners.listen_to_settlements().then(|| self.clone());
        move |settlement| {
            let Some(Self { limits, listeners }) = layer else { return };
            let limit = &limits[limit];
            listeners.notify_settled(&SettleEvent {
                limit_name: &limit.name,
                class: limit.class(class).name.as_deref(),
                is_shadow: limit.shadow,
                cost,
                settlement,
                is_cut,
            });
        }
    }
}

/// Returns the count according to this source, or `None` if the source cannot count this response.
fn count(source: &CostSource, reader: &Reader) -> Option<u64> {
    match source {
        CostSource::Events => reader.events(),
        CostSource::Bytes { unit } => Some(reader.bytes().div_ceil((*unit).max(1))),
        CostSource::Header(_) | CostSource::Trailer(_) | CostSource::Json(_) => None,
    }
}

impl fmt::Debug for Running {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Running")
            .field("is_settled", &self.is_settled)
            .field("reader", &self.reader)
            .finish_non_exhaustive()
    }
}
