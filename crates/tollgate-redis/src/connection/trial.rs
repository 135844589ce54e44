//! [`Trial`]: a rehearsal of a limit's checks, which finds problems that would prevent the store
//! from answering checks.
//!
//! A trial runs the limit's own script on a key with the limit's prefix. It charges one token and
//! then deletes the key, which no client can choose. The trial sends EVALSHA, as checks do. It also
//! sends EVAL, even if the server already knows the script, because checks use EVAL after the
//! server has restarted.

use super::servers::{Connection, breaks_connection};
use crate::health::Problem;
use crate::name::Naming;
use crate::scripts::rule::{Op, Rule};
use crate::scripts::script::{self, Args, Call, Script};
use arc_swap::ArcSwap;
use futures_util::future::join_all;
use redis::{Cmd, ErrorKind, RedisError, ServerErrorKind, Value};
use std::collections::BTreeMap;
use std::sync::{Arc, Weak};
use tollgate::Tick;

/// The operations of a limit in the store.
#[derive(Clone, Debug)]
pub(crate) struct Trial {
    /// The name of the limit.
    pub(crate) limit: String,
    /// The prefix that the names of the limit's keys share.
    pub(crate) prefix: String,
    pub(crate) script: Script,
    /// The arguments of a check of one token.
    pub(crate) args: Args,
    /// The commands that the script runs, in lower case.
    pub(crate) commands: Vec<String>,
}

/// A server and its user, as problem messages name them.
pub(crate) struct Tried<'s> {
    pub(crate) server: &'s str,
    pub(crate) user: &'s str,
}

/// The limits of a client. Each trial ends with its limiter.
#[derive(Default)]
pub(crate) struct Trials(ArcSwap<Added>);

#[derive(Default)]
struct Added {
    /// How many trials have started.
    started: u64,
    limits: Vec<Weak<Trial>>,
}

/// The results of a trial of all limits on a server.
#[derive(Default)]
pub(crate) struct Findings {
    /// The number of the trial. A trial with a higher number started later, and tried at least the
    /// limits that had been added before an earlier trial.
    number: u64,
    pub(crate) problems: Vec<Problem>,
}

impl Findings {
    pub(crate) fn new(number: u64, problems: Vec<Problem>) -> Self {
        Self { number, problems }
    }

    /// Returns true if this trial started before `other`, which may have ended earlier.
    pub(crate) fn is_older_than(&self, other: &Self) -> bool {
        self.number < other.number
    }
}

impl Trials {
    pub(crate) fn add(&self, trial: &Arc<Trial>) {
        self.0.rcu(|added| {
            let live = added.limits.iter().filter(|trial| trial.strong_count() > 0).cloned();
            Added { started: added.started, limits: live.chain([Arc::downgrade(trial)]).collect() }
        });
    }

    /// Starts a trial. Returns its number, and copies of the limits that are still in use.
    /// References instead of copies would make a dropped limit appear to be in use until the trial
    /// ends.
    pub(crate) fn start(&self) -> (u64, Vec<Trial>) {
        let next = |added: &Arc<Added>| Added { started: added.started + 1, limits: added.limits.clone() };
        let before = self.0.rcu(next);
        let copy = |limit: &Weak<Trial>| limit.upgrade().map(|limit| Trial::clone(&limit));
        (before.started + 1, before.limits.iter().filter_map(copy).collect())
    }
}

impl Trial {
    /// Returns the trial of a limit that runs `rule`'s script. If `now` is given, the limit's
    /// checks send the time.
    pub(crate) fn of(limit: &str, naming: &Naming, rule: &Rule, now: Option<Tick>) -> Arc<Self> {
        let call = rule.call("", Op::check(1), now);
        Self::new(limit, naming, call, now.is_some())
    }

    /// Returns the trial of a limit whose checks are like `call`. Unless the checks send the time,
    /// they also run TIME.
    pub(crate) fn new(limit: &str, naming: &Naming, call: Call<'_>, sends_time: bool) -> Arc<Self> {
        let mut commands = call.script.commands();
        commands.retain(|command| !sends_time || command != "time");
        Arc::new(Self {
            limit: limit.to_owned(),
            prefix: naming.prefix().to_owned(),
            script: call.script.clone(),
            args: call.into_args(),
            commands: commands.into_iter().collect(),
        })
    }

    /// Returns a key for trying out the limit. No client can choose this key: the variable part of
    /// all other names has 32 digits or starts with `=`.
    pub(crate) fn key(&self, number: u64) -> String {
        format!("{}trial-{number:016x}", self.prefix)
    }

    /// Tries the limit on a key with the limit's prefix, and deletes the key at the end.
    async fn run(&self, connection: &Connection, key: &str, tried: &Tried<'_>) -> Vec<Problem> {
        let mut problems = Vec::new();
        let call = Call::with(&self.script, key, self.args.clone());
        let mut answered = connection.send(call.command(false), false).await;
        let mut command = "evalsha";
        if answered.as_ref().is_err_and(script::is_unknown) {
            (answered, command) = (connection.send(call.command(true), false).await, "eval");
        }
        let by_script = answered.err().and_then(|error| self.problem(&error, command, tried));
        match connection.send(self.rights(key), false).await {
            Ok(Value::Array(numbers)) => {
                let number =
                    |value: &Value| if let Value::Int(number) = value { Some(*number) } else { None };
                let refused = numbers
                    .iter()
                    .filter_map(number)
                    .filter_map(|number| self.commands.get(usize::try_from(number).ok()?.checked_sub(1)?));
                problems.extend(refused.map(|command| self.refused(command, tried)));
            }
            Ok(_) => {}
            Err(error) => problems.extend(self.problem(&error, "eval", tried)),
        }
        // If the user may not run a command in the script, the script's error does not name that
        // command.
        match by_script {
            Some(Problem::Script { .. }) if !problems.is_empty() => {}
            Some(problem) if !problems.contains(&problem) => problems.insert(0, problem),
            _ => {}
        }
        problems
    }

    fn rights(&self, key: &str) -> Cmd {
        let mut cmd = redis::cmd("EVAL");
        cmd.arg(include_str!("../scripts/trial.lua")).arg(1).arg(key).arg(&self.commands);
        cmd
    }

    fn refused(&self, command: &str, tried: &Tried<'_>) -> Problem {
        Problem::Command {
            server: tried.server.to_owned(),
            user: tried.user.to_owned(),
            command: command.to_owned(),
            limit: self.limit.clone(),
        }
    }

    /// Returns the problem indicated by an error from `command`. Returns `None` if the key has
    /// moved.
    fn problem(&self, error: &RedisError, command: &str, tried: &Tried<'_>) -> Option<Problem> {
        let (server, reason) = (tried.server.to_owned(), error.to_string());
        let limit = self.limit.clone();
        Some(match error.kind() {
            ErrorKind::Server(ServerErrorKind::Moved | ServerErrorKind::Ask) => return None,
            // If the user may not access the keys, the text mentions the keys but no command.
            ErrorKind::Server(ServerErrorKind::NoPerm) if reason.contains(" command") => {
                self.refused(command, tried)
            }
            ErrorKind::Server(ServerErrorKind::NoPerm) => {
                let (user, keys) = (tried.user.to_owned(), format!("{}*", self.prefix));
                Problem::Keys { server, user, keys, limit }
            }
            ErrorKind::Server(ServerErrorKind::ReadOnly) => Problem::Replica { server },
            _ if error.code() == Some("OOM") => Problem::Full { server },
            _ if breaks_connection(error) => Problem::Unreachable { server, reason },
            _ => Problem::Script { server, limit, reason },
        })
    }
}

/// Tries all limits on one server, each with its own key. Also reads how the server behaves when
/// its memory is full. Returns each problem once.
pub(crate) async fn run_all(
    trials: &[(&Trial, String)],
    connection: &Connection,
    tried: &Tried<'_>,
) -> Vec<Problem> {
    let each = trials.iter().map(|(trial, key)| trial.run(connection, key, tried));
    let mut found: Vec<Problem> = Vec::new();
    for problem in join_all(each).await.into_iter().flatten() {
        if !found.contains(&problem) {
            found.push(problem);
        }
    }
    let info = info(connection).await;
    let server = || tried.server.to_owned();
    // If there are no limits, no script would find this problem.
    if trials.is_empty() && info.as_deref().is_some_and(is_read_only_replica) {
        found.push(Problem::Replica { server: server() });
    }
    let policy = match info.as_deref().and_then(|info| field(info, "maxmemory_policy")) {
        Some(policy) => Some(policy.to_owned()),
        None => configured_policy(connection).await,
    };
    if let Some(policy) = policy.filter(|policy| policy != "noeviction") {
        found.push(Problem::Eviction { server: server(), policy });
    }
    found
}

/// Returns the server's report about itself, if the user may read it. Redis 6.2 does not accept
/// several sections.
async fn info(connection: &Connection) -> Option<String> {
    redis::from_redis_value(connection.send(redis::cmd("INFO"), false).await.ok()?).ok()
}

/// Returns the value of a field in the answer to INFO.
fn field<'i>(info: &'i str, name: &str) -> Option<&'i str> {
    let mut fields = info.lines().filter_map(|line| line.split_once(':'));
    fields.find(|(field, _)| *field == name).map(|(_, value)| value.trim())
}

fn is_read_only_replica(info: &str) -> bool {
    field(info, "role") == Some("slave") && field(info, "slave_read_only") != Some("0")
}

/// Returns the `maxmemory-policy` in the server's configuration, if the user may read it.
async fn configured_policy(connection: &Connection) -> Option<String> {
    let mut config = redis::cmd("CONFIG");
    config.arg("GET").arg("maxmemory-policy");
    let settings = connection.send(config, false).await.ok()?;
    redis::from_redis_value::<BTreeMap<String, String>>(settings).ok()?.remove("maxmemory-policy")
}
