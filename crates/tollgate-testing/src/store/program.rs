//! The server programs that the tests use.

use super::wait;
use std::env;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Once;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Program {
    /// Redis 7 or later.
    Redis,
    Valkey,
    /// Redis 6.2, the oldest version that the library supports. Only some of the tests run with
    /// this version, because others use settings and commands that it lacks.
    OldRedis,
}

impl Program {
    /// Returns Redis, also Valkey if it is installed, and also Redis 6.2 if its variable names it.
    /// If Valkey is missing, this is reported once.
    pub fn all() -> Vec<Self> {
        static SAID: Once = Once::new();
        let others = [Self::Valkey, Self::OldRedis].into_iter().filter(|program| program.find().is_some());
        let all: Vec<_> = [Self::Redis].into_iter().chain(others).collect();
        if all.contains(&Self::Valkey) {
            return all;
        }
        // Writing to the stream directly bypasses the test harness, which hides the output of
        // passing tests.
        SAID.call_once(|| {
            let said = "valkey-server is not on the path and not named by TOLLGATE_VALKEY_SERVER: Valkey is left out";
            let _ = writeln!(std::io::stderr(), "{said}");
        });
        all
    }

    /// Returns the path of the program.
    ///
    /// # Panics
    ///
    /// Panics if the program is not installed, because a test that did not run must not pass.
    #[track_caller]
    pub fn path(self) -> PathBuf {
        self.find().unwrap_or_else(|| match self {
            Self::Redis => panic!(
                "redis-server is not on the path: install Debian's package redis-server \
                 (apt-get install redis-server), or name the program by TOLLGATE_REDIS_SERVER"
            ),
            Self::Valkey => {
                panic!("valkey-server is not on the path and not named by TOLLGATE_VALKEY_SERVER")
            }
            Self::OldRedis => panic!("redis-server 6.2 is not named by TOLLGATE_OLD_REDIS_SERVER"),
        })
    }

    fn find(self) -> Option<PathBuf> {
        let (variable, name) = match self {
            Self::Redis => ("TOLLGATE_REDIS_SERVER", Some("redis-server")),
            Self::Valkey => ("TOLLGATE_VALKEY_SERVER", Some("valkey-server")),
            Self::OldRedis => ("TOLLGATE_OLD_REDIS_SERVER", None),
        };
        if let Some(named) = env::var_os(variable).filter(|named| !named.is_empty()) {
            assert!(Path::new(&named).is_file(), "invalid {variable} {named:?}: expected a file");
            return Some(named.into());
        }
        let (name, path) = (name?, env::var_os("PATH")?);
        env::split_paths(&path).map(|folder| folder.join(name)).find(|program| program.is_file())
    }
}

/// Runs a test with each program, one after the other.
pub fn for_each_server<F: Future<Output = ()>>(test: impl Fn(Program) -> F) {
    for program in Program::all() {
        // If the test fails, this line shows which program was used.
        eprintln!("with {program:?}");
        wait::run(test(program));
    }
}
