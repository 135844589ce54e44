//! The first command of README is one that a newcomer waits for, so it compiles few crates, without
//! optimization.

use std::collections::BTreeSet;
use std::env;
use std::fs;
use std::path::Path;
use std::process::Command;

/// The most crates that the command compiles, the program among them. 83 take less than a minute on
/// two cores; the whole program has more than twice as many.
const MOST_CRATES: usize = 85;

/// The arguments that cargo gets from the first `cargo run` of README.
fn arguments(readme: &str) -> Vec<&str> {
    let command = readme.split("\ncargo run ").nth(1).expect("README has a `cargo run`");
    let (cargo, _) = command.split_once(" -- ").expect("the program has arguments");
    cargo.split_whitespace().collect()
}

/// Compares what cargo itself resolves, so a feature that another crate enables counts, too.
#[test]
fn the_first_command_of_readme_compiles_few_crates() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let readme = fs::read_to_string(root.join("README.md")).unwrap();
    let arguments = arguments(&readme);
    // All of them choose what is built, as `cargo tree` takes them: `--release` and `--profile`,
    // which it refuses, make the build several times as long.
    let cargo = env::var_os("CARGO").expect("cargo runs this test");
    let listed = Command::new(cargo)
        .current_dir(root)
        .args(["tree", "--locked", "--edges=normal,build", "--prefix=none", "--format={p}"])
        .args(&arguments)
        .output()
        .unwrap();
    assert!(listed.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&listed.stderr));
    let listed = String::from_utf8(listed.stdout).unwrap();
    // A crate that stands there before is marked.
    let crates: BTreeSet<_> = listed.lines().map(|line| line.trim_end_matches(" (*)")).collect();
    assert!(crates.iter().any(|name| name.starts_with("tollgate-cli ")), "{crates:?}");
    assert!(crates.len() <= MOST_CRATES, "{} crates: {crates:#?}", crates.len());
}
