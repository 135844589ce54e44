//! The `tollgate` program; the library of this package does the work.

use std::process::ExitCode;

fn main() -> ExitCode {
    tollgate_cli::run()
}
