//! The scripts, as commands to the server.

use redis::{Cmd, ErrorKind, RedisError, Script as Hashed, ServerErrorKind, Value};
use smallvec::SmallVec;
use std::collections::BTreeSet;
use std::sync::Arc;
use tollgate::Tick;

/// A script's answer. The values are stored inline, up to the maximum number that a script returns.
pub(crate) type Reply = SmallVec<[i64; 8]>;

/// A script and its digest. A server that has already run the script recognizes the digest.
#[derive(Clone, Debug)]
pub(crate) struct Script {
    code: Arc<str>,
    digest: Arc<str>,
}

impl Script {
    /// Joins a script's body to the functions that all scripts share.
    pub(crate) fn new(body: &str) -> Self {
        let code = format!("{}\n{body}", include_str!("common.lua"));
        let digest = Hashed::new(&code).get_hash().into();
        Self { code: code.into(), digest }
    }

    /// Returns the commands that the script runs, in lower case.
    pub(crate) fn commands(&self) -> BTreeSet<String> {
        let calls = self.code.split("redis.call('").skip(1);
        calls.filter_map(|call| call.split_once('\'')).map(|(command, _)| command.to_lowercase()).collect()
    }
}

/// Why a request has no answer.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Failure {
    /// The request was not sent.
    Unavailable,
    /// The server refused the request before the first write. The text is the server's reason.
    Refused(String),
    /// The answer is another error, which a proxy may have sent after the server executed the
    /// request.
    Server(String),
    /// The answer is late, lost or unreadable. The server may have executed the request, or may
    /// still execute it.
    Unknown,
}

/// The codes of the errors that a server or a script returns before the first write of a script.
const REFUSALS: [&str; 17] = [
    "ASK",
    "BUSY",
    "CLUSTERDOWN",
    "CROSSSLOT",
    "LOADING",
    "MASTERDOWN",
    "MISCONF",
    "MOVED",
    "NOAUTH",
    "NOPERM",
    "NOREPLICAS",
    "NOSCRIPT",
    "OOM",
    "READONLY",
    "TOLLGATE",
    "TRYAGAIN",
    // Each script reads its only key before it writes to the key.
    "WRONGTYPE",
];

impl Failure {
    /// Returns the failure of a request that was answered with an error.
    pub(crate) fn of(error: &RedisError) -> Self {
        match error.kind() {
            ErrorKind::Server(_) | ErrorKind::Extension => {
                let is_refusal = error.code().is_some_and(|code| REFUSALS.contains(&code));
                let failure = if is_refusal { Self::Refused } else { Self::Server };
                failure(error.to_string())
            }
            _ => Self::Unknown,
        }
    }

    /// Returns true if it is certain that the server neither executed the request nor will.
    pub(crate) fn was_not_run(&self) -> bool {
        matches!(self, Self::Unavailable | Self::Refused(_))
    }
}

/// One call of a script on one key.
#[derive(Clone, Debug)]
pub(crate) struct Call<'s> {
    pub(crate) script: &'s Script,
    pub(crate) key: &'s str,
    args: Args,
}

/// The arguments of a call.
#[derive(Clone, Debug)]
pub(crate) struct Args {
    /// The request. A single argument takes less of the server's time than one for each number, and
    /// doubles take less than digits.
    request: Vec<u8>,
    /// The time of the request in microseconds. Without it, the script reads the server's clock.
    now: Option<u64>,
}

impl<'s> Call<'s> {
    /// Starts a call. If there is no `now`, the script uses the server's time.
    pub(crate) fn new(script: &'s Script, key: &'s str, now: Option<Tick>) -> Self {
        let now = now.map(|now| now.as_nanos() / 1000);
        Self::with(script, key, Args { request: Vec::with_capacity(96), now })
    }

    pub(crate) fn with(script: &'s Script, key: &'s str, args: Args) -> Self {
        Self { script, key, args }
    }

    pub(crate) fn into_args(self) -> Args {
        self.args
    }

    /// Appends a text, which must not contain a zero byte.
    pub(crate) fn text(mut self, text: &str) -> Self {
        self.args.request.extend_from_slice(text.as_bytes());
        self.args.request.push(0);
        self
    }

    /// Appends a number. Scripts compute with doubles, so numbers above 2^53 are rounded.
    pub(crate) fn number(mut self, number: u64) -> Self {
        self.args.request.extend_from_slice(&(number as f64).to_le_bytes());
        self
    }

    /// Appends several numbers.
    pub(crate) fn numbers<const N: usize>(self, numbers: [u64; N]) -> Self {
        numbers.into_iter().fold(self, Self::number)
    }

    /// Returns the command. If `whole` is true, the command contains the whole script, for a server
    /// that does not know the digest.
    pub(crate) fn command(&self, whole: bool) -> Cmd {
        let mut cmd = match whole {
            true => redis::cmd("EVAL"),
            false => redis::cmd("EVALSHA"),
        };
        cmd.arg(if whole { &*self.script.code } else { &*self.script.digest }).arg(1).arg(self.key);
        // With one argument less, the script reads the server's clock.
        cmd.arg(&self.args.request).arg(self.args.now);
        cmd
    }
}

/// Returns true if an error means that the server does not know the script, and therefore did not
/// run the script.
pub(crate) fn is_unknown(error: &RedisError) -> bool {
    error.kind() == ErrorKind::Server(ServerErrorKind::NoScript)
}

/// Parses the numbers in an answer.
pub(crate) fn reply(value: Value) -> Result<Reply, RedisError> {
    let Value::BulkString(bytes) = value.extract_error()? else { return Err(no_numbers()) };
    let (numbers, []) = bytes.as_chunks() else { return Err(no_numbers()) };
    // The numbers are whole, and exact below 2^53.
    #[allow(clippy::cast_possible_truncation)]
    Ok(numbers.iter().map(|number| f64::from_le_bytes(*number) as i64).collect())
}

fn no_numbers() -> RedisError {
    (ErrorKind::UnexpectedReturnType, "invalid answer of a script: expected numbers").into()
}
