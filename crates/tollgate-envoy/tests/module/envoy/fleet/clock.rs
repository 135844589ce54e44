//! Programs whose time of day is wrong.

use std::path::{Path, PathBuf};
use std::process::Command;

/// Compiles `clock.c` into this folder.
pub(super) fn library(folder: &Path) -> PathBuf {
    let library = folder.join("clock.so");
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/module/envoy/fleet/clock.c");
    let compiled = Command::new("cc").args(["-shared", "-fPIC", "-o"]).arg(&library).arg(source).status();
    assert!(compiled.expect("rustc links with cc").success());
    library
}

/// If there is a library, sets the time of day of a program ahead. The monotonic clock stays right,
/// as on a machine whose time of day is wrong.
pub(super) fn set_ahead<'p>(
    program: &'p mut Command,
    seconds: u64,
    library: Option<&Path>,
) -> &'p mut Command {
    match library {
        Some(library) => program.env("LD_PRELOAD", library).env("CLOCK_SHIFT", seconds.to_string()),
        None => program,
    }
}
