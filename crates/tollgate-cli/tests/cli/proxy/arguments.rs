//! Tests that the proxy refuses to start with invalid arguments. The message must state the
//! expected values.

use std::net::TcpListener;
use std::process::Command;

/// Runs the proxy and returns its standard error. The proxy must exit with code 2.
pub(crate) fn refused(args: &[&str]) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_tollgate")).arg("proxy").args(args).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(2), "{args:?}: {said}");
    assert!(output.stdout.is_empty());
    said
}

const START: [&str; 4] = ["--listen", "127.0.0.1:0", "--upstream", "http://127.0.0.1:9"];

#[test]
fn arguments_that_mean_nothing_are_named_with_what_is_allowed() {
    let table: &[(&[&str], &str)] = &[
        (&["--limit", "100/s"], "expected NAME=QUOTA by KEY"),
        (&["--limit", "a=100/fortnight by ip"], "allowed: ns, us, ms, s, min, h, d"),
        (
            &["--limit", "a=100/s", "by", "ip"],
            "tip: a value with spaces needs quotes, as in --limit 'per-ip=100/s by ip'",
        ),
        (&["--limit", "a=100/s by address"], "invalid key `address`: expected `ip`, `method`"),
        (&["--limit", "a=1/s by header x y"], "invalid key `header x y`"),
        (&["--limit", "a=1/s by header x:y"], "invalid header name \"x:y\""),
        (&["--limit", "a=0/s by ip"], "`blocked`"),
        (
            &["--limit", "a=1/s class b 2/s by ip class by header x-plan"],
            "--limit 'a': any client can write the header `x-plan`, which names the class of the caller: \
             expected trusted proxies; name their networks in --trust",
        ),
        (
            &["--limit", "a=1/s class b 2/s by ip class by header k in /nowhere"],
            "--limit 'a': classes of keys: the file `/nowhere` cannot be read (",
        ),
        (&["--limit", "a=1/s class b 2/s by ip"], "classes (b) without `class by`"),
        (
            &["--limit", "a=1/s class b 2/s class b 3/s by ip class by header p", "--trust-hops", "1"],
            "class `b` is there twice",
        ),
        (&["--limit", "a=1/s burst 5 by ip", "--algorithm", "fixed-window"], "--limit 'a': "),
        (&["--limit", "a=1/s by ip", "--limit", "a=2/s by ip"], "duplicate limit name \"a\""),
        (
            &["--limit", "a=1/s by ip", "--shadow", "b"],
            "invalid --shadow `b`: expected the name of a --limit (a)",
        ),
        (&["--shadow", "b"], "there is none"),
        (
            &["--limit", "a=1/s by ip", "--charge-if", "b=401"],
            "invalid --charge-if `b`: expected the name of a --limit (a)",
        ),
        (
            &["--charge-if", "a=401"],
            "invalid --charge-if `a`: expected the name of a --limit (there is none)",
        ),
        (
            &["--charge-if", "401"],
            "invalid --charge-if `401`: expected NAME=STATUSES, as in 'logins=401, 403'",
        ),
        (
            &["--limit", "a=1/s by ip", "--charge-if", "a=600"],
            "--charge-if 'a=600': invalid statuses `600`: expected statuses from 100 to 599",
        ),
        (
            &["--limit", "a=1/s by ip", "--charge-if", "a=401", "--charge-if", "a=403"],
            "--charge-if has `a` twice: expected each limit once",
        ),
        (&["--limit", "a=8 at once by ip", "--charge-if", "a=401"], "--charge-if: `a` has no rate"),
        (
            &["--forwarded-field", "x real ip"],
            "invalid field `x real ip`: expected `x-forwarded-for`, `forwarded`",
        ),
        (&["--forwarded-field", "Content-Length"], "the proxy itself writes `content-length`: expected"),
        (&["--forwarded-field", "x-forwarded-host"], "the proxy itself writes `x-forwarded-host`: expected"),
        (&["--limit", "a=1/s by ip", "--max-keys", "0"], "allowed"),
        (&["--trust", "localhost"], "invalid --trust `localhost`: expected an address"),
        (&["--trust", "0.0.0.0/0"], "--trust holds every IPv4 address"),
        (&["--trust-hops", "0"], "invalid --trust-hops 0: expected 1 to 16"),
        (&["--trust-hops", "1", "--trust", "10.0.0.0/8"], "cannot be used with"),
        (&["--ipv6-prefix", "129"], "1..=128"),
        (&["--status", "200"], "400..=599"),
        (&["--except", "health"], "--except 'health': invalid condition `health`: expected a method"),
        (&["--upstream-http2", "--host", "preserve"], "exclude each other"),
        (&["--connect-timeout", "5"], "expected more than 0s, up to 24h"),
        (&["--metrics", "9090"], "expected IP:PORT"),
        (&["--max-connections", "0"], "0"),
        (&["--max-connections-per-address", "0"], "0"),
        (&["--max-header-size", "4000"], "8192..=1048576"),
        (&["--header-timeout", "0s"], "expected more than 0s"),
        (&["--idle-timeout", "60"], "expected more than 0s, up to 24h"),
        (&["--refusal-field", "X-Reason"], "invalid --refusal-field `X-Reason`: expected 'Name: value'"),
        (&["--refusal-field", "Content-Length: 9"], "the proxy itself sets `content-length`"),
        (
            &["--refusal-body", "/nowhere/body.html"],
            "cannot read the file of --refusal-body '/nowhere/body.html'",
        ),
        (&["--refusal-body", "/dev/zero"], "--refusal-body '/dev/zero' has more than 65536 bytes"),
        (
            &["--access-log", "-", "--access-log-format", "json", "--log-key", "/dev/zero"],
            "--log-key '/dev/zero' has more than 4096 bytes",
        ),
        (&["--config", "/dev/zero"], "the file of --config, /dev/zero has more than 16777216 bytes"),
        (&["--access-log-format", "xml"], "combined, json"),
        (&["--access-log-format", "json"], "--access-log <FILE>"),
        (
            &["--log-key", "/nowhere", "--access-log", "-"],
            "--log-key '/nowhere' needs --access-log-format json",
        ),
        (
            &["--access-log", "-", "--access-log-format", "json", "--log-key", "/dev/null"],
            "--log-key '/dev/null': expected 32 hexadecimal digits",
        ),
        (&["--check", "a.toml", "--config", "b.toml"], "cannot be used with"),
        (&["--access-log", "/nowhere/access.log"], "--access-log '/nowhere/access.log' cannot be written"),
        (&["--when-full", "perhaps"], "deny, allow, share"),
        (&["--limit", "a=9/s by ip", "--redis", "10.0.0.5"], "an address has no scheme; write `redis://`"),
        (&["--limit", "a=9/s by ip", "--redis", ":secret@h:6379"], "an address has no scheme"),
        (&["--limit", "a=9/s by ip", "--redis", "redis://h, i:6379"], "an address has no scheme"),
        (
            &["--limit", "a=9/s by ip", "--redis", "redis://h", "--redis-lease", "5"],
            "--limit 'a': invalid --redis-lease of 5",
        ),
        (&["--limit", "a=9/s by ip", "--redis", "redis://h", "--redis-share", "2"], "above 0 and up to 1"),
        (
            &["--limit", "a=9/s by ip", "--redis", "redis://h", "--redis-max-unsynced", "5"],
            "for --redis-max-unsynced: expected fixed-window",
        ),
        (&["--redis-lease", "5"], "--redis <URL>"),
        (
            &["--redis", "redis://h", "--redis-when-unavailable", "allow", "--redis-share", "0.5"],
            "--redis-share 0.5 needs",
        ),
        (
            &[
                "--limit",
                "a=9/s by ip",
                "--redis",
                "redis://h",
                "--redis-when-unavailable",
                "allow",
                "--max-keys",
                "0",
            ],
            "max_keys 0",
        ),
        (&["--redis", "redis://h", "--when-full", "share"], "cannot be used with"),
        (&["--redis", "redis://h", "--redis-deadline", "0s"], "expected more than 0s"),
        (&["--redis", "redis://h", "--redis-deadline", "1s burst 5"], "'1s burst 5'"),
        (
            &["--limit", "a=8 at once by ip", "--redis", "redis://h", "--redis-lease", "5"],
            "--redis-lease 5 has no effect, because it is for rates, and no limit has one",
        ),
    ];
    for (args, part) in table {
        let said = refused(&[&START[..], args].concat());
        assert!(said.contains(part), "{args:?}: {said}");
        assert!(!said.contains("panicked") && !said.contains("secret"), "{said}");
    }
}

#[test]
fn an_upstream_is_a_url_of_http() {
    for (url, part) in [
        ("https://example.org", "TLS"),
        ("example.org", "has no scheme"),
        ("http://example.org/api", "has a path"),
        ("", "is not a URL"),
    ] {
        let said = refused(&["--listen", "127.0.0.1:0", "--upstream", url]);
        assert!(said.contains(part) && said.contains("expected http://HOST[:PORT]"), "{url}: {said}");
    }
}

#[test]
fn an_address_that_is_taken_is_named() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let said = refused(&["--listen", &address, "--upstream", "http://127.0.0.1:9"]);
    assert!(said.contains(&format!("--listen {address}: ")) && said.contains("in use"), "{said}");
    let said = refused(&[&START[..], &["--metrics", &address]].concat());
    assert!(said.contains(&format!("--metrics {address}: ")), "{said}");
}

#[test]
fn help_says_how_limits_are_written() {
    let output = Command::new(env!("CARGO_BIN_EXE_tollgate")).args(["proxy", "--help"]).output().unwrap();
    let help = String::from_utf8(output.stdout).unwrap();
    for part in
        ["NAME=QUOTA by KEY", "--limit 'per-ip=100/s burst 20 by ip'", "A second signal ends it immediately"]
    {
        assert!(help.contains(part), "{part}: {help}");
    }
    assert!(help.lines().all(|line| line.len() <= 100), "a line is too long: {help}");
}
