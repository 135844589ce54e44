//! A newcomer waits for the first command in README and for the examples, so these compile few
//! crates, without optimization.

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

/// Returns the crates that are built for `arguments`. Cargo itself resolves them, so features that
/// other crates enable also count.
fn crates(root: &Path, edges: &str, arguments: &[&str]) -> BTreeSet<String> {
    let cargo = env::var_os("CARGO").expect("cargo runs this test");
    let listed = Command::new(cargo)
        .current_dir(root)
        .args(["tree", "--locked", edges, "--prefix=none", "--format={p}"])
        .args(arguments)
        .output()
        .unwrap();
    assert!(listed.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&listed.stderr));
    let listed = String::from_utf8(listed.stdout).unwrap();
    // The mark of a crate that is listed twice is removed.
    listed.lines().map(|line| line.trim_end_matches(" (*)").to_owned()).collect()
}

#[test]
fn the_first_command_of_readme_compiles_few_crates() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let readme = fs::read_to_string(root.join("README.md")).unwrap();
    // Each of these arguments selects what is built, and `cargo tree` accepts all of them.
    // `cargo tree` refuses `--release` and `--profile`, with which the build takes several times as
    // long.
    let crates = crates(root, "--edges=normal,build", &arguments(&readme));
    assert!(crates.iter().any(|name| name.starts_with("tollgate-cli ")), "{crates:?}");
    assert!(crates.len() <= MOST_CRATES, "{} crates: {crates:#?}", crates.len());
}

/// Cargo builds all dependencies of a package, including those of its tests, for each of its
/// examples. The examples are therefore a package of their own.
#[test]
fn the_examples_compile_without_what_tests_and_benchmarks_need() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let of_tests = ["tollgate-testing", "criterion", "proptest"];
    let found = |package| {
        let crates = crates(root, "--edges=normal,build,dev", &["-p", package]);
        of_tests.map(|name| crates.iter().any(|it| it.split(' ').next() == Some(name)))
    };
    assert_eq!([found("tollgate-examples"), found("tollgate")], [[false; 3], [true; 3]]);
}
