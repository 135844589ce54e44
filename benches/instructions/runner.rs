//! The program that gungraun starts to run valgrind and to read its counts. It is usually installed
//! by hand, in exactly the version of the library. As a part of this package, it has the version of
//! the lock file, and nothing must be installed.

use env_logger::Env;
use gungraun_runner::error::Error;
use std::process::ExitCode;

fn main() -> ExitCode {
    env_logger::Builder::from_env(Env::default().filter_or("GUNGRAUN_LOG", "warn")).init();
    let Err(error) = gungraun_runner::runner::run::run() else { return ExitCode::SUCCESS };
    match error.downcast_ref() {
        Some(Error::RegressionError(_)) => {
            eprintln!(
                "A check takes more instructions than it may: see benches/instructions/instructions.rs."
            );
        }
        _ => eprintln!("{error:?}"),
    }
    ExitCode::FAILURE
}
