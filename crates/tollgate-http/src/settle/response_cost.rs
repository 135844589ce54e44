//! What settles the cost of a request: figures that its response states, and counts of its body.

use super::figure::JsonPath;
use crate::error::Fault;
use crate::head::header_name;
use crate::limit::request_cost::RequestCost;
use bytes::Bytes;
use http::HeaderName;
use std::fmt;

/// Says what a request has cost, by its response; for [`Limit::settle`](crate::Limit::settle).
///
/// The request is charged its [`RequestCost`] before it is handled, which is an estimate then. When
/// the response has ended, the limit charges what is missing, into debt up to the limiter's
/// [`max_debt`](tollgate::Builder::max_debt), or gives back what was too much. What the response
/// does not tell leaves the estimate as it is.
///
/// A figure that the response states ([`header`](Self::header), [`trailer`](Self::trailer),
/// [`json`](Self::json)) is the whole cost. What is counted while the body passes
/// ([`events`](Self::events), [`bytes`](Self::bytes)) can [cut the response off](Self::cut_off).
/// Then, or if the count is the first choice, it is charged while the body passes, as far as it
/// goes beyond the estimate. A figure at the end that is smaller gives that back, too. (Of a
/// response that was charged more than a thousand times, the first of these charges stay.)
///
/// A response that does not end, because the client hangs up or the body fails, costs what was
/// counted, or the estimate if nothing was; and a larger figure, if it stated one. So does one that
/// is cut off, and one whose body the server leaves out, such as that to `HEAD`. None of these
/// teaches an [`Estimator`](crate::Estimator) anything: what the whole would have cost is not
/// known.
///
/// [`on_settled`](crate::RateLimitBuilder::on_settled) tells what became of each charge: the cost
/// if it is known, whether the response was cut off, and what could not be charged.
///
/// # Limits that other machines share
///
/// A limit over an [`AsyncLimiter`](crate::AsyncLimiter) is settled in the background:
/// no frame waits for its store, nor does the head of a response or the drop of a body. What goes
/// beyond the estimate is asked for ahead, in steps of a quarter of what was charged so far, one at
/// a time; near the end of the budget, what is left. What was not spent is given back at the end.
///
/// While the answer is under way, the stream goes on. So it can get past its limit by what it sends
/// until the limiter answers, and never by more than the limit's capacity. With
/// [`cut_off`](Self::cut_off), the first frame after a denial is not passed on. What passed unpaid
/// is charged at the end, into debt. A store that is away is answered for by the limiter, by its
/// deadline: with `tollgate-redis`, `WhenUnavailable` admits, refuses, or asks a stand-in.
///
/// A charge that the limiter can't give back stays: while the store is away, or by the limiter's
/// mode. (Of `tollgate-redis`, unsynchronized counts give back next to nothing, so that each
/// request costs its estimate or more.) Nor is anything given back or charged where the runtime
/// ends first.
///
/// ```
/// use tollgate::{Limiter, Quota};
/// use tollgate_http::{RequestCost, KeyBy, Limit, ResponseCost, WhenNoKey};
///
/// // What the request asks for at most, as an earlier middleware has read it.
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
///         // The number that the model's server states, or else an event for each token.
///         ResponseCost::json("usage.total_tokens")
///             .or(ResponseCost::events())
///             .input(asked(|it| it.prompt))
///             .cut_off(),
///     );
/// # Ok::<(), tollgate::ConfigError>(())
/// ```
#[must_use]
pub struct ResponseCost {
    sources: Result<Vec<Source>, Fault>,
    input: Option<RequestCost>,
    cuts: bool,
    last_words: Bytes,
}

/// One place from which a cost is known.
#[derive(Debug)]
pub(crate) enum Source {
    Header(HeaderName),
    Trailer(HeaderName),
    Json(JsonPath),
    Events,
    Bytes { unit: u64 },
}

impl Source {
    fn is_count(&self) -> bool {
        matches!(self, Self::Events | Self::Bytes { .. })
    }
}

impl ResponseCost {
    fn by(source: Result<Source, Fault>) -> Self {
        let sources = source.map(|source| vec![source]);
        Self { sources, input: None, cuts: false, last_words: Bytes::new() }
    }

    /// Takes the cost from a header of the response, which occurs once and has digits only.
    ///
    /// ```
    /// # use tollgate_http::ResponseCost;
    /// let cost = ResponseCost::header("x-tokens-used");
    /// ```
    pub fn header(name: &str) -> Self {
        Self::by(header_name(name).map(Source::Header))
    }

    /// Takes the cost from a trailer, which occurs once and has digits only.
    ///
    /// ```
    /// # use tollgate_http::ResponseCost;
    /// let cost = ResponseCost::trailer("x-tokens-used");
    /// ```
    pub fn trailer(name: &str) -> Self {
        Self::by(header_name(name).map(Source::Trailer))
    }

    /// Takes the cost from a field of the response's JSON: a whole number at this path of names,
    /// separated by dots.
    ///
    /// The body is read as it passes, and no frame is held back:
    ///
    /// | type | where the field is looked for |
    /// |---|---|
    /// | JSON: `application/json`, or one that ends with `+json` | in the whole text; if it is an array, in each element |
    /// | newline-delimited JSON: `ndjson`, `jsonl`, `jsonlines`, also with `x-`, and `stream+json` | in each line |
    /// | server-sent events: `text/event-stream` | in the data of each event |
    ///
    /// If the field occurs in several elements, lines or events, the last one counts. Nothing is
    /// added up: of a stream that states its input tokens in the first event and its output tokens
    /// in the last, a path finds one of the two. A path that begins with a number is an index of
    /// the array.
    ///
    /// Up to 128 KiB are kept of a text, a line, or the data of an event. A larger one cannot be
    /// read, and the cost is not known unless a later line or event has the field. A body with a
    /// `Content-Encoding` other than `identity` cannot be read either: put compression outside of
    /// this layer, or remove `Accept-Encoding` from the request.
    ///
    /// ```
    /// # use tollgate_http::ResponseCost;
    /// let cost = ResponseCost::json("usage.total_tokens");
    /// ```
    pub fn json(path: &str) -> Self {
        Self::by(JsonPath::parse(path).map(Source::Json))
    }

    /// Counts the server-sent events that pass: those with data, but for `[DONE]`. A response of
    /// another type, or with a `Content-Encoding` other than `identity`, tells nothing.
    ///
    /// Models that stream send about one token with each event.
    ///
    /// ```
    /// # use tollgate_http::ResponseCost;
    /// let cost = ResponseCost::json("usage.completion_tokens").or(ResponseCost::events());
    /// ```
    pub fn events() -> Self {
        Self::by(Ok(Source::Events))
    }

    /// Counts the bytes of the body that pass: a token for each `unit` bytes, rounded up.
    ///
    /// ```
    /// # use tollgate_http::ResponseCost;
    /// let kibibytes = ResponseCost::bytes(1024);
    /// ```
    pub fn bytes(unit: u64) -> Self {
        Self::by(Ok(Source::Bytes { unit }))
    }

    /// Takes the cost from `other` where the response does not tell this one.
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

    /// Adds what the request itself costs, such as its prompt, to what is counted of the body.
    /// Figures that the response states are whole without it.
    ///
    /// It counts from the first event or byte on, so a client that hangs up then has paid for its
    /// prompt.
    ///
    /// ```
    /// # use tollgate_http::{RequestCost, ResponseCost};
    /// // About four bytes a token, both ways.
    /// let cost = ResponseCost::bytes(4).input(RequestCost::content_length(4, 1000));
    /// ```
    pub fn input(self, cost: impl Into<RequestCost>) -> Self {
        Self { input: Some(cost.into()), ..self }
    }

    /// Cuts a response off when it has spent its budget: the estimate, and whatever else the limit
    /// then has for this key.
    ///
    /// What is counted decides, so there has to be [`events`](Self::events) or
    /// [`bytes`](Self::bytes). The first frame that can't be paid for is not passed on, and the
    /// handler's body is dropped at once: the response is cut within one frame of its limit. What
    /// was counted before stays charged. A limit in shadow mode cuts nothing.
    ///
    /// The client sees the body end, as if the response were complete. [`last_words`] tell it why.
    /// Where that is not enough, [`FailWhenCut`](crate::FailWhenCut) makes it an error: the server
    /// then breaks the stream or the connection off. A response of a known length is always broken
    /// off, because its end is missing.
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

    /// [Cuts off](Self::cut_off) with a last frame, which is not charged. It is left out where the
    /// length of the response is known, or it has a `Content-Encoding`.
    ///
    /// Begin with an empty line in a stream of events, because the last frame may have ended within
    /// an event.
    ///
    /// ```
    /// # use tollgate_http::ResponseCost;
    /// let cost = ResponseCost::events()
    ///     .last_words("\n\nevent: error\ndata: the budget is spent\n\n");
    /// ```
    pub fn last_words(self, words: impl Into<Bytes>) -> Self {
        Self { last_words: words.into(), cuts: true, ..self }
    }

    /// Checks it, for the limit of this name.
    pub(crate) fn checked(self, limit: &str) -> Result<Checked, Fault> {
        let Self { sources, input, cuts, last_words } = self;
        let sources = sources?;
        let has_no_unit = sources.iter().any(|source| matches!(source, Source::Bytes { unit: 0 }));
        if has_no_unit || input.as_ref().is_some_and(RequestCost::has_no_unit) {
            return Err(Fault::ZeroUnit { limit: limit.to_owned() });
        }
        if !sources.iter().any(Source::is_count) && (cuts || input.is_some()) {
            let needs = if cuts { "cut_off" } else { "input" };
            return Err(Fault::CountsNothing { limit: limit.to_owned(), needs });
        }
        let charges_on_the_way = cuts || sources.first().is_some_and(Source::is_count);
        Ok(Checked { sources, input, cuts, last_words, charges_on_the_way })
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
pub(crate) struct Checked {
    /// In the order of preference.
    pub(crate) sources: Vec<Source>,
    pub(crate) input: Option<RequestCost>,
    pub(crate) cuts: bool,
    pub(crate) last_words: Bytes,
    /// Whether what is counted is charged while the body passes.
    pub(crate) charges_on_the_way: bool,
}
