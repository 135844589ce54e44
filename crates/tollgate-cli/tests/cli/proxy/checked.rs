//! Tests `--check FILE`, which refuses the same settings as the proxy itself, but does not start
//! the proxy.

use super::arguments::refused;
use super::config::file;
use std::fs;
use std::net::TcpListener;
use std::path::PathBuf;
use std::process::Command;

/// Runs a check that must succeed. Returns its standard output and standard error.
fn checked(path: &str) -> (String, String) {
    let output =
        Command::new(env!("CARGO_BIN_EXE_tollgate")).args(["proxy", "--check", path]).output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    let (out, said) = (text(output.stdout), text(output.stderr));
    assert_eq!(output.status.code(), Some(0), "{said}");
    (out, said)
}

/// Writes a file that starts with valid settings for a proxy and ends with `more`.
fn settings(name: &str, more: &str) -> String {
    file(name, &format!("listen = \"127.0.0.1:0\"\nupstream = \"http://127.0.0.1:9\"\n{more}\n"))
}

#[test]
fn a_file_that_would_start_a_proxy_is_one_line_and_binds_nothing() {
    // The address is already in use, and the store is unreachable. The check must not use either.
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap();
    let log = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("proxy_checked.log");
    let _ = fs::remove_file(&log);
    let path = file(
        "proxy_checked.toml",
        &format!(
            "listen = \"{address}\"\nmetrics = \"{address}\"\nupstream = \"http://127.0.0.1:9\"\n\
             limit = [\"a=9/h by ip\", \"b=9/h by nothing\"]\nredis = \"redis://127.0.0.1:1\"\n\
             access-log = \"{}\"\n",
            log.display()
        ),
    );
    let (out, said) = checked(&path);
    assert_eq!((out, &*said), (format!("{path}: the proxy would start, with 2 limits\n"), ""));
    assert!(!log.exists(), "a check leaves no file behind");
    let (out, _) = checked(&settings("proxy_checked_one.toml", "limit = \"a=9/h by ip\""));
    assert!(out.ends_with("with 1 limit\n"), "{out}");
}

#[test]
fn what_the_start_warns_of_is_warned_of() {
    let (out, said) = checked(&settings("proxy_check_warned.toml", "limit = \"a=9/h by header x-api-key\""));
    assert_eq!((out.lines().count(), said.lines().count()), (1, 1), "{said}");
    assert!(said.contains(" WARN limit a counts by header `x-api-key`"), "{said}");
}

#[test]
fn what_the_start_refuses_is_refused_with_the_line_also_in_files_that_the_file_names() {
    for (more, why) in [
        ("limit = \"a=9/h by up\"", "proxy_check_refused.toml:3: --limit 'a=9/h by up': "),
        (
            "lmit = \"a=9/h by ip\"",
            "proxy_check_refused.toml:3: unknown setting `lmit`: did you mean `limit`?",
        ),
        ("limit = \"a=9/h by header x known /nowhere/keys or ip\"", "`/nowhere/keys` cannot be read"),
        ("access-log = \"/nowhere/access.log\"", "--access-log '/nowhere/access.log' cannot be written"),
        ("refusal-body = \"/nowhere/body\"", "cannot read the file of --refusal-body '/nowhere/body'"),
        ("redis = \"10.0.0.5\"", "--redis: invalid client settings"),
        ("bad-request-limit = \"0/s\"", ":3: --bad-request-limit: 0 tokens"),
    ] {
        let said = refused(&["--check", &settings("proxy_check_refused.toml", more)]);
        assert!(said.contains(why) && said.lines().count() == 1, "{more}: {said}");
    }
    let said = refused(&["--check", &file("proxy_check_empty.toml", "")]);
    assert!(said.contains("--listen"), "{said}");
    assert!(
        refused(&["--check", "/nowhere/proxy.toml"])
            .contains("cannot read the file of --check, /nowhere/proxy.toml")
    );
}

#[test]
fn the_files_of_the_page_on_deployment_would_start_a_proxy() {
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/proxy-deployment.md");
    let page = fs::read_to_string(page).unwrap();
    let files = page.split("```toml\n").skip(1).map(|rest| rest.split("```").next().unwrap());
    let files: Vec<&str> = files.collect();
    assert_eq!(files.len(), 2);
    for text in files {
        // The log's folder may not exist on every machine.
        let text = text.replace("/var/log/tollgate", env!("CARGO_TARGET_TMPDIR"));
        let (_, said) = checked(&file("proxy_deployed.toml", &text));
        assert_eq!(said, "", "{text}");
    }
}
