//! The names that the shared library exports.

use crate::programs::{here, run};
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;

/// The functions that the header declares.
fn declared() -> BTreeSet<String> {
    let header =
        fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("include/tollgate.h")).unwrap();
    let lines = header.lines().filter(|line| !line.starts_with([' ', '/', '#']));
    let names = lines.filter_map(|line| line.split_once('(')).map(|(before, _)| before);
    names.filter_map(|before| before.split([' ', '*']).next_back()).map(str::to_owned).collect()
}

#[test]
fn the_shared_library_exports_what_the_header_declares() {
    let listed = run(Command::new("nm").args(["-D", "--defined-only"]).arg(here("libtollgate_c.so")));
    let exported: BTreeSet<String> =
        listed.lines().filter_map(|line| line.split(' ').next_back()).map(str::to_owned).collect();
    assert!(declared().contains("tollgate_check"), "{:?}", declared());
    assert_eq!(exported, declared());
}

/// The dynamic linker searches for the library by this name when a program starts.
#[test]
fn the_shared_library_has_a_versioned_name_and_stays_loaded() {
    let listed = run(Command::new("readelf").args(["--dynamic", "--wide"]).arg(here("libtollgate_c.so")));
    let version = env!("CARGO_PKG_VERSION").rsplit_once('.').unwrap().0;
    assert!(listed.contains(&format!("[libtollgate.so.{version}]")), "{listed}");
    assert!(listed.contains("NODELETE"), "{listed}");
}
