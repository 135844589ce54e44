//! The two programs that everything is tested with.

use super::wait;
use std::env;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Once;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Program {
    Redis,
    Valkey,
}

impl Program {
    /// Redis always, and Valkey where there is one; that there is none is said once.
    pub fn all() -> Vec<Self> {
        static SAID: Once = Once::new();
        if Self::Valkey.find().is_some() {
            return vec![Self::Redis, Self::Valkey];
        }
        // Written past the test harness, which keeps to itself what a passing test says.
        SAID.call_once(|| {
            let said = "valkey-server is not on the path and not named by TOLLGATE_VALKEY_SERVER: Valkey is left out";
            let _ = writeln!(std::io::stderr(), "{said}");
        });
        vec![Self::Redis]
    }

    /// Where the program is.
    ///
    /// # Panics
    ///
    /// If it is nowhere: a test that was not made is no success.
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
        })
    }

    fn find(self) -> Option<PathBuf> {
        let (variable, name) = match self {
            Self::Redis => ("TOLLGATE_REDIS_SERVER", "redis-server"),
            Self::Valkey => ("TOLLGATE_VALKEY_SERVER", "valkey-server"),
        };
        if let Some(named) = env::var_os(variable).filter(|named| !named.is_empty()) {
            assert!(Path::new(&named).is_file(), "{variable} names {named:?}, which is no file");
            return Some(named.into());
        }
        let path = env::var_os("PATH")?;
        env::split_paths(&path).map(|folder| folder.join(name)).find(|program| program.is_file())
    }
}

/// Runs a test with each program, one after the other.
pub fn for_each_server<F: Future<Output = ()>>(test: impl Fn(Program) -> F) {
    for program in Program::all() {
        // A test that fails shows with which of them.
        eprintln!("with {program:?}");
        wait::run(test(program));
    }
}
