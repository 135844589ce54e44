//! A newcomer waits for the first command in README, so this command compiles few crates, without
//! optimization.

use std::collections::BTreeSet;
use std::env;
use std::fs;
use std::path::Path;
use std::process::Command;

/// The maximum number of crates that the command compiles, including the program. 83 crates take
/// less than a minute on two cores. The whole program has more than twice as many crates.
const MOST_CRATES: usize = 85;

/// Returns the arguments of the first `cargo run` of README.
fn arguments(readme: &str) -> Vec<&str> {
    let command = readme.split("\ncargo run ").nth(1).expect("README has a `cargo run`");
    let (cargo, _) = command.split_once(" -- ").expect("the program has arguments");
    cargo.split_whitespace().collect()
}

/// Examines the dependencies that cargo itself resolves, so that features enabled by other crates
/// also count.
#[test]
fn the_first_command_of_readme_compiles_few_crates() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let readme = fs::read_to_string(root.join("README.md")).unwrap();
    let arguments = arguments(&readme);
    // Each of these arguments selects what is built, and `cargo tree` accepts all of them.
    // `cargo tree` refuses `--release` and `--profile`, with which the build takes several times as
    // long.
    let cargo = env::var_os("CARGO").expect("cargo runs this test");
    let listed = Command::new(cargo)
        .current_dir(root)
        .args(["tree", "--locked", "--edges=normal,build", "--prefix=none", "--format={p}"])
        .args(&arguments)
        .output()
        .unwrap();
    assert!(listed.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&listed.stderr));
    let listed = String::from_utf8(listed.stdout).unwrap();
    // The mark of a crate that is listed twice is removed.
    let crates: BTreeSet<_> = listed.lines().map(|line| line.trim_end_matches(" (*)")).collect();
    assert!(crates.iter().any(|name| name.starts_with("tollgate-cli ")), "{crates:?}");
    assert!(crates.len() <= MOST_CRATES, "{} crates: {crates:#?}", crates.len());
}
