//! The scripts, as commands to the server.

use redis::{Cmd, ErrorKind, RedisError, Script as Hashed, ServerErrorKind, Value};
use smallvec::SmallVec;
use std::io::Write;

/// The answer of a script; inline for the most numbers that any script returns.
pub(crate) type Reply = SmallVec<[i64; 8]>;

/// A script and its digest, by which a server that has run it before knows it.
#[derive(Debug)]
pub(crate) struct Script {
    code: String,
    digest: String,
}

impl Script {
    /// Joins a script's body to the functions that all scripts share.
    pub(crate) fn new(body: &str) -> Self {
        let code = format!("{}\n{body}", include_str!("common.lua"));
        let digest = Hashed::new(&code).get_hash().to_owned();
        Self { code, digest }
    }
}

/// The reason why there is no answer.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Failure {
    /// The request was not sent.
    Unavailable,
    /// The server did not execute the request, for this reason.
    Server(String),
    /// The request may have been executed, or may still be.
    Unknown,
}

/// One call of a script on one key.
#[derive(Clone, Debug)]
pub(crate) struct Call<'s> {
    script: &'s Script,
    pub(crate) key: &'s str,
    args: Vec<u8>,
    ends: SmallVec<[usize; 10]>,
}

impl<'s> Call<'s> {
    pub(crate) fn new(script: &'s Script, key: &'s str) -> Self {
        Self { script, key, args: Vec::with_capacity(96), ends: SmallVec::new() }
    }

    pub(crate) fn text(mut self, arg: &str) -> Self {
        self.args.extend_from_slice(arg.as_bytes());
        self.ends.push(self.args.len());
        self
    }

    pub(crate) fn number(mut self, arg: u64) -> Self {
        // Writing to a Vec can't fail.
        let _ = write!(self.args, "{arg}");
        self.ends.push(self.args.len());
        self
    }

    /// Returns the command: by digest, or with the whole script for a server that does not know it.
    pub(crate) fn command(&self, whole: bool) -> Cmd {
        let mut cmd = match whole {
            true => redis::cmd("EVAL"),
            false => redis::cmd("EVALSHA"),
        };
        cmd.arg(if whole { &self.script.code } else { &self.script.digest }).arg(1).arg(self.key);
        let mut start = 0;
        for &end in &self.ends {
            cmd.arg(&self.args[start..end]);
            start = end;
        }
        cmd
    }
}

/// Returns whether an error says that the server does not know the script, and so did not run it.
pub(crate) fn is_unknown(error: &RedisError) -> bool {
    error.kind() == ErrorKind::Server(ServerErrorKind::NoScript)
}

/// Parses the numbers of an answer.
pub(crate) fn reply(value: Value) -> Result<Reply, RedisError> {
    let Value::Array(values) = value.extract_error()? else { return Err(no_numbers()) };
    let number = |value| if let Value::Int(number) = value { Ok(number) } else { Err(no_numbers()) };
    values.into_iter().map(number).collect()
}

fn no_numbers() -> RedisError {
    (ErrorKind::UnexpectedReturnType, "invalid answer of a script: expected numbers").into()
}
