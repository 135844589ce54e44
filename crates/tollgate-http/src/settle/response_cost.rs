//! Specifies how a response reveals the cost of its request: by figures stated in the response, or
//! by counts of its body.

use super::figure::JsonPath;
use crate::error::Fault;
use crate::head::header_name;
use crate::limit::request_cost::RequestCost;
use bytes::Bytes;
use http::HeaderName;
use std::fmt;

/// Finds the cost of a request in its response, for [`Limit::settle`](crate::Limit::settle).
///
/// Before a request is handled, it is charged its [`RequestCost`], which serves as an estimate.
/// When the response has ended, the limit gives back the excess or charges the missing tokens.
/// Missing tokens may put the key into debt, up to the limiter's
/// [`max_debt`](tollgate::Builder::max_debt). If the response reveals no cost, the estimate is
/// kept.
///
/// A figure stated in the response ([`header`](Self::header), [`trailer`](Self::trailer),
/// [`json`](Self::json)) is the whole cost. A count made while the body passes
/// ([`events`](Self::events), [`bytes`](Self::bytes)) can [cut the response off](Self::cut_off).
///
/// If the first choice is a header and the response has it, the charge is settled as soon as the
/// response begins. The header is then the cost in any case, even if the client hangs up later or
/// the request is `HEAD`, and an estimator learns from it.
///
/// With `cut_off`, or if a count is the first choice, tokens beyond the estimate are charged while
/// the body passes. If the response ends with a smaller figure, the difference is given back. (If a
/// response was charged more than a thousand times, the oldest of these charges are kept.)
///
/// If the client hangs up or the body fails, the response is incomplete. An incomplete response
/// costs the tokens counted so far or, if nothing was counted, the estimate. If the response stated
/// a larger figure, the response costs that figure. The same applies to a response that is cut off,
/// and to a response without its body. Responses without their body are the response to `HEAD`, a
/// response with status 304, and a response after which the connection serves another protocol
/// (status 101, and success of `CONNECT`). An [`Estimator`](crate::Estimator) ignores all of these
/// responses, because the cost of the whole response is unknown.
///
/// [`on_settled`](crate::RateLimitBuilder::on_settled) reports the result for each limit: the cost
/// (if known), whether the response was cut off, and the tokens that could not be charged.
///
/// # Limits that other machines share
///
/// A limit over an [`AsyncLimiter`](crate::AsyncLimiter) is settled in the background. Nothing in a
/// response waits for the store: neither its head, nor a frame, nor dropping its body. The layer
/// requests tokens beyond the estimate in steps, before the tokens are used. A step is a quarter of
/// the tokens charged so far or, near the end of the budget, the remaining tokens. Unspent tokens
/// are given back at the end.
///
/// The stream continues while the limiter's answer is pending. It can therefore exceed its limit by
/// the frames sent before the answer arrives, but never by more than the limit's capacity. With
/// [`cut_off`](Self::cut_off), the first frame after a denial is not passed on. Unpaid tokens are
/// charged at the end and may put the key into debt.
///
/// If the store is unreachable, the limiter answers in the store's place, by its own deadline. In
/// `tollgate-redis`, `WhenUnavailable` specifies this answer: it admits, refuses, or uses a
/// stand-in.
///
/// A charge is kept if the limiter cannot give it back, either because the store is unreachable or
/// because of the limiter's mode. (In `tollgate-redis`, unsynchronized counts give back almost
/// nothing, so each request costs its estimate or more.) If the runtime ends before the settlement,
/// nothing is given back or charged.
///
/// ```
/// use tollgate::{Limiter, Quota};
/// use tollgate_http::{RequestCost, KeyBy, Limit, ResponseCost, WhenNoKey};
///
/// // The most that the request asks for, as an earlier middleware has read it.
/// #[derive(Clone)]
/// struct Asked {
///     prompt: u64,
///     answer: u64,
/// }
/// let asked = |part: fn(&Asked) -> u64| {
///     RequestCost::from_fn(move |head| head.extensions().get::<Asked>().map_or(1000, part))
/// };
///
/// let limiter = Limiter::builder(Quota::per_minute(100_000)).max_debt(10_000).build()?;
/// let tokens = Limit::new("tokens", limiter)
///     .by(KeyBy::header("x-user"))
///     .when_no_key(WhenNoKey::Deny)
///     .cost(asked(|it| it.prompt.saturating_add(it.answer)))
///     .settle(
///         // The number that the model's server states, or one token for each event.
///         ResponseCost::json("usage.total_tokens")
///             .or(ResponseCost::events())
///             .input(asked(|it| it.prompt))
///             .cut_off(),
///     );
/// # Ok::<(), tollgate::ConfigError>(())
/// ```
#[must_use]
pub struct ResponseCost {
    sources: Result<Vec<CostSource>, Fault>,
    input: Option<RequestCost>,
    cuts: bool,
    last_words: Bytes,
}

/// One source of a cost.
#[derive(Debug)]
pub(crate) enum CostSource {
    Header(HeaderName),
    Trailer(HeaderName),
    Json(JsonPath),
    Events,
    Bytes { unit: u64 },
}

impl CostSource {
    fn is_count(&self) -> bool {
        matches!(self, Self::Events | Self::Bytes { .. })
    }
}

impl ResponseCost {
    fn by(source: Result<CostSource, Fault>) -> Self {
        let sources = source.map(|source| vec![source]);
        Self { sources, input: None, cuts: false, last_words: Bytes::new() }
    }

    /// Reads the cost from a response header. The header must occur once and contain only digits.
    ///
    /// ```
    /// # use tollgate_http::ResponseCost;
    /// let cost = ResponseCost::header("x-tokens-used");
    /// ```
    pub fn header(name: &str) -> Self {
        Self::by(header_name(name).map(CostSource::Header))
    }

    /// Reads the cost from a trailer. The trailer must occur once and contain only digits.
    ///
    /// ```
    /// # use tollgate_http::ResponseCost;
    /// let cost = ResponseCost::trailer("x-tokens-used");
    /// ```
    pub fn trailer(name: &str) -> Self {
        Self::by(header_name(name).map(CostSource::Trailer))
    }

    /// Reads the cost from a field of the response's JSON. The path to the field consists of names
    /// separated by dots. The field must be a whole number.
    ///
    /// The layer reads the body as it passes, and holds no frame back:
    ///
    /// | type | where the field is looked for |
    /// |---|---|
    /// | JSON: `application/json`, or a type that ends with `+json` | in the whole text; if it is an array, in each element |
    /// | newline-delimited JSON: `ndjson`, `jsonl`, `jsonlines`, also with `x-`, and `stream+json` | in each line |
    /// | server-sent events: `text/event-stream` | in the data of each event |
    ///
    /// If the field occurs in several elements, lines or events, the last occurrence counts.
    /// Occurrences are not added up: if a stream reports its input tokens in the first event and
    /// its output tokens in the last, a path finds only one of the two numbers. A number at the
    /// beginning of a path is an index into the array.
    ///
    /// A JSON text, a line, or the data of an event can be read if it is at most 128 KiB long.
    /// Otherwise, the cost is unknown, unless a later line or event contains the field. A body with
    /// a `Content-Encoding` other than `identity` cannot be read: put compression outside of this
    /// layer, or remove `Accept-Encoding` from the request.
    ///
    /// ```
    /// # use tollgate_http::ResponseCost;
    /// let cost = ResponseCost::json("usage.total_tokens");
    /// ```
    pub fn json(path: &str) -> Self {
        Self::by(JsonPath::parse(path).map(CostSource::Json))
    }

    /// Counts the server-sent events in the body, except for `[DONE]` and events without data.
    /// Nothing is counted if the response has a different type, or a `Content-Encoding` other than
    /// `identity`.
    ///
    /// A model that streams its answer sends about one token with each event.
    ///
    /// ```
    /// # use tollgate_http::ResponseCost;
    /// let cost = ResponseCost::json("usage.completion_tokens").or(ResponseCost::events());
    /// ```
    pub fn events() -> Self {
        Self::by(Ok(CostSource::Events))
    }

    /// Counts the bytes of the body. Each `unit` bytes cost one token, rounded up.
    ///
    /// ```
    /// # use tollgate_http::ResponseCost;
    /// let kibibytes = ResponseCost::bytes(1024);
    /// ```
    pub fn bytes(unit: u64) -> Self {
        Self::by(Ok(CostSource::Bytes { unit }))
    }

    /// Uses `other` if `self` finds no cost in the response.
    ///
    /// ```
    /// # use tollgate_http::ResponseCost;
    /// let cost =
    ///     ResponseCost::header("x-tokens-used").or(ResponseCost::json("usage.total_tokens"));
    /// ```
    pub fn or(self, other: Self) -> Self {
        let sources = self.sources.and_then(|mut sources| {
            sources.extend(other.sources?);
            Ok(sources)
        });
        let last_words = if self.last_words.is_empty() { other.last_words } else { self.last_words };
        Self { sources, input: self.input.or(other.input), cuts: self.cuts || other.cuts, last_words }
    }

    /// Adds the cost of the request's input, such as its prompt, to the body's count. Figures
    /// stated in the response are unaffected, because they are the whole cost.
    ///
    /// The input is charged with the first event or byte, so a client that hangs up later has paid
    /// for its prompt.
    ///
    /// ```
    /// # use tollgate_http::{RequestCost, ResponseCost};
    /// // About four bytes per token, both ways.
    /// let cost = ResponseCost::bytes(4).input(RequestCost::content_length(4, 1000));
    /// ```
    pub fn input(self, cost: impl Into<RequestCost>) -> Self {
        Self { input: Some(cost.into()), ..self }
    }

    /// Cuts a response off when it has spent its budget, which consists of the estimate and all
    /// tokens that the limit has left for the key.
    ///
    /// The count decides when to cut, so [`events`](Self::events) or [`bytes`](Self::bytes) is
    /// required. The first frame that cannot be paid for is not passed on, and the handler's body
    /// is dropped immediately. The response is therefore cut within one frame of its limit. The
    /// tokens counted before that frame remain charged. A limit in shadow mode never cuts a
    /// response off.
    ///
    /// To the client, the response appears to be complete. [`last_words`] can explain the cut to
    /// the client. If that is not enough, [`FailWhenCut`](crate::FailWhenCut) turns the cut into an
    /// error, so that the server aborts the stream or the connection. A response of a known length
    /// is always aborted, because its end is missing.
    ///
    /// [`last_words`]: Self::last_words
    ///
    /// ```
    /// # use tollgate_http::ResponseCost;
    /// let cost = ResponseCost::bytes(1024).cut_off();
    /// ```
    pub fn cut_off(self) -> Self {
        Self { cuts: true, ..self }
    }

    /// [Cuts off](Self::cut_off) with a last frame, which is not charged. The last frame is omitted
    /// if the length of the response is known, or if the response has a `Content-Encoding`.
    ///
    /// In a stream of events, begin the last words with an empty line, because the previous frame
    /// may have ended within an event.
    ///
    /// ```
    /// # use tollgate_http::ResponseCost;
    /// let cost = ResponseCost::events()
    ///     .last_words("\n\nevent: error\ndata: the budget is spent\n\n");
    /// ```
    pub fn last_words(self, words: impl Into<Bytes>) -> Self {
        Self { last_words: words.into(), cuts: true, ..self }
    }

    /// Checks the sources, for the limit with this name.
    pub(crate) fn checked(self, limit: &str) -> Result<CheckedCost, Fault> {
        let Self { sources, input, cuts, last_words } = self;
        let sources = sources?;
        let has_no_unit = sources.iter().any(|source| matches!(source, CostSource::Bytes { unit: 0 }));
        if has_no_unit || input.as_ref().is_some_and(RequestCost::has_no_unit) {
            return Err(Fault::ZeroUnit { limit: limit.to_owned() });
        }
        if !sources.iter().any(CostSource::is_count) && (cuts || input.is_some()) {
            let needs = if cuts { "cut_off" } else { "input" };
            return Err(Fault::CountsNothing { limit: limit.to_owned(), needs });
        }
        let charges_on_the_way = cuts || sources.first().is_some_and(CostSource::is_count);
        Ok(CheckedCost { sources, input, cuts, last_words, charges_on_the_way })
    }
}

impl fmt::Debug for ResponseCost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { sources, input, cuts, .. } = self;
        let mut debug = f.debug_struct("ResponseCost");
        debug.field("sources", sources).field("input", input).field("cuts", cuts).finish_non_exhaustive()
    }
}

/// A [`ResponseCost`] that has been checked.
#[derive(Debug)]
pub(crate) struct CheckedCost {
    /// The sources in the order of preference.
    pub(crate) sources: Vec<CostSource>,
    pub(crate) input: Option<RequestCost>,
    pub(crate) cuts: bool,
    pub(crate) last_words: Bytes,
    /// Whether the count is charged while the body passes.
    pub(crate) charges_on_the_way: bool,
}
