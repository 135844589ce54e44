//! Tests `--check FILE`, which refuses the same settings as the proxy itself, but does not start
//! the proxy.

use super::arguments::refused;
use super::config::file;
use std::fs;
use std::net::TcpListener;
use std::path::PathBuf;
use std::process::Command;
use tollgate_testing::limit_texts::{RIGHT, WRONG};

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
    // The addresses are already in use, and the store is unreachable. The check must not use them.
    let taken = [(); 2].map(|()| TcpListener::bind("127.0.0.1:0").unwrap());
    let [address, metrics] = taken.each_ref().map(|it| it.local_addr().unwrap());
    let log = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("proxy_checked.log");
    let _ = fs::remove_file(&log);
    let path = file(
        "proxy_checked.toml",
        &format!(
            "listen = \"{address}\"\nmetrics = \"{metrics}\"\nupstream = \"http://127.0.0.1:9\"\n\
             limit = [\"a=9/h by ip\", \"b=9/h by nothing\"]\nredis = \"redis://127.0.0.1:1\"\n\
             access-log = \"{}\"\n",
            log.display()
        ),
    );
    let (out, said) = checked(&path);
    let expected = format!(
        "{path}: the proxy would start, with 2 limits\n\
         limit a: 9/h by ip, token-bucket\n\
         limit b: 9/h by nothing, token-bucket\n"
    );
    assert_eq!((out, &*said), (expected, ""));
    assert!(!log.exists(), "a check leaves no file behind");
    let (out, _) = checked(&settings("proxy_checked_one.toml", "limit = \"a=9/h by ip\""));
    assert!(out.contains("with 1 limit\nlimit a: 9/h by ip"), "{out}");
    // Conditions in a list are alternatives.
    let table = "shadow = \"a\"\n[[limit]]\nname = \"a\"\nquota = \"5/min\"\nby = \"ip\"\nfor = [\"POST\", \"/login\"]";
    let (out, _) = checked(&settings("proxy_checked_table.toml", table));
    assert!(
        out.ends_with("\nlimit a: 5/min by ip for POST or /login, token-bucket (shadow: refuses nothing)\n"),
        "{out}"
    );
}

/// Returns the exit code of a check, and everything that it prints.
fn check(path: &str) -> (Option<i32>, String) {
    let output =
        Command::new(env!("CARGO_BIN_EXE_tollgate")).args(["proxy", "--check", path]).output().unwrap();
    (output.status.code(), String::from_utf8(output.stderr).unwrap())
}

#[test]
fn every_wrong_limit_is_refused_or_warned_of_with_the_fix() {
    let missed = WRONG.into_iter().filter_map(|(text, fix)| {
        let (code, said) = check(&settings("proxy_check_wrong.toml", &format!("limit = '{text}'")));
        (!said.contains(fix) || !matches!(code, Some(0 | 2))).then(|| format!("{text}: {fix}: {said}"))
    });
    let missed: Vec<String> = missed.collect();
    assert!(missed.is_empty(), "{} of {}:\n{}", missed.len(), WRONG.len(), missed.join("\n"));
}

#[test]
fn no_right_limit_is_refused_or_warned_of() {
    let refused = RIGHT.into_iter().filter_map(|text| {
        let (code, said) = check(&settings("proxy_check_right.toml", &format!("limit = '{text}'")));
        (code != Some(0) || !said.is_empty()).then(|| format!("{text}: {said}"))
    });
    let refused: Vec<String> = refused.collect();
    assert!(refused.is_empty(), "{} of {}:\n{}", refused.len(), RIGHT.len(), refused.join("\n"));
}

#[test]
fn wrong_settings_beside_the_limits_are_refused_or_warned_of() {
    let limit = |fields: &str| format!("[[limit]]\nname = \"a\"\nquota = \"5/min\"\nby = \"ip\"\n{fields}");
    for (more, fix) in [
        ("limits = [\"a=5/min by ip\"]".to_owned(), "did you mean `limit`?"),
        (limit("path = \"/login\""), "unknown field `path`"),
        (limit("for = \"/api/**\""), "`/api/{*path}`"),
        (limit("for = [\"PSOT\", \"/login\"]"), "did you mean `POST`"),
        ("except = [\"/health*\"]".to_owned(), "`{*path}`"),
        ("except = [\"from 0.0.0.0/0\"]".to_owned(), "every IPv4 address"),
        ("path-template = [\"/users/:id\"]".to_owned(), "`{id}`"),
        ("path-template = [\"/users/{id}\"]".to_owned(), "no limit has the key `path`"),
        ("shadow = [\"login\"]".to_owned(), "invalid --shadow `login`"),
        ("charge-if = { login = \"401\" }".to_owned(), "invalid --charge-if `login`"),
        ("charge-if = { login = [401] }".to_owned(), "invalid charge-if of the type array"),
        ("charge-if = \"401\"".to_owned(), "expected NAME=STATUSES, as in 'logins=401, 403'"),
        ("max_keys = 9".to_owned(), "did you mean `max-keys`?"),
        ("metrics = \"127.0.0.1:7\"".to_owned(), "is also the address of --listen"),
    ] {
        let address = "listen = \"127.0.0.1:7\"\nupstream = \"http://127.0.0.1:9\"";
        let (code, said) = check(&file("proxy_check_beside.toml", &format!("{address}\n{more}\n")));
        assert!(said.contains(fix) && matches!(code, Some(0 | 2)), "{more}: {said}");
    }
    let many: Vec<String> =
        (0..6).map(|number| format!("\"a{number}=1/s and 9/min and 99/h by ip\"")).collect();
    let (_, said) = check(&settings("proxy_check_many.toml", &format!("limit = [{}]", many.join(", "))));
    assert!(said.contains("18 limits") && said.contains("put a second proxy"), "{said}");
    let path = settings("proxy_check_bytes.toml", "");
    fs::write(&path, b"listen = \"127.0.0.1:0\"\n# \xff\n").unwrap();
    let (_, said) = check(&path);
    assert!(said.contains("proxy_check_bytes.toml:2: a byte that is not UTF-8"), "{said}");
}

#[test]
fn the_files_of_a_limit_are_in_the_folder_of_the_file_that_names_them() {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("with a space");
    fs::create_dir_all(&folder).unwrap();
    fs::write(folder.join("keys"), "k-7f3a\n").unwrap();
    fs::write(folder.join("classes"), "k-7f3a,paid\n").unwrap();
    let limit = "a=1/h class paid 2/h by header x-key known keys or ip class by header x-key in classes";
    let path = folder.join("proxy.toml");
    let text = format!("listen = \"127.0.0.1:0\"\nupstream = \"http://127.0.0.1:9\"\nlimit = '{limit}'\n");
    fs::write(&path, text).unwrap();
    assert_eq!(check(path.to_str().unwrap()), (Some(0), String::new()));
    // The files in an argument are in the working directory.
    let given = ["--limit", limit, "--listen", "127.0.0.1:0", "--upstream", "http://127.0.0.1:9"];
    assert!(refused(&given).contains("the file `classes` cannot be read"));
}

#[test]
fn what_the_start_warns_of_is_warned_of() {
    let (out, said) = checked(&settings("proxy_check_warned.toml", "limit = \"a=9/h by header x-api-key\""));
    assert_eq!((out.lines().count(), said.lines().count()), (2, 1), "{said}");
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
