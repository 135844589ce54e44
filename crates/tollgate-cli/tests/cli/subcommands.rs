//! Tests that the program contains the subcommands that it was built with, and explains why any
//! other subcommand is missing.

use std::process::{Command, Output};

fn tollgate(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_tollgate")).args(args).output().expect("the program was built")
}

#[test]
fn help_names_the_subcommands_that_were_built() {
    let output = tollgate(&["--help"]);
    let help = String::from_utf8(output.stdout).expect("help is UTF-8");
    assert!(
        output.status.success() && help.contains("\n  replay ") && help.contains("\n  suggest "),
        "{help}"
    );
    assert_eq!(help.contains("\n  proxy "), cfg!(feature = "proxy"), "{help}");
    assert_eq!(help.contains("in front of a server"), cfg!(feature = "proxy"), "{help}");
}

#[cfg(not(feature = "proxy"))]
#[test]
fn a_build_without_the_proxy_says_in_one_line_how_to_get_it() {
    for args in [&["proxy"][..], &["proxy", "--config", "proxy.toml"], &["help", "proxy"]] {
        let output = tollgate(args);
        let said = String::from_utf8(output.stderr).expect("messages are UTF-8");
        assert_eq!(output.status.code(), Some(2), "{args:?}: {said}");
        assert_eq!(said.lines().count(), 1, "{args:?}: {said}");
        assert!(said.contains("with its feature `proxy`"), "{args:?}: {said}");
    }
}
