//! Parses quotas and options from strings.

use crate::results::{
    TOLLGATE_ERR_MEMORY, TOLLGATE_ERR_NULL, TOLLGATE_ERR_SETTING, TOLLGATE_ERR_STATE, TOLLGATE_ERR_UNKNOWN,
    text_of,
};
use crate::types::tollgate_limiter;
use std::ffi::c_int;
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;
use tollgate::{
    Algorithm, Builder, Clock, ConfigError, Limiter, LoadError, ParseError, Quota, QuotaError, StateFile,
};

/// The failure of a call that accepts strings: the call's result, and a message for the caller.
#[derive(Debug)]
pub(crate) struct Refusal {
    pub(crate) result: c_int,
    pub(crate) message: String,
}

impl Refusal {
    /// Returns the failure of a call that cannot use the file of a saved state.
    pub(crate) fn of_state(why: impl fmt::Display) -> Self {
        Self { result: TOLLGATE_ERR_STATE, message: why.to_string() }
    }
}

impl From<c_int> for Refusal {
    fn from(result: c_int) -> Self {
        Self { result, message: text_of(result).to_string_lossy().into_owned() }
    }
}

impl From<ConfigError> for Refusal {
    fn from(error: ConfigError) -> Self {
        Self { result: TOLLGATE_ERR_SETTING, message: error.to_string() }
    }
}

impl From<ParseError> for Refusal {
    fn from(error: ParseError) -> Self {
        ConfigError::from(error).into()
    }
}

impl From<QuotaError> for Refusal {
    fn from(error: QuotaError) -> Self {
        let result = if error.is_temporary() { TOLLGATE_ERR_MEMORY } else { TOLLGATE_ERR_SETTING };
        Self { result, message: error.to_string() }
    }
}

/// The options of a limiter. A missing string selects the default, and so does the number 0.
#[derive(Debug, Default)]
pub(crate) struct Options {
    pub(crate) max_keys: u64,
    pub(crate) algorithm: Option<String>,
    pub(crate) when_full: Option<String>,
    pub(crate) clock: Option<String>,
}

/// The maximum delay of a coarse clock, which equals the longest kernel tick.
const COARSE: Duration = Duration::from_millis(10);

/// Builds a limiter from a quota and options.
pub(crate) fn limiter(quota: Option<String>, options: &Options) -> Result<tollgate_limiter, Refusal> {
    Ok(builder(quota, options)?.build()?.into())
}

/// Builds a limiter that continues the state in a file. If the file does not exist, the limiter is
/// new.
pub(crate) fn limiter_of_file(
    path: Option<PathBuf>,
    quota: Option<String>,
    options: &Options,
) -> Result<tollgate_limiter, Refusal> {
    let (path, builder) = (path.ok_or(TOLLGATE_ERR_NULL)?, builder(quota, options)?);
    let file = StateFile::open(path).map_err(Refusal::of_state)?;
    let limiter = match file.read().map_err(Refusal::of_state)? {
        Some(saved) => builder.load(saved).map_err(|error| match error {
            LoadError::Config(error) => error.into(),
            error => Refusal::of_state(format_args!("{}: {error}", file.path().display())),
        })?,
        None => builder.build()?,
    };
    Ok(tollgate_limiter::with_file(limiter, file))
}

fn builder(quota: Option<String>, options: &Options) -> Result<Builder<Limiter<[u8]>>, Refusal> {
    let mut builder = Limiter::<[u8]>::builder(self::quota(quota)?);
    if options.max_keys > 0 {
        builder = builder.max_keys(usize::try_from(options.max_keys).unwrap_or(usize::MAX));
    }
    if let Some(name) = &options.algorithm {
        let why = match name.parse() {
            Ok(algorithm) if Algorithm::PACKED.contains(&algorithm) => {
                builder = builder.algorithm(algorithm);
                None
            }
            Ok(_) => Some(format!("algorithm {name:?} stores whole keys, which no limiter of C has")),
            Err(_) => Some(format!("unknown algorithm {name:?}")),
        };
        if let Some(why) = why {
            let allowed = Algorithm::PACKED.map(|algorithm| algorithm.to_string()).join(", ");
            return Err(Refusal {
                result: TOLLGATE_ERR_SETTING,
                message: format!("{why}; allowed: {allowed}"),
            });
        }
    }
    if let Some(name) = &options.when_full {
        builder = builder.when_full(name.parse()?);
    }
    Ok(match options.clock.as_deref() {
        None => builder,
        Some("counter") => builder.clock(Clock::counter()),
        Some("system") => builder.clock(Clock::system()),
        Some("coarse") => builder.clock(Clock::coarse(COARSE)),
        Some(name) => {
            let message = format!("unknown clock {name:?}; allowed: counter, system, coarse");
            return Err(Refusal { result: TOLLGATE_ERR_SETTING, message });
        }
    })
}

/// Parses a quota's text, which must be present.
pub(crate) fn quota(text: Option<String>) -> Result<Quota, Refusal> {
    Ok(text.ok_or(TOLLGATE_ERR_NULL)?.parse()?)
}

/// Refuses a struct that has nonzero bytes beyond this version's size.
pub(crate) fn unless_zero(tail: &[u8]) -> Result<(), c_int> {
    if tail.iter().all(|byte| *byte == 0) { Ok(()) } else { Err(TOLLGATE_ERR_UNKNOWN) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_names_no_remedy_of_rust() {
        let some = |text: &str| Some(text.to_owned());
        let plain = Options::default;
        for (quota, options, parts) in [
            ("0/s", plain(), &["0 tokens", "allowed: 1 and more"][..]),
            ("0/s burst 5", plain(), &["burst 5", "allowed: 1 token and more"]),
            ("5/0s", plain(), &["period 0", "allowed: 1ns and more", "one second"]),
            ("5/s burst 0", plain(), &["burst 0", "leave the burst out"]),
            ("5/s burst 9 strict", plain(), &["a burst of 9", "below the tokens"]),
            ("9000000000/s", plain(), &["9000000000 tokens", "allowed: 1 to 2000000000"]),
            ("1/d burst 9000000000000000000", plain(), &["burst 9000000000000000000", "smaller burst"]),
            ("5/4000d", plain(), &["too long", "shorter period"]),
            ("5/fortnight", plain(), &["\"fortnight\"", "allowed: ns, us, "]),
            ("5/s", Options { max_keys: u64::MAX, ..plain() }, &["max_keys ", "allowed: 1 to "]),
            (
                "5/s",
                Options { algorithm: some("guess"), ..plain() },
                &["\"guess\"", "allowed: token-bucket, "],
            ),
            ("5/s", Options { algorithm: some("sliding-log"), ..plain() }, &["\"sliding-log\"", "allowed: "]),
            ("5/s", Options { when_full: some("maybe"), ..plain() }, &["\"maybe\"", "deny", "share"]),
            ("5/s", Options { clock: some("sundial"), ..plain() }, &["\"sundial\"", "coarse"]),
        ] {
            let message = limiter(some(quota), &options).err().map(|refusal| refusal.message);
            let message = message.unwrap_or_else(|| panic!("{quota} with {options:?} is accepted"));
            assert!(parts.iter().all(|part| message.contains(part)), "{quota} with {options:?}: {message}");
            let of_rust = ["::", "()", "(...)", "`.", "exact"];
            assert!(
                !of_rust.iter().any(|part| message.contains(part)),
                "{quota} with {options:?}: {message}"
            );
        }
        let unknown = limiter(some("5/s"), &Options { algorithm: some("guess"), ..plain() });
        assert!(unknown.is_err_and(|refusal| !refusal.message.contains("sliding-log")));
    }
}
