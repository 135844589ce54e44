//! Tests `tollgate replay --html`, which writes a single page. The page loads nothing, and no text
//! in a log becomes markup.

use crate::program::{LOG, json, log, refusal_of, replay, scratch, started, text_of};
use html5gum::{Token, Tokenizer};
use serde_json::Value;
use std::collections::BTreeSet;
use std::fs;
use std::io::Write;
use std::path::PathBuf;

/// The elements that the page may contain. None of them loads, runs or links to anything.
const ELEMENTS: &str = "b body caption code div footer h1 h2 head header html li line main meta p path pre rect \
    section span style svg table tbody td text th thead title tr ul ol em strong g figure \
    figcaption";
const ATTRIBUTES: &str = "aria-hidden charset class content height http-equiv lang name preserveaspectratio role scope \
    text-anchor viewbox width x x1 x2 y y1 y2";

fn page(test: &str) -> PathBuf {
    scratch("replay_html").join(format!("{test}.html"))
}

/// A parsed page: its elements with their attributes, and its text.
struct Parsed {
    /// The elements in order, in the form `td class`.
    tags: Vec<String>,
    text: String,
}

/// Parses a page. It must not contain errors, or any elements and attributes other than those
/// listed above.
#[track_caller]
fn parsed(page: &str) -> Parsed {
    let mut parsed = Parsed { tags: Vec::new(), text: String::new() };
    let mut open: Vec<String> = Vec::new();
    let name = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).expect("UTF-8");
    for Ok(token) in Tokenizer::new(page) {
        match token {
            Token::StartTag(tag) => {
                let element = name(&tag.name);
                assert!(ELEMENTS.split(' ').any(|known| known == element), "<{element}>");
                let mut shown = element.clone();
                for (attribute, value) in &tag.attributes {
                    let (attribute, value) = (name(attribute), name(value));
                    assert!(ATTRIBUTES.split(' ').any(|known| known == attribute), "<{element} {attribute}>");
                    let is_plain =
                        !value.contains("://") && !value.contains("url") && !value.contains("script:");
                    assert!(is_plain && !value.contains('<'), "<{element} {attribute}=\"{value}\">");
                    shown.push_str(&format!(" {attribute}"));
                }
                parsed.tags.push(shown);
                if !tag.self_closing && element != "meta" {
                    open.push(element);
                }
            }
            Token::EndTag(tag) => {
                assert_eq!(open.pop(), Some(name(&tag.name)), "elements are closed in order")
            }
            Token::String(text) => {
                let text = name(&text);
                if open.last().is_some_and(|element| element == "style") {
                    for loads in ["url(", "@import", "://", "expression"] {
                        assert!(!text.contains(loads), "the style has {loads}");
                    }
                } else {
                    parsed.text.push_str(&text);
                }
            }
            Token::Doctype(_) => {}
            Token::Comment(comment) => panic!("a comment: {comment:?}"),
            Token::Error(error) => panic!("{error:?}"),
        }
    }
    assert!(open.is_empty(), "all elements are closed: {open:?}");
    parsed
}

/// Replays a log with a page. Returns the printed report and the page.
#[track_caller]
fn with_page(test: &str, args: &[&str], log: &str) -> (String, String) {
    let path = page(test);
    let html = path.to_str().expect("UTF-8");
    let report = text_of(&[args, &["--html", html]].concat(), log);
    (report, fs::read_to_string(html).expect("it was written"))
}

/// Returns the text of the page of a replay.
#[track_caller]
fn text_of_page(test: &str, args: &[&str], log: &str) -> String {
    parsed(&with_page(test, args, log).1).text
}

#[test]
fn the_page_has_the_figures_of_the_report() {
    let args = [LOG, "--limit", "30/min burst 10", "--format", "json"];
    let (report, html) = with_page("figures", &args, "");
    let report: Value = serde_json::from_str(&report).expect("the report is JSON");
    let page = parsed(&html);
    let result = &report["results"][0];
    assert_eq!((&result["passed"], &result["denied"]), (&250.into(), &73.into()));
    for part in [
        "What 30/min burst 10 per ip would have done",
        "2025-03-03 08:00:28 to 2025-03-03 08:14:10 UTC",
        "77.4 %250 requests passed",
        "22.6 %73 requests denied",
        "2of 19 clients were denied something",
        "203.0.113.6613064 (49.2 %)",
        "would have sent 297 of the 323 requests, and been denied 47 times",
        "time zoneUTC",
        "--limit '30/min burst 10' --format json --html",
        "All times are UTC.",
    ] {
        assert!(page.text.contains(part), "{part} is not in {}", page.text);
    }
    // The other algorithms have the figures of a comparison.
    let compared = json(&replay(&[&args[..], &["--compare"]].concat()));
    for outcome in compared["results"].as_array().expect("results") {
        let row = format!("{}{} (", outcome["algorithm"].as_str().expect("a name"), outcome["denied"]);
        assert!(page.text.contains(&row), "{row} is not in {}", page.text);
    }
    let pictures = page.tags.iter().filter(|tag| tag.starts_with("svg class")).count();
    assert_eq!(pictures, 6, "three pictures, each for a wide screen and for a phone");
}

#[test]
fn the_shares_of_a_page_are_those_of_the_text_report() {
    let log = "192.0.2.1 - - [03/Mar/2025:08:00:28 +0000] \"GET / HTTP/1.1\" 200 1\n".repeat(16);
    let (shown, html) = with_page("shares", &["--limit", "15/s"], &log);
    let page = parsed(&html).text;
    for (part, tile) in [("93.8 %", "93.8 %15 requests passed"), ("6.2 %", "6.2 %1 request denied")] {
        assert!(shown.contains(part) && page.contains(tile), "no {tile} in {shown} or {page}");
    }
}

#[test]
fn a_wait_is_never_only_if_a_request_costs_too_much() {
    let held = "time,ip,bytes,took\n1,192.0.2.1,9,100\n2,192.0.2.1,9,1\n2,192.0.2.2,9,1\n";
    let in_flight = ["--limit", "a=1 at once by ip", "--fields", "duration=took"];
    for (args, part, other) in [
        (&in_flight[..], "not told1100 %", "never"),
        (&["--limit", "5/min", "--max-keys", "1"], "not told1100 %", "never"),
        (&["--limit", "5/min", "--cost", "bytes"], "never3100 %", "not told"),
    ] {
        let page = text_of_page("waits", args, held);
        let waits = page.split("How long they would have waited").nth(1).unwrap_or_default();
        let waits = waits.split("How this was made").next().unwrap_or_default();
        assert!(waits.contains(part) && !waits.contains(other), "{args:?}: {waits}");
    }
}

#[test]
fn a_comparison_has_the_same_table_of_algorithms() {
    let table = |name: &str, args: &[&str]| {
        let (_, html) = with_page(name, &[&[LOG, "--limit", "30/min"], args].concat(), "");
        let table = html.split("Algorithms compared").nth(1).and_then(|rest| rest.split("</section>").next());
        table.map(str::to_owned)
    };
    let one = table("one", &[]);
    assert!(one.is_some());
    assert_eq!(one, table("all", &["--compare"]));
    assert_eq!(one, table("other", &["--algorithm", "sliding-log"]));
    let named = table("named", &["--limit", "a=2000000/h by ip"]).expect("a table");
    assert!(named.contains("<td>refused: --limit &#39;a&#39;: "), "{named}");
}

#[test]
fn the_page_shows_what_a_change_would_do() {
    for (hashed, is_named) in [(&[][..], true), (&["--hash-clients"], false)] {
        let args = [LOG, "--limit", "30/min burst 10", "--against", "20/min burst 20"];
        let page = text_of_page("changes", &[&args, hashed].concat(), "");
        let part = "Against 20/min burst 20, 58 decisions of 323 differ: 29 would be newly denied";
        assert!(page.contains(part), "{page}");
        assert_eq!(page.contains("203.0.113.662029"), is_named, "{page}");
    }
}

#[test]
fn the_page_of_limits_with_names_has_the_figures_of_their_report() {
    let limits = ["--limit", "per-ip=30/min burst 10 by ip", "--limit", "logins=5/min by ip for POST /login"];
    let more = ["--limit", "try=10/min by ip", "--shadow", "try", "--against", "per-ip=20/min by ip"];
    let args = [&[LOG][..], &limits, &more].concat();
    let (shown, html) = with_page("limits", &args, "");
    let page = parsed(&html).text;
    assert!(shown.contains("denied                    125    38.9 %"), "{shown}");
    for part in [
        "What 3 limits would have done",
        "38.9 %125 requests denied",
        "per-ip3219 (2.8 %)",
        "logins130116 (89.2 %)",
        "Who is denied by try (shadow)",
        "Who is denied by logins",
        "203.0.113.66130116 (89.2 %)",
        "52 decisions of 321 differ",
        "limitlogins=5/min by ip for POST /login",
    ] {
        assert!(page.contains(part), "{part} is not in {page}");
    }
    let page = text_of_page("limits", &[&args[..], &["--hash-clients"]].concat(), "");
    assert!(!page.contains("203.0.113.66") && !page.contains("2001:db8"), "{page}");
}

const HOSTILE: [&str; 6] = [
    "<script>alert(1)</script>",
    "\\\"><img src=x onerror=alert(1)>",
    "'--></style></title></svg><iframe src=https://evil.example/>",
    "&lt;b&gt;&amp;",
    "<!--",
    "]]><svg/onload=alert(1)>",
];

/// Returns a log in which these texts occur as users, paths and user agents. Each text has three
/// requests.
fn log_with(texts: &[&str]) -> String {
    let line = |text: &&str| {
        format!(
            "192.0.2.1 - {} [03/Mar/2025:08:00:28 +0000] \"GET /{} HTTP/1.1\" 200 1 \"-\" \"{text}\"\n",
            text.replace([' ', '"', '\\'], ""),
            text.replace([' ', '"', '\\'], ""),
        )
        .repeat(3)
    };
    texts.iter().map(line).collect()
}

#[test]
fn no_text_of_a_log_becomes_an_element_or_an_attribute() {
    let harmless: Vec<String> = (0..HOSTILE.len()).map(|number| format!("harmless{number}")).collect();
    let harmless: Vec<&str> = harmless.iter().map(String::as_str).collect();
    let keys = ["path", "user", "user-agent", "path+user-agent", "uri"];
    let by_fields = keys.map(|key| vec!["--limit", "1/min", "--key", key]);
    let named = ["--limit", "a=2/min by path", "--limit", "<b>=1/min by header user-agent"];
    let named = [&named[..], &["--against", "a=1/min by path"]].concat();
    for limits in by_fields.into_iter().chain([named]) {
        let tags = |name: &str, texts: &[&str]| parsed(&with_page(name, &limits, &log_with(texts)).1);
        let (hostile, plain) = (tags("hostile", &HOSTILE), tags("plain", &harmless));
        assert_eq!(hostile.tags, plain.tags, "{limits:?}");
        assert!(hostile.text.contains("alert(1)"), "{limits:?}: {}", hostile.text);
        assert_eq!(hostile.text.contains("denied by <b>"), limits.len() > 4, "{}", hostile.text);
    }
}

#[test]
fn names_of_files_and_fields_and_bad_lines_are_text_too() {
    let odd = scratch("replay_html").join("<b onclick=alert(1)>&.csv");
    let field = "<i>user</i>";
    fs::write(&odd, format!("time,{field}\n1,a\n1,\n<script>,a\n1,\"<script>alert(2)\n")).expect("a file");
    let odd = odd.to_str().expect("UTF-8");
    let page = text_of_page("names", &[odd, "--log-format", "csv", "--limit", "1/min", "--key", field], "");
    for part in ["<b onclick=alert(1)>&.csv", "1/min per <i>user</i>", "without a value of '<i>user</i>'"] {
        assert!(page.contains(part), "{part} is not in {page}");
    }
}

#[test]
fn the_page_is_small_whatever_the_log() {
    let mut log = String::from("time,path\n");
    for client in 0..1000 {
        let path = format!("/{client}{}", "'".repeat(1500));
        log.push_str(&format!("{},{path}\n{},{path}\n", client * 7, client * 7));
    }
    let args = ["--limit", "1/min", "--key", "path", "--top", "100000", "--compare"];
    let (_, page) = with_page("large", &args, &log);
    parsed(&page);
    assert!(page.len() < 1 << 20, "{} bytes", page.len());
}

#[test]
fn hashed_clients_are_named_nowhere_and_differently_in_each_page() {
    let names = |name: &str| {
        let page = text_of_page(name, &[LOG, "--limit", "30/min burst 10", "--hash-clients"], "");
        assert!(page.contains("Clients are shown by hashes"), "{page}");
        for address in ["203.0.113.66", "2001:db8", "198.51.100.7"] {
            assert!(!page.contains(address), "{address} is in {page}");
        }
        let names = page.split("client ").skip(1).filter_map(|rest| rest.get(..16)).map(str::to_owned);
        names.filter(|name| name.bytes().all(|byte| byte.is_ascii_hexdigit())).collect::<BTreeSet<String>>()
    };
    let (one, other) = (names("hashed"), names("hashed_again"));
    assert_eq!((one.len(), other.len()), (2, 2), "{one:?} {other:?}");
    assert!(one.is_disjoint(&other));
}

#[test]
fn an_empty_log_and_one_without_a_denial_have_pages() {
    for (name, log, part) in
        [("empty", String::new(), "The log is empty"), ("passed", log_with(&["a"]), "Nobody.")]
    {
        let page = text_of_page(name, &["--limit", "5/s"], &log);
        assert!(page.contains(part), "{page}");
    }
}

#[test]
fn a_reader_of_decisions_that_leaves_does_not_take_the_page_with_it() {
    let path = page("reader_left");
    let html = path.to_str().expect("UTF-8");
    let long = log().repeat(50);
    let _ = fs::remove_file(&path);
    let mut child = started(&["--limit", "30/min", "--decisions", "-", "--html", html]);
    drop(child.stdout.take());
    child.stdin.take().expect("it is a pipe").write_all(long.as_bytes()).expect("all is read");
    let output = child.wait_with_output().expect("it ends");
    assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
    let page = parsed(&fs::read_to_string(&path).expect("it was written")).text;
    assert!(page.contains("16,150 requests"), "{page}");
}

#[test]
fn a_page_that_cannot_be_is_refused_and_an_earlier_one_stays() {
    for (args, part) in [
        (&["--limit", "5/s", "--html", "-"][..], "--html -: the report goes to standard output"),
        (&["--limit", "5/s", "--html", LOG], "--html would overwrite"),
        (&["--limit", "5/s", "--html", "x", "--decisions", "x"], "--html and --decisions name the same file"),
        (
            &["--limit", "5/s", "--html", "x", "--decisions", "./x"],
            "--html and --decisions name the same file",
        ),
        (&["--limit", "5/s", "--html", "no/such/folder/x.html"], "cannot write to no/such/folder/x.html"),
    ] {
        let message = refusal_of(&[&[LOG], args].concat(), "");
        assert!(message.contains(part), "{args:?}: {message}");
    }
    let quotas = page("quotas");
    fs::write(&quotas, "192.0.2.1,1/min\n").expect("a file");
    let quotas = quotas.to_str().expect("UTF-8");
    let message = refusal_of(&[LOG, "--limit", "5/s", "--quotas", quotas, "--html", quotas], "");
    assert!(message.contains("--html would overwrite"), "{message}");
    let [path, link] = [page("stays"), page("link")];
    fs::write(&path, "earlier").expect("a file");
    let _ = fs::remove_file(&link);
    fs::hard_link(&path, &link).expect("the target directory has links");
    let [html, decisions] = [&path, &link].map(|path| path.to_str().expect("UTF-8"));
    let message = refusal_of(&[LOG, "--limit", "5/s", "--html", html, "--decisions", decisions], "");
    assert!(message.contains("--html and --decisions name the same file"), "{message}");
    refusal_of(&[LOG, "--limit", "5/s", "--strict", "--html", html], "");
    assert_eq!(fs::read_to_string(&path).expect("it is there"), "earlier");
}
