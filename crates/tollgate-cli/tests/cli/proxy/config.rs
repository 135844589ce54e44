//! Tests `--config FILE`, which reads the proxy's options from a file.

use super::arguments::refused;
use super::running::{Proxy, until};
use super::upstream::{Upstream, hello};
use super::wire::get;
use std::fs;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::Command;

/// Writes a file with this content and returns its path.
pub(crate) fn file(name: &str, content: &str) -> String {
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
    fs::write(&path, content).unwrap();
    path.into_os_string().into_string().unwrap()
}

/// Starts a proxy on free ports with a configuration file and additional arguments.
fn start(path: &str, upstream: SocketAddr, args: &[&str]) -> Proxy {
    Proxy::start(upstream, &[&["--config", path], args].concat())
}

#[tokio::test]
async fn a_file_says_what_the_options_say() {
    let upstream = Upstream::start(hello).await;
    let path = file(
        "proxy_all.toml",
        &format!(
            "listen = \"127.0.0.1:0\"\nmetrics = \"127.0.0.1:0\"\nupstream = \"http://{}\"\n\
             limit = [\"a=9/h by ip\", \"b=1/h by path\"]\nstatus = 503\nmax-keys = 1_000\n\
             except = [\"/health\"]\nupstream-http2 = false\nheader-timeout = \"5s\"\n",
            upstream.address
        ),
    );
    let proxy = Proxy::spawn(upstream.address, &["--config", &path]);
    let statuses = [
        get(proxy.address, "/a", "").await.status,
        get(proxy.address, "/a", "").await.status,
        get(proxy.address, "/health", "").await.status,
        get(proxy.address, "/health", "").await.status,
    ];
    assert_eq!(statuses, [200, 503, 200, 200]);
}

#[tokio::test]
async fn a_limit_may_be_a_table_of_its_parts() {
    let upstream = Upstream::start(hello).await;
    let path = file(
        "proxy_tables.toml",
        "[[limit]]\nname = \"logins\"\nquota = \"1/h\"\nby = \"ip\"\nfor = [\"GET /login\", \"DELETE\"]\n\
         [[limit]]\nname = \"all\"\nquota = \"3/h and 9 at once\"\nby = \"nothing\"\nexcept = \"/health\"\n",
    );
    let proxy = start(&path, upstream.address, &[]);
    let mut statuses = Vec::new();
    for path in ["/login", "/login", "/a", "/a", "/a", "/health"] {
        statuses.push(get(proxy.address, path, "").await.status);
    }
    assert_eq!(statuses, [200, 429, 200, 200, 429, 200]);
}

#[tokio::test]
async fn statuses_that_are_counted_are_a_table_or_texts() {
    let upstream = Upstream::start(hello).await;
    let limits = "limit = [\"a=1/h by ip\", \"b=2/h by ip\"]";
    for (name, statuses) in [
        ("proxy_charge_table.toml", "charge-if = { a = \"401, 5xx\", b = \"200\" }"),
        ("proxy_charge_texts.toml", "charge-if = [\"a=401, 5xx\", \"b=200\"]"),
        ("proxy_charge_section.toml", "[charge-if]\na = 401\nb = \"2xx\""),
    ] {
        let proxy = start(&file(name, &format!("{limits}\n{statuses}\n")), upstream.address, &[]);
        let mut statuses = Vec::new();
        for _ in 0..3 {
            statuses.push(get(proxy.address, "/", "").await.status);
        }
        assert_eq!(statuses, [200, 200, 429], "{name}");
    }
}

#[tokio::test]
async fn the_command_line_takes_the_place_of_the_file() {
    let upstream = Upstream::start(hello).await;
    let path = file("proxy_place.toml", "limit = [\"a=1/h by ip\"]\nstatus = 503\n");
    for (args, expected) in
        [(&[][..], [200, 503]), (&["--status", "418"], [200, 418]), (&["--limit", "b=2/h by ip"], [200, 200])]
    {
        let proxy = start(&path, upstream.address, args);
        let statuses = [get(proxy.address, "/", "").await.status, get(proxy.address, "/", "").await.status];
        assert_eq!(statuses, expected, "{args:?}");
    }
}

#[test]
fn a_message_about_the_file_names_the_line_and_the_value() {
    let head = "listen = \"127.0.0.1:0\"\nupstream = \"http://127.0.0.1:9\"\n";
    for (text, parts) in [
        ("limit = [\"a=ten by ip\"]", &[":3: --limit 'a=ten by ip': ", "expected"][..]),
        (
            "limit = [\n  \"a=1/s by ip\",\n  \"b=0/s by ip\",\n]",
            &[":5: --limit 'b=0/s by ip': `0/s` allows no request"],
        ),
        (
            "limit = [\n\"a=1/s by ip\",\n\"b=9/s burst 99 by ip\"]\nalgorithm = \"fixed-window\"",
            &[":5: --limit 'b': "],
        ),
        ("max-keys = \"many\"", &[":3: invalid value 'many' for '--max-keys <N>'"]),
        ("status = 200", &[":3: invalid value '200' for '--status <CODE>'", "400..=599"]),
        ("listn = 1", &[":3: unknown setting `listn`: did you mean `listen`?\n"]),
        ("lmit = \"a=1/s by ip\"", &[":3: unknown setting `lmit`: did you mean `limit`?\n"]),
        ("zzz = 1", &[":3: unknown setting `zzz`: expected one of listen, upstream, "]),
        ("check = \"x\"", &[":3: unknown setting `check`"]),
        ("config = \"x\"", &[":3: unknown setting `config`"]),
        (
            "upstream-http2 = \"yes\"",
            &[":3: invalid upstream-http2 of the type string: expected true or false, without quotes, in \
                 `upstream-http2 = \"yes\"`"],
        ),
        (
            "max-keys = true",
            &[":3: invalid max-keys of the type boolean: expected a text in quotes, or a number"],
        ),
        ("max-keys = [1]", &[":3: invalid max-keys of the type array", "in `max-keys = [1]`"]),
        ("limit = [[\"a\"]]", &[":3: invalid limit of the type array: expected a text in quotes, in "]),
        (
            "limit.a = \"1/s by ip\"",
            &[":3: invalid limit of the type table: expected a text in quotes, or an array of them"],
        ),
        (
            "[proxy]\nlisten = \"127.0.0.1:0\"",
            &[":3: unknown table `proxy`: expected settings, and tables for limits only, as [[limit]]"],
        ),
        ("max_keys = 1", &[":3: unknown setting `max_keys`: did you mean `max-keys`?\n"]),
        ("--shadow = \"a\"", &[":3: unknown setting `--shadow`: did you mean `shadow`?\n"]),
        ("limits = [\"a=1/s by ip\"]", &[":3: unknown setting `limits`: did you mean `limit`?\n"]),
        ("redis = false", &[":3: invalid redis of the type boolean"]),
        (
            "when-full = \"perhaps\"",
            &[":3: invalid value 'perhaps' for '--when-full <POLICY>'", "deny, allow, share"],
        ),
        ("shadow = [\"x\"]", &[":3: invalid --shadow `x`: expected the name of a --limit"]),
        ("trust = [\"10.0.0.0/8\",\n\"localhost\"]", &[":4: invalid --trust `localhost`"]),
        ("redis-lease = 5", &["--redis <URL>"]),
        ("bad-request-limit = \"0/s\"", &[":3: --bad-request-limit: 0 tokens"]),
        ("limit = \"a=1/0s by ip\"", &[":3: --limit 'a': period 0 gives no rate; allowed: 1ns and more"]),
        (
            "limit = \"a=900000000/s by ip\"",
            &[":3: --limit: ", "100 million requests a second; lower the quota, or leave the limit out"],
        ),
        ("limit = \"a=9/s by ip\"\nmax-keys = 0", &[":4: --max-keys 0 is out of range; allowed: 1 to "]),
        (
            "limit = \"a=9/s by ip\"\nmax-keys = 9000000000000000000",
            &[":4: --max-keys 9000000000000000000 is out of range; allowed: 1 to "],
        ),
    ] {
        let path = file("proxy_refused.toml", &format!("{head}{text}\n"));
        let said = refused(&["--config", &path]);
        for part in parts {
            let part =
                if part.starts_with(':') { format!("proxy_refused.toml{part}") } else { (*part).to_owned() };
            assert!(said.contains(&part), "{text}: expected {part} in {said}");
        }
        // An IPv6 network is no path of Rust.
        let said = said.replace("db8::/32", "");
        let of_rust = ["panicked", "::", "()", "(...)", "`.", "exact_keys", "max_keys"];
        let of_rust = of_rust.iter().find(|part| said.contains(**part) && !text.contains(**part));
        assert_eq!(of_rust, None, "{text}: a remedy of Rust in {said}");
    }
}

/// Lines that are not TOML.
const UNREADABLE: &[&str] = &[
    "listen = 127.0.0.1:0",
    "listen = localhost:0",
    "listen = \"127.0.0.1:0",
    "listen \"127.0.0.1:0\"",
    "listen: \"127.0.0.1:0\"",
    "trust = 10.0.0.0/8",
    "trust = [10.0.0.0/8]",
    "limit = a=1/s by ip",
    "limit = [a=1/s by ip]",
    "limit = [\"a=1/s by ip\" \"b=1/s by ip\"]",
    "limit = [\"a=1/s by ip\"",
    "idle-timeout = 30s",
    "bad-request-limit = 60/min",
    "when-full = deny",
    "upstream-http2 = yes",
    "max-keys = 200,000",
    "status =",
    "// a comment",
    "{\"max-keys\": 1}",
];

#[test]
fn a_line_that_is_not_toml_is_shown_with_how_settings_are_written() {
    let refused = |text: &str| {
        let head = "# A file.\n";
        refused(&["--config", &file("proxy_unreadable.toml", &format!("{head}{text}"))])
    };
    let written = "expected each setting once, as NAME = VALUE, with texts, times and quotas in quotes: \
                   listen = \"127.0.0.1:8080\", max-keys = 1000, limit = [\"a=1/s by ip\", \"b=9/s by ip\"]\n";
    for line in UNREADABLE {
        let said = refused(line);
        assert!(
            said.contains(&format!("proxy_unreadable.toml:2: `{line}` is no setting (")),
            "{line}: {said}"
        );
        assert!(said.ends_with(written), "{line}: {said}");
    }
    let said = refused("status = 429\nstatus = 430\n");
    assert!(
        said.contains(":3: `status = 430` is no setting (duplicate key): expected each setting once"),
        "{said}"
    );
    // The message hides the password and cuts the long line.
    let said = refused("redis = rediss://user:secret@10.0.0.5\n");
    assert!(said.contains(":2: `redis = rediss://...` is no setting") && !said.contains("secret"), "{said}");
    let said = refused(&format!("access-log = /{}\n", "a".repeat(200)));
    assert!(said.contains("aaa\u{2026}` is no setting") && said.len() < 500, "{said}");
}

#[test]
fn a_message_about_the_command_line_names_no_line() {
    let path = file("proxy_unnamed.toml", "limit = [\"a=1/s by ip\"]\nupstream = \"http://127.0.0.1:9\"\n");
    let said = refused(&["--config", &path, "--listen", "here"]);
    assert!(said.starts_with("tollgate: invalid value 'here' for '--listen <ADDR>'"), "{said}");
    let said = refused(&["--config", &path]);
    assert!(said.contains("not provided: --listen <ADDR>"), "{said}");
    let said = refused(&["--config", &path, "--max_keys", "5"]);
    let tip =
        "tollgate: unexpected argument '--max_keys' found; tip: a similar argument exists: '--max-keys'\n";
    assert_eq!(said, tip);
    let said = refused(&["--config", "/nowhere/proxy.toml"]);
    assert!(said.contains("cannot read the file of --config, /nowhere/proxy.toml: "), "{said}");
}

#[test]
fn the_page_of_settings_names_every_option_and_no_other() {
    let output = Command::new(env!("CARGO_BIN_EXE_tollgate")).args(["proxy", "--help"]).output().unwrap();
    let help = String::from_utf8(output.stdout).unwrap();
    let page = fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/proxy.md")).unwrap();
    let mut options: Vec<&str> = help
        .lines()
        .filter_map(|line| {
            line.trim_start().trim_start_matches("-l, ").trim_start_matches("-a, ").strip_prefix("--")
        })
        .map(|line| {
            &line[..line.find(|c: char| !c.is_ascii_alphanumeric() && c != '-').unwrap_or(line.len())]
        })
        .filter(|option| !["help", "version"].contains(option))
        .collect();
    options.sort_unstable();
    options.dedup();
    let mut rows: Vec<&str> = page
        .lines()
        .filter_map(|line| line.strip_prefix("| `")?.split('`').next()?.strip_prefix("--"))
        .collect();
    rows.sort_unstable();
    assert_eq!(rows, options);
    // The help must show each default in its option's row.
    for option in options {
        let row = page.lines().find(|line| line.starts_with(&format!("| `--{option}`"))).unwrap();
        let is_option = |line: &&str| {
            let line = line.trim_start();
            line.starts_with("--") || (line.starts_with('-') && !line.starts_with("- "))
        };
        let after = help.split(&format!("--{option} <")).nth(1).unwrap_or_default();
        let about = after.lines().take_while(|line| !is_option(line)).collect::<Vec<_>>().join("\n");
        if let Some(default) = about.split("[default: ").nth(1).and_then(|rest| rest.split(']').next()) {
            let default = default.split_whitespace().collect::<Vec<_>>().join(" ");
            let row = row.replace('`', "");
            assert!(row.contains(&default), "{option}: no default {default} in {row}");
        }
    }
}

#[tokio::test]
async fn the_example_file_starts_a_proxy() {
    let upstream = Upstream::start(hello).await;
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/proxy.toml");
    let log = file("proxy_example.log", "");
    let proxy = start(path, upstream.address, &["--access-log", &log]);
    assert_eq!(get(proxy.address, "/", "").await.status, 200);
    until("the limits are told", || proxy.said().contains("limit per-ip: "));
}

#[tokio::test]
async fn the_example_file_refuses_no_ordinary_client_when_its_shadow_is_gone() {
    let upstream = Upstream::start(hello).await;
    let example = fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/proxy.toml")).unwrap();
    let enforced = example.lines().filter(|line| !line.starts_with("shadow")).collect::<Vec<_>>().join("\n");
    let proxy = start(&file("proxy_enforced.toml", &enforced), upstream.address, &[]);
    for _ in 0..20 {
        assert_eq!(get(proxy.address, "/", "").await.status, 200);
    }
    assert!(!proxy.said().contains("shadow"), "{}", proxy.said());
}
