//! The scripts, as commands to the server.

use redis::{Cmd, ErrorKind, RedisError, Script as Hashed, ServerErrorKind, Value};
use smallvec::SmallVec;
use std::collections::BTreeSet;
use std::io::Write;
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
    /// The server did not execute the request. The text is the server's reason.
    Server(String),
    /// The server may have executed the request, or may still execute it.
    Unknown,
}

/// One call of a script on one key.
#[derive(Clone, Debug)]
pub(crate) struct Call<'s> {
    pub(crate) script: &'s Script,
    pub(crate) key: &'s str,
    args: Args,
}

/// The arguments of a call, concatenated, and the offset at which each argument ends.
#[derive(Clone, Debug)]
pub(crate) struct Args {
    bytes: Vec<u8>,
    ends: SmallVec<[usize; 10]>,
}

impl<'s> Call<'s> {
    pub(crate) fn new(script: &'s Script, key: &'s str) -> Self {
        Self::with(script, key, Args { bytes: Vec::with_capacity(96), ends: SmallVec::new() })
    }

    pub(crate) fn with(script: &'s Script, key: &'s str, args: Args) -> Self {
        Self { script, key, args }
    }

    pub(crate) fn into_args(self) -> Args {
        self.args
    }

    pub(crate) fn text(mut self, arg: &str) -> Self {
        self.args.bytes.extend_from_slice(arg.as_bytes());
        self.end()
    }

    pub(crate) fn number(mut self, arg: u64) -> Self {
        // Writing to a Vec can't fail.
        let _ = write!(self.args.bytes, "{arg}");
        self.end()
    }

    /// Appends a time in microseconds. Without a time, appends an empty string, so that the script
    /// uses the server's time.
    pub(crate) fn time(self, now: Option<Tick>) -> Self {
        match now {
            Some(now) => self.number(now.as_nanos() / 1000),
            None => self.text(""),
        }
    }

    fn end(mut self) -> Self {
        self.args.ends.push(self.args.bytes.len());
        self
    }

    /// Returns the command. If `whole` is true, the command contains the whole script, for a server
    /// that does not know the digest.
    pub(crate) fn command(&self, whole: bool) -> Cmd {
        let mut cmd = match whole {
            true => redis::cmd("EVAL"),
            false => redis::cmd("EVALSHA"),
        };
        cmd.arg(if whole { &*self.script.code } else { &*self.script.digest }).arg(1).arg(self.key);
        let mut start = 0;
        for &end in &self.args.ends {
            cmd.arg(&self.args.bytes[start..end]);
            start = end;
        }
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
    let Value::Array(values) = value.extract_error()? else { return Err(no_numbers()) };
    let number = |value| if let Value::Int(number) = value { Ok(number) } else { Err(no_numbers()) };
    values.into_iter().map(number).collect()
}

fn no_numbers() -> RedisError {
    (ErrorKind::UnexpectedReturnType, "invalid answer of a script: expected numbers").into()
}
