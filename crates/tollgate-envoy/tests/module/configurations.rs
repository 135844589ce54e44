//! Tests configurations that must be refused, each with its reason, and configurations in files.

use std::fs;

use crate::host::{Module, get, logged};
use tollgate_testing::limit_texts::{RIGHT, WRONG};

fn refused(text: &str) -> String {
    let filter = format!("refused-{}", text.len() + text.bytes().map(usize::from).sum::<usize>());
    Module::load(&filter, text).err().unwrap_or_else(|| panic!("{text} is taken"))
}

#[test]
fn a_bad_configuration_is_refused_with_its_reason() {
    for (text, reason) in [
        ("", "0 limits would let every request through: expected at least 1, as in limit = "),
        ("limit = [\"a=1/h by ip\"", "filter_config, line 1: "),
        ("limit = [\"a=1/h by ip\"]\n\nmax-keys = \"x\"", "filter_config, line 3: "),
        ("limit = [\"a=1/h by address\"]", "invalid key `address`: expected `ip`, `method`, "),
        ("limit = [\"a=0/h by ip\"]", "write `blocked` to refuse every request"),
        (
            "max-keys = 9\nlimits = [\"a=1/h by ip\"]",
            "filter_config, line 2: unknown setting `limits`: expected one of limit, algorithm, max-keys, when-full, \
             shadow, status, except, path-template, ipv6-prefix, charge-if, file, trust-headers, route-metadata, \
             dynamic-metadata, state, redis, redis-sentinel, redis-deadline, redis-when-unavailable, redis-share, \
             redis-lease, redis-max-unsynced, trust, trust-hops, forwarded-field",
        ),
        ("limit = [\"a=1/h by ip\", \"a=2/h by ip\"]", "\"a\""),
        ("limit = [\"a=1/h by ip\"]\nshadow = [\"b\"]", "`b`"),
        ("limit = [\"a=1/h by ip\"]\nstatus = 200", "invalid status of a refusal 200: expected 400 to 599"),
        ("limit = [\"a=1/h by ip\"]\ntrust-hops = 1", "set use_remote_address and xff_num_trusted_hops"),
        (
            "trust-hops = 1\nforwarded-field = \"X-Forwarded-For\"",
            "`forwarded-field` is not for Envoy, which finds the address of the client itself",
        ),
        (
            "limit = [\"a=1/h by ip\"]\nforwarded-field = \"x-real-ip\"",
            "forwarded-field `x-real-ip` would never be read, because no proxy is trusted: expected trusted proxies; \
             set `trust` or `trust-hops`",
        ),
        (
            "limit = [\"a=1/h by ip\"]\ntrust-hops = 17\nforwarded-field = \"x-real-ip\"",
            "filter_config, line 2: invalid number of trusted hops 17: expected 1 to 16",
        ),
        (
            "limit = [\"a=1/h by ip\"]\ntrust = [\"10.0.0.0/8\"]\ntrust-hops = 1\nforwarded-field = \"x-real-ip\"",
            "both trusted networks (10.0.0.0/8) and 1 trusted hops",
        ),
        (
            "limit = [\"a=1/h by ip\"]\ndynamic-metadata = \"\"",
            "dynamic-metadata is empty: expected a namespace",
        ),
        ("limit = [\"a=1/h by ip\"]\nstate = \"\"", "state names no file: expected a path, such as "),
        (
            "limit = [\"a=1/h by ip\"]\nstate = \"/tmp\"",
            "state `/tmp` is not a file: expected the name of a file",
        ),
        (
            "limit = [\"a=1/h by ip\"]\nstate = 7",
            "filter_config, line 2: invalid type: integer `7`, expected path",
        ),
        (
            "limit = [\"a=1/h by ip\"]\ncharge-if = { b = \"401\" }",
            "charge-if has `b`: expected the name of a limit (a)",
        ),
        (
            "limit = [\"a=1/h by ip\"]\ncharge-if = { a = \"6xx\" }",
            "invalid statuses `6xx`: expected statuses from 100 to 599",
        ),
        (
            "limit = [\"a=8 at once by ip\"]\ncharge-if = { a = \"401\" }",
            "`a` has no rate, so no response gives a charge back",
        ),
        ("limit = [\"a=1/h by ip\"]\ntrust-headers = [\"a b\"]", "invalid header `a b`"),
        ("limit = [\"a=1/h by ip\"]\nroute-metadata = { x-t = \"tenant\" }", "expected NAMESPACE/KEY"),
        ("limit = [\"a=1/h class p 2/h by ip class by header x-plan\"]", "trust-headers = [\"x-plan\"]"),
        (
            "limit = [\"a=1/h class p 2/h by ip class by header x-plan\"]\ntrust-headers = [\"x-plan\"]\n\
             route-metadata = { x-paln = \"com.example/plan\" }",
            "route-metadata has `x-paln`, which neither a limit nor `except` reads: expected a header that they read \
             (`x-plan`)",
        ),
        (
            "limit = [\"a=1/h by ip\"]\ntrust-headers = [\"x-plan\"]",
            "trust-headers has `x-plan`, which neither a limit nor `except` reads: expected a header that they read \
             (they read none)",
        ),
        (
            "limit = [\"a=1/h by header x-t or ip\"]\nroute-metadata = { x-t = \"c/t\", X-T = \"c/u\" }",
            "route-metadata has `x-t` twice",
        ),
        (
            "limit = [\"a=1/h by header x-t or ip\"]\ntrust-headers = [\"x-t\", \"X-T\"]",
            "trust-headers has `x-t` twice",
        ),
        (
            "limit = [\"a=1/h by ip\"]\nredis-lease = 5",
            "`redis-lease` has no effect without `redis`: expected",
        ),
        (
            "{\"limit\": [\"a=1/h by ip\"], \"redis-sentinel\": \"redis://h\"}",
            "`redis-sentinel` has no effect without `redis`: expected the address of the store as well",
        ),
        (
            "limit = [\"a=1/h by ip\"]\nredis = \"10.0.0.5\"",
            "redis: invalid client settings: an address has no scheme; write `redis://` before it",
        ),
        (
            "limit = [\"a=1/h by ip\"]\nredis = \"redis://h\"\nwhen-full = \"share\"",
            "`when-full` has no effect beside `redis`",
        ),
        (
            "{\"limit\": [\"a=1/h by ip\"], \"redis\": \"redis://h\", \"redis-lease\": \"5\"}",
            "filter_config: `redis-lease`: invalid type: string \"5\"",
        ),
        (
            "{\"limit\": [\"a=1/h by ip\"], \"status\": 429, \"max-keys\": 1.5}",
            "filter_config: `max-keys`: invalid type: floating point `1.5`",
        ),
        ("{\"file\": 7}", "filter_config: `file`: invalid type: integer `7`"),
        (
            "{\"limit\": [\"a=1/h by ip\"], \"redis\": null, \"redis-lease\": 20}",
            "`redis` has no value: give it one, or leave `redis` out",
        ),
        (
            "{\"limit\": [{\"name\": \"a\", \"quota\": \"5/min\", \"by\": \"ip\", \"then\": null}]}",
            "filter_config: `then` has no value: give it one, or leave `then` out",
        ),
        (
            "{\"limit\": [\"a=1/h by ip\"], \"charge-if\": {\"a\": null}}",
            "`a` has no value: give it one, or leave `a` out",
        ),
        ("{\"limit\": [\"a=1/h by ip\", null]}", "filter_config: `limit`: invalid type: null"),
        (
            "{\"limit\": [\"a=1/h by ip\"], \"status\": 503, \"status\": 429}",
            "filter_config: `status` stands twice: expected it once",
        ),
        (
            "{\"limit\": [{\"name\": \"a\", \"quota\": \"1/h\", \"quota\": \"9/h\", \"by\": \"ip\"}]}",
            "`quota` stands twice",
        ),
        (
            "{\"limit\": [\"a=1/h by ip\"], \"charge-if\": {\"a\": \"401\", \"a\": \"403\"}}",
            "`a` stands twice",
        ),
        (
            "{\"limit\": [\"a=1/h by header x-t or ip\"], \"route-metadata\": {\"x-t\": \"c/t\", \"x-t\": \"c/u\"}}",
            "`x-t` stands twice",
        ),
        (
            "limit = [\"a=1/h by ip\"]\nredis = \"redis://h\"\nredis-deadline = \"soon\"",
            "filter_config, line 3: invalid redis-deadline `soon`: expected more than 0s, up to 24h, as in 500ms",
        ),
        (
            "limit = [\"a=1/h by ip\"]\nredis = \"redis://h\"\nredis-deadline = \"s\"",
            "invalid redis-deadline `s`: expected more than 0s",
        ),
        (
            "limit = [\"a=1/h by ip\"]\nredis = \"redis://h\"\nredis-deadline = \"1s burst 5\"",
            "invalid redis-deadline `1s burst 5`: expected more than 0s",
        ),
        (
            "limit = [\"a=8 at once by ip\"]\nredis = \"redis://h\"\nredis-lease = 5",
            "redis-lease 5 has no effect, because it is for rates, and no limit has one: expected a rate",
        ),
        (
            "limit = [\"a=8 at once by ip\"]\nredis = \"redis://h\"\nredis-max-unsynced = 5",
            "redis-max-unsynced 5 has no effect, because it is for rates",
        ),
        (
            "limit = [\"a=1/h by ip\"]\nredis = \"redis://h\"\nredis-deadline = \"61s\"",
            "invalid redis-deadline 61s: expected 1ms to 60s",
        ),
        (
            "limit = [\"a=1/h by ip\"]\nredis = \"redis://h\"\nredis-when-unavailable = \"open\"",
            "invalid redis-when-unavailable `open`: expected local, allow or deny",
        ),
        (
            "limit = [\"a=1/h by ip\"]\nredis = \"redis://h\"\nredis-share = 1.5",
            "invalid redis-share 1.5: expected a number above 0 and up to 1",
        ),
        (
            "limit = [\"a=1/h by ip\"]\nredis = \"redis://h\"\nredis-share = 0.5\nredis-when-unavailable = \"deny\"",
            "redis-share 0.5 needs redis-when-unavailable local, the default; leave one of them out",
        ),
        (
            "limit = [\"a=1/h by ip\"]\nredis = \"redis://h\"\nredis-share = 0.5\nredis-max-unsynced = 1",
            "redis-share 0.5 has no effect beside redis-max-unsynced 1",
        ),
        (
            "limit = [\"a=9/h by ip\"]\nredis = \"redis://h\"\nredis-lease = 2\nredis-max-unsynced = 1",
            "limit `a`: redis-lease and redis-max-unsynced exclude each other",
        ),
        (
            "limit = [\"a=9/s by ip\"]\nredis = \"redis://h\"\nredis-lease = 5",
            "limit `a`: invalid redis-lease of 5 tokens: expected 1 to 4 under this quota",
        ),
        (
            "limit = [\"a=9/s by ip\"]\nredis = \"redis://h\"\nredis-max-unsynced = 5",
            "for redis-max-unsynced: expected fixed-window or sliding-window",
        ),
        (
            "limit = [\"a=9/s class paid 8 at once by ip class by header x-p\"]\ntrust-headers = [\"x-p\"]\n\
             redis = \"redis://h\"",
            "this combination of classes can't be shared through redis: expected a rate",
        ),
        (
            "limit = [\"a=9/s by ip\"]\nredis = \"redis://a,redis://b\"\nredis-sentinel = \"redis://h\"",
            "redis has 2 addresses beside redis-sentinel: expected one, whose host is the name of the master",
        ),
        (
            "limit = [\"a=9/s by ip\"]\nredis = \"redis://mymaster:6379\"\nredis-sentinel = \"redis://h\"",
            "redis: expected the name of the master in the place of a host, and no port",
        ),
        (
            "limit = [\"a=9/s by ip\"]\nredis = \"redis://mymaster\"\nredis-sentinel = \"10.0.0.5\"",
            "redis-sentinel: invalid client settings: an address has no scheme",
        ),
        ("file = \"/nowhere/limits.toml\"", "cannot read the file `/nowhere/limits.toml`"),
        ("file = \"/nowhere\"\nmax-keys = 1", "`file` beside other settings"),
        ("{\"limit\": [\"a=1/h by ip\"], \"max\": 1}", "unknown setting `max`: expected one of limit, "),
        ("{\"limit\": [}", "filter_config: "),
        ("{\"limit\": [\"a=1/h by ip\"], \"trust\": []}", "`trust` is not for Envoy"),
        ("limit = [\"a=1/h by header x-api-key known /nowhere/keys or ip\"]", "/nowhere/keys"),
        ("charge-if = { a = \"401\" }", "charge-if has `a`: expected the name of a limit (there is none)"),
        ("limit = [\"a=1/0s by ip\"]", "period 0 gives no rate; allowed: 1ns and more"),
        ("limit = [\"a=9/s burst 0 by ip\"]", "burst 0 would deny every request"),
        ("limit = [\"a=9/s burst 9 strict by ip\"]", "a burst of 9 leaves no rate for a strict quota of 9"),
        ("limit = [\"a=9000000000/s by ip\"]", "allowed: 1 to 2000000000 per 1s"),
        (
            "limit = [\"a=900000000/s by ip\"]",
            "expected up to 100 million requests a second; lower the quota, or leave the limit out",
        ),
        (
            "limit = [\"a=9/s burst 5 by ip\"]\nalgorithm = \"fixed-window\"",
            "leave it out, or choose a token-bucket",
        ),
        ("limit = [\"a=1/h by ip\"]\nmax-keys = 0", "max-keys 0 is out of range; allowed: 1 to "),
        ("limit = [\"a=1/h by ip\"]\nmax-keys = -1", "expected usize"),
        ("limit = [\"a=1/h by ip\"]\nipv6-prefix = 0", "invalid number of bits 0: expected 1 to 128"),
    ] {
        let said = refused(text);
        assert!(said.contains(reason), "{text}\nsays {said}\nand not {reason}");
        assert!(said.contains("the configuration is refused"), "{said}");
        let of_rust = ["::", "()", "(...)", "`.", "exact_keys", "max_keys"];
        assert!(
            !of_rust.iter().any(|part| said.contains(part)),
            "{text} is refused with a remedy of Rust: {said}"
        );
    }
}

/// Writes a file of keys or classes, and returns its refusal in a limit by two keys of one part
/// each.
fn refused_file(name: &str, words: &str, content: &str) -> String {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join(name);
    fs::write(&file, content).unwrap();
    refused(&format!("limit = [\"a=1/h class paid 2/h {} {}\"]", words, file.display()))
}

#[test]
fn a_bad_file_of_classes_is_refused_with_the_remedy_of_a_file() {
    let by = "by header x-api-key or ip class by key in";
    for (content, reason) in [
        (
            "k-1,b,paid\n",
            "line 1 of the file `FILE` has 2 values before its class: expected 1, one for each part of the key",
        ),
        (
            "k-1,pro\n",
            "limit `a`: the file has the class `pro`, which the limit does not have: expected default, paid, or a \
             quota such as 100/s, `8 at once`, `unlimited` or `blocked`; correct the file, or add `class pro QUOTA` \
             to the limit",
        ),
    ] {
        let said = refused_file("classes.csv", by, content);
        let file = said.split('`').find(|word| word.ends_with("classes.csv")).unwrap_or("FILE");
        let said = said.replace(file, "FILE");
        assert!(said.contains(reason), "{content}: {said}");
    }
    let said = refused_file("classes.csv", "by header x-api-key+ip or ip class by key in", "a,b,c,paid\n");
    assert!(said.contains("has 3 values before its class: expected 1 or 2, one for each part"), "{said}");
}

#[test]
fn a_file_has_the_settings_and_is_checked_as_they_are() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("limits.toml");
    let config = format!("file = {file:?}");
    let keys = folder.path().join("customers.csv");
    fs::write(&keys, "k1,paid\nk2,3/h\n").unwrap();
    let text =
        format!("limit = [\"a=1/h class paid 2/h by header x-key class by key in {}\"]", keys.display());
    fs::write(&file, &text).unwrap();
    let module = Module::load("of-file", &config).unwrap();
    for (key, remaining) in
        [("k1", "\"a\";r=1;t=1800"), ("k2", "\"a\";r=2;t=1200"), ("k9", "\"a\";r=0;t=3600")]
    {
        assert_eq!(module.serve(&get("/").with("x-key", key)).header("ratelimit"), Some(remaining));
    }
    for (text, reason) in [
        ("file = \"x\"", "`file` in a file"),
        ("\n\nlimit = 7", "limits.toml, line 3: "),
        ("", "0 limits would let every"),
    ] {
        fs::write(&file, text).unwrap();
        let said = Module::load("of-bad-file", &config).err().unwrap();
        assert!(said.contains(reason), "{said}");
    }
    fs::write(&file, b"limit = [\"\xff\"]").unwrap();
    let said = Module::load("of-bytes", &config).err().unwrap();
    assert!(said.contains("limits.toml, line 1: a byte that is not UTF-8"), "{said}");
    fs::write(&file, b"max-keys = 9\n\n# \xff\n").unwrap();
    let said = Module::load("of-more-bytes", &config).err().unwrap();
    assert!(said.contains("limits.toml, line 3: a byte that is not UTF-8"), "{said}");
    // The file of classes is in the folder of the file that names it.
    fs::write(&file, "limit = [\"a=1/h class paid 2/h by header x-key class by key in customers.csv\"]")
        .unwrap();
    let module = Module::load("of-relative-file", &config).unwrap();
    assert_eq!(module.serve(&get("/").with("x-key", "k1")).header("ratelimit"), Some("\"a\";r=1;t=1800"));
}

#[test]
fn a_deadline_is_a_time_as_in_the_proxy() {
    for time in ["250ms", "1.5s", "0m30s", "1s"] {
        let text = format!("limit = [\"a=1/h by ip\"]\nredis = \"redis://h\"\nredis-deadline = \"{time}\"");
        let loaded = Module::validate(&format!("deadline-{time}"), &text);
        assert_eq!(loaded.err(), None, "{time}");
    }
}

#[test]
fn more_limits_than_a_response_can_name_are_refused() {
    let texts: Vec<String> = (0..17).map(|number| format!("\"a{number}=1/h by ip\"")).collect();
    let said = refused(&format!("limit = [{}]", texts.join(", ")));
    assert!(said.contains("17 limits") && said.contains("put a second filter"), "{said}");
}

/// Returns the refusal of a text, or the warnings about it.
fn said(number: usize, text: &str) -> String {
    let filter = format!("text-{number}");
    let config = format!("limit = ['{text}']");
    match Module::load(&filter, &config) {
        Ok(_) => logged(&format!("filter {filter}:")),
        Err(said) => said,
    }
}

#[test]
fn every_wrong_limit_is_refused_or_warned_of_with_the_fix() {
    let missed = WRONG.into_iter().enumerate().filter_map(|(number, (text, fix))| {
        let said = said(number, text);
        (!said.contains(fix)).then(|| format!("{text}: {fix}: {said}"))
    });
    let missed: Vec<String> = missed.collect();
    assert!(missed.is_empty(), "{} of {}:\n{}", missed.len(), WRONG.len(), missed.join("\n"));
}

#[test]
fn no_right_limit_is_refused_or_warned_of() {
    let refused = RIGHT.into_iter().enumerate().filter_map(|(number, text)| {
        let said = said(1000 + number, text);
        (!said.is_empty()).then(|| format!("{text}: {said}"))
    });
    let refused: Vec<String> = refused.collect();
    assert!(refused.is_empty(), "{} of {}:\n{}", refused.len(), RIGHT.len(), refused.join("\n"));
}

#[test]
fn a_trusted_proxy_that_does_not_report_its_clients_is_warned_of_once() {
    let config = "limit = [\"a=9/h by ip\"]\ntrust = [\"192.0.2.0/24\"]\nforwarded-field = \"x-real-ip\"";
    let module = Module::load("unreported", config).unwrap();
    // The field of an untrusted client is ignored.
    let _ = module.serve(&get("/").from("203.0.113.9:80"));
    assert_eq!(logged("filter unreported"), "");
    (0..2).for_each(|_| drop(module.serve(&get("/"))));
    let log = logged("filter unreported");
    let warning =
        "the trusted proxy 192.0.2.1 has sent a request without the field `x-real-ip`, so all clients";
    assert!(log.contains(warning) && log.lines().count() == 1, "{log}");
}

#[test]
fn a_key_that_any_client_can_invent_is_a_warning() {
    let _module = Module::load("invented", "limit = [\"a=1/h by header x-key else allow\"]").unwrap();
    for part in ["which any client can invent", "uses up that client's quota"] {
        assert!(logged("filter invented").contains(part), "{}", logged("invented"));
    }
    let config = "limit = [\"a=1/h by header x-key else allow\"]\ntrust-headers = [\"x-key\"]";
    let _module = Module::load("vouched-for", config).unwrap();
    assert_eq!(logged("vouched-for"), "");
}

const PAGE: &str = include_str!("../../../../docs/envoy.md");

#[test]
fn a_header_by_which_clients_evade_a_limit_is_a_warning() {
    let config = "limit = [\"a=1/h by ip for header x-beta\"]\nexcept = [\"header x-staff=1\"]";
    let _module = Module::load("evaded", config).unwrap();
    let log = logged("filter evaded");
    for said in [
        "limit a is for some requests by the header `x-beta`",
        "except exempts some requests by the header `x-staff`",
    ] {
        assert!(log.contains(said), "{log}");
    }
    let _module =
        Module::load("kept-from", &format!("{config}\ntrust-headers = [\"x-beta\", \"x-staff\"]")).unwrap();
    assert_eq!(logged("filter kept-from"), "");
}

#[test]
fn headers_that_limits_read_under_another_name_may_be_trusted() {
    let config = "limit = [\"a=1/h by header Host else allow for preflight\"]\nexcept = [\"header x-staff\"]\n\
        trust-headers = [\"host\", \"origin\", \"X-Staff\"]";
    assert_eq!(Module::load("read", config).err(), None);
    let config = "limit = [\"a=1/h by ip\"]\ntrust = [\"10.0.0.0/8\"]\nforwarded-field = \"x-real-ip\"\n\
        trust-headers = [\"x-real-ip\"]";
    assert_eq!(Module::load("read-client", config).err(), None);
}

/// Returns the page's code blocks in this language.
fn blocks(language: &str) -> impl Iterator<Item = &'static str> {
    let blocks = PAGE.split("```").skip(1).step_by(2);
    blocks.filter_map(move |block| block.strip_prefix(language)?.strip_prefix('\n'))
}

#[test]
fn the_page_shows_settings_that_are_taken() {
    for (number, block) in blocks("toml").enumerate() {
        // A validation writes no file.
        Module::validate(&format!("page-{number}"), block).unwrap();
    }
    assert_eq!(blocks("toml").count(), 4);
}

#[test]
fn the_page_shows_the_filter_of_the_demonstration() {
    let demo = include_str!("../../python/tollgate_envoy/demo.yaml");
    let filter = blocks("yaml").next().unwrap();
    let indented: String = filter.lines().map(|line| format!("          {line}\n")).collect();
    assert!(demo.contains(&indented), "the demonstration does not have\n{indented}");
}
