//! Runs the Lua module in `examples/haproxy` in a HAProxy with two threads, over sockets.
//! `make proxies` runs this test.

use crate::install::{installed, pkg_config};
use crate::programs::{of_crate, run};
use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command};
use std::thread;
use std::time::{Duration, Instant};

const QUOTA: usize = 100;
const CLIENTS: usize = 8;
const REQUESTS: usize = 100;

/// Starts a server that answers each connection once.
fn server() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for stream in listener.incoming() {
            thread::spawn(move || {
                let mut stream = stream.unwrap();
                let lines = BufReader::new(stream.try_clone().unwrap()).lines();
                lines.map_while(Result::ok).find(|line| line.is_empty());
                let answer = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\nconnection: close\r\n\r\nhi";
                drop(stream.write_all(answer.as_bytes()));
            });
        }
    });
    address
}

/// A running HAProxy, which ends when this value is dropped.
struct Haproxy {
    process: Child,
    address: SocketAddr,
}

impl Drop for Haproxy {
    fn drop(&mut self) {
        drop(self.process.kill());
        drop(self.process.wait());
    }
}

/// The answer that a client received: the status, and the fields in lower case.
struct Answer {
    status: u16,
    fields: Vec<(String, String)>,
}

impl Answer {
    fn field(&self, name: &str) -> Option<&str> {
        self.fields.iter().find(|(one, _)| one == name).map(|(_, value)| &**value)
    }
}

impl Haproxy {
    /// Starts HAProxy with the example's files, in a folder that contains the module. `limit`
    /// replaces the example's client limit, and `method` the method that its converter calls.
    fn start(folder: &Path, limit: &str, method: &str) -> Self {
        let example = |file: &str| fs::read_to_string(of_crate(&format!("examples/haproxy/{file}"))).unwrap();
        let replaced = |text: String, from: &str, to: &str| {
            assert!(text.contains(from), "no {from} in {text}");
            text.replace(from, to)
        };
        let limits = replaced(example("limits.lua"), "100/s burst 20", limit);
        let limits = replaced(limits, "per_client:check(key)", &format!("per_client:{method}"));
        fs::write(folder.join("limits.lua"), limits).unwrap();
        let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let mut config = replaced(example("haproxy.cfg"), "/etc/haproxy", folder.to_str().unwrap());
        config = replaced(config, "127.0.0.1:8081", &server().to_string());
        config = replaced(config, "bind :8080", &format!("bind {free}"));
        // All clients of this test have the same address.
        config = replaced(config, "src,ipmask(32,64)", "req.fhdr(key)");
        config = replaced(
            config,
            "    default_backend servers",
            "    http-after-response set-header thread %[thread]\n    default_backend servers",
        );
        let file = folder.join("haproxy.cfg");
        fs::write(&file, config).unwrap();
        let library = folder.join("opt/tollgate/lib");
        let haproxy = || {
            let mut haproxy = Command::new("haproxy");
            haproxy.env("LD_LIBRARY_PATH", &library).env("PATH", "/usr/sbin:/usr/local/sbin:/usr/bin:/bin");
            haproxy
        };
        run(haproxy().args(["-c", "-f"]).arg(&file));
        let process = haproxy().args(["-db", "-f"]).arg(&file).spawn().unwrap();
        let started = Self { process, address: free };
        let begin = Instant::now();
        while TcpStream::connect(free).is_err() {
            assert!(begin.elapsed() < Duration::from_secs(30), "HAProxy does not listen on {free}");
            thread::sleep(Duration::from_millis(20));
        }
        started
    }

    fn ask(&self, key: &str) -> Answer {
        self.ask_with(&format!("key: {key}"))
    }

    fn ask_with(&self, field: &str) -> Answer {
        let mut stream = TcpStream::connect(self.address).unwrap();
        write!(stream, "GET / HTTP/1.1\r\nhost: example.com\r\n{field}\r\nconnection: close\r\n\r\n")
            .unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        let head = text.split("\r\n\r\n").next().unwrap();
        let mut lines = head.lines();
        let status = lines.next().and_then(|line| line.split(' ').nth(1)).unwrap().parse().unwrap();
        let fields = lines.filter_map(|line| line.split_once(": "));
        let fields = fields.map(|(name, value)| (name.to_ascii_lowercase(), value.to_owned())).collect();
        Answer { status, fields }
    }
}

/// Installs the library, and compiles the module with the command given in `docs/haproxy.md`.
fn module(folder: &Path) {
    let mut compile = Command::new("cc");
    compile.args(["-O2", "-Wall", "-Wextra", "-Werror", "-fPIC", "-shared", "-o"]);
    compile.arg(folder.join("tollgate.so")).arg(of_crate("examples/haproxy/tollgate.c"));
    let lua = run(Command::new("pkg-config").args(["--cflags", "lua5.3"]));
    let flags = lua + " " + &pkg_config(folder, &["--cflags", "--libs"]);
    run(compile.args(flags.split_whitespace()));
}

#[test]
fn the_page_quotes_the_files_that_are_tested() {
    let file = |path: &str| fs::read_to_string(of_crate(path)).unwrap();
    let page = file("../../docs/haproxy.md");
    for (language, path) in [("lua", "limits.lua"), ("text", "haproxy.cfg")] {
        let quoted = page.split(&format!("```{language}\n")).nth(1).and_then(|rest| rest.split("```").next());
        let quoted = quoted.unwrap_or_else(|| panic!("the page quotes nothing of {path}"));
        assert!(file(&format!("examples/haproxy/{path}")).contains(quoted), "{path} has no {quoted}");
    }
}

#[test]
#[ignore = "needs haproxy and liblua5.3-dev: make proxies"]
fn the_threads_of_haproxy_share_one_limit_of_a_client() {
    let lines = fs::read_to_string(of_crate("examples/haproxy/tollgate.c")).unwrap().lines().count();
    assert!(lines <= 80, "{lines} lines");
    let folder = installed("haproxy");
    module(&folder);
    // The next token is available after 14 minutes.
    let haproxy = Haproxy::start(&folder, &format!("{QUOTA}/d"), "check(key)");
    let answers: Vec<Answer> = thread::scope(|scope| {
        let clients = [(); CLIENTS]
            .map(|()| scope.spawn(|| (0..REQUESTS).map(|_| haproxy.ask("alice")).collect::<Vec<_>>()));
        clients.into_iter().flat_map(|client| client.join().unwrap()).collect()
    });
    let (passed, denied): (Vec<_>, Vec<_>) = answers.iter().partition(|answer| answer.status == 200);
    assert_eq!((passed.len(), denied.len()), (QUOTA, CLIENTS * REQUESTS - QUOTA));
    for answer in denied {
        assert_eq!(answer.status, 429);
        let wait: u64 = answer.field("retry-after").unwrap().parse().unwrap();
        assert!((1..=864).contains(&wait), "{wait}");
    }
    // Both threads must have served requests; otherwise this would not be a test of threads.
    let threads: BTreeSet<_> = passed.iter().filter_map(|answer| answer.field("thread")).collect();
    assert_eq!(threads.len(), 2, "{threads:?}");
    assert_eq!(haproxy.ask("bob").status, 200);
}

/// A request whose wait is not known is refused, whatever the reason.
#[test]
#[ignore = "needs haproxy and liblua5.3-dev: make proxies"]
fn haproxy_refuses_what_the_limit_cannot_decide() {
    let folder = installed("haproxy-undecided");
    module(&folder);
    let status = |method: &str, field: &str| {
        let haproxy = Haproxy::start(&folder, "100/d", method);
        let answer = haproxy.ask_with(field);
        (answer.status, answer.field("retry-after").map(str::to_owned))
    };
    let refused = (429, Some("60".to_owned()));
    assert_eq!(status("check(key)", "key: alice"), (200, None));
    assert_eq!(status("check(key)", "other: alice"), refused, "no sample");
    for fails in ["chekc(key)", "check(key, 1.5)", "check(key, -1)", "check(key, 101)"] {
        assert_eq!(status(fails, "key: alice"), refused, "{fails}");
    }
}

#[test]
#[ignore = "needs haproxy and liblua5.3-dev: make proxies"]
fn haproxy_does_not_start_with_a_quota_that_is_refused() {
    let folder = installed("haproxy-refused");
    module(&folder);
    let of_limit = "limit per_client: ";
    for (limit, parts) in [
        ("100/s burst 0", [of_limit, "burst"]),
        ("100/s\")\ntollgate.limit(\"per_client\", \"50/s", [of_limit, "its quota is `100/s`, not `50/s`"]),
        ("100/s\")\ntollgate.limit(\"per_client\\0s\", \"100/s", ["limits.lua:", "a zero byte"]),
        ("100/s\\0, once", ["limits.lua:", "a zero byte"]),
    ] {
        let start = std::panic::catch_unwind(|| drop(Haproxy::start(&folder, limit, "check(key)")));
        let reason = *start.unwrap_err().downcast::<String>().unwrap();
        assert!(parts.iter().all(|part| reason.contains(part)), "{reason}");
    }
}
