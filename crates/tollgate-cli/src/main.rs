//! The `tollgate` program: see the library of the same package.

use std::process::ExitCode;

fn main() -> ExitCode {
    tollgate_cli::run()
}
